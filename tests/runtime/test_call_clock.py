"""One clock for runs that are awaited one after the other."""

import asyncio  # what is tested is how it meets anyio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context

import anyio
import pytest

from tests.busy_machine import with_time_enough
from toolkit.runtime.backend import CallClock, cancellation_mark

pytestmark = pytest.mark.anyio

SOON = 0.01


async def is_late(clock: CallClock, seconds: float, run: Callable[[], Awaitable[object]]) -> bool:
    clock.start(seconds, cancellation_mark())
    try:
        await run()
    except BaseException as error:
        if not clock.has_caused(error):
            raise
        return True
    clock.stop()
    return False


async def test_a_late_run_is_cancelled_and_those_after_it_have_their_own_time() -> None:
    with anyio.fail_after(120), CallClock() as clock:
        for _ in range(3):
            assert not await is_late(clock, 60, anyio.lowlevel.checkpoint)
            assert await is_late(clock, SOON, anyio.sleep_forever)
            assert not await is_late(clock, 60, lambda: anyio.sleep(SOON * 2))


async def test_time_that_one_run_has_left_is_not_the_next_ones() -> None:
    async def run_with(seconds: float) -> list[bool]:
        with CallClock() as clock:
            return [await is_late(clock, seconds, lambda: anyio.sleep(seconds / 5)) for _ in range(7)]

    with anyio.fail_after(120):
        assert not any(await with_time_enough(run_with, lambda were_late: not any(were_late)))


async def test_a_shield_in_a_late_run_holds_to_its_end() -> None:
    log: list[str] = []

    async def run() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(SOON * 3)
            log.append("tidied up")
        await anyio.sleep_forever()

    with anyio.fail_after(120), CallClock() as clock:
        assert await is_late(clock, SOON, run)
    assert log == ["tidied up"]


async def test_what_a_late_run_raises_is_raised() -> None:
    async def run() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("tidying up failed")

    with anyio.fail_after(120), CallClock() as clock:
        with pytest.raises(ValueError, match="tidying up failed"):
            await is_late(clock, SOON, run)
        assert not await is_late(clock, 60, anyio.lowlevel.checkpoint)


async def test_a_run_that_ends_although_its_time_is_up_is_not_late() -> None:
    async def run() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(SOON * 3)

    with anyio.fail_after(120), CallClock() as clock:
        assert not await is_late(clock, SOON, run)
        await anyio.lowlevel.checkpoint()
        assert not await is_late(clock, 60, anyio.lowlevel.checkpoint)


async def test_a_cancellation_from_outside_passes_through() -> None:
    with anyio.fail_after(120), anyio.CancelScope() as scope:
        with CallClock() as clock:

            async def run() -> None:
                scope.cancel()
                await anyio.sleep_forever()

            await is_late(clock, 60, run)
        raise AssertionError
    assert scope.cancelled_caught


async def test_one_that_comes_when_the_time_is_up_passes_through() -> None:
    with anyio.fail_after(120), anyio.CancelScope() as scope:
        with CallClock() as clock:

            async def run() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    scope.cancel()

            await is_late(clock, SOON, run)
            await anyio.sleep_forever()
        raise AssertionError
    assert scope.cancelled_caught


async def test_no_time_passes_in_a_pause() -> None:
    async def run_with(seconds: float) -> bool:
        with CallClock() as clock:

            async def run() -> None:
                clock.pause()
                await anyio.sleep(seconds * 2)
                clock.restart()
                await anyio.lowlevel.checkpoint()

            return await is_late(clock, seconds, run)

    with anyio.fail_after(120):
        assert not await with_time_enough(run_with, lambda was_late: not was_late)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_that_leaves_a_cancellation_of_its_task_behind_takes_no_time_from_the_next() -> None:
    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await anyio.sleep_forever()

    with anyio.fail_after(120), CallClock() as clock:
        assert not await is_late(clock, 60, run)
        assert await is_late(clock, SOON, anyio.sleep_forever)
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


@pytest.mark.parametrize("has_been_late", [False, True])
async def test_cancel_ends_the_block_and_not_a_run(has_been_late: bool) -> None:
    async def run() -> None:
        clock.cancel()
        await anyio.sleep_forever()

    with anyio.fail_after(120):
        with CallClock() as clock:
            clock.open(cancellation_mark())
            if has_been_late:
                assert await is_late(clock, SOON, anyio.sleep_forever)
            await is_late(clock, 60, run)
        assert clock.cancelled_caught


async def test_cancel_ends_the_block_also_when_a_run_is_late_already() -> None:
    async def run() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            assert clock.is_over
            clock.cancel()
            assert clock.cancel_called
            assert not clock.is_over

    with anyio.fail_after(120):
        with CallClock() as clock:
            clock.open(cancellation_mark())
            await is_late(clock, SOON, run)
        assert clock.cancelled_caught


@pytest.mark.parametrize("has_been_late", [False, True])
async def test_the_end_comes_to_all_in_the_block(has_been_late: bool) -> None:
    with anyio.fail_after(120):
        with CallClock(end=anyio.current_time() + SOON * 10) as clock:
            clock.open(cancellation_mark())
            if has_been_late:
                assert await is_late(clock, SOON, anyio.sleep_forever)
                clock.pause()
            await is_late(clock, 60, anyio.sleep_forever)
        assert clock.cancelled_caught


async def test_an_end_that_is_set_later_comes() -> None:
    with anyio.fail_after(120):
        with CallClock() as clock:
            clock.open(cancellation_mark())
            clock.end = anyio.current_time() + SOON
            await is_late(clock, 60, anyio.sleep_forever)
        assert clock.cancelled_caught
        assert clock.end < anyio.current_time()


async def test_a_block_that_ends_by_itself_was_not_cancelled() -> None:
    with anyio.fail_after(120), CallClock(end=anyio.current_time() + 60) as clock:
        clock.open(cancellation_mark())
        assert await is_late(clock, SOON, anyio.sleep_forever)
        assert not clock.cancel_called
    assert not clock.cancelled_caught


class Held:
    """What a context variable holds."""


held: ContextVar[Held] = ContextVar("held")


async def test_a_timer_that_was_stopped_keeps_nothing_of_the_context_of_its_run_alive() -> None:
    context, waiting = copy_context(), Held()
    is_freed = weakref.ref(waiting)
    context.run(held.set, waiting)
    with CallClock() as clock:
        clock.open(cancellation_mark())
        context.run(clock.start, 3_600, cancellation_mark())
        clock.stop()
    del context, waiting, clock
    gc.collect()
    assert is_freed() is None
