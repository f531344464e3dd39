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

    async def ask(self, name: str, question: str) -> str:
        """Ask, and read to the end; or leave in the middle. Return the answer; empty where its end was not read."""
        leaves, answer = self._random.random() < 0.2, ""
        parameters = {"question": question} | ({"queue": "yes"} if self._random.random() < 0.2 else {})
        line = self._client.stream(
            "POST", f"{self._choose()}/ask/{name}", params=parameters, headers={"Idempotency-Key": question}
        )
        try:
            async with line as reply:
                async for text in reply.aiter_lines():
                    if leaves and text:
                        self.counts["left"] += 1
                        return ""
                    if text == "data: ended complete":
                        return answer
                    answer += text.removeprefix("data: ")
            self.counts["queued" if "queue" in parameters else "no end"] += 1
        except httpx.TransportError:
            self.counts["broken"] += 1
        return ""

    async def hold_conversation(self, name: str, questions: list[str]) -> None:
        """Ask questions two at a time, each by its id until its answer was read."""
        for first in range(0, len(questions), 2):
            async with anyio.create_task_group() as tasks:
                for question in questions[first : first + 2]:
                    tasks.start_soon(self.ask_until_answered, name, question)

    async def ask_until_answered(self, name: str, question: str) -> None:
        while not (answer := await self.ask(name, question)):
            self.counts["asked again"] += 1
            await anyio.sleep(0.05)
        assert answer.startswith("re q"), answer
        self.counts["answered"] += 1

    async def end_processes(self, ends: int, questions: int) -> None:
        """End a process, by each signal in turn, whenever an equal part of the answers was read; and start it again."""
        for number in range(ends):
            while self.counts["answered"] < questions * (number + 1) // (ends + 1):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            service = self.services[number // 2 % len(self.services)]
            kind = (signal.SIGTERM, signal.SIGKILL)[number % 2]
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
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(storm.end_processes, ends, talks * questions)
            for name, asked in names.items():
                tasks.start_soon(storm.hold_conversation, name, asked)
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


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_small_storm_loses_and_doubles_nothing(url: str, tmp_path: Path) -> None:
    await raise_storm(url, tmp_path / "log", talks=6, questions=4, ends=2, seed=1)


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_whole_storm_loses_and_doubles_nothing(url: str, tmp_path: Path) -> None:
    await raise_storm(url, tmp_path / "log", talks=200, questions=5, ends=12, seed=2)
