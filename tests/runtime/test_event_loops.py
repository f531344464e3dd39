"""What lives in one event loop, used from another one in another thread."""

import asyncio  # tasks that only asyncio has
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
import pytest

from toolkit import ToolFailedError
from toolkit.runtime.backend import OwnerLoop, run_in_own_loop

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

    with anyio.fail_after(120):
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


# loops of code that is not async


def test_a_loop_is_used_again_and_a_task_that_a_call_leaves_is_cancelled() -> None:
    loops: list[int] = []
    ended: list[str] = []

    async def linger() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    async def call() -> str:
        loops.append(id(asyncio.get_running_loop()))
        left.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)
        return "result"

    left: list[asyncio.Task[None]] = []
    assert [run_in_own_loop(call), run_in_own_loop(call)] == ["result", "result"]
    assert loops[0] == loops[1]
    assert ended == ["cancelled", "cancelled"]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_what_a_call_raises_comes_out_and_only_an_error_leaves_its_loop_open(error: BaseException) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def call() -> None:
        loops.append(asyncio.get_running_loop())
        raise error

    with pytest.raises(type(error)):
        run_in_own_loop(call)
    assert loops[0].is_closed() == isinstance(error, KeyboardInterrupt)


def test_a_loop_that_is_idle_for_long_is_closed_when_another_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def call() -> None:
        loops.append(asyncio.get_running_loop())

    run_in_own_loop(call)
    assert not loops[0].is_closed()
    monkeypatch.setattr("toolkit.runtime.backend._IDLE_LOOP_SECONDS", -1.0)
    run_in_own_loop(call)
    assert loops[1].is_closed()


def test_a_call_into_a_loop_between_two_runs_is_refused_and_not_waited_for() -> None:
    owners: list[OwnerLoop] = []

    async def own() -> None:
        owners.append(OwnerLoop())

    async def use() -> None:
        with anyio.fail_after(120), pytest.raises(ToolFailedError, match="has ended"):
            await owners[0].call(anyio.sleep_forever)

    run_in_own_loop(own)
    anyio.run(use)


LEAVES_LOOPS = """
import os, sys, threading
from toolkit import ToolCall, ToolRegistry, tool, tool_loop_sync
from toolkit.testing import ScriptedProvider

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

def run():
    provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "3"])
    print(tool_loop_sync(provider, ToolRegistry([add]), "go").text, flush=True)

threads = [threading.Thread(target=run) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = os.fork() if "fork" in sys.argv else 0
run()
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.real
@pytest.mark.parametrize("mode", ["alone", "fork"])
def test_the_loops_are_closed_in_silence_at_the_exit_and_stay_with_the_parent_of_a_fork(mode: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEAVES_LOOPS, mode],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("3") == (4 if mode == "fork" else 3)
