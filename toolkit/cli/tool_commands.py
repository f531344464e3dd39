"""The commands ``tools``, ``lint``, ``pin``, ``call``, ``serve`` and ``doctor``."""

from __future__ import annotations

import errno
import importlib
import json
import locale
import os
import pkgutil
import platform
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from toolkit.calls.events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, ToolProgress
from toolkit.calls.registration import Registration
from toolkit.chat import AssistantMessage, Provider, ToolCall, ToolResult, dump_messages
from toolkit.cli.run_commands import log_runs
from toolkit.cli.screen import Approver, Command, CommandError, ExitCode, MisuseError, Screen, Steps, Style
from toolkit.cli.sources import (
    OpenedTools,
    gather_registries,
    import_module,
    leave_out_unusable,
    open_model,
    read_model,
    read_variable,
    run_with_tools,
)
from toolkit.dataclass import dataclass
from toolkit.errors import UnknownToolNameError
from toolkit.foreign_text import escape_in_text
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.events import LoopEvent
from toolkit.loop.handle import tool_loop
from toolkit.loop.middleware import Middleware
from toolkit.parsing import advise_calling, probe_calling
from toolkit.redaction import without_keys
from toolkit.schema.nodes import Nodes, is_array
from toolkit.sources.pins import PinnedChange
from toolkit.testing import ScriptedProvider
from toolkit.tools.registry import Finding, ToolRegistry

_Findings: TypeAlias = list[tuple[str, Finding]]  # each with the place of its tool
_MANY = 100
_PORT_PROBLEMS = {
    errno.EADDRINUSE: "is in use: choose another by --port, or 0 for one that is free",
    errno.EACCES: "may not be taken by this user: choose one above 1023 by --port",
}


def list_tools(command: Command, source: str, name: str | None) -> int:
    """Write the tools of a source, or one of them with its schema."""
    screen = command.screen

    async def write_tools(tools: OpenedTools) -> int:
        if name is not None:
            _write_tool(screen, _find_registration(tools.registry, name))
        else:
            screen.document({"tools": [_describe_tool(each) for each in tools.registry.registrations.values()]})
            show_tools(screen, tools.registry)
        return ExitCode.DONE

    return run_with_tools(command, [source], write_tools)


def show_tools(screen: Screen, registry: ToolRegistry[Any]) -> None:
    """Write the tools for a person; without a terminal, one per line: its name, a tab, and its summary."""
    for registration in registry.registrations.values():
        summary = (registration.definition.description.strip() or "(no description)").split("\n")[0]
        if not screen.is_terminal:
            screen.say(f"{registration.name}\t{summary}")
            continue
        signature, marks = _write_signature(registration), _write_marks(registration)
        room = screen.width - len(registration.name) - len(signature)
        screen.stream(registration.name, "strong")
        screen.stream(signature if room >= 0 else "(...)")
        screen.say(marks if room >= len(marks) else "", "faint")
        screen.paragraph(summary, indent=4)
    if screen.is_terminal:
        screen.note(count_tools(len(registry)))


def count_tools(count: int) -> str:
    """Return a text such as "2 tools"."""
    return f"{count:,} tool{'' if count == 1 else 's'}"


def _find_registration(registry: ToolRegistry[Any], name: str) -> Registration[Any]:
    registration = registry.registrations.get(name)
    if registration is None:
        raise UnknownToolNameError(name, registry.names)
    return registration


def _describe_tool(registration: Registration[Any]) -> dict[str, Any]:
    """Return a tool as JSON; the keys are part of the interface."""
    definition, options = registration.definition, registration.options
    return {
        "name": registration.name,
        "description": definition.description,
        "parameters": definition.parameters,
        "output_schema": definition.output_schema,
        "tags": sorted(options.tags),
        "needs_approval": bool(options.requires_approval),
        "needs_context": registration.needs_context,
    }


def _write_tool(screen: Screen, registration: Registration[Any]) -> None:
    screen.document(_describe_tool(registration))
    screen.stream(registration.name, "strong")
    screen.stream(_write_signature(registration))
    screen.say(_write_marks(registration), "faint")
    screen.paragraph(registration.definition.description or "(no description)", indent=4)
    screen.say(json.dumps(registration.definition.parameters, indent=2, ensure_ascii=False))


