"""Requests wait until they are within the limits, in order, and whoever leaves the line costs nothing."""

import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given, strategies as st

from toolkit import AssistantMessage, ChatRequest, ConfigurationError, TextDelta, ToolCall, Usage, UserMessage
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent
from toolkit.errors import RateLimitedError
from toolkit.loop.budgets import CountedTokens, Window
from toolkit.providers import RateLimitedProvider, estimated_tokens
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio
PER = 0.2


def asks(text: str) -> ChatRequest:
    return ChatRequest(messages=[UserMessage(text)])


class Model:
    """Notes when which request began, and tells what it cost; make it right before it is asked."""

    def __init__(self, tokens: int = 0) -> None:
        self.made = time.monotonic()
        self.begun: list[tuple[float, str]] = []
        self.tokens = tokens
        self.provider = FunctionProvider(self._answer)

    def _answer(self, request: ChatRequest) -> ChatResponse:
        self.begun.append((time.monotonic(), request.messages[-1].text))
        return ChatResponse(message=AssistantMessage("ok"), usage=Usage(input_tokens=self.tokens))

    @property
    def order(self) -> list[str]:
        return [text for _, text in self.begun]

    def assert_at_most(self, limit: int) -> None:
        """None begins before as many times have passed as the limit was reached."""
        for number, (at, _) in enumerate(self.begun):
            assert at - self.made >= number // limit * PER * 0.99  # rounding


async def ask_all(provider: RateLimitedProvider, *texts: str) -> None:
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(provider.generate, asks(text))
                await anyio.wait_all_tasks_blocked()


async def test_no_time_has_more_requests_than_it_may() -> None:
    model = Model()
    await ask_all(RateLimitedProvider(model.provider, requests=3, per=PER), *"abcdefgh")
    assert model.order == list("abcdefgh")
    model.assert_at_most(3)


async def test_the_limit_holds_for_threads_with_loops_of_their_own() -> None:
    model = Model()
    provider = RateLimitedProvider(model.provider, requests=3, per=PER)

    def in_a_loop_of_its_own() -> None:
        async def ask_twice() -> None:
            for _ in range(2):
                await provider.generate(asks("x"))

        anyio.run(ask_twice)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(anyio.to_thread.run_sync, in_a_loop_of_its_own)
    assert len(model.begun) == 8
    model.begun.sort()
    model.assert_at_most(3)


async def test_only_so_many_run_at_once_over_threads_with_loops_of_their_own() -> None:
    begun: list[int] = []
    inside: list[int] = []
    opened = threading.Event()

    async def answer(request: ChatRequest) -> str:
        inside.append(0)
        seen.append(len(inside))
        while not opened.is_set():  # noqa: ASYNC110
            await anyio.sleep(0.001)
        inside.pop()
        return "ok"

    seen: list[int] = []
    provider = RateLimitedProvider(FunctionProvider(answer), concurrency=2)

    def ask() -> None:
        begun.append(0)
        anyio.run(provider.generate, asks("x"))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(anyio.to_thread.run_sync, ask)
            while len(begun) < 5 or len(inside) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            opened.set()
    assert max(seen) == 2
    assert len(seen) == 5


async def test_tokens_count_as_estimated_and_then_as_told() -> None:
    model = Model(tokens=50)
    provider = RateLimitedProvider(model.provider, tokens=100, per=PER, estimate=lambda request: 10)
    for text in "abcde":
        await provider.generate(asks(text))
    # The estimates alone would let ten begin; after two that cost 50 the third waits.
    model.assert_at_most(2)


async def test_a_request_over_the_limit_goes_alone() -> None:
    model = Model()
    provider = RateLimitedProvider(model.provider, tokens=10, per=PER, estimate=lambda request: 1000)
    model.tokens = 1000
    await ask_all(provider, "a", "b")
    model.assert_at_most(1)


def test_an_estimate_counts_all_that_is_said_and_what_may_be_answered() -> None:
    call = AssistantMessage([ToolCall("1", "name", "{" + "x" * 35)])
    assert estimated_tokens(ChatRequest(messages=[UserMessage("x" * 40), call], max_tokens=7)) == 20 + 7


class Holding:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.release = anyio.Event()
        self.provider = FunctionProvider(self._answer)

    async def _answer(self, request: ChatRequest) -> str:
        text = request.messages[-1].text
        self.running.append(text)
        self.most = max(self.most, len(self.running))
        try:
            await self.release.wait()
        finally:
            self.running.remove(text)
        return text


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_only_so_many_run_at_once_in_the_order_of_asking(concurrency: int) -> None:
    holding = Holding()
    provider = RateLimitedProvider(holding.provider, concurrency=concurrency)
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for text in "abcd":
                tasks.start_soon(provider.generate, asks(text))
                await anyio.wait_all_tasks_blocked()
            assert holding.running == list("abcd")[:concurrency]
            holding.release.set()
    assert holding.most == concurrency
    order = [request.messages[-1].text for request in holding.provider.requests]
    # Those that get their places at once may begin in any order.
    assert [sorted(order[at : at + concurrency]) for at in range(0, 4, concurrency)] == [
        list("abcd")[at : at + concurrency] for at in range(0, 4, concurrency)
    ]


