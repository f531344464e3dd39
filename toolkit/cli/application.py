"""The command line as a whole: it is parsed and run, and an error is reported in one line with an exit code."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper

import click

from toolkit.cli.commands import command_line
from toolkit.cli.screen import CommandError, ExitCode
from toolkit.foreign_text import escape_in_text, strip_hidden

__all__ = ["run_command_line"]

_VARIABLE_OPTIONS = ("--env", "--token-env", "--bearer-env")
_SHORTEST_SECRET = 8  # shorter values of variables are settings
_SILENT = ("uvicorn", "asyncio")  # they log how they were ended


def run_command_line(program: str = "toolkit", arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments ask for, and return its exit code.

    Args:
        program: The name that help and errors show.
        arguments: Those of this process where None.
    """
    given = [_read_word(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # for a terminal that knows few letters
    try:
        with _show_logs(with_tracebacks="--traceback" in given):
            code = command_line.main(args=given, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        return _report_misuse(error, program, given)
    except Exception as error:  # noqa: BLE001 - the last place where it can be reported in a line
        return _report_error(error, given)
    return code if isinstance(code, int) else ExitCode.DONE


def _read_word(word: str) -> str:
    """Return a word of the command line, also where the locale is one that knows no such letters."""
    return word if word.isprintable() else os.fsencode(word).decode("utf-8", "replace")


def _report_misuse(error: click.ClickException, program: str, given: Sequence[str]) -> int:
    """Report that the command line itself is wrong."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = program if ctx is None else ctx.command_path
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError):
        message = f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{path} --help`."
    _write_error(message, path, ExitCode.MISUSED, given)
    return ExitCode.MISUSED


def _report_error(error: Exception, given: Sequence[str]) -> int:
    """Report the error; with a traceback only if that is asked for, or the mistake is this program's."""
    from toolkit.errors import ConfigurationError, ToolkitError

    is_expected = isinstance(error, CommandError | ToolkitError | ModuleNotFoundError | OSError)
    code = ExitCode.MISUSED if isinstance(error, ConfigurationError) else ExitCode.FAILED
    if isinstance(error, CommandError):
        code = error.code
    if "--traceback" in given or not is_expected:
        traceback.print_exception(error)
    message = str(error) or type(error).__name__
    _write_error(message if is_expected else f"{type(error).__name__}: {message}", "toolkit", code, given)
    return code


def _write_error(message: str, program: str, code: ExitCode, given: Sequence[str]) -> None:
    """Write an error as one line: with JSON output as a document on standard output, else on standard error."""
    from toolkit.secrets import without_keys, without_secrets

    shown = without_secrets(without_keys(message), _find_given_values(given), shortest=_SHORTEST_SECRET)
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    line = escape_in_text(" ".join(lines))
    if _wants_json(given):
        click.echo(json.dumps({"error": {"message": line, "exit_code": int(code)}}, ensure_ascii=False))
    else:
        click.echo(f"{program}: {line}", err=True)


def _find_given_values(given: Sequence[str]) -> list[str]:
    """Return the values of the variables that the command line names: a program that was given one may repeat it."""
    names = [other for one, other in zip(given, [*given[1:], ""], strict=True) if one in _VARIABLE_OPTIONS]
    names += [one.partition("=")[2] for one in given if one.partition("=")[0] in _VARIABLE_OPTIONS]
    return [os.environ[name] for name in names if name in os.environ]


def _wants_json(given: Sequence[str]) -> bool:
    pairs = zip(given, [*given[1:], ""], strict=True)
    return any(one == "--output=json" or (one in ("--output", "-o") and other == "json") for one, other in pairs)


@contextmanager
def _show_logs(*, with_tracebacks: bool) -> Generator[None]:
    """Show warnings and errors of all loggers on standard error."""
    handler, root = _NoteHandler(with_tracebacks=with_tracebacks), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _NoteHandler(logging.Handler):
    def __init__(self, *, with_tracebacks: bool) -> None:
        super().__init__(logging.WARNING)
        self._with_tracebacks = with_tracebacks
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        # The result of a tool that crashed says the same.
        if record.name.partition(".")[0] in _SILENT or (record.exc_info and not self._with_tracebacks):
            return
        text = strip_hidden(self.format(record))
        click.secho(text if self._with_tracebacks else " ".join(text.split()), err=True, dim=True)
