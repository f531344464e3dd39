"""The person at the terminal, on the main thread; the event loop runs on a thread beside it.

So Ctrl-C is noticed at once whatever a tool does, a question never holds up a server's session, and what was started is
ended in good order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeAlias

import anyio

from toolkit.cli.endings import ExitCode
from toolkit.runtime.backend import LoopWaker, loop_waker

__all__ = ["Terminal", "WasInterruptedError"]

_Job: TypeAlias = Callable[[], None]

_SECONDS_TO_END = 5.0
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class WasInterruptedError(Exception):
    """Ctrl-C was pressed while something was asked."""


class Terminal:
    """Runs a command's event loop, asks questions for it, and takes the signals.

    Ctrl-C ends the command, or does what `on_interrupt` says; a second one that comes after five seconds, in which the
    command did not end, ends the process by force. SIGTERM and SIGHUP always end the command.

    Attributes:
        is_interactive: True where somebody can be asked: standard input and standard error are terminals.
    """

    def __init__(self) -> None:
        self.is_interactive: bool = sys.stdin.isatty() and sys.stderr.isatty()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._is_asking = False
        self._interrupt: Callable[[], object] | None = None
        self._reach: tuple[LoopWaker, anyio.CancelScope] | None = None
        self._signalled: ExitCode | None = None
        self._signalled_at = 0.0
        self._outcome: list[int | BaseException] = []

    def run(self, main: Callable[[], Awaitable[int]]) -> int:
        """Run `main` to its end and return its exit code, or that of the signal which ended it.

        Raises:
            Exception: The exception that `main` raised.
        """
        loop = threading.Thread(target=self._run_loop, args=(main,), name="toolkit", daemon=True)
        with self._taking_signals():
            loop.start()
            while (job := self._jobs.get()) is not None:
                job()
            loop.join()
        [outcome] = self._outcome
        if self._signalled is not None:
            return self._signalled
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def ask(self, question: Callable[[], str]) -> str:
        """Return what `question` gives, which is called on the main thread and may wait for the person.

        Raises:
            WasInterruptedError: Ctrl-C was pressed meanwhile.
            EOFError: There is no more input.
        """
        answered, wake = anyio.Event(), loop_waker()
        answers: list[str | BaseException] = []

        def answer() -> None:
            try:
                self._is_asking = True
                try:
                    answers.append(question())
                finally:
                    self._is_asking = False
            except KeyboardInterrupt:
                answers.append(WasInterruptedError())
            except Exception as error:  # noqa: BLE001 - it is raised where the question was asked
                answers.append(error)
            wake(answered.set)

        self._jobs.put(answer)
        await answered.wait()
        [given] = answers
        if isinstance(given, BaseException):
            raise given
        return given

    @contextmanager
    def on_interrupt(self, action: Callable[[], object]) -> Generator[None]:
        """Have Ctrl-C do `action`, which may be called on any thread, instead of ending the command."""
        before, self._interrupt = self._interrupt, action
        try:
            yield
        finally:
            self._interrupt = before

    def _run_loop(self, main: Callable[[], Awaitable[int]]) -> None:
        async def run_within_reach() -> int:
            with anyio.CancelScope() as scope:
                self._reach = (loop_waker(), scope)
                if self._signalled is not None:
                    scope.cancel()
                return await main()
            return ExitCode.INTERRUPTED

        try:
            self._outcome.append(anyio.run(run_within_reach))
        except BaseException as error:  # noqa: BLE001 - it is raised on the main thread
            self._outcome.append(error)
        finally:
            self._jobs.put(None)

    @contextmanager
    def _taking_signals(self) -> Generator[None]:
        taken = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
        before: dict[int, Any] = {number: signal.signal(number, self._take_signal) for number in taken}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as `signal` calls it
        if number != signal.SIGINT:
            self._end_command(ExitCode.TERMINATED)
        elif self._interrupt is not None and self._signalled is None:
            if not self._is_asking:
                self._interrupt()
        elif self._signalled is None:
            self._end_command(ExitCode.INTERRUPTED)
        elif time.monotonic() - self._signalled_at > _SECONDS_TO_END:
            os.write(2, b"\ntoolkit: ended by force: what it had started may still run\n")
            os._exit(self._signalled)
        if self._is_asking:
            raise KeyboardInterrupt

    def _end_command(self, code: ExitCode) -> None:
        self._signalled, self._signalled_at = code, time.monotonic()
        if self._reach is not None:
            wake, scope = self._reach
            wake(scope.cancel)