def _write_signature(registration: Registration[Any]) -> str:
    """Return the parameters of a tool in brackets; optional ones have a question mark."""
    parameters = registration.definition.parameters
    required = set(parameters.get("required", ()))
    names = [name if name in required else f"{name}?" for name in parameters.get("properties", {})]
    return f"({', '.join(names)})"


def _write_marks(registration: Registration[Any]) -> str:
    """Return the tags of a tool, and whether it needs approval or a context."""
    marks = sorted(registration.options.tags)
    marks += ["needs approval"] if registration.options.requires_approval else []
    marks += ["needs a context"] if registration.needs_context is not None else []
    return f"  [{', '.join(marks)}]" if marks else ""


def lint_tools(command: Command, source: str) -> int:
    """Write the findings; return 1 if there are any, or a module of a package fails."""
    screen = command.screen
    if source.replace(".", "").isidentifier() and not source.endswith((".py", ".yaml", ".yml")) and source != "coding":
        module = import_module(source, command.timeout)
        if hasattr(module, "__path__"):
            return _lint_package(screen, module, command.timeout)

    async def lint_registry(tools: OpenedTools) -> int:
        count = len(tools.registry)
        if count > _MANY:
            tools.steps.begin(f"checking {count_tools(count)}")
        findings = await anyio.to_thread.run_sync(tools.registry.lint, abandon_on_cancel=True)
        tools.steps.end()
        return _write_findings(screen, [(tools.label, finding) for finding in findings], count)

    return run_with_tools(command, [source], lint_registry)


def pin_tools(command: Command, sources: Sequence[str], *, accept: bool) -> int:
    """Pin the tools of sources and write the changes; return 1 if these are not accepted."""
    screen = command.screen
    others = [source for source in sources if source.partition(":")[0] not in ("mcp", "plugin")]
    if others:
        shown = escape_in_text(others[0])
        raise MisuseError(f"{shown} can't be pinned: pins are for MCP servers and plugins")
    changes: list[PinnedChange] = []

    def decide(change: PinnedChange) -> bool:
        changes.append(change)
        return accept

    async def write_changes(tools: OpenedTools) -> int:
        plain = [{"server": each.server, "tool": each.tool, "diff": each.diff} for each in changes]
        screen.document({"tools": len(tools.registry), "changes": plain, "accepted": accept})
        for each in changes:
            screen.say(f"{each.server}: {'the address' if each.tool is None else escape_in_text(each.tool)}")
            screen.say(each.diff)
        word = "accepted" if accept else "refused: --accept pins them"
        screen.note(
            f"{count_tools(len(tools.registry))} pinned, {len(changes) or 'no'} changes{' ' + word if changes else ''}"
        )
        return ExitCode.FAILED if changes and not accept else ExitCode.DONE

    path = command.source_options["lock"] or "toolkit.lock"
    return run_with_tools(command, sources, write_changes, lock=path, approve_change=decide)


def _lint_package(screen: Screen, package: ModuleType, timeout: float) -> int:
    """Check the tools of all modules of a package; a tool counts in the first module that has it."""
    findings: _Findings = []
    failures: dict[str, None] = {}
    met: set[int] = set()

    def load(name: str) -> ModuleType | None:
        try:
            return import_module(name, timeout)
        except CommandError as error:
            failures[str(error)] = None
            return None

    with Steps() as steps:
        steps.begin(f"checking the modules of {package.__name__}")
        names = [package.__name__, *_list_modules(package, load)]
        for place, name in enumerate(names):
            steps.advance(place, len(names))
            module = load(name)
            for registry in gather_registries(module).values() if module is not None else ():
                fresh = registry.without([key for key, each in registry.registrations.items() if id(each.tool) in met])
                met |= {id(tool) for tool in fresh}
                findings += [(name, finding) for finding in fresh.lint()]
    return _write_findings(screen, findings, len(met), list(failures))


def _list_modules(package: ModuleType, load: Callable[[str], ModuleType | None]) -> Iterator[str]:
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if info.name.endswith(".__main__"):  # which would run
            continue
        yield info.name
        inner = load(info.name) if info.ispkg else None
        if inner is not None:
            yield from _list_modules(inner, load)


