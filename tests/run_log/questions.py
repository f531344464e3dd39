"""Waits until a run asks something."""

from collections.abc import Mapping
from typing import Any

import anyio

from toolkit.run_log import RunLog


async def find_question(log: RunLog) -> Mapping[str, Any]:
    """Return the first question of the newest run, once it is there."""
    while not log.runs():  # noqa: ASYNC110 - the log is written by another thread
        await anyio.sleep(0.01)
    async for entry in log.follow(log.runs()[0].id):
        if entry.kind == "question_asked":
            return entry.plain
    raise AssertionError("the run ended without a question")
