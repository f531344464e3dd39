"""Threads for functions that block."""

import asyncio  # a loop that is closed under a thread
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

import anyio
import pytest

from toolkit.errors import ToolCancelledError, ToolFailedError
from toolkit.runtime.backend import gather
from toolkit.runtime.workers import abandoned_count, call_in_loop, is_worker_thread, run_in_worker

pytestmark = pytest.mark.anyio

variable: ContextVar[str] = ContextVar("variable")


def raising(error: BaseException) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


class Held:
    """A function that runs in its thread until it is let go."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.let_go = threading.Event()
        self.ended = threading.Event()
        self.abandoned = 0

    def __call__(self) -> str:
        call_in_loop(self.began.set)
        self.let_go.wait(300)
        self.ended.set()
        return "held"

    def on_abandoned(self) -> None:
        self.abandoned += 1

    async def abandon(self, workers: int = 40) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(run_in_worker, self, on_abandoned=self.on_abandoned, workers=workers))
                await self.began.wait()
                scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what only a thread that was let go can bring about, and nothing announces."""
    with anyio.fail_after(120):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def none_abandoned() -> None:
    await until(lambda: abandoned_count() == 0)


async def test_a_function_runs_in_a_daemon_thread_with_the_callers_context() -> None:
    variable.set("here")

    def call() -> tuple[str, threading.Thread, bool]:
        return variable.get(), threading.current_thread(), is_worker_thread()

    value, thread, is_worker = await run_in_worker(call)
    assert (value, thread.daemon, is_worker) == ("here", True, True)
    assert thread is not threading.current_thread()
    assert not is_worker_thread()


async def test_threads_are_used_again() -> None:
    threads = {await run_in_worker(threading.get_ident) for _ in range(100)}
    assert len(threads) == 1


@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt("k"), SystemExit(3), GeneratorExit("g")])
async def test_what_a_function_raises_comes_out(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        await run_in_worker(raising(error))
    assert caught.value is error


async def test_a_stop_iteration_comes_out_in_words() -> None:
    with pytest.raises(ToolFailedError, match=r"^StopIteration: empty$"):
        await run_in_worker(raising(StopIteration("empty")))


async def test_many_wait_for_a_place() -> None:
    running = 0
    most = 0
    lock = threading.Lock()

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1

    async def run() -> None:
        await run_in_worker(call, workers=3)

    with anyio.fail_after(120):
        await gather([run] * 30, None)
    assert 1 <= most <= 3


async def test_a_cancelled_function_is_abandoned_at_once_and_counted_until_it_ends() -> None:
    held = Held()
    with anyio.fail_after(120):
        await held.abandon()
    assert held.abandoned == 1
    assert not held.ended.is_set()
    assert abandoned_count() == 1
    held.let_go.set()
    await none_abandoned()
    assert held.ended.is_set()


async def test_a_function_cancelled_while_it_waits_for_a_place_never_starts() -> None:
    held = Held()
    called: list[int] = []
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_in_worker, held, workers=1))
            await held.began.wait()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(
                        partial(
                            run_in_worker, lambda: called.append(1), on_abandoned=lambda: called.append(2), workers=1
                        )
                    )
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            held.let_go.set()
        await run_in_worker(lambda: called.append(3), workers=1)
    assert called == [3]


async def test_a_function_whose_caller_is_cancelled_already_never_starts() -> None:
    called: list[int] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_in_worker(lambda: called.append(1))
    assert scope.cancelled_caught
    assert called == []


async def test_with_all_places_abandoned_a_call_fails_and_so_does_one_that_waits() -> None:
    first, second = Held(), Held()
    with anyio.fail_after(120):
        await first.abandon(workers=2)
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await run_in_worker(second, workers=2)

            async def waiting() -> None:
                with pytest.raises(ToolFailedError, match="all 2 worker threads"):
                    await run_in_worker(int, workers=2)

            tasks.start_soon(cancelled)
            await second.began.wait()
            tasks.start_soon(waiting)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
        with pytest.raises(ToolFailedError, match="Not started"):
            await run_in_worker(int, workers=2)
        first.let_go.set()
        await until(lambda: abandoned_count() == 1)
        assert await run_in_worker(int, workers=2) == 0
        second.let_go.set()
    await none_abandoned()


