"""Finished logs, kept as files: whatever changes, they replay to the same bytes.

``python -m tests.durable.finished_logs`` writes those of a new format version, and must not be run for an old one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio

from tests.durable.memory_journal import Memory, MemoryJournal
from tests.durable.scenarios import SCENARIOS, World
from toolkit import ToolLoopResult
from toolkit.chat import dump_messages
from toolkit.events import dump_result

FOLDER = Path(__file__).with_name("finished_logs_v1")


def describe_end(outcome: ToolLoopResult[Any] | Exception) -> str:
    """Return how a run ended, in a form that is compared byte by byte."""
    if isinstance(outcome, Exception):
        return f"{type(outcome).__name__}: {outcome}"
    return json.dumps(dump_result(outcome), ensure_ascii=False, sort_keys=True)


def save_log(path: Path, memory: Memory, messages: str, end: str) -> None:
    runs = {run: [[position, *kept] for position, kept in sorted(log.items())] for run, log in memory.runs.items()}
    lines = {"end": end, "messages": json.loads(messages), "runs": runs}
    path.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load_log(path: Path) -> tuple[Memory, str, str]:
    """Return a log, and the transcript and the end that it has."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    runs = {run: {position: (name, value) for position, name, value in log} for run, log in saved["runs"].items()}
    return Memory(runs), json.dumps(saved["messages"], ensure_ascii=False, separators=(",", ":")), saved["end"]


async def _write_all() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, scenario in SCENARIOS.items():
        memory = Memory()
        outcome, messages = await scenario.run(MemoryJournal(memory), World())
        path = FOLDER / f"{name.replace(' ', '_')}.json"
        if path.exists():
            raise FileExistsError(f"{path} is kept for ever: a new format version gets a folder of its own")
        save_log(path, memory, dump_messages(messages), describe_end(outcome))


if __name__ == "__main__":
    anyio.run(_write_all)
