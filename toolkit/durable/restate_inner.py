"""The logs of loops inside of calls, in Restate: kept by one run of the engine after the other while the calls move."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import anyio

from toolkit.dataclass import dataclass
from toolkit.durable.kept_journal import KeptJournal
from toolkit.errors import ConfigurationError, JournalError
from toolkit.json_text import write_json
from toolkit.loop.journal import Journal, JournalValue

__all__ = ["InnerLogs"]


@dataclass(frozen=True, slots=True)
class _UnkeptEntry:
    """An entry that is to be kept, as JSON with its place, and how its loop hears that it was."""

    text: str
    is_kept: anyio.Event


class InnerLogs:
    """The entries of the loops inside of calls that move at the same time.

    The engine compares what a handler asks for with what it has, in one order, and loops that move at the same time
    ask in none. So all that they keep is one sequence of batches: each waits until there is something to keep. An
    attempt that goes on reads that sequence to its end before any of the calls moves.

    Args:
        run_id: The run.
        calls: The names of the entries of the calls.
    """

    def __init__(self, run_id: str, calls: Iterable[str]) -> None:
        self._run_id = run_id
        self._kept: dict[str, dict[int, tuple[str, JournalValue]]] = {}
        self._moving = set(calls)
        self._waiting: list[_UnkeptEntry] = []
        self._written: list[_UnkeptEntry] = []
        self._news = anyio.Event()
        self._is_over = False
        self.is_live: anyio.Event = anyio.Event()
        """Set when all that is kept was read."""

    def end_call(self, name: str) -> None:
        """Take note that one of the calls has ended; twice is fine."""
        self._moving.discard(name)
        self._news.set()

    async def collect(self) -> bytes:
        """Return the next batch when there is something to keep; an empty one when no call moves anymore."""
        self.is_live.set()
        while self._moving and not self._waiting:
            await self._news.wait()
            self._news = anyio.Event()
        self._written, self._waiting = self._waiting, []
        self._is_over = not self._written
        return f"[{','.join(each.text for each in self._written)}]".encode()

    def take(self, batch: bytes) -> bool:
        """Learn that a batch is kept; return whether another one follows."""
        entries: list[tuple[str, int, str, JournalValue]] = json.loads(batch)
        for path, position, name, value in entries:
            self._kept.setdefault(path, {})[position] = (name, value)
        written, self._written = self._written, []
        for entry in written:
            entry.is_kept.set()
        return bool(entries)

    async def keep(self, path: str, position: int, name: str, value: JournalValue) -> None:
        """Keep an entry; when this returns, no crash undoes it.

        Raises:
            JournalError: The value can't be stored, or the call has ended.
        """
        try:
            text = write_json([path, position, name, value])
        except (TypeError, ValueError, RecursionError) as error:
            raise JournalError(f"entry '{name}' of run '{self._run_id}/{path}' can't be stored: {error}") from error
        if self._is_over:
            raise JournalError(f"entry '{name}' of run '{self._run_id}/{path}' comes after the end of its call")
        entry = _UnkeptEntry(text, anyio.Event())
        self._waiting.append(entry)
        self._news.set()
        with anyio.CancelScope(shield=True):
            await entry.is_kept.wait()

    def open_log(self, path: str) -> Journal:
        """Return the log of a loop inside of the calls that the path names.

        Raises:
            ConfigurationError: The call has ended.
        """
        if self._is_over:
            raise ConfigurationError(f"a loop begins inside of call '{path}', which has ended: await it in its tool")
        run_id = hashlib.sha256(f"{self._run_id}/{path}".encode()).hexdigest()[:32]
        return _InnerJournal(self, run_id, path, self._kept.get(path, {}))


class _InnerJournal(KeptJournal):
    """The log of one loop inside of a call."""

    def __init__(self, logs: InnerLogs, run_id: str, path: str, kept: Mapping[int, tuple[str, Any]]) -> None:
        super().__init__(run_id, path, kept)
        self._logs = logs

    def _open_inner(self, path: str, name: str) -> Journal:  # noqa: ARG002 - its id comes of its path
        return self._logs.open_log(path)

    async def _keep_value(self, position: int, name: str, value: JournalValue) -> JournalValue:
        await self._logs.keep(self._path, position, name, value)
        return value
