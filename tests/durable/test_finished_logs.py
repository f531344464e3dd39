"""A log that is kept as a file replays to the same bytes, with no tools and a provider that raises."""

import json
from pathlib import Path

import pytest

from tests.durable.finished_logs import FOLDER, describe_end, load_log
from tests.durable.memory_journal import MemoryJournal
from tests.durable.scenarios import SCENARIOS, World
from toolkit import ToolRegistry
from toolkit.chat import ChatRequest, dump_messages
from toolkit.events import load_result
from toolkit.testing import FunctionProvider


def raise_when_asked(request: ChatRequest) -> str:
    raise AssertionError(f"the model was asked about {len(request.messages)} messages")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_a_finished_log_replays_to_the_same_bytes(path: Path, anyio_backend: str) -> None:
    memory, messages, end = load_log(path)
    scenario, world = SCENARIOS[path.stem.replace("_", " ")], World()
    outcome, repeated = await scenario.run(
        MemoryJournal(memory), world, provider=FunctionProvider(raise_when_asked), registry=ToolRegistry[World]()
    )
    assert dump_messages(repeated) == messages
    # A field that a result has now, and had not when the log was written, has its default.
    assert describe_end(outcome) == (describe_end(load_result(json.loads(end))) if end.startswith("{") else end)
    assert not world.starts


def test_each_scenario_has_its_finished_log() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {name.replace(" ", "_") for name in SCENARIOS}
