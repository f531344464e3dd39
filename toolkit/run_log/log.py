"""`RunLog`: the middleware that writes runs, and the reader of what it and others wrote."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json
from toolkit.loop.middleware import Middleware, RunInfo
from toolkit.run_log.cleaning import ContentPolicy
from toolkit.run_log.entries import LogEntry, read_header, read_line, read_object
from toolkit.run_log.folder import FolderStore
from toolkit.run_log.recorder import RunRecorder
from toolkit.run_log.stores import RunStore, StoredLine, StoredRun
from toolkit.run_log.summary import RunSummary, RunTally
from toolkit.run_log.writer import RunWriter
from toolkit.settings import check_setting

__all__ = ["RunLog"]

_DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_GONE_SECONDS = 15.0
"""A run whose writer was not there for so long was cut off: it says that it is there every 5 s."""

_FOLLOW_SECONDS = 0.2


class RunLog(Middleware[object]):
    """Writes each run as lines, and reads what was written.

    ::

        log = RunLog("runs/")
        config = ToolLoopConfig(middleware=(log,))
        result = await tool_loop(provider, registry, "What's the weather?", config=config)

        for run in log.runs():
            print(run.id, run.state, run.ending, run.tool_calls)
        for entry in log.read(log.runs()[0].id):
            print(entry.kind, entry.event)

    What is written never blocks a run and never makes one fail: a thread writes it, some milliseconds later, and where
    that can't be done, because a disk is full, say, one error is logged and the run goes on. A run whose process was
    killed can be read up to its last whole line. Sub-agents and loops inside of tools stand in the log of the run that
    they are a part of. Several processes may write to the same place and read it.

    A path that ends in ``.db``, ``.sqlite`` or ``.sqlite3`` is an SQLite file; any other is a folder, with a file of
    JSON lines for each run. Files are for their owner alone (0600, a new folder 0700).

    Args:
        path: Where the runs are.
        content: ``all`` writes what was said: messages, arguments, results. ``none`` writes that it was: which tools
            and models, when, how long, how many tokens, how it ended. Either way secrets are struck out: what looks
            like a key, what stands under a name such as ``password``, and arguments that their schema calls secret.
        secrets: More texts to strike out wherever they are, such as the keys that the application knows.

    Raises:
        ConfigurationError: The path is a file that is no run log.
    """

    is_inherited = True

    def __init__(
        self, path: str | os.PathLike[str], *, content: ContentPolicy = "all", secrets: Iterable[str] = ()
    ) -> None:
        check_setting("the path of a run log", path, str, os.PathLike)
        check_setting("content", content, "all", "none")
        self.path = Path(path)
        self.content: ContentPolicy = content
        self._read_from(_open_store(self.path), str(self.path), secrets)

    @classmethod
    def of_store(cls, store: RunStore, place: str) -> RunLog:
        """Return a log over runs that are kept in another way.

        Args:
            store: The runs.
            place: Where they are, for people.
        """
        log = cls.__new__(cls)
        log.path, log.content = Path(place), "all"
        log._read_from(store, place, ())
        return log

    def _read_from(self, store: RunStore, place: str, secrets: Iterable[str]) -> None:
        self.place: str = place
        self._store = store
        self._writer = RunWriter(store, self.content, secrets)
        self._tallies: dict[str, RunTally] = {}
        self._lock = threading.Lock()

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        """Return what writes this run."""
        return RunRecorder(self._writer, run)

    def flush(self, timeout: float = 3.0) -> bool:
        """Wait until all that this object was told is written.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            True where it is written; False where that took longer.
        """
        return self._writer.flush(timeout)

    def runs(self, limit: int | None = None) -> list[RunSummary]:
        """Return the runs in short, newest first; one that can't be read says so in its `problem`."""
        self.flush()
        return [self._summarize_run(stored) for stored in self._store.list_runs()[:limit]]

    def find(self, run_id: str) -> str:
        """Return the id of the one run whose id begins so.

        Raises:
            ConfigurationError: There is none, or more than one.
        """
        if self._store.find_run(run_id) is not None:
            return run_id
        ids = [stored.id for stored in self._store.list_runs() if stored.id.startswith(run_id)]
        if len(ids) == 1 and run_id:
            return ids[0]
        if ids:
            raise ConfigurationError(
                f"{len(ids)} runs in {self.place} begin with {run_id!r}: {', '.join(ids[:3])}...; write more of the id"
            )
        raise ConfigurationError(f"there is no run {run_id!r} in {self.place}")

    def summary(self, run_id: str) -> RunSummary:
        """Return one run in short.

        Raises:
            ConfigurationError: There is no such run.
        """
        self.flush()
        stored = self._store.find_run(run_id)
        if stored is None:
            raise ConfigurationError(f"there is no run {run_id!r} in {self.place}")
        return self._summarize_run(stored)

    def read(self, run_id: str, start: int = 0) -> Iterator[LogEntry]:
        """Yield the entries of a run as they are read: memory does not grow with the run.

        Lines that can't be read, as one that was cut off by a kill, are passed over.

        Args:
            run_id: The run.
            start: `LogEntry.next_position` of the last entry that is known; 0 begins with the first.

        Raises:
            ConfigurationError: There is no such run, it is no run log, or of another version.
        """
        self.flush()
        stored = self._store.find_run(run_id)
        if stored is None:
            raise ConfigurationError(f"there is no run {run_id!r} in {self.place}")
        return self._read_entries(stored, start)

    def follow(self, run_id: str, start: int = 0) -> AsyncIterator[LogEntry]:
        """Return the entries of a run, and then each new one as it is written, until the run has ended or is cut off.

        A run that ended to await a decision and goes on later is followed anew. The iterator may be left at any time.

        Args:
            run_id: The run.
            start: As for `read`.
        """
        return _Follower(self, run_id, start)

    def read_chunk(self, run_id: str, start: int = 0, most: int = 1_000) -> list[LogEntry]:
        """Return the next entries from a position on, at most so many; none where there is nothing new."""
        return list(islice(self.read(run_id, start), most))

    def find_lines(self, run_id: str, text: str) -> list[int]:
        """Return the positions of the entries in which a text stands, whatever its case."""
        wanted = _as_in_json(text)
        lines = self._store.read_lines(run_id)
        return [line.position for line in lines if wanted in line.line.decode("utf-8", "replace").casefold()]

    @property
    def store(self) -> RunStore:
        """Where the lines are."""
        return self._store

    @property
    def writer(self) -> RunWriter:
        """Takes what is to be written."""
        return self._writer

    def _read_entries(self, stored: StoredRun, start: int) -> Iterator[LogEntry]:
        is_first = start == 0
        for line in self._store.read_lines(stored.id, start):
            if is_first:
                read_header(line.line, stored.where)
                is_first = False
            entry = _to_entry(line)
            if entry is not None:
                yield entry

    def _summarize_run(self, stored: StoredRun) -> RunSummary:
        first = next(iter(self._store.read_lines(stored.id)), None)
        try:
            read_header(b"" if first is None else first.line, stored.where)
        except ConfigurationError as error:
            problem = str(error) if first is not None else "its first line is not whole"
            return RunSummary(id=stored.id, state="unreadable", problem=problem, where=stored.where)
        last = read_line(self._store.read_last(stored.id))
        if last is not None and last["event"] == "run_ended":
            return _load_summary(read_object(last, "summary"), stored)
        counted = replace(self._count_entries(stored), where=stored.where)
        if counted.state == "running" and time.time() - stored.seen > _GONE_SECONDS:
            return replace(counted, state="cut off", problem="its process ended before it did")
        return counted

    def _count_entries(self, stored: StoredRun) -> RunSummary:
        """Count what has come since this was asked last."""
        with self._lock:
            tally = self._tallies.setdefault(stored.id, RunTally(stored.id))
            for line in self._store.read_lines(stored.id, tally.position):
                plain = read_line(line.line)
                if plain is not None:
                    tally.add(plain)
                tally.position = line.next_position
            return tally.summarize()


