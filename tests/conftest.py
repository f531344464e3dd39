"""Every async test runs on asyncio and on trio, and what is random is the same each time."""

import gc
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from toolkit.schema.nodes import is_object

# How fast the machine is decides nothing, and a run finds what the last one found; `poe full` looks for more.
_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", _UNHURRIED, derandomize=True, database=None)
settings.register_profile("new", _UNHURRIED)
settings.load_profile("fixed")


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts: half as many again as there are cores, since many tests wait."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare each collection of garbage the half of a million things that are made here, and are there to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# What schedules is tried on both backends in every case.
_SCHEDULING = {"agents", "flows", "loop", "properties", "runtime"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run one case of each table, and two tests of each real peer, on trio; the others in the full run.

    The cases of a table differ in their data, and a server or a model does not know who waits for it.
    """
    seen: Counter[tuple[Path, str]] = Counter()
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        parameters = item.callspec.params
        is_real = item.get_closest_marker("real") is not None
        is_one = len(parameters) == 1 or item.path.parent.name in _SCHEDULING
        if parameters.get("anyio_backend") != "trio" or (is_one and not is_real):
            continue
        group = item.path, "" if is_real else item.originalname
        seen[group] += 1
        if seen[group] > (2 if is_real else 1):
            item.add_marker("full")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Let a report reach the process that prints it, though its test logged what UTF-8 has no bytes for."""
    report = yield
    return _replace_surrogates(report)


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if is_object(value):
        return {_replace_surrogates(key): _replace_surrogates(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_replace_surrogates, value))
    return value


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


@pytest.fixture(scope="session", autouse=True)
def one_certificate() -> Iterator[None]:
    """Let clients trust one authority, which signs nothing: each reads all of them, and the system's take it 20 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(Path(__file__).with_name("nobody.pem")))
        yield
