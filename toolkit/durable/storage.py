"""The database of durable runs: stored values with their large contents, and the connection pool.

The engine's tables have the segments, the worker that moves each, and the rests that they leave. The truth of a run is
the log of its active segment, which is here, or the output of the last one.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio
import sqlalchemy as sa
from anyio import to_thread
from dbos import DBOSClient, Serializer
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError as PoolTimeoutError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from toolkit.durable.contents import (
    BESIDE,
    ContentRow,
    Encryption,
    StoredText,
    check_content,
    find_digests,
    has_contents,
    put_back,
)
from toolkit.durable.errors import DatabaseUnavailableError, DurableError, UnstorableValueError
from toolkit.durable.tables import contents, prepare_tables
from toolkit.errors import ConfigurationError, JournalError
from toolkit.json_text import write_json
from toolkit.private_files import make_private, write_ahead
from toolkit.redaction import without_keys
from toolkit.schema.nodes import is_object
from toolkit.settings import check_setting

_REFUSALS = ("22", "54")
"""The classes of Postgres's codes that are about a value: data exceptions, and limits of the program."""
_SPLIT_LINE = write_json({BESIDE: {}}).removesuffix("{}}")
_MOST_AT_ONCE = 1_000
ENGINE_NAME = "toolkit"
"""The application's name in the engine, which separates our work from other work in the database."""
ENGINE_VERSION = "toolkit-1"
"""The version of the log's format: the engine would take a hash of the code, and new code could not read old logs."""
_BUSY_SECONDS = 30
_CONNECT_SECONDS = 5
_LOCK_SECONDS = 5
"""The seconds after which a worker that is frozen in a transaction loses its locks."""
_SEND_SECONDS = 60
"""The seconds after which a worker that takes no more of an answer loses its connection, and with it its locks."""
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_POOL_SIZE = 20
_SQLITE_POOL_SIZE = 4  # more would only wait for one another's locks
_SQLITE_WITH_FRACTIONS = (3, 42)  # what the engine needs from Python 3.12 on; Debian 12 has 3.40
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_Returned = TypeVar("_Returned")
_logger = logging.getLogger("toolkit.durable")
_URL_SHAPES = "'sqlite:///runs.db' or 'postgresql://user:password@host/database'"


def is_refusal(error: BaseException) -> bool:
    """Return whether a database has refused a value, however often it is asked."""
    if isinstance(error, (DataError, OverflowError, UnicodeEncodeError, sqlite3.DataError)):
        return True
    code: object = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
    return isinstance(code, str) and code.startswith(_REFUSALS)


def is_away(error: BaseException) -> bool:
    """Return whether a database is away, full or busy, so that it may accept the same later."""
    return isinstance(error, (OperationalError, InterfaceError, PoolTimeoutError)) and not is_refusal(error)


def store_contents(connection: sa.Connection, rows: Sequence[ContentRow]) -> None:
    """Store contents in the transaction of the values that have them."""
    if rows:
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        # In one order, so that two transactions with the same contents do not wait for each other.
        ordered = sorted(rows, key=lambda row: (row["run_id"], row["digest"]))
        connection.execute(insert(contents).on_conflict_do_nothing(), ordered)


def restore_values(
    connection: sa.Connection, stored: StoredText, run_id: str, values: Sequence[Any]
) -> list[Any | JournalError]:
    """Return stored values with their contents; an error for one whose contents are missing or were changed."""
    digests = {digest for value in values for digest in find_digests(value)}
    texts: Mapping[str, str] = {}
    if digests:
        query = sa.select(contents.c.digest, contents.c.value)
        query = query.where(contents.c.run_id == run_id, contents.c.digest.in_(digests))
        texts = {row.digest: row.value for row in connection.execute(query)}

    def find(digest: str) -> str:
        return check_content(digest, _open_content(stored, texts.get(digest)), run_id, run_id)

    def restore(value: Any) -> Any | JournalError:
        try:
            return put_back(value, find)
        except JournalError as error:
            return error

    return [restore(value) for value in values]


def restore_lines(connection: sa.Connection, stored: StoredText, run_id: str, texts: Sequence[str]) -> list[str]:
    """Return the lines of events that are stored as these texts.

    Raises:
        DurableError: One can't be read.
        JournalError: Contents of one are missing or were changed.
    """
    lines = [stored.open(text) for text in texts]
    split = {index: _parse_line(line) for index, line in enumerate(lines) if line.startswith(_SPLIT_LINE)}
    for index, value in zip(split, restore_values(connection, stored, run_id, list(split.values())), strict=True):
        if isinstance(value, JournalError):
            raise value
        lines[index] = value if isinstance(value, str) else write_json(value)
    return lines


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # it was edited, and readers skip what is no JSON
        return line


