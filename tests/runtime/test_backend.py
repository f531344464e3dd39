"""Whose cancellation it was, and many calls at once."""

import asyncio  # what is tested is how it meets anyio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import anyio
import pytest

from toolkit.runtime.backend import (
    AsyncioCancelledError,
    cancellation_mark,
    gather,
    is_in_event_loop,
    is_own_cancellation,
    loop_waker,
)

pytestmark = pytest.mark.anyio

variable: ContextVar[str] = ContextVar("variable", default="outer")


async def held() -> None:
    await anyio.sleep_forever()


def noting(log: list[int], number: int) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        log.append(number)
        await anyio.lowlevel.checkpoint()

    return call


async def test_all_calls_have_run_in_order_when_gather_returns() -> None:
    log: list[int] = []
    await gather([noting(log, number) for number in range(20)], None)
    assert log == list(range(20))


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_no_more_run_at_once_than_the_limit_says(limit: int) -> None:
    running = 0
    most = 0
    log: list[int] = []

    def counted(number: int) -> Callable[[], Awaitable[None]]:
        async def call() -> None:
            nonlocal running, most
            log.append(number)
            running += 1
            most = max(most, running)
            for _ in range(number % 3):
                await anyio.lowlevel.checkpoint()
            running -= 1

        return call

    await gather([counted(number) for number in range(1, 20)], limit)
    assert log == list(range(1, 20))
    assert most <= limit


async def test_calls_that_never_wait_all_run_under_a_limit() -> None:
    log: list[int] = []

    async def call() -> None:
        log.append(1)

    await gather([call] * 10, 2)
    await gather([], None)
    await gather([], 3)
    assert len(log) == 10


async def test_calls_wait_for_one_another_only_through_what_they_share() -> None:
    first, second = anyio.Event(), anyio.Event()

    async def one() -> None:
        first.set()
        await second.wait()

    async def two() -> None:
        await first.wait()
        second.set()

    with anyio.fail_after(120):
        await gather([one, two], None)


@pytest.mark.parametrize("limit", [None, 1])
async def test_each_call_has_a_copy_of_the_callers_context(limit: int | None) -> None:
    seen: list[str] = []

    def setting(value: str) -> Callable[[], Awaitable[None]]:
        async def call() -> None:
            seen.append(variable.get())
            variable.set(value)
            await anyio.lowlevel.checkpoint()
            seen.append(variable.get())

        return call

    token = variable.set("caller")
    try:
        await gather([setting("a"), setting("b")], limit)
        assert variable.get() == "caller"
    finally:
        variable.reset(token)
    assert sorted(seen) == ["a", "b", "caller", "caller"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt("k"), SystemExit(3), GeneratorExit("g")])
async def test_what_a_call_raises_comes_out_as_itself_after_the_others_have_ended(failure: BaseException) -> None:
    ended: list[str] = []
    started = anyio.Event()

    async def waiting() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            ended.append("waiting")

    async def failing() -> None:
        await started.wait()
        raise failure

    async def never() -> None:
        ended.append("never")

    with pytest.raises(type(failure)) as caught, anyio.fail_after(120):
        await gather([waiting, failing, never], 2)
    assert caught.value is failure
    assert ended == ["waiting"]


@pytest.mark.parametrize("limit", [None, 2])
async def test_a_cancelled_scope_round_the_caller_ends_every_call_and_only_that_scope(limit: int | None) -> None:
    ended: list[int] = []
    running = 0

    async def call() -> None:
        nonlocal running
        running += 1
        if running == (limit or 5):
            scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
            ended.append(1)

    with anyio.fail_after(120), anyio.CancelScope() as scope:
        await gather([call] * 5, limit)
        pytest.fail("went on")
    assert scope.cancelled_caught
    assert len(ended) == (limit or 5)
    await anyio.lowlevel.checkpoint()


async def test_a_call_that_takes_its_time_to_end_is_waited_for() -> None:
    started, release = anyio.Event(), anyio.Event()
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await release.wait()
            ended.append("stubborn")

    async def caller() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await gather([stubborn, held], None)
        ended.append("caller")

    scopes: list[anyio.CancelScope] = []
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller)
            await started.wait()
            scopes[0].cancel()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert ended == []
            release.set()
    assert ended == ["stubborn", "caller"]