def _write_findings(screen: Screen, findings: _Findings, count: int, failures: Sequence[str] = ()) -> int:
    plain = [
        {"source": source, "tool": each.tool, "parameter": each.parameter, "problem": each.problem}
        for source, each in findings
    ]
    screen.document({"tools": count, "findings": plain, "failures": failures})
    are_several = len({source for source, _ in findings}) > 1
    for source, finding in findings:
        screen.paragraph(f"{source}: {finding}" if are_several else str(finding))
    for failure in failures:
        screen.note(failure, "bad")
    screen.note(f"{count_tools(count)}, {len(findings) or 'nothing'} to look at")
    return ExitCode.FAILED if findings or failures else ExitCode.DONE


def call_once(
    command: Command,
    source: str,
    name: str,
    pairs: Sequence[str],
    text: str | None,
    *,
    is_approved: bool,
    log: Path | None,
) -> int:
    """Call a tool, write its result, and return 0, or 1 if it failed, 2 if the call was wrong, 3 if not approved."""
    if text is not None and pairs:
        raise MisuseError("give the arguments as key=value or by --json, not both")
    given = sys.stdin.read() if text == "-" else text

    async def make_call(tools: OpenedTools) -> int:
        registration = _find_registration(tools.registry, name)
        registry = tools.registry.only([name])
        need = registry.find_context_need() if tools.ctx is None else None
        if need is not None:
            raise MisuseError(f"{need}: give it by --ctx MODULE:NAME, such as app:make_context")
        arguments = json.dumps(read_pairs(pairs, registration.definition.parameters)) if given is None else given
        approver = Approver(command, "needed", approves_all=is_approved)
        call = _OneCall(command.screen, approver)
        with log_runs(log) as middleware:
            result = await call.run(ToolCall("call_1", name, arguments), registry, middleware, tools.ctx)
        return call.write_result(name, result)

    with redirect_stdout(sys.stderr):  # the output of a tool that prints is not the tool's result
        return run_with_tools(command, [source], make_call)


class _OneCall:
    """Runs a call as a run in which the command line plays the model."""

    def __init__(self, screen: Screen, approver: Approver) -> None:
        self._screen, self._approver = screen, approver
        self._start: ToolExecutionStart | None = None
        self._seconds: float | None = None

    async def run(
        self, call: ToolCall, registry: ToolRegistry[Any], middleware: Sequence[Middleware[Any]], ctx: Any
    ) -> ToolResult:
        config: ToolLoopConfig[None] = ToolLoopConfig(
            max_iterations=1,
            name_repair=False,
            on_tool_call=self._approver.decide,
            on_event=self._handle_event,
            middleware=middleware,
        )
        provider = ScriptedProvider([AssistantMessage([call])])
        run = await tool_loop(provider, registry, f"toolkit call {call.name}", ctx=ctx, config=config)
        return next(message for message in run.messages if isinstance(message, ToolResult))

    def _handle_event(self, event: LoopEvent) -> None:
        match event:
            case ToolExecutionStart():
                self._start = event
            case ToolExecutionEnd():
                self._seconds = event.duration
            case ToolProgress():
                self._screen.note(f"  {event.text}")
            case ToolExecutionUpdate() if sys.stderr.isatty():
                lines = event.output.text.strip().splitlines()
                self._screen.note(f"  {lines[-1] if lines else ''}")
            case _:
                pass

    def write_result(self, name: str, result: ToolResult) -> ExitCode:
        screen = self._screen
        code = ExitCode.FAILED if result.is_error else ExitCode.DONE
        if self._start is None:
            code = ExitCode.NOT_APPROVED if self._approver.has_refused else ExitCode.MISUSED
        dumped: Any = json.loads(dump_messages([result]))[0]["content"]
        content: list[dict[str, Any]] = [{"type": "text", "text": dumped}] if isinstance(dumped, str) else dumped
        if screen.is_json:
            screen.document(
                {
                    "tool": name,
                    "arguments": None if self._start is None else json.loads(self._start.arguments_json),
                    "has_run": self._start is not None,
                    "is_error": result.is_error,
                    "text": result.text,
                    "content": content,
                    "seconds": self._seconds,
                    "exit_code": int(code),
                }
            )
        elif result.is_error:
            screen.note(result.text, "bad")
        else:
            screen.paragraph(result.text)
            for block in content:
                if block["type"] != "text":
                    screen.note(f"[{block['type']}: see --output json]")
        return code


