"""A run on the real local model is recorded, and plays again byte for byte where there is no model."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkit import Provider, TextDelta, ToolLoopConfig, ToolRegistry, tool, tool_loop
from toolkit.chat import dump_messages
from toolkit.events import ArgumentsDelta
from toolkit.providers.local import LocalProvider
from toolkit.testing import EventCollector, RecordingProvider, ReplayProvider, check_transcript

pytestmark = [pytest.mark.real, pytest.mark.anyio]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


async def run(provider: Provider, *, streams: bool) -> tuple[str, str, list[object]]:
    """A loop, as the bytes of its transcript, what it cost, and its deltas."""
    events = EventCollector()
    config = ToolLoopConfig(on_event=events, stream=streams)
    result = await tool_loop(provider, ToolRegistry([add]), "What is 17 plus 25?", config=config)
    check_transcript(result.messages, events.events)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    deltas: list[object] = [*events.of(ArgumentsDelta), *events.of(TextDelta)]
    return dump_messages(result.messages), repr(result.usage), deltas


@pytest.fixture
def written() -> Callable[[Path], bytes]:
    return Path.read_bytes


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_a_run_on_the_local_model_replays_byte_for_byte(
    tmp_path: Path, written: Callable[[Path], bytes], streams: bool
) -> None:
    path = tmp_path / "local.jsonl"
    async with LocalProvider() as model:
        recorded = await run(RecordingProvider(model, path), streams=streams)
    before = written(path)
    began = time.monotonic()
    for _ in range(2):
        replay = ReplayProvider(path)
        assert await run(replay, streams=streams) == recorded
        assert replay.unplayed == 0
    print(f"{len(before)} bytes recorded; two replays in {time.monotonic() - began:.3f} s")
    assert written(path) == before

    # Recorded again from its own replay, the cassette is the same file.
    again = tmp_path / "again.jsonl"
    assert await run(RecordingProvider(ReplayProvider(path), again), streams=streams) == recorded
    assert written(again) == before
