"""The only module that uses asyncio directly, for what anyio can't do with event loops, or does slowly.

It tells whose cancellation it was, starts detached and concurrent calls, copies the current context, wakes event loops
from other threads, and calls into the loop that owns a connection. `CallClock` limits the time of tools and runs: it
counts while a tool's body runs, pauses while the body waits, and cancels late runs.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import sys
import time
import types
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import cache, partial
from types import TracebackType
from typing import Any, ClassVar, Generic, ParamSpec, Self, TypeAlias, TypeVar, TypeVarTuple, cast
from weakref import WeakSet

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from toolkit.errors import ToolFailedError
from toolkit.logs import get_logger

if sys.version_info < (3, 12):
    from asyncio.events import _get_running_loop  # pyright: ignore[reportPrivateUsage]

    _current_tasks: dict[object, asyncio.Task[Any]] = vars(asyncio.tasks)["_current_tasks"]


_logger = get_logger("toolkit.runtime")

AsyncioCancelledError = asyncio.CancelledError

CancellationMark: TypeAlias = int | None
"""How often the current asyncio task had been asked to cancel; None on trio, which needs no such count.

Functions that take a mark want the result of `cancellation_mark` in this task, before the call they ask about.
"""

LoopWaker: TypeAlias = Callable[[Callable[[], object]], bool]
"""Has an event loop call a function soon, from any thread; False when that loop has ended and never will."""

AsyncCall: TypeAlias = Callable[[], Awaitable[object]]
"""Takes no arguments: they are bound to it."""


if sys.version_info >= (3, 12):

    def cancellation_mark() -> CancellationMark:
        """Return the state before a call that `is_own_cancellation` needs."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return None
        return None if task is None else task.cancelling()

else:  # where asyncio.current_task is written in Python, and too slow to call before each tool call

    def cancellation_mark() -> CancellationMark:
        """Return the state before a call that `is_own_cancellation` needs."""
        task = _current_tasks.get(_get_running_loop())
        return None if task is None else task.cancelling()


def current_task_id() -> int:
    """Return ``anyio.get_current_task().id``, at a tenth of its cost."""
    if sys.version_info >= (3, 12):
        task: object = asyncio.current_task() if is_on_asyncio() else None
    else:
        task = _current_tasks.get(_get_running_loop())
    return anyio.get_current_task().id if task is None else id(task)


def is_own_cancellation(mark: CancellationMark) -> bool:
    """Return whether an `AsyncioCancelledError` is the called function's own: this task was not asked to cancel."""
    if mark is None:
        return False
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() <= mark and anyio.current_effective_deadline() != -math.inf


