"""A database of SQLAlchemy's that many processes share: its connections, the version of its tables, and its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import anyio
import sqlalchemy as sa
from anyio import to_thread
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from toolkit.errors import ConfigurationError
from toolkit.private_files import make_private, write_ahead
from toolkit.redaction import without_keys
from toolkit.settings import check_setting

_Returned = TypeVar("_Returned")
_TRIES = 5
_CONNECT_SECONDS = 5
_POOL_SIZE = 20
_SQLITE_POOL_SIZE = 4  # more would only wait for one another's locks


class SqlDatabase:
    """A database with tables of one kind, which are made at the first step.

    Args:
        database: Its URL for SQLAlchemy, or an engine of the application's.
        subject: The word for the stored things, in errors.
        versions: The table with the version of the tables; all tables of its metadata are made.
        version: The version that this library reads.
        failure: Makes the error of a step from the address, without a password, and the reason.
        busy_seconds: Seconds that a step waits for the lock of another one.
    """

    def __init__(
        self,
        database: str | sa.Engine,
        subject: str,
        versions: sa.Table,
        *,
        version: int,
        failure: Callable[[str, str], Exception],
        busy_seconds: float,
    ) -> None:
        check_setting(f"the database of {subject}", database, str, sa.Engine)
        self._is_own = isinstance(database, str)
        self.engine: sa.Engine = open_engine(database, subject, busy_seconds) if isinstance(database, str) else database
        self._versions = versions
        self._version = version
        self._failure = failure
        self._place = self.engine.url.render_as_string(hide_password=True)
        self._lock = threading.Lock()
        self._is_ready = False

    @property
    def now(self) -> sa.ColumnElement[Any]:
        """The time by the database's clock, in seconds since 1970."""
        return database_now(self.engine)

    async def ask(
        self, work: Callable[[sa.Connection], _Returned], *, timeout: float | None = None, repeats: bool = False
    ) -> _Returned:
        """Do a step in a transaction, in a worker thread, within a time in seconds.

        With `repeats` it is done again if another process was in the way, or a connection was lost: perhaps twice.
        """
        try:
            with anyio.fail_after(timeout):
                ends = time.monotonic() + timeout if timeout is not None else None
                return await to_thread.run_sync(
                    self._do_step, work, _TRIES if repeats else 1, ends, abandon_on_cancel=timeout is not None
                )
        except TimeoutError:
            raise self._failure(self._place, f"no answer came in {timeout:g} s") from None
        except (SQLAlchemyError, OSError) as error:
            reason = error.orig if isinstance(error, DBAPIError) else error
            text = " ".join(f"{type(reason).__name__}: {reason}".split())
            raise self._failure(self._place, without_keys(text)) from error

    def _do_step(self, work: Callable[[sa.Connection], _Returned], tries: int, ends: float | None) -> _Returned:
        if not self._is_ready:
            with self._lock:
                if not self._is_ready:
                    self._repeat_step(self._make_tables, _TRIES, ends)
                    self._is_ready = True
        return self._repeat_step(work, tries, ends)

    def _repeat_step(self, work: Callable[[sa.Connection], _Returned], tries: int, ends: float | None) -> _Returned:
        for attempt in range(tries):
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except DBAPIError:
                if attempt == tries - 1 or (ends is not None and time.monotonic() > ends):
                    raise
                time.sleep(0.02 * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def _make_tables(self, connection: sa.Connection) -> None:
        """Make missing tables, and check their version."""
        self._versions.metadata.create_all(connection)
        version = connection.scalar(sa.select(self._versions.c.version))
        if version is None:
            connection.execute(self._versions.insert().values(version=self._version))
        elif version != self._version:
            raise self._failure(
                self._place,
                f"its tables are of version {version}, and this library reads version {self._version}: use the library "
                "that made them, or another database",
            )

    def close(self) -> None:
        """End the connections; an engine of the application's stays open."""
        if self._is_own:
            close_engine(self.engine)


def close_engine(engine: sa.Engine) -> None:
    """Close the connections of an engine; those that threads still use when they are returned."""
    event.listen(engine.pool, "checkin", _close_connection)
    engine.dispose()  # a new pool replaces it, for readers that outlive its owner


def _close_connection(connection: object, record: ConnectionPoolEntry) -> None:
    """Close a returned connection; the pool opens another one when needed."""
    if connection is not None:
        record.invalidate()


def database_now(engine: sa.Engine) -> sa.ColumnElement[Any]:
    """Return the time by the database's clock in seconds since 1970: the one clock that all processes share."""
    match engine.dialect.name:
        case "postgresql":
            return sa.extract("epoch", sa.func.clock_timestamp())
        case "sqlite":
            return (sa.func.julianday("now") - 2440587.5) * 86400.0
        case "mysql" | "mariadb":
            return sa.func.unix_timestamp(sa.func.now(6))
        case _:
            return sa.literal(time.time())


def open_engine(
    text: str,
    subject: str,
    busy_seconds: float,
    *,
    kinds: Collection[str] = (),
    makes_folder: bool = False,
    **arguments: Any,
) -> sa.Engine:
    """Return an engine for the URL of a database, which may be one of some kinds; arguments are those of a server."""
    examples = f"'sqlite:///{subject.rsplit(maxsplit=1)[-1]}.db' or 'postgresql://user:password@host/database'"
    try:
        url = sa.make_url(text)
    except ArgumentError:
        raise ConfigurationError(f"the database of {subject} can't be read: give a URL such as {examples}") from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if kinds and url.get_backend_name() not in kinds:
        known = " or ".join(kinds)
        raise ConfigurationError(f"{subject} are stored in {known}, not in {url.get_backend_name()}: give {examples}")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigurationError(
            f"{subject} in SQLite need a file, as in {examples}: in memory each connection has its own"
        )
    try:
        if makes_folder and url.get_backend_name() == "sqlite":
            Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        return _make_engine(url, busy_seconds, arguments)
    except (NoSuchModuleError, ImportError) as error:
        raise ConfigurationError(f"the driver of the database of {subject} is not installed: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"the file of {subject} can't be made: {error}") from error


def _make_engine(url: sa.URL, busy_seconds: float, arguments: dict[str, Any]) -> sa.Engine:
    """Return an engine, which connects at its first use; a step waits so long for a connection, and for a lock."""
    if url.get_backend_name() != "sqlite":
        if url.drivername == "postgresql+psycopg":
            arguments["connect_timeout"] = _CONNECT_SECONDS
        return sa.create_engine(
            url,
            pool_size=_POOL_SIZE,
            max_overflow=_POOL_SIZE,
            pool_pre_ping=True,
            pool_timeout=busy_seconds,
            hide_parameters=True,
            connect_args=arguments,
        )
    make_private(Path(str(url.database)), "-wal", "-shm", "-journal")
    engine = sa.create_engine(
        url, pool_size=_SQLITE_POOL_SIZE, max_overflow=0, pool_timeout=busy_seconds, hide_parameters=True
    )

    def set_up(connection: Any, record: object) -> None:  # noqa: ARG001 - as SQLAlchemy calls it
        # A transaction that begins by reading could not be made a writing one beside another writer.
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout = {int(busy_seconds * 1000)}")
        connection.execute("PRAGMA foreign_keys = ON")
        write_ahead(connection, busy_seconds)
        connection.execute("PRAGMA synchronous = NORMAL")

    event.listen(engine, "connect", set_up)
    return engine
