"""A storm: many questions to two processes over one store; clients leave, processes are stopped and killed."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import httpx
import pytest

from tests.conversations.redis_server import RedisServer
from tests.durable.postgres import PostgresServer
from toolkit.chat import validate_transcript
from toolkit.conversations import Conversations, ConversationStore, RedisStore, SqlStore

ROOT = Path(__file__).parents[2]


class Service:
    """One process of the service, which is started again after each end."""

    def __init__(self, url: str, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._url, self._log = url, log
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "uvicorn", "tests.conversations.service:app", "--port", str(self.port)]
        command += ["--timeout-graceful-shutdown", "1", "--log-level", "warning"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, "STORE": self._url}, cwd=ROOT, stdout=log, stderr=log
            )

    async def wait_for_answer(self) -> None:
        with anyio.fail_after(120):
            while True:
                try:
                    with socket.create_connection(("127.0.0.1", self.port), timeout=5):
                        return
                except OSError:
                    assert self.process.poll() is None, self._log.read_text()
                    await anyio.sleep(0.1)

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(60)


class Storm:
    """The clients, each of which asks its questions until the transcript has them."""

    def __init__(self, services: list[Service], seed: int) -> None:
        self.services = services
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._client = httpx.AsyncClient(timeout=httpx.Timeout(90, connect=5), limits=httpx.Limits(max_connections=40))

    async def aclose(self) -> None:
        await self._client.aclose()

    def _choose(self) -> str:
        return f"http://127.0.0.1:{self._random.choice(self.services).port}"

    async def ask(self, name: str, question: str | None) -> bool:
        """Ask, and read to the end; or leave in the middle. Return whether the end was read."""
        leaves = question is not None and self._random.random() < 0.2
        parameters = {} if question is None else {"question": question}
        try:
            async with self._client.stream("POST", f"{self._choose()}/ask/{name}", params=parameters) as reply:
                async for line in reply.aiter_lines():
                    if leaves and line:
                        self.counts["left"] += 1
                        return False
                    if line == "data: ended":
                        return True
        except httpx.TransportError:
            self.counts["broken"] += 1
        return False

    async def read_questions(self, name: str) -> list[str]:
        while True:
            try:
                reply = await self._client.get(f"{self._choose()}/{name}")
                if reply.status_code == 200:
                    return [each["content"] for each in reply.json() if each["role"] == "user"]
            except httpx.TransportError:
                await anyio.sleep(0.1)

    async def hold_conversation(self, name: str, questions: list[str]) -> None:
        """Ask questions two at a time; what a broken line left open is asked again only where it is not stored."""
        for first in range(0, len(questions), 2):
            async with anyio.create_task_group() as tasks:
                for question in questions[first : first + 2]:
                    tasks.start_soon(self.ask_until_stored, name, question)

    async def ask_until_stored(self, name: str, question: str) -> None:
        while not await self.ask(name, question):
            await anyio.sleep(4 * 0.05 if self._random.random() < 0.5 else 0)
            with anyio.move_on_after(8):  # a question on its way may still come in until its line is noticed
                while question not in await self.read_questions(name):  # noqa: ASYNC110
                    await anyio.sleep(0.5)
                return
            self.counts["asked again"] += 1

    async def end_processes(self, ends: int, until: anyio.Event) -> None:
        for number in range(ends):
            with anyio.move_on_after(self._random.uniform(1, 2)):
                await until.wait()
                return
            service = self.services[number % len(self.services)]
            kind = (signal.SIGTERM, signal.SIGKILL)[number // 2 % 2]
            await anyio.to_thread.run_sync(service.end, kind)
            self.counts[kind.name] += 1
            service.start()
            await service.wait_for_answer()


async def raise_storm(url: str, log: Path, *, talks: int, questions: int, ends: int, seed: int) -> None:
    storm = Storm([Service(url, log), Service(url, log)], seed)
    names = {f"talk{number}": [f"q{number}.{place}" for place in range(questions)] for number in range(talks)}
    try:
        for service in storm.services:
            await service.wait_for_answer()
        done = anyio.Event()
        async with anyio.create_task_group() as outer:
            outer.start_soon(storm.end_processes, ends, done)
            async with anyio.create_task_group() as tasks:
                for name, asked in names.items():
                    tasks.start_soon(storm.hold_conversation, name, asked)
            done.set()
    finally:
        await storm.aclose()
        for service in storm.services:
            service.process.kill()
            service.process.wait()
    store: ConversationStore = RedisStore(url) if url.startswith("redis") else SqlStore(url)
    began = time.monotonic()
    for name, asked in names.items():
        found = await Conversations(store).get(name)
        validate_transcript(found.messages)
        said = [each.text for each in found.messages if each.role == "user"]
        assert Counter(said) == Counter(asked), name
        answers = [each.text for each in found.messages if each.role == "assistant" and each.text]
        assert len(set(answers)) == len(answers), name
        assert {each.removeprefix("re ") for each in answers} <= set(asked), name
    print(dict(storm.counts), f"{talks} conversations read in {time.monotonic() - began:.1f} s")
    await store.aclose()


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        database: PostgresServer = request.getfixturevalue("postgres")
        return database.make_database()
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_small_storm_loses_and_doubles_nothing(url: str, tmp_path: Path) -> None:
    await raise_storm(url, tmp_path / "log", talks=4, questions=4, ends=1, seed=1)


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_whole_storm_loses_and_doubles_nothing(url: str, tmp_path: Path) -> None:
    await raise_storm(url, tmp_path / "log", talks=200, questions=5, ends=12, seed=2)
