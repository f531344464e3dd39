"""What has ended is deleted in time with all that was kept of it; what waits is kept whole, however old it is."""

from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from tests.durable.desk import make_desk, read_notes
from tests.durable.postgres import SQLITE_FIRST
from tests.durable.serving import worker_beside
from tests.durable.test_runs_at_rest import decide_run
from tests.durable.test_workers_limits import wait_for_state
from toolkit.durable import DurableError, DurableRuns

pytestmark = [pytest.mark.anyio, pytest.mark.real]

_LARGE = "large" * 4_000
"""So large that it is kept beside the rows."""

_OURS = {
    "toolkit_runs": "run_id",
    "toolkit_events": "run_id",
    "toolkit_inbox": "run_id",
    "toolkit_entries": "run_id",
    "toolkit_contents": "run_id",
    "workflow_status": "workflow_uuid",
    "workflow_input": "workflow_uuid",
    "workflow_output": "workflow_uuid",
    "operation_outputs": "workflow_uuid",
}


def read_rows(url: str) -> dict[str, dict[str, list[str]]]:
    """Return all that a database has of runs: by run, by table."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    found: dict[str, dict[str, list[str]]] = {}
    with engine.connect() as connection:
        for name, key in _OURS.items():
            is_foreign = engine.dialect.name == "postgresql" and not name.startswith("toolkit")
            table = f"dbos.{name}" if is_foreign else name
            for row in connection.execute(sa.text(f"select * from {table}")).mappings():
                by_table = found.setdefault(str(row[key]).partition("/")[0], {})
                by_table.setdefault(name, []).append(str(dict(row)))
    engine.dispose()
    return {run_id: {name: sorted(rows) for name, rows in tables.items()} for run_id, tables in found.items()}


@SQLITE_FIRST
async def test_what_has_ended_is_deleted_whole_and_what_waits_is_kept_whole(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path)
    with worker_beside(url, desk, keep_seconds=3_600):
        done = await runs.start(desk, f"add {_LARGE}", run_id="done")
        failed = await runs.start(desk, f"add fail {_LARGE}", run_id="failed")
        cancelled = await runs.start(desk, "refund", run_id="cancelled")
        waiting = await runs.start(desk, f"add refund {_LARGE}", run_id="waiting")
        for run, state in ((done, "done"), (failed, "failed"), (cancelled, "waiting"), (waiting, "waiting")):
            await wait_for_state(run, state)
        await cancelled.cancel()
        await done.say("add")
        await wait_for_state(cancelled, "cancelled")
        with anyio.fail_after(90):
            while len((await done.result()).messages) < 6:  # noqa: ASYNC110 - of another thread
                await anyio.sleep(0.05)
        await anyio.sleep(2)
        before = read_rows(url)
    assert set(before) == {"done", "failed", "cancelled", "waiting"}, "none before its time"
    assert all("toolkit_contents" in before[run_id] for run_id in ("done", "failed", "waiting"))
    with worker_beside(url, desk, keep_seconds=0.2):
        with anyio.fail_after(90):
            while len(await runs.list()) > 1:  # noqa: ASYNC110 - of another thread
                await anyio.sleep(0.05)
        await anyio.sleep(1.5)
        assert read_rows(url) == {"waiting": before["waiting"]}
    with worker_beside(url, desk):
        await decide_run(waiting)
        await wait_for_state(waiting, "done")
        assert _LARGE in (await waiting.result()).text
        again = await runs.start(desk, "add", run_id="done")
        assert (await again.result(timeout=90)).text == "Done after 1 turns: add."
    assert read_notes(tmp_path, "waiting") == ["add c0", "refund c1 1"]
    with worker_beside(url, desk, keep_seconds=0.2), anyio.fail_after(90):
        while read_rows(url):  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.05)


@SQLITE_FIRST
async def test_a_run_that_moves_is_not_deleted_by_anybody(runs: DurableRuns, url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    with worker_beside(url, desk, keep_seconds=0):
        run = await runs.start(desk, "wait refund", run_id="r")
        with anyio.fail_after(90):
            while not read_notes(tmp_path, "r"):  # noqa: ASYNC110 - of another thread
                await anyio.sleep(0.01)
        with pytest.raises(DurableError, match="is running: cancel it"):
            await runs.delete("r")
        await anyio.sleep(1.5)
        (tmp_path / "go-r").touch()
        await wait_for_state(run, "waiting")
        await anyio.sleep(1.5)
        assert [each.run_id for each in await runs.list()] == ["r"]
        await runs.delete("r")
    assert read_rows(url) == {}
