"""Connections, clients and event loops end with what they belong to, and live as long as it does."""

import asyncio
import gc
import socket
import ssl
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from anthropic import AsyncAnthropic
from anyio.lowlevel import current_token
from openai import AsyncOpenAI

from tests.providers.loopback import Answer, Hang, Server, completion, serving
from toolkit import ChatRequest, ToolCall, ToolRegistry, UserMessage, tool, tool_loop, tool_loop_sync
from toolkit.errors import ProviderTimeoutError
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.runtime.backend import LoopLocal
from toolkit.testing import ScriptedProvider

RUNS = 4

RESPONSE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}],
}
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
}
CONTENT = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]}

ANSWERS = {"openai": completion(), "responses": RESPONSE, "anthropic": MESSAGE, "google": CONTENT}

each_vendor = pytest.mark.parametrize("vendor", ANSWERS)
both_backends = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def make_provider(
    vendor: str, server: Server, *, max_connections: int = 1000
) -> OpenAIProvider | OpenAIResponsesProvider | AnthropicProvider | GoogleProvider:
    if vendor == "openai":
        return OpenAIProvider("m", base_url=server.url, max_connections=max_connections)
    if vendor == "responses":
        return OpenAIResponsesProvider("m", base_url=server.url, max_connections=max_connections)
    kind = AnthropicProvider if vendor == "anthropic" else GoogleProvider
    return kind("m", base_url=server.root, max_connections=max_connections)


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def count_living(*kinds: type) -> int:
    """The objects of these classes that nothing has collected."""
    gc.collect()
    return sum(isinstance(thing, kinds) for thing in gc.get_objects())


CLIENTS = (AsyncOpenAI, AsyncAnthropic, httpx2.AsyncClient)


def wait_for_descriptors(most: int) -> None:
    """Wait until no more are open: the server closes its ends in threads of its own."""
    ended = threading.Event()
    for _ in range(200):
        if count_descriptors() <= most:
            return
        ended.wait(0.01)
    raise AssertionError(f"{count_descriptors()} descriptors, more than {most}")


@each_vendor
def test_sync_runs_share_one_loop_one_client_and_one_connection(vendor: str) -> None:
    with serving(Answer(ANSWERS[vendor])) as server:
        provider = make_provider(vendor, server)
        assert tool_loop_sync(provider, ToolRegistry([]), "hi").text == "Hello."
        before = count_living(asyncio.AbstractEventLoop), count_living(*CLIENTS), count_descriptors()
        for _ in range(RUNS):
            tool_loop_sync(provider, ToolRegistry([]), "hi")
        after = count_living(asyncio.AbstractEventLoop), count_living(*CLIENTS), count_descriptors()
        assert all(now <= then for now, then in zip(after, before, strict=True))  # others may have gone meanwhile
        assert len(server.connections) == 1


def test_sync_runs_of_threads_that_end_share_connections_too() -> None:
    with serving(Answer(completion())) as server:
        provider = OpenAIProvider("m", base_url=server.url)
        for _ in range(RUNS):
            thread = threading.Thread(target=tool_loop_sync, args=(provider, ToolRegistry([]), "hi"))
            thread.start()
            thread.join()
        assert len(server.requests) == RUNS
        assert len(server.connections) == 1


@both_backends
@each_vendor
def test_a_provider_that_is_made_and_closed_for_each_run_leaves_nothing_in_a_long_loop(
    vendor: str, backend: str
) -> None:
    async def ask(server: Server) -> None:
        async with make_provider(vendor, server) as provider:
            assert (await tool_loop(provider, ToolRegistry([]), "hi")).text == "Hello."

    check_long_loop(ask, ANSWERS[vendor], backend)


@both_backends
def test_a_provider_that_nothing_refers_to_closes_its_connections_in_their_loop(backend: str) -> None:
    async def ask(server: Server) -> None:
        await tool_loop(OpenAIProvider("m", base_url=server.url), ToolRegistry([]), "hi")
        gc.collect()

    check_long_loop(ask, completion(), backend)


def check_long_loop(ask: Callable[[Server], Awaitable[None]], answer: Any, backend: str) -> None:
    """Ask many times in one loop, and check that no more is open and alive than after the first time."""

    async def main() -> None:
        await ask(server)
        descriptors, clients = count_descriptors(), count_living(*CLIENTS)
        for _ in range(RUNS):
            await ask(server)
        await anyio.to_thread.run_sync(wait_for_descriptors, descriptors + 1)
        assert count_living(*CLIENTS) <= clients

    with serving(Answer(answer)) as server:
        anyio.run(main, backend=backend)