def is_being_cancelled(mark: CancellationMark) -> bool:
    """Return whether this task is being cancelled, by an enclosing scope that no shield hides, or by asyncio."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    now = cancellation_mark()
    return now is not None and now > (mark or 0)


def keep_cancelling() -> None:
    """Raise a caught cancellation again at the next wait, as a cancelled scope does; asyncio cancels a task once."""
    if is_on_asyncio() and anyio.current_effective_deadline() != -math.inf:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        task.cancel()


def has_busy_threads() -> bool:
    """Return whether a thread that anyio, trio or asyncio lent to code of this event loop may be at work."""
    if anyio.to_thread.current_default_thread_limiter().borrowed_tokens:
        return True
    if not is_on_asyncio():
        return False
    executor: Any = getattr(asyncio.get_running_loop(), "_default_executor", None)
    of_anyio: Any = sys.modules.get("anyio._backends._asyncio")
    try:
        # There is no public way to ask: on asyncio an abandoned thread of anyio has returned its token.
        if len(of_anyio._threadpool_workers.get(())) > len(of_anyio._threadpool_idle_workers.get(())):
            return True
        # Each idle thread of the executor has released its semaphore once.
        return executor is not None and len(executor._threads) > executor._idle_semaphore._value
    except AttributeError:
        return True


def is_in_event_loop() -> bool:
    """Return whether an event loop is running the current code."""
    try:
        current_token()
    except RuntimeError:
        return False
    return True


@cache
def _find_scope_class() -> type[anyio.CancelScope]:
    return type(anyio.CancelScope())


def make_scope(mark: CancellationMark, *, deadline: float = math.inf, shield: bool = False) -> anyio.CancelScope:
    """Return ``anyio.CancelScope(deadline=..., shield=...)``; on asyncio without looking up its class each time."""
    cls = anyio.CancelScope if mark is None else _find_scope_class()
    return cls() if deadline == math.inf and not shield else cls(deadline=deadline, shield=shield)


def read_loop_time(mark: CancellationMark) -> float:
    """Return `anyio.current_time`; on asyncio without looking for the running library."""
    return anyio.current_time() if mark is None else asyncio.get_running_loop().time()


def make_waiter() -> tuple[Awaitable[None], Callable[[], None]]:
    """Return an awaitable for one wait, and the function that wakes it, for use in the same event loop."""
    if not is_on_asyncio():
        event = anyio.Event()
        return event.wait(), event.set
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return future, partial(_wake_future, future)


def _wake_future(future: asyncio.Future[None]) -> None:
    if not future.done():  # by a cancellation of who waits
        future.set_result(None)


def loop_waker() -> LoopWaker:
    """Return a function that wakes the running event loop from other threads."""
    return partial(wake_loop, find_loop(cancellation_mark()))


def wake_loop(loop: object, function: Callable[[], object]) -> bool:
    """Have an event loop, as `find_loop` returned it, call a function soon; return False if that loop has ended."""
    try:
        if isinstance(loop, asyncio.AbstractEventLoop):
            loop.call_soon_threadsafe(function)
        else:
            cast("Any", loop).run_sync_soon(function)
    except RuntimeError:  # asyncio's "Event loop is closed", and trio's RunFinishedError
        return False
    return True


def is_on_asyncio() -> bool:
    """Return whether the running event loop is of asyncio."""
    return cancellation_mark() is not None


_detached: set[asyncio.Task[None]] = set()  # asyncio itself has only weak references to its tasks


T = TypeVar("T")


class LoopLocal(Generic[T]):
    """A value for each event loop, created at its first use there.

    It is closed and deleted when that loop ends, by `aclose`, and when this is collected: nothing else of the process
    refers to it, so that a loop that is over is collected with all that belonged to it.

    Args:
        make: Makes one, in the loop. It must not hold the owner of this, which would be collected late.
        close: Closes one, in its loop, in a task that is not cancelled; None where nothing is to be closed.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]] | None = None) -> None:
        self._make = make
        self._close = close
        self._values: dict[object, T] = {}
        self._starters: dict[object, Callable[[AsyncCall], None]] = {}
        if close is not None:
            weakref.finalize(self, _close_elsewhere, self._values, self._starters, close).atexit = False

    def get(self) -> T:
        """Return the value of the running event loop."""
        loop = find_loop(cancellation_mark())
        value = self._values.get(loop)
        if value is None:
            value = self._make()
            _LoopEnd.of(loop).values.add(self)
            if self._close is not None:
                self._starters[loop] = _make_outside_starter()
            self._values[loop] = value
        return value

    def find(self) -> T | None:
        """Return the value of the running event loop; None where there is none yet."""
        return self._values.get(find_loop(cancellation_mark()))

    async def aclose(self) -> None:
        """Close and delete the value of the running event loop, if there is one; cancellation waits for it."""
        loop = find_loop(cancellation_mark())
        value = self._values.get(loop)
        self.forget(loop)
        if value is not None and self._close is not None:
            with anyio.CancelScope(shield=True):
                await self._close(value)

    def forget(self, loop: object) -> None:
        """Delete the value of a loop."""
        self._values.pop(loop, None)
        self._starters.pop(loop, None)


def _close_elsewhere(
    values: dict[object, T], starters: dict[object, Callable[[AsyncCall], None]], close: Callable[[T], Awaitable[None]]
) -> None:
    """Have the values closed, each in its event loop; called in any thread."""
    for loop, value in tuple(values.items()):
        starters[loop](partial(_close_safely, partial(close, value)))


