"""The stores of runs: a folder of JSON lines, an SQLite file, and the protocol that both follow."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Protocol

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.private_files import make_private, write_ahead

_RUN_FILE = re.compile(r"\d{8}T\d{12}Z-(?P<run_id>[0-9a-zA-Z]{8,64})\.jsonl")
_MOST_OPEN_FILES = 100
_MOST_FOUND = 100
_TAIL_BYTES = 64 * 1024
_BUFFER_BYTES = 1024 * 1024
_APPLICATION_ID = 0x746B_7275  # "tkru", by which the file is known as ours
_SCHEMA_VERSION = 1
_BUSY_SECONDS = 10.0
_HEAD_BYTES = 100
_TOUCH = "UPDATE runs SET seen = ? WHERE run_id = ?"
_LIST = (
    "SELECT run_id, seen, (SELECT coalesce(max(position), 0) FROM lines WHERE lines.run_id = runs.run_id) FROM runs "
)
_SCHEMA = f"""
    BEGIN IMMEDIATE;
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {_SCHEMA_VERSION};
    CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, started REAL NOT NULL, seen REAL NOT NULL);
    CREATE TABLE IF NOT EXISTS lines (position INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, line BLOB);
    CREATE INDEX IF NOT EXISTS lines_by_run ON lines (run_id, position);
    CREATE TABLE IF NOT EXISTS answers (position INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, line BLOB);
    COMMIT;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as a store knows it, its lines unread."""

    id: str
    where: str  # for people
    seen: float  # the last sign of life of its writer, in seconds since 1970
    size: int  # grows with each line


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A whole line of a run: its position, the position of the next one, and its bytes."""

    position: int
    next_position: int
    line: bytes


class RunStore(Protocol):
    """Stores runs as lines, each appended whole and never changed."""

    def append(self, run_id: str, lines: bytes) -> None:
        """Write lines at the end of a run, which the first ones begin; raise `OSError`, and write none, if it fails."""
        ...

    def touch(self, run_ids: Iterable[str]) -> None:
        """Record that the writer of these runs is alive."""
        ...

    def close_run(self, run_id: str) -> None:
        """Release the resources of a run for now."""
        ...

    def list_runs(self, limit: int | None = None) -> list[StoredRun]:
        """Return the runs, newest first; at most `limit`, if it is not None."""
        ...

    def find_run(self, run_id: str) -> StoredRun | None:
        """Return one run as it is now."""
        ...

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        """Yield the whole lines from a position on, as they are read."""
        ...

    def read_last(self, run_id: str) -> bytes:
        """Return the last whole line; empty where there is none."""
        ...

    def add_answer(self, run_id: str, line: bytes) -> None:
        """Store an answer to a question of a run, next to the run."""
        ...

    def read_answers(self, run_id: str) -> list[bytes]:
        """Return the answers to the questions of a run, oldest first."""
        ...