class _Follower(AsyncIterator[LogEntry]):
    """Waits for the entries of one run; nothing is left to be closed."""

    def __init__(self, log: RunLog, run_id: str, start: int) -> None:
        self._log = log
        self._run_id = run_id
        self._position = start
        self._entries: deque[LogEntry] = deque()

    async def __anext__(self) -> LogEntry:
        while not self._entries:
            # Asked before reading: what is written until a run has ended is read after that.
            state = (await to_thread.run_sync(self._log.summary, self._run_id)).state
            self._entries += await to_thread.run_sync(self._log.read_chunk, self._run_id, self._position)
            if not self._entries:
                if state != "running":
                    raise StopAsyncIteration
                await anyio.sleep(_FOLLOW_SECONDS)
        entry = self._entries.popleft()
        self._position = entry.next_position
        return entry


def _open_store(path: Path) -> RunStore:
    if path.suffix.lower() in _DATABASE_ENDINGS:
        from toolkit.run_log.database import DatabaseStore  # noqa: PLC0415 - SQLite is a library that few runs need

        return DatabaseStore(path)
    if path.exists() and not path.is_dir():
        raise ConfigurationError(
            f"{path} is a file, and a run log is a folder of files: give the folder, or a path that ends in .db"
        )
    return FolderStore(path)


def _to_entry(line: StoredLine) -> LogEntry | None:
    plain = read_line(line.line)
    if plain is None:
        return None
    return LogEntry(position=line.position, next_position=line.next_position, plain=plain)


def _load_summary(plain: Mapping[str, Any], stored: StoredRun) -> RunSummary:
    known: dict[str, Any] = {field.name: plain[field.name] for field in fields(RunSummary) if field.name in plain}
    known.update(id=stored.id, where=stored.where)
    return RunSummary(**known)


def _as_in_json(text: str) -> str:
    return write_json(text)[1:-1].casefold()
