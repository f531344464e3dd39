"""The database of durable runs, opened: one connection pool that the engine and our tables share.

News of all runs that are followed in this process is read by one query at a time, however many follow them.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import anyio
import sqlalchemy as sa
from anyio import to_thread
from dbos import DBOS, DBOSClient, Serializer
from sqlalchemy import event
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
    SQLAlchemyError,
    TimeoutError as PoolTimeoutError,
)

from toolkit.dataclass import dataclass
from toolkit.durable.contents import Encryption, StoredText, is_away, is_refusal
from toolkit.durable.errors import DatabaseUnavailableError, DurableError, UnstorableValueError
from toolkit.durable.tables import TABLES_VERSION, runs, schema, versions
from toolkit.errors import ConfigurationError
from toolkit.private_files import make_private
from toolkit.runtime.backend import loop_waker
from toolkit.secrets import without_keys
from toolkit.settings import check_setting

__all__ = [
    "ENGINE_NAME",
    "ENGINE_VERSION",
    "EventWatch",
    "segment_id",
    "Storage",
]


ENGINE_NAME = "toolkit"
"""The application by which the engine keeps our work apart from what else is in the database."""

ENGINE_VERSION = "toolkit-1"
"""The version of the log's format: the engine would take a hash of the code, and new code could not read old logs."""

_BUSY_SECONDS = 30
_CONNECT_SECONDS = 5
_LOCK_SECONDS = 5
"""A worker that is frozen in the middle of a transaction holds its locks for so long."""

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_POOL_SIZE = 20
_SQLITE_POOL_SIZE = 4  # more would only wait for one another's locks
_LOCK = 0x746B_6475  # "tkdu": who makes the tables in Postgres
_SQLITE_WITH_FRACTIONS = (3, 42)  # what the engine needs from Python 3.12 on; Debian 12 has 3.40
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_Returned = TypeVar("_Returned")
_logger = logging.getLogger("toolkit.durable")
_URL_SHAPES = "'sqlite:///runs.db' or 'postgresql://user:password@host/database'"


class _JsonSerializer(Serializer):
    """Has the engine store JSON, and never pickles."""

    def __init__(self, text: StoredText) -> None:
        self._text = text

    def serialize(self, data: Any) -> str:
        return self._text.write(_write_error(data) if isinstance(data, BaseException) else data)

    def deserialize(self, serialized_data: str) -> Any:
        return self._text.read(serialized_data)

    def name(self) -> str:
        return "toolkit_json"


def _write_error(error: BaseException) -> dict[str, str]:
    return {"error": type(error).__name__, "text": without_keys(str(error))}


def segment_id(run_id: str, segment: int) -> str:
    """Return the id of the engine's workflow that is one segment of a run."""
    return f"{run_id}/{segment}"


