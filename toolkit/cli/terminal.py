"""The person at the terminal, who is asked about calls on the main thread; the event loop runs on a thread beside it.

So Ctrl-C is noticed at once whatever a tool does, a question never blocks a server's session, and everything that was
started is ended in order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Any, Literal, TypeAlias

import anyio

from toolkit.calls.approval import Abort, Approval, ApprovalRequest, Approve, Deny
from toolkit.cli.screen import ExitCode, Screen
from toolkit.foreign_text import escape_in_name
from toolkit.runtime.backend import LoopWaker, loop_waker

Asking: TypeAlias = Literal["needed", "writes", "all", "auto"]
"""The calls that are asked about: those whose tools require it; also those of tools that do not only read; or all.
``auto`` is ``needed`` for tools of the user's own Python, and ``writes`` for those from elsewhere."""

_CHOICES = "Run it? [y]es, [n]o, [a]lways, [s]top, or say why not: "

_SECONDS_TO_END = 5.0
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class WasInterruptedError(Exception):
    """Ctrl-C was pressed while something was asked."""


class Terminal:
    """Runs a command's event loop, asks questions for it, and handles signals.

    Ctrl-C ends the command, or does what `on_interrupt` says; a second one that comes after five seconds, in which the
    command did not end, ends the process by force. SIGTERM and SIGHUP always end the command.

    Attributes:
        is_interactive: True if a person can be asked: standard input and standard error are terminals.
    """

    def __init__(self) -> None:
        self.is_interactive: bool = sys.stdin.isatty() and sys.stderr.isatty()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_asking = False
        self._interrupt: Callable[[], object] | None = None
        self._scope: tuple[LoopWaker, anyio.CancelScope] | None = None
        self._signalled: ExitCode | None = None
        self._signalled_at = 0.0
        self._outcome: list[int | BaseException] = []

    def run(self, main: Callable[[], Awaitable[int]]) -> int:
        """Run `main` to its end and return its exit code, or that of the signal which ended it.

        Raises:
            Exception: The exception that `main` raised.
        """
        loop = threading.Thread(target=self._run_loop, args=(main,), name="toolkit", daemon=True)
        with self._handle_signals():
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

    async def ask(self, question: str) -> str:
        """Return the line that the person types after a question, without the spaces around it.

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
                    answers.append(_read_line(question))
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
        async def run_in_scope() -> int:
            with anyio.CancelScope() as scope:
                self._scope = (loop_waker(), scope)
                if self._signalled is not None:
                    scope.cancel()
                return await main()
            return ExitCode.INTERRUPTED

        try:
            self._outcome.append(anyio.run(run_in_scope))
        except BaseException as error:  # noqa: BLE001 - it is raised on the main thread
            self._outcome.append(error)
        finally:
            self._jobs.put(None)

    @contextmanager
    def _handle_signals(self) -> Generator[None]:
        numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
        before: dict[int, Any] = {number: signal.signal(number, self._handle_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as `signal` calls it
        if number != signal.SIGINT:
            self._end_command(ExitCode.TERMINATED)
        elif self._interrupt is not None and self._signalled is None:
            if not self._is_asking:
                self._interrupt()
        elif self._signalled is None:
            self._end_command(ExitCode.INTERRUPTED)
        elif time.monotonic() - self._signalled_at > _SECONDS_TO_END:
            os.write(2, b"\ntoolkit: ended by force: what it started may still run\n")
            os._exit(self._signalled)
        if self._is_asking:
            raise KeyboardInterrupt

    def _end_command(self, code: ExitCode) -> None:
        self._signalled, self._signalled_at = code, time.monotonic()
        if self._scope is not None:
            wake, scope = self._scope
            wake(scope.cancel)


class Approver:
    """Decides on calls; a tool that was always allowed is not asked about again.

    Args:
        screen: Shows the calls.
        terminal: Asks.
        asking: The calls that are asked about.
        own: The names of the tools that are the user's own.
        approves_all: True if nobody is to be asked.

    Attributes:
        has_refused: True once a call was not approved.
    """

    def __init__(
        self,
        screen: Screen,
        terminal: Terminal,
        asking: Asking,
        own: Collection[str] = (),
        *,
        approves_all: bool,
    ) -> None:
        self._screen, self._terminal = screen, terminal
        self._asking, self._own, self._approves_all = asking, own, approves_all
        self._allowed: set[str] = set()
        self._one_at_a_time = anyio.Lock()
        self.has_refused = False

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Decide for the person, or ask."""
        reason = self._find_reason(request)
        if self._approves_all or not reason or request.tool_name in self._allowed:
            return Approve()
        if not self._terminal.is_interactive:
            decision: Approval = Deny(f"{reason} Nobody is there to approve it, so it was not run; --yes approves it.")
        else:
            async with self._one_at_a_time:
                is_allowed = request.tool_name in self._allowed  # since the question before
                decision = Approve() if is_allowed else await self._ask_person(request, reason)
        self.has_refused = self.has_refused or not isinstance(decision, Approve)
        return decision

    async def _ask_person(self, request: ApprovalRequest, reason: str) -> Approval:
        self._screen.note(reason, "strong")
        if request.agent:
            self._screen.note(f"  asked for by the agent {escape_in_name(request.agent)}")
        preview = request.preview
        space = "\n" if "\n" in preview else " "
        self._screen.note(f"  {request.tool_name}{space}{preview}", "call")
        try:
            answer = await self._terminal.ask(_CHOICES)
        except (WasInterruptedError, EOFError):
            return Abort("The user ended the turn.")
        match answer.lower():
            case "y" | "yes":
                return Approve()
            case "a" | "always":
                self._allowed.add(request.tool_name)
                return Approve()
            case "s" | "stop":
                return Abort("The user ended the turn.")
            case "" | "n" | "no":
                return Deny("The user did not approve this call.")
            case _:
                return Deny(f"The user did not approve this call: {answer}")

    def _find_reason(self, request: ApprovalRequest) -> str:
        """Return why a call is asked about, or ""."""
        if request.reason or self._asking == "needed":
            return request.reason
        if self._asking == "all":
            return f"Tool '{request.tool_name}' is about to run."
        is_trusted = "read" in request.tags or (self._asking == "auto" and request.tool_name in self._own)
        return "" if is_trusted else f"Tool '{request.tool_name}' does not only read."


def _read_line(question: str) -> str:
    if sys.stdin.isatty() and sys.stdout.isatty() and sys.stdout.fileno() == 1:
        return input(question).strip()
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()
