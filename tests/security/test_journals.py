"""Journals that somebody who can write to their file has changed: with a signing key, none of them is gone on with."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.durable.scenarios import SCENARIOS, Scenario, World
from toolkit import (
    AssistantMessage,
    Middleware,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    tool_loop,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ToolResult, dump_messages
from toolkit.durable import SqliteJournal
from toolkit.errors import JournalError
from toolkit.json_text import write_json
from toolkit.testing import FunctionProvider

KEY = b"32 random bytes of your own....."
SEALED = ["parallel", "approvals", "late approvals", "sub-agents"]


def with_key(name: str, key: bytes | None = KEY) -> Scenario:
    scenario = SCENARIOS[name]
    return replace(scenario, config=lambda: replace(scenario.config(), signing_key=key))


async def play(path: Path, name: str, key: bytes | None = KEY, run_id: str = "x") -> tuple[Any, World]:
    world = World()
    with SqliteJournal(path, run_id) as journal:
        outcome, _ = await with_key(name, key).run(journal, world)
    return outcome, world


class Forger:
    """Changes the rows of a journal, with the digests that anyone can make."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level=None)

    def rows(self) -> list[tuple[str, str, int, str, dict[str, Any]]]:
        rows = self.database.execute("SELECT run_id, path, position, name, value FROM entry ORDER BY path, position")
        return [(run, path, position, name, json.loads(value)) for run, path, position, name, value in rows]

    def write(self, run: str, path: str, position: int, name: str, value: Mapping[str, Any]) -> None:
        data = write_json(value).encode()
        seal = hashlib.sha256(write_json([run, path, position, name]).encode() + b"\n" + data).digest()[:16]
        self.database.execute(
            "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?, ?)", (run, path, position, name, data, seal)
        )
        self.hide_gaps()

    def hide_gaps(self) -> None:
        """Have the number of entries be that of those which are there."""
        self.database.execute("UPDATE run SET entries = (SELECT count(*) FROM entry)")

    def change(self, wanted: Callable[[str, dict[str, Any]], bool], change: Callable[[str], str]) -> None:
        """Change the text of the first entry that is wanted."""
        for run, path, position, name, value in self.rows():
            text = json.dumps(value)
            if wanted(name, value) and change(text) != text:
                self.write(run, path, position, name, json.loads(change(text)))
                return
        raise AssertionError("nothing to change")


def approve_denied(forger: Forger) -> None:
    forger.change(lambda name, _: bool(name), lambda text: text.replace('"deny"', '"approve"'))


def change_arguments(forger: Forger) -> None:
    forger.change(lambda name, _: name.startswith("decided"), lambda text: text.replace("22", "2200"))


def invent_result(forger: Forger) -> None:
    forger.change(lambda name, _: name.startswith("call "), lambda text: text.replace("did", "has paid"))


def invent_result_inside(forger: Forger) -> None:
    """Change the log of a sub-agent whose call is still to be done."""
    forger.database.execute("DELETE FROM entry WHERE path = '' AND position > 2")
    for run, path, position, name, value in forger.rows():
        if path and name.startswith("call "):
            forger.write(run, path, position, name, json.loads(json.dumps(value).replace("did", "has paid")))
            return
    raise AssertionError("no loop inside has a log")


def change_prompt_and_reply(forger: Forger) -> None:
    forger.change(lambda name, _: name == "turn 2", lambda text: text.replace('"n\\": ', '"n\\": 9'))


def take_seals_off(forger: Forger) -> None:
    for run, path, position, name, value in forger.rows():
        forger.write(run, path, position, name, {part: inner for part, inner in value.items() if part != "seal"})


def move_results(forger: Forger) -> None:
    """Give the result of one call as that of another."""
    calls = [row for row in forger.rows() if row[3].startswith("call ")]
    (run, path, position, name, first), (*_, other) = calls[0], calls[-1]
    forger.write(run, path, position, name, {**other, "n": first.get("n")})


