"""Large contents are kept once for a run, beside what has them, and come back exactly or not at all."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from anyio import to_thread

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.postgres import PostgresServer
from tests.durable.serving import worker_beside
from tests.durable.test_workers_limits import ENCRYPTION, flip
from toolkit import (
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import ChatRequest, ImageBlock, TextBlock, dump_messages
from toolkit.durable import DurableError, DurableLoop, DurableRuns, Encryption, SqliteJournal
from toolkit.durable.contents import MOST_CHARACTERS, find_digests, put_back, set_aside
from toolkit.durable.event_reader import DurableStore
from toolkit.durable.storage import Storage
from toolkit.errors import JournalError
from toolkit.events import ToolExecutionEnd
from toolkit.policies import OutputLimits
from toolkit.testing import FunctionProvider

MEGABYTE = "".join(f"{number:07x}\n" for number in range(125_000))
PART = MEGABYTE[:300_000]
ODD = 'ü\x00"\\\U0001f600' * 4_000
IMAGE = bytes(range(256)) * 60
READS = 9
UNCUT = OutputLimits(max_chars=None)


@tool_with_ctx
async def read_file(context: ToolContext[Desk], name: str, n: int) -> str:
    """Read a file."""
    context.state.note(f"read {n}")
    return {"big": MEGABYTE, "part": PART, "odd": ODD}[name]


def read_on(file: str, request: ChatRequest) -> str | ToolCall:
    """Read the same file in each of nine turns; what follows is answered."""
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn >= READS:
        return f"Read {turn} times."
    return ToolCall(f"c{turn}", "read_file", json.dumps({"name": "odd" if turn == 3 else file, "n": turn}))


def write_prompt() -> UserMessage:
    return UserMessage((TextBlock(ODD), ImageBlock(IMAGE)))


_VALUES: dict[str, Any] = {
    "text": {"text": MEGABYTE},
    "unicode": {"text": ODD, "list": [ODD, 1, None, 2.5, True]},
    "the user's key": {"$content": MEGABYTE, "more": {"$content": "abc"}, "list": [{"$content": {"$content": ODD}}]},
    "the user's envelope": {"$beside": {"$content": "abc"}},
    "a small value": {"$content": "abc"},
    "many small texts": {"texts": ["small"] * MOST_CHARACTERS},
}


@pytest.mark.parametrize("name", _VALUES)
def test_a_value_is_put_back_exactly(name: str) -> None:
    value = _VALUES[name]
    small, contents = set_aside(value, json.dumps(value), "run")
    assert set(find_digests(small)) == set(contents)
    assert all(len(text) > MOST_CHARACTERS for text in contents.values())
    assert put_back(json.loads(json.dumps(small)), contents.__getitem__) == value


def test_a_small_value_is_not_walked_and_a_lone_surrogate_is_a_question_mark() -> None:
    value = {"text": "a" * 10}
    assert set_aside(value, json.dumps(value), "run")[0] is value
    _, contents = set_aside(["\ud800" * 20_000], "x" * 20_000, "run")
    assert set(contents.values()) == {"?" * 20_000}


def test_the_same_text_has_another_digest_in_another_run() -> None:
    one, two = (set(set_aside([MEGABYTE], MEGABYTE, run)[1]) for run in ("one", "two"))
    assert not one & two


async def read_in_file(folder: Path, **options: Any) -> Any:
    """Run ten turns, in nine of which a large result comes."""
    with SqliteJournal(folder / "runs.db", "x", **options) as journal:
        registry, config = ToolRegistry[Desk]([read_file]), ToolLoopConfig[Any](journal=journal, output=UNCUT)
        prompt, desk = [write_prompt()], Desk(folder, "x")
        return await tool_loop(FunctionProvider(partial(read_on, "big")), registry, prompt, ctx=desk, config=config)


@pytest.mark.parametrize("options", [{}, {"encrypt": flip, "decrypt": flip}], ids=["plain", "encrypted"])
async def test_a_file_has_a_large_result_of_ten_turns_once(
    options: dict[str, Any], anyio_backend: str, tmp_path: Path
) -> None:
    result = await read_in_file(tmp_path, **options)
    assert result.text == "Read 9 times."
    assert len(MEGABYTE) < (tmp_path / "runs.db").stat().st_size < 1.4 * len(MEGABYTE)
    again = await read_in_file(tmp_path, **options)
    assert dump_messages(again.messages) == dump_messages(result.messages)
    assert len(read_notes(tmp_path, "x")) == READS
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        assert database.execute("SELECT count(*) FROM content").fetchone() == (3,)
    assert (MEGABYTE[:500].encode() in (tmp_path / "runs.db").read_bytes()) is not bool(options)
    SqliteJournal(tmp_path / "runs.db", "x", **options).forget_run()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        assert database.execute("SELECT count(*) FROM content").fetchone() == (0,)


CHANGES = {
    "DELETE FROM {table}": "the run '{run}' was cut: the content [0-9a-f]{{16}} that it has is missing",
    "UPDATE {table} SET value = CAST(replace(value, 'a', 'b') AS {kind})": "run '{run}' can't be read: .* was changed",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_file_whose_contents_were_cut_or_changed_is_refused(
    change: str, anyio_backend: str, tmp_path: Path
) -> None:
    await read_in_file(tmp_path)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        assert database.execute(change.format(table="content", kind="BLOB")).rowcount == 3
    with pytest.raises(JournalError, match=CHANGES[change].format(run="x")):
        await read_in_file(tmp_path)
    assert len(read_notes(tmp_path, "x")) == READS


def make_reader(folder: Path) -> DurableLoop[Desk, None]:
    registry, config = ToolRegistry[Desk]([read_file]), ToolLoopConfig[Any](output=UNCUT)
    provider = FunctionProvider(partial(read_on, "part"))
    return replace(make_desk(folder), provider=provider, registry=registry, config=config)


def count_rows(url: str, where: str = "") -> dict[str, int]:
    """Return the rows of each table of ours."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    tables = ("contents", "entries", "events", "inbox", "runs")
    with engine.connect() as connection:
        counts = {
            name: connection.scalar(sa.text(f"SELECT count(*) FROM toolkit_{name} {where}")) or 0 for name in tables
        }
    engine.dispose()
    return counts