class FolderStore:
    """A folder with a file for each run, named by its start and its id; answers are in a file next to it.

    Args:
        path: The folder; it is made with the first run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: dict[str, int] = {}  # descriptors, those used last at the end
        self._written: dict[str, Path] = {}  # the files of the runs that are being written
        self._found: dict[str, Path] = {}  # some of those that were looked for

    def append(self, run_id: str, lines: bytes) -> None:
        """Write lines at the end of a run's file, all or none."""
        descriptor = self._open.pop(run_id, None)
        if descriptor is None:
            if len(self._open) >= _MOST_OPEN_FILES:
                os.close(self._open.pop(next(iter(self._open))))
            descriptor = self._open_file(run_id)
        self._open[run_id] = descriptor
        end = os.fstat(descriptor).st_size
        try:
            while lines:
                lines = lines[os.write(descriptor, lines) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, end)  # a disk that is full leaves no half of a line
            raise

    def touch(self, run_ids: Iterable[str]) -> None:
        """Set the times of the runs' files to now."""
        for run_id in run_ids:
            file = self._written.get(run_id)
            if file is not None:
                with suppress(OSError):
                    os.utime(file)

    def close_run(self, run_id: str) -> None:
        """Close a run's file."""
        self._written.pop(run_id, None)
        descriptor = self._open.pop(run_id, None)
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def list_runs(self, limit: int | None = None) -> list[StoredRun]:
        """Return the runs in the folder, newest first; other files are ignored."""
        files = sorted(self._list_files(), key=lambda file: file.name, reverse=True)
        runs = (run for run in map(_describe_file, files) if run is not None)
        return list(islice(runs, limit))

    def find_run(self, run_id: str) -> StoredRun | None:
        """Return one run as it is now."""
        file = self._find_file(run_id)
        return None if file is None else _describe_file(file)

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        """Yield the whole lines from a byte of the file on; a line that is being written is read the next time."""
        file = self._find_file(run_id)
        if file is None:
            return
        with file.open("rb", buffering=_BUFFER_BYTES) as opened:
            opened.seek(start)
            position = start
            for line in opened:
                if not line.endswith(b"\n"):
                    return
                yield StoredLine(position, position + len(line), line)
                position += len(line)

    def read_last(self, run_id: str) -> bytes:
        """Return the last whole line; empty where it is longer than 64 KiB."""
        file = self._find_file(run_id)
        if file is None:
            return b""
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - _TAIL_BYTES))
            lines = opened.read().split(b"\n")
        return lines[-2] if len(lines) > 2 or (size <= _TAIL_BYTES and len(lines) == 2) else b""

    def add_answer(self, run_id: str, line: bytes) -> None:
        """Append an answer to the file next to the run's."""
        file = self._find_answers(run_id)
        if file is None:
            return
        make_private(file)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line)  # one write: of two pages that answer, neither is in the other's line
        finally:
            os.close(descriptor)

    def read_answers(self, run_id: str) -> list[bytes]:
        """Return the answers in the file next to the run's."""
        file = self._find_answers(run_id)
        try:
            return [] if file is None else file.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def _open_file(self, run_id: str) -> int:
        file = self._find_file(run_id)
        if file is None:
            _make_private_folder(self.path)
            file = self.path / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{run_id}.jsonl"
        make_private(file)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND)
        self._written[run_id] = file
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.write(descriptor, b"\n")  # a process before was killed in the middle of a line
        return descriptor

    def _find_file(self, run_id: str) -> Path | None:
        known = self._written.get(run_id) or self._found.get(run_id)
        if known is not None and known.exists():
            return known
        for file in self._list_files():
            found = _RUN_FILE.fullmatch(file.name)
            if found is not None and found["run_id"] == run_id:
                if len(self._found) >= _MOST_FOUND:
                    self._found.clear()
                self._found[run_id] = file
                return file
        return None

    def _find_answers(self, run_id: str) -> Path | None:
        file = self._find_file(run_id)
        return None if file is None else file.with_suffix(".answers")

    def _list_files(self) -> list[Path]:
        try:
            return [file for file in self.path.iterdir() if file.suffix == ".jsonl"]
        except FileNotFoundError:
            return []


def _describe_file(file: Path) -> StoredRun | None:
    found = _RUN_FILE.fullmatch(file.name)
    if found is None:
        return None
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return StoredRun(id=found["run_id"], where=str(file), seen=status.st_mtime, size=status.st_size)


def _make_private_folder(path: Path) -> None:
    """Make a private folder; an existing one is not changed, and its files are private anyway."""
    if path.is_dir():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=stat.S_IRWXU)


