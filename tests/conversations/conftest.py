"""A store of each kind; those of servers are real."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conversations.redis_server import RedisServer, start_redis
from tests.durable.postgres import PostgresServer, start_postgres
from toolkit.conversations import ConversationStore, MemoryStore, RedisStore, SqlStore


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the stores of servers tested on asyncio by default: what they do is the same on both."""
    for item in items:
        if (
            item.nodeid.startswith("tests/conversations/")
            and "[trio-" in item.nodeid
            and item.get_closest_marker("real")
        ):
            item.add_marker("full")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    server = start_redis()
    yield server
    server.stop()


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.real),
        pytest.param("redis", marks=pytest.mark.real),
    ]
)
async def store(request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path) -> AsyncIterator[ConversationStore]:
    opened: ConversationStore
    match request.param:
        case "memory":
            opened = MemoryStore()
        case "sqlite":
            opened = SqlStore(f"sqlite:///{tmp_path / 'chats.db'}")
        case "postgres":
            opened = SqlStore(request.getfixturevalue("postgres").make_database())
        case _:
            if anyio_backend != "asyncio":
                pytest.skip("the client of Redis is made for asyncio")
            opened = RedisStore(request.getfixturevalue("redis_server").url, prefix=uuid4().hex)
    yield opened
    await opened.aclose()
