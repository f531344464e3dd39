"""Workers as processes on SQLite and on Postgres: killed, frozen, replaced by others with new code."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from anyio import to_thread
from sqlalchemy import event

from tests.durable.desk import make_desk, read_notes
from tests.durable.fleet import WorkerProcess, start_workers, write_app
from tests.durable.postgres import SQLITE_FIRST, PostgresServer
from tests.durable.serving import worker_beside
from tests.durable.test_workers_limits import wait_for_state
from toolkit import Approve, ToolResult
from toolkit.chat import validate_transcript
from toolkit.durable import DurableRun, DurableRuns
from toolkit.durable.storage import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # clients on trio are tested with a worker in this process


async def wait_for(folder: Path, run: DurableRun, note: str) -> None:
    with anyio.fail_after(120):
        while note not in read_notes(folder, run.id):  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.01)


async def test_the_runs_of_a_worker_that_is_killed_go_on_at_another(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    [first] = start_workers(1, app, url)
    run = await runs.start(desk, "add wait add")
    await wait_for(tmp_path, run, "wait c1")
    [second] = start_workers(1, app, url)
    first.kill()
    try:
        result = await run.result(timeout=120)
    finally:
        second.kill()
    assert result.text == "Done after 3 turns: add wait add."
    assert read_notes(tmp_path, run.id) == ["add c0", "wait c1", "add c2"]
    texts = [message.text for message in result.messages if isinstance(message, ToolResult)]
    assert "may have taken effect" in texts[1]
    assert (texts[0], texts[2]) == ("added 0", "added 2")
    seqs = [told.seq async for told in run.events()]
    assert seqs == sorted(set(seqs))
    assert (await run.status()).attempts >= 2


@SQLITE_FIRST
async def test_a_worker_that_is_told_to_end_lets_its_runs_come_to_rest(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    [worker] = start_workers(1, app, url, "--grace", "100")
    run = await runs.start(desk, "wait add")
    await wait_for(tmp_path, run, "wait c0")
    worker.terminate()
    (tmp_path / f"go-{run.id}").touch()
    result = await run.result(timeout=120)
    assert worker.wait_for_end() == 143
    assert result.text == "Done after 2 turns: wait add."
    assert (await run.status()).attempts == 1


@SQLITE_FIRST
async def test_the_runs_that_a_worker_can_not_end_go_on_at_another_at_once(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    first, second = start_workers(2, app, url, "--grace", "1", lease=60)
    run = await runs.start(desk, "wait")
    await wait_for(tmp_path, run, "wait c0")
    executors = [first, second]
    for worker in executors:
        worker.terminate()
    for worker in executors:
        assert worker.wait_for_end() == 143
    [third] = start_workers(1, app, url, lease=1)
    try:
        result = await run.result(timeout=120)
    finally:
        third.kill()
    (told,) = [message for message in result.messages if isinstance(message, ToolResult)]
    assert "may have taken effect" in told.text
    assert read_notes(tmp_path, run.id)[:1] == ["wait c0"]


async def test_what_a_frozen_worker_writes_late_is_refused(runs: DurableRuns, url: str, tmp_path: Path) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    [frozen] = start_workers(1, app, url)
    run = await runs.start(desk, "wait add")
    await wait_for(tmp_path, run, "wait c0")
    frozen.freeze(url)
    [other] = start_workers(1, app, url)
    try:
        result = await run.result(timeout=120)
        told = [event async for event in run.events()]
        (tmp_path / f"go-{run.id}").touch()  # the frozen one finds that its call has ended, and goes on
        frozen.send(signal.SIGCONT)
        await anyio.sleep(2)
        assert (await run.result(timeout=120)).messages == result.messages
        assert [event async for event in run.events()] == told
    finally:
        frozen.kill()
        other.kill()
    validate_transcript(result.messages)
    assert read_notes(tmp_path, run.id) == ["wait c0", "add c1"]


async def test_a_connection_that_is_returned_after_the_end_is_closed(postgres: PostgresServer) -> None:
    storage = await to_thread.run_sync(Storage, postgres.make_database())
    late = storage.engine.raw_connection()
    connection: Any = late.driver_connection
    storage.close()
    late.close()
    assert connection.closed


_FREEZES_IN_A_TRANSACTION = """
import os
import signal
from pathlib import Path
import sqlalchemy as sa
from tests.durable.desk import make_desk