async def _close_safely(close: AsyncCall) -> None:
    try:
        with anyio.CancelScope(shield=True):
            await close()
    except Exception:
        _logger.exception("something that belongs to an event loop can't be closed")


def _make_outside_starter() -> Callable[[AsyncCall], None]:
    """Return a `start_detached` into the running event loop from any thread, which does nothing once that has ended."""
    wake, start = loop_waker(), detached_starter()

    def start_from_outside(call: AsyncCall) -> None:
        wake(partial(start, call))

    return start_from_outside


class _LoopEnd:
    """The end of one event loop: at it, a loop closes each asynchronous generator that was begun in it."""

    _of_loops: ClassVar[dict[object, _LoopEnd]] = {}

    def __init__(self, loop: object) -> None:
        self.values: WeakSet[LoopLocal[Any]] = WeakSet()
        self._loop = loop
        self._generator = self._close_at_end()
        with suppress(StopIteration):  # as a step that waits for nothing ends
            self._generator.__anext__().__await__().send(None)

    @classmethod
    def of(cls, loop: object) -> _LoopEnd:
        end = cls._of_loops.get(loop)
        if end is None:
            for other in tuple(cls._of_loops):
                if isinstance(other, asyncio.AbstractEventLoop) and other.is_closed():
                    cls._of_loops[other]._forget_all()  # it was closed without an end of its generators
            end = cls._of_loops[loop] = cls(loop)
        return end

    async def _close_at_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            for local in tuple(self.values):
                await _close_safely(local.aclose)
            self._forget_all()

    def _forget_all(self) -> None:
        self._of_loops.pop(self._loop, None)
        for local in tuple(self.values):
            local.forget(self._loop)


def find_loop(mark: CancellationMark) -> object:
    """Return the running event loop, for `wake_loop`; on trio its token."""
    return current_token().native_token if mark is None else asyncio.get_running_loop()


def start_detached(call: AsyncCall) -> None:
    """Run a call in a task outside of every scope and group of the caller's, in a copy of the current context.

    It must not raise an `Exception`, and who starts it sees to its end: at the end of the event loop it is cancelled.
    """
    detached_starter()(call)


def start_carried(call: AsyncCall, on_end: Callable[[BaseException | None], None]) -> None:
    """Run a call as `start_detached` does, and pass `on_end` the exception that it raised, of any kind; else None.

    A cancellation, which can only be that of the event loop's end, is passed as None and propagates.
    """

    async def carry() -> None:
        raised: BaseException | None = None
        try:
            await call()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # passed to the waiter: here it would end the event loop
            raised = error
        finally:
            on_end(raised)

    start_detached(carry)


def detached_starter() -> Callable[[AsyncCall], None]:
    """Return a `start_detached` for the running event loop, for use where none of its tasks is running."""
    if is_on_asyncio():
        return _start_detached_task
    from trio.lowlevel import spawn_system_task  # noqa: PLC0415  # optional, and loaded already: it is running

    def start(call: AsyncCall) -> None:
        spawn_system_task(_await_call, call, context=copy_context())

    return start


def _start_detached_task(call: AsyncCall) -> None:
    task = asyncio.ensure_future(_await_call(call))
    _detached.add(task)
    task.add_done_callback(_detached.discard)


async def _await_call(call: AsyncCall) -> None:
    await call()


_start_task: Callable[..., Any] = asyncio.Task
if sys.version_info >= (3, 12):
    # Runs up to the first wait at once, in its own context: a call that doesn't wait is never scheduled.
    _start_task = partial(asyncio.Task, eager_start=True)


