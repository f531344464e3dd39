"""Worker processes for a Restate server: forked by one that has imported all, whenever the last one is
killed or frozen.

``python -m tests.durable.restate_worker FOLDER LISTENER`` works until its input ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import restate
from hypercorn.config import Config

from tests.durable.desk import make_desk, make_tallied
from tests.durable.finished_logs import describe_end
from tests.durable.killed_run import append, look, note
from tests.durable.scenarios import PLAN, SCENARIOS, World, plan_provider
from toolkit import AssistantMessage, ToolLoopConfig, ToolRegistry, tool_loop
from toolkit.chat import ChatRequest, ChatResponse, dump_messages
from toolkit.durable import Journal, JournalEntry, JournalValue, RestateJournal, restate_service
from toolkit.errors import JournalError
from toolkit.policies import keep_last
from toolkit.testing import FunctionProvider

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 2 else Path()
service = restate.Service("crashes", inactivity_timeout=timedelta(days=1))


class NotedCounter(Counter[str]):
    """A counter that a kill takes nothing from."""

    def __init__(self, path: Path, word: str) -> None:
        super().__init__()
        self._path, self._word = path, word
        for found, key in read_world_notes(path):
            if found == word:
                super().__setitem__(key, self[key] + 1)

    def __setitem__(self, key: str, value: int) -> None:
        note(str(self._path), self._word, key)
        super().__setitem__(key, value)


class NotedSet(set[str]):
    """A set that a kill takes nothing from."""

    def __init__(self, path: Path, word: str) -> None:
        super().__init__(key for found, key in read_world_notes(path) if found == word)
        self._path, self._word = path, word

    def add(self, key: str) -> None:
        note(str(self._path), self._word, key)
        super().add(key)


def read_world_notes(path: Path) -> Iterator[tuple[str, str]]:
    for line in read_text(path).splitlines():
        word, _, key = line.partition(" ")
        yield word, key


def read_text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def open_world(path: Path) -> World:
    """Return what happened, as the file says it, and goes on saying it."""
    return World(
        starts=NotedCounter(path, "start"),
        ends=NotedSet(path, "end"),
        reads=NotedSet(path, "read"),
        asked=NotedCounter(path, "ask"),
    )


class CrashingJournal:
    """Kills its process at a point: before an entry's work, after it, or after it is kept."""

    def __init__(self, journal: Journal, crash: int, outer: CrashingJournal | None = None) -> None:
        self._journal, self._crash, self._outer = journal, crash, outer
        self.passed = 0

    @property
    def run_id(self) -> str:
        return self._journal.run_id

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        done: list[str] = []

        def watch(entry: JournalEntry) -> JournalEntry:
            async def work() -> JournalValue:
                self.pass_point()
                value = await entry.work()
                self.pass_point()
                done.append(entry.name)
                return value

            return replace(entry, work=work)

        values = await self._journal.all([watch(entry) for entry in entries])
        for _ in done:
            self.pass_point()
        return values

    async def recall(self, name: str) -> JournalValue | None:
        return await self._journal.recall(name)

    async def finish(self) -> None:
        await self._journal.finish()

    def nested(self, name: str) -> Journal:
        return CrashingJournal(self._journal.nested(name), 0, self)

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        return await self._journal.read_nested(name)

    def pass_point(self) -> None:
        if self._outer is not None:
            self._outer.pass_point()
            return
        self.passed += 1
        if self.passed == self._crash:
            os.kill(os.getpid(), signal.SIGKILL)


def raise_when_asked(request: ChatRequest) -> str:
    raise AssertionError(f"the model was asked about {len(request.messages)} messages")


