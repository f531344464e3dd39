"""Budgets in a database hold across processes, and a database that can't be used is named with its problem."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa
from anyio import to_thread
from sqlalchemy import event
from sqlalchemy.pool import Pool

from tests.durable.postgres import PostgresServer, start_postgres
from tests.forked import fork_process
from toolkit import AssistantMessage, ConfigurationError, ToolLoopConfig, ToolRegistry, Usage, UsageLimits, tool_loop
from toolkit.chat import ChatResponse
from toolkit.endings import Complete, UsageLimit
from toolkit.errors import BudgetStoreError
from toolkit.policies import Budget, Reservation, Spending
from toolkit.sql_budgets import SqlBudgets
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'budgets.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.make_database()


async def spend(budget: Budget, user: str = "ada", tokens: int = 15) -> object:
    response = ChatResponse(message=AssistantMessage("Yes."), usage=Usage(output_tokens=tokens, cost=0.5))
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(budget,), metadata={"user": user})
    with anyio.fail_after(120):
        return (await tool_loop(ScriptedProvider([response]), ToolRegistry(), "Hello?", config=config)).reason


def make_reservation(tokens: int, begun: float = 0.0) -> Reservation:
    return Reservation(budget="all", amount=Spending(output_tokens=tokens), begun=begun, lapses=begun + 60)


async def test_what_one_store_settles_another_one_finds(url: str) -> None:
    limits = UsageLimits(requests=2, cost=9.0)
    for _ in range(2):
        store = SqlBudgets(url)
        assert await spend(Budget(limits, per="user", store=store)) == Complete()
        store.close()
    store = SqlBudgets(url)
    budget = Budget(limits, per="user", store=store)
    assert await spend(budget) == UsageLimit("requests", 2, 2, budget="user ada")
    assert await spend(budget, "bob") == Complete()
    assert await budget.read_spent("ada") == Spending(requests=2, output_tokens=30, cost=1.0)
    store.close()


async def test_a_reservation_counts_until_it_is_settled_or_lapses_and_is_settled_once(url: str) -> None:
    store, limits = SqlBudgets(url), UsageLimits(output_tokens=100)
    first = make_reservation(90)
    assert await store.reserve(first, limits) is None
    assert await store.reserve(first, limits) is None  # again, as after an answer that was lost
    refused = UsageLimit("output_tokens", 100, 90, budget="all")
    assert await store.reserve(make_reservation(20), limits) == refused
    late = make_reservation(20, begun=61.0)
    assert await store.reserve(late, limits) is None
    for _ in range(2):
        await store.settle(first, Spending(output_tokens=40))
    await store.settle(late, Spending(output_tokens=5))
    assert await store.read("all") == Spending(output_tokens=45)
    store.close()


async def test_an_engine_of_the_application_is_used_and_stays_open(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    store = SqlBudgets(engine)
    assert await spend(Budget(UsageLimits(requests=2), store=store)) == Complete()
    store.close()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("select requests from toolkit_budgets")) == 1
    engine.dispose()


def spend_all(url: str, most: int) -> int:
    """Spend from one budget until nothing is left, in a process of its own, and write how often that could be done."""

    async def main() -> int:
        limits = UsageLimits(requests=most, output_tokens=most * 20)
        budget = Budget(limits, store=SqlBudgets(url, timeout=60), reserve=Usage(output_tokens=20))
        return sum([await spend(budget) == Complete() for _ in range(4)])

    print(anyio.run(main))
    return 0


@pytest.mark.parametrize(
    "processes", [pytest.param(4, marks=pytest.mark.real), pytest.param(50, marks=pytest.mark.full)]
)
def test_many_processes_never_spend_more_than_there_is(url: str, processes: int, tmp_path: Path) -> None:
    most = processes * 2  # of twice as many that are tried
    logs = [tmp_path / f"{number}.log" for number in range(processes)]
    running = [fork_process(spend_all, url, most, log=log) for log in logs]
    for process in running:
        process.join(300)
    assert [process.exitcode for process in running] == [0] * processes, [log.read_text() for log in logs][:2]
    assert sum([int(log.with_suffix(".out").read_text()) for log in logs]) == most
    store = SqlBudgets(url)
    spent = anyio.run(store.read, "all")
    store.close()
    assert spent == Spending(requests=most, output_tokens=most * 15, cost=most * 0.5)


# a database that can't be used


async def test_a_database_that_is_down_is_told_without_its_password(anyio_backend: str) -> None:
    store = SqlBudgets("postgresql://shop:hunter22@127.0.0.1:1/shop", timeout=5)
    with pytest.raises(BudgetStoreError, match=r"the budgets in postgresql\+psycopg://shop:\*\*\*@127.0.0.1:1/shop"):
        await spend(Budget(UsageLimits(requests=2), store=store))
    store.close()


async def test_a_database_that_is_slow_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    path = tmp_path / "budgets.db"
    store = SqlBudgets(f"sqlite:///{path}", timeout=0.3)
    await store.read("all")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with anyio.fail_after(120):
        with pytest.raises(BudgetStoreError, match=r"no answer came in 0.3 s|database is locked"):
            await store.reserve(make_reservation(1), UsageLimits(requests=1))
    other.execute("rollback")
    other.close()
    assert (await store.read("all")).requests == 0
    store.close()


async def test_a_step_that_was_given_up_closes_its_connection_when_the_store_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "budgets.db"
    store = SqlBudgets(f"sqlite:///{path}", timeout=0.3)
    await store.read("all")
    opened: set[int] = set()
    all_closed = threading.Event()

    def note_open(connection: object, *_: object) -> None:
        opened.add(id(connection))

    def note_close(connection: object, *_: object) -> None:
        opened.discard(id(connection))
        if not opened:
            all_closed.set()

    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    event.listen(Pool, "checkout", note_open)
    event.listen(Pool, "close", note_close)
    try:
        with anyio.fail_after(120), pytest.raises(BudgetStoreError):
            await store.reserve(make_reservation(1), UsageLimits(requests=1))
        assert opened
        store.close()  # while the step still waits for the lock
        other.execute("rollback")
        assert await to_thread.run_sync(all_closed.wait, 60)
    finally:
        event.remove(Pool, "checkout", note_open)
        event.remove(Pool, "close", note_close)
        other.close()


async def test_a_database_that_is_full_is_told(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'budgets.db'}")
    store = SqlBudgets(engine)
    await store.read("all")

    def bound(connection: sqlite3.Connection, record: object) -> None:
        del record
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages}")

    event.listen(engine, "connect", bound)

    engine.dispose()
    with pytest.raises(BudgetStoreError, match="database or disk is full"):
        for number in range(1000):
            reservation = Reservation(budget=f"{number}" * 400, amount=Spending(requests=1), begun=0.0, lapses=60.0)
            await store.reserve(reservation, UsageLimits(requests=1))
    engine.dispose()


async def test_tables_of_another_version_are_left_alone(tmp_path: Path) -> None:
    store = SqlBudgets(f"sqlite:///{tmp_path / 'budgets.db'}")
    await store.read("all")
    store.close()
    with sqlite3.connect(tmp_path / "budgets.db") as other:
        other.execute("update toolkit_budget_versions set version = 9")
    other.close()
    again = SqlBudgets(f"sqlite:///{tmp_path / 'budgets.db'}")
    with pytest.raises(BudgetStoreError, match=r"its tables are of version 9, and this library reads version 1: use"):
        await spend(Budget(UsageLimits(requests=2), store=again))
    again.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("budgets.db", "can't be read: give a URL such as 'sqlite:///budgets.db'"),
        ("sqlite://", "need a file"),
        ("sqlite:////nowhere/at/all/x.db", "can't be made"),
        ("mongodb://localhost/shop", "is not installed"),
    ],
)
def test_a_url_that_can_not_be_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        SqlBudgets(url)