@both_backends
@each_vendor
def test_loops_that_end_take_the_connections_of_a_shared_provider_with_them(vendor: str, backend: str) -> None:
    async def ask() -> None:
        await provider.generate(ChatRequest(messages=[UserMessage("hi")]))

    with serving(Answer(ANSWERS[vendor])) as server:
        provider = make_provider(vendor, server)
        anyio.run(ask, backend=backend)
        descriptors, clients = count_descriptors(), count_living(*CLIENTS)
        for _ in range(RUNS):
            anyio.run(ask, backend=backend)
        wait_for_descriptors(descriptors + 2)
        assert count_living(*CLIENTS) == clients
        assert len(server.connections) == RUNS + 1


@both_backends
def test_an_event_loop_that_ran_tools_in_threads_is_collected_when_it_has_ended(backend: str) -> None:
    loops: list[weakref.ref[object]] = []

    async def main() -> None:
        loops.append(weakref.ref(current_token().native_token))
        provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "3"])
        await tool_loop(provider, ToolRegistry([add]), "1 + 2?")

    for _ in range(10):
        anyio.run(main, backend=backend)
    ended = threading.Event()
    for _ in range(100):  # the threads end by themselves
        gc.collect()
        if all(loop() is None for loop in loops):
            return
        ended.wait(0.01)
    raise AssertionError([loop for loop in loops if loop() is not None])


def test_an_event_loop_that_is_closed_without_its_end_is_forgotten_when_the_next_one_begins() -> None:
    locks = LoopLocal(anyio.Lock)

    async def main() -> None:
        locks.get()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    reference = weakref.ref(loop)
    del loop
    anyio.run(main)
    gc.collect()
    assert reference() is None


def test_the_certificates_are_read_once_for_all_clients() -> None:
    with serving(Answer(completion())) as server:
        before = count_living(ssl.SSLContext)
        for _ in range(3):
            tool_loop_sync(OpenAIProvider("m", base_url=server.url), ToolRegistry([]), "hi")
        assert count_living(ssl.SSLContext) - before <= 1


# whose fault a timeout is


REQUEST = ChatRequest(messages=[UserMessage("hi")])


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port that answers nobody: as many wait to be accepted as may."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        port: int = listening.getsockname()[1]
        yield port


@pytest.mark.anyio
@each_vendor
async def test_a_timeout_while_all_connections_are_in_use_says_so(vendor: str) -> None:
    hang = Hang()
    with serving(hang, Answer(ANSWERS[vendor])) as server:
        async with make_provider(vendor, server, max_connections=1) as provider, anyio.create_task_group() as tasks:
            tasks.start_soon(provider.generate, REQUEST)
            await anyio.to_thread.run_sync(hang.has_come.wait)
            with pytest.raises(ProviderTimeoutError, match=r"became free within 0.05 s: all that max_connections"):
                await provider.generate(replace(REQUEST, timeout=0.05))
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@each_vendor
async def test_a_timeout_while_a_connection_is_made_says_so(vendor: str, full_port: int) -> None:
    server = Server(f"http://127.0.0.1:{full_port}/v1")
    async with make_provider(vendor, server) as provider:
        with pytest.raises(ProviderTimeoutError, match=r"no connection to .* within 0.1 s: is the server running"):
            await provider.generate(replace(REQUEST, timeout=0.1))


@pytest.mark.anyio
async def test_a_timeout_that_a_busy_process_noticed_late_says_so_and_asks_to_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hang = Hang()
    with serving(hang) as server:
        async with OpenAIProvider("m", base_url=server.url) as provider, anyio.create_task_group() as tasks:

            async def hold_up() -> None:
                await anyio.to_thread.run_sync(hang.has_come.wait)
                until = anyio.current_time() + 1.0
                while anyio.current_time() < until:
                    pass

            tasks.start_soon(hold_up)
            with pytest.raises(ProviderTimeoutError, match="its event loop was held up") as raised:
                await provider.generate(replace(REQUEST, timeout=0.2))
            assert raised.value.retry_after is not None
            assert raised.value.retry_after > 0.4
    assert "its event loop was held up" in caplog.text
