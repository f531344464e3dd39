"""The commands ``tools``, ``lint``, ``call`` and ``serve``."""

from __future__ import annotations

import errno
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import anyio.to_thread
from anyio.abc import TaskStatus

from toolkit.calls.events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, ToolProgress
from toolkit.calls.registration import Registration
from toolkit.chat import AssistantMessage, ToolCall, ToolResult, dump_messages
from toolkit.cli.run_commands import log_runs
from toolkit.cli.screen import CommandError, ExitCode, OutputFormat, Screen, Steps
from toolkit.cli.sources import (
    OpenedTools,
    SourceSettings,
    gather_registries,
    import_module,
    leave_out_unusable,
    read_variable,
    run_with_tools,
)
from toolkit.cli.terminal import Approver, Terminal
from toolkit.errors import UnknownToolNameError
from toolkit.foreign_text import escape_in_text
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.events import LoopEvent
from toolkit.loop.handle import tool_loop
from toolkit.loop.middleware import Middleware
from toolkit.schema.nodes import Nodes, is_array
from toolkit.sources.pins import PinnedChange
from toolkit.testing import ScriptedProvider
from toolkit.tools.registry import Finding, ToolRegistry

_Findings: TypeAlias = list[tuple[str, Finding]]  # each with the place of its tool
_MANY = 100


def list_tools(source: str, name: str | None, output: OutputFormat, **settings: Any) -> int:
    """Write the tools of a source, or one of them with its schema."""
    screen = Screen(output)

    async def write_tools(tools: OpenedTools) -> int:
        if name is not None:
            _write_tool(screen, _find_registration(tools.registry, name))
        elif screen.is_json:
            screen.document({"tools": [_describe_tool(each) for each in tools.registry.registrations.values()]})
        else:
            show_tools(screen, tools.registry)
        return ExitCode.DONE

    return run_with_tools([source], settings, write_tools)


def show_tools(screen: Screen, registry: ToolRegistry[Any]) -> None:
    """Write the tools for a person; if that is no terminal, one a line: its name, a tab, and its summary."""
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
    """Return a number of tools in words."""
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
    if screen.is_json:
        screen.document(_describe_tool(registration))
        return
    screen.stream(registration.name, "strong")
    screen.stream(_write_signature(registration))
    screen.say(_write_marks(registration), "faint")
    screen.paragraph(registration.definition.description or "(no description)", indent=4)
    screen.say(json.dumps(registration.definition.parameters, indent=2, ensure_ascii=False))


def _write_signature(registration: Registration[Any]) -> str:
    """Return the parameters of a tool in brackets; the optional ones have a question mark."""
    parameters = registration.definition.parameters
    required = set(parameters.get("required", ()))
    names = [name if name in required else f"{name}?" for name in parameters.get("properties", {})]
    return f"({', '.join(names)})"


def _write_marks(registration: Registration[Any]) -> str:
    """Return the tags of a tool, and what it needs."""
    marks = sorted(registration.options.tags)
    marks += ["needs approval"] if registration.options.requires_approval else []
    marks += ["needs a context"] if registration.needs_context is not None else []
    return f"  [{', '.join(marks)}]" if marks else ""


def lint_tools(source: str, output: OutputFormat, **settings: Any) -> int:
    """Write the findings, and return 1 where there are any, or a module of a package fails."""
    screen = Screen(output)
    if source.replace(".", "").isidentifier() and not source.endswith((".py", ".yaml", ".yml")) and source != "coding":
        timeout = SourceSettings(**settings).timeout
        module = import_module(source, timeout)
        if hasattr(module, "__path__"):
            return _lint_package(screen, module, timeout)

    async def lint_registry(tools: OpenedTools) -> int:
        count = len(tools.registry)
        if count > _MANY:
            tools.steps.begin(f"checking {count_tools(count)}")
        findings = await anyio.to_thread.run_sync(tools.registry.lint, abandon_on_cancel=True)
        tools.steps.end()
        return _write_findings(screen, [(tools.label, finding) for finding in findings], count)

    return run_with_tools([source], settings, lint_registry)


def pin_tools(sources: Sequence[str], output: OutputFormat, *, accept: bool, lock: str, **settings: Any) -> int:
    """Pin the tools of sources, write what has changed, and return 1 where it is not accepted."""
    screen = Screen(output)
    changes: list[PinnedChange] = []

    def decide(change: PinnedChange) -> bool:
        changes.append(change)
        return accept

    async def write_changes(tools: OpenedTools) -> int:
        if screen.is_json:
            plain = [{"server": each.server, "tool": each.tool, "diff": each.diff} for each in changes]
            screen.document({"tools": len(tools.registry), "changes": plain, "accepted": accept})
        else:
            for each in changes:
                screen.say(f"{each.server}: {'the address' if each.tool is None else escape_in_text(each.tool)}")
                screen.say(each.diff)
        word = "accepted" if accept else "refused: --accept pins them"
        screen.note(
            f"{count_tools(len(tools.registry))} pinned, {len(changes) or 'no'} changes{' ' + word if changes else ''}"
        )
        return ExitCode.FAILED if changes and not accept else ExitCode.DONE

    path = lock or "toolkit.lock"
    return run_with_tools(sources, {**settings, "lock": path, "approve_change": decide}, write_changes)


