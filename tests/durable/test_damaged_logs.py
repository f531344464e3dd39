"""Logs that were edited or cut, a database that is full, and runs that can't begin."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.serving import worker_beside
from tests.durable.test_workers_limits import wait_for_notes, wait_for_state
from toolkit import Approve
from toolkit.chat import UserMessage
from toolkit.durable import (
    DatabaseUnavailableError,
    DurableError,
    DurableLoop,
    DurableRun,
    DurableRuns,
    RunPlace,
    storage as storage_module,
)
from toolkit.events import ToolCallRefused, ToolExecutionEnd

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


def change(folder: Path, *statements: str) -> None:
    """Edit the database as somebody with its password would."""
    with closing(sqlite3.connect(folder / "runs.db")) as database, database:
        for statement in statements:
            assert database.execute(statement).rowcount == 1, statement


async def stop_in_mid_run(url: str, folder: Path, desk: DurableLoop[Desk, None], words: str, note: str) -> DurableRun:
    """Begin a run, and end its worker in the middle of it, as a crash would."""
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk, grace=0):
            run = await runs.start(desk, words, run_id="r")
            with anyio.fail_after(90):
                while note not in read_notes(folder, "r") or not has_all_events(folder):  # noqa: ASYNC110 - of a thread
                    await anyio.sleep(0.01)
        return run


def has_all_events(folder: Path) -> bool:
    """Return whether each stored reply and each stored end of a call of the run's own loop has its event."""
    stored = "SELECT name FROM toolkit_entries WHERE path = '' AND (name LIKE 'turn %' OR name LIKE 'call %')"
    with closing(sqlite3.connect(folder / "runs.db")) as database:
        return not database.execute(f"{stored} EXCEPT SELECT entry FROM toolkit_events").fetchall()


_STEPS = "toolkit_entries WHERE run_id = 'r' AND name"
CHANGES = {
    f"DELETE FROM {_STEPS} = 'call c0'": "was cut: the database has the event of 'call c0', and not the entry",
    f"DELETE FROM {_STEPS} = 'turn 2'": "was cut: the database has the event of 'turn 2', and not the entry",
    "UPDATE toolkit_entries SET value = replace(value, 'added 0', 'added 9') WHERE name = 'call c0'": (
        "the entry 'call c0' of the log can't be read: it was changed"
    ),
    "UPDATE toolkit_entries SET value = 'nothing' WHERE name = 'turn 1'": "the entry 'turn 1' .* changed",
    "UPDATE toolkit_entries SET name = 'call c7' WHERE name = 'call c0'": "was cut: .* the event of 'call c0'",
}


