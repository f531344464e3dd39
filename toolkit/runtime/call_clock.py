"""The clock of a tool's run: it counts while the body runs, pauses while the body waits, and cancels late runs."""

from __future__ import annotations

import math
from functools import partial
from types import TracebackType
from typing import Self

import anyio

from toolkit.runtime.backend import Alarm, CancellationMark, Timers, cancellation_mark, find_timers, make_scope


class Deadlines:
    """The one timer, on asyncio, of concurrent clocks: it fires when the first of them may be late.

    Attributes:
        due: The time at which it fires; infinite if it is not set.
    """

    __slots__ = ("_alarm", "_clocks", "due")

    def __init__(self) -> None:
        self._alarm: Alarm | None = None
        self.due = math.inf
        self._clocks: set[CallClock] = set()

    def watch(self, clock: CallClock) -> None:
        """Look after a clock from now on."""
        self._clocks.add(clock)

    def forget(self, clock: CallClock) -> None:
        """Look after a clock no more."""
        self._clocks.discard(clock)

    def expect(self, deadline: float, timers: Timers) -> None:
        """Have the timer go off at a time that is before the one at which it is due."""
        self.close()
        self.due, self._alarm = deadline, timers.call_at(deadline, partial(self._check_clocks, timers))

    def close(self) -> None:
        """Have the timer not go off."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self.due = None, math.inf

    def _check_clocks(self, timers: Timers) -> None:
        """Cancel the runs that are late, and look again when the next one would be."""
        self._alarm, self.due = None, math.inf
        now = timers.time()
        for clock in self._clocks:
            clock.ring(now)
        earliest = min([clock.deadline for clock in self._clocks], default=math.inf)
        if earliest < math.inf:
            self.expect(earliest, timers)


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

    One scope serves all runs that end in time, and on asyncio one timer: when it fires, it checks how long the run
    that is under way still has. No other scope that was entered in the block may be open when a run begins or ends.

    Args:
        deadlines: The timer of a clock that is entered round this one, which leaves it later; None for one of its own.

    Attributes:
        deadline: The time at which the run that is under way is late, on asyncio; infinite where none is.
        deadlines: The timer.
    """

    __slots__ = ("_has_rung", "_is_lone", "_mark", "_scope", "_seconds", "_timers", "deadline", "deadlines")

    def __init__(self, deadlines: Deadlines | None = None) -> None:
        self.deadlines: Deadlines = Deadlines() if deadlines is None else deadlines
        self.deadline = self._seconds = math.inf
        self._is_lone = deadlines is None
        self._timers: Timers | None = None
        self._has_rung = False
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
            self.deadlines.watch(self)
            self._enter_scope(mark)
        elif mark != self._mark:  # a run has left a cancellation of its task behind, which is none of this one's
            self._renew_scope(None)
        self._seconds = seconds
        timers = self._timers
        if timers is None:
            self.restart()
            return
        self.deadline = deadline = timers.time() + seconds
        if deadline < self.deadlines.due:
            self.deadlines.expect(deadline, timers)

    def restart(self) -> None:
        """Restart the time of the current run."""
        deadline = anyio.current_time() + self._seconds
        self._set_deadline(deadline)
        if self._timers is not None and deadline < self.deadlines.due:
            self.deadlines.expect(deadline, self._timers)

    def pause(self) -> None:
        """Pause: nothing is late until `restart` or the next `start`."""
        self._set_deadline(math.inf)

    def stop(self) -> None:
        """Note that a run has ended in time."""
        self.deadline = math.inf
        if self._timers is None or self._has_rung:
            self._set_deadline(math.inf)
            if self.is_over:
                self._renew_scope(None)

    def has_caused(self, error: BaseException) -> bool:
        """Return whether a run has ended with this error because its time was up; it has ended in any case."""
        self._set_deadline(math.inf)
        return self.is_over and self._renew_scope(error)

    def _set_deadline(self, deadline: float) -> None:
        self.deadline = deadline
        if self._timers is None and self._scope is not None:
            self._scope.deadline = deadline

    def ring(self, now: float) -> None:
        """Cancel the run that is under way if it is late."""
        if now >= self.deadline and self._scope is not None:
            self._has_rung, self.deadline = True, math.inf
            self._scope.cancel()

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
