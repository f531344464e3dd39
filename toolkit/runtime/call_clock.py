"""The clock of a tool's run: it counts while the body runs, stands still while that waits, and cancels what is late."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Self

import anyio

from toolkit.runtime.backend import Alarm, CancellationMark, Timers, cancellation_mark, find_timers, make_scope

__all__ = ["CallClock"]


class CallClock:
    """The time limit of runs that are awaited one after the other, in the task and the block that has entered this.

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

    One scope serves all runs that end in time, and on asyncio one timer: when that goes off, it looks how long the run
    that is under way still has. No other scope that was entered in the block may be open when a run begins or ends.
    """

    __slots__ = ("_alarm", "_alarm_time", "_deadline", "_has_rung", "_mark", "_scope", "_seconds", "_timers")

    def __init__(self) -> None:
        self._timers: Timers | None = None
        self._alarm: Alarm | None = None
        self._alarm_time = self._deadline = self._seconds = math.inf
        self._has_rung = False
        self._mark: CancellationMark = None
        self._scope: anyio.CancelScope | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if self._alarm is not None:
            self._alarm.cancel()
        scope, self._scope = self._scope, None
        return None if scope is None else scope.__exit__(kind, error, traceback)

    @property
    def is_over(self) -> bool:
        """True where the time of the run that is under way is up."""
        return self._scope is not None and self._scope.cancel_called

    def start(self, seconds: float, mark: CancellationMark) -> None:
        """Let a run begin that may take so many seconds.

        Args:
            seconds: How many.
            mark: The result of `cancellation_mark` here or shortly before, in this task.
        """
        if self._scope is None:
            self._timers = find_timers(mark)
            self._enter_scope(mark)
        elif mark != self._mark:  # a run has left a cancellation of its task behind, which is none of this one's
            self._renew_scope(None)
        self._seconds = seconds
        timers = self._timers
        if timers is None:
            self.restart()
            return
        self._deadline = deadline = timers.time() + seconds
        if deadline < self._alarm_time:
            self._set_alarm(deadline)

    def restart(self) -> None:
        """Give the run that is under way all of its time again."""
        deadline = anyio.current_time() + self._seconds
        self._set_deadline(deadline)
        if self._timers is not None and deadline < self._alarm_time:
            self._set_alarm(deadline)

    def pause(self) -> None:
        """Stand still: nothing is late until `restart` or the next `start`."""
        self._set_deadline(math.inf)

    def stop(self) -> None:
        """Note that a run has ended in time."""
        self._deadline = math.inf
        if self._timers is None or self._has_rung:
            self._set_deadline(math.inf)
            if self.is_over:
                self._renew_scope(None)

    def has_caused(self, error: BaseException) -> bool:
        """Return whether a run has ended with this error because its time was up; it has ended in any case."""
        self._set_deadline(math.inf)
        return self.is_over and self._renew_scope(error)

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timers is None and self._scope is not None:
            self._scope.deadline = deadline

    def _set_alarm(self, time: float) -> None:
        assert self._timers is not None
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_time, self._alarm = time, self._timers.call_at(time, self._check_deadline)

    def _check_deadline(self) -> None:
        """Cancel the run that is under way if it is late, or look again when it would be."""
        assert self._timers is not None
        self._alarm, self._alarm_time = None, math.inf
        if self._timers.time() >= self._deadline:
            if self._scope is not None:
                self._has_rung = True
                self._scope.cancel()
        elif self._deadline < math.inf:
            self._set_alarm(self._deadline)

    def _enter_scope(self, mark: CancellationMark) -> None:
        self._mark, self._scope = mark, make_scope(mark)
        self._scope.__enter__()

    def _renew_scope(self, error: BaseException | None) -> bool:
        """Leave the scope by this error, or in peace, and enter another; return whether the error was its own."""
        assert self._scope is not None
        scope, self._scope, self._has_rung = self._scope, None, False
        is_own = scope.__exit__(type(error) if error is not None else None, error, None)
        self._enter_scope(cancellation_mark())
        return is_own is True