async def test_who_is_cancelled_in_the_line_or_while_running_gives_the_place_back() -> None:
    holding = Holding()
    provider = RateLimitedProvider(holding.provider, concurrency=1)
    scopes = {text: anyio.CancelScope() for text in "abc"}

    async def ask(text: str) -> None:
        with scopes[text]:
            await provider.generate(asks(text))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for text in "abc":
                tasks.start_soon(ask, text)
                await anyio.wait_all_tasks_blocked()
            scopes["b"].cancel()
            await anyio.wait_all_tasks_blocked()
            assert holding.running == ["a"]
            scopes["a"].cancel()
            while holding.running != ["c"]:
                await anyio.lowlevel.checkpoint()
            holding.release.set()


async def test_who_is_cancelled_while_waiting_for_time_has_used_up_nothing() -> None:
    model = Model(tokens=50)

    def estimate(request: ChatRequest) -> int:
        return 80 if request.messages[-1].text == "cancelled" else 50

    provider = RateLimitedProvider(model.provider, tokens=100, per=3600, estimate=estimate)
    await ask_all(provider, "first")
    for _ in range(3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.generate, asks("cancelled"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    await ask_all(provider, "second")
    assert model.order == ["first", "second"]


async def test_a_stream_holds_its_place_until_it_is_closed_and_tells_its_cost() -> None:
    async def speak(request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        yield TextDelta("a")
        yield ResponseDone(ChatResponse(message=AssistantMessage("a"), usage=Usage(output_tokens=90)))

    begun: list[float] = []

    def estimate(request: ChatRequest) -> int:
        begun.append(time.monotonic())
        return 20

    provider = RateLimitedProvider(FunctionProvider(speak), tokens=100, per=PER, concurrency=1, estimate=estimate)
    heard: list[StreamEvent] = []

    async def listen() -> None:
        async with aclosing(provider.stream(asks("second"))) as events:
            heard.extend([event async for event in events])

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks, aclosing(provider.stream(asks("first"))) as events:
            assert [await anext(events), await anext(events)][0] == TextDelta("a")
            tasks.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            assert len(begun) == 1, "the second is not yet looked at"
            assert heard == []
        assert len(heard) == 2
    assert time.monotonic() - begun[0] >= PER


async def test_when_the_server_asks_to_wait_everybody_does() -> None:
    answers: list[Callable[[], str]] = []

    def refuse() -> str:
        raise RateLimitedError("p", "slow down", retry_after=PER)

    answers[:] = [refuse, lambda: "ok"]
    times: list[float] = []

    def model(request: ChatRequest) -> str:
        times.append(time.monotonic())
        return answers.pop(0)()

    provider = RateLimitedProvider(FunctionProvider(model))
    with pytest.raises(RateLimitedError):
        await provider.generate(asks("a"))
    await provider.generate(asks("b"))
    assert times[1] - times[0] >= PER


@pytest.mark.parametrize("setting", ["requests", "tokens", "concurrency"])
def test_a_limit_must_let_something_through(setting: str) -> None:
    limits: dict[str, Any] = {setting: 0}
    with pytest.raises(ConfigurationError, match=f"{setting} must be 1 or more, not 0"):
        RateLimitedProvider(Model().provider, **limits)


def test_a_time_must_be_above_zero() -> None:
    with pytest.raises(ConfigurationError, match="more than 0 seconds"):
        RateLimitedProvider(Model().provider, requests=1, per=0)


@given(
    limit=st.integers(1, 20),
    seconds=st.integers(1, 10),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 25), st.integers(0, 25)), max_size=40),
)
def test_a_window_never_holds_more_than_its_limit_unless_for_one_alone(
    limit: int, seconds: int, steps: list[tuple[int, int, int]]
) -> None:
    window = Window(limit, seconds)
    now = 0.0
    counted: list[tuple[float, CountedTokens]] = []
    for pause, estimate, really in steps:
        now += pause
        now += window.wait(estimate, now)
        assert window.wait(estimate, now) == 0, "after the wait there is room"
        running = [spent for begun, spent in counted if begun > now - seconds]
        assert not running or sum(spent.amount for spent in running) + estimate <= limit
        spent = CountedTokens(estimate)
        window.count(spent, now)
        counted.append((now, spent))
        spent.amount = really  # told by the answer
