"""What lives in one event loop, used from another one in another thread."""

import threading
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
import pytest

from toolkit import ToolFailedError
from toolkit.runtime.backend import OwnerLoop

pytestmark = pytest.mark.anyio

in_others = pytest.mark.parametrize("other", ["asyncio", "trio"])


async def elsewhere(main: Callable[[], Awaitable[object]], other: str) -> object:
    """Run something in an event loop of its own."""
    return await anyio.to_thread.run_sync(lambda: anyio.run(main, backend=other))


@in_others
async def test_a_call_from_another_event_loop_is_made_in_the_owner(other: str) -> None:
    owner, here = OwnerLoop(), threading.get_ident()

    async def where() -> int:
        return threading.get_ident()

    async def wrong() -> None:
        raise KeyError("wrong")

    assert await owner.call(where) == here
    assert await elsewhere(lambda: owner.call(where), other) == here
    with pytest.raises(KeyError, match="wrong"):
        await elsewhere(lambda: owner.call(wrong), other)


@in_others
async def test_a_call_that_is_cancelled_elsewhere_is_cancelled_in_the_owner(other: str) -> None:
    owner = OwnerLoop()
    has_begun, has_ended = threading.Event(), anyio.Event()

    async def wait() -> None:
        has_begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            has_ended.set()

    async def call_and_cancel() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(owner.call, wait)
            await anyio.to_thread.run_sync(has_begun.wait)
            tasks.cancel_scope.cancel()

    with anyio.fail_after(20):
        await elsewhere(call_and_cancel, other)
        await has_ended.wait()


@in_others
async def test_what_is_told_from_home_arrives_in_order_before_the_call_ends(other: str) -> None:
    owner = OwnerLoop()

    async def listen() -> list[tuple[int, bool]]:
        heard: list[tuple[int, bool]] = []
        there = threading.get_ident()

        def hear(number: int) -> None:
            heard.append((number, threading.get_ident() == there))

        tell = owner.wrap_callback(hear)

        async def count() -> None:
            for number in range(3):
                tell(number)

        await owner.call(count)
        return heard

    assert await listen() == [(0, True), (1, True), (2, True)]
    assert await elsewhere(listen, other) == [(0, True), (1, True), (2, True)]


@in_others
async def test_a_home_that_is_gone_is_said_to_be(other: str) -> None:
    async def leave() -> OwnerLoop:
        return OwnerLoop()

    owner = await elsewhere(leave, other)
    assert isinstance(owner, OwnerLoop)
    with pytest.raises(ToolFailedError, match="The event loop in which this has to be done has ended"):
        await owner.call(anyio.sleep_forever)
