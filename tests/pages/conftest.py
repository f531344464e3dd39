"""The site, built once for all tests that look at it, in however many processes they run."""

import fcntl
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browsers import browser

__all__ = ["browser", "site"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def kept_logging() -> Iterator[None]:
    """Have what a page switches on in logging hold for that page alone."""
    loggers = [logging.root, *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))]
    before = [(each, each.level, list(each.handlers)) for each in loggers]
    yield
    for each in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        each.setLevel(logging.NOTSET)
    for each, level, handlers in before:
        each.setLevel(level)
        each.handlers[:] = handlers


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Build the site as ``poe docs`` does, and return its folder."""
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        shared = shared.parent  # of all processes of this run
    log_file = shared / "site.log"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log_file.exists():
            command = [sys.executable, "-m", "docs.site"]
            build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
            log_file.write_text(f"exit code {build.returncode}\n{build.stdout}{build.stderr}", encoding="utf-8")
    log = log_file.read_text(encoding="utf-8")
    assert log.startswith("exit code 0\n"), log
    assert "griffe:" not in log, f"a docstring that can't be read as a whole: {log}"
    return ROOT / "build" / "site"
