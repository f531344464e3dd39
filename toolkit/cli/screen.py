"""The terminal of a command: output for people or programs, questions, signals, errors and exit codes.

Terminal control characters are never written. Questions are asked on the main thread; the event loop runs on another
one. So Ctrl-C works at once whatever a tool does, a question never blocks a server's session, and everything that was
started is closed in order.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from enum import IntEnum
from itertools import pairwise
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, TypeAlias, cast

import anyio
import click

from toolkit.calls.approval import Abort, Approval, ApprovalRequest, Approve, Defer, Deny
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolkitError
from toolkit.foreign_text import escape_in_json, escape_in_name, escape_in_text, strip_hidden
from toolkit.redaction import without_keys, without_secrets
from toolkit.runtime.backend import LoopWaker, loop_waker

if TYPE_CHECKING:
    from rich.progress import Progress


OutputFormat: TypeAlias = Literal["text", "json"]
Style: TypeAlias = Literal["plain", "strong", "faint", "good", "bad", "call"]

_STYLE_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strong": {"bold": True},
    "faint": {"dim": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "call": {"fg": "cyan"},
}
_NARROWEST = 20
_VARIABLE_OPTIONS = ("--env", "--token-env", "--bearer-env")
_SHORTEST_SECRET = 8  # shorter values of variables are settings


class ExitCode(IntEnum):
    """The exit codes of the process; `docs/command_line.md` lists them."""

    DONE = 0
    FAILED = 1
    MISUSED = 2
    NOT_APPROVED = 3
    INTERRUPTED = 130
    TERMINATED = 143


class CommandError(Exception):
    """The command can't continue; the message says the problem and what would be right, in one line."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        self.code = code
        super().__init__(message)


