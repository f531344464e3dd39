"""A loop while it runs: a turn or all, within its time and the reach of `cancel`, closed and told at its end."""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Generic

import anyio

from toolkit.calls.handler import Ctx
from toolkit.errors import LoopUsageError
from toolkit.loop.clock import LoopClock
from toolkit.loop.depth import current_frame
from toolkit.loop.driver import Driver
from toolkit.loop.events import Done, Failed
from toolkit.loop.feeds import RunClosed, RunEnded, TranscriptEdited
from toolkit.loop.middleware import MiddlewareChain
from toolkit.loop.outcome import Cancelled, Completed, Out, Timeout, ToolLoopResult
from toolkit.loop.state import LoopState
from toolkit.runtime.backend import LoopWaker, cancellation_mark, loop_waker, make_scope, read_loop_time

if TYPE_CHECKING:
    from toolkit.loop.listener import EventFeed

__all__ = ["RunningLoop"]


class RunningLoop(Generic[Ctx, Out]):
    """The part of a `ToolLoopHandle` that runs.

    Attributes:
        turn: How many turns were stepped.
    """

    turn: int

    def _set_up(self, driver: Driver[Ctx, Out], clock: LoopClock) -> None:
        self._driver = driver
        self._clock = clock
        self._outcome: Completed[Out] | Failed | None = None
        if driver.state.is_finished:
            self._outcome = Completed(driver.result(clock.seconds_left))
        if driver.journaled is not None:
            driver.journaled.attend(clock, lambda: self._wish)
        self._is_running = self._may_be_edited = self._owes_outcome = False
        self._idle: anyio.Event | None = None  # what `close` waits for
        self._lock = threading.Lock()  # over the next two
        self._reach: tuple[LoopWaker, anyio.CancelScope] | None = None
        self._wish: tuple[str | None] | None = None
        self.turn = 0

    @property
    def _loop_state(self) -> LoopState:
        return self._driver.state

    def cancel(self, reason: str | None = None) -> None:
        """Have the loop end as `Cancelled`, whichever view runs it: from any thread or task, and without waiting.

        What is running is cancelled and the view returns its result, with `reason` in it. A loop that is not running
        ends so when it is run next; one that has ended stays as it is.
        """
        with self._lock:
            self._wish = self._wish or (reason,)
            reach = self._reach
        if reach is not None:
            wake, scope = reach
            wake(scope.cancel)

    async def close(self) -> None:
        """End the loop now, and return when nothing of it runs anymore; open calls are answered.

        A turn that another task is running is cancelled. Does nothing after the end, but ends a loop that awaits
        approval.
        """
        if self._is_running:
            self.cancel()
            self._idle = self._idle or anyio.Event()
            await self._idle.wait()
        driver, is_waiting = self._driver, bool(self._loop_state.open_calls)
        if self._outcome is not None and not is_waiting:
            return
        driver.feed(RunClosed())
        with anyio.CancelScope(shield=True):
            if is_waiting:
                await self._run_part(partial(driver.begin, None, waits=False))
            elif driver.has_begun:
                await self._run_part(_do_nothing)
            else:
                await self._end_run(None)

    async def _advance_loop(self, *, to_end: bool, feed: EventFeed | None = None) -> None:
        """Run one turn, or all; close the transcript and tell the end whatever happens."""
        if self._is_running:
            raise LoopUsageError("the loop is running already: a handle runs in one way, and one turn at a time")
        if self._may_be_edited:
            self._driver.feed(TranscriptEdited())
        self._is_running = True
        self.turn += 1
        work, frame = partial(self._drive_loop, to_end=to_end, feed=feed), current_frame.get()
        try:
            if self._driver.has_middleware or (frame is not None and frame.inherited):
                await self._run_part(work)
            else:
                await self._settle_work(work)
        finally:
            self._is_running = False
            if self._idle is not None:
                self._idle.set()
                self._idle = None

    async def _run_part(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do a part of the run, inside of the middleware that stands around it."""
        try:
            chain = self._driver.find_middleware()
        except Exception as error:  # noqa: BLE001 - it is handed to the caller as an outcome
            self._driver.fail(error)
            await self._end_run(error)
            return
        if chain is not None and chain.has_around_run:
            await self._run_around(chain, work)
        else:
            await self._settle_work(work)

    async def _settle_work(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do a part of the run; where it ends, close the transcript and tell the end, whatever happens."""
        driver, state = self._driver, self._loop_state
        error: Exception | None = None
        is_through = False
        try:
            await work()
            is_through = True
        except Exception as failure:  # noqa: BLE001 - it is handed to the caller as an outcome
            error = failure
            driver.fail(failure)
        finally:
            # Neither through nor failed only when cancelled, or when something no `Exception` passes through.
            if not is_through and error is None:
                driver.feed(RunEnded(Cancelled(*(self._wish or ()))))
            if state.is_finished:
                await self._end_run(error)

    async def _run_around(self, chain: MiddlewareChain, work: Callable[[], Awaitable[None]]) -> None:
        """Let middleware stand around a part of the run; the run's end is its own, whatever the middleware does."""
        state, scope = self._loop_state, anyio.CancelScope()
        is_reached = is_ended = False

        async def proceed() -> ToolLoopResult[Out] | None:
            nonlocal is_reached, is_ended
            is_reached = True
            try:
                # A run that was cancelled before this has only its end to tell.
                with anyio.CancelScope(shield=self._wish is not None):
                    await self._settle_work(work)
            finally:
                is_ended = state.is_finished
                self._expect_cancel(scope)
            return self._read_outcome()

        try:
            with scope:
                if not self._expect_cancel(scope):
                    scope.cancel()
                await chain.run_around(proceed)
                _require_reached(is_reached=is_reached)
            if self._wish is not None and not is_ended:
                self._driver.feed(RunEnded(Cancelled(*self._wish)))
                await self._end_run(None)
        except Exception as error:
            if not is_ended:
                self._driver.fail(error)
                await self._end_run(error)
            elif not isinstance(self._outcome, Failed) or error is not self._outcome.error:
                raise
        except BaseException:
            if not is_ended:
                self._driver.feed(RunEnded(Cancelled()))
                await self._end_run(None)
            raise
        finally:
            with self._lock:
                self._reach = None

    def _read_outcome(self) -> ToolLoopResult[Out] | None:
        """Return the result of the loop, or raise its failure; None where it goes on."""
        outcome = self._outcome
        if isinstance(outcome, Failed):
            raise outcome.error
        return None if outcome is None else outcome.result

    async def _end_run(self, error: Exception | None) -> None:
        """Keep the outcome, and tell it to observers; a cancellation does not stop that."""
        driver = self._driver
        driver.return_undelivered()
        if error is None:
            outcome = Completed(driver.result(self._clock.seconds_left))
            self._outcome = outcome
            await driver.tell_end(Done(outcome.result))
        else:
            self._outcome = driver.failure(error)
            await driver.tell_end(self._outcome)

    async def _drive_loop(self, *, to_end: bool, feed: EventFeed | None) -> None:
        """Run within the loop's time, and within the reach of `cancel`."""
        driver = self._driver
        # The log is read whatever the time: it says how much of that is left.
        deadline = self._clock.start() if driver.journaled is None else math.inf
        is_late = False
        scope = make_scope(cancellation_mark(), deadline=deadline)
        try:
            with scope:
                is_wanted = self._expect_cancel(scope)
                await driver.begin(feed, scope, waits=is_wanted)
                if not is_wanted and driver.journaled is not None:
                    scope.cancel()  # after the log was read
                    is_wanted = True
                is_late = deadline < math.inf and read_loop_time() >= deadline
                if is_wanted and not is_late:
                    await driver.run_turns(to_end=to_end)
        finally:
            self._clock.pause()
            with self._lock:
                self._reach = None
        if self._wish is not None:
            driver.feed(RunEnded(Cancelled(*self._wish)))
        elif is_late or scope.cancelled_caught:
            driver.feed(RunEnded(Timeout(driver.timeout)))

    def _expect_cancel(self, scope: anyio.CancelScope) -> bool:
        """Let `cancel` reach the scope from now on; return False where it was called before."""
        with self._lock:
            self._reach = (loop_waker(), scope)
            return self._wish is None


async def _do_nothing() -> None: ...


def _require_reached(*, is_reached: bool) -> None:
    if not is_reached:
        raise LoopUsageError("the loop did not run: around_run of a middleware hid the error of an inner one")
