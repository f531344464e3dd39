"""Threads for functions that block, a bounded pool per event loop; gates before calls that must not run together.

A thread can't be killed. When its caller is cancelled it is abandoned: it runs on, keeps its place until it ends, and
its value is dropped. `AbandonedThreads` counts those of a call, which holds its locks until they have ended.

`anyio.to_thread` does not do the same. With it an abandoned call gives its place back at once, so that calls which hang
can start any number of threads, and on asyncio its threads are no daemons: the exit of the interpreter waits for them.
It does not report whether a call had begun or ended when it was cancelled, or that abandoned threads hold all places.
Here, what a thread has its event loop run is run in the task of the call; there, in another task.

A gate applies to the whole process, whatever event loop a call runs on. It may be left from any thread: an abandoned
thread occupies it until the thread ends.
"""

from __future__ import annotations

import inspect
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.chat.output import to_output
from toolkit.errors import ToolCancelledError, ToolFailedError
from toolkit.runtime.backend import (
    LoopLocal,
    LoopWaker,
    context_for_thread,
    is_in_event_loop,
    keep_cancelling,
    loop_waker,
)


class AbandonedThreads:
    """The abandoned threads of one call and of all that runs inside it; safe between threads."""

    __slots__ = ("_callbacks", "_lock", "_outer", "_running")

    def __init__(self) -> None:
        self._outer = _current.get()
        self._lock = Lock()
        self._running: set[object] = set()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def outer(self) -> AbandonedThreads | None:
        """The threads of the enclosing call, which include these; None for the outermost."""
        return self._outer

    @property
    def is_left_running(self) -> bool:
        """True if an abandoned thread has not ended."""
        return bool(self._running)

    @contextmanager
    def watched(self) -> Generator[None]:
        """Count the threads that are abandoned in this block, also those of loops and threads that it starts."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def add(self, thread: object) -> None:
        """Add an abandoned thread."""
        with self._lock:
            self._running.add(thread)

    def remove(self, thread: object) -> None:
        """Remove a thread that has ended; called in that thread."""
        with self._lock:
            self._running.discard(thread)
            callbacks, self._callbacks = ([], self._callbacks) if self._running else (self._callbacks, [])
        for callback in callbacks:
            callback()

    def when_over(self, callback: Callable[[], object]) -> None:
        """Call `callback`, which must not raise, when nothing of this runs: now, or in the thread that ends last."""
        with self._lock:
            is_over = not self._running
            if not is_over:
                self._callbacks.append(callback)
        if is_over:
            callback()


_current: ContextVar[AbandonedThreads | None] = ContextVar("toolkit_work", default=None)


def list_enclosing_calls(context: Context) -> Generator[AbandonedThreads]:
    """Yield the abandoned threads of each call that encloses this context, innermost first."""
    counted = context.get(_current)
    while counted is not None:
        yield counted
        counted = counted.outer


T = TypeVar("T")

_IDLE_SECONDS = 10.0
_LOOP_CHECK_SECONDS = 1.0  # how often a thread that waits for its event loop checks that this still runs
_numbers = count(1)


async def run_in_worker(
    call: Callable[[], T],
    *,
    on_abandoned: Callable[[], None] | None = None,
    workers: int = 40,
    owner: object = None,
    is_for_people: bool = False,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> T:
    """Call a function in a worker thread of this event loop, with a copy of the current context.

    Waits for a place if all are taken. Every exception of the function is raised here; only a `StopIteration`, which
    no coroutine can raise, becomes a `ToolFailedError`. If this is cancelled before the thread has begun, the function
    is never called; if the function has ended, its result is returned, and the cancellation is raised at the next
    await; else the thread is abandoned.

    Args:
        call: The function, which takes no arguments.
        on_abandoned: Called in the event loop, once, when the thread is abandoned; must not raise.
        workers: How many threads may run in this event loop at the same time, abandoned ones included.
        owner: The caller, such as a tool: the abandoned threads of one owner occupy at most half of the places.
        is_for_people: True if the function waits for a person: such threads have separate places.
        waiting: Entered while waiting for a place.

    Raises:
        ToolFailedError: All slots, or the owner's, are occupied by abandoned threads: waiting could take forever.
    """
    await checkpoint_if_cancelled()
    pool = (_pools_for_people if is_for_people else _worker_pools).get()
    await pool.take_place(workers, owner, waiting)
    job = _ThreadJob(pool, call, owner)
    cancelled = anyio.get_cancelled_exc_class()  # determined here: when this is closed, its event loop may have ended
    try:
        pool.start(job)
        await job.attend()
    except cancelled:
        if not job.has_ended:
            raise
        keep_cancelling()
    finally:
        if not (job.is_over or job.has_ended) and job.abandon() and on_abandoned is not None:
            on_abandoned()
    try:
        return job.outcome()
    finally:
        del job  # an exception's traceback holds this frame: no cycle


def abandoned_count() -> int:
    """Return how many abandoned threads of this event loop still run."""
    pool = _worker_pools.find()
    return 0 if pool is None else pool.abandoned


def is_worker_thread() -> bool:
    """Return whether `run_in_worker` called this code; False in an event loop that such code runs."""
    return getattr(_here, "job", None) is not None and not is_in_event_loop()


def worker_loop_thread() -> int | None:
    """Return the thread of the event loop that this worker thread belongs to; None outside of worker threads."""
    return _here.job.loop_thread if is_worker_thread() else None


def call_in_loop(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in the event loop that this worker thread belongs to, and wait for its result.

    It runs in the task that waits for the worker; an awaitable result is awaited there, and exceptions are raised here.

    Raises:
        RuntimeError: This is not a worker thread.
        ToolCancelledError: The call of this thread was abandoned, or its event loop has ended.
    """
    if not is_worker_thread():
        raise RuntimeError("call_in_loop() works in a function that a worker thread runs, and this is not one")
    job: _ThreadJob[Any] = _here.job
    return job.ask(_LoopRequest(function, args))