class Storage:
    """A database of durable runs. Its methods block: call them on a worker thread.

    Attributes:
        url: The address, without a password.
        engine: The connection pool.
        client: The client of the engine.
        serializer: How the engine stores values.
        text: How we store values.
        watch: Looks for news of runs that are followed.
    """

    def __init__(self, url: str, encryption: Encryption | None = None) -> None:
        check_setting("the URL of durable runs", url, str)
        check_setting("encryption", encryption, Encryption, None)
        parsed = _parse_url(url)
        self.url: str = parsed.render_as_string(hide_password=True).replace("+psycopg", "")
        self.text: StoredText = StoredText(encryption)
        self.serializer: Serializer = _JsonSerializer(self.text)
        self.engine: sa.Engine = _make_engine(parsed)
        self.watch: EventWatch = EventWatch(self.engine)
        self._lock = threading.Lock()
        try:
            with self.telling_failures():
                _make_tables(parsed, self.engine)
            with self.telling_failures():
                self.client: DBOSClient = DBOSClient(
                    system_database_engine=self.engine,
                    serializer=self.serializer,
                    application_name=ENGINE_NAME,
                    retry_connection_errors=False,
                )
        except BaseException:
            self.engine.dispose()
            raise

    @property
    def is_postgres(self) -> bool:
        """True where several machines can share it."""
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def telling_failures(self) -> Generator[None]:
        """Raise an error of ours where the database can't be reached.

        Raises:
            DatabaseUnavailableError: The database is away, full, or no database of ours.
            UnstorableValueError: It is there, and does not take a value.
        """
        try:
            yield
        except (DBAPIError, OverflowError, UnicodeEncodeError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            said = " ".join(str(cause).split())
            if is_refusal(error):
                raise UnstorableValueError(
                    "a value", f"the database does not take it ({said}): give another"
                ) from error
            raise DatabaseUnavailableError(self.url, said) from error
        except PoolTimeoutError as error:
            raise DatabaseUnavailableError(self.url, str(error)) from error
        except (sqlite3.Error, OSError) as error:
            raise DatabaseUnavailableError(self.url, str(error)) from error

    async def ask(self, work: Callable[[], _Returned]) -> _Returned:
        """Do what blocks on a worker thread.

        Raises:
            DatabaseUnavailableError: The database is away.
            UnstorableValueError: It does not take a value.
        """
        with self.telling_failures():
            return await to_thread.run_sync(work)

    async def insist(self, work: Callable[[], _Returned]) -> _Returned:
        """Do what blocks on a worker thread, again and again while the database is away or full.

        What a run has learned is not lost by that: it waits. The work may have been done where its answer was lost.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return await to_thread.run_sync(work)
            except (SQLAlchemyError, OverflowError, UnicodeEncodeError) as error:
                if not is_away(error):
                    raise
                cause = error.orig if isinstance(error, DBAPIError) else error
                _logger.warning("the database of durable runs at %s is waited for: %s", self.url, cause)
            await anyio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def close(self) -> None:
        """Close all connections."""
        self.watch.stop()
        self.client.destroy()
        self.engine.dispose()


def _parse_url(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise ConfigurationError(f"the URL of durable runs can't be read: give {_URL_SHAPES}") from None
    match parsed.drivername:
        case "sqlite":
            if parsed.database in (None, "", ":memory:"):
                raise ConfigurationError(
                    "durable runs in memory would not outlive their process: give a file, as in 'sqlite:///runs.db'"
                )
            return parsed
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise ConfigurationError(f"durable runs are kept in SQLite or Postgres, not {other!r}: give {_URL_SHAPES}")


def _make_engine(url: sa.URL) -> sa.Engine:
    if url.drivername == "sqlite":
        assert url.database is not None
        path = Path(url.database)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            make_private(path, "-wal", "-shm", "-journal")
        except OSError as error:
            raise DatabaseUnavailableError(str(url), str(error)) from error
        engine = sa.create_engine(
            url, pool_size=_SQLITE_POOL_SIZE, max_overflow=0, pool_timeout=_BUSY_SECONDS, hide_parameters=True
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "handle_error", _wait_for_space)
        return engine
    try:
        return sa.create_engine(
            url,
            pool_size=_POOL_SIZE,
            max_overflow=_POOL_SIZE,
            pool_timeout=_BUSY_SECONDS,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={
                "connect_timeout": _CONNECT_SECONDS,
                "application_name": ENGINE_NAME,
                "options": f"-c idle_in_transaction_session_timeout={_LOCK_SECONDS * 1000}",
            },
        )
    except NoSuchModuleError as error:
        raise ConfigurationError(f"Postgres needs psycopg: `pip install 'toolkit-sdk[durable]'` ({error})") from error


def _set_up_sqlite(connection: sqlite3.Connection, record: object) -> None:  # noqa: ARG001 - as SQLAlchemy calls it
    # A transaction that begins by reading could not be made a writing one beside another writer.
    connection.isolation_level = "IMMEDIATE"
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if sqlite3.sqlite_version_info < _SQLITE_WITH_FRACTIONS:
        connection.create_function("unixepoch", 1, _read_clock)


def _read_clock(unit: str) -> float:
    """Return the seconds since 1970, for an engine that takes SQLite for newer than it is: an older one gives NULL."""
    if unit != "subsec":
        raise ValueError(f"unixepoch({unit!r}) is none of the engine's")
    return time.time()


def _wait_for_space(context: sa.engine.ExceptionContext) -> None:
    """Have a full disk be waited for, as the engine waits where the pool has no connection; it would give up otherwise.

    Raises:
        TimeoutError: Of SQLAlchemy's.
    """
    code = getattr(context.original_exception, "sqlite_errorcode", 0)
    if code & 0xFF in _FULL:
        raise PoolTimeoutError(f"{context.original_exception}: is the disk full?") from context.original_exception


def _make_tables(url: sa.URL, engine: sa.Engine) -> None:
    """Make the engine's tables and ours where they are not there.

    Raises:
        DurableError: Ours are of another version.
    """
    with engine.connect() as connection:
        if sa.inspect(connection).has_table(versions.name):
            _check_version(connection)
            return
    logging.getLogger("dbos").setLevel(logging.WARNING)
    try:
        DBOS.migrate(url.render_as_string(hide_password=False).replace("+psycopg", ""))
    except SQLAlchemyError:
        raise
    except Exception as error:
        raise DurableError(f"the engine can't make its tables: {error}") from error
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema.create_all(connection)
        if connection.scalar(sa.select(versions.c.version)) is None:
            connection.execute(versions.insert().values(version=TABLES_VERSION))
        _check_version(connection)


def _check_version(connection: sa.Connection) -> None:
    version = connection.scalar(sa.select(versions.c.version))
    if version is not None and version != TABLES_VERSION:
        raise DurableError(
            f"the durable runs in this database are of version {version}, and this library reads version "
            f"{TABLES_VERSION}: use the library that wrote them, or another database"
        )


_FIRST_SECONDS = 0.01
_RUNNING_SECONDS = 0.02
"""Between two looks at a run that moves, however long it has told nothing."""

_SLOW_SECONDS = 0.25
"""The same for a run that waits for a worker or for a decision."""

_SLOWER = 1.3
_GAP_SECONDS = 0.01
_MOST = 500


@dataclass(slots=True)
class _WaitingReader:
    number: int
    run_id: str
    after: int
    state: str
    wake: Callable[[], object]
    pause: float
    next_look: float


class EventWatch:
    """A thread that looks while somebody waits.

    Args:
        engine: The database.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._readers: dict[int, _WaitingReader] = {}
        self._numbers = count(1)
        self._changed = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None

    async def wait_for_news(self, run_id: str, after: int, state: str) -> None:
        """Return when a run has told something new, stands otherwise or is gone, or the database is away.

        Args:
            run_id: The run.
            after: The number of the last event that is known.
            state: How the run stood.
        """
        if self._is_over:
            await anyio.sleep(_SLOW_SECONDS)
            return
        wake, has_news = loop_waker(), anyio.Event()
        next_look = time.monotonic() + _FIRST_SECONDS
        number = next(self._numbers)
        reader = _WaitingReader(number, run_id, after, state, lambda: wake(has_news.set), _FIRST_SECONDS, next_look)
        with self._changed:
            self._readers[number] = reader
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_on, name="toolkit durable watch", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            await has_news.wait()
        finally:
            with self._changed:
                self._readers.pop(number, None)

    def stop(self) -> None:
        """End."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
            for each in self._readers.values():
                each.wake()
        if self._thread is not None:
            self._thread.join(5)

    def _look_on(self) -> None:
        while not self._is_over:
            due = self._wait_for_due()
            for first in range(0, len(due), _MOST):
                self._look_at(due[first : first + _MOST])
            time.sleep(_GAP_SECONDS)

    def _wait_for_due(self) -> list[_WaitingReader]:
        """Return the readers for whom it is time to look; wait until there are some, or until this ends."""
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                due = [each for each in self._readers.values() if each.next_look <= now]
                if due:
                    return due
                next_look = min((each.next_look for each in self._readers.values()), default=None)
                self._changed.wait(None if next_look is None else max(_GAP_SECONDS, next_look - now))
        return []

    def _look_at(self, due: Sequence[_WaitingReader]) -> None:
        query = sa.select(runs.c.run_id, runs.c.last_seq, runs.c.state)
        query = query.where(runs.c.run_id.in_({each.run_id for each in due}))
        found: dict[str, tuple[int, str]] = {}
        try:
            with self._engine.connect() as connection:
                found = {run_id: (last_seq, state) for run_id, last_seq, state in connection.execute(query).all()}
        except SQLAlchemyError as error:  # those who wait ask the database themselves, and say what is wrong
            _logger.debug("durable runs can't be looked at: %s", error)
        now = time.monotonic()
        for each in due:
            last_seq, state = found.get(each.run_id, (-1, ""))
            if last_seq > each.after or state != each.state:
                with self._changed:
                    self._readers.pop(each.number, None)
                each.wake()
            else:
                longest = _RUNNING_SECONDS if state == "running" else _SLOW_SECONDS
                each.pause = min(longest, each.pause * _SLOWER)
                each.next_look = now + each.pause