def _open_content(stored: StoredText, text: str | None) -> object:
    if text is None:
        return None
    try:
        return stored.read(text)
    except DurableError:
        return False  # refused as changed


def restore_value(connection: sa.Connection, stored: StoredText, run_id: str, value: Any) -> Any:
    """Return a stored value with its contents.

    Raises:
        JournalError: Contents of it are missing or were changed.
    """
    if not has_contents(value):
        return value
    [restored] = restore_values(connection, stored, run_id, [value])
    if isinstance(restored, JournalError):
        raise restored
    return restored


def database_now(engine: sa.Engine) -> sa.ColumnElement[Any]:
    """Return the time by the database's clock in seconds since 1970: the one clock that all processes share."""
    if engine.dialect.name == "postgresql":
        return sa.extract("epoch", sa.func.clock_timestamp())
    return (sa.func.julianday("now") - 2440587.5) * 86400.0


def find_executor(connection: sa.Connection, workflow_id: str) -> str | None:
    """Return the worker to which the engine has given a workflow."""
    table = _engine_table(connection, "workflow_status")
    query = sa.select(table.c.executor_id).where(table.c.workflow_uuid == workflow_id)
    return connection.scalar(query)


def delete_workflows(connection: sa.Connection, workflow_ids: Sequence[str]) -> None:
    """Delete workflows of the engine in a transaction of ours; it would do so in one of its own."""
    for first in range(0, len(workflow_ids), _MOST_AT_ONCE):
        ids = workflow_ids[first : first + _MOST_AT_ONCE]
        for name in ("workflow_input", "workflow_output", "operation_outputs", "workflow_status"):
            table = _engine_table(connection, name)
            connection.execute(table.delete().where(table.c.workflow_uuid.in_(ids)))


def _engine_table(connection: sa.Connection, name: str) -> sa.TableClause:
    columns = [sa.column("workflow_uuid", sa.Text), sa.column("executor_id", sa.Text)]
    return sa.table(name, *columns, schema="dbos" if connection.dialect.name == "postgresql" else None)


class _JsonSerializer(Serializer):
    """Has the engine store JSON, and never pickles."""

    def __init__(self, text: StoredText) -> None:
        self._text = text

    def serialize(self, data: Any) -> str:
        if isinstance(data, BaseException):
            data = _write_error(data)
        elif is_object(data) and "args" in data:  # the engine gives a time to the work of a schedule
            data = {**data, "args": [_write_time(each) for each in data["args"]]}
        return self._text.write(data)

    def deserialize(self, serialized_data: str) -> Any:
        return self._text.read(serialized_data)

    def name(self) -> str:
        return "toolkit_json"


