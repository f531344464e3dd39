"""The context of a call, for the tool that runs, and how it reports back."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic

import anyio
from typing_extensions import TypeVar

from toolkit.chat.output import ToolOutput, copy_details, to_output
from toolkit.errors import ToolTimeoutError
from toolkit.runtime.backend import CancellationMark, is_being_cancelled, is_in_event_loop
from toolkit.runtime.call_clock import CallClock

if TYPE_CHECKING:
    from toolkit.calls.policy import ExecutionPolicy
    from toolkit.calls.prepare import Scope
    from toolkit.calls.reporting import Reporter
    from toolkit.calls.run_memory import RunMemory

__all__ = ["Ctx_co", "ToolContext"]

Ctx_co = TypeVar("Ctx_co", covariant=True, default=object)

_NO_METADATA: Mapping[str, Any] = {}
_DEFAULT_WORKERS = 40


class ToolContext(Generic[Ctx_co]):
    """The envelope round the user's own context, for one call.

    A tool gets it by annotating its context parameter ``ToolContext[App]``; annotated ``App`` it gets `state` itself.

    Attributes:
        call_id: The id of the call.
        tool_name: The name under which the tool was called.
        attempt: 1 for the first run, one more for each retry.
        depth: How many loops are running round this call; 1 inside a plain `tool_loop`, 0 outside of any.
        policy: The settings and guards of calls, for a tool that makes calls; None outside of a loop or a registry.
        scope: The tools and rules among which the call was found; None likewise.
        waits_for: The thing that the call waits for before its body begins; None once that has begun.
        memory: The state that the run keeps between its calls; None outside of a run.
        mark: The count of the task's cancellations when the call began.
        clock: The time limit of the run that is under way; None before it has one.
        is_left_running: True where the call was given up while a worker thread was at work on it.
        left_by_child: The id of a loop that ran inside, and what it left; for a result that no output is there for.
    """

    __slots__ = (
        "_home",
        "_is_cancelled",
        "_is_over",
        "_next",
        "_reporter",
        "_state",
        "attempt",
        "call_id",
        "clock",
        "depth",
        "is_left_running",
        "left_by_child",
        "mark",
        "memory",
        "policy",
        "scope",
        "tool_name",
        "waits_for",
    )

    def __init__(
        self,
        state: Ctx_co,
        *,
        call_id: str = "",
        tool_name: str = "",
        depth: int = 0,
        reporter: Reporter | None = None,
        memory: RunMemory | None = None,
        policy: ExecutionPolicy | None = None,
        scope: Scope[Any] | None = None,
        mark: CancellationMark = None,
        clock: CallClock | None = None,
    ) -> None:
        self._state = state
        self.mark: CancellationMark = mark
        self._home = get_ident()
        self.policy: ExecutionPolicy | None = policy
        self.scope: Scope[Any] | None = scope
        self.call_id: str = call_id
        self.tool_name: str = tool_name
        self.attempt: int = 1
        self.depth: int = depth
        self.waits_for: str | None = "its turn"
        self.is_left_running: bool = False
        self.left_by_child: tuple[str | None, object] = (None, None)
        self.memory: RunMemory | None = memory
        self._reporter = reporter
        self._next: ToolContext[Ctx_co] | None = None
        self._is_cancelled = False
        self._is_over = False
        self.clock: CallClock | None = clock

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
        """How many worker threads this event loop may run at once, for a tool that is not async."""
        return _DEFAULT_WORKERS if self.policy is None else self.policy.config.sync_workers

    @property
    def idempotency_key(self) -> str:
        """A text by which a service that is asked twice for the same call knows it: the same in each attempt at it.

        It is the id of the loop and that of the call, the same also where a durable run goes on in another process.
        Outside of a loop it is the id of the call alone.
        """
        loop_id = "" if self.memory is None else self.memory.loop_id
        return f"{loop_id}/{self.call_id}" if loop_id else self.call_id

    @property
    def cancelled(self) -> bool:
        """True where the call, or this attempt at it, was given up.

        A function in a thread can't be stopped and should look at it. An async one finds it true while it tidies up.
        """
        if self._is_cancelled or self._is_over:
            return self._is_cancelled
        # It is told as given up only when its function has ended, which may still be tidying up.
        return get_ident() == self._home and is_in_event_loop() and self._is_being_cancelled()

    def _is_being_cancelled(self) -> bool:
        if self.clock is not None and self.clock.is_over:
            return True
        run = None if self.memory is None else self.memory.run_scope
        return (run is not None and run.cancel_called) or is_being_cancelled(self.mark)

    @property
    def is_observed(self) -> bool:
        """True where anybody takes reports; a costly one need not be made otherwise."""
        return self._reporter is not None and not self._is_over and not self._reporter.is_over

    def report_update(self, output: object) -> None:
        """Show what there is so far, as a `ToolExecutionUpdate`; any value that a tool may return.

        It may be called from any thread. On the event loop it never waits: of what waits to be taken, the oldest gives
        way. From a thread it waits until the update is taken, so that no thread runs ahead of who reads.
        """
        if self._reporter is not None and self.is_observed:
            # Who takes it may change what it is given, and the tool goes on with its own.
            self._reporter.report_update(_copy_output(to_output(output)))

    def report_progress(self, text: str) -> None:
        """Say how far the work is, as a `ToolProgress`; waits like `report_update`."""
        if self._reporter is not None and self.is_observed:
            self._reporter.report_progress(text)

    async def deliver_update(self, output: object) -> None:
        """Do what `report_update` does and wait until the update is taken: none is dropped.

        For an async tool that passes on the events of something else, such as a loop of its own.
        """
        if self._reporter is not None and self.is_observed:
            await self._reporter.deliver_update(_copy_output(to_output(output)))

    async def deliver_progress(self, text: str, *, details: object = None) -> None:
        """Do what `report_progress` does and wait until the report is taken."""
        if self._reporter is not None and self.is_observed:
            await self._reporter.deliver_progress(text, details)

    @contextmanager
    def waiting_for(self, what: str) -> Generator[None]:
        """Stop the call's clock while it waits for what its body needs before it can begin.

        ::

            with context.waiting_for("the printer"):
                await printer.lock.acquire()

        The time of the tool counts from the end of this on; waiting has a limit of its own, the configuration's
        `wait_timeout`. A call that is given up in here is told as not started. To be used before anything is done, in
        the task that runs the tool.

        Args:
            what: The thing that it waits for, for the model to read: ``a worker thread``.

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
        """Return the envelope of another attempt at the call: the one before may have been given up."""
        (self._next or self).close()
        context = ToolContext(
            self._state,
            call_id=self.call_id,
            tool_name=self.tool_name,
            depth=self.depth,
            reporter=None if self._reporter is None else self._reporter.another(),
            memory=self.memory,
            policy=self.policy,
            scope=self.scope,
            mark=self.mark,
        )
        context.attempt = attempt
        self._next = context
        return context

    def leave_running(self) -> None:
        """Give the call up while a worker thread is at work on it."""
        self.is_left_running = True
        self.abandon()

    def abandon(self) -> None:
        """Tell the running function that nobody waits for it anymore."""
        self._is_cancelled = True
        self.close()

    def close(self) -> None:
        """Take no more reports: the call, or this attempt at it, has ended."""
        self._is_over = True
        if self._reporter is not None:
            self._reporter.close()
        if self._next is not None:
            self._next.close()


def _copy_output(output: ToolOutput) -> ToolOutput:
    return replace(output, details=copy_details(output.details))
