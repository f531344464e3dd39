"""The work of the command ``worker``: it finds the loops, and moves their runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import anyio

from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.terminal import Terminal
from toolkit.cli.user_modules import import_file, import_named
from toolkit.dataclass import dataclass
from toolkit.durable import DurableLoop, DurableWorker, Encryption
from toolkit.suggestions import ask_whether_meant, find_similar

__all__ = ["WorkerSettings", "run_worker"]

_IMPORT_SECONDS = 60.0
_DAY = 86_400.0
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The options of ``worker``.

    Args:
        database: The URL of the database.
        concurrency: How many runs of each loop move at once.
        lease: Seconds after which a worker that gives no sign is dead.
        grace: Seconds that runs have to come to rest at the end.
        keep_days: Days after which runs that have ended are deleted; None keeps them.
        encryption: The name of an `Encryption`; empty for none.
        output: How the worker's readiness is written.
    """

    database: str
    concurrency: int
    lease: float
    grace: float
    keep_days: float | None
    encryption: str
    output: OutputFormat


def run_worker(words: Sequence[str], settings: WorkerSettings) -> int:
    """Move runs until a signal comes."""
    loops = [loop for word in words for loop in _find_loops(word)]
    encryption = _find_named(settings.encryption, Encryption) if settings.encryption else None
    screen = Screen(settings.output)

    async def main() -> int:
        async with DurableWorker(
            loops,
            settings.database,
            concurrency=settings.concurrency,
            lease=settings.lease,
            grace=settings.grace,
            encryption=encryption,
            keep_seconds=None if settings.keep_days is None else settings.keep_days * _DAY,
        ) as worker:
            names = [loop.name for loop in loops]
            screen.say(f"worker {worker.executor} moves runs of {', '.join(names)}")
            if screen.is_json:
                screen.document({"worker": worker.executor, "loops": names}, is_line=True)
            screen.note("SIGTERM or Ctrl-C ends it: runs that move come to rest, or go on at another worker")
            await anyio.sleep_forever()
        return ExitCode.DONE

    return Terminal().run(main)


def _find_loops(word: str) -> list[DurableLoop[Any, Any]]:
    """Return the loop of a name, or all loops of a module."""
    if ":" in word:
        return [_find_named(word, DurableLoop)]
    members: dict[str, Any] = vars(_import_module(word))
    loops: list[DurableLoop[Any, Any]] = [value for value in members.values() if isinstance(value, DurableLoop)]
    if not loops:
        raise CommandError(f"{word} has no durable loop: make one by toolkit.durable.durable_loop", ExitCode.MISUSED)
    return loops


def _find_named(word: str, kind: type[_Kind]) -> _Kind:
    module, _, name = word.rpartition(":")
    members: dict[str, Any] = vars(_import_module(module)) if module else {}
    found = members.get(name)
    if isinstance(found, kind):
        return found
    known = [key for key, value in members.items() if isinstance(value, kind)]
    hint = ask_whether_meant(find_similar(name, known, most=1)) or (f"there are {', '.join(known)}" if known else "")
    raise CommandError(f"{word} is no {kind.__name__}{'; ' if hint else ''}{hint}", ExitCode.MISUSED)


def _import_module(word: str) -> ModuleType:
    if word.endswith(".py"):
        return import_file(Path(word), _IMPORT_SECONDS)
    return import_named(word, _IMPORT_SECONDS)
