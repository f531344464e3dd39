"""Logs that replay their stored entries and store new ones; and the log in a file, for scripts and desktop programs.

In a file, entries are rows of a table, each written in one transaction with a check sum. A lock on the run is released
at the end of its process.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sqlite3
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
from anyio import CancelScope, to_thread

from toolkit.dataclass import dataclass
from toolkit.durable.contents import check_content, put_back, set_aside
from toolkit.errors import ConfigurationError, JournalError
from toolkit.json_text import write_json
from toolkit.loop.journal import Journal, JournalEntry, JournalValue, check_entry_name
from toolkit.private_files import make_private, write_ahead
from toolkit.schema.nodes import is_object
from toolkit.settings import check_setting

StoredEntry = tuple[str, Any]
"""The name and the value of an entry; a text or an error in place of a value that can't be read."""
Cipher = Callable[[bytes], bytes]
"""Encrypts or decrypts a stored value."""
_VERSION = 3
_BUSY_SECONDS = 30.0
_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS run (
        name TEXT PRIMARY KEY, run_id TEXT NOT NULL, began REAL NOT NULL, entries INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS entry (
        run_id TEXT, path TEXT, position INTEGER, name TEXT NOT NULL, value BLOB NOT NULL, seal BLOB NOT NULL,
        PRIMARY KEY (run_id, path, position)
    ) WITHOUT ROWID
    """,
    "CREATE TABLE IF NOT EXISTS content (run_id TEXT, digest TEXT, value BLOB NOT NULL, PRIMARY KEY (run_id, digest))",
    "CREATE INDEX IF NOT EXISTS run_by_id ON run (run_id)",
    """
    CREATE TRIGGER IF NOT EXISTS counted AFTER INSERT ON entry BEGIN
        UPDATE run SET entries = entries + 1 WHERE run_id = new.run_id;
    END
    """,
)
_COUNT_ENTRIES = """
    ALTER TABLE run ADD COLUMN entries INTEGER NOT NULL DEFAULT 0;
    UPDATE run SET entries = (SELECT count(*) FROM entry WHERE entry.run_id = run.run_id);
"""
"""Adds to a file of version 2 the number of entries that were written, which shows that the last ones are missing."""
_MISSING = """
    SELECT coalesce(max(entries), 0) - (SELECT count(*) FROM entry WHERE entry.run_id = ?1) FROM run WHERE run_id = ?1
"""
_LISTED = """
    SELECT run.name, run.run_id, run.began, count(entry.position),
        (SELECT name FROM entry AS last WHERE last.run_id = run.run_id AND last.path = ''
         ORDER BY position DESC LIMIT 1)
    FROM run LEFT JOIN entry ON entry.run_id = run.run_id AND entry.path = ''
    GROUP BY run.name, run.run_id, run.began ORDER BY run.began DESC, run.name
"""


class ReplayJournal(ABC):
    """The log of a run, or of a loop inside one of its calls; the run's name is for messages.

    Without stored entries by position, `_load_entries` reads them at the first use.
    """

    def __init__(self, run_id: str, name: str, stored: Mapping[int, StoredEntry] | None) -> None:
        self.run_id = run_id
        self._name = name
        self._left: dict[int, StoredEntry] | None = None  # the stored entries that were not replayed yet
        self._last = self._position = 0
        if stored is not None:
            self._take_stored(stored)

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Return the stored values of entries, or do their work and store the values."""
        left = await self._open_entries()
        first = self._position + 1
        self._position += len(entries)
        for position, entry in enumerate(entries, first):
            if position not in left:
                self._check_missing(position, entry)
        if len(entries) == 1:
            return [await self._take_entry(left, first, entries[0])]
        values: list[JournalValue] = [{} for _ in entries]
        failures: list[BaseException] = []
        live = [index for index in range(len(entries)) if first + index not in left]
        for index, entry in enumerate(entries):
            if index not in live:
                values[index] = self._replay_entry(left, first + index, entry)

        async def take(index: int, entry: JournalEntry) -> None:
            try:
                values[index] = await self._take_entry(left, first + index, entry)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, not in a group
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for index in live:
                tasks.start_soon(take, index, entries[index])
        if failures:
            raise failures[0]
        return values

    async def recall(self, name: str) -> JournalValue | None:  # noqa: ARG002 - for files
        """Return None: in an engine a decision begins the next segment, which has a log of its own."""
        return None

    async def finish(self) -> None:
        """Check that no stored entry is left when the run comes to rest."""
        left = await self._open_entries()
        if left:
            raise JournalError(
                f"the log of the run '{self._name}' goes on with '{left[min(left)][0]}' where the run has ended: it "
                "was written with other settings or by another version of the program, or it was changed"
            )

    @property
    def is_read(self) -> bool:
        """True once all stored entries were replayed."""
        return not self._left

    @abstractmethod
    def nested(self, name: str) -> Journal:
        """Return the log of a loop inside an entry's work."""

    @abstractmethod
    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        """Return the stored values of the logs inside an entry's work; see `Journal`."""

    @abstractmethod
    async def _store_value(self, position: int, name: str, value: JournalValue) -> None:
        """Store a value durably."""

    async def _load_entries(self) -> Mapping[int, StoredEntry]:
        """Return the stored entries, if they were not given."""
        return {}

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:  # noqa: ARG002 - for subclasses
        """Return the value of a stored entry that is replayed."""
        return stored

    async def _open_entries(self) -> dict[int, StoredEntry]:
        if self._left is None:
            return self._take_stored(await self._load_entries())
        return self._left

    def _take_stored(self, stored: Mapping[int, StoredEntry]) -> dict[int, StoredEntry]:
        self._left = left = dict(stored)
        self._last = max(left, default=0)
        return left

    def _check_missing(self, position: int, entry: JournalEntry) -> None:
        """Refuse to repeat work that was done, as later stored entries show.

        Of concurrent calls a later one may be stored without an earlier one, if nothing follows them. A decision that
        was not valid is not stored, and is found again at the start of its segment.
        """
        if self._last > self._position and not entry.name.startswith("decided "):
            raise JournalError(
                f"the log of the run '{self._name}' has no '{entry.name}' at position {position}, and goes on behind "
                "it: it was cut, or changed"
            )

    async def _take_entry(self, left: dict[int, StoredEntry], position: int, entry: JournalEntry) -> JournalValue:
        if position not in left:
            value = await entry.work()
            await self._store_value(position, entry.name, value)
            return value
        return self._replay_entry(left, position, entry)

    def _replay_entry(self, left: dict[int, StoredEntry], position: int, entry: JournalEntry) -> JournalValue:
        name, stored = left[position]
        check_entry_name(name, entry.name)
        value = self._read_value(name, check_readable(name, stored))
        del left[position]
        if entry.on_replay is not None:
            entry.on_replay(value)
        return value


def is_inside(path: str, call: str) -> bool:
    """Return whether the path of a log is that of a loop inside a call, at any depth."""
    return path == call or path.startswith((f"{call}/", f"{call}."))


def check_readable(name: str, stored: Any) -> JournalValue:
    """Return the stored value of an entry."""
    if isinstance(stored, JournalError):
        raise stored
    if not is_object(stored):
        raise JournalError(f"the entry '{name}' of the log can't be read: it was changed, or encrypted otherwise")
    return dict(stored)


@dataclass(frozen=True, slots=True)
class JournaledRun:
    """A run in the file of a `SqliteJournal`.

    Args:
        run_id: Its name in the file.
        began: The time of its start, in seconds since 1970.
        entries: The number of entries of its own log.
        last_entry: The name of the last one, such as ``turn 3`` or ``call c1``; empty without entries.
        is_under_way: True if a process has it open.
    """

    run_id: str
    began: float
    entries: int
    last_entry: str
    is_under_way: bool


class SqliteJournal(ReplayJournal):
    """Stores a run in a SQLite file: started again with it, the run continues where its process ended.

    ::

        with SqliteJournal("run.db", run_id="nightly-2026-11-22") as journal:
            result = await tool_loop(provider, registry, "Tidy up.", config=ToolLoopConfig(journal=journal))

    One file may contain many runs. A run is executed by one process at a time: a second one is refused, and the lock of
    a process is released at its end. Each entry is one transaction; a process that is killed during a write leaves the
    file intact and the entry unwritten. The file must be on a local disk, and is private to its owner (mode 0600 on
    POSIX). A journal serves one loop, once; the loops of its sub-agents have logs inside it.

    Replies and results are stored unchanged, since the run continues with exactly them: give `encrypt` if they may
    contain secrets.

    Args:
        path: The file, which is created in an existing folder.
        run_id: The name of the run in the file.
        encrypt: Applied to each entry before it is stored, such as ``Fernet(key).encrypt``; None stores plain JSON.
        decrypt: Its inverse, such as ``Fernet(key).decrypt``.
        is_synced: True syncs each entry to the disk before the run continues, which takes some milliseconds each: a
            loss of power then loses none. By default it may lose the last entries; the end of the process loses none
            either way.

    Raises:
        ConfigurationError: The file can't be used, or another process executes the run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        run_id: str,
        *,
        encrypt: Cipher | None = None,
        decrypt: Cipher | None = None,
        is_synced: bool = False,
    ) -> None:
        check_setting("the path of a journal", path, str, os.PathLike)
        check_setting("the run_id of a journal", run_id, str)
        if not run_id.strip():
            raise ConfigurationError("the run_id of a journal is empty: give the run a name")
        if (encrypt is None) != (decrypt is None):
            raise ConfigurationError("a journal takes encrypt and decrypt together, or neither")
        self._open_log(SqliteLog(Path(path), run_id, encrypt, decrypt, is_synced=is_synced), run_id, "")

    def _open_log(self, log: SqliteLog, name: str, path: str) -> None:
        # The run's own id was made with the run; those of loops inside its calls are derived from their paths.
        inner_id = hashlib.sha256(f"{log.run_id}/{path}".encode()).hexdigest()[:32]
        super().__init__(inner_id if path else log.run_id, name, None)
        self._log = log
        self._path = path
        self._has_begun = False  # has served a loop

    async def recall(self, name: str) -> JournalValue | None:
        """Return the value of the next stored entry if that is the entry of this name; see `Journal`."""
        left = await self._open_entries()
        following = min(left, default=0)  # after a position that an invalid decision has left empty
        if not following or left[following][0] != name:
            return None
        self._position = following
        value: JournalValue = left.pop(following)[1]
        return value

    def nested(self, name: str) -> SqliteJournal:
        """Return the log of a run inside this one; see `Journal`."""
        inner = object.__new__(type(self))
        inner._open_log(self._log, f"{self._name}/{name}", f"{self._path}/{name}")
        return inner

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        """Return the stored values of the logs inside a call; see `Journal`."""
        return await to_thread.run_sync(self._log.read_inside, f"{self._path}/{name}")

    @staticmethod
    def list_runs(path: str | os.PathLike[str]) -> list[JournaledRun]:
        """Return the runs of a file, the newest first, including those that other processes execute.

        Raises:
            ConfigurationError: It is not the file of a `SqliteJournal`.
        """
        file = Path(path)
        if not file.exists():
            raise ConfigurationError(f"there is no journal '{file}'")
        try:
            connection = _open_database(file)
            try:
                rows = connection.execute(_LISTED).fetchall()
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise ConfigurationError(f"the runs of the journal '{file}' can't be read: {error}") from error
        return [
            JournaledRun(name, began, count, last or "", _is_claimed(file, run_id))
            for name, run_id, began, count, last in rows
        ]

    def forget_failure(self) -> bool:
        """Delete the error that ended the run, so that the next start repeats the request.

        Returns:
            False if no error ended it, or one in a call, which must not run twice.
        """
        entries = self._log.read_entries(self._path)
        position = max(entries, default=0)
        name, value = entries.get(position, ("", {}))
        if "failed" not in value or name.startswith("call "):
            return False
        self._log.delete_entry(self._path, position)
        self._left = None
        return True

    def forget_run(self) -> None:
        """Delete the run from the file, and close the journal."""
        self._log.delete_run()
        self.close()

    def close(self) -> None:
        """Close the file, and release the run; repetitions are ignored."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _load_entries(self) -> dict[int, StoredEntry]:
        return await to_thread.run_sync(self._log.read_entries, self._path)

    async def _store_value(self, position: int, name: str, value: JournalValue) -> None:
        self._has_begun |= name == "begin"
        with CancelScope(shield=True):
            await to_thread.run_sync(self._log.write_entry, self._path, position, name, value)

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:
        self._has_begun |= name == "begin"
        return stored

    def _check_missing(self, position: int, entry: JournalEntry) -> None:
        super()._check_missing(position, entry)
        if entry.name == "begin" and self._has_begun:
            raise JournalError(
                f"the journal of the run '{self._name}' has served a loop already: give each loop a journal of its own"
            )


class SqliteLog:
    """The entries of one run, which has a unique id, and of those inside it; thread-safe."""

    def __init__(
        self, file: Path, name: str, encrypt: Cipher | None, decrypt: Cipher | None, *, is_synced: bool
    ) -> None:
        self._file = file
        self._name = name
        self._encrypt, self._decrypt = encrypt, decrypt
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = _open_database(file, is_synced=is_synced)
            self.run_id: str = self._find_run()
            self._claim: RunLock | None = RunLock(_find_lock(file, self.run_id))
        except JournalError:
            self._close_database()
            raise
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

    def _find_run(self) -> str:
        assert self._connection is not None
        made = (self._name, uuid.uuid4().hex, time.time())
        self._connection.execute("INSERT INTO run (name, run_id, began) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", made)
        row = self._connection.execute("SELECT run_id FROM run WHERE name = ?", (self._name,)).fetchone()
        return _check_id(row[0])

    def read_entries(self, path: str) -> dict[int, tuple[str, JournalValue]]:
        """Return the entries of the run or of one inside it, by position."""
        with self._lock:
            [missing] = self._use_database().execute(_MISSING, (self.run_id,)).fetchone()
            if missing > 0:
                count = f"{missing} of its entries {'is' if missing == 1 else 'are'}"
                raise JournalError(f"the log of the run '{self._name}' was cut: {count} missing")
            rows = self._use_database().execute(
                "SELECT position, name, value, seal FROM entry WHERE run_id = ? AND path = ?", (self.run_id, path)
            )
            return {row[0]: (row[1], self._read_value(path, *row)) for row in rows}

    def read_inside(self, call: str) -> list[JournalValue]:
        """Return the values of the logs inside a call, given its path."""
        with self._lock:
            paths = self._use_database().execute("SELECT DISTINCT path FROM entry WHERE run_id = ?", (self.run_id,))
            inside = [path for (path,) in paths if is_inside(path, call)]
        return [value for path in inside for _, value in self.read_entries(path).values()]

    def _read_value(self, path: str, position: int, name: str, value: bytes, seal: bytes) -> JournalValue:
        # A column of SQLite may have any type.
        kinds: list[tuple[object, type]] = [(position, int), (name, str), (value, bytes), (seal, bytes)]
        is_whole = all(isinstance(part, kind) for part, kind in kinds)
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
            except Exception:  # noqa: BLE001 - whatever a cipher raises, it is not what was stored
                content = False
        return check_content(digest, content, self.run_id, self._name)

    def write_entry(self, path: str, position: int, name: str, value: JournalValue) -> None:
        """Store an entry durably."""
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
                f"the entry '{name}' of the run '{self._name}' could not be stored in '{self._file}': {error}; the "
                "run ends here, and continues after the last stored entry when it is started again"
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
        """Delete an entry."""
        with self._lock:
            connection, which = self._use_database(), (self.run_id, path, position)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM entry WHERE run_id = ? AND path = ? AND position = ?", which)
            connection.execute("UPDATE run SET entries = entries - 1 WHERE run_id = ?", which[:1])
            connection.execute("COMMIT")

    def delete_run(self) -> None:
        """Delete the run, and all runs inside it."""
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
        """Close the file, and release the run; repetitions are ignored."""
        with self._lock:
            self._close_database()
            if self._claim is not None:
                self._claim.release()
                self._claim = None

    def _close_database(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _open_database(file: Path, *, is_synced: bool = False) -> sqlite3.Connection:
    """Open a file, and create its tables if it is new."""
    with suppress(OSError):  # SQLite fails with it then, with the reason
        make_private(file, "-wal", "-shm", "-journal")
    connection = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        if _read_version(connection) != _VERSION:
            _prepare_tables(file, connection)
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_tables(file: Path, connection: sqlite3.Connection) -> None:
    """Make the tables of a new file, or migrate those of version 2; where another process does, wait for that."""
    has_tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    version = _read_version(connection)  # asked last: others set both at once
    if has_tables and version not in (2, _VERSION):
        kind = f"of version {version}, and this library reads {_VERSION}" if version else "no journal"
        raise ConfigurationError(f"the file '{file}' is {kind}: give another one")
    if version == _VERSION:
        return
    write_ahead(connection, _BUSY_SECONDS)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _read_version(connection) == 2:
            for statement in _COUNT_ENTRIES.split(";"):
                connection.execute(statement)
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_id(run_id: object) -> str:
    """Return the id of a run, by which its lock is named."""
    if not isinstance(run_id, str) or not run_id.isalnum() or not run_id.isascii():
        raise JournalError(f"a run of the journal has the id {run_id!r:.60}: it was changed")
    return run_id


def _find_lock(file: Path, run_id: str) -> Path:
    return file.with_name(f"{file.name}-{_check_id(run_id)[:12]}.lock")


def _is_claimed(file: Path, run_id: str) -> bool:
    """Return whether a process has a run open."""
    lock = _find_lock(file, run_id)
    if not lock.exists():
        return False
    try:
        RunLock(lock).release()
    except BlockingIOError:
        return True
    return False


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class RunLock:
    """A file beside a database, locked while it is open: the system unlocks it at the end of the process.

    Args:
        path: The file, which is created, and removed at the release.
    """

    __slots__ = ("_descriptor", "_path", "_process")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._descriptor: int | None = None
        while self._descriptor is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _claim_file(descriptor)
            except OSError as error:
                os.close(descriptor)
                raise BlockingIOError(f"'{path}' is locked") from error
            if self._is_of_file(descriptor):
                self._descriptor = descriptor
            else:  # another process has removed the file meanwhile
                os.close(descriptor)

    def release(self) -> None:
        """Release the lock; repetitions are ignored."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._process == os.getpid():  # a forked process has a copy, and not the lock
            with suppress(OSError):  # on Windows, where an open file can't be removed
                self._path.unlink()
        os.close(descriptor)

    def _is_of_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False


def _claim_file(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