class DatabaseStore:
    """An SQLite file with a row for each line.

    Args:
        path: The file; it is made with the first run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        _check_file(path)

    def append(self, run_id: str, lines: bytes) -> None:
        """Write lines of a run, all or none."""
        now = time.time()
        rows = [(run_id, line) for line in lines.split(b"\n") if line]
        try:
            with self._lock:
                if self._writer is None:
                    self._writer = self._open_connection()
                with self._writer as connection:
                    connection.execute(
                        "INSERT INTO runs VALUES (?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET seen = excluded.seen",
                        (run_id, now, now),
                    )
                    connection.executemany("INSERT INTO lines (run_id, line) VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise OSError(f"{self.path}: {error}") from error

    def touch(self, run_ids: Iterable[str]) -> None:
        """Set the times of runs to now."""
        now = time.time()
        with self._lock:
            if self._writer is not None:
                with self._writer as connection:
                    connection.executemany(_TOUCH, [(now, run_id) for run_id in run_ids])

    def close_run(self, run_id: str) -> None:  # noqa: ARG002 - a folder has a file to close
        """Close the file, which another run opens again."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
            self._writer = None

    def list_runs(self, limit: int | None = None) -> list[StoredRun]:
        """Return the runs, newest first."""
        return self._find_runs("ORDER BY started DESC LIMIT ?", (-1 if limit is None else limit,))

    def find_run(self, run_id: str) -> StoredRun | None:
        """Return one run as it is now."""
        return next(iter(self._find_runs("WHERE run_id = ?", (run_id,))), None)

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        """Yield the lines from a row on."""
        if not self.path.exists():
            return
        with closing(self._open_connection()) as connection:
            query = "SELECT position, line FROM lines WHERE run_id = ? AND position >= ? ORDER BY position"
            for position, line in connection.execute(query, (run_id, start)):
                yield StoredLine(position, position + 1, line)

    def read_last(self, run_id: str) -> bytes:
        """Return the last line."""
        return next(iter(self._read_column("lines", run_id, "DESC LIMIT 1")), b"")

    def add_answer(self, run_id: str, line: bytes) -> None:
        """Store an answer."""
        with closing(self._open_connection()) as connection, connection:
            connection.execute("INSERT INTO answers (run_id, line) VALUES (?, ?)", (run_id, line))

    def read_answers(self, run_id: str) -> list[bytes]:
        """Return the answers."""
        return self._read_column("answers", run_id, "ASC")

    def _find_runs(self, which: str, values: tuple[str | int, ...]) -> list[StoredRun]:
        if not self.path.exists():
            return []
        with closing(self._open_connection()) as connection:
            rows = connection.execute(_LIST + which, values).fetchall()
        return [
            StoredRun(id=run_id, where=f"{self.path}, run {run_id}", seen=seen, size=last)
            for run_id, seen, last in rows
        ]

    def _read_column(self, table: str, run_id: str, order: str) -> list[bytes]:
        if not self.path.exists():
            return []
        query = f"SELECT line FROM {table} WHERE run_id = ? ORDER BY position {order}"  # noqa: S608 - constants
        with closing(self._open_connection()) as connection:
            return [bytes(line) for (line,) in connection.execute(query, (run_id,))]

    def _open_connection(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not _check_file(self.path)
        make_private(self.path, "-wal", "-shm", "-journal")
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            if is_new:
                connection.executescript(_SCHEMA)
                write_ahead(connection, _BUSY_SECONDS)
            # The write-ahead log is synced at checkpoints: a killed process loses nothing, a power cut little.
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


def _check_file(path: Path) -> bool:
    """Return True if the file exists, without touching one that is not ours."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return False
    if not head:
        return False
    if not head.startswith(b"SQLite format 3\0"):
        raise ConfigurationError(f"{path} is no run log: it is no SQLite database")
    # Where the format of SQLite's files has them, and so has PRAGMA.
    version, application = (int.from_bytes(head[at : at + 4], "big") for at in (60, 68))
    if application != _APPLICATION_ID:
        raise ConfigurationError(f"{path} is a database, and not that of a run log: give a path of its own")
    if version != _SCHEMA_VERSION:
        raise ConfigurationError(
            f"{path} is of version {version}, and this library reads version {_SCHEMA_VERSION}: "
            "read it with the library that wrote it"
        )
    return True
