"""Output of a command: text for people or JSON for programs, progress on standard error, and how a command ends.

No character that a terminal would obey is ever written.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, TypeAlias

import click

from toolkit.errors import ConfigurationError, ToolkitError
from toolkit.foreign_text import escape_in_json, escape_in_text, strip_hidden
from toolkit.redaction import without_keys, without_secrets

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

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
    """The command can't go on.

    Args:
        message: The problem, and what would be right; shown as one line.
        code: The exit code.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        self.code = code
        super().__init__(message)


def report_error(error: Exception, program: str, given: Sequence[str]) -> ExitCode:
    """Write an error as one line, and return the exit code; the traceback of a mistake of this program, too.

    With JSON output the line is a document on standard output.

    Args:
        error: It may be one of Click's, about the command line itself.
        program: The name of the command.
        given: The words of the command line.
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
        traceback.print_exception(error)
    shown = without_secrets(without_keys(message), _find_given_values(given), shortest=_SHORTEST_SECRET)
    line = escape_in_text(" ".join(shown.split()))
    if _wants_json(given):
        click.echo(json.dumps({"error": {"message": line, "exit_code": int(code)}}, ensure_ascii=False))
    else:
        click.echo(f"{program}: {line}", err=True)
    return code


def _find_given_values(given: Sequence[str]) -> list[str]:
    """Return the values of the variables that the command line names: a program that was given one may repeat it."""
    names = [value for option, value in _pair_options(given) if option in _VARIABLE_OPTIONS]
    return [os.environ[name] for name in names if name in os.environ]


def _wants_json(given: Sequence[str]) -> bool:
    return any(option in ("--output", "-o") and value == "json" for option, value in _pair_options(given))


def _pair_options(given: Sequence[str]) -> list[tuple[str, str]]:
    """Return each word with the next one, and each ``option=value`` in its parts."""
    parts = [word.partition("=") for word in given]
    return [*pairwise(given), *((option, value) for option, _, value in parts)]


class Screen:
    """Standard output for what was asked for, standard error for everything else.

    All text passes `strip_hidden`: texts of models, tools and servers can move no cursor and set no title.

    Args:
        output: The form of standard output: text or JSON.

    Attributes:
        is_json: True where standard output takes JSON.
        is_terminal: True where standard output is a terminal, for which text is wrapped.
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
        """Write a JSON document to standard output, or a line of JSON."""
        text = json.dumps(value, ensure_ascii=False, indent=None if is_line else 2, default=str)
        click.echo("\n".join(map(escape_in_json, text.split("\n"))), file=self._out)
        self._out.flush()

    def note(self, text: str, style: Style = "faint") -> None:
        """Write a line to standard error."""
        self.end_line()
        click.echo(_paint_text(strip_hidden(text), style), err=True, color=self._colour)


class Steps:
    """The steps of long work, on standard error: a bar on a terminal, a line for each step elsewhere.

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
        self._task: TaskID | None = None
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def begin(self, text: str, *, total: int | None = None) -> None:
        """Begin a step, which replaces the one before.

        Args:
            text: The step, in words of this program: never text of a server or a model.
            total: How many pieces it has; None if unknown.
        """
        if not self._is_shown or text == self._text:
            return
        self._text = text
        if not sys.stderr.isatty():
            click.echo(text if total is None else f"{text} ({total:,})", err=True)
            return
        bar = self._bar = self._bar or _start_bar()
        if self._task is not None:
            bar.remove_task(self._task)
        self._task = bar.add_task(text, total=total)

    def advance(self, done: int, total: int | None = None) -> None:
        """Show how many pieces of the step are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None


def _start_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    text = TextColumn("{task.description}", markup=False)
    console = Console(stderr=True, highlight=False)
    bar = Progress(
        SpinnerColumn(), text, BarColumn(bar_width=20), TaskProgressColumn(), console=console, transient=True
    )
    bar.start()
    return bar


def _paint_text(text: str, style: Style) -> str:
    return click.style(text, **_STYLE_OPTIONS[style]) if _STYLE_OPTIONS[style] else text
