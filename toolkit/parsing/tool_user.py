"""Carries out one call in text, for agents with their own loop: parse, select, validate, execute, emit.

Calls are read by `read_reply`, and carried out as in a loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Generic, cast

import anyio
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolkit.calls.approval import ApprovalHook, Approve, authorize, write_refusal
from toolkit.calls.caching import Cache
from toolkit.calls.context import ToolContext
from toolkit.calls.events import (
    ToolCallRefused,
    ToolEvent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.calls.output import RunMemory, redact_refusal
from toolkit.calls.policy import CallConfig, ExecutionPolicy
from toolkit.calls.prepare import Ready, Refused, error_result, prepare_all
from toolkit.calls.registration import Ctx, Tool, ToolOptions
from toolkit.calls.run import CallHost, run
from toolkit.chat import TextBlock, ToolCall, ToolResult
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolCancelledError, ToolNotFoundError, ToolUsageError
from toolkit.logs import get_logger, secrets_in_use
from toolkit.parsing.forms import TextFormat
from toolkit.parsing.reply import read_reply
from toolkit.parsing.wording import read_limits, wording_of
from toolkit.runtime.backend import is_in_event_loop, loop_waker, run_in_own_loop
from toolkit.runtime.workers import when_abandoned
from toolkit.settings import check_setting
from toolkit.tool_names import nearest_names, repair_name
from toolkit.tools.decorators import tool_from_schema_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import Registrable, ToolRegistry, as_tool

_logger = get_logger("toolkit.parsing")


@dataclass(frozen=True, slots=True)
class ToolCalling:
    """A call that a model wants to make.

    Args:
        tool_name: The tool, as the model wrote it.
        arguments: Its arguments; None for none.
    """

    tool_name: str
    arguments: Mapping[str, Any] | None = None

    def to_call(self, id: str) -> ToolCall:  # noqa: A002
        """Return the call with an id.

        Raises:
            ConfigurationError: The arguments are not JSON.
        """
        try:
            plain = to_jsonable_python(self.arguments or {})
        except PydanticSerializationError as error:
            raise ConfigurationError(f"the arguments for '{self.tool_name}' are no JSON: {error}") from None
        return ToolCall(id, self.tool_name, json.dumps(plain))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsageEvent:
    """An event of a `ToolUsage`.

    Args:
        event: The event, as in a loop.
        agent_role: The agent.
        fingerprint_context: The application's facts about its user.
    """

    event: ToolEvent
    agent_role: str = ""
    fingerprint_context: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ToolUsage(Generic[Ctx]):
    """Uses tools on behalf of one agent, one call at a time.

    ::

        user = ToolUsage([search], model="gpt-4o", agent_role="Researcher")
        result = user.use_tool('{"tool_name": "search", "arguments": {"query": "rust"}}')

    Similar names are accepted; arguments are repaired and validated; a repetition of the last successful call is not
    run; outputs are cached if there is a cache; usage limits, timeouts, retries and approval are those of the tools.
    Uses are counted for each object of this class, as for each run of a loop. Mistakes of the model are in the result.

    Args:
        tools: A registry, or tools and functions for one.
        ctx: The context of the tools.
        format: The format that the model is asked to use; all formats are read.
        model: The name of the model, which sets the defaults, as for `TextToolProvider`.
        max_parsing_attempts: The number of unreadable replies in a row after which the model is asked to continue
            without a tool.
        remember_format_after_usages: The number of calls after which a result repeats the format.
        cache: The cache of outputs, if any.
        approve: Asked about each call.
        agent_role: The agent, for events and `ToolContext.metadata`.
        fingerprint_context: The user of the agent, for events and ``ToolContext.metadata["fingerprint_context"]``;
            never part of the arguments.
        on_event: Receives events, on the thread that uses the tool; its exceptions are logged and ignored.
        verbose: True to print each start, end and refusal; secret arguments are shown as digests.
        refuse_repeated_calls: True to refuse a repetition of the last successful call; False for agents that poll.

    Attributes:
        registry: The tools.
        max_parsing_attempts: The number of unreadable replies in a row after which the model is asked to continue
            without a tool.
        remember_format_after_usages: The number of calls after which a result repeats the format.
        agent_role: The agent, for events and `ToolContext.metadata` of the calls that follow.
        fingerprint_context: The user of the agent, likewise.
        parsing_failures: The number of unreadable replies in a row.
        usages: The number of answered calls.
        refuses_repeated_calls: True if a repetition of the last successful call is refused.

    Raises:
        ConfigurationError: There is no such format, a limit is less than 1, or a setting is of a wrong type.
    """

    def __init__(
        self,
        tools: ToolRegistry[Ctx] | Iterable[Registrable[Ctx]],
        *,
        ctx: Ctx | None = None,
        format: TextFormat = "crew",  # noqa: A002
        model: str = "",
        max_parsing_attempts: int | None = None,
        remember_format_after_usages: int | None = None,
        cache: Cache | None = None,
        approve: ApprovalHook | None = None,
        agent_role: str = "",
        fingerprint_context: Mapping[str, Any] | None = None,
        on_event: Callable[[ToolUsageEvent], None] | None = None,
        verbose: bool = False,
        refuse_repeated_calls: bool = True,
    ) -> None:
        check_setting("the agent_role of a ToolUsage", agent_role, str)
        check_setting("the fingerprint_context of a ToolUsage", fingerprint_context, Mapping, None)
        attempts, usages = read_limits(model, max_parsing_attempts, remember_format_after_usages)
        self.registry: ToolRegistry[Ctx] = tools if isinstance(tools, ToolRegistry) else ToolRegistry[Ctx](tools)
        self.max_parsing_attempts: int = attempts
        self.remember_format_after_usages: int = usages
        self.agent_role: str = agent_role
        self.fingerprint_context: Mapping[str, Any] = dict(fingerprint_context or {})
        self.verbose = verbose
        self.refuses_repeated_calls = refuse_repeated_calls
        self.parsing_failures: int = 0
        self.usages: int = 0
        self._ctx = ctx
        self._wording = wording_of(format)
        self._on_event = on_event
        self._last: tuple[str, str] | None = None
        self._calls = 0
        self._memory = RunMemory(False)  # uses of tools are counted for this object
        self._config = CallConfig(name_repair="similar", cache=cache, on_tool_call=approve)

    def parse_tool_calling(self, text: str) -> ToolCalling:
        """Return the only call of a reply.

        Raises:
            ToolUsageError: It has no call, several, or one that can't be read; the message is for the model.
        """
        call = self._parse_reply(text)
        return ToolCalling(call.name, json.loads(call.arguments))

    def _parse_reply(self, text: str) -> ToolCall:
        definitions = self.registry.definitions()
        reply = read_reply(text, definitions)
        if len(reply.calls) == 1 and not reply.unread:
            self.parsing_failures = 0
            return reply.calls[0]
        self.parsing_failures += 1
        if reply.unread:
            reason = f"The tool call could not be read. {reply.unread[0].reason}"
        elif reply.calls:
            reason = f"There are {len(reply.calls)} tool calls; write one at a time."
        elif reply.displaced:
            name = reply.displaced[0].name
            reason = f"The tool call is inside of other text. If you meant to call {name}, reply with that call alone."
        else:
            reason = "There is no tool call in it."
        if self.parsing_failures >= self.max_parsing_attempts:
            raise ToolUsageError(f"{reason} That was attempt {self.parsing_failures}: continue without a tool.")
        raise ToolUsageError(f"{reason} {self._wording.reminder(definitions)}" if definitions else reason)

    def select_tool(self, name: str) -> Tool[Ctx]:
        """Return the tool of a name, or the only one with a similar name.

        Raises:
            ToolUsageError: There is none; the message lists the available tools.
        """
        names = self.registry.names
        tool = self.registry.get(repair_name(name, names, similar=True, hidden=self.registry.hidden_names) or "")
        if tool is None:
            raise ToolUsageError(ToolNotFoundError(name, names, nearest_names(name, names)).message)
        return tool.tool

    def use_tool(self, calling: ToolCalling | ToolCall | str) -> ToolResult:
        """Do what `ause_tool` does, for code that is not async, in its own event loop.

        Raises:
            ConfigurationError: An event loop is running, or `ause_tool` raises it.
        """
        if is_in_event_loop():
            raise ConfigurationError("use_tool was called where an event loop is running: use 'await ause_tool(...)'")

        async def use() -> ToolResult:
            wake = loop_waker()
            with anyio.CancelScope() as scope, when_abandoned(lambda: wake(scope.cancel)):
                return await self.ause_tool(calling)
            raise ToolCancelledError

        return run_in_own_loop(use)

    async def ause_tool(self, calling: ToolCalling | ToolCall | str) -> ToolResult:
        """Carry out a call, or the only call of a reply, and return its result.

        Args:
            calling: The call, or the model's whole reply.

        Raises:
            ConfigurationError: It is neither, or not JSON.
        """
        self._calls += 1
        id_ = f"call_{self._calls}"
        given: object = calling  # callers without a type checker may pass anything
        match given:
            case ToolCalling():
                call = given.to_call(id_)
            case ToolCall():
                call = given
            case str():
                try:
                    call = replace(self._parse_reply(given), id=id_)
                except ToolUsageError as error:
                    return ToolResult(id_, error.message, is_error=True)
            case _:
                what = type(given).__name__
                raise ConfigurationError(f"a ToolCalling, a ToolCall or the text of a reply is used, not: {what}")
        return self._add_reminder(await self._use_call(call))

    async def _use_call(self, call: ToolCall) -> ToolResult:
        metadata = {"agent_role": self.agent_role, "fingerprint_context": self.fingerprint_context}
        policy = ExecutionPolicy(
            config=replace(self._config, metadata=metadata),
            caches_by_default=True,
            observer=_EventRelay(self._emit_event),
        )
        [prepared] = await prepare_all([call], self.registry.scope, policy)
        for repair in prepared.repairs:
            self._emit_event(repair)
        if isinstance(prepared, Refused):
            return self._refuse_call(prepared, prepared.result)
        if self.refuses_repeated_calls and _describe_call(prepared) == self._last:
            return self._refuse_call(
                prepared,
                error_result(
                    prepared.call,
                    f"You have just called {prepared.call.name} with the same arguments, and it was not run again. "
                    "Use the result that you have, or try something else.",
                ),
            )
        verdict = await authorize(prepared, policy)
        if not isinstance(verdict, Approve):
            return self._refuse_call(prepared, write_refusal(prepared, verdict))
        with secrets_in_use(prepared.find_secrets):
            result = await run(prepared, CallHost(cast("Ctx", self._ctx), policy, memory=self._memory))
        if not result.is_error:
            self._last = _describe_call(prepared)
        return result

    def _refuse_call(self, prepared: Ready[Any] | Refused, result: ToolResult) -> ToolResult:
        event = ToolCallRefused(call_id=result.call_id, tool_name=result.tool_name, result=result)
        self._emit_event(redact_refusal(event, prepared, self.registry.registrations))
        return result

    def _add_reminder(self, result: ToolResult) -> ToolResult:
        """Count a usage, and add a reminder of the format to its result if it is due."""
        self.usages += 1
        definitions = self.registry.definitions()
        if self.usages % self.remember_format_after_usages or not definitions or result.result_as_answer:
            return result
        reminder = self._wording.reminder(definitions)
        if isinstance(result.content, str):
            return replace(result, content=f"{result.content}\n\n{reminder}")
        return replace(result, content=(*result.content, TextBlock(reminder)))

    def _emit_event(self, event: ToolEvent) -> None:
        if self.verbose:
            self._print_event(event)
        if self._on_event is None:
            return
        try:
            self._on_event(
                ToolUsageEvent(event=event, agent_role=self.agent_role, fingerprint_context=self.fingerprint_context)
            )
        except Exception:
            _logger.exception("on_event raised; the call continues")

    def _print_event(self, event: ToolEvent) -> None:
        match event:
            case ToolExecutionStart(tool_name=name, arguments=arguments):
                line = f"{name} {self.registry.registrations[name].arguments.dump_json(arguments)}"
            case ToolExecutionEnd(tool_name=name, result=result, duration=duration, is_cached=is_cached):
                how = "from the cache" if is_cached else f"in {duration:.2f} s"
                line = f"{name} {'failed' if result.is_error else 'gave'} {how}: {result.text}"
            case ToolCallRefused(tool_name=name, result=result):
                line = f"{name} was not run: {result.text}"
            case _:
                return
        print(f"[{self.agent_role or 'agent'}] {line}")  # noqa: T201 - what `verbose` asks for


def _describe_call(ready: Ready[Any]) -> tuple[str, str]:
    return ready.call.name, ready.registration.arguments.dump_json(ready.arguments)


class _EventRelay:
    """Passes on the events of a running tool."""

    def __init__(self, emit_event: Callable[[ToolEvent], None]) -> None:
        self._emit_event = emit_event

    async def emit(self, event: ToolEvent) -> None:
        self._emit_event(event)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        self._emit_event(event)


def to_structured_tools(tools: Iterable[Registrable[Ctx]]) -> list[FunctionTool[Ctx, ..., Any]]:
    """Return functions and tools, also hand-written ones, as tools with `invoke`, `ainvoke` and `parse_args`."""
    return [_make_structured(as_tool(tool)) for tool in tools]


def _make_structured(tool: Tool[Any]) -> FunctionTool[Any, ..., Any]:
    if isinstance(tool, FunctionTool):
        return cast("FunctionTool[Any, ..., Any]", tool)

    async def execute(context: ToolContext[Any], arguments: dict[str, Any]) -> ToolOutput:
        return await tool.execute(arguments, context)

    options: ToolOptions = getattr(tool, "options", None) or ToolOptions()
    keywords: Any = {option.name: getattr(options, option.name) for option in fields(options)}
    definition = tool.definition
    # The defaults of a tool with its own parser are filled in by that, or by its server.
    return tool_from_schema_with_ctx(
        definition.name,
        definition.description,
        definition.parameters,
        execute,
        fills_defaults=not hasattr(tool, "arguments"),
        **keywords,
    )