def leave_a_turn_out(forger: Forger) -> None:
    for run, path, position, name, value in forger.rows():
        if position > 3:
            forger.write(run, path, position - 2, name, value)
    forger.database.execute("DELETE FROM entry WHERE position > 6")
    forger.hide_gaps()


ATTACKS: list[tuple[str, Callable[[Forger], None]]] = [
    ("approvals", approve_denied),
    ("late approvals", approve_denied),
    ("late approvals", change_arguments),
    ("parallel", invent_result),
    ("parallel", change_prompt_and_reply),
    ("parallel", take_seals_off),
    ("parallel", move_results),
    ("parallel", leave_a_turn_out),
]


@pytest.mark.parametrize("scenario", SEALED)
async def test_a_sealed_journal_is_gone_on_with(scenario: str, anyio_backend: str, tmp_path: Path) -> None:
    first, _ = await play(tmp_path / "run.db", scenario)
    again, world = await play(tmp_path / "run.db", scenario)
    assert type(again) is type(first)
    assert again.messages == first.messages
    assert not world.starts


@pytest.mark.parametrize(("scenario", "attack"), ATTACKS, ids=lambda part: getattr(part, "__name__", part))
async def test_a_changed_journal_is_refused(
    scenario: str, attack: Callable[[Forger], None], anyio_backend: str, tmp_path: Path
) -> None:
    await play(tmp_path / "run.db", scenario)
    forger = Forger(tmp_path / "run.db")
    with closing(forger.database):
        attack(forger)
    outcome, world = await play(tmp_path / "run.db", scenario)
    assert isinstance(outcome, JournalError), outcome
    assert not world.starts


async def test_a_changed_journal_of_a_sub_agent_is_refused(anyio_backend: str, tmp_path: Path) -> None:
    await play(tmp_path / "run.db", "sub-agents")
    forger = Forger(tmp_path / "run.db")
    with closing(forger.database):
        invent_result_inside(forger)
    outcome, _ = await play(tmp_path / "run.db", "sub-agents")
    assert "has paid" not in dump_messages(outcome.messages)
    [result] = [each for each in outcome.messages if isinstance(each, ToolResult) and each.call_id == "a1"]
    assert result.is_error


@pytest.mark.parametrize("other", [None, b"another key of 32 bytes........."], ids=["no key", "another key"])
async def test_a_whole_journal_made_without_the_key_is_refused(
    other: bytes | None, anyio_backend: str, tmp_path: Path
) -> None:
    await play(tmp_path / "run.db", "parallel", other)
    outcome, world = await play(tmp_path / "run.db", "parallel")
    assert isinstance(outcome, JournalError)
    assert "signing_key" in str(outcome)
    assert not world.starts


