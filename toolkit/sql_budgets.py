"""Budgets in a database of SQLAlchemy's: each reservation is one transaction, which locks the row of its budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from toolkit.errors import BudgetStoreError
from toolkit.loop.budgets import Reservation, Spending, find_exceeded
from toolkit.loop.limits import UsageLimits
from toolkit.loop.outcome import UsageLimit
from toolkit.settings import Duration, to_seconds
from toolkit.sql_database import SqlDatabase

__all__ = ["SqlBudgets"]

_Returned = TypeVar("_Returned")
_VERSION = 1
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
        self._timeout = to_seconds(timeout, "the timeout of a store of budgets")
        self._database = SqlDatabase(
            database, "budgets", _versions, version=_VERSION, failure=BudgetStoreError, busy_seconds=self._timeout
        )

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
        self._database.close()

    async def _do_step(self, work: Callable[[sa.Connection], _Returned]) -> _Returned:
        return await self._database.ask(work, timeout=self._timeout, repeats=True)


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
