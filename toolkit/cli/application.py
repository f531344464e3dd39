"""The commands with their arguments and options; the command line, parsed and run.

Only Click is imported here, so that ``--help`` is quick: a command's work is imported when it runs.
"""

from __future__ import annotations

import ast
import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

_SILENT = ("uvicorn", "asyncio")  # they log how they were ended
_FILE_PATH = click.Path(dir_okay=False, path_type=Path)
_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(min=0)
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_EPILOG = """\b
SOURCE is one word that says where tools come from:
  file.py[:NAME]         Python: all tools in a file, or one, or a registry
  package.module[:NAME]  the same, by the name of a module
  tools.yaml             a file of tools: presets and plugins
  openapi:FILE|URL       the operations of an OpenAPI document
  mcp:COMMAND|URL        an MCP server: a program, in quotes, or a URL
  plugin:COMMAND         a program that speaks the plugin protocol
  coding[:FOLDER]        bash and five tools for files, over a folder

\b
Exit codes: 0 done, 1 failed, 2 wrong command, source or arguments,
3 not approved, 130 ended by Ctrl-C, 143 by a signal."""
_Decorator: TypeAlias = Callable[[Callable[..., int]], Callable[..., int]]
_OFFERED_KINDS = ("openapi:", "mcp:", "plugin:", "coding")
_CODING_TOOLS = ("bash", "read_file", "write_file", "edit_file", "list_files", "search")
_DECORATORS = ("tool", "tool_with_ctx")
_MOST_BYTES = 1_000_000
_log_option = click.option(
    "--log",
    type=click.Path(path_type=Path),
    metavar="PLACE",
    help="Log the run there, for `toolkit runs`: a folder, or an SQLite file.",
)
_url_option = click.option(
    "--model-url", "url", default="", metavar="URL", help="The address of a server that is compatible with it."
)
_yes_option = click.option("--yes", "-y", "is_approved", is_flag=True, help="Approve all calls without asking.")
_context_option = click.option(
    "--ctx",
    "context",
    default="",
    metavar="MODULE:NAME",
    help="The function that makes the context of the tools, as in app:make_context or app.py:make_context: it has no "
    "parameters, and is sync, async or a context manager.",
)
_place_option = click.option(
    "--log",
    default="runs",
    show_default=True,
    envvar="TOOLKIT_DATABASE",
    show_envvar=True,
    metavar="PLACE",
    help="Where the runs are: a folder, an SQLite file, or the URL of a database of durable runs.",
)
_run_argument = click.argument("run", default="", metavar="[RUN]")
_encryption_option = click.option(
    "--encryption", metavar="NAME", default="", help="An `Encryption` of durable runs, as in app:encryption."
)
_OUTPUT_OPTIONS = (
    click.option(
        "--output",
        "-o",
        type=click.Choice(["text", "json"]),
        default="text",
        help="The form of standard output: text for people, or JSON for programs.",
    ),
    click.option("--traceback", is_flag=True, expose_value=False, help="Show the traceback of an error, too."),
)
_SOURCE_OPTIONS = (
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="The time limit to open a source or make the context, and of an OpenAPI server.",
    ),
    click.option(
        "--env", "variables", multiple=True, metavar="NAME", help="Pass this environment variable on; may be repeated."
    ),
    click.option(
        "--token-env",
        "token_variable",
        default="",
        metavar="NAME",
        help="The variable that holds the token for a server at a URL.",
    ),
    click.option(
        "--base-url", default="", metavar="URL", help="Where the operations of an OpenAPI document are, if elsewhere."
    ),
    click.option(
        "--lock",
        default="",
        metavar="FILE",
        help="Leave out tools of servers and plugins that differ from what this file pins; see `toolkit pin`.",
    ),
    *_OUTPUT_OPTIONS,
)