class AsyncioGathering:
    """The work of `gather` on asyncio, by tasks of the standard library, which cost a fraction of a task group's."""

    __slots__ = ("_all_ended", "_context", "_failures", "_is_stopping", "_limit", "_loop", "_running", "_waiting")

    def __init__(self, calls: Sequence[AsyncCall], limit: int | None) -> None:
        self._waiting = iter(calls)
        self._limit = len(calls) if limit is None else limit
        self._running: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._is_stopping = False
        self._context = copy_context()  # that each call copies, also one that is started when another ends
        self._loop = asyncio.get_running_loop()
        self._all_ended: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Run all, and raise the first thing that one raised."""
        self._start_some()
        if self._running:
            try:
                await self._all_ended
            except AsyncioCancelledError:
                self._cancel_all()
                await self._wait_for_all()
                if not self._failures:
                    raise
        raise_first(self._failures)

    def _start_some(self) -> None:
        while len(self._running) < self._limit and (call := next(self._waiting, None)) is not None:
            task: asyncio.Task[None] = _start_task(self._run_guarded(call), loop=self._loop)
            if not task.done():
                self._running.add(task)
                task.add_done_callback(self._forget_task, context=self._context)

    async def _run_guarded(self, call: AsyncCall) -> None:
        try:
            await call()
        except AsyncioCancelledError as error:
            if not self._is_stopping:
                self._stop_on_failure(error)
        except BaseException as error:  # noqa: BLE001  # carried to the caller: asyncio would stop its loop for some
            self._stop_on_failure(error)

    def _stop_on_failure(self, error: BaseException) -> None:
        self._failures.append(error)
        self._cancel_all()

    def _cancel_all(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._waiting = iter(())
            own = asyncio.current_task()
            for task in self._running:
                if task is not own:
                    task.cancel()

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled() and not self._is_stopping:  # by another task, before its first step
            self._stop_on_failure(AsyncioCancelledError())
        self._start_some()
        if not self._running and not self._all_ended.done():
            self._all_ended.set_result(None)

    async def _wait_for_all(self) -> None:
        """Wait for running calls, even if this task is cancelled meanwhile."""
        with anyio.CancelScope(shield=True):  # else anyio cancels it in every round of the event loop
            while self._running:
                self._all_ended = self._loop.create_future()
                try:
                    await self._all_ended
                except AsyncioCancelledError:
                    continue


def raise_first(failures: list[BaseException]) -> None:
    """Raise the first of the failures, and forget them all; nothing where there are none."""
    if failures:
        try:
            raise failures[0]
        finally:
            failures.clear()  # else the traceback and the exception form a cycle


_event_loop_name: ContextVar[str | None] | None
try:
    from sniffio import current_async_library_cvar as _event_loop_name
except ModuleNotFoundError:  # it comes with trio
    _event_loop_name = None


Given = TypeVarTuple("Given")


def context_for_thread() -> Context:
    """Return a copy of the current context for code in another thread, where an event loop may be run anew."""
    context = copy_context()
    if _event_loop_name is not None:
        context.run(_event_loop_name.set, None)
    return context


_IDLE_LOOP_SECONDS = 60.0
_idle_loops: deque[tuple[asyncio.Runner, float]] = deque()  # those used last are at the end, with the time of that
_parents_loops: list[object] = []


def run_in_own_loop(call: Callable[[], Awaitable[T]]) -> T:
    """Run a call in an event loop that nothing else uses meanwhile, in this thread, and return its result.

    The loop is used again, by whichever thread calls this next, so that connections and processes in it live on; it
    ends when it has been idle for a minute and another one comes back, and at the exit of the interpreter. Tasks that
    the call leaves are cancelled. On asyncio.
    """
    try:
        runner, _ = _idle_loops.pop()
    except IndexError:
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    results: list[T] = []

    async def run() -> None:  # a result of its own would be made a text of by the handling of interrupts
        results.append(await call())

    is_intact = True
    try:
        runner.run(run(), context=context_for_thread())
        return results.pop()
    except BaseException as error:
        is_intact = isinstance(error, Exception)
        raise
    finally:
        loop = runner.get_loop()
        _cancel_left_tasks(loop)
        now = time.monotonic()
        if is_intact:
            _idle_loops.append((runner, now))
        else:
            _close_loop(loop)
        while _idle_loops and _idle_loops[0][1] < now - _IDLE_LOOP_SECONDS:
            _close_loop(_idle_loops.popleft()[0].get_loop())


def _cancel_left_tasks(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))


def _close_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


@atexit.register
def _close_idle_loops() -> None:
    while _idle_loops:
        _close_loop(_idle_loops.pop()[0].get_loop())


def _leave_loops_to_parent() -> None:
    """Forget the idle loops in a forked process without closing them: they share the kernel's objects."""
    _parents_loops.extend(_idle_loops)
    _idle_loops.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_loops_to_parent)