@service.handler()
async def play(ctx: restate.Context, asked: dict[str, Any]) -> dict[str, Any]:
    """Play a scenario in processes that crash one after the other, and once more from the finished log."""
    scenario, path = SCENARIOS[asked["scenario"]], FOLDER / asked["run"]
    note(f"{path}.attempts", "attempt")
    attempt = len(list(read_world_notes(Path(f"{path}.attempts"))))
    crashes = asked["crashes"]
    ended = read_text(Path(f"{path}.ended"))
    world = open_world(Path(f"{path}.world"))
    inner = RestateJournal(ctx, "run")
    journal = CrashingJournal(inner, crashes[attempt - 1] if attempt <= len(crashes) else 0)
    if ended:
        nothing = FunctionProvider(raise_when_asked)
        # Here a decision does not begin a log of its own, and so is made again, for which the tools must be there.
        tools = ToolRegistry[World]() if scenario.decide is None else scenario.registry()
        outcome, messages = await scenario.run(inner, world, provider=nothing, registry=tools)
    else:
        outcome, messages = await scenario.run(journal, world, registry=scenario.registry())
    if inner.failure is not None:
        raise inner.failure
    told = {"messages": json.loads(dump_messages(messages)), "end": describe_end(outcome), "points": journal.passed}
    if ended:
        return {"first": json.loads(ended), "again": told, "attempts": attempt}
    note(f"{path}.ended", json.dumps(told))
    raise RuntimeError("it has ended: replay it")


@service.handler()
async def run_slowly(ctx: restate.Context, name: str) -> dict[str, Any]:
    """Run what takes a while, and notes what it does in a file."""
    registry = ToolRegistry[str]([append, look])
    config = ToolLoopConfig[None](journal=RestateJournal(ctx, "run"))
    notes = str(FOLDER / name / "notes")
    result = await tool_loop(plan_provider(PLAN), registry, "go", ctx=notes, config=config)
    return {"messages": json.loads(dump_messages(result.messages))}


@service.handler()
async def change_settings(ctx: restate.Context, name: str) -> str:
    """Run with settings that ask for other entries in each second attempt, while a file is there."""
    attempts = FOLDER / f"{name}.attempts"
    note(str(attempts), "attempt")
    is_other = len(list(read_world_notes(attempts))) > 1 and bool(read_text(FOLDER / f"{name}.other"))
    journal = RestateJournal(ctx, "run")
    config = ToolLoopConfig[None](journal=journal, compaction=keep_last(100) if is_other else None)
    try:
        result = await tool_loop(plan_provider(PLAN), ToolRegistry([]), "go", config=config)
    except Exception:
        assert journal.failure is not None
        raise
    if len(list(read_world_notes(attempts))) == 1:
        raise RuntimeError("once more")
    return result.text


@service.handler()
async def reply_with_no_json(ctx: restate.Context, name: str) -> str:
    """Run a model that replies with what can't be kept; return the error of the second attempt."""
    attempts = FOLDER / f"{name}.attempts"

    def model(request: ChatRequest) -> ChatResponse:
        note(str(attempts), "asked")
        return ChatResponse(message=AssistantMessage("x"), metadata={"raw": object()})

    config = ToolLoopConfig[None](journal=RestateJournal(ctx))
    try:
        await tool_loop(FunctionProvider(model), ToolRegistry([]), "go", config=config)
    except JournalError as error:
        note(str(attempts), "told")
        if [word for word, _ in read_world_notes(attempts)] == ["asked", "told"]:
            raise RuntimeError("once more") from None
        return str(error)
    raise AssertionError


async def work(listener: int) -> None:
    config = Config()
    config.bind = [f"fd://{listener}"]
    desk = make_desk(FOLDER)
    hasty = replace(desk, name="hasty", approval_expiry=0.2)
    loops = [desk, hasty, make_tallied(FOLDER, name="tallied")]
    app = restate.app([service, *map(restate_service, loops)], protocol="bidi")
    nursery = os.getppid()

    async def wait_for_end() -> None:
        while os.getppid() == nursery:  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.5)

    await import_module("hypercorn.asyncio").serve(app, config, shutdown_trigger=wait_for_end)


def main() -> None:
    listener = int(sys.argv[2])
    workers: list[int] = []
    while True:
        pid = os.fork()
        if pid == 0:
            os.close(0)
            anyio.run(work, listener)
            return
        workers.append(pid)
        fresh = FOLDER / "pid.new"
        fresh.write_text(str(pid))
        fresh.rename(FOLDER / "pid")
        while os.waitpid(pid, os.WNOHANG | os.WUNTRACED)[0] == 0:  # until it has ended, or is frozen
            if select.select([0], [], [], 0.01)[0]:
                for each in workers:
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
                return


if __name__ == "__main__":
    main()