async def test_a_thread_calls_functions_in_its_loop() -> None:
    loop_thread = threading.get_ident()

    async def later(value: int) -> int:
        await anyio.lowlevel.checkpoint()
        return value + 1

    def fail() -> None:
        raise ValueError("from the loop")

    def call() -> list[object]:
        found: list[object] = [call_in_loop(threading.get_ident), call_in_loop(later, 1)]
        try:
            call_in_loop(fail)
        except ValueError as error:
            found.append(str(error))
        found.extend(call_in_loop(later, number) for number in range(200))
        return found

    with anyio.fail_after(120):
        assert await run_in_worker(call) == [loop_thread, 2, "from the loop", *range(1, 201)]


async def test_only_a_worker_thread_can_call_in_its_loop() -> None:
    with pytest.raises(RuntimeError, match="worker thread"):
        call_in_loop(int)
    with pytest.raises(RuntimeError, match="worker thread"):
        await anyio.to_thread.run_sync(call_in_loop, int)


async def test_an_abandoned_thread_is_refused_by_its_loop() -> None:
    errors: list[Exception] = []
    began, go_on, ended = anyio.Event(), threading.Event(), threading.Event()

    def call() -> None:
        try:
            call_in_loop(wait_forever)
        except ToolCancelledError as error:
            errors.append(error)
        go_on.wait(300)
        try:
            call_in_loop(int)
        except ToolCancelledError as error:
            errors.append(error)
        ended.set()

    async def wait_forever() -> None:
        began.set()
        await anyio.sleep_forever()

    with anyio.fail_after(120):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_in_worker, call)
                await began.wait()
                scope.cancel()
        go_on.set()
        await anyio.to_thread.run_sync(ended.wait, 30)
    assert len(errors) == 2
    await none_abandoned()


async def test_a_worker_thread_can_run_a_loop_of_its_own(anyio_backend_name: str) -> None:
    async def inner() -> tuple[bool, int, int]:
        return is_worker_thread(), await run_in_worker(threading.get_ident), threading.get_ident()

    is_worker, inner_worker, inner_loop = await run_in_worker(partial(anyio.run, inner, backend=anyio_backend_name))
    assert not is_worker
    assert inner_worker != inner_loop


async def test_a_coroutine_that_an_abandoned_function_returns_is_closed() -> None:
    held = Held()

    async def coroutine() -> None: ...

    def call() -> object:
        held()
        return coroutine()

    with anyio.fail_after(120), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_worker, call)
            await held.began.wait()
            scope.cancel()
    held.let_go.set()
    await none_abandoned()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_threads_of_a_loop_end_with_it(backend: str) -> None:
    threads: list[threading.Thread] = []

    async def main() -> None:
        threads.append(await run_in_worker(threading.current_thread))

    anyio.run(main, backend=backend)
    threads[0].join(30)
    assert not threads[0].is_alive()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_ends_under_a_thread_makes_no_noise(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    errors: list[Exception] = []
    threads: list[threading.Thread] = []
    let_go = threading.Event()

    def call() -> None:
        threads.append(threading.current_thread())
        call_in_loop(began.append, 1)
        let_go.wait(300)
        try:
            call_in_loop(int)
        except ToolCancelledError as error:
            errors.append(error)

    began: list[int] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_worker, call)
            await until(lambda: began)
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=backend)
    let_go.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    assert len(errors) == 1
    assert capfd.readouterr() == ("", "")


def test_a_thread_that_waits_for_a_loop_that_is_closed_is_let_go() -> None:
    errors: list[Exception] = []
    began, ended = threading.Event(), threading.Event()

    async def never() -> None:
        began.set()
        await asyncio.sleep(600)

    def call() -> None:
        try:
            call_in_loop(never)
        except ToolCancelledError as error:
            errors.append(error)
        ended.set()

    loop = asyncio.new_event_loop()
    task = loop.create_task(run_in_worker(call))
    loop.run_until_complete(until(began.is_set))
    loop.close()
    assert ended.wait(120)
    assert len(errors) == 1
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was left pending on purpose  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.real
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_interpreter_does_not_wait_for_an_abandoned_thread(backend: str) -> None:
    program = f"""
import anyio, threading
from toolkit.runtime.workers import call_in_loop, run_in_worker
async def main():
    began = anyio.Event()
    def call():
        call_in_loop(began.set)
        threading.Event().wait(600)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_in_worker, call)
        await began.wait()
        tasks.cancel_scope.cancel()
    print("left")
anyio.run(main, backend={backend!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("left\n", "")
