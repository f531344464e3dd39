"""The context of a call for its tool, and the reports of the tool to the observer, from any thread."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    contextmanager,
    suppress,
)
from dataclasses import replace
from functools import partial
from threading import Event, get_ident
from typing import TYPE_CHECKING, Any, Generic, cast

import anyio
from typing_extensions import TypeVar

from toolkit.calls.events import Observer, ToolExecutionUpdate, ToolProgress, emit_and_wait
from toolkit.chat.output import ToolOutput, copy_details, to_output
from toolkit.errors import ConfigurationError, ToolCancelledError, ToolTimeoutError
from toolkit.logs import get_logger
from toolkit.runtime.backend import (
    CallClock,
    CancellationMark,
    detached_starter,
    is_being_cancelled,
    is_in_event_loop,
    loop_waker,
)
from toolkit.runtime.workers import call_in_loop, worker_loop_thread

if TYPE_CHECKING:
    from toolkit.calls.output import RunMemory
    from toolkit.calls.policy import ExecutionPolicy
    from toolkit.calls.prepare import Scope

_logger = get_logger("toolkit.calls")

Ctx_co = TypeVar("Ctx_co", covariant=True, default=object)

WAITS_FOR_TURN = "its turn"
"""The thing that a call is waiting for before anything of it runs."""

_NO_METADATA: Mapping[str, Any] = {}
_DEFAULT_WORKERS = 40
_CHECK_SECONDS = 1.0  # how often a thread that waits for an event loop looks whether that still answers


class ToolContext(Generic[Ctx_co]):
    """The context of one call; `state` is the user's own context.

    A tool gets it if its context parameter is annotated ``ToolContext[App]``; annotated ``App``, it gets `state`.

    Attributes:
        call_id: The id of the call.
        tool_name: The name under which the tool was called.
        attempt: 1 for the first run, one more for each retry.
        depth: The number of enclosing loops; 1 inside a plain `tool_loop`, 0 outside of any.
        policy: The settings and guards of calls, for a tool that makes calls; None outside of a loop or a registry.
        scope: The tools and rules for calls; None outside of a loop or a registry.
        waits_for: The thing that the call is waiting for before its body begins; None once the body has begun.
        waited_in_vain: The thing that another attempt at the call never got; None if there was none.
        memory: The state that the calls of the run share; None outside of a run.
        reporter: Receives the reports of the tool; None if nobody does.
        mark: The count of the task's cancellations when the call began.
        clock: The time limit of the call; None before it has one.
        is_from_cache: True if the output came from the cache.
        is_left_running: True if the call was abandoned while a worker thread was at work on it.
        left_by_child: The id of a loop that ran inside, and its details; for a result that has no output.
    """

    __slots__ = (
        "_home",
        "_is_cancelled",
        "_is_over",
        "_next",
        "_state",
        "attempt",
        "call_id",
        "clock",
        "depth",
        "is_from_cache",
        "is_left_running",
        "left_by_child",
        "mark",
        "memory",
        "policy",
        "reporter",
        "scope",
        "tool_name",
        "waited_in_vain",
        "waits_for",
    )

    def __init__(self, state: Ctx_co, *, call_id: str = "", tool_name: str = "") -> None:
        self._state = state
        self._home = get_ident()
        self._next: ToolContext[Ctx_co] | None = None
        self._is_cancelled = self._is_over = False
        self.call_id: str = call_id
        self.tool_name: str = tool_name
        self.attempt: int = 1
        self.waits_for: str | None = WAITS_FOR_TURN
        self.waited_in_vain: str | None = None
        self.is_from_cache = self.is_left_running = False
        self.left_by_child: tuple[str | None, object] = (None, None)
        # A run sets these. Not as arguments, which Python gives to a class in a dictionary.
        self.mark: CancellationMark = None
        self.policy: ExecutionPolicy | None = None
        self.scope: Scope[Any] | None = None
        self.depth: int = 0
        self.memory: RunMemory | None = None
        self.reporter: Reporter | None = None
        self.clock: CallClock | None = None

    @property
    def state(self) -> Ctx_co:
        """The user's own object."""
        return self._state

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The data that the application attached to the run; no model reads it."""
        return _NO_METADATA if self.policy is None else self.policy.config.metadata

    @property
    def sync_workers(self) -> int:
        """The number of worker threads that this event loop may run at once, for tools that are not async."""
        return _DEFAULT_WORKERS if self.policy is None else self.policy.config.sync_workers

    @property
    def idempotency_key(self) -> str:
        """A key by which a service recognizes a repeated call: the same in each attempt at the call.

        It consists of the id of the loop and that of the call, and is the same if a durable run continues in another
        process. Outside of a loop it is the id of the call alone.
        """
        loop_id = "" if self.memory is None else self.memory.loop_id
        return f"{loop_id}/{self.call_id}" if loop_id else self.call_id

    @property
    def cancelled(self) -> bool:
        """True if the call, or this attempt at it, was cancelled.

        A function in a thread can't be stopped and should check it. In an async one it is true while it cleans up.
        """
        if self._is_cancelled or self._is_over:
            return self._is_cancelled
        # The call is marked as cancelled only when its function has ended, which may still be cleaning up.
        return get_ident() == self._home and is_in_event_loop() and self._is_being_cancelled()

    def _is_being_cancelled(self) -> bool:
        if self.clock is not None and self.clock.is_over:
            return True
        run = None if self.memory is None else self.memory.run_clock
        return (run is not None and run.cancel_called) or is_being_cancelled(self.mark)

    @property
    def is_observed(self) -> bool:
        """True if reports are delivered; else a costly one need not be created."""
        return self.reporter is not None and not self._is_over and not self.reporter.is_over

    def report_update(self, output: object) -> None:
        """Emit the output so far, as a `ToolExecutionUpdate`; any value that a tool may return.

        It may be called from any thread, and never raises. On the event loop it never waits: if more than 10,000
        reports or 64 MiB wait for delivery, the oldest is dropped, and the newest counts it. In a thread it waits until
        the update is delivered, so that no thread runs ahead of its readers.
        """
        if self.reporter is not None and self.is_observed:
            # An observer may change what it is given, and the tool goes on with its own.
            self.reporter.report_update(_copy_output(to_output(output)))

    def report_progress(self, text: str) -> None:
        """Emit how far the work is, as a `ToolProgress`; waits like `report_update`."""
        if self.reporter is not None and self.is_observed:
            self.reporter.report_progress(text)

    async def deliver_update(self, output: object) -> None:
        """Do what `report_update` does and wait until the update is delivered: none is dropped.

        For an async tool that passes on the events of something else, such as a loop of its own.
        """
        if self.reporter is not None and self.is_observed:
            await self.reporter.deliver_update(_copy_output(to_output(output)))

    async def deliver_progress(self, text: str, *, details: object = None) -> None:
        """Do what `report_progress` does and wait until the report is delivered."""
        if self.reporter is not None and self.is_observed:
            await self.reporter.deliver_progress(text, details)

    @contextmanager
    def waiting_for(self, what: str) -> Generator[None]:
        """Stop the call's clock while it waits for something that its body needs before it can begin.

        ::

            with context.waiting_for("the printer"):
                await printer.lock.acquire()

        The time limit of the tool starts at the end of this block; waiting has a limit of its own, ``timeouts.wait``.
        The result of a call that is cancelled in here says that it was not started. Use it before anything is done, in
        the task that runs the tool.

        Args:
            what: The thing that the call is waiting for, for the model to read: ``a worker thread``.

        Raises:
            ToolTimeoutError: It waited too long; says that it was not started.
        """
        before, self.waits_for = self.waits_for, what
        clock, seconds = self.clock, None if self.policy is None else self.policy.config.timeouts.wait
        if clock is not None:
            clock.pause()
        limit = anyio.CancelScope(deadline=math.inf if seconds is None else anyio.current_time() + seconds)
        with limit:
            yield
        if limit.cancelled_caught:
            raise ToolTimeoutError(self.tool_name, seconds or 0.0, waited_for=what)
        self.waits_for = before
        if clock is not None:
            clock.restart()

    def begin(self) -> None:
        """Note that the body has begun; also called in a worker thread."""
        self.waits_for = None

    def another(self, attempt: int) -> ToolContext[Ctx_co]:
        """Return the context of another attempt at the call; the previous attempt may have been abandoned."""
        (self._next or self).close()
        context = ToolContext(self._state, call_id=self.call_id, tool_name=self.tool_name)
        context.reporter = None if self.reporter is None else self.reporter.another()
        context.depth, context.memory, context.policy = self.depth, self.memory, self.policy
        context.scope, context.mark, context.attempt = self.scope, self.mark, attempt
        self._next = context
        return context

    def leave_running(self) -> None:
        """Abandon the call while a worker thread is at work on it."""
        self.is_left_running = True
        self.abandon()

    def abandon(self) -> None:
        """Set `cancelled` for a function that may still run, and accept no more reports."""
        self._is_cancelled = True
        self.close()

    def close(self) -> None:
        """Accept no more reports: the call, or this attempt at it, has ended."""
        self._is_over = True
        if self.reporter is not None:
            self.reporter.close()
        if self._next is not None:
            self._next.close()


def _copy_output(output: ToolOutput) -> ToolOutput:
    return replace(output, details=copy_details(output.details))


class Reporter:
    """Delivers the reports of one call to the observer; created in the event loop in which the call runs.

    In that loop a report is accepted without waiting, and the oldest waiting reports are dropped if there are too many.
    Another thread waits until its report is delivered, so that no thread runs ahead of its readers; another event loop,
    which must not be blocked, does not wait.
    """

    __slots__ = ("_facts", "_home", "_is_over", "_observer", "_queue", "_start", "_waiting", "_wake")

    def __init__(self, observer: Observer, facts: Mapping[str, Any]) -> None:
        self._observer = observer
        self._facts = facts  # what the events say of the call
        self._home = get_ident()
        self._wake = loop_waker()
        self._start = detached_starter()
        self._is_over = False
        self._waiting: set[anyio.CancelScope] = set()
        self._queue: deque[tuple[ToolExecutionUpdate | ToolProgress, Event]] = deque()

    def another(self) -> Reporter:
        """Return one for another attempt at the call."""
        return Reporter(self._observer, self._facts)

    @property
    def is_over(self) -> bool:
        """True if no more reports are accepted."""
        return self._is_over

    def close(self) -> None:
        """Accept no more reports, and release those who wait for a delivery."""
        self._is_over = True
        for scope in tuple(self._waiting):
            scope.cancel()

    def report_update(self, output: ToolOutput) -> None:
        """Report the output so far."""
        self._send_report(ToolExecutionUpdate(**self._facts, output=output))

    def report_progress(self, text: str) -> None:
        """Report how far the work is."""
        self._send_report(ToolProgress(**self._facts, text=text))

    async def deliver_update(self, output: ToolOutput) -> None:
        """Report the output so far, in the event loop of the call, and wait until it is delivered."""
        if not self._is_over:
            await emit_and_wait(self._observer, ToolExecutionUpdate(**self._facts, output=output))

    async def deliver_progress(self, text: str, details: object) -> None:
        """Report how far the work is, in the event loop of the call, and wait until it is delivered."""
        if not self._is_over:
            await emit_and_wait(self._observer, ToolProgress(**self._facts, text=text, details=details))

    def _send_report(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        if get_ident() == self._home:
            self._offer_event(event)
        elif worker_loop_thread() == self._home:
            with suppress(ToolCancelledError):  # the call was given up, which `cancelled` says
                call_in_loop(self._deliver_event, event)
        elif is_in_event_loop():
            self._wake(partial(self._offer_event, event))
        else:
            self._deliver_from_thread(event)

    def _offer_event(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        if not self._is_over:
            self._observer.offer(event)

    async def _deliver_event(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        if self._is_over:
            return
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                await emit_and_wait(self._observer, event)
            finally:
                self._waiting.discard(scope)

    def _deliver_from_thread(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Have the event delivered in the call's event loop, and wait, unless that loop does not respond."""
        begun, ended = Event(), Event()

        def start() -> None:
            begun.set()
            if self._is_over:
                ended.set()
                return
            self._queue.append((event, ended))
            if len(self._queue) == 1:
                self._start_delivery()

        if not self._wake(start):
            return
        if not begun.wait(_CHECK_SECONDS):
            return  # what holds the loop up may be a function that waits for this very thread
        while not ended.wait(_CHECK_SECONDS):
            if not self._wake(lambda: None):
                return

    def _start_delivery(self) -> None:
        try:
            self._start(self._deliver_queue)
        except RuntimeError:
            _logger.debug("the event loop ends; a report of %s is dropped", self._facts["tool_name"])
            while self._queue:
                self._queue.popleft()[1].set()

    async def _deliver_queue(self) -> None:
        """Deliver the reports of threads one after the other: tasks of their own would run in any order on trio."""
        while self._queue:
            event, ended = self._queue[0]
            try:
                await self._deliver_event(event)
            except Exception:
                _logger.exception("a report of %s could not be delivered", self._facts["tool_name"])
            finally:
                self._queue.popleft()
                ended.set()


async def open_context(made: object, stack: AsyncExitStack) -> Any:
    """Return the context that a function made: awaited where it is async, entered where it is a context manager.

    Args:
        made: The value that the function returned.
        stack: Leaves the context manager.

    Raises:
        ConfigurationError: It is a generator: its function lacks a decorator of `contextlib`.
    """
    if isinstance(made, (Generator, AsyncGenerator)):
        decorator = "contextmanager" if isinstance(made, Generator) else "asynccontextmanager"
        raise ConfigurationError(f"the context is a generator: decorate its function with contextlib.{decorator}")
    ctx: Any = await cast("Awaitable[object]", made) if isinstance(made, Awaitable) else made
    if isinstance(ctx, AbstractAsyncContextManager):
        return await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", ctx))
    if isinstance(ctx, AbstractContextManager):
        return stack.enter_context(cast("AbstractContextManager[Any]", ctx))
    return ctx