def measure_texts(url: str) -> int:
    """Return the characters that the tables of ours and of the engine have."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    dbos = "dbos." if engine.dialect.name == "postgresql" else ""
    columns = {
        "toolkit_contents": ["value"],
        "toolkit_entries": ["value"],
        "toolkit_events": ["line"],
        "toolkit_inbox": ["body"],
        f"{dbos}workflow_status": ["inputs", "output"],
    }
    with engine.connect() as connection:
        total = sum(
            connection.scalar(sa.text(f"SELECT coalesce(sum(length({column})), 0) FROM {table}")) or 0
            for table, names in columns.items()
            for column in names
        )
    engine.dispose()
    return total


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.make_database()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the worker runs there, whatever its client runs on
@pytest.mark.parametrize(
    "encryption", [pytest.param(None, id="plain", marks=pytest.mark.full), pytest.param(ENCRYPTION, id="encrypted")]
)
async def test_a_database_has_a_large_result_of_many_turns_and_rests_once(
    encryption: Encryption | None, url: str, anyio_backend: str, tmp_path: Path
) -> None:
    reader = make_reader(tmp_path)
    async with DurableRuns(url, encryption=encryption) as runs:
        with worker_beside(url, reader, encryption=encryption):
            run = await runs.start(reader, [write_prompt()], run_id="r")
            first = await run.result(timeout=90)
            for said in (ODD + "1", "more"):
                await run.say(said)
                with anyio.fail_after(90):
                    while said not in (await run.result(timeout=90)).messages[-2].text:  # noqa: ASYNC110 - of another thread
                        await anyio.sleep(0.1)  # each look reads all of it
            result = await run.result()
            told = [each.event async for each in run.events()]
            exported = await run.export()
            stored = measure_texts(url)
            fork = await runs.fork("r", turn=9, new_run_id="fork")
            forked = await fork.result(timeout=90)
        assert (first.reason.kind, first.text) == ("complete", "Read 9 times.")
        results = [message for message in result.messages if isinstance(message, ToolResult)]
        assert [each.text for each in results] == [ODD if turn == 3 else PART for turn in range(READS)]
        assert result.messages[0] == write_prompt()
        assert result.messages[-4].text == ODD + "1"
        assert dump_messages(forked.messages[:18]) == dump_messages(result.messages[:18])
        ends = [event.result.text for event in told if isinstance(event, ToolExecutionEnd)]
        assert [end[:500] for end in ends] == [each.text[:500] for each in results]  # events are cut
        assert sum(each["event"] == "tool_execution_end" for each in exported["events"]) == READS
        assert json.dumps(PART[:500])[1:-1] in await to_thread.run_sync(read_store, url, encryption)
        most = 2.5 if encryption is None else 2.5 * 4 / 3  # what is encrypted is kept as base64
        assert len(PART) < stored < most * len(PART)
        assert count_rows(url, "WHERE run_id = 'r'")["contents"] <= 5
        await runs.delete("r")
        await runs.delete("fork")
    assert set(count_rows(url).values()) == {0}


def read_store(url: str, encryption: Encryption | None) -> str:
    """Return what a reader of run logs finds of the run."""
    storage = Storage(url, encryption)
    try:
        return b"".join(line.line for line in DurableStore(storage).read_lines("r")).decode()
    finally:
        storage.close()


@pytest.mark.parametrize("change", CHANGES)
async def test_a_run_whose_contents_were_cut_or_changed_fails_and_goes_on_when_they_are_back(
    change: str, anyio_backend: str, tmp_path: Path
) -> None:
    reader, url = make_reader(tmp_path), f"sqlite:///{tmp_path / 'runs.db'}"
    refusal = CHANGES[change].format(run="r")
    async with DurableRuns(url) as runs:
        run = await runs.start(reader, [write_prompt()], run_id="r")
        with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
            whole = list(database.execute("SELECT * FROM toolkit_contents"))
            assert len(whole) == 2
            with database:
                database.execute(change.format(table="toolkit_contents", kind="TEXT"))
            with worker_beside(url, reader):
                with pytest.raises(DurableError, match=refusal):
                    await run.result(timeout=90)
                assert read_notes(tmp_path, "r") == []
                with database:
                    database.execute("DELETE FROM toolkit_contents")
                    database.executemany("INSERT INTO toolkit_contents VALUES (?, ?, ?)", whole)
                await run.retry()
                with anyio.fail_after(90):
                    while (await run.status()).state != "done":  # noqa: ASYNC110 - of another thread
                        await anyio.sleep(0.01)
                assert (await run.result()).messages[0] == write_prompt()
            with database:
                database.execute(change.format(table="toolkit_contents", kind="TEXT"))
            with pytest.raises(JournalError, match=refusal):
                await run.result()
            with pytest.raises(JournalError, match=refusal):
                [each async for each in run.events()]