def run_command_line(program: str = "toolkit", arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments ask for, and return its exit code.

    Args:
        program: The name that help and errors show.
        arguments: Those of this process where None.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
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
        return 1
    except (KeyboardInterrupt, click.Abort):
        return 130
    except Exception as error:  # noqa: BLE001 - the last place where it can be reported in a line
        from toolkit.cli.screen import report_error

        return report_error(error, program, given)
    return code if isinstance(code, int) else 0


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
        # A traceback is of a tool that crashed, whose result has the same message.
        if record.name.partition(".")[0] in _SILENT or (record.exc_info and not self._with_tracebacks):
            return
        from toolkit.foreign_text import strip_hidden

        text = strip_hidden(self.format(record))
        click.secho(text if self._with_tracebacks else " ".join(text.split()), err=True, dim=True)


def _complete_source(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as Click calls it
    """Return the kinds of sources and the files that complete the word."""
    kinds = [CompletionItem(kind) for kind in _OFFERED_KINDS if kind.startswith(incomplete)]
    kind, colon, rest = incomplete.partition(":")
    if colon and kind == "openapi":
        return [CompletionItem(rest, type="file")]
    return [*kinds, CompletionItem(incomplete, type="file")]


def _complete_tool(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as Click calls it
    """Return the names of tools that need no import: those of a Python file, which is parsed and not run."""
    source = str(ctx.params.get("source") or "")
    is_coding = source.partition(":")[0] == "coding"
    names = _CODING_TOOLS if is_coding else _find_decorated(source.partition(".py")[0] + ".py")
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _find_decorated(file: str) -> list[str]:
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            return []
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for function in functions for name in _read_tool_names(function)]


def _read_tool_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the name of the tool that a function is decorated as, in a list; an empty list if it is none."""
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        called = call.func if call is not None else decorator
        word = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if word in _DECORATORS:
            given = [keyword.value for keyword in (call.keywords if call else ()) if keyword.arg == "name"]
            return [str(value.value) for value in given if isinstance(value, ast.Constant)] or [function.name]
    return []


class _Time(click.ParamType[float]):
    """A time in seconds since 1970, given as ISO 8601 or as a duration before now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        units = {"m": 60, "h": 3_600, "d": 86_400}
        try:
            if value[-1] in units:
                return time.time() - float(value[:-1]) * units[value[-1]]
            return datetime.fromisoformat(value).astimezone().timestamp()
        except ValueError:
            self.fail(f"{value!r} is no time: write 30m, 2h, 3d, or 2026-11-23T04:00", param, ctx)


def _read_metadata(ctx: click.Context, parameter: click.Parameter, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the pairs as a dict; a value that is no JSON is a text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is no NAME=VALUE", ctx, parameter)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


_FILTER_OPTIONS = (
    click.option("--state", type=click.Choice(["queued", "running", "waiting", "done", "failed", "cancelled"])),
    click.option("--loop", metavar="NAME", help="Durable runs of this loop."),
    click.option("--tenant", metavar="NAME", help="Those of this tenant."),
    click.option("--ending", metavar="KIND", help="Those with this ending or error, such as ProviderError."),
    click.option("--error", metavar="TEXT", help="Those with this text in their error."),
    click.option("--since", type=_Time(), help="Those written at this time or later: 30m, 2h, 3d ago, or ISO 8601."),
    click.option("--before", type=_Time(), help="Those that were last written before."),
    click.option(
        "--metadata",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_read_metadata,
        help="Those with this in their metadata, a JSON value or a text; may be repeated.",
    ),
    click.option("--text", metavar="TEXT", help="Those with an id, a tenant or metadata that begins so."),
)


_source_argument = click.argument("source", shell_complete=_complete_source)
_sources_argument = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=_complete_source
)


@click.group(context_settings=_CONTEXT, epilog=_EPILOG)
@click.version_option(package_name="toolkit-sdk", message="toolkit %(version)s", help="Show the version.")
def command_line() -> None:
    """List, check, call and serve tools for language models, and chat with a model that has them."""


@command_line.group("runs")
def runs_group() -> None:
    """Show logged runs, and manage durable ones.

    RUN is the beginning of the id of a run; the default is the newest one.
    """


def _add_command(name: str, work: str, text: str, *parts: _Decorator, **fixed: Any) -> None:
    """Add a command.

    Args:
        name: Its name; of one of the group ``runs``, behind that word.
        work: The function that does its work, as module:function; it is imported when the command runs.
        text: Its help.
        parts: Its arguments and options, in the order of its help.
        fixed: Further arguments of the function.
    """
    module, _, function = work.partition(":")

    def run(**options: Any) -> int:
        code: int = getattr(importlib.import_module(f"toolkit.cli.{module}"), function)(**fixed, **options)
        return code

    for part in reversed(parts):
        run = part(run)
    group = runs_group if name.startswith("runs ") else command_line
    group.command(name.removeprefix("runs "), help=text)(run)


_add_command(
    "tools",
    "tool_commands:list_tools",
    "List the tools of SOURCE, or show one of them.",
    _source_argument,
    click.argument("name", required=False),
    *_SOURCE_OPTIONS,
)
_add_command(
    "lint",
    "tool_commands:lint_tools",
    """Report problems of the tools of SOURCE.

    They are legal, and still make models fail. In a package, all modules are checked. The exit code is 1 if there are
    any.""",
    _source_argument,
    *_SOURCE_OPTIONS,
)
_add_command(
    "pin",
    "tool_commands:pin_tools",
    """Pin the tools of SOURCE, show changes.

    SOURCE is an MCP server or a plugin. The file is toolkit.lock unless --lock names another. The exit code is 1 if
    something has changed since the tools were pinned and is not accepted.""",
    _sources_argument,
    click.option("--accept", is_flag=True, help="Pin what has changed, too."),
    *_SOURCE_OPTIONS,
)
_add_command(
    "call",
    "tool_commands:call_once",
    """Call the tool NAME of SOURCE.

    A VALUE is text where the tool takes text, else JSON; a KEY that is repeated makes a list.""",
    _source_argument,
    click.argument("name", shell_complete=_complete_tool),
    click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]..."),
    click.option("--json", "text", metavar="OBJECT", help="All arguments as a JSON object; '-' reads standard input."),
    _yes_option,
    _log_option,
    _context_option,
    *_SOURCE_OPTIONS,
)
_add_command(
    "serve",
    "tool_commands:serve_tools",
    "Serve the tools of SOURCE, by MCP or ACP.\n\nAs an MCP server, or with --acp as the agent of an editor.",
    _sources_argument,
    click.option(
        "--mcp", "transport", type=click.Choice(["stdio", "http"]), default="stdio", show_default=True, help="How."
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Where to listen; other than loopback requires --bearer-env and --allow-host.",
    ),
    click.option("--port", type=_PORT, default=8000, show_default=True, help="0 takes a free one."),
    click.option(
        "--bearer-env",
        "bearer_variable",
        default="",
        metavar="NAME",
        help="The variable that holds the token which clients must send.",
    ),
    click.option(
        "--allow-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="A host name of the server besides loopback; may be repeated.",
    ),
    click.option(
        "--acp", "model", default="", metavar="MODEL", help="Be an editor's agent, with this model and the tools."
    ),
    click.option("--sessions", type=_FILE_PATH, help="With --acp: the database of sessions, which editors load again."),
    _context_option,
    *_SOURCE_OPTIONS,
)
_add_command(
    "chat",
    "chatting:chat_with_model",
    """Chat with a model that has the tools.

    Without a terminal, the one question comes from --prompt or standard input, and what needs approval is refused.""",
    _sources_argument,
    click.option(
        "--model",
        "-m",
        required=True,
        envvar="TOOLKIT_CHAT_MODEL",
        show_envvar=True,
        help="Such as openai:gpt-5-mini, anthropic:..., google:..., local: (offline, without a key), or FILE.py:NAME.",
    ),
    _url_option,
    click.option("--prompt", "-p", default="", help="Ask this one question, and end."),
    click.option("--system", "instructions", default="", metavar="TEXT", help="Instructions for the model."),
    click.option(
        "--ask",
        "asking",
        type=click.Choice(["auto", "needed", "writes", "all"]),
        default="auto",
        help="The calls that you are asked about: those whose tools require it (needed), also those of tools that do "
        "not only read (writes), or all. auto is 'needed' for your own Python, and 'writes' for tools from elsewhere.",
    ),
    _yes_option,
    click.option("--continue", "transcript", type=_FILE_PATH, help="Continue from a file that /save wrote."),
    click.option("--record", "cassette", type=_FILE_PATH, help="Record the exchanges with the model, for runs replay."),
    click.option("--web", "is_web", is_flag=True, help="Serve a page to chat on, on loopback, and print its link."),
    click.option("--port", type=_PORT, default=0, help="Where --web listens; 0 takes a free port."),
    _log_option,
    _context_option,
    *_SOURCE_OPTIONS,
)
_add_command(
    "eval",
    "chatting:evaluate_tools",
    """Measure how well models call the tools.

    Each task is run with each model in each way. The figures have intervals. With --results an interrupted run
    continues where it stopped.""",
    _sources_argument,
    click.option("--tasks", type=_FILE_PATH, required=True, metavar="FILE.yaml", help="The tasks."),
    click.option("--model", "-m", "models", multiple=True, required=True, help="The model; may be repeated."),
    _url_option,
    click.option(
        "--way",
        "ways",
        multiple=True,
        type=click.Choice(["native", "text", "guided"]),
        help="How it is asked: by its own tool calls, by calls written as text, or guided by small steps; may be "
        "repeated. Without it a model is asked as `toolkit chat` asks it.",
    ),
    click.option("--per-class", type=click.IntRange(1), help="Only the first tasks of each class, that many."),
    click.option(
        "--results", type=_FILE_PATH, metavar="FILE.jsonl", help="Store outcomes there, and run only what is missing."
    ),
    click.option(
        "--run-tools",
        "runs_tools",
        is_flag=True,
        help="Run the tools; otherwise each call is answered with what the task says it returns.",
    ),
    click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True, help="The most of a reply."),
    click.option("--max-turns", type=click.IntRange(1), default=5, show_default=True, help="The most turns of a task."),
    click.option(
        "--task-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=120.0,
        show_default=True,
        metavar="SECONDS",
        help="The longest that a task may take.",
    ),
    click.option(
        "--own-temperature", is_flag=True, help="Leave temperature and seed to the model: some accept no others."
    ),
    _context_option,
    *_SOURCE_OPTIONS,
)
_add_command(
    "doctor",
    "tool_commands:examine_installation",
    "Check extras, keys, programs and models.\n\nOf models it also says how they are best asked for calls.",
    click.option("--model", "-m", "models", multiple=True, help="Ask this model for a word, too; may be repeated."),
    _url_option,
    click.option("--probe", "is_probing", is_flag=True, help="Try with each --model in which ways it can call tools."),
    *_OUTPUT_OPTIONS,
)
_add_command(
    "demo",
    "demo:run_demo",
    "Let a local model call functions.\n\nIt runs offline, on this machine, without a key.",
    *_OUTPUT_OPTIONS,
)
_add_command(
    "worker",
    "run_commands:run_worker",
    """Execute durable runs of each LOOP.

    It runs until SIGTERM or Ctrl-C. LOOP is what durable_loop returned, as in app:support or app.py:support; app alone
    means all in it.""",
    click.argument("words", nargs=-1, required=True, metavar="LOOP..."),
    click.option(
        "--database",
        required=True,
        envvar="TOOLKIT_DATABASE",
        show_envvar=True,
        metavar="URL",
        help="Where the runs are: sqlite:///runs.db, or postgresql://... for many machines.",
    ),
    click.option(
        "--concurrency", type=click.IntRange(1), default=100, show_default=True, help="Concurrent runs of each loop."
    ),
    click.option(
        "--lease",
        type=click.FloatRange(min=0.1),
        default=10.0,
        show_default=True,
        help="Seconds without a heartbeat after which a worker counts as dead.",
    ),
    click.option(
        "--grace", type=_SECONDS, default=10.0, show_default=True, help="Seconds for runs to come to rest at the end."
    ),
    click.option("--keep-days", type=_SECONDS, help="Delete runs that ended so many days ago."),
    _encryption_option,
    *_OUTPUT_OPTIONS,
)


