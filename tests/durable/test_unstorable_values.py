"""Values that a database can't keep: each is told by its place, and is not taken for a database that is away."""

import math
import random
import sqlite3
import string
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import event
from sqlalchemy.exc import DataError, OperationalError

from tests.durable.desk import make_desk
from tests.durable.serving import worker_beside
from tests.durable.test_workers_limits import wait_for_state
from toolkit import AssistantMessage, Modify, ToolCall, ToolResult
from toolkit.chat import ChatRequest
from toolkit.durable import (
    DatabaseUnavailableError,
    DecisionRefusedError,
    DurableRuns,
    UnstorableValueError,
    storage as storage_module,
)
from toolkit.durable.event_writer import AttemptPlace
from toolkit.durable.segment_journal import EntryWriter, read_stored_entries
from toolkit.durable.storage import Storage, inbox, runs as runs_table
from toolkit.errors import JournalError
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio

LONG = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=20_000))


def on_sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


ODD: dict[str, dict[str, Any]] = {
    r"metadata\['customer'\]\['since'\] can't be stored: it is no JSON, but of type datetime": {
        "metadata": {"customer": {"since": datetime.now(UTC)}}
    },
    r"the key \(1, 2\) of metadata\['at'\] can't be stored": {"metadata": {"at": {(1, 2): 3}}},
    r"metadata\['all'\]\[1\] can't be stored: .* of type set": {"metadata": {"all": [1, {2}]}},
    r"metadata\['share'\] can't be stored: it is nan, which is no number of JSON": {"metadata": {"share": math.nan}},
    r"metadata\['all'\]\[0\] can't be stored: it is inf": {"metadata": {"all": [math.inf]}},
    "the tenant can't be stored: it has a NUL character": {"tenant": "a\x00"},
    "the tenant can't be stored: it has half a surrogate pair": {"tenant": "a\ud800"},
    "the tenant can't be stored: it has 20,000 characters: give 500 at most": {"tenant": LONG},
}


@pytest.mark.parametrize("told", ODD)
async def test_what_a_run_can_not_begin_with_is_told_by_its_place(told: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(on_sqlite(tmp_path)) as runs:
        with pytest.raises(UnstorableValueError, match=told):
            await runs.start(desk, "add", run_id="r", **ODD[told])
        assert await runs.list() == []


async def test_metadata_that_contains_itself_is_refused(tmp_path: Path) -> None:
    around: dict[str, Any] = {}
    around["around"] = around
    async with DurableRuns(on_sqlite(tmp_path)) as runs:
        with pytest.raises(UnstorableValueError, match="contains itself, or is nested too deep: it is no JSON"):
            await runs.start(make_desk(tmp_path), "add", metadata=around)


async def test_what_can_not_be_looked_up_is_told(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(on_sqlite(tmp_path)) as runs:
        with pytest.raises(UnstorableValueError, match="the id of a run can't be stored: it has a NUL"):
            await runs.get("a\x00")
        with pytest.raises(UnstorableValueError, match="the tenant of runs"):
            await runs.list(tenant="a\ud800")
        with pytest.raises(UnstorableValueError, match=r"the limit of a list .* at most 2,147,483,647"):
            await runs.list(limit=10**30)
        with worker_beside(on_sqlite(tmp_path), desk):
            run = await runs.start(desk, "refund", run_id="r")
            await wait_for_state(run, "waiting")
        [pending] = (await run.status()).pending
        with pytest.raises(UnstorableValueError, match="the number to read events after"):
            run.events(after=10**30)
        with pytest.raises(DecisionRefusedError, match="look at it again"):
            await run.decide(pending.call_id, Modify({"n": 1}), binding=f"\x00\ud800{LONG}")
        with pytest.raises(UnstorableValueError, match=r"the decision\['arguments'\]\['n'\] .* of type object"):
            await run.decide(pending.call_id, Modify({"n": object()}), binding=pending.binding)
        assert (await run.status()).state == "waiting"


async def test_an_entry_that_the_database_refuses_is_told_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_engine = storage_module._open_engine  # pyright: ignore[reportPrivateUsage]

    def limit_length(connection: sqlite3.Connection, record: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 200_000)

    def make_limited(*given: Any) -> Any:
        engine = make_engine(*given)
        event.listen(engine, "connect", limit_length)
        return engine

    monkeypatch.setattr(storage_module, "_open_engine", make_limited)
    storage = Storage(on_sqlite(tmp_path))
    row = dict.fromkeys(("loop", "tenant", "metadata", "state"), "x") | dict.fromkeys(
        ("priority", "segment", "attempts", "lost", "ended", "last_seq", "created", "updated"), 1
    )
    with storage.engine.begin() as connection:
        for name in ("large", "small"):
            connection.execute(runs_table.insert().values(run_id=name, attempt="a", **row))
    log = EntryWriter(storage)
    told: dict[str, str] = {}

    async def store(run_id: str, text: str) -> None:
        try:
            await log.store(AttemptPlace(run_id, 1, "a"), "", 1, "turn 1", {"text": text})
        except JournalError as error:
            told[run_id] = str(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store, "large", LONG * 20)
        tasks.start_soon(store, "small", "x")
        await anyio.wait_all_tasks_blocked()
        log.thread.start()  # finds both
    log.thread.stop()
    assert told == {"large": "entry 'turn 1' of run 'large' can't be stored: string or blob too big"}
    with storage.engine.connect() as connection:
        assert set(read_stored_entries(connection, storage, "small", [1])[""]) == {1}
    storage.close()
    async with DurableRuns(on_sqlite(tmp_path)) as runs:
        with pytest.raises(UnstorableValueError, match=r"the database does not take it .*too big"):
            await runs.start(make_desk(tmp_path), LONG * 20)


@pytest.mark.real
async def test_a_value_that_the_database_refuses_is_not_waited_for(url: str) -> None:
    storage = Storage(url)
    try:
        text = "\x00" if storage.is_postgres else "\ud800"
        with pytest.raises(UnstorableValueError, match="a value can't be stored: the database does not take it"):
            await storage.ask(lambda: _put(storage, text))
        with anyio.fail_after(120), pytest.raises((DataError, UnicodeEncodeError)):
            await storage.insist(lambda: _put(storage, text))
        if storage.is_postgres:  # too long for an index
            with pytest.raises(UnstorableValueError, match="index row"):
                await storage.ask(lambda: _put(storage, LONG))
            with anyio.fail_after(120), pytest.raises(OperationalError, match="index row"):
                await storage.insist(lambda: _put(storage, LONG))
    finally:
        storage.close()
    with pytest.raises(DatabaseUnavailableError):
        Storage("postgresql://me@127.0.0.1:1/none")


def _put(storage: Storage, key: str) -> None:
    with storage.engine.begin() as connection:
        connection.execute(inbox.insert().values(run_id="r", key=key, kind="say", body="{}"))


@pytest.mark.real
async def test_ids_of_any_length_are_taken(url: str, tmp_path: Path) -> None:
    def model(request: ChatRequest) -> str | AssistantMessage:
        if len(request.messages) > 1:
            return "Done."
        return AssistantMessage(
            [ToolCall(f"{LONG}1", "helper", '{"task": "x"}'), ToolCall(f"{LONG}2", "helper", '{"task": "x"}')]
        )

    desk = replace(make_desk(tmp_path), provider=FunctionProvider(model))
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "go", run_id="r")
            await wait_for_state(run, "done")
            messages = (await run.result()).messages
    assert [message.text.endswith("helped") for message in messages if isinstance(message, ToolResult)] == [True, True]