@pytest.mark.parametrize("statement", CHANGES)
async def test_a_log_that_was_edited_or_cut_fails_the_run_and_does_nothing(
    statement: str, url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        whole = list(database.execute("SELECT * FROM toolkit_entries WHERE run_id = 'r'"))
    change(tmp_path, statement)
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with worker_beside(url, desk, lease=0.5):
            with pytest.raises(DurableError, match=CHANGES[statement]):
                await run.result(timeout=90)
            assert [note for note in read_notes(tmp_path, "r") if "told" not in note] == ["add c0", "wait c1"]
            await run.say("go on")  # waits: the transcript has less than what was recorded
            with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
                database.execute("DELETE FROM toolkit_entries WHERE run_id = 'r'")
                marks = ", ".join("?" * len(whole[0]))
                database.executemany(f"INSERT INTO toolkit_entries VALUES ({marks})", whole)
            await run.retry()
            await wait_for_state(run, "done")
            result = await run.result()
    assert [note for note in read_notes(tmp_path, "r") if "told" not in note] == ["add c0", "wait c1", "add c2"]
    assert [message.text for message in result.messages if isinstance(message, UserMessage)] == [
        "add wait add",
        "go on",
    ]


async def test_a_context_that_can_not_be_made_loses_nothing_of_the_run(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")

    def refuse(run: RunPlace) -> Desk:
        if (tmp_path / "mended").exists():
            return Desk(tmp_path, run.run_id)
        raise RuntimeError("the customers' database is away: password=hunter22")

    broken: Any = replace(desk, make_context=refuse)
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with worker_beside(url, broken, lease=0.5):
            fresh = await runs.start(desk, "add", run_id="fresh")
            for each in (run, fresh):
                with pytest.raises(DurableError, match=r"RuntimeError: .* password=\*\*\*"):
                    await each.result(timeout=90)
            (tmp_path / "mended").touch()
            await run.retry()
            await fresh.say("add")
            for each in (run, fresh):
                await wait_for_state(each, "done")
            assert (await run.result()).text == "Done after 3 turns: add wait add."
            assert (await fresh.result()).text == "Done after 2 turns: add add."
    assert [note for note in read_notes(tmp_path, "r") if "told" not in note] == ["add c0", "wait c1", "add c2"]


async def test_what_was_said_to_a_turn_that_failed_is_said_when_it_is_tried_again(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "wait fail", run_id="r")
            await wait_for_notes(tmp_path, [run], 1)
            await run.steer("now")
            with closing(sqlite3.connect(tmp_path / "runs.db")) as database, anyio.fail_after(90):
                while not database.execute("SELECT count(*) FROM toolkit_inbox").fetchone()[0]:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            await anyio.sleep(0.5)  # the worker has looked into the inbox
            (tmp_path / "go-r").touch()
            await wait_for_state(run, "failed")
            (tmp_path / "mended").touch()
            await run.retry()
            await wait_for_state(run, "done")
            result = await run.result()
            told = [each async for each in run.events()]
    assert [message.text for message in result.messages if isinstance(message, UserMessage)] == ["wait fail", "now"]
    ends = [each.event.call_id for each in told if isinstance(each.event, ToolExecutionEnd)]
    assert sorted(ends) == sorted(set(ends)), "the segment that tries again tells nothing of the first one's twice"


@contextmanager
def limited_pages(monkeypatch: pytest.MonkeyPatch) -> Generator[dict[str, int]]:
    """Have the database be full when the test says so: each connection may grow it only so far."""
    limit = {"pages": 0}

    def limit_pages(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {limit['pages'] or 1_000_000_000}")

    make_engine = storage_module._open_engine  # pyright: ignore[reportPrivateUsage]

    def make_limited(*given: Any) -> Any:
        engine = make_engine(*given)
        event.listen(engine, "begin", limit_pages)
        return engine

    monkeypatch.setattr(storage_module, "_open_engine", make_limited)
    yield limit


async def test_a_full_disk_is_waited_for_and_loses_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path)
    with limited_pages(monkeypatch) as limit:
        async with DurableRuns(url) as runs:
            with worker_beside(url, desk):
                run = await runs.start(desk, "wait add slow add", run_id="r")
                await wait_for_notes(tmp_path, [run], 1)
                limit["pages"] = 1
                (tmp_path / "go-r").touch()
                with pytest.raises(DatabaseUnavailableError, match="is the disk full"):
                    await runs.start(desk, "add " * 5_000, run_id="late")
                await anyio.sleep(1.0)
                assert (await run.status()).state == "running"
                limit["pages"] = 0
                await wait_for_state(run, "done")
                result = await run.result()
                ends = [each.event async for each in run.events() if isinstance(each.event, ToolExecutionEnd)]
    assert result.text == "Done after 4 turns: wait add slow add."
    assert read_notes(tmp_path, "r") == ["wait c0", "add c1", "slow c2", "ended c2", "add c3"]
    assert len(ends) == 4


async def test_the_end_of_a_call_is_told_when_it_is_kept_and_not_before(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path)
    make_engine = storage_module._open_engine  # pyright: ignore[reportPrivateUsage]
    away = {"call c1"}

    def refuse_entry(connection: Connection, cursor: object, statement: str, values: Any, *_: object) -> None:
        if "INSERT INTO toolkit_entries" in statement and away.intersection(values):
            raise OperationalError(statement, None, sqlite3.OperationalError("the database is away"))

    def make_failing(*given: Any) -> Any:
        engine = make_engine(*given)
        event.listen(engine, "before_cursor_execute", refuse_entry)
        return engine

    monkeypatch.setattr(storage_module, "_open_engine", make_failing)
    async with DurableRuns(url) as runs:
        with closing(sqlite3.connect(tmp_path / "runs.db")) as database, worker_beside(url, desk):
            run = await runs.start(desk, "add add add", run_id="r")
            while "add c1" not in read_notes(tmp_path, "r"):  # noqa: ASYNC110 - of another thread
                await anyio.sleep(0.01)
            await anyio.sleep(0.3)
            ended = "SELECT entry FROM toolkit_events WHERE entry LIKE 'call%'"
            assert database.execute(ended).fetchall() == [("call c0",)]
            away.clear()
            told = [each.event async for each in run.events()]
    assert [event.call_id for event in told if isinstance(event, ToolExecutionEnd)] == ["c0", "c1", "c2"]


async def test_the_next_worker_tells_what_the_one_before_it_had_kept_and_not_told(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    await stop_in_mid_run(url, tmp_path, desk, "add helper wait add", "wait c2")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        where = "run_id = 'r' AND seq >= (SELECT min(seq) FROM toolkit_events WHERE entry = 'call c0')"
        assert database.execute(f"DELETE FROM toolkit_events WHERE {where}").rowcount > 10
        database.execute("UPDATE toolkit_runs SET last_seq = (SELECT max(seq) FROM toolkit_events)")
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with worker_beside(url, desk, lease=0.5):
            told = [each async for each in run.events()]
    ends = [each.event for each in told if isinstance(each.event, ToolExecutionEnd)]
    assert [event.call_id for event in ends] == ["c0", "h0", "h1", "c1", "c2", "c3"]
    assert next(each.turn for each in told if isinstance(each.event, ToolExecutionEnd)) == 1
    for start in range(len(told)):
        async with DurableRuns(url) as others:
            again = (await others.get("r")).events(after=told[start].seq)
            assert [each async for each in again] == told[start + 1 :]


async def test_the_next_worker_tells_which_call_the_one_before_it_refused(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    desk = replace(desk, registry=desk.registry.without(["add"]))
    await stop_in_mid_run(url, tmp_path, desk, "slow add wait", "wait c2")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        where = "run_id = 'r' AND seq > (SELECT seq FROM toolkit_events WHERE entry = 'turn 2')"
        database.execute(f"DELETE FROM toolkit_events WHERE {where}")  # as far as they were written when it ended
        database.execute("UPDATE toolkit_runs SET last_seq = (SELECT max(seq) FROM toolkit_events)")
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with worker_beside(url, desk, lease=0.5):
            told = [each.event async for each in run.events()]
    refused = [event for event in told if isinstance(event, ToolCallRefused)]
    assert [(event.call_id, event.result.is_error) for event in refused] == [("c1", True)]
    assert [event.call_id for event in told if isinstance(event, ToolExecutionEnd)] == ["c0", "c2"]


async def test_a_run_that_a_later_release_wrote_is_left_to_a_worker_of_that(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, version = make_desk(tmp_path), "toolkit.loop.snapshot._VERSION"
    monkeypatch.setattr(version, 4)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk, lease=0.5):
            run = await runs.start(desk, "refund", run_id="r")
            await wait_for_state(run, "waiting")
        monkeypatch.setattr(version, 3)
        [pending] = (await run.status()).pending
        await run.decide(pending.call_id, Approve(), binding=pending.binding)
        with worker_beside(url, desk, lease=0.5), anyio.fail_after(120):
            while (await run.status()).attempts < 2:  # noqa: ASYNC110 - it is taken up, and left again
                await anyio.sleep(0.05)
            assert (await run.status()).state in ("queued", "running")
            monkeypatch.setattr(version, 4)  # as if a worker of the later release took it
            await wait_for_state(run, "done")
    assert read_notes(tmp_path, "r") == ["refund c0 0"]
    left = [record.getMessage() for record in caplog.records if "is left to" in record.getMessage()]
    assert len(left) == 1
    assert "version 4" in left[0]


async def test_a_run_whose_work_somebody_deleted_or_cancelled_in_the_engine_does_not_wait_for_ever(
    url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        gone, cancelled = await runs.start(desk, "add", run_id="gone"), await runs.start(desk, "add", run_id="r")
        change(
            tmp_path,
            "DELETE FROM workflow_status WHERE workflow_uuid = 'gone/1'",
            "UPDATE workflow_status SET status = 'CANCELLED' WHERE workflow_uuid = 'r/1'",
        )
        with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
            database.execute("UPDATE toolkit_runs SET updated = updated - 100")
        with worker_beside(url, desk):
            with pytest.raises(DurableError, match="segment 1 of run 'gone' is not in the database anymore"):
                await gone.result(timeout=60)
            with pytest.raises(DurableError, match="its workflow ended as CANCELLED"):
                await cancelled.result(timeout=60)
            await cancelled.retry()
            await wait_for_state(cancelled, "done")
    assert read_notes(tmp_path, "r") == ["add c0"]


WRONG_COLUMNS = {
    "UPDATE toolkit_runs SET metadata = 'null' WHERE run_id = 'r'": "its metadata can't be read",
    "UPDATE toolkit_runs SET metadata = 7 WHERE run_id = 'r'": "no text|its metadata can't be read",
    "UPDATE toolkit_runs SET priority = 'high' WHERE run_id = 'r'": "its priority can't be read",
    "UPDATE toolkit_runs SET error = x'ff' WHERE run_id = 'r'": "its error can't be read",
    f"UPDATE workflow_output SET output = '{'[' * 50_000}{']' * 50_000}' WHERE workflow_uuid = 'r/1'": "can't be read",
    "INSERT INTO toolkit_inbox (run_id, key, kind, body) VALUES ('r', 'x', 'decide', 'null')": "it was changed",
}


@pytest.mark.parametrize("statement", WRONG_COLUMNS, ids=range(len(WRONG_COLUMNS)))
async def test_an_edited_row_is_refused_in_words_and_other_runs_go_on(statement: str, url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run, other = [await runs.start(desk, "refund", run_id=run_id) for run_id in ("r", "other")]
            for each in (run, other):
                await wait_for_state(each, "waiting")
            [pending] = (await other.status()).pending
            await run.result()
            change(tmp_path, statement)
            with pytest.raises(DurableError, match=WRONG_COLUMNS[statement]):
                await run.status()
            await other.decide(pending.call_id, Approve(), binding=pending.binding)
            await wait_for_state(other, "done")


async def test_an_unreadable_message_to_one_run_delays_no_other(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run, other = [await runs.start(desk, "wait", run_id=run_id) for run_id in ("r", "other")]
            await wait_for_notes(tmp_path, [run, other], 2)
            change(tmp_path, "INSERT INTO toolkit_inbox (run_id, key, kind, body) VALUES ('r', 'x', 'say', '7')")
            await other.cancel("enough")
            await wait_for_state(other, "cancelled")
            (tmp_path / "go-r").touch()
            await wait_for_state(run, "done")