@contextmanager
def when_abandoned(callback: Callable[[], object]) -> Generator[None]:
    """Call `callback` if the enclosing worker call is abandoned in this block; outside of worker calls, do nothing.

    It is called at most once, in the thread of the event loop; here and at once if the call was abandoned before.
    """
    job: _ThreadJob[Any] | None = getattr(_here, "job", None)
    if job is None:
        yield
        return
    job.watch(callback)
    try:
        yield
    finally:
        job.watch(None)


class _LoopRequest:
    """A call that a thread has its event loop make."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.answered = threading.Event()
        self.error: Exception | None = None
        self.value: Any = None
        self._function = function
        self._args = args

    async def answer(self) -> None:
        """Make the call; the thread waits until `answered` is set."""
        try:
            value = self._function(*self._args)
            self.value = await value if inspect.isawaitable(value) else value
        except Exception as error:  # noqa: BLE001  # carried to the thread
            self.error = error

    def refuse(self) -> None:
        self.error = ToolCancelledError("Nobody waits for this call anymore.")
        self.answered.set()


class _ThreadJob(Generic[T]):
    """One call in a thread."""

    def __init__(self, pool: _ThreadPool, call: Callable[[], T], owner: object) -> None:
        self.pool = pool
        self.owner = owner
        self.loop_thread = threading.get_ident()
        self.is_over = False
        self.is_abandoned = False
        self.has_begun = False
        self.has_ended = False
        self.is_left = False  # abandoned while its thread was at work
        self._call: Callable[[], T] | None = call
        self._context = context_for_thread()
        self._value: Any = None  # a T, once there is no error
        self._error: BaseException | None = None
        self._lock = threading.Lock()  # over has_begun, has_ended, is_abandoned, is_left, _request and _watcher
        self._request: _LoopRequest | None = None
        self._news = anyio.Event()
        self._watcher: Callable[[], object] | None = None

    # In the event loop.

    async def attend(self) -> None:
        """Wait until the thread has ended the call; make the calls that it requests meanwhile."""
        while True:
            await self._news.wait()
            if self.is_over:
                return
            self._news = anyio.Event()
            request = self._request
            if request is not None:
                await request.answer()
                with self._lock:
                    self._request = None
                request.answered.set()

    def abandon(self) -> bool:
        """Drop the call, and return whether a thread is busy with it."""
        with self._lock:
            self.is_abandoned = True
            request, self._request = self._request, None
            self.is_left = self.has_begun and not self.has_ended
            if self.is_left:
                for counted in list_enclosing_calls(self._context):
                    counted.add(self)
            watcher, self._watcher = self._watcher, None
        if request is not None:
            request.refuse()
        if self.is_left:
            self.pool.count_abandoned(self.owner)
        if watcher is not None:
            watcher()
        return self.is_left

    def outcome(self) -> T:
        error, self._error = self._error, None
        if error is None:
            value: T = self._value
            return value
        try:
            if isinstance(error, StopIteration):
                raise ToolFailedError(f"StopIteration: {error}") from error
            raise error
        finally:
            del error

    def end(self) -> None:
        self.is_over = True
        if self.is_abandoned and inspect.iscoroutine(self._value):
            self._value.close()
        if self.is_left:
            self.pool.forget_abandoned(self.owner)
        self.pool.free_place()
        self._news.set()

    def _set_news(self) -> None:
        self._news.set()

    # In the thread.

    def run(self) -> None:
        with self._lock:
            self.has_begun = not self.is_abandoned
        call, self._call = self._call, None
        if self.has_begun and call is not None:
            _here.job = self
            try:
                self._value = self._context.run(call)
            except BaseException as error:  # noqa: BLE001  # raised in the caller, also those that would end the program
                self._error = error
            _here.job = None
        with self._lock:
            self.has_ended = self.has_begun
        if self.is_left:
            for counted in list_enclosing_calls(self._context):
                counted.remove(self)

    def watch(self, watcher: Callable[[], object] | None) -> None:
        with self._lock:
            is_too_late = self.is_abandoned
            self._watcher = None if is_too_late else watcher
        if is_too_late and watcher is not None:
            watcher()

    def ask(self, request: _LoopRequest) -> Any:
        with self._lock:
            is_awaited = not self.is_abandoned
            if is_awaited:
                self._request = request
        if not is_awaited or not self.pool.wake(self._set_news):
            request.refuse()
        while not request.answered.wait(_LOOP_CHECK_SECONDS):
            if not self.pool.wake(_probe_loop):
                request.refuse()
        if request.error is not None:
            raise request.error
        return request.value


class _PlaceWaiter:
    """A task that waits for a place."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.has_place = False
        self.changed = anyio.Event()


