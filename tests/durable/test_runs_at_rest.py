"""Runs at rest: however many await a decision, they cost neither workers nor other runs anything."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from tests.durable.desk import Desk, make_desk
from tests.durable.serving import worker_beside
from tests.durable.test_waiting_runs import Office, check_waits
from tests.durable.test_workers_limits import wait_for_state
from tests.durable.test_workers_scale import database_of
from toolkit import Approve, Usage
from toolkit.durable import DurableLoop, DurableRun, DurableRuns
from toolkit.endings import Complete
from toolkit.events import ResponseReceived, ToolExecutionEnd
from toolkit.loop.approvals import PendingApproval

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


_ENGINES = ("workflow_status", "workflow_input", "workflow_output")


def copy_run(url: str, run_id: str, count: int) -> list[str]:
    """Copy a run at rest, so often, as rows; return the ids."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    schema = "dbos" if engine.dialect.name == "postgresql" else None
    ids = [f"{run_id}x{number}" for number in range(count)]
    for name in (*_ENGINES, "toolkit_events", "toolkit_runs"):
        of_engine = name in _ENGINES
        with engine.begin() as connection:
            table = sa.Table(name, sa.MetaData(), schema=schema if of_engine else None, autoload_with=connection)
            key, suffix = ("workflow_uuid", "/1") if of_engine else ("run_id", "")
            rows = connection.execute(sa.select(table).where(table.c[key] == f"{run_id}{suffix}")).mappings().all()
            copies = [{**row, key: f"{each}{suffix}"} for each in ids for row in rows]
            connection.execute(table.insert(), copies)
    engine.dispose()
    return ids


@contextmanager
def counted_rows() -> Generator[list[str]]:
    """List the statements that anybody in this process has executed."""
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(sa.Engine, "after_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(sa.Engine, "after_cursor_execute", note)


async def decide_run(run: DurableRun) -> None:
    [pending] = (await run.status()).pending
    await run.decide(pending.call_id, Approve(), binding=pending.binding)


async def measure_fresh_run(runs: DurableRuns, desk: DurableLoop[Desk, None], run_id: str) -> tuple[int, float]:
    """Begin another run and list some; return how many statements that took, and how long."""
    with counted_rows() as statements:
        began = time.monotonic()
        run = await runs.start(desk, "end", run_id=run_id)
        assert len(await runs.list(limit=10)) >= 1
        assert len(await runs.list(state="done", limit=10)) <= 10
        mine = [each for each in statements if "toolkit_runs" in each]
        seconds = time.monotonic() - began
    await run.result(timeout=60)
    return len(mine), seconds


async def have_many_wait(url: str, folder: Path, count: int, *, deciding: int = 20) -> str:
    desk = make_desk(folder)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk, concurrency=20):
            first = await runs.start(desk, "refund", run_id="w")
            await wait_for_state(first, "waiting")
            await measure_fresh_run(runs, desk, "warm")
            before = await measure_fresh_run(runs, desk, "before")
            ids = await anyio.to_thread.run_sync(copy_run, url, "w", count)
            await measure_fresh_run(runs, desk, "again")  # what was copied is on its way to the disk
            after = await measure_fresh_run(runs, desk, "after")
            assert after[0] - before[0] < count / 4, "no query for each of them: the worker has some of its own"
            cpu = time.process_time()
            await anyio.sleep(2)
            idle = (time.process_time() - cpu) / 2
            seen: set[str] = set()
            page = await runs.list(state="waiting", limit=500)
            while page:
                seen.update(each.run_id for each in page)
                page = await runs.list(state="waiting", limit=500, after=page[-1].run_id)
            assert seen == {"w", *ids}
            decided = [await runs.get(each) for each in ids[:: max(1, count // deciding)]]
            began = time.monotonic()
            for run in decided:
                await decide_run(run)
            for run in decided:
                await wait_for_state(run, "done")
                assert (await run.result()).text == "Done after 1 turns: refund."
            answered = time.monotonic() - began
            notes = (folder / "notes").read_text().splitlines()
            assert sorted(notes) == sorted([f"{run.id} refund c0 0" for run in decided]), "each once"
            assert len(await runs.list(state="waiting", limit=count + 2)) == count + 1 - len(decided)
    return (
        f"start and list {before[1] * 1_000:.0f} ms, {after[1] * 1_000:.0f} ms after; {idle * 100:.1f} % CPU idle; "
        f"{len(decided)} decided and done in {answered:.0f} s"
    )


@pytest.mark.real
async def test_two_hundred_runs_that_wait_hold_up_nobody_and_go_on_when_decided(tmp_path: Path) -> None:
    print(await have_many_wait(f"sqlite:///{tmp_path / 'runs.db'}", tmp_path, 200, deciding=8))


@pytest.mark.full
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_ten_thousand_runs_that_wait_hold_up_nobody_and_go_on_when_decided(tmp_path: Path, database: str) -> None:
    with database_of(database, tmp_path) as url:
        print(f"| {database} | {await have_many_wait(url, tmp_path, 10_000)} |")


@pytest.mark.full
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_ten_thousand_decisions_are_answered_one_after_the_other(tmp_path: Path, database: str) -> None:
    with database_of(database, tmp_path) as url:
        print(f"| {database} | {await have_many_wait(url, tmp_path, 10_000, deciding=10_000)} |")


async def wait_for_pending(run: DurableRun[None]) -> PendingApproval:
    with anyio.fail_after(120):
        while not (pending := (await run.status()).pending):  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.02)
    return pending[0]


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_durable_run_waits_for_its_sub_agent_and_a_decision_goes_on_inside(
    url: str, runs: DurableRuns, depth: int
) -> None:
    office = Office(depth, limits={"requests": 50, "tool_calls": 50})
    with worker_beside(url, office.loop()):
        run = await runs.start(office.loop(), "Pay.")
        check_waits(office, await run.result(timeout=120))
        pending = await wait_for_pending(run)
        assert (pending.call_id, pending.tool_name, pending.agent) == ("p", "pay", "clerk0")
    office.more = 7  # another release
    with worker_beside(url, office.loop()):
        await run.decide("p", Approve(), binding=pending.binding)
        with anyio.fail_after(120):
            while (again := await wait_for_pending(run)).binding == pending.binding:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert office.runs == ["look l1"]
        await run.decide("p", Approve(), binding=again.binding)
        with anyio.fail_after(120):
            while (result := await run.result()).reason != Complete():  # noqa: ASYNC110
                await anyio.sleep(0.02)
    assert office.runs == ["look l1", "pay 12", "look l2"]
    assert result.usage == Usage(input_tokens=10 * (2 * depth + 3), output_tokens=2 * depth + 3)
    events = [each.event async for each in run.events()]
    clerk = [event for event in events if event.loop_id == pending.loop_id]
    ends = [event.call_id for event in clerk if isinstance(event, ToolExecutionEnd)]
    assert ends == ["l1", "p", "l2"]
    assert [event.iteration for event in clerk if isinstance(event, ResponseReceived)] == [1, 2, 3]