async def test_a_timeout_inside_of_a_call_is_its_own() -> None:
    log: list[str] = []

    async def timed() -> None:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        log.append("timed")

    async def grouped() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held)
            tasks.cancel_scope.cancel()
        log.append("grouped")

    with anyio.fail_after(120):
        await gather([timed, grouped], None)
    assert sorted(log) == ["grouped", "timed"]


async def test_a_caller_cancelled_before_it_waits_starts_nothing_that_goes_on() -> None:
    ended: list[int] = []

    async def call() -> None:
        await anyio.lowlevel.checkpoint()
        ended.append(1)

    with anyio.CancelScope() as scope:
        scope.cancel()
        await gather([call] * 3, None)
    assert ended == []


async def test_an_exception_of_a_call_that_broke_its_promise_comes_out_too() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), anyio.fail_after(120):
        await gather([held, broken], None)


async def test_gather_inside_of_gather_is_cancelled_whole() -> None:
    ended: list[int] = []

    async def inner() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    async def outer() -> None:
        await gather([inner] * 3, None)

    async def stop() -> None:
        await anyio.wait_all_tasks_blocked()
        scope.cancel()

    with anyio.fail_after(120), anyio.CancelScope() as scope:
        await gather([outer, outer, stop], None)
    assert len(ended) == 6


async def test_a_loop_is_woken_from_a_thread() -> None:
    event = anyio.Event()
    wake = loop_waker()
    assert await anyio.to_thread.run_sync(wake, event.set)
    with anyio.fail_after(120):
        await event.wait()
    assert is_in_event_loop()
    assert not await anyio.to_thread.run_sync(is_in_event_loop)


async def test_an_error_inside_of_a_cancelled_scope_is_not_its_own() -> None:
    mark = cancellation_mark()
    with anyio.CancelScope() as scope:  # noqa: ASYNC100
        scope.cancel()
        assert not is_own_cancellation(mark)


class TestOnAsyncio:
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_a_cancellation_that_nobody_asked_for_is_the_tools_own(self) -> None:
        mark = cancellation_mark()
        with pytest.raises(AsyncioCancelledError):
            raise AsyncioCancelledError
        assert is_own_cancellation(mark)

    async def test_a_cancellation_that_was_asked_for_is_not(self) -> None:
        verdicts: list[bool] = []

        async def work() -> None:
            mark = cancellation_mark()
            try:
                await anyio.sleep_forever()
            except AsyncioCancelledError:
                verdicts.append(is_own_cancellation(mark))
            verdicts.append(is_own_cancellation(cancellation_mark()))

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await task
        assert verdicts == [False, True]

    async def test_a_caller_cancelled_again_and_again_waits_and_is_cancelled(self) -> None:
        release = asyncio.Event()
        cancellations: list[int] = []

        async def stubborn() -> None:
            try:
                await anyio.sleep_forever()
            except AsyncioCancelledError:
                cancellations.append(1)
                await release.wait()

        task = asyncio.create_task(gather([stubborn, stubborn], None))
        for _ in range(5):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        with pytest.raises(AsyncioCancelledError):
            await task
        assert len(cancellations) == 2

    async def test_a_native_cancellation_is_not_taken_for_that_of_a_scope(self) -> None:
        went_on: list[int] = []

        async def work() -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await gather([held, held], None)
            went_on.append(1)

        scopes: list[anyio.CancelScope] = []
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        scopes[0].cancel()
        with pytest.raises(AsyncioCancelledError):
            await task
        assert went_on == []

    async def test_a_child_that_somebody_else_cancels_ends_them_all(self) -> None:
        before = asyncio.all_tasks()
        task = asyncio.create_task(gather([held, held], None))
        await asyncio.sleep(0)
        child = next(iter(asyncio.all_tasks() - before - {task}))
        child.cancel()
        with pytest.raises(AsyncioCancelledError):
            await task
        assert asyncio.all_tasks() == before

    async def test_a_failure_leaves_no_task(self) -> None:
        async def fail() -> None:
            raise SystemExit

        before = asyncio.all_tasks()
        with pytest.raises(SystemExit):
            await gather([fail, held], None)
        assert asyncio.all_tasks() == before