async def test_the_journal_of_another_run_is_refused(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    await play(path, "parallel", run_id="y")
    shutil.copy(path, tmp_path / "kept.db")
    await play(path, "parallel", run_id="x")
    forger = Forger(path)
    with closing(forger.database):
        (mine,) = forger.database.execute("SELECT run_id FROM run WHERE name = 'x'").fetchone()
        for run, inner, position, name, value in forger.rows():
            if run != mine:
                forger.write(mine, inner, position, name, value)
    outcome, _ = await play(path, "parallel", run_id="x")
    assert isinstance(outcome, JournalError)


WRONG_COLUMNS = [
    "UPDATE entry SET position = 'first' WHERE position = 2",
    "UPDATE entry SET value = CAST(value AS TEXT) WHERE position = 2",
    "UPDATE entry SET seal = 7 WHERE position = 2",
    "UPDATE run SET run_id = '../../../etc/cron.d/x'",
    "UPDATE run SET run_id = 'a' || char(0)",
    "UPDATE run SET run_id = ''",
]


@pytest.mark.parametrize("statement", WRONG_COLUMNS)
async def test_a_column_of_another_type_is_refused_as_changed(
    statement: str, anyio_backend: str, tmp_path: Path
) -> None:
    await play(tmp_path / "run.db", "parallel")
    with closing(sqlite3.connect(tmp_path / "run.db")) as database, database:
        assert database.execute(statement).rowcount == 1
    with pytest.raises(JournalError, match="changed"):
        outcome, _ = await play(tmp_path / "run.db", "parallel")
        raise outcome


async def test_a_sealed_journal_is_not_read_without_its_key(anyio_backend: str, tmp_path: Path) -> None:
    await play(tmp_path / "run.db", "parallel")
    outcome, _ = await play(tmp_path / "run.db", "parallel", None)
    assert isinstance(outcome, JournalError)
    assert "give its signing_key" in str(outcome)


class Purse(Middleware[object]):
    """Has an amount of money, which its states say."""

    name = "purse"

    def __init__(self) -> None:
        self.left = [2]

    def save(self) -> Any:
        return self.left[-1]

    def load(self, state: Any) -> None:
        self.left.append(state)


@tool_with_ctx(run_in_thread=False, tags={"read"})
async def look(context: ToolContext[list[str]], n: int) -> str:
    """Look; may be repeated after a crash."""
    context.state.append(context.call_id)
    return f"seen {n}"


def call_all(names: list[str], arguments: dict[str, Any]) -> FunctionProvider:
    """Return a model that calls tools in its first turn."""
    calls = [ToolCall(f"{name}{index}", name, json.dumps(arguments)) for index, name in enumerate(names)]
    return FunctionProvider(
        lambda request: "done" if isinstance(request.messages[-1], ToolResult) else AssistantMessage(calls)
    )


async def spend(path: Path, provider: FunctionProvider) -> tuple[Any, Purse, list[str]]:
    looked, purse = list[str](), Purse()
    helper = sub_agent_tool("helper", "Help.", call_all(["look"], {"n": 1}), ToolRegistry[list[str]]([look]))
    with SqliteJournal(path, "x") as journal:
        config = ToolLoopConfig[None](journal=journal, signing_key=KEY, middleware=(purse,))
        registry = ToolRegistry[list[str]]([look, helper])
        try:
            outcome: Any = await tool_loop(provider, registry, "Go on.", ctx=looked, config=config)
        except JournalError as error:
            outcome = error
    return outcome, purse, looked


def give_money(value: dict[str, Any], loop_id: str) -> dict[str, Any]:
    return {**value, "n": 1_000_000, "states": {loop_id: {"purse": 1_000}}}


async def test_a_forged_result_changes_nothing_before_it_is_refused(anyio_backend: str, tmp_path: Path) -> None:
    """The other calls of its turn have no results yet, and are ready to run."""
    provider = call_all(["look", "look"], {"n": 1})
    await spend(tmp_path / "run.db", provider)
    forger = Forger(tmp_path / "run.db")
    with closing(forger.database):
        rows = forger.rows()
        run, path, position, name, value = next(row for row in rows if row[3].startswith("call "))
        forger.database.execute("DELETE FROM entry WHERE position > ?", (position,))
        forger.write(run, path, position, name, give_money(value, rows[0][4]["run"]))
    outcome, purse, looked = await spend(tmp_path / "run.db", provider)
    assert isinstance(outcome, JournalError)
    assert looked == []
    assert 1_000 not in purse.left


async def test_the_journal_of_a_sub_agent_gives_no_forged_state_to_the_middleware_of_its_caller(
    anyio_backend: str, tmp_path: Path
) -> None:
    provider = call_all(["helper"], {"task": "Look."})
    await spend(tmp_path / "run.db", provider)
    forger = Forger(tmp_path / "run.db")
    with closing(forger.database):
        rows = forger.rows()
        forger.database.execute("DELETE FROM entry WHERE path = '' AND name = 'call helper0'")
        forger.database.execute("DELETE FROM entry WHERE path = '' AND position > 3")
        run, path, position, name, value = next(row for row in rows if row[1])
        forger.write(run, path, position, name, give_money(value, rows[0][4]["run"]))
    _, purse, _ = await spend(tmp_path / "run.db", provider)
    assert 1_000 not in purse.left
