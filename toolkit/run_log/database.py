"""Runs as rows of an SQLite file: many small runs in one place, read and written by several processes."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from toolkit.errors import ConfigurationError
from toolkit.private_files import make_private
from toolkit.run_log.stores import StoredLine, StoredRun

__all__ = ["DatabaseStore"]

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
    PRAGMA journal_mode = WAL;
"""


class DatabaseStore:
    """An SQLite file with a row for each line.

    Args:
        path: The file; it is made with the first run.

    Raises:
        ConfigurationError: It is a database of something else, or of another version.
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
        """Let go of the file, which another run opens again."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
            self._writer = None

    def list_runs(self) -> list[StoredRun]:
        """Return the runs, newest first."""
        return self._find_runs("ORDER BY started DESC", ())

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
        """Keep an answer."""
        with closing(self._open_connection()) as connection, connection:
            connection.execute("INSERT INTO answers (run_id, line) VALUES (?, ?)", (run_id, line))

    def read_answers(self, run_id: str) -> list[bytes]:
        """Return the answers."""
        return self._read_column("answers", run_id, "ASC")

    def _find_runs(self, which: str, values: tuple[str, ...]) -> list[StoredRun]:
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
            # The log is synced when it is taken over into the file: a killed process loses nothing, a power cut little.
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


def _check_file(path: Path) -> bool:
    """Return whether the file is there, without touching one that is not ours.

    Raises:
        ConfigurationError: It is of something else, or of another version.
    """
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
