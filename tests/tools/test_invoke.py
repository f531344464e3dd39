"""Tools that the application itself calls: under their own limits, and nobody is asked."""

import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from tests.runtime.isolated_functions import Report, fail_isolated, report, sleep_isolated
from toolkit import (
    ConfigurationError,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolRegistry,
    ToolRetryConfig,
    tool,
    tool_with_ctx,
)
from toolkit.errors import InvalidArgumentsError, ToolTimeoutError, ToolUsageLimitExceededError

AGAIN = ToolRetryConfig(max_retries=2, initial_backoff=0, jitter=0)

NOTHING: dict[str, Any] = {}

on_both = pytest.mark.anyio


class Thing:
    """What no JSON says."""


@on_both
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_the_function_returns_comes_back_as_it_is(is_async: bool) -> None:
    thing = Thing()

    @tool
    async def get_async() -> Thing:
        return thing

    @tool(timeout=5, lock="things", concurrency=1, retry=AGAIN, requires_approval=True)
    def get() -> Thing:
        return thing

    assert await (get_async if is_async else get).ainvoke({}) is thing


@on_both
async def test_a_run_that_takes_too_long_is_ended() -> None:
    ended = anyio.Event()

    @tool(timeout=0.02)
    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.fail_after(120), pytest.raises(ToolTimeoutError, match=r"timed out after 0\.02 s"):
        await hang.ainvoke({})
    assert ended.is_set()


@on_both
async def test_a_thread_that_takes_too_long_is_given_up_and_told() -> None:
    stop, told = threading.Event(), threading.Event()

    @tool_with_ctx(timeout=0.02)
    def hang(context: ToolContext[object]) -> None:
        assert stop.wait(300)
        if context.cancelled:
            told.set()

    with anyio.fail_after(120), pytest.raises(ToolTimeoutError, match="may still be running"):
        await hang.ainvoke({}, None)
    stop.set()
    assert told.wait(300)


def test_without_a_loop_limits_hold_too() -> None:
    stop = threading.Event()

    @tool(timeout=0.02)
    def hang() -> None:
        stop.wait(300)

    @tool(timeout=0.02)
    async def hang_async() -> None:
        await anyio.sleep_forever()

    for each in (hang, hang_async):
        with pytest.raises(ToolTimeoutError):
            each.invoke({})
    stop.set()


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("is_async", [True, False])
def test_accidents_are_repeated(way: str, is_async: bool) -> None:
    attempts: list[int] = []

    def fail_twice() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "now"

    @tool(retry=AGAIN)
    async def try_async() -> str:
        return fail_twice()

    @tool(retry=AGAIN)
    def try_sync() -> str:
        return fail_twice()

    each: Any = try_async if is_async else try_sync
    assert (each.invoke({}) if way == "invoke" else anyio.run(each.ainvoke, NOTHING)) == "now"
    assert len(attempts) == 3


@on_both
@pytest.mark.parametrize("limit", [{"lock": "door"}, {"concurrency": 1}], ids=str)
async def test_what_must_not_run_together_waits_for_calls_of_a_registry_too(limit: dict[str, Any]) -> None:
    running: list[str] = []

    @tool(**limit)
    async def enter(who: str) -> str:
        running.append(who)
        await anyio.wait_all_tasks_blocked()
        assert running == [who]
        running.remove(who)
        return who

    registry = ToolRegistry([enter])

    async def call(who: str) -> None:
        assert (await registry.execute(ToolCall(who, "enter", f'{{"who": "{who}"}}'))).text == who

    async def invoke(who: str) -> None:
        assert await enter.ainvoke({"who": who}) == who

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(call, f"called {number}")
                tasks.start_soon(invoke, f"invoked {number}")
    assert running == []


@on_both
async def test_a_process_of_its_own_gives_back_what_its_type_promises() -> None:
    with anyio.fail_after(120):
        given = await report.ainvoke({"word": "hi"})
    assert isinstance(given, Report)
    assert (given.words, given.process == os.getpid()) == (["hi"], False)
    with anyio.fail_after(120), pytest.raises(ToolTimeoutError):
        await sleep_isolated.ainvoke({})
    with anyio.fail_after(120), pytest.raises(Exception, match="no"):
        await fail_isolated.ainvoke({})


@on_both
async def test_one_call_counts_once_whatever_is_repeated() -> None:
    @tool(max_usage_count=1, retry=AGAIN)
    async def once() -> str:
        raise ValueError("never")

    with pytest.raises(ValueError, match="never"):
        await once.ainvoke({})
    assert once.current_usage_count == 1
    with pytest.raises(ToolUsageLimitExceededError):
        await once.ainvoke({})


@on_both
async def test_errors_of_the_tool_and_of_the_caller_are_raised_as_they_are() -> None:
    @tool(retry=AGAIN)
    async def fail(count: int) -> ToolOutput:
        return ToolOutput.error("in words", details=count)

    output = await fail.ainvoke({"count": 3})
    assert (output.text, output.is_error, output.details) == ("in words", True, 3)
    with pytest.raises(InvalidArgumentsError):
        await fail.ainvoke({"count": "many"})


@on_both
async def test_a_tool_with_limits_says_that_a_loop_is_running_already() -> None:
    @tool(timeout=3)
    def limited() -> str:
        return "x"

    @tool
    def free() -> str:
        return "x"

    with pytest.raises(ConfigurationError, match="limited' has limits that hold in an event loop"):
        limited.invoke({})
    assert free.invoke({}) == "x"
    assert await limited.ainvoke({}) == "x"


@on_both
async def test_a_generator_is_given_as_it_is() -> None:
    @tool
    def count(upto: int) -> Iterator[int]:
        yield from range(upto)

    @tool
    async def count_later(upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            yield number

    assert list(count.invoke({"upto": 2})) == [0, 1]
    assert list(await count.ainvoke({"upto": 2})) == [0, 1]
    assert [number async for number in await count_later.ainvoke({"upto": 2})] == [0, 1]


@on_both
async def test_a_cancelled_call_ends_its_tool() -> None:
    began, ended = anyio.Event(), anyio.Event()

    @tool(lock="x")
    async def hang() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang.ainvoke, NOTHING)
            await began.wait()
            tasks.cancel_scope.cancel()
    assert ended.is_set()
