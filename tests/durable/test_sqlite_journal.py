"""A run in a file: one process at a time, private, and refused where the file is not what it was."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.durable.scenarios import SCENARIOS, World, call, find_faults, plan_provider
from toolkit import Message, ToolLoopConfig, ToolLoopResult, ToolRegistry, tool_loop
from toolkit.chat import dump_messages
from toolkit.durable import SqliteJournal
from toolkit.endings import Complete
from toolkit.errors import ConfigurationError, JournalError, ProviderError
from toolkit.testing import ScriptedProvider


async def run_scenario(
    path: Path, name: str = "parallel", **options: Any
) -> tuple[ToolLoopResult[Any] | Exception, list[Message], World]:
    world = World()
    with SqliteJournal(path, "x", **options) as journal:
        outcome, messages = await SCENARIOS[name].run(journal, world)
    return outcome, messages, world


async def test_the_runs_of_a_file_are_listed_also_those_under_way(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with pytest.raises(ConfigurationError, match="there is no journal"):
        SqliteJournal.list_runs(path)
    await run_scenario(path)
    with SqliteJournal(path, "y", encrypt=lambda data: data, decrypt=lambda data: data):
        found = {each.run_id: each for each in SqliteJournal.list_runs(path)}
    assert (found["x"].last_entry, found["x"].is_under_way, found["x"].entries > 8) == ("turn 5", False, True)
    assert (found["y"].last_entry, found["y"].is_under_way, found["y"].entries) == ("", True, 0)
    assert [each.is_under_way for each in SqliteJournal.list_runs(path)] == [False, False]
    (tmp_path / "other").write_text("no database, and much longer than the header of one would be" * 20)
    with pytest.raises(ConfigurationError, match="can't be read"):
        SqliteJournal.list_runs(tmp_path / "other")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_run_in_a_file_replays(name: str, anyio_backend: str, tmp_path: Path) -> None:
    first, messages, world = await run_scenario(tmp_path / "runs.db", name)
    assert find_faults(world, messages) == []
    again, repeated, repeated_world = await run_scenario(tmp_path / "runs.db", name)
    assert dump_messages(repeated) == dump_messages(messages)
    assert type(again) is type(first)
    assert not repeated_world.starts


async def test_runs_in_one_file_are_apart(anyio_backend: str, tmp_path: Path) -> None:
    ids: set[str] = set()
    for name in ("one", "two"):
        with SqliteJournal(tmp_path / "runs.db", name) as journal:
            config = ToolLoopConfig[None](journal=journal)
            result = await tool_loop(ScriptedProvider([name]), ToolRegistry(), "go", config=config)
            assert result.text == name
            ids.add(journal.run_id)
    assert len(ids) == 2
    with SqliteJournal(tmp_path / "other.db", "one") as journal:
        assert journal.run_id not in ids


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
async def test_the_file_is_for_its_owner_alone(anyio_backend: str, tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "runs.db", "x") as journal:
        await SCENARIOS["parallel"].run(journal, World())
        modes = read_modes(tmp_path)
    assert len(modes) >= 3
    assert set(modes.values()) == {0o600}, modes
    assert list(read_modes(tmp_path)) == ["runs.db"]


def read_modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_run_goes_on_in_one_place_at_a_time(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "runs.db", "x"):
        with pytest.raises(ConfigurationError, match=r"the run 'x' in '.*runs.db' is under way in another process"):
            SqliteJournal(tmp_path / "runs.db", "x")
        SqliteJournal(tmp_path / "runs.db", "y").close()
    SqliteJournal(tmp_path / "runs.db", "x").close()


@pytest.mark.real
def test_the_claim_of_a_process_that_has_ended_is_free(tmp_path: Path) -> None:
    code = "import sys, os; from toolkit.durable import SqliteJournal; j = SqliteJournal(sys.argv[1], 'x'); print(1); "
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "sys.stdout.flush(); sys.stdin.read()", str(tmp_path / "runs.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        with pytest.raises(ConfigurationError, match="under way in another process"):
            SqliteJournal(tmp_path / "runs.db", "x")
        holder.kill()
    SqliteJournal(tmp_path / "runs.db", "x").close()


async def test_what_is_kept_is_encrypted_where_that_is_wanted(anyio_backend: str, tmp_path: Path) -> None:
    def turn_over(data: bytes) -> bytes:
        return bytes(255 - byte for byte in data)

    _, messages, _ = await run_scenario(tmp_path / "runs.db", encrypt=turn_over, decrypt=turn_over)
    assert b"tool_returned" not in (tmp_path / "runs.db").read_bytes()
    _, repeated, _ = await run_scenario(tmp_path / "runs.db", encrypt=turn_over, decrypt=turn_over)
    assert dump_messages(repeated) == dump_messages(messages)
    error, *_ = await run_scenario(tmp_path / "runs.db")
    assert isinstance(error, JournalError)
    assert "was it encrypted otherwise?" in str(error)
    with pytest.raises(ConfigurationError, match="encrypt and decrypt together"):
        SqliteJournal(tmp_path / "runs.db", "x", encrypt=turn_over)


CHANGES = {
    "UPDATE entry SET value = replace(value, 'did', 'DID') WHERE name = 'call c1'": "the entry 'call c1' .* changed",
    "UPDATE entry SET value = CAST(replace(value, 'did', 'DID') AS BLOB) WHERE name = 'call c1'": "'call c1'.*changed",
    "UPDATE entry SET name = 'call c9' WHERE name = 'call c1'": "the entry 'call c9' .* was changed",
    "DELETE FROM entry WHERE name = 'turn 2'": "the log of the run 'x' was cut: 1 of its entries is",
    "DELETE FROM entry WHERE name = 'call c1'": "the log of the run 'x' was cut: 1 of its entries is",
    "DELETE FROM entry WHERE name = 'turn 5'": "the log of the run 'x' was cut: 1 of its entries is",
}


async def test_a_file_of_the_version_before_goes_on_and_is_counted_from_then_on(
    anyio_backend: str, tmp_path: Path
) -> None:
    _, messages, _ = await run_scenario(tmp_path / "runs.db")
    with sqlite3.connect(tmp_path / "runs.db") as database:
        for statement in ("DROP TRIGGER counted", "DROP INDEX run_by_id", "ALTER TABLE run DROP COLUMN entries"):
            database.execute(statement)
        database.execute("PRAGMA user_version = 2")
    database.close()
    _, repeated, world = await run_scenario(tmp_path / "runs.db")
    assert dump_messages(repeated) == dump_messages(messages)
    assert not world.starts
    with sqlite3.connect(tmp_path / "runs.db") as database:
        assert database.execute("DELETE FROM entry WHERE name = 'turn 5'").rowcount == 1
    database.close()
    error, *_ = await run_scenario(tmp_path / "runs.db")
    assert "was cut" in str(error)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_log_that_was_cut_or_changed_is_refused(change: str, anyio_backend: str, tmp_path: Path) -> None:
    await run_scenario(tmp_path / "runs.db")
    database = sqlite3.connect(tmp_path / "runs.db")
    with database:
        assert database.execute(change).rowcount == 1
    database.close()
    error, _, world = await run_scenario(tmp_path / "runs.db")
    assert isinstance(error, JournalError)
    with pytest.raises(JournalError, match=CHANGES[change]):
        raise error
    assert not world.starts


async def test_a_full_disk_ends_the_run_and_loses_nothing_before(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    scenario, world = replace(SCENARIOS["parallel"], plan=([call(f"c{n}") for n in range(40)], "done")), World()
    with SqliteJournal(path, "x") as journal:
        database: sqlite3.Connection = journal._log._connection  # type: ignore[assignment]  # pyright: ignore[reportPrivateUsage, reportAssignmentType]
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages + 2}")
        error, _ = await scenario.run(journal, world)
    assert isinstance(error, JournalError)
    assert "could not be stored in" in str(error)
    assert "full" in str(error)
    with SqliteJournal(path, "x") as journal:
        result, messages = await scenario.run(journal, world)
    assert isinstance(result, ToolLoopResult)
    assert isinstance(result.reason, Complete)
    assert max(world.starts.values()) == 1
    assert find_faults(world, messages) == []


async def test_a_failure_can_be_forgotten(anyio_backend: str, tmp_path: Path) -> None:
    error, *_ = await run_scenario(tmp_path / "runs.db", "provider fails")
    assert isinstance(error, ProviderError)
    again, *_ = await run_scenario(tmp_path / "runs.db", "provider fails")
    assert isinstance(again, ProviderError)
    assert (again.status, str(again)) == (error.status, str(error))
    world = World()
    with SqliteJournal(tmp_path / "runs.db", "x") as journal:
        assert journal.forget_failure()
        assert not journal.forget_failure()
        well = plan_provider([[call("c0")], [call("c1")], "well"])
        result, _ = await SCENARIOS["provider fails"].run(journal, world, provider=well)
    assert isinstance(result, ToolLoopResult)
    assert result.text == "well"
    assert not world.starts


async def test_a_run_can_be_forgotten(anyio_backend: str, tmp_path: Path) -> None:
    await run_scenario(tmp_path / "runs.db")
    SqliteJournal(tmp_path / "runs.db", "x").forget_run()
    _, _, world = await run_scenario(tmp_path / "runs.db")
    assert world.starts


async def test_one_journal_serves_one_loop(anyio_backend: str, tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "runs.db", "x") as journal:
        config = ToolLoopConfig[None](journal=journal)
        await tool_loop(ScriptedProvider(["a"]), ToolRegistry(), "go", config=config)
        with pytest.raises(JournalError, match="has served a loop already"):
            await tool_loop(ScriptedProvider(["a"]), ToolRegistry(), "go", config=config)


@pytest.mark.parametrize("content", [b"no database at all" * 80, None], ids=["text", "another database"])
def test_a_file_that_is_no_journal_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    if content is not None:
        path.write_bytes(content)
    else:
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE other (x)")
        database.close()
    with pytest.raises(ConfigurationError, match=r"can't be opened|is no journal"):
        SqliteJournal(path, "x")


def test_what_a_journal_is_made_of_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the run_id of a journal is empty"):
        SqliteJournal(tmp_path / "runs.db", " ")
    with pytest.raises(ConfigurationError, match="can't be opened"):
        SqliteJournal(tmp_path / "nowhere" / "runs.db", "x")


def test_a_file_and_restate_need_no_library_of_the_database() -> None:
    """Without the extra ``durable`` both are there."""
    code = (
        "import sys; sys.modules['sqlalchemy'] = sys.modules['dbos'] = None; import toolkit.durable as durable; "
        "print(durable.SqliteJournal.__name__, durable.restate_service.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "SqliteJournal restate_service\n", done.stderr