_OVER = object()


@types.coroutine
def run_in_own_context(call: Callable[[*Given], Awaitable[object]], *given: *Given) -> Generator[Any, Any, None]:
    """Await a call in this task, but in a copy of its context: variables that it sets are visible only to it.

    Its result is dropped: to take it from the exception that ends a coroutine costs as much as the copy.
    """
    context, steps = copy_context(), call(*given).__await__()
    waited_for: Any = context.run(next, steps, _OVER)
    while waited_for is not _OVER:
        try:
            sent = yield waited_for
        except GeneratorExit:
            context.run(steps.close)
            raise
        except BaseException as error:  # noqa: BLE001  # thrown into the call, which is to see it
            waited_for = context.run(_take_step, steps.throw, error)
        else:
            waited_for = context.run(_take_step, steps.send, sent)


def _take_step(step: Callable[[Any], Any], given: Any) -> Any:
    """Return what a step of a coroutine waits for, or `_OVER` after the last one."""
    try:
        return step(given)
    except StopIteration:
        return _OVER


async def gather(calls: Sequence[AsyncCall], limit: int | None) -> None:
    """Run calls at once, each in a task of its own, and return when all have ended.

    Calls must not raise an `Exception`. When one raises anything, or this is cancelled, no other starts, those that run
    are cancelled once and waited for however long they take, and exceptions are raised unchanged, never in a group.
    On asyncio that cancellation is the standard library's: anyio's shields inside of a call don't hold it off.

    Args:
        calls: Started in this order, each in a copy of the current context.
        limit: How many run at the same time; None for all.
    """
    if is_on_asyncio():
        # Calls begin at once on newer Pythons: a caller that is cancelled already must start none.
        await checkpoint_if_cancelled()
        await AsyncioGathering(calls, limit).run()
    else:
        await _gather_in_nursery(calls, limit)


