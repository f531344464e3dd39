"""A real browser: Debian's Chromium, driven by Playwright; installed where it is not there and may be."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

__all__ = ["browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MOST_MILLISECONDS = 120_000  # of a machine that others keep busy
_HINT = "no browser: 'apt-get install chromium', or any Chromium or Chrome on the PATH"


def _find_browser() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _install_browser() -> None:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]):
        subprocess.run(command, env=quiet, capture_output=True, check=False, timeout=600)


# Playwright has an event loop of its own on this thread, which ends with it: async tests of other modules need theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if _find_browser() is None:
        _install_browser()
    path = _find_browser()
    if path is None:
        pytest.skip(_HINT)
    expect.set_options(timeout=_MOST_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
