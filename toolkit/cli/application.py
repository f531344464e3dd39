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
_FILE = click.Path(dir_okay=False, path_type=Path)
_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(min=0)
_COUNT = click.IntRange(1)
_LIMIT = click.FloatRange(min=0, min_open=True)
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
        from toolkit.redaction import without_keys

        text = strip_hidden(without_keys(self.format(record)))
        click.secho(text if self._with_tracebacks else " ".join(text.split()), err=True, dim=True)


def _complete_source(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as Click calls it
    """Return the kinds of sources and the files that complete the word."""
    kind, colon, rest = incomplete.partition(":")
    if colon and kind == "openapi":
        return [CompletionItem(rest, type="file")]
    kinds = [CompletionItem(kind) for kind in _OFFERED_KINDS if kind.startswith(incomplete)]
    return [*kinds, CompletionItem(incomplete, type="file")]


def _complete_tool(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as Click calls it
    """Return the names of tools that need no import: those of a Python file, which is parsed and not run."""
    source = str(ctx.params.get("source") or "").partition(":")[0]
    names = _CODING_TOOLS if source == "coding" else _find_decorated(Path(source))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _find_decorated(path: Path) -> list[str]:
    """Return the names of the functions with decorators, which mostly are tools; a decorator may give another name."""
    try:
        tree = ast.parse(path.with_suffix(".py").read_bytes())
    except (OSError, ValueError, SyntaxError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    names: list[str] = []
    for function in [function for function in functions if function.decorator_list]:
        calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
        given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "name"]
        names.append(next((str(each.value) for each in given if isinstance(each, ast.Constant)), function.name))
    return names


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


def _make_option(words: str, text: str, name: str = "", **settings: Any) -> _Decorator:
    """Return an option of commands.

    The words are its flags and its value, as the help shows them: ``"--model -m NAME"``. Without a value and a type it
    is a flag; with a value and without settings it is a text, which is empty by default.
    """
    flags = [word for word in words.split() if word.startswith("-")]
    value = " ".join(words.split()[len(flags) :])
    defaults: dict[str, Any] = {"show_default": bool(settings.get("default")), "show_envvar": "envvar" in settings}
    if value:
        defaults |= {"metavar": value} if settings else {"metavar": value, "default": ""}
    elif "type" not in settings:
        defaults["is_flag"] = True
    return click.option(*flags, *filter(None, [name]), help=text, **{**defaults, **settings})


_log_option = _make_option(
    "--log PLACE",
    "Log the run there, for `toolkit runs`: a folder, or an SQLite file.",
    type=click.Path(path_type=Path),
)
_url_option = _make_option("--model-url URL", "The address of a server that is compatible with it.", "url")
_yes_option = _make_option("--yes -y", "Approve all calls without asking.", "is_approved")
_context_option = _make_option(
    "--ctx MODULE:NAME",
    "The function that makes the context of the tools, as in app:make_context or app.py:make_context: it has no "
    "parameters, and is sync, async or a context manager.",
    "context",
)
_place_option = _make_option(
    "--log PLACE",
    "Where the runs are: a folder, an SQLite file, or the URL of a database of durable runs.",
    default="runs",
    envvar="TOOLKIT_DATABASE",
)
_encryption_option = _make_option("--encryption NAME", "An `Encryption` of durable runs, as in app:encryption.")
_reason_option = _make_option("--reason TEXT", "For the model, or for the transcripts of cancelled runs.")
_timeout_option = _make_option(
    "--timeout SECONDS",
    "The time limit to open a source or make the context, and of an OpenAPI server.",
    type=_LIMIT,
    default=30.0,
)
_OUTPUT_OPTIONS = (
    _make_option(
        "--output -o",
        "The form of standard output: text for people, or JSON for programs.",
        type=click.Choice(["text", "json"]),
        default="text",
    ),
    _make_option("--traceback", "Show the traceback of an error, too.", expose_value=False),
)
_SOURCE_OPTIONS = (
    _timeout_option,
    _make_option("--env NAME", "Pass this environment variable on; may be repeated.", "variables", multiple=True),
    _make_option("--token-env NAME", "The variable that holds the token for a server at a URL.", "token_variable"),
    _make_option("--base-url URL", "Where the operations of an OpenAPI document are, if elsewhere."),
    _make_option(
        "--lock FILE", "Leave out tools of servers and plugins that differ from their pins; see `toolkit pin`."
    ),
    *_OUTPUT_OPTIONS,
)
_CONTEXT_OPTIONS = (_context_option, *_SOURCE_OPTIONS)
_FILTER_OPTIONS = (
    _make_option(
        "--state",
        "Runs in this state.",
        type=click.Choice(["queued", "running", "waiting", "done", "failed", "cancelled"]),
    ),
    _make_option("--loop NAME", "Durable runs of this loop.", default=None),
    _make_option("--tenant NAME", "Those of this tenant.", default=None),
    _make_option("--ending KIND", "Those with this ending or error, such as ProviderError.", default=None),
    _make_option("--error TEXT", "Those with this text in their error.", default=None),
    _make_option("--since TIME", "Those written at this time or later: 30m, 2h, 3d ago, or ISO 8601.", type=_Time()),
    _make_option("--before TIME", "Those that were last written before.", type=_Time()),
    _make_option(
        "--metadata NAME=VALUE",
        "Those with this in their metadata, a JSON value or a text; may be repeated.",
        multiple=True,
        callback=_read_metadata,
    ),
    _make_option("--text TEXT", "Those with an id, a tenant or metadata that begins so.", default=None),
)
_DURABLE_OPTIONS = (_place_option, _encryption_option, *_OUTPUT_OPTIONS)
_run_argument = click.argument("run", default="", metavar="[RUN]")
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
    """Add a command, or one of the group ``runs`` if its name begins with that word.

    Its work is a function of the `Command` and its options, as module:function, which is imported when the command
    runs; `fixed` are further arguments.
    """
    module, _, function = work.partition(":")

    def run(**options: Any) -> int:
        do_work: Callable[..., int] = getattr(importlib.import_module(f"toolkit.cli.{module}"), function)
        from toolkit.cli.screen import Command

        return do_work(Command.take(options), **fixed, **options)

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
    _make_option("--accept", "Pin what has changed, too."),
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
    _make_option("--json OBJECT", "All arguments as a JSON object; '-' reads standard input.", "text", default=None),
    _yes_option,
    _log_option,
    *_CONTEXT_OPTIONS,
)
_add_command(
    "serve",
    "tool_commands:serve_tools",
    "Serve the tools of SOURCE, by MCP or ACP.\n\nAs an MCP server, or with --acp as the agent of an editor.",
    _sources_argument,
    _make_option("--mcp", "How.", "transport", type=click.Choice(["stdio", "http"]), default="stdio"),
    _make_option(
        "--host NAME",
        "Where to listen; other than loopback requires --bearer-env and --allow-host.",
        default="127.0.0.1",
    ),
    _make_option("--port PORT", "0 takes a free one.", type=_PORT, default=8000),
    _make_option("--bearer-env NAME", "The variable that holds the token which clients must send.", "bearer_variable"),
    _make_option(
        "--allow-host NAME",
        "A host name of the server besides loopback; may be repeated.",
        "allowed_hosts",
        multiple=True,
    ),
    _make_option("--acp MODEL", "Be an editor's agent, with this model and the tools.", "model"),
    _make_option("--sessions", "With --acp: the database of sessions, which editors load again.", type=_FILE),
    *_CONTEXT_OPTIONS,
)
_add_command(
    "chat",
    "chatting:chat_with_model",
    """Chat with a model that has the tools.

    Without a terminal, the one question comes from --prompt or standard input, and what needs approval is refused.""",
    _sources_argument,
    _make_option(
        "--model -m NAME",
        "Such as openai:gpt-5-mini, anthropic:..., google:..., local: (offline, without a key), or FILE.py:NAME.",
        required=True,
        envvar="TOOLKIT_CHAT_MODEL",
    ),
    _url_option,
    _make_option("--prompt -p TEXT", "Ask this one question, and end."),
    _make_option("--system TEXT", "Instructions for the model.", "instructions"),
    _make_option(
        "--ask",
        "The calls that you are asked about: those whose tools require it (needed), also those of tools that do "
        "not only read (writes), or all. auto is 'needed' for your own Python, and 'writes' for tools from elsewhere.",
        "asking",
        type=click.Choice(["auto", "needed", "writes", "all"]),
        default="auto",
    ),
    _yes_option,
    _make_option("--continue", "Continue from a file that /save wrote.", "transcript", type=_FILE),
    _make_option("--record", "Record the exchanges with the model, for runs replay.", "cassette", type=_FILE),
    _make_option("--web", "Serve a page to chat on, on loopback, and print its link.", "is_web"),
    _make_option("--port PORT", "Where --web listens; 0 takes a free port.", type=_PORT, default=0),
    _log_option,
    *_CONTEXT_OPTIONS,
)
_add_command(
    "eval",
    "chatting:evaluate_tools",
    """Measure how well models call the tools.

    Each task is run with each model in each way. The figures have intervals. With --results an interrupted run
    continues where it stopped.""",
    _sources_argument,
    _make_option("--tasks FILE.yaml", "The tasks.", type=_FILE, required=True),
    _make_option("--model -m NAME", "The model; may be repeated.", "models", multiple=True, required=True),
    _url_option,
    _make_option(
        "--way",
        "How it is asked: by its own tool calls, by calls written as text, or guided by small steps; may be "
        "repeated. Without it a model is asked as `toolkit chat` asks it.",
        "ways",
        multiple=True,
        type=click.Choice(["native", "text", "guided"]),
    ),
    _make_option("--per-class N", "Only the first tasks of each class, that many.", type=_COUNT),
    _make_option("--results FILE.jsonl", "Store outcomes there, and run only what is missing.", type=_FILE),
    _make_option("--run-tools", "Run the tools; otherwise each call is answered as its task says.", "runs_tools"),
    _make_option("--max-tokens N", "The most of a reply.", type=_COUNT, default=256),
    _make_option("--max-turns N", "The most turns of a task.", type=_COUNT, default=5),
    _make_option("--task-timeout SECONDS", "The longest that a task may take.", type=_LIMIT, default=120.0),
    _make_option("--own-temperature", "Leave temperature and seed to the model: some accept no others."),
    *_CONTEXT_OPTIONS,
)
_add_command(
    "doctor",
    "tool_commands:examine_installation",
    "Check extras, keys, programs and models.\n\nOf models it also says how they are best asked for calls.",
    _make_option("--model -m NAME", "Ask this model for a word, too; may be repeated.", "models", multiple=True),
    _url_option,
    _make_option("--probe", "Try with each --model in which ways it can call tools.", "is_probing"),
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
    _make_option(
        "--database URL",
        "Where the runs are: sqlite:///runs.db, or postgresql://... for many machines.",
        required=True,
        envvar="TOOLKIT_DATABASE",
    ),
    _make_option("--concurrency N", "Concurrent runs of each loop.", type=_COUNT, default=100),
    _make_option(
        "--lease SECONDS",
        "The time without a heartbeat after which a worker counts as dead.",
        type=click.FloatRange(min=0.1),
        default=10.0,
    ),
    _make_option("--grace SECONDS", "The time for runs to come to rest at the end.", type=_SECONDS, default=10.0),
    _make_option("--keep-days N", "Delete runs that ended so many days ago.", type=_SECONDS),
    _encryption_option,
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs list",
    "run_commands:list_runs",
    "List the runs, the newest first.\n\nOf durable runs those of the filters, and how many are in each state.",
    _make_option("--limit N", "How many.", type=_COUNT, default=20),
    _make_option("--after RUN", "Only durable runs behind this one, the last of the page before.", default=None),
    *_FILTER_OPTIONS,
    *_DURABLE_OPTIONS,
)
_add_command("runs show", "run_commands:show_run", "Show the steps of a run.", _run_argument, *_DURABLE_OPTIONS)
_add_command(
    "runs export",
    "run_commands:write_export",
    "Write a run to standard output.\n\nFor other programs, people or pytest.",
    _run_argument,
    _place_option,
    _make_option(
        "--as",
        "JSON lines, a page to read, or a test that replays the run.",
        "form",
        type=click.Choice(["lines", "markdown", "test"]),
        default="lines",
    ),
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs view",
    "run_commands:view_runs",
    "Show the runs on a page in the browser.\n\nActive ones, too; nothing leaves this machine.",
    _place_option,
    _make_option("--port PORT", "Where to listen on loopback; 0 takes a free port.", type=_PORT, default=0),
    *_OUTPUT_OPTIONS,
)
_add_command(
    "runs decide",
    "run_commands:decide_call",
    "Decide on a CALL of a durable RUN.\n\nIts arguments are shown first.",
    click.argument("run"),
    click.argument("call_id", metavar="CALL"),
    click.argument("answer", type=click.Choice(["approve", "deny", "modify", "abort"])),
    _reason_option,
    _make_option("--arguments JSON", "The new arguments, for `modify`."),
    _yes_option,
    *_DURABLE_OPTIONS,
)
for _change, _meant in (
    ("cancel", "all of the filters that have not ended"),
    ("retry", "all of the filters that failed or were cancelled"),
    ("delete", "all of the filters that have ended"),
):
    _add_command(
        f"runs {_change}",
        "run_commands:change_runs",
        f"{_change.capitalize()} durable runs.\n\nThose named, or {_meant}.",
        click.argument("run_ids", nargs=-1, metavar="[RUN]..."),
        *([_reason_option] if _change == "cancel" else []),
        *_FILTER_OPTIONS,
        _yes_option,
        *_DURABLE_OPTIONS,
        change=_change,
    )
_add_command(
    "runs migrate",
    "run_commands:migrate_tables",
    "Migrate the tables of durable runs.\n\nTo this release, as its first worker does.",
    *_DURABLE_OPTIONS,
)
_add_command(
    "runs replay",
    "chatting:replay_cassette",
    """Show what `chat --record` recorded in CASSETTE.

    With --tools the same questions are asked again, offline: the recorded model answers, the tools run for real, and
    the exit code is 1 if the run differs.""",
    click.argument("cassette", type=_FILE),
    _make_option("--tools SOURCE", "Ask again, with these tools.", "sources", multiple=True),
    _yes_option,
    *_SOURCE_OPTIONS,
)