async def _gather_in_nursery(calls: Sequence[AsyncCall], limit: int | None) -> None:
    failures: list[BaseException] = []
    places = anyio.Semaphore(len(calls) if limit is None else limit)
    cancelled = anyio.get_cancelled_exc_class()

    async def run_guarded(call: AsyncCall, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        try:
            await (
                checkpoint_if_cancelled()
            )  # else one that starts in the round of a cancellation runs to its first wait
            await call()
        except cancelled:
            raise
        except BaseException as error:  # noqa: BLE001  # carried to the caller, which a nursery would put in a group
            failures.append(error)
            tasks.cancel_scope.cancel()
        finally:
            places.release()

    try:
        async with anyio.create_task_group() as tasks:
            for call in calls:
                await places.acquire()
                await tasks.start(run_guarded, call)  # in order: a nursery shuffles tasks that are started together
    finally:
        raise_first(failures)


P = ParamSpec("P")


class OwnerLoop:
    """The event loop that owns something: the one in which this is made."""

    def __init__(self) -> None:
        self._token = current_token()
        self._loop = asyncio.get_running_loop() if is_on_asyncio() else None
        self._wake = loop_waker()
        self._start = detached_starter()
        self._context = copy_context()

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function in the owner, and return its result or raise its exception; a cancellation here is passed on.

        Raises:
            ToolFailedError: That event loop has ended.
        """
        if self._is_here():
            return await function()
        owner_call = _OwnerCall(function, loop_waker())

        def start() -> None:
            self._context.copy().run(self._start, owner_call.run)

        # A loop between two runs of `run_in_own_loop` takes what it is to call, and may never call it.
        if (self._loop is None or self._loop.is_running()) and self._wake(start):
            try:
                await owner_call.ended.wait()
            finally:
                if not owner_call.ended.is_set():
                    self._wake(owner_call.cancel)
        return owner_call.outcome()

    def start_detached(self, call: AsyncCall) -> None:
        """Run a call as `start_detached` does, from within the owner, in the context in which this was made."""
        self._context.copy().run(self._start, call)

    def wrap_callback(self, function: Callable[P, object]) -> Callable[P, object]:
        """Return a wrapper with which the owner calls the function in the event loop that is running now."""
        if self._is_here():
            return function
        wake = loop_waker()

        def call(*args: P.args, **options: P.kwargs) -> None:
            wake(partial(function, *args, **options))

        return call

    def _is_here(self) -> bool:
        return current_token() == self._token


class _OwnerCall(Generic[T]):
    """A call from elsewhere: made and read there, run and cancelled in the owner."""

    def __init__(self, function: Callable[[], Awaitable[T]], wake: LoopWaker) -> None:
        self.ended = anyio.Event()
        self._function = function
        self._wake = wake
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False
        self._outcome: tuple[T] | Exception | None = None

    async def run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                if not self._is_cancelled:
                    self._outcome = (await self._function(),)
        except Exception as error:  # noqa: BLE001 - carried to the caller
            self._outcome = error
        finally:
            self._wake(self.ended.set)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def outcome(self) -> T:
        outcome, self._outcome = self._outcome, None  # an exception's traceback holds this
        match outcome:
            case (value,):
                return value
            case None:
                raise ToolFailedError("The event loop in which this has to be done has ended.")
            case error:
                raise error


class Deadlines:
    """One timer for concurrent clocks, on asyncio: it fires when the first of them may be late.

    Attributes:
        due: The time at which it fires; infinite if it is not started.
    """

    __slots__ = ("_alarm", "_clocks", "due")

    def __init__(self) -> None:
        self._alarm: asyncio.TimerHandle | None = None
        self.due = math.inf
        self._clocks: set[CallClock] = set()

    def watch(self, clock: CallClock) -> None:
        """Add a clock."""
        self._clocks.add(clock)

    def forget(self, clock: CallClock) -> None:
        """Remove a clock."""
        self._clocks.discard(clock)

    def expect(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timer for an earlier time than the one at which it is due."""
        self.close()
        # Not in the context of a call: asyncio keeps a timer that was stopped, and its context, until it would fire.
        self.due = deadline
        self._alarm = loop.call_at(deadline, self._check_clocks, loop, context=Context())

    def close(self) -> None:
        """Stop the timer."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self.due = None, math.inf

    def _check_clocks(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the late runs, and start the timer for the next one."""
        self._alarm, self.due = None, math.inf
        now = loop.time()
        for clock in self._clocks:
            clock.ring(now)
        earliest = min([clock.deadline for clock in self._clocks], default=math.inf)
        if earliest < math.inf:
            self.expect(earliest, loop)


class CallClock:
    """The time limit of runs that are awaited one after the other, in the task that has entered this block.

    ::

        with CallClock() as clock:
            clock.start(seconds, cancellation_mark())
            try:
                value = await run()
            except BaseException as error:
                if not clock.has_caused(error):
                    raise
                ...  # the time was up
            clock.stop()

    One scope serves all runs that end in time, and on asyncio one timer: when it fires, it checks how much time the
    current run still has. No other scope that was entered in the block may be open when a run begins or ends. The same
    scope ends the whole block, on `cancel` or at `end`.

    Args:
        deadlines: The timer of an enclosing clock, which is left later; None creates one.
        end: The time at which the whole block ends.

    Attributes:
        deadline: The time at which the current run is late; infinite without one.
        deadlines: The timer.
        cancelled_caught: True if the block has ended because of `cancel`, or at `end`.
    """

    __slots__ = (
        "_end",
        "_has_rung",
        "_is_cancelled",
        "_is_lone",
        "_loop",
        "_mark",
        "_scope",
        "_seconds",
        "cancelled_caught",
        "deadline",
        "deadlines",
    )

    def __init__(self, deadlines: Deadlines | None = None, end: float = math.inf) -> None:
        self.deadlines: Deadlines = Deadlines() if deadlines is None else deadlines
        self.deadline = self._seconds = math.inf
        self.cancelled_caught: bool = False
        self._end = end
        self._is_lone = deadlines is None
        self._loop: asyncio.AbstractEventLoop | None = None  # None on trio, which has timers in its scopes alone
        self._has_rung = self._is_cancelled = False
        self._mark: CancellationMark = None
        self._scope: anyio.CancelScope | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self.deadlines.forget(self)
        if self._is_lone:
            self.deadlines.close()
        scope, self._scope = self._scope, None
        if scope is None:
            return None
        is_own = scope.__exit__(kind, error, traceback)
        self.cancelled_caught = scope.cancelled_caught
        return is_own

    def open(self, mark: CancellationMark) -> None:
        """Enter the scope, so that `cancel` and `end` apply before the first run, which enters it otherwise."""
        self._loop = None if mark is None else asyncio.get_running_loop()
        self._enter_scope(mark)

    @property
    def end(self) -> float:
        """The time at which the whole block ends."""
        return self._end

    @end.setter
    def end(self, end: float) -> None:
        self._end = end
        if self._scope is not None:
            self._scope.deadline = end

    def cancel(self) -> None:
        """Cancel all that is done in the block."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    @property
    def is_over(self) -> bool:
        """True if the time of the current run is up, but not that of the whole block."""
        if self._scope is None or self._is_cancelled or not self._scope.cancel_called:
            return False
        return self.deadline < self._end if self._loop is None else self._has_rung

    @property
    def cancel_called(self) -> bool:
        """True if the whole block has to end."""
        return self._scope is not None and self._scope.cancel_called and not self.is_over

    def start(self, seconds: float, mark: CancellationMark) -> None:
        """Let a run begin that may take so many seconds."""
        if self._scope is None:
            self.open(mark)
        elif mark != self._mark and not self.cancel_called:  # a run has left a cancellation of its task behind
            self._renew_scope(None)
        if self._seconds == math.inf:
            self.deadlines.watch(self)
        self._seconds = seconds
        loop = self._loop
        if loop is None:
            self.restart()
            return
        self.deadline = deadline = loop.time() + seconds
        if deadline < self.deadlines.due:
            self.deadlines.expect(deadline, loop)

    def restart(self) -> None:
        """Restart the time of the current run after a pause."""
        deadline = anyio.current_time() + self._seconds
        self._set_deadline(deadline)
        if self._loop is not None and deadline < self.deadlines.due:
            self.deadlines.expect(deadline, self._loop)

    def pause(self) -> None:
        """Stop counting until `restart` or the next `start`."""
        self._set_deadline(math.inf)

    def stop(self) -> None:
        """Note that a run has ended in time."""
        if self._loop is not None and not self._has_rung:
            self.deadline = math.inf
        else:
            self._end_run(None)

    def has_caused(self, error: BaseException) -> bool:
        """Note that a run has ended with this error; return whether that was because its time was up."""
        return self._end_run(error)

    def _end_run(self, error: BaseException | None) -> bool:
        is_over = self.is_over
        self._set_deadline(math.inf)
        return is_over and self._renew_scope(error)

    def _set_deadline(self, deadline: float) -> None:
        self.deadline = deadline
        if self._loop is None and self._scope is not None:
            self._scope.deadline = min(deadline, self._end)

    def ring(self, now: float) -> None:
        """Cancel the run that is under way if it is late."""
        if now >= self.deadline and self._scope is not None:
            self._has_rung, self.deadline = True, math.inf
            self._scope.cancel()

    def _enter_scope(self, mark: CancellationMark) -> None:
        self._mark, self._scope = mark, make_scope(mark, deadline=self._end)
        self._scope.__enter__()

    def _renew_scope(self, error: BaseException | None) -> bool:
        """Leave the scope, with the error if there is one, and enter another; return whether the error was its own."""
        assert self._scope is not None
        scope, self._scope, self._has_rung = self._scope, None, False
        is_own = scope.__exit__(type(error) if error is not None else None, error, None)
        self._enter_scope(cancellation_mark())
        return is_own is True