def read_pairs(pairs: Sequence[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that ``key=value`` pairs give: a value is text where the schema takes text, else JSON.

    A key that is repeated, or stands once where only a list may stand, makes a list. A value that is no JSON stays
    text, which validation then refuses.
    """
    nodes = Nodes(parameters)
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise MisuseError(
                f"{escape_in_text(pair)} is not key=value: write the name of a parameter, '=' and its value"
            )
        texts.setdefault(key, []).append(text)
    return {key: _read_values(given, nodes, key) for key, given in texts.items()}


def _read_values(texts: Sequence[str], nodes: Nodes, key: str) -> Any:
    node = nodes.at_key(nodes.root, key)
    types = nodes.types(node)
    if len(texts) == 1:
        value = _read_typed_value(texts[0], types)
        is_lone_item = value is not None and not is_array(value) and "array" in types and types <= {"array", "null"}
        if not is_lone_item:
            return value
    return [_read_typed_value(text, nodes.types(nodes.at_key(node, place))) for place, text in enumerate(texts)]


def _read_typed_value(text: str, types: frozenset[str]) -> Any:
    if "string" in types:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def serve_tools(
    command: Command,
    sources: Sequence[str],
    transport: Literal["stdio", "http"],
    host: str,
    port: int,
    *,
    bearer_variable: str,
    allowed_hosts: Sequence[str],
    model: str,
    sessions: Path | None,
) -> int:
    """Serve the tools of sources as an MCP server or an editor's agent until the client ends it, or Ctrl-C."""
    is_http = transport == "http"
    for wrong, words in (
        (model and is_http, "--acp speaks on standard input and output, not with --mcp http"),
        (sessions and not model, "--sessions is for --acp"),
        (bearer_variable and not is_http, "--bearer-env is for --mcp http"),
        (allowed_hosts and not is_http, "--allow-host is for --mcp http"),
        (
            command.screen.is_json and not is_http,
            "--output json is for --mcp http: on stdio there is the protocol alone",
        ),
    ):
        if wrong:
            raise MisuseError(words)
    provider = read_model(model, "", command.timeout) if model else None
    screen = command.screen
    if not is_http and provider is None and sys.stdin.isatty():
        screen.note("speaking MCP on standard input and output: a client starts this; --mcp http is reached by a URL")

    async def serve(tools: OpenedTools) -> int:
        registry = leave_out_unusable(tools, screen.note)
        if provider is not None:
            await _serve_editor(provider, registry, tools, sessions)
        elif is_http:
            token = read_variable(bearer_variable, "--bearer-env") if bearer_variable else None
            options: dict[str, Any] = {"name": tools.label, "auth": token, "allowed_hosts": allowed_hosts}
            await _serve_http(registry, tools.ctx, screen, host=host, port=port, **options)
        else:
            from toolkit.serving.mcp import serve_mcp

            await serve_mcp(registry, tools.ctx, name=tools.label)
        return ExitCode.DONE

    return run_with_tools(command, sources, serve, is_shown=sys.stderr.isatty())


async def _serve_editor(
    provider: Provider, registry: ToolRegistry[Any], tools: OpenedTools, sessions: Path | None
) -> None:
    from toolkit.conversations import Conversations, MemoryStore, SqlStore
    from toolkit.serving.acp import serve_acp

    store = MemoryStore() if sessions is None else SqlStore(f"sqlite:///{sessions}")
    async with open_model(provider, tools.steps) as opened, Conversations(store) as conversations:
        await serve_acp(opened, registry, tools.ctx, conversations=conversations, name=tools.label)


async def _serve_http(
    registry: ToolRegistry[Any], ctx: Any, screen: Screen, host: str, port: int, **options: Any
) -> None:
    from toolkit.serving.mcp import serve_mcp_http
    from toolkit.serving.mcp.web import LOOPBACK

    if host not in LOOPBACK and not (options["auth"] and options["allowed_hosts"]):
        raise MisuseError(f"--host {host} lets the network call the tools: it needs --bearer-env and --allow-host")

    class Announcement(TaskStatus[str]):
        def started(self, value: str | None = None) -> None:
            screen.say(str(value))
            screen.document({"url": value, "tools": len(registry)}, is_line=True)
            screen.note(f"serving {count_tools(len(registry))} over MCP; Ctrl-C ends it")

    try:
        await serve_mcp_http(registry, ctx, host=host, port=port, task_status=Announcement(), **options)
    except OSError as error:
        problem = _PORT_PROBLEMS.get(
            error.errno or 0, f"on {host} can't be listened on: {os.strerror(error.errno or 0)}"
        )
        raise CommandError(f"port {port} {problem}") from error


_State: TypeAlias = Literal["works", "missing", "broken"]

_STYLES: dict[_State, Style] = {"works": "good", "missing": "faint", "broken": "bad"}
_PACKAGE = "toolkit-sdk"
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+).*extra == ['\"](?P<extra>[\w-]+)['\"]")
# The module whose import shows that the packages of an extra work.
_MODULES = {
    "anthropic": "toolkit.providers.anthropic",
    "cli": "rich.console",
    "coding": "toolkit.builtin.bash",
    "config": "yaml",
    "fast": "orjson",
    "google": "toolkit.providers.google",
    "mcp": "toolkit.sources.mcp.tools",
    "openai": "toolkit.providers.openai",
    "openapi": "toolkit.sources.openapi",
    "prices": "genai_prices",
}
_KEYS = {
    "OPENAI_API_KEY": "openai:",
    "ANTHROPIC_API_KEY": "anthropic:",
    "GEMINI_API_KEY": "google:",
    "GOOGLE_API_KEY": "google:",
}
_PROGRAMS = {
    "npx": "MCP servers of npm",
    "uvx": "MCP servers of PyPI",
    "bash": "the tool bash",
    "bwrap": "the sandbox of bash",
}
_ANSWER_TIME = 120.0


@dataclass(frozen=True, slots=True)
class _Check:
    kind: str
    name: str
    state: _State
    detail: str


def examine_installation(command: Command, models: tuple[str, ...], url: str, *, is_probing: bool) -> int:
    """Check the installation; return 1 if a part that is installed does not work."""
    if is_probing and not models:
        raise MisuseError("--probe tries models: name one by --model")
    screen, checks = command.screen, list[_Check]()

    def add(check: _Check) -> None:
        checks.append(check)
        screen.stream(f"{check.state:8}", _STYLES[check.state])
        screen.paragraph(f"{check.kind} {check.name}  {check.detail}")

    async def main() -> int:
        with Steps() as steps:
            for check in _check_place():
                add(check)
            for extra, packages in sorted(_list_extras().items()):
                steps.begin(f"importing what {extra} brings")
                add(await anyio.to_thread.run_sync(_check_extra, extra, packages, abandon_on_cancel=True))
            for check in _check_surroundings():
                add(check)
            for model in models or ("local:",):
                steps.begin(f"asking {model}")
                tried = await _check_model(model, "" if model == "local:" else url, is_wanted=bool(models))
                add(tried)
                if models and tried.state == "works":
                    add(_Check("calls", model, "works", describe_advice(model)))
                    if is_probing:
                        add(await _run_check("probe", model, partial(_probe_model, model, url)))
        return ExitCode.FAILED if any(check.state == "broken" for check in checks) else ExitCode.DONE

    code = command.terminal.run(main)
    screen.document({"checks": [asdict(check) for check in checks], "exit_code": code})
    return code


def _check_place() -> Iterator[_Check]:
    yield _Check("package", "toolkit", "works", version(_PACKAGE))
    yield _Check("package", "python", "works", f"{platform.python_version()}, {sys.platform}")
    encoding = (sys.stdout.encoding or locale.getpreferredencoding()).lower()
    is_wide = encoding.replace("-", "") == "utf8"
    hint = "" if is_wide else "; set PYTHONUTF8=1 to see all letters"
    columns = shutil.get_terminal_size().columns
    yield _Check("terminal", "output", "works" if is_wide else "broken", f"{encoding}, {columns} columns{hint}")


def _list_extras() -> dict[str, list[str]]:
    """Return the packages of each extra."""
    extras: dict[str, list[str]] = {}
    for line in requires(_PACKAGE) or ():
        found = _REQUIREMENT.match(line)
        if found is not None and found["extra"] != "dev":
            extras.setdefault(found["extra"], []).extend([found["name"]] if found["name"] != _PACKAGE else [])
    return extras


def _check_extra(extra: str, packages: Sequence[str]) -> _Check:
    there: list[str] = []
    try:
        for name in packages:
            there.append(f"{name} {version(name)}")  # noqa: PERF401 - one may be missing
        importlib.import_module(_MODULES.get(extra, "toolkit"))
    except PackageNotFoundError as error:
        install = f"`pip install '{_PACKAGE}[{extra}]'`"
        return _Check("extra", extra, "missing", f"without {error.name}: {install}")
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything
        return _Check("extra", extra, "broken", f"{type(error).__name__}: {without_keys(str(error))}")
    return _Check("extra", extra, "works", ", ".join(there))


def _check_surroundings() -> Iterator[_Check]:
    for name, use in _KEYS.items():
        is_set = bool(os.environ.get(name))
        yield _Check(
            "key", name, "works" if is_set else "missing", f"set, for {use}" if is_set else f"not set; for {use}"
        )
    for name, use in _PROGRAMS.items():
        path = shutil.which(name)
        yield _Check("program", name, "works" if path else "missing", f"{path or 'not found'}, for {use}")


async def _check_model(name: str, url: str, *, is_wanted: bool) -> _Check:
    """Ask a model for a word; the local one may be missing unless it was named."""

    async def ask() -> tuple[_State, str]:
        began = time.perf_counter()
        async with open_model(read_model(name, url, _ANSWER_TIME), Steps(is_shown=False)) as provider:
            config: ToolLoopConfig[None] = ToolLoopConfig(timeout=_ANSWER_TIME)
            result = await tool_loop(provider, ToolRegistry[Any](), "Say the word yes.", ctx=None, config=config)
        answer = " ".join(result.text.split())[:40]
        return "works", f"answered {answer!r} in {time.perf_counter() - began:.1f} s"

    check = await _run_check("model", name, ask)
    is_missing = check.state == "broken" and not is_wanted and "not installed" in check.detail
    return _Check("model", name, "missing", check.detail) if is_missing else check


async def _probe_model(name: str, url: str) -> tuple[_State, str]:
    """Ask a model for a call, in each way."""
    async with open_model(read_model(name, url, _ANSWER_TIME), Steps(is_shown=False)) as provider:
        probe = await probe_calling(provider, model=name)
    ways = {"native": probe.native, "text": probe.text, "guided": probe.guided}
    detail = "; ".join([f"{way}: {problem or 'works'}" for way, problem in ways.items()])
    return "broken" if probe.way is None else "works", detail


async def _run_check(kind: str, name: str, examine: Callable[[], Awaitable[tuple[_State, str]]]) -> _Check:
    try:
        with anyio.fail_after(_ANSWER_TIME):
            state, detail = await examine()
    except TimeoutError:
        return _Check(kind, name, "broken", f"no answer within {_ANSWER_TIME:g} s")
    except Exception as error:  # noqa: BLE001 - a broken engine may raise anything
        return _Check(kind, name, "broken", without_keys(" ".join(str(error).split())))
    return _Check(kind, name, state, detail)


def describe_advice(name: str) -> str:
    """Describe in a line how a model is best asked for calls, by its name or the metadata of its GGUF file."""
    prefix, _, model = name.partition(":")
    metadata = None
    if prefix.strip().lower() == "local" and model.strip():
        from toolkit.providers.local.gguf import read_gguf_metadata

        path = Path(model.strip())
        model, metadata = path.stem, read_gguf_metadata(path)
    advice = advise_calling(model or name, metadata)
    parts = [f"best asked {advice.way}: {advice.reason}"]
    family = advice.family
    if family is not None:
        parts.append(f"as text it writes calls like {advice.format}")
        if family.sampling is not None:
            warning = ", and never greedily" if family.sampling.forbids_greedy else ""
            parts.append(f"its makers recommend {family.sampling}{warning}")
        parts.append(f"see {' '.join(family.sources)}")
    return "; ".join(parts)