folder = Path({folder!r})
desk = make_desk(folder)

@sa.event.listens_for(sa.Engine, "after_cursor_execute")
def freeze(connection, cursor, statement, parameters, context, executemany):
    if "INSERT INTO toolkit_events" in statement and not (folder / "frozen").exists():
        (folder / "frozen").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
"""


async def test_a_worker_that_is_frozen_in_a_transaction_loses_its_locks(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    app = write_app(tmp_path, _FREEZES_IN_A_TRANSACTION)
    desk, url = make_desk(tmp_path), postgres.make_database()
    async with DurableRuns(url) as runs:
        [frozen] = start_workers(1, app, url)
        run = await runs.start(desk, "add")
        with anyio.fail_after(120):
            while not (tmp_path / "frozen").exists():  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.01)
        [other] = start_workers(1, app, url)
        try:
            result = await run.result(timeout=120)
        finally:
            frozen.kill()
            other.kill()
    assert result.text == "Done after 1 turns: add."


@contextmanager
def ending_sessions(url: str) -> Generator[list[str]]:
    """Have Postgres end the session of the first statement of each kind that writes to our tables, as if it idled.

    Yields:
        The kinds of statement whose sessions were ended, with their tables.
    """
    ended: list[str] = []
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    lock = threading.Lock()
    count = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")

    def end(_: object, cursor: Any, statement: str, *__: object) -> None:
        found = re.match(r"\s*(INSERT INTO|UPDATE|DELETE FROM) toolkit_(entries|events|contents|runs)\b", statement)
        with lock:
            if found is None or found[0] in ended:
                return
            ended.append(found[0])
        cursor.connection.cursor().execute("SET LOCAL idle_in_transaction_session_timeout = 1")
        with engine.connect() as watching:
            while watching.scalar(count, {"pid": cursor.connection.info.backend_pid}):
                watching.rollback()

    event.listen(sa.Engine, "after_cursor_execute", end)
    try:
        yield ended
    finally:
        event.remove(sa.Engine, "after_cursor_execute", end)
        engine.dispose()


def test_a_client_may_pause_in_a_transaction_for_longer_than_a_worker(postgres: PostgresServer) -> None:
    """A worker repeats what it did in a transaction that Postgres has ended, and a client raises an error."""
    url, limits = postgres.make_database(), dict[bool, str]()
    for is_worker in (True, False):
        storage = Storage(url, may_migrate=is_worker)
        with storage.engine.connect() as connection:
            limits[is_worker] = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
        storage.close()
    assert limits == {True: "5s", False: "30s"}


async def test_a_run_goes_on_where_the_database_ends_sessions_of_its_worker(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url, desk = postgres.make_database(), make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "add refund add")
        with worker_beside(url, desk), ending_sessions(url) as ended:
            await wait_for_state(run, "waiting")
        [pending] = (await run.status()).pending
        await run.decide(pending.call_id, Approve(), binding=pending.binding)
        with worker_beside(url, desk), ending_sessions(url):
            result = await run.result(timeout=120)
    assert {"INSERT INTO toolkit_entries", "INSERT INTO toolkit_events", "UPDATE toolkit_runs"} <= set(ended)
    assert result.text == "Done after 3 turns: add refund add."
    assert read_notes(tmp_path, run.id) == ["add c0", "refund c1 1", "add c2"]


@pytest.mark.full
async def test_a_worker_that_is_frozen_in_an_answer_loses_its_locks(postgres: PostgresServer) -> None:
    storage = await to_thread.run_sync(Storage, postgres.make_database())
    others = sa.text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event = 'ClientWrite'"
    )
    raw = storage.engine.raw_connection()
    try:
        raw.cursor().execute("SELECT 1")
        connection: Any = raw.driver_connection
        connection.pgconn.send_query(b"SELECT repeat('x', 1000000) FROM generate_series(1, 300)")
        connection.pgconn.flush()
        for wanted in (1, 0):
            with anyio.fail_after(120), storage.engine.connect() as watching:
                while watching.scalar(others) != wanted:
                    watching.rollback()
                    await anyio.sleep(0.1)
    finally:
        raw.invalidate()
        storage.close()


@SQLITE_FIRST
async def test_an_approval_is_answered_after_all_workers_were_replaced_by_new_code(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    [old] = start_workers(1, app, url)
    run = await runs.start(desk, "refund add")
    await run.result(timeout=120)
    assert old.end() == 143
    app.write_text(app.read_text() + "\nNEW = 'code'\n")
    (pending,) = (await run.status()).pending
    await run.decide(pending.call_id, Approve(), binding=pending.binding)
    [new] = start_workers(1, app, url)
    try:
        result = await run.result(timeout=120)
    finally:
        new.kill()
    assert result.text == "Done after 2 turns: refund add."
    assert read_notes(tmp_path, run.id) == ["refund c0 0", "add c1"]


_NEW_TOOL = """
from pathlib import Path
from toolkit import ToolContext, ToolRegistry, tool_with_ctx
from tests.durable import desk as old