def _lint_package(screen: Screen, package: ModuleType, timeout: float) -> int:
    """Check the tools of all modules of a package, those of each together; a tool counts where it is met first."""
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
    if screen.is_json:
        plain = [
            {"source": source, "tool": each.tool, "parameter": each.parameter, "problem": each.problem}
            for source, each in findings
        ]
        screen.document({"tools": count, "findings": plain, "failures": failures})
    else:
        are_several = len({source for source, _ in findings}) > 1
        for source, finding in findings:
            screen.paragraph(f"{source}: {finding}" if are_several else str(finding))
        for failure in failures:
            screen.note(failure, "bad")
        screen.note(f"{count_tools(count)}, {len(findings) or 'nothing'} to look at")
    return ExitCode.FAILED if findings or failures else ExitCode.DONE


def call_once(
    source: str,
    name: str,
    pairs: Sequence[str],
    text: str | None,
    *,
    is_approved: bool,
    log: Path | None,
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Call a tool, write its result, and return 0, or 1 if it failed, 2 if the call was wrong, 3 if not approved."""
    if text is not None and pairs:
        raise CommandError("give the arguments as key=value or by --json, not both", ExitCode.MISUSED)
    screen, terminal = Screen(output), Terminal()
    given = sys.stdin.read() if text == "-" else text

    async def make_call(tools: OpenedTools) -> int:
        registration = _find_registration(tools.registry, name)
        registry = tools.registry.only([name])
        need = registry.find_context_need() if tools.ctx is None else None
        if need is not None:
            raise CommandError(f"{need}: give it by --ctx MODULE:NAME, such as app:make_context", ExitCode.MISUSED)
        arguments = json.dumps(read_pairs(pairs, registration.definition.parameters)) if given is None else given
        approver = Approver(screen, terminal, "needed", approves_all=is_approved)
        call = _OneCall(screen, approver)
        with log_runs(log) as middleware:
            result = await call.run(ToolCall("call_1", name, arguments), registry, middleware, tools.ctx)
        return call.write_result(name, result)

    with redirect_stdout(sys.stderr):  # the output of a tool that prints is not the tool's result
        return run_with_tools([source], settings, make_call, terminal=terminal)


class _OneCall:
    """Runs a call as a run of its own, in which the command line is the model."""

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
        content = _dump_content(result)
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


def _dump_content(result: ToolResult) -> list[dict[str, Any]]:
    content: Any = json.loads(dump_messages([result]))[0]["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def read_pairs(pairs: Sequence[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that ``key=value`` pairs give: a value is text where the schema takes text, else JSON.

    A key that is repeated, or stands once where only a list may stand, makes a list. A value that is no JSON stays
    text, which validation then refuses.

    Raises:
        CommandError: A pair has no ``=``.
    """
    nodes = Nodes(parameters)
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise CommandError(
                f"{escape_in_text(pair)} is not key=value: write the name of a parameter, '=' and its value",
                ExitCode.MISUSED,
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
    sources: Sequence[str],
    transport: Literal["stdio", "http"],
    address: tuple[str, int],
    *,
    bearer_variable: str,
    allowed_hosts: Sequence[str],
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Serve the tools of sources as an MCP server until the client ends it, or Ctrl-C."""
    if transport == "stdio" and output == "json":
        raise CommandError("--output json is for --mcp http: on stdio there is the protocol alone", ExitCode.MISUSED)
    screen = Screen("json" if transport == "stdio" else output)  # nothing but the protocol goes there
    if transport == "stdio" and sys.stdin.isatty():
        screen.note("speaking MCP on standard input and output: a client starts this; --mcp http is reached by a URL")

    async def serve(tools: OpenedTools) -> int:
        registry = leave_out_unusable(tools, screen.note)
        if transport == "http":
            token = read_variable(bearer_variable, "--bearer-env") if bearer_variable else None
            await _serve_http(
                registry, tools.ctx, screen, address, name=tools.label, auth=token, allowed_hosts=allowed_hosts
            )
        else:
            from toolkit.serving.mcp import serve_mcp

            await serve_mcp(registry, tools.ctx, name=tools.label)
        return ExitCode.DONE

    return run_with_tools(sources, settings, serve, is_shown=sys.stderr.isatty())


async def _serve_http(
    registry: ToolRegistry[Any], ctx: Any, screen: Screen, address: tuple[str, int], **options: Any
) -> None:
    from toolkit.serving.mcp import serve_mcp_http

    class Announcement(TaskStatus[str]):
        def started(self, value: str | None = None) -> None:
            screen.say(str(value))
            if screen.is_json:
                screen.document({"url": value, "tools": len(registry)}, is_line=True)
            screen.note(f"serving {count_tools(len(registry))} over MCP; Ctrl-C ends it")

    host, port = address
    try:
        await serve_mcp_http(registry, ctx, host=host, port=port, task_status=Announcement(), **options)
    except OSError as error:
        raise CommandError(_explain_port(error, host, port)) from error


def _explain_port(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: choose another by --port, or 0 for one that is free"
    if error.errno == errno.EACCES:
        return f"port {port} may not be taken by this user: choose one above 1023 by --port"
    return f"{host}:{port} can't be listened on: {os.strerror(error.errno or 0)}"
