"""Pytest fixtures that are available wherever toolkit is installed.

The distribution contains this module outside the package, as ``toolkit_pytest``, for pytest to load. It imports toolkit
only inside fixtures, so that other test runs pay nothing, and coverage sees toolkit being imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from toolkit.chat import Provider
    from toolkit.testing import EventCollector, ScriptedProvider, ScriptedReply

_LONGEST_FILE_NAME = 150

pytest.register_assert_rewrite("toolkit.testing.conformance")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records cassettes."""
    group = parser.getgroup("toolkit")
    group.addoption(
        "--record-cassettes",
        action="store_true",
        help="ask the models, and write down what the fixture `cassette` will play without them",
    )


@pytest.fixture
def event_collector() -> EventCollector:
    """Collects the events of a loop: pass it as ``on_event``."""
    from toolkit.testing import EventCollector  # noqa: PLC0415

    return EventCollector()


@pytest.fixture
def scripted_provider() -> Generator[Callable[[Iterable[ScriptedReply]], ScriptedProvider]]:
    """Creates `ScriptedProvider`s; at the end of the test each reply must have been requested."""
    from toolkit.testing import ScriptedProvider  # noqa: PLC0415

    made: list[ScriptedProvider] = []

    def make(replies: Iterable[ScriptedReply]) -> ScriptedProvider:
        made.append(ScriptedProvider(replies))
        return made[-1]

    yield make
    unplayed = sum([provider.unplayed for provider in made])
    if unplayed:
        pytest.fail(f"{unplayed} of the scripted replies were never asked for")


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Callable[[Callable[[], Provider]], Provider]:
    """Replays the recording of a provider, which is created only to record, with ``--record-cassettes``.

    ::

        async def test_the_weather(cassette):
            provider = cassette(lambda: OpenAIProvider("gpt-5-mini"))

    The file is ``cassettes/<module>/<class>.<test>_<parameters>.jsonl`` next to the test's own; recording
    overwrites it. For other settings, create the `RecordingProvider` and `ReplayProvider` yourself.
    """
    from toolkit.testing import RecordingProvider, ReplayProvider  # noqa: PLC0415

    path = Path(request.path.parent, "cassettes", request.path.stem, f"{_make_file_name(request.node.nodeid)}.jsonl")
    is_recording = bool(request.config.getoption("record_cassettes"))
    if is_recording:
        path.unlink(missing_ok=True)

    def take(make: Callable[[], Provider]) -> Provider:
        return RecordingProvider(make(), path) if is_recording else ReplayProvider(path)

    return take


def _make_file_name(nodeid: str) -> str:
    """Return the file name for a test, with its class and parameters, in which tests of one name differ."""
    test = nodeid.partition("::")[2].replace("::", ".")
    name = test.removesuffix("]").replace("[", "_")
    fitting = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:_LONGEST_FILE_NAME]
    return name if name == fitting else f"{fitting}-{sha256(test.encode()).hexdigest()[:8]}"