def _write_time(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


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
    """

    def __init__(self, url: str, encryption: Encryption | None = None, *, may_migrate: bool = False) -> None:
        check_setting("the URL of durable runs", url, str)
        check_setting("encryption", encryption, Encryption, None)
        parsed = _parse_url(url)
        self.url: str = parsed.render_as_string(hide_password=True).replace("+psycopg", "")
        self.text: StoredText = StoredText(encryption)
        self.serializer: Serializer = _JsonSerializer(self.text)
        self.engine: sa.Engine = _make_engine(parsed)
        self._lock = threading.Lock()
        try:
            with self.raising_failures():
                prepare_tables(parsed, self.engine, may_migrate=may_migrate)
            with self.raising_failures():
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
    def raising_failures(self) -> Generator[None]:
        """Raise an error of ours where the database can't be reached.

        Raises:
            DatabaseUnavailableError: The database is away, full, or no database of ours.
            UnstorableValueError: It is there, and does not take a value.
        """
        try:
            yield
        except (DBAPIError, OverflowError, UnicodeEncodeError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            text = " ".join(str(cause).split())
            if is_refusal(error):
                raise UnstorableValueError(
                    "a value", f"the database does not take it ({text}): give another"
                ) from error
            raise DatabaseUnavailableError(self.url, text) from error
        except PoolTimeoutError as error:
            raise DatabaseUnavailableError(self.url, str(error)) from error
        except (sqlite3.Error, OSError) as error:
            raise DatabaseUnavailableError(self.url, str(error)) from error

    async def ask(self, work: Callable[[], _Returned]) -> _Returned:
        """Run a blocking function on a worker thread.

        Raises:
            DatabaseUnavailableError: The database is away.
            UnstorableValueError: It does not take a value.
        """
        with self.raising_failures():
            return await to_thread.run_sync(work)

    async def insist(self, work: Callable[[], _Returned]) -> _Returned:
        """Run a blocking function on a worker thread, again and again while the database is away or full.

        Nothing that a run has learned is lost by that. The work may have been done where its answer was lost.
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
        """Close all connections, those that threads still have when they return them."""
        self.client.destroy()
        event.listen(self.engine.pool, "checkin", _close_connection)
        self.engine.dispose()  # another pool takes its place, for readers that outlive the client


class DatabaseThread:
    """A daemon thread that works on the database in rounds, until it is stopped.

    Args:
        name: The part of the worker or client that it is.
        work: A round; returns the seconds until the next one, or None to wait for `wake`.
        again: The seconds after which a round that raised is tried again, whatever the database does.
    """

    def __init__(self, name: str, work: Callable[[], float | None], *, again: float = 0.5) -> None:
        self._name = name
        self._work = work
        self._again = again
        self._news = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run_rounds, name=f"toolkit durable {name}", daemon=True)

    @property
    def is_ending(self) -> bool:
        """True in the last round."""
        return self._ending.is_set()

    def start(self) -> None:
        """Begin with the first round."""
        self._thread.start()

    def wake(self) -> None:
        """Have a round at once."""
        if not self._news.is_set():
            self._news.set()

    def stop(self) -> None:
        """Have a last round, and wait at most five seconds for its end."""
        self._ending.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def ends_within(self, seconds: float) -> bool:
        """Wait inside of a round; return whether the thread is stopped meanwhile."""
        return self._ending.wait(seconds)

    def _run_rounds(self) -> None:
        pause: float | None = 0.0
        is_last = False
        while not is_last:
            self._news.wait(pause)
            self._news.clear()
            is_last = self.is_ending
            try:
                pause = self._work()
            except Exception as error:  # noqa: BLE001 - whatever a database does, runs go on, and it is tried again
                _logger.warning("the %s of durable runs failed, and is tried again: %s", self._name, error)
                self._ending.wait(self._again)
                pause = 0.0


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
            raise ConfigurationError(
                f"durable runs are stored in SQLite or Postgres, not {other!r}: give {_URL_SHAPES}"
            )


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
    limits = f"-c idle_in_transaction_session_timeout={_LOCK_SECONDS * 1000} -c tcp_user_timeout={_SEND_SECONDS * 1000}"
    try:
        engine = sa.create_engine(
            url,
            pool_size=_POOL_SIZE,
            max_overflow=_POOL_SIZE,
            pool_timeout=_BUSY_SECONDS,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={
                "connect_timeout": _CONNECT_SECONDS,
                "application_name": ENGINE_NAME,
                "options": limits,
            },
        )
    except NoSuchModuleError as error:
        raise ConfigurationError(f"Postgres needs psycopg: `pip install 'toolkit-sdk[durable]'` ({error})") from error
    engine.dialect.use_insertmanyvalues_wo_returning = True
    event.listen(engine, "do_executemany", _execute_each)
    return engine


def _execute_each(
    cursor: sa.engine.interfaces.DBAPICursor,
    statement: str,
    parameters: Sequence[Any],
    context: sa.engine.ExecutionContext,  # noqa: ARG001 - as SQLAlchemy calls it
) -> bool:
    """Execute a statement for each of its parameters, and not by psycopg's pipeline: that ends with a flush.

    Postgres stops its clock of an idle transaction at a flush, and a worker frozen behind it would never lose its
    locks. Insertions are not executed so: many rows of them are one statement.
    """
    for each in parameters:
        cursor.execute(statement, each)
    return True


def _close_connection(connection: object, record: ConnectionPoolEntry) -> None:
    """Close a connection that is returned, and have the pool make another one when it is asked."""
    if connection is not None:
        record.invalidate()


def _set_up_sqlite(connection: sqlite3.Connection, record: object) -> None:  # noqa: ARG001 - as SQLAlchemy calls it
    # A transaction that begins by reading could not be made a writing one beside another writer.
    connection.isolation_level = "IMMEDIATE"
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    connection.execute("PRAGMA foreign_keys = ON")
    write_ahead(connection, _BUSY_SECONDS)
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