@tool_with_ctx(requires_approval=True)
async def refund(context: ToolContext[old.Desk], n: int, currency: str = "EUR") -> str:
    "Give money back, in a currency."
    context.state.note(f"new refund {{context.call_id}} {{n}} {{currency}}")
    return "refunded"

from dataclasses import replace
before = old.make_desk(Path({folder!r}))
desk = replace(before, registry=ToolRegistry([old.add, refund, old.wait]))
"""


@SQLITE_FIRST
async def test_a_decision_on_a_tool_that_was_changed_meanwhile_is_asked_for_anew(
    runs: DurableRuns, url: str, tmp_path: Path
) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    [old] = start_workers(1, app, url)
    run = await runs.start(desk, "refund")
    await run.result(timeout=120)
    old.kill()
    (pending,) = (await run.status()).pending
    [new] = start_workers(1, write_app(tmp_path, _NEW_TOOL), url)
    try:
        await run.decide(pending.call_id, Approve(), binding=pending.binding)
        with anyio.fail_after(120):
            while (await run.status()).state != "waiting":  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.02)
        (again,) = (await run.status()).pending
        assert again.binding != pending.binding
        assert read_notes(tmp_path, run.id) == []
        await run.decide(again.call_id, Approve(), binding=again.binding)
        await run.result(timeout=120)
    finally:
        new.kill()
    assert read_notes(tmp_path, run.id) == ["new refund c0 0 EUR"]


async def test_postgres_may_be_killed_and_started_again_under_a_run(postgres: PostgresServer, tmp_path: Path) -> None:
    app, desk, url = write_app(tmp_path), make_desk(tmp_path), postgres.make_database()
    async with DurableRuns(url) as runs:
        [worker] = start_workers(1, app, url)
        try:
            run = await runs.start(desk, "add wait add")
            await wait_for(tmp_path, run, "wait c1")
            postgres.kill()
            (tmp_path / f"go-{run.id}").touch()
            await anyio.sleep(2)
            postgres.start()
            result = await run.result(timeout=120)
        finally:
            worker.kill()
    assert result.text == "Done after 3 turns: add wait add."
    assert read_notes(tmp_path, run.id) == ["add c0", "wait c1", "add c2"]


@SQLITE_FIRST
async def test_the_command_line_shows_durable_runs(runs: DurableRuns, url: str, tmp_path: Path) -> None:
    app, desk = write_app(tmp_path), make_desk(tmp_path)
    [worker] = start_workers(1, app, url)
    try:
        await (await runs.start(desk, "add", run_id="ticket17")).result(timeout=120)
    finally:
        worker.kill()
    assert "done (complete)" in run_toolkit("runs", "list", "--log", url)
    assert "add done" in run_toolkit("runs", "show", "tick", "--log", url)


def run_toolkit(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "toolkit", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_worker_says_what_is_wrong_with_its_command(tmp_path: Path) -> None:
    app = write_app(tmp_path)
    worker = WorkerProcess(app.with_name("app.py"), "sqlite://")
    assert worker.wait_for_end(60) == 2
    assert "need a file, as in 'sqlite:///runs.db'" in worker.log.read_text()
