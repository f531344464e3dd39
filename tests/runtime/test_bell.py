"""A bell wakes who waits, and forgets who has gone."""

import anyio
import pytest

from toolkit.loop.listener import Bell

pytestmark = pytest.mark.anyio


async def test_all_that_wait_are_woken_each_time() -> None:
    bell, woken = Bell(), list[int]()

    async def wait(number: int) -> None:
        for _ in range(3):
            await bell.wait()
            woken.append(number)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(wait, number)
            for count in (2, 4, 6):
                await anyio.wait_all_tasks_blocked()
                bell.ring()
                await anyio.wait_all_tasks_blocked()
                assert len(woken) == count
    assert sorted(woken) == [0, 0, 0, 1, 1, 1]


async def test_who_waits_is_cancelled_and_forgotten() -> None:
    bell = Bell()
    for _ in range(3):
        with anyio.move_on_after(0.001) as scope:
            await bell.wait()
        assert scope.cancelled_caught
    assert not bell.has_waiters
    bell.ring()


async def test_one_that_is_cancelled_when_it_is_rung_stays_cancelled() -> None:
    bell = Bell()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bell.wait)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            bell.ring()
        assert tasks.cancel_scope.cancel_called
