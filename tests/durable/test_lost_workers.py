"""Runs that end their workers: taken up again a few times, and then said to be what they are."""

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.durable.desk import make_desk, read_notes
from tests.durable.fleet import WorkerProcess, write_app
from tests.durable.postgres import SQLITE_FIRST
from tests.durable.serving import worker_beside
from tests.durable.test_damaged_logs import change, stop_in_mid_run
from tests.durable.test_workers_limits import wait_for_state
from toolkit import ConfigurationError, ToolResult
from toolkit.durable import DurableError, DurableRun, DurableRuns, WorkersLostError

pytestmark = pytest.mark.anyio


def on_sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


async def test_a_run_that_has_lost_too_many_workers_fails_and_is_begun_again_by_retry(tmp_path: Path) -> None:
    url, desk = on_sqlite(tmp_path), replace(make_desk(tmp_path), max_lost=3)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    change(tmp_path, "UPDATE toolkit_runs SET lost = 3, ended = 1 WHERE run_id = 'r'")
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(run, "failed")
            status = await run.status()
            assert status.ending == "WorkersLostError"
            assert "each of the 3 workers that moved run 'r' ended without a word" in status.error
            assert "turn 2 was under way, with no result yet of the call 'c1' of the tool 'wait'" in status.error
            assert [note for note in read_notes(tmp_path, "r") if "told" not in note] == ["add c0", "wait c1"]
            await run.retry()
            await wait_for_state(run, "done")
            assert (await run.result()).text == "Done after 3 turns: add wait add."
    assert [note for note in read_notes(tmp_path, "r") if "told" not in note] == ["add c0", "wait c1", "add c2"]


async def test_a_call_that_came_to_its_end_has_the_count_begin_anew(tmp_path: Path) -> None:
    url, desk = on_sqlite(tmp_path), replace(make_desk(tmp_path), max_lost=3)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    change(tmp_path, "UPDATE toolkit_runs SET lost = 3, ended = 0 WHERE run_id = 'r'")
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(await runs.get("r"), "done")


async def test_workers_that_are_told_to_end_do_not_count(tmp_path: Path) -> None:
    url, desk = on_sqlite(tmp_path), replace(make_desk(tmp_path), max_lost=1)
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "wait wait wait add", run_id="r")
        for attempt in range(1, 4):
            with worker_beside(url, desk, grace=0, lease=0.5), anyio.fail_after(90):
                while (await run.status()).attempts < attempt:  # noqa: ASYNC110 - of another thread
                    await anyio.sleep(0.01)
            with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
                assert database.execute("SELECT lost FROM toolkit_runs").fetchall() == [(0,)]
        (tmp_path / "go-r").touch()
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(run, "done")
        assert (await run.status()).attempts >= 3


def test_a_bound_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="max_lost"):
        replace(make_desk(tmp_path), max_lost=0)


_DEADLY = """
import os
from dataclasses import replace
from pathlib import Path
from toolkit import ToolContext, ToolRegistry, tool_with_ctx
from toolkit.testing import FunctionProvider
from tests.durable import desk as old

folder = Path({folder!r})

@tool_with_ctx
async def add(context: ToolContext[old.Desk], n: int) -> str:
    "End the process."
    context.state.note(f"add {{context.call_id}}")
    if not (folder / "mended").exists():
        os._exit(9)
    return "added"

def reply(request):
    if "die" in old.find_words(request.messages) and not (folder / "mended").exists():
        os._exit(9)
    return old.reply(request, folder)

before = old.make_desk(folder)
desk = replace(before, registry=ToolRegistry([add]), provider=FunctionProvider(reply), max_lost=2)
"""


async def move_with_new_workers(app: Path, url: str, run: DurableRun, state: str) -> int:
    """Start a worker whenever the last one has ended, until the run stands so; return how many have."""
    ended, deadline = 0, time.monotonic() + 600
    worker = WorkerProcess(app, url, lease=0.5)
    try:
        while (await run.status()).state != state:
            assert time.monotonic() < deadline
            if not worker.has_not_ended:
                ended += 1
                worker.kill()
                worker = WorkerProcess(app, url, lease=0.5)
            await anyio.sleep(0.05)
    finally:
        worker.kill()
    return ended


@SQLITE_FIRST
@pytest.mark.real
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_or_a_model_that_ends_its_worker_each_time_fails_its_run(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    app, desk = write_app(tmp_path, _DEADLY), make_desk(tmp_path)
    tool = await runs.start(desk, "add add add add", run_id="tool")
    assert await move_with_new_workers(app, url, tool, "failed") == 2
    told = (await tool.status()).error
    assert "each of the 2 workers that moved run 'tool' ended without a word" in told
    assert "turn 2 was under way, with no result yet of the call 'c1' of the tool 'add'" in told
    assert read_notes(tmp_path, "tool") == ["add c0", "add c1"]

    model = await runs.start(desk, "die", run_id="model")
    assert await move_with_new_workers(app, url, model, "failed") == 2
    assert "it had asked for the reply of turn 1" in (await model.status()).error
    with pytest.raises(DurableError, match="WorkersLostError"):
        await model.result(timeout=60)

    (tmp_path / "mended").touch()
    for run in (tool, model):
        await run.retry()
    for run in (tool, model):
        assert await move_with_new_workers(app, url, run, "done") == 0
    results = [message for message in (await tool.result()).messages if isinstance(message, ToolResult)]
    assert ["may have taken effect" in message.text for message in results] == [True, True, False, False]
    assert read_notes(tmp_path, "tool") == ["add c0", "add c1", "add c2", "add c3"]


def test_the_error_says_what_it_knows() -> None:
    error = WorkersLostError("r", 1, "it had asked for the reply of turn 1")
    assert str(error).startswith("the worker that moved run 'r' ended without a word")
