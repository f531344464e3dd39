"""The file of a `SqliteJournal`: entries of runs in a table, each in one transaction, sealed against changes."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from toolkit.durable.contents import check_content, put_back, set_aside
from toolkit.durable.run_lock import RunLock
from toolkit.errors import ConfigurationError, JournalError
from toolkit.json_text import write_json
from toolkit.loop.journal import JournalValue
from toolkit.private_files import make_private

__all__ = ["Cipher", "SqliteLog"]

Cipher = Callable[[bytes], bytes]
"""Encrypts or decrypts what is kept."""

_VERSION = 2
_BUSY_SECONDS = 30.0
_TABLES = """
    CREATE TABLE IF NOT EXISTS run (name TEXT PRIMARY KEY, run_id TEXT NOT NULL, began REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS entry (
        run_id TEXT, path TEXT, position INTEGER, name TEXT NOT NULL, value BLOB NOT NULL, seal BLOB NOT NULL,
        PRIMARY KEY (run_id, path, position)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS content (
        run_id TEXT, digest TEXT, value BLOB NOT NULL, PRIMARY KEY (run_id, digest)
    );
"""


class SqliteLog:
    """The entries of one run and of those inside of it; safe between threads.

    Args:
        file: The database.
        name: The run, as the application names it.
        encrypt: Applied to each value before it is kept; None keeps it as it is.
        decrypt: Its reverse.
        is_synced: True where each entry is synced to the disk.

    Attributes:
        run_id: The id of the run, which no other has.

    Raises:
        ConfigurationError: The file can't be used, or somebody else goes on with the run.
    """

    def __init__(
        self, file: Path, name: str, encrypt: Cipher | None, decrypt: Cipher | None, *, is_synced: bool
    ) -> None:
        self._file = file
        self._name = name
        self._encrypt, self._decrypt = encrypt, decrypt
        self._is_synced = is_synced
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = self._open_database()
            self.run_id: str = self._find_run()
            self._claim: RunLock | None = RunLock(file.with_name(f"{file.name}-{self.run_id[:12]}.lock"))
        except BlockingIOError:
            self._close_database()
            raise ConfigurationError(
                f"the run '{name}' in '{file}' is under way in another process, or in another journal of this one: "
                "a run goes on in one place at a time. Wait for the other one to end, or close its journal"
            ) from None
        except (sqlite3.Error, OSError) as error:
            self._close_database()
            raise ConfigurationError(
                f"the journal '{file}' can't be opened: {error}; give a file in a folder that is there and may be "
                "written to, either a new one or one that SqliteJournal has made"
            ) from error

    def _open_database(self) -> sqlite3.Connection:
        with suppress(OSError):  # SQLite fails with it then, and says why
            make_private(self._file, "-wal", "-shm", "-journal")
        connection = sqlite3.connect(self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            deadline = time.monotonic() + _BUSY_SECONDS
            while connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                self._prepare_tables(connection, deadline)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._is_synced else 'NORMAL'}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_tables(self, connection: sqlite3.Connection, deadline: float) -> None:
        """Make the tables of a new file; where another process does, wait for that."""
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version or connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            if version == _VERSION:
                return
            kind = f"of version {version}, and this library reads {_VERSION}" if version else "no journal"
            raise ConfigurationError(f"the file '{self._file}' is {kind}: give another one")
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
        except sqlite3.OperationalError as error:
            # SQLite does not wait for other processes by itself where the mode of the file changes.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            if connection.in_transaction:
                connection.rollback()
            time.sleep(0.01)

    def _find_run(self) -> str:
        assert self._connection is not None
        made = (self._name, uuid.uuid4().hex, time.time())
        self._connection.execute("INSERT INTO run VALUES (?, ?, ?) ON CONFLICT DO NOTHING", made)
        row = self._connection.execute("SELECT run_id FROM run WHERE name = ?", (self._name,)).fetchone()
        return str(row[0])

    def read_entries(self, path: str) -> dict[int, tuple[str, JournalValue]]:
        """Return the entries of the run or of one inside of it, by position.

        Raises:
            JournalError: One was changed, or can't be decrypted.
        """
        with self._lock:
            rows = self._use_database().execute(
                "SELECT position, name, value, seal FROM entry WHERE run_id = ? AND path = ?", (self.run_id, path)
            )
            return {position: (name, self._read_value(path, *row)) for row in rows for position, name, *_ in [row]}

    def _read_value(self, path: str, position: int, name: str, value: bytes, seal: bytes) -> JournalValue:
        is_whole = isinstance(value, bytes) and isinstance(seal, bytes)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_whole or not hmac.compare_digest(self._make_seal(path, position, name, value), seal):
            raise JournalError(f"the entry '{name}' of the run '{self._name}' in '{self._file}' was changed")
        try:
            read: JournalValue = json.loads(value if self._decrypt is None else self._decrypt(value))
        except Exception as error:
            raise JournalError(
                f"the entry '{name}' of the run '{self._name}' can't be read: {error}; was it encrypted otherwise?"
            ) from error
        whole: JournalValue = put_back(read, self._read_content)
        return whole

    def _read_content(self, digest: str) -> str:
        query = "SELECT value FROM content WHERE run_id = ? AND digest = ?"
        row = self._use_database().execute(query, (self.run_id, digest)).fetchone()
        content: object = None
        if row is not None:
            try:
                content = (row[0] if self._decrypt is None else self._decrypt(row[0])).decode()
            except Exception:  # noqa: BLE001 - whatever a cipher raises, it is not what was kept
                content = False
        return check_content(digest, content, self.run_id, self._name)

    def write_entry(self, path: str, position: int, name: str, value: JournalValue) -> None:
        """Keep an entry; once this returns, no crash undoes it.

        Raises:
            JournalError: It can't be kept.
        """
        try:
            text = write_json(value, allow_nan=False)
            small, contents = set_aside(value, text, self.run_id)
            data = self._encode_text(text if small is value else write_json(small, allow_nan=False))
            beside = [(self.run_id, digest, self._encode_text(content)) for digest, content in contents.items()]
            row = (self.run_id, path, position, name, data, self._make_seal(path, position, name, data))
            with self._lock:
                self._write_rows(row, beside)
        except JournalError:
            raise
        except Exception as error:
            raise JournalError(
                f"the entry '{name}' of the run '{self._name}' could not be kept in '{self._file}': {error}; the run "
                "ends here, and goes on behind the last entry that was kept when it is started again"
            ) from error

    def _encode_text(self, text: str) -> bytes:
        return text.encode() if self._encrypt is None else self._encrypt(text.encode())

    def _write_rows(self, row: Sequence[object], beside: Sequence[Sequence[object]]) -> None:
        """Write an entry and its large contents in one transaction."""
        connection = self._use_database()
        insert = "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)"
        if not beside:
            connection.execute(insert, row)
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(insert, row)
            connection.executemany("INSERT INTO content VALUES (?, ?, ?) ON CONFLICT DO NOTHING", beside)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite has ended it where the disk is full
                connection.execute("ROLLBACK")
            raise

    def delete_entry(self, path: str, position: int) -> None:
        """Forget an entry."""
        with self._lock:
            self._use_database().execute(
                "DELETE FROM entry WHERE run_id = ? AND path = ? AND position = ?", (self.run_id, path, position)
            )

    def delete_run(self) -> None:
        """Forget the run, and all runs inside of it."""
        with self._lock:
            connection = self._use_database()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM entry WHERE run_id = ?", (self.run_id,))
            connection.execute("DELETE FROM content WHERE run_id = ?", (self.run_id,))
            connection.execute("DELETE FROM run WHERE run_id = ?", (self.run_id,))
            connection.execute("COMMIT")

    def _make_seal(self, path: str, position: int, name: str, value: bytes) -> bytes:
        head = write_json([self.run_id, path, position, name]).encode()
        return hashlib.sha256(head + b"\n" + value).digest()[:16]

    def _use_database(self) -> sqlite3.Connection:
        if self._connection is None:
            raise JournalError(f"the journal of the run '{self._name}' is closed: make another one")
        return self._connection

    def close(self) -> None:
        """Close the file, and let others go on with the run; twice is fine."""
        with self._lock:
            self._close_database()
            if self._claim is not None:
                self._claim.release()
                self._claim = None

    def _close_database(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