class _ThreadPool:
    """The places and threads of one event loop. Its methods are called there, unless stated otherwise."""

    def __init__(self) -> None:
        self.wake = loop_waker()
        self.abandoned = 0
        self._abandoned_of: Counter[object] = Counter()
        self._taken = 0
        self._waiters: deque[_PlaceWaiter] = deque()
        self._jobs: SimpleQueue[_ThreadJob[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()  # over _idle and _is_closed
        self._idle = 0  # threads that wait for a job, less the jobs in the queue
        self._is_closed = False

    async def take_place(
        self, workers: int, owner: object, waiting: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._check_share(workers, owner)
        if self._taken < workers:
            self._taken += 1
            return
        waiter = _PlaceWaiter(workers)
        self._waiters.append(waiter)
        is_taken = False
        try:
            if self.abandoned < workers:
                with waiting():
                    await waiter.changed.wait()
            if not waiter.has_place:
                raise ToolFailedError(
                    f"Not started: all {workers} worker threads are occupied by earlier calls that were cancelled or "
                    "timed out but still run. Try again later."
                )
            self._check_share(workers, owner)
            is_taken = True
        finally:
            if not waiter.has_place:
                self._waiters.remove(waiter)
            elif not is_taken:  # cancelled when the place was just assigned
                self.free_place()

    def _check_share(self, workers: int, owner: object) -> None:
        share = (workers + 1) // 2
        if share < workers and self._abandoned_of[owner] >= share:
            raise ToolFailedError(
                f"Not started: {share} earlier calls of this tool that were cancelled or timed out still run, and it "
                f"may not occupy more of the {workers} worker threads. Try again later."
            )

    def free_place(self) -> None:
        self._taken -= 1
        for waiter in tuple(self._waiters):
            if self._taken < waiter.workers:
                self._taken += 1
                self._waiters.remove(waiter)
                waiter.has_place = True
                waiter.changed.set()

    def forget_abandoned(self, owner: object) -> None:
        self.abandoned -= 1
        if owner is not None:
            self._abandoned_of[owner] -= 1
            if not self._abandoned_of[owner]:
                del self._abandoned_of[owner]

    def count_abandoned(self, owner: object) -> None:
        self.abandoned += 1
        if owner is not None:
            self._abandoned_of[owner] += 1
        for waiter in self._waiters:
            if self.abandoned >= waiter.workers:
                waiter.changed.set()

    def start(self, job: _ThreadJob[Any]) -> None:
        with self._lock:
            is_expected = self._idle > 0
            self._idle -= is_expected
        if is_expected:
            self._jobs.put(job)
            return
        name = f"toolkit worker {next(_numbers)}"
        try:
            threading.Thread(target=self._run_jobs, args=(job,), name=name, daemon=True).start()
        except RuntimeError:
            job.end()
            raise

    async def close(self) -> None:
        """Let the idle threads end, and those that run when they become idle."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._jobs.put(None)

    def _run_jobs(self, job: _ThreadJob[Any] | None) -> None:
        """Run jobs until none has arrived for a while: the life of a thread."""
        while job is not None:
            job.run()
            with self._lock:  # before the caller is notified, so that its next call finds this thread
                is_idle = not self._is_closed
                self._idle += is_idle
            self.wake(job.end)
            job = None  # else its objects would live as long as this thread is idle
            if is_idle:
                job = self._take_job()

    def _take_job(self) -> _ThreadJob[Any] | None:
        try:
            return self._jobs.get(timeout=_IDLE_SECONDS)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
        return self._jobs.get()  # there is a job for each waiting thread, and so for this one


_worker_pools = LoopLocal(_ThreadPool, _ThreadPool.close)
_pools_for_people = LoopLocal(_ThreadPool, _ThreadPool.close)
_here = threading.local()


def _probe_loop() -> None: ...


_open_gates: dict[object, _Gate] = {}
_gates_lock = Lock()  # over _open_gates and the users of each


def lock_key(value: object) -> object:
    """Return the key of the lock that a value names; equal values name one lock, also lists, which are not hashable."""
    try:
        hash(value)
    except TypeError:
        value = to_output(value).text  # a list of paths, say
    return ("lock", value)


async def enter_gate(
    key: object, places: int = 1, *, waiting: Callable[[], AbstractContextManager[object]] = nullcontext
) -> Callable[[], None]:
    """Wait for a free place of a gate, take it, and return the function that releases it, from any thread.

    Places are assigned in the order of the calls. An unused gate is deleted; a key always has the same number of
    places.

    Args:
        key: Names the gate in this process; hashable.
        places: How many may be inside at once.
        waiting: Entered while waiting.
    """
    with _gates_lock:
        gate = _open_gates.get(key)
        if gate is None:
            gate = _open_gates[key] = _Gate(places)
        gate.users += 1
    is_inside = False
    try:
        if not gate.try_enter():
            with waiting():
                await gate.enter()
        is_inside = True
    finally:
        if not is_inside:
            _leave_gate(key, gate)

    def leave() -> None:
        gate.leave()
        _leave_gate(key, gate)

    return leave


def _leave_gate(key: object, gate: _Gate) -> None:
    with _gates_lock:
        gate.users -= 1
        if not gate.users:
            del _open_gates[key]


class _Waiter:
    """A call that waits, and how its event loop is woken."""

    __slots__ = ("changed", "has_come", "wake")

    def __init__(self) -> None:
        self.changed = anyio.Event()
        self.has_come = False
        self.wake: LoopWaker = loop_waker()


class _Gate:
    __slots__ = ("_free", "_lock", "_waiting", "users")

    def __init__(self, places: int) -> None:
        self.users = 0
        self._free = places
        self._lock = Lock()
        self._waiting: deque[_Waiter] = deque()

    def try_enter(self) -> bool:
        with self._lock:
            is_free = self._free > 0
            self._free -= is_free
            return is_free

    async def enter(self) -> None:
        waiter = _Waiter()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            self._waiting.append(waiter)
        is_inside = False
        try:
            await waiter.changed.wait()
            is_inside = True
        finally:
            if not is_inside:
                self._give_up_turn(waiter)

    def _give_up_turn(self, waiter: _Waiter) -> None:
        with self._lock:
            has_come = waiter.has_come
            if not has_come:
                self._waiting.remove(waiter)
        if has_come:  # cancelled when its turn had just come
            self.leave()

    def leave(self) -> None:
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                waiter.has_come = True
                if waiter.wake(waiter.changed.set):
                    return
                # Its event loop has ended without notifying it.
            self._free += 1