class MisuseError(CommandError):
    """The command, its source or its arguments are wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.MISUSED)


def report_error(error: Exception, program: str, given: Sequence[str]) -> ExitCode:
    """Write an error as one line, and return the exit code; add the traceback of an unexpected one.

    With JSON output, which the given words of the command line ask for, the line is a document on standard output.
    """
    message, code = str(error) or type(error).__name__, ExitCode.FAILED
    is_expected = isinstance(error, CommandError | ToolkitError | ModuleNotFoundError | OSError | click.ClickException)
    if isinstance(error, CommandError):
        code = error.code
    elif isinstance(error, ConfigurationError | click.ClickException):
        code = ExitCode.MISUSED
    if isinstance(error, click.UsageError):
        program = program if error.ctx is None else error.ctx.command_path
        stop = "" if error.format_message().endswith((".", "?")) else "."
        message = f"{error.format_message()}{stop} See `{program} --help`."
    else:
        program = "toolkit"
    if not is_expected:
        message = f"{type(error).__name__}: {message}"
    if not is_expected or ("--traceback" in given and not isinstance(error, click.ClickException)):
        click.echo(_strike_given("".join(traceback.format_exception(error)), given), err=True, nl=False)
    line = escape_in_text(" ".join(_strike_given(message, given).split()))
    if _wants_json(given):
        click.echo(json.dumps({"error": {"message": line, "exit_code": int(code)}}, ensure_ascii=False))
    else:
        click.echo(f"{program}: {line}", err=True)
    return code


def _strike_given(text: str, given: Sequence[str]) -> str:
    return without_secrets(without_keys(text), _find_given_values(given), shortest=_SHORTEST_SECRET)


def _find_given_values(given: Sequence[str]) -> list[str]:
    """Return the values of the environment variables that the command line names: an error may contain one."""
    names = [value for option, value in _pair_options(given) if option in _VARIABLE_OPTIONS]
    return [os.environ[name] for name in names if name in os.environ]


def _wants_json(given: Sequence[str]) -> bool:
    return any(option in ("--output", "-o") and value == "json" for option, value in _pair_options(given))


def _pair_options(given: Sequence[str]) -> list[tuple[str, str]]:
    """Return each word with the next one, and each ``option=value`` in its parts."""
    parts = [word.partition("=") for word in given]
    return [*pairwise(given), *((option, value) for option, _, value in parts)]


class Screen:
    """Writes results to standard output, in text or JSON, and everything else to standard error.

    All text passes `strip_hidden`: texts of models, tools and servers can move no cursor and set no title.
    """

    def __init__(self, output: OutputFormat = "text") -> None:
        self._out: TextIO = sys.stdout  # of now: it is redirected while tools run
        self.is_json: bool = output == "json"
        self.is_terminal: bool = self._out.isatty()
        self._colour: bool | None = False if os.environ.get("NO_COLOR") else None
        self._is_at_start = True

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return max(shutil.get_terminal_size().columns, _NARROWEST)

    def say(self, text: str = "", style: Style = "plain") -> None:
        """Write a line to standard output; nothing in JSON mode, where `document` writes."""
        self.stream(f"{text}\n", style)

    def stream(self, text: str, style: Style = "plain") -> None:
        """Write a piece of a line at once."""
        plain = "" if self.is_json else strip_hidden(text)
        if plain:
            self._is_at_start = plain.endswith("\n")
            click.echo(_paint_text(plain, style), file=self._out, nl=False, color=self._colour)
            self._out.flush()

    def end_line(self) -> None:
        """Begin a new line unless the last one is empty."""
        if not self._is_at_start:
            self.say()

    def paragraph(self, text: str, *, indent: int = 0, style: Style = "plain") -> None:
        """Write text in lines that fit the terminal; elsewhere lines are not wrapped."""
        before = " " * indent
        for line in strip_hidden(text).split("\n"):
            if self.is_terminal and len(line) + indent > self.width:
                self.say(textwrap.fill(line, self.width, initial_indent=before, subsequent_indent=before), style)
            else:
                self.say(f"{before}{line}".rstrip(), style)

    def document(self, value: Any, *, is_line: bool = False) -> None:
        """Write a JSON document to standard output, or a line of JSON; nothing in text mode."""
        if not self.is_json:
            return
        text = json.dumps(value, ensure_ascii=False, indent=None if is_line else 2, default=str)
        click.echo("\n".join(map(escape_in_json, text.split("\n"))), file=self._out)
        self._out.flush()

    def note(self, text: str, style: Style = "faint") -> None:
        """Write a line to standard error."""
        self.end_line()
        click.echo(_paint_text(strip_hidden(text), style), err=True, color=self._colour)


class Steps:
    """Shows the progress of long work on standard error: a bar on a terminal, a line for each step elsewhere.

    ::

        with Steps() as steps:
            steps.begin("reading the document")
            steps.begin("making tools", total=1000)
            steps.advance(10, 1000)

    Args:
        is_shown: False shows nothing.
    """

    def __init__(self, *, is_shown: bool = True) -> None:
        self._is_shown = is_shown
        self._bar: Progress | None = None
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.end()

    def begin(self, text: str, *, total: int | None = None) -> None:
        """Begin a step, which replaces the one before, of so many pieces; never with text of a server or a model."""
        if not self._is_shown or text == self._text:
            return
        self._text = text
        if not sys.stderr.isatty():
            click.echo(text if total is None else f"{text} ({total:,})", err=True)
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

            words = TextColumn("{task.description}", markup=False)
            console = Console(stderr=True, highlight=False)
            self._bar = Progress(
                SpinnerColumn(), words, BarColumn(20), TaskProgressColumn(), console=console, transient=True
            )
            self._bar.start()
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.add_task(text, total=total)

    def advance(self, done: int, total: int | None = None) -> None:
        """Show how many pieces of the step are done."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _paint_text(text: str, style: Style) -> str:
    return click.style(text, **_STYLE_OPTIONS[style]) if _STYLE_OPTIONS[style] else text


Asking: TypeAlias = Literal["needed", "writes", "all", "auto"]
"""The calls that are asked about: those whose tools require it; also those of tools that do not only read; or all.
``auto`` is ``needed`` for tools of the user's own Python, and ``writes`` for those from elsewhere."""

_CHOICES = "Run it? [y]es, [n]o, [a]lways, [s]top, or say why not: "

_SECONDS_TO_END = 5.0
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class WasInterruptedError(Exception):
    """Ctrl-C was pressed at a question."""


