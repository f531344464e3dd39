"""A Restate server with workers for the tests of a module; a database of either kind, and a client of it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.durable.postgres import PostgresServer, start_postgres
from tests.durable.restate_server import RestateFleet
from toolkit.durable import DurableRuns

_ON_BOTH_BACKENDS = "tests.durable.test_runs_client"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have clients of a worker run on trio by default in one module alone: the worker is on asyncio in all of them."""
    for item in items:
        module: object = getattr(item, "module", None)
        name = getattr(module, "__name__", "")
        params: object = getattr(getattr(item, "callspec", None), "params", {})
        has_worker = name.startswith("tests.durable.") and hasattr(module, "worker_beside")
        if has_worker and name != _ON_BOTH_BACKENDS and isinstance(params, dict) and "trio" in params.values():
            item.add_marker("full")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestateFleet]:
    fleet = RestateFleet(tmp_path_factory.mktemp("restate"))
    yield fleet
    fleet.end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.make_database()


@pytest.fixture
async def runs(url: str) -> AsyncIterator[DurableRuns]:
    async with DurableRuns(url) as opened:
        yield opened