_add_command(
    "runs list",
    "run_commands:list_runs",
    "List the runs, the newest first.\n\nOf durable runs those of the filters, and how many are in each state.",
    _place_option,
    click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many."),
    click.option("--after", metavar="RUN", help="Only durable runs behind this one, the last of the page before."),
    *_FILTER_OPTIONS,
    _encryption_option,
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs show",
    "run_commands:show_run",
    "Show the steps of a run.",
    _run_argument,
    _place_option,
    _encryption_option,
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs export",
    "run_commands:write_export",
    "Write a run to standard output.\n\nFor other programs, people or pytest.",
    _run_argument,
    _place_option,
    click.option(
        "--as",
        "form",
        type=click.Choice(["lines", "markdown", "test"]),
        default="lines",
        show_default=True,
        help="JSON lines, a page to read, or a test that replays the run.",
    ),
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs view",
    "run_commands:view_runs",
    "Show the runs on a page in the browser.\n\nActive ones, too; nothing leaves this machine.",
    _place_option,
    click.option("--port", type=_PORT, default=0, help="Where to listen on loopback; 0 takes a free port."),
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs decide",
    "run_commands:decide_call",
    "Decide on a CALL of a durable RUN.\n\nIts arguments are shown first.",
    click.argument("run"),
    click.argument("call_id", metavar="CALL"),
    click.argument("answer", type=click.Choice(["approve", "deny", "modify", "abort"])),
    click.option("--reason", default="", help="For the model, where it is denied or aborted."),
    click.option("--arguments", default="", metavar="JSON", help="The new arguments, for `modify`."),
    _place_option,
    _encryption_option,
    _yes_option,
    *_OUTPUT_OPTIONS,
)
_reason_option = click.option("--reason", default="", help="For their transcripts.")
for _change, _text, _more in (
    ("cancel", "Cancel durable runs.\n\nThose named, or all of the filters that have not ended.", (_reason_option,)),
    ("retry", "Retry durable runs.\n\nThose named, or all of the filters, that failed or were cancelled.", ()),
    ("delete", "Delete durable runs.\n\nThose named, which are at rest, or all of the filters that have ended.", ()),
):
    _add_command(
        f"runs {_change}",
        "run_commands:change_runs",
        _text,
        click.argument("run_ids", nargs=-1, metavar="[RUN]..."),
        *_more,
        *_FILTER_OPTIONS,
        _place_option,
        _encryption_option,
        _yes_option,
        *_OUTPUT_OPTIONS,
        change=_change,
    )
_add_command(
    "runs migrate",
    "run_commands:migrate_tables",
    "Migrate the tables of durable runs.\n\nTo this release, as its first worker does.",
    _place_option,
    _encryption_option,
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs replay",
    "chatting:replay_cassette",
    """Show what `chat --record` recorded in CASSETTE.

    With --tools the same questions are asked again, offline: the recorded model answers, the tools run for real, and
    the exit code is 1 if the run differs.""",
    click.argument("cassette", type=_FILE_PATH),
    click.option("--tools", "sources", multiple=True, metavar="SOURCE", help="Ask again, with these tools."),
    _yes_option,
    *_SOURCE_OPTIONS,
)
