"""The command ``call``: one call of one tool, by the rules that hold in a loop."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from toolkit.calls.approval import Approval, ApprovalRequest, Approve, Deny
from toolkit.calls.events import (
    CallEvent,
    ToolEvent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.chat import AssistantMessage, ChatResponse, ToolCall, ToolResult, Usage
from toolkit.cli.argument_pairs import read_pairs
from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.listing import find_registration
from toolkit.cli.progress import Steps
from toolkit.cli.questions import read_answer
from toolkit.cli.run_writing import writing_runs
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, open_sources, read_source
from toolkit.cli.terminal import Terminal, WasInterruptedError
from toolkit.dataclass import dataclass
from toolkit.loop.events import LoopEvent
from toolkit.tools.registry import ToolRegistry

__all__ = ["CallSettings", "call_tool_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """The arguments and options of ``call``.

    Args:
        name: The tool.
        pairs: Arguments as ``key=value``.
        text: All of them as JSON; ``-`` reads standard input, None takes the pairs.
        is_approved: True where nobody is asked.
        log: Where the call is written down; None writes nothing.
        output: The form of standard output: text or JSON.
    """

    name: str
    pairs: Sequence[str] = ()
    text: str | None = None
    is_approved: bool = False
    log: Path | None = None
    output: OutputFormat = "text"


def call_tool_once(word: str, call: CallSettings, settings: dict[str, Any]) -> int:
    """Call a tool of a source, write its result, and return 0, 1 where it failed, 2 where the call was wrong."""
    if call.text is not None and call.pairs:
        raise CommandError("give the arguments as key=value or by --json, not both", ExitCode.MISUSED)
    screen, terminal = Screen(call.output), Terminal()
    source = read_source(word, SourceSettings(**settings))
    given = sys.stdin.read() if call.text == "-" else call.text

    async def main() -> int:
        with Steps() as steps:
            async with open_sources([source], steps) as tools:
                registration = find_registration(tools.registry, call.name)
                _check_context(tools.registry, call.name)
                parameters = registration.definition.parameters
                arguments = json.dumps(read_pairs(call.pairs, parameters)) if given is None else given
                witness = _CallWitness(screen, terminal, is_approved=call.is_approved)
                result = await _execute_named_call(
                    ToolCall("call_1", call.name, arguments), tools.registry, witness, call.log
                )
                return _write_result(screen, call.name, result, witness)

    with redirect_stdout(sys.stderr):  # a tool that prints is not the tool's result
        return terminal.run(main)


async def _execute_named_call(
    call: ToolCall, registry: ToolRegistry[Any], witness: _CallWitness, log: Path | None
) -> ToolResult:
    """Run a call by itself; where it is to be written down, as the one call of a run."""
    if log is None:
        return await registry.execute(call, None, approve=witness.decide, observer=witness, name_repair=False)
    from toolkit.loop.config import ToolLoopConfig  # noqa: PLC0415 - few calls are written down
    from toolkit.loop.views import tool_loop  # noqa: PLC0415
    from toolkit.testing import ScriptedProvider  # noqa: PLC0415

    # The person at the command line says what else a model would.
    said = ChatResponse(message=AssistantMessage([call]), usage=Usage(), stop_reason="tool_use")
    person = ScriptedProvider([said])
    with writing_runs(log) as middleware:
        config = ToolLoopConfig(
            max_iterations=1,
            name_repair=False,
            on_tool_call=witness.decide,
            on_event=witness.take,
            middleware=middleware,
        )
        run = await tool_loop(person, registry.only([call.name]), f"toolkit call {call.name}", ctx=None, config=config)
    return next(message for message in run.messages if isinstance(message, ToolResult))


def _check_context(registry: ToolRegistry[Any], name: str) -> None:
    need = registry.only([name]).find_context_need()
    if need is not None:
        raise CommandError(f"{need}, which a command line has not: call it from Python", ExitCode.MISUSED)


class _CallWitness:
    """Shows a call while it runs, and asks about it where it needs approval."""

    def __init__(self, screen: Screen, terminal: Terminal, *, is_approved: bool) -> None:
        self._screen, self._terminal, self._is_approved = screen, terminal, is_approved
        self.arguments: Any = None
        self.has_begun = self.was_asked = False
        self.duration: float | None = None

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Approve what needs nobody's approval, else ask."""
        if not request.reason or self._is_approved:
            return Approve()
        self.was_asked = True
        if not self._terminal.is_interactive:
            return Deny(f"{request.reason} Nobody can be asked here: run it with --yes to approve it.")
        self._screen.note(request.reason, "strong")
        self._screen.note(f"  {request.tool_name} {request.preview}", "call")
        try:
            answer = await self._terminal.ask(lambda: read_answer("Run it? [y]es, [n]o: "))
        except (WasInterruptedError, EOFError):
            answer = ""
        return Approve() if answer.lower().startswith("y") else Deny("Not approved, so it was not run.")

    async def emit(self, event: ToolEvent) -> None:
        """Take an event of the call."""
        match event:
            case ToolExecutionStart():
                self.has_begun = True
                self.arguments = json.loads(event.arguments_json)
            case ToolExecutionEnd():
                self.duration = event.duration
            case _:
                self.offer(event)

    async def take(self, event: LoopEvent) -> None:
        """Take an event of the run in which a call is written down."""
        if isinstance(event, CallEvent):
            await self.emit(event)

    def offer(self, event: ToolEvent) -> None:
        """Show how far it is."""
        match event:
            case ToolProgress():
                self._screen.note(f"  {event.text}")
            case ToolExecutionUpdate() if sys.stderr.isatty():
                lines = event.output.text.strip().splitlines()
                self._screen.note(f"  {lines[-1] if lines else ''}")
            case _:
                pass


def _write_result(screen: Screen, name: str, result: ToolResult, witness: _CallWitness) -> int:
    code = ExitCode.FAILED if result.is_error else ExitCode.DONE
    if not witness.has_begun:
        code = ExitCode.NOT_APPROVED if witness.was_asked else ExitCode.MISUSED
    if screen.is_json:
        screen.document(
            {
                "tool": name,
                "arguments": witness.arguments,
                "has_run": witness.has_begun,
                "is_error": result.is_error,
                "text": result.text,
                "content": write_content(result),
                "seconds": witness.duration,
                "exit_code": int(code),
            }
        )
    elif result.is_error:
        screen.note(result.text, "bad")
    else:
        screen.paragraph(result.text)
        for block in write_content(result):
            if block["type"] != "text":
                screen.note(f"[{block['type']}: see --output json]")
    return code


def write_content(result: ToolResult) -> list[dict[str, Any]]:
    """Return the blocks of a result as JSON."""
    from toolkit.chat import dump_messages  # noqa: PLC0415 - few results are written so

    content: Any = json.loads(dump_messages([result]))[0]["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
