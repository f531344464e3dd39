"""Workers as processes where something is wrong with their machine: leases that are too short, clocks, full disks."""

import resource
import sys
from pathlib import Path

import anyio
import pytest

from tests.durable.desk import make_desk, read_notes
from tests.durable.fleet import WorkerProcess, start_workers, write_app
from tests.durable.postgres import SQLITE_FIRST, PostgresServer
from tests.durable.test_hard_scenarios import store_odd_texts
from toolkit import Approve, ToolResult
from toolkit.chat import validate_transcript
from toolkit.durable import DurableRun, DurableRuns
from toolkit.events import ToolExecutionEnd

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # clients on trio are tested with a worker in this process


async def check_calls(run: DurableRun, folder: Path) -> None:
    """Check that no call ran twice, that results are true, and that each end was told once."""
    result = await run.result(timeout=300)
    validate_transcript(result.messages)
    notes = read_notes(folder, run.id)
    assert len([note for note in notes if "told" not in note]) == len({note for note in notes if "told" not in note})
    for each in result.messages:
        if isinstance(each, ToolResult) and not each.is_error and each.tool_name == "slow":
            assert f"ended {each.call_id}" in notes
    told = [each.event async for each in run.events()]
    ends = [event.call_id for event in told if isinstance(event, ToolExecutionEnd) and event.loop_id == run.id]
    assert sorted(ends) == sorted(each.call_id for each in result.messages if isinstance(each, ToolResult))


@SQLITE_FIRST
async def test_a_lease_that_is_far_too_short_runs_no_call_twice(runs: DurableRuns, url: str, tmp_path: Path) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    workers = start_workers(2, app, url, lease=0.1)
    try:
        made = [await runs.start(desk, "slow pair add slow", run_id=f"r{each}") for each in range(4)]
        for run in made:
            await check_calls(run, tmp_path)
    finally:
        for worker in workers:
            worker.kill()


@SQLITE_FIRST
async def test_a_call_that_takes_longer_than_the_lease_is_not_taken_over(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    workers = start_workers(2, app, url, lease=4)
    try:
        run = await runs.start(desk, "wait add", run_id="r")
        with anyio.fail_after(120):
            while not read_notes(tmp_path, "r"):  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.01)
        await anyio.sleep(7)
        (tmp_path / "go-r").touch()
        await check_calls(run, tmp_path)
    finally:
        for worker in workers:
            worker.kill()
    assert (await run.status()).attempts == 1


async def test_postgres_takes_texts_that_it_does_not_like(postgres: PostgresServer, tmp_path: Path) -> None:
    await store_odd_texts(postgres.make_database(), tmp_path)


_WRONG_CLOCK = """
import time
right = time.time
time.time = lambda: right() + {{jump}}
from pathlib import Path
from dataclasses import replace
from tests.durable.desk import make_desk

desk = replace(make_desk(Path({folder!r})), approval_expiry=600)
"""


@SQLITE_FIRST
async def test_a_worker_whose_clock_is_an_hour_wrong_does_no_harm(runs: DurableRuns, url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    workers: list[WorkerProcess] = []
    try:
        for jump in ("3600", "-3600"):
            (tmp_path / jump).mkdir()
            app = tmp_path / jump / "app.py"
            app.write_text(_WRONG_CLOCK.format(folder=str(tmp_path)).format(jump=jump))
            workers += start_workers(1, app, url, "--keep-days", "0.02", lease=1)
        made = [await runs.start(desk, "slow refund slow", run_id=f"r{each}") for each in range(4)]
        for run in made:
            assert (await run.result(timeout=300)).reason.kind == "awaiting_approval"
        workers[0].kill()
        await anyio.sleep(3)
        for run in made:
            [pending] = (await run.status()).pending
            await run.decide(pending.call_id, Approve(), binding=pending.binding)
        for run in made:
            await check_calls(run, tmp_path)
            assert "refund c1 1" in read_notes(tmp_path, run.id), "the approval did not expire"
        await anyio.sleep(2)
        assert len(await runs.list()) == 4, "no run was deleted before its time"
    finally:
        for worker in workers:
            worker.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set by Linux's prlimit")
async def test_a_worker_whose_disk_is_full_goes_on_when_there_is_space(tmp_path: Path) -> None:
    url, app, desk = f"sqlite:///{tmp_path / 'runs.db'}", write_app(tmp_path), make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        [worker] = start_workers(1, app, url, lease=1)
        try:
            run = await runs.start(desk, "wait slow pair add", run_id="r")
            with anyio.fail_after(120):
                while not read_notes(tmp_path, "r"):  # noqa: ASYNC110 - of another process
                    await anyio.sleep(0.01)
            full = (64_000, resource.RLIM_INFINITY)  # of each file: less than the database has
            assert worker.process.pid is not None
            resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, full)
            (tmp_path / "go-r").touch()
            await anyio.sleep(5)
            assert worker.has_not_ended
            assert (await run.status()).state == "running"
            assert "slow c1" not in read_notes(tmp_path, "r"), "no turn goes on whose entry is not kept"
            space = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, space)
            await check_calls(run, tmp_path)
        finally:
            worker.kill()
        assert (await run.result()).text == "Done after 4 turns: wait slow pair add."
        assert (await run.status()).attempts == 1
