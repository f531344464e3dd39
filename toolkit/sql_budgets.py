"""Budgets in a database of SQLAlchemy's: each reservation is one transaction, which locks the row of its budget."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import sqlalchemy as sa
from anyio import to_thread
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from toolkit.errors import BudgetStoreError, ConfigurationError
from toolkit.loop.budgets import Reservation, Spending, find_exceeded
from toolkit.loop.limits import UsageLimits
from toolkit.loop.outcome import UsageLimit
from toolkit.private_files import make_private
from toolkit.redaction import without_keys
from toolkit.settings import Duration, check_setting, to_seconds

__all__ = ["SqlBudgets"]

_Returned = TypeVar("_Returned")
_VERSION = 1
_TRIES = 5
_FORGOTTEN = 7 * 86_400.0
_schema = sa.MetaData()
_versions = sa.Table("toolkit_budget_versions", _schema, sa.Column("version", sa.Integer, primary_key=True))
_AMOUNTS = (
    ("requests", sa.BigInteger),
    ("input_tokens", sa.BigInteger),
    ("output_tokens", sa.BigInteger),
    ("cost", sa.Double),
)
_budgets = sa.Table(
    "toolkit_budgets",
    _schema,
    sa.Column("budget", sa.String(500), primary_key=True),
    sa.Column("changes", sa.BigInteger, nullable=False),
    *[sa.Column(name, kind, nullable=False) for name, kind in _AMOUNTS],
)
_reservations = sa.Table(
    "toolkit_budget_reservations",
    _schema,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("budget", sa.String(500), nullable=False),
    sa.Column("lapses", sa.Double, nullable=False),
    *[sa.Column(name, kind, nullable=False) for name, kind in _AMOUNTS],
    sa.Index("toolkit_budget_reservations_of_budget", "budget"),
)


class SqlBudgets:
    """A store of budgets in a database, which any number of processes share.

    ::

        store = SqlBudgets("postgresql://shop@localhost/shop")  # or "sqlite:///budgets.db"
        budget = Budget(UsageLimits(cost=2.0), per="user", window="day", store=store)

    The names of its tables begin with ``toolkit_budget``; they are made at the first use. Each step is one short
    transaction, in a worker thread. `close` ends the connections.

    Args:
        database: Its URL as SQLAlchemy has it, or an engine of the application's.
        timeout: The longest that a step may take; then it raises a `BudgetStoreError`.

    Raises:
        ConfigurationError: The URL can't be read, or its driver is not installed.
    """

    def __init__(self, database: str | sa.Engine, *, timeout: Duration = 10.0) -> None:
        check_setting("the database of budgets", database, str, sa.Engine)
        self._timeout = to_seconds(timeout, "the timeout of a store of budgets")
        self._owns_engine = isinstance(database, str)
        self._engine = _make_engine(database, self._timeout) if isinstance(database, str) else database
        self._place = self._engine.url.render_as_string(hide_password=True)
        self._lock = threading.Lock()
        self._is_ready = False

    async def reserve(self, reservation: Reservation, limits: UsageLimits) -> UsageLimit | None:
        """Store a reservation, or return the limit that forbids it."""
        return await self._do_step(lambda connection: _reserve_amount(connection, reservation, limits))

    async def settle(self, reservation: Reservation, spent: Spending) -> None:
        """Put what was spent in the place of a reservation."""
        await self._do_step(lambda connection: _settle_amount(connection, reservation, spent))

    async def read(self, budget: str) -> Spending:
        """Return what is spent."""
        return await self._do_step(lambda connection: _read_spending(connection, budget))

    def close(self) -> None:
        """End its connections; an engine of the application's stays open."""
        if self._owns_engine:
            self._engine.dispose()

    async def _do_step(self, work: Callable[[sa.Connection], _Returned]) -> _Returned:
        """Do a step in a transaction, in a worker thread and within the time.

        Raises:
            BudgetStoreError: The database is down, slow, full or of another version.
        """
        try:
            with anyio.fail_after(self._timeout):
                return await to_thread.run_sync(self._try_step, work, abandon_on_cancel=True)
        except TimeoutError:
            raise BudgetStoreError(self._place, f"no answer came in {self._timeout:g} s") from None
        except SQLAlchemyError as error:
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise BudgetStoreError(self._place, without_keys(f"{type(reason).__name__}: {reason}")) from error

    def _try_step(self, work: Callable[[sa.Connection], _Returned]) -> _Returned:
        """Do a step again where another process was in the way, or a connection was lost; each may be done twice."""
        ends = time.monotonic() + self._timeout
        for attempt in range(_TRIES):
            try:
                if not self._is_ready:
                    self._make_tables()
                with self._engine.begin() as connection:
                    return work(connection)
            except DBAPIError:
                if attempt == _TRIES - 1 or time.monotonic() > ends:
                    raise
                time.sleep(0.02 * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def _make_tables(self) -> None:
        """Make the tables where they are not there, and check their version.

        Raises:
            BudgetStoreError: They are of another version.
        """
        with self._lock, self._engine.begin() as connection:
            _schema.create_all(connection)
            version = connection.scalar(sa.select(_versions.c.version))
            if version is None:
                connection.execute(_versions.insert().values(version=_VERSION))
            elif version != _VERSION:
                raise BudgetStoreError(
                    self._place,
                    f"its tables are of version {version}, and this library reads version {_VERSION}: use the library "
                    "that made them, or another database",
                )
            self._is_ready = True


def _make_engine(url: str, timeout: float) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise ConfigurationError(
            "the database of budgets can't be read: give a URL such as 'sqlite:///budgets.db' or "
            "'postgresql://user:password@host/database'"
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        try:
            return sa.create_engine(parsed, pool_pre_ping=True, pool_timeout=timeout, hide_parameters=True)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise ConfigurationError(f"the driver of the database of budgets is not installed: {error}") from error
    if parsed.database in (None, "", ":memory:"):
        raise ConfigurationError("budgets in SQLite need a file, as in 'sqlite:///budgets.db'")
    try:
        make_private(Path(str(parsed.database)), "-wal", "-shm", "-journal")
    except OSError as error:
        raise ConfigurationError(f"the file of budgets can't be made: {error}") from error
    engine = sa.create_engine(parsed, pool_timeout=timeout, hide_parameters=True)

    def set_up(connection: sqlite3.Connection, record: object) -> None:  # noqa: ARG001 - as SQLAlchemy calls it
        # A transaction that begins by reading could not be made a writing one beside another writer.
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout = {int(timeout * 1000)}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    event.listen(engine, "connect", set_up)
    return engine


def _reserve_amount(connection: sa.Connection, reservation: Reservation, limits: UsageLimits) -> UsageLimit | None:
    budget, amount = reservation.budget, reservation.amount
    # The first statement writes, so that it takes the lock of the row: what is read after it stays true.
    touch = _budgets.update().where(_budgets.c.budget == budget).values(changes=_budgets.c.changes + 1)
    if connection.execute(touch).rowcount == 0:
        nothing = {name: 0 for name, _ in _AMOUNTS}
        connection.execute(_budgets.insert().values(budget=budget, changes=1, **nothing))
        connection.execute(_reservations.delete().where(_reservations.c.lapses < reservation.begun - _FORGOTTEN))
    sums = [sa.func.coalesce(sa.func.sum(_reservations.c[name]), 0).label(name) for name, _ in _AMOUNTS]
    sums.append(sa.func.sum(sa.case((_reservations.c.id == reservation.id, 1), else_=0)).label("own"))
    waiting = sa.select(*sums).where(_reservations.c.budget == budget, _reservations.c.lapses > reservation.begun)
    reserved = connection.execute(waiting).one()
    if reserved.own:
        return None  # by a try whose answer was lost
    spent = _read_spending(connection, budget) + Spending(
        requests=int(reserved.requests),
        input_tokens=int(reserved.input_tokens),
        output_tokens=int(reserved.output_tokens),
        cost=float(reserved.cost),
    )
    exceeded = find_exceeded(limits, spent, amount, budget)
    if exceeded is None:
        values = {name: getattr(amount, name) for name, _ in _AMOUNTS}
        row = _reservations.insert().values(id=reservation.id, budget=budget, lapses=reservation.lapses, **values)
        connection.execute(row)
    return exceeded


def _settle_amount(connection: sa.Connection, reservation: Reservation, spent: Spending) -> None:
    if connection.execute(_reservations.delete().where(_reservations.c.id == reservation.id)).rowcount == 0:
        return  # settled already: by a try whose answer was lost
    more = {name: _budgets.c[name] + getattr(spent, name) for name, _ in _AMOUNTS}
    connection.execute(_budgets.update().where(_budgets.c.budget == reservation.budget).values(**more))


def _read_spending(connection: sa.Connection, budget: str) -> Spending:
    columns = [_budgets.c[name] for name, _ in _AMOUNTS]
    row = connection.execute(sa.select(*columns).where(_budgets.c.budget == budget)).one_or_none()
    if row is None:
        return Spending()
    return Spending(
        requests=row.requests, input_tokens=row.input_tokens, output_tokens=row.output_tokens, cost=row.cost
    )