class Terminal:
    """Runs the event loop of a command, asks questions for it, and handles signals.

    Ctrl-C ends the command, or does what `on_interrupt` says; a second one that comes after five seconds, in which the
    command did not end, ends the process by force. SIGTERM and SIGHUP always end the command.

    Attributes:
        is_interactive: True if a person can be asked: standard input and standard error are terminals.
    """

    def __init__(self) -> None:
        is_input_closed = cast("object", sys.stdin) is None  # as for a service
        self.is_interactive: bool = not is_input_closed and sys.stdin.isatty() and sys.stderr.isatty()
        self._questions: SimpleQueue[tuple[str, Future[str]] | None] = SimpleQueue()
        self._is_asking = False
        self._interrupt: Callable[[], object] | None = None
        self._scope: tuple[LoopWaker, anyio.CancelScope] | None = None
        self._signalled: ExitCode | None = None
        self._signalled_at = 0.0

    def run(self, main: Callable[[], Awaitable[int]]) -> int:
        """Run `main` to its end and return its exit code, or that of the signal which ended it."""
        outcome: Future[int] = Future()
        loop = threading.Thread(target=self._run_loop, args=(main, outcome), name="toolkit", daemon=True)
        with self._handle_signals():
            loop.start()
            while (asked := self._questions.get()) is not None:
                self._answer_question(*asked)
            loop.join()
        return outcome.result() if self._signalled is None else self._signalled

    async def ask(self, question: str) -> str:
        """Return the line that the person types; raise `WasInterruptedError` for Ctrl-C, EOFError at the end."""
        answer, answered, wake = Future[str](), anyio.Event(), loop_waker()
        answer.add_done_callback(lambda _: wake(answered.set))
        self._questions.put((question, answer))
        await answered.wait()
        return answer.result()

    def _answer_question(self, question: str, answer: Future[str]) -> None:
        try:
            self._is_asking = True
            try:
                line = _read_line(question)
            finally:
                self._is_asking = False
        except KeyboardInterrupt:
            answer.set_exception(WasInterruptedError())
        except Exception as error:  # noqa: BLE001 - it is raised where the question was asked
            answer.set_exception(error)
        else:
            answer.set_result(line)

    @contextmanager
    def on_interrupt(self, action: Callable[[], object]) -> Generator[None]:
        """Have Ctrl-C do `action`, which may be called on any thread, instead of ending the command."""
        before, self._interrupt = self._interrupt, action
        try:
            yield
        finally:
            self._interrupt = before

    def _run_loop(self, main: Callable[[], Awaitable[int]], outcome: Future[int]) -> None:
        async def run_in_scope() -> int:
            with anyio.CancelScope() as scope:
                self._scope = (loop_waker(), scope)
                if self._signalled is not None:
                    scope.cancel()
                return await main()
            return ExitCode.INTERRUPTED

        try:
            outcome.set_result(anyio.run(run_in_scope))
        except BaseException as error:  # noqa: BLE001 - it is raised on the main thread
            outcome.set_exception(error)
        finally:
            self._questions.put(None)

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
            os.write(2, b"\ntoolkit: ended by force: child processes may still run\n")
            os._exit(self._signalled)
        if self._is_asking:
            raise KeyboardInterrupt

    def _end_command(self, code: ExitCode) -> None:
        self._signalled, self._signalled_at = code, time.monotonic()
        if self._scope is not None:
            wake, scope = self._scope
            wake(scope.cancel)


_SOURCE_OPTIONS = ("timeout", "variables", "token_variable", "base_url", "lock", "context")


@dataclass(frozen=True, slots=True)
class Command:
    """The screen and the terminal of a command, and the options of its sources, if it has some."""

    screen: Screen
    terminal: Terminal
    source_options: Mapping[str, Any]

    @classmethod
    def take(cls, options: dict[str, Any]) -> Command:
        """Return the command of these options, and remove those that it has from them."""
        found = {name: options.pop(name) for name in _SOURCE_OPTIONS if name in options}
        return cls(Screen(options.pop("output")), Terminal(), found)

    @property
    def timeout(self) -> float:
        """The seconds that a source, a context or a module may take."""
        return float(self.source_options["timeout"])


class Approver:
    """Decides on calls; after "always", a tool is not asked about again.

    The names of the user's own tools say which calls "auto" asks about.
    """

    def __init__(self, command: Command, asking: Asking, own: Collection[str] = (), *, approves_all: bool) -> None:
        self._screen, self._terminal = command.screen, command.terminal
        self._asking, self._own, self._approves_all = asking, own, approves_all
        self._allowed: set[str] = set()
        self._one_at_a_time = anyio.Lock()
        self.has_refused = False

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Return a decision, asking the person if needed."""
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

    async def put_off(self, request: ApprovalRequest) -> Approval:
        """Return a decision, deferred to the page that shows the call if a person is needed."""
        return Approve() if self._approves_all or not self._find_reason(request) else Defer()

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
        """Return the reason to ask about a call, or ""."""
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
