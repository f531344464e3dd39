"""A turn of a guided model: its state when it begins, and what the steps have found so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    ToolDefinition,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.request import callable_tools
from toolkit.errors import ConfigurationError
from toolkit.guided.folding import FoldedSchema, fold_schema
from toolkit.guided.holding import SchemaHolder, read_reply_object
from toolkit.guided.written_words import list_leaves, list_open_words, list_unsaid, split_words

__all__ = ["GuidedStep", "GuidedTurn", "PastCall", "StepVerdict"]

StepVerdict: TypeAlias = Literal["next", "answer"]
"""How a turn continues after a step: with the next step, or with the model's answer."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call that was made for the current request.

    Args:
        name: Its tool.
        arguments: As they were sent; empty if they were no object.
        result: The text of its result.
        is_error: True if that reports a failure.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    is_error: bool


@dataclass(kw_only=True, eq=False)
class GuidedTurn:
    """The state that the steps of one turn share: a step reads it, asks by `ask`, and stores what it found.

    Attributes:
        request: The application's request.
        holder: Asks the model, and holds the reply to a schema.
        tools: The tools that may be called now.
        question: The text of the last user message.
        past_calls: The calls made since then, with their results.
        tool: The chosen tool; None before.
        view: The parameters that the model sees; None before.
        calls: The arguments of each call of it; empty before.
        is_unasked: True if the request itself has nothing that speaks for the calls: all arguments count as unsaid.
        is_cut_off: True if the reply with the arguments was cut off at the limit of tokens.
        usage: The usage of the steps so far.
        response: The last reply that a step received.
    """

    request: ChatRequest
    holder: SchemaHolder
    tools: Sequence[ToolDefinition]
    question: str
    past_calls: Sequence[PastCall]
    tool: ToolDefinition | None = None
    view: FoldedSchema | None = None
    calls: Sequence[Mapping[str, Any]] = ()
    is_unasked: bool = False
    is_cut_off: bool = False
    usage: Usage = field(default_factory=Usage)
    response: ChatResponse | None = None

    @classmethod
    def of(cls, request: ChatRequest, holder: SchemaHolder) -> GuidedTurn:
        """Return the turn that a request begins.

        Raises:
            ConfigurationError: `tool_choice` names a tool that does not exist.
        """
        messages = request.messages
        position = max(
            (index for index, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1
        )
        return cls(
            request=request,
            holder=holder,
            tools=callable_tools(request),
            question=messages[position].text if position >= 0 else "",
            past_calls=_list_past_calls(messages[position + 1 :]),
        )

    @property
    def must_call(self) -> bool:
        """True if the request requires a call, of any tool or of a given one."""
        return self.request.tool_choice not in ("auto", "none")

    @property
    def is_tool_named(self) -> bool:
        """True if the request names the tool to call, which vendors take for exactly one call."""
        return self.request.tool_choice not in ("auto", "none", "required")

    @cached_property
    def conversation(self) -> str:
        """The texts of users, results and the application, without those of the model and of failures."""
        return "\n".join(
            message.text
            for message in self.request.messages
            if not isinstance(message, AssistantMessage) and not (isinstance(message, ToolResult) and message.is_error)
        )

    @cached_property
    def used_values(self) -> list[Any]:
        """The values of the calls that succeeded."""
        return [leaf for call in self.past_calls if not call.is_error for leaf in list_leaves(call.arguments)]

    @cached_property
    def open_words(self) -> list[str]:
        """The words of the question that no successful call accounts for."""
        good = [call for call in self.past_calls if not call.is_error]
        names = [word for call in good for name in (call.name, *call.arguments) for word in split_words(name)]
        called = [tool for tool in self.tools if any(call.name == tool.name for call in good)]
        about = [word for tool in called for text in _list_descriptions(tool) for word in split_words(text)]
        return list_open_words(self.question, self.used_values, names, about)

    def require_tool(self, asker: object) -> ToolDefinition:
        """Return the chosen tool.

        Raises:
            ConfigurationError: No step before has chosen one.
        """
        if self.tool is None:
            raise ConfigurationError(
                f"{type(asker).__name__} comes before a tool is chosen: put ChooseTool, or a step that sets the turn's "
                "tool, before it in 'steps'"
            )
        return self.tool

    def list_unsaid(self, call: Mapping[str, Any]) -> list[str]:
        """Return the arguments of a call that stand nowhere in the conversation, as paths."""
        values = call if self.view is None else self.view.fold(call)
        return list(values) if self.is_unasked else list_unsaid(values, self.conversation)

    async def ask(
        self, messages: Sequence[Message], schema: Mapping[str, Any], *, max_tokens: int | None = None
    ) -> Mapping[str, Any] | None:
        """Ask the model for an object of a schema, and return it; None if the reply was cut off.

        Raises:
            BadResponseError: The server does not hold the reply to the schema.
            ProviderError: The server failed.
        """
        reply = await self.holder.ask(self.request, messages, schema, max_tokens=max_tokens)
        self.response, self.is_cut_off = reply.response, reply.value is None
        self.usage += reply.response.usage
        return reply.value


class GuidedStep(Protocol):
    """One step of a turn: asks the model a small question, or checks what was found so far."""

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Take the step, and return how the turn continues."""
        ...


def _list_descriptions(tool: ToolDefinition) -> list[str]:
    nodes = fold_schema(tool.parameters).properties.values()
    return [tool.description, *[str(node.get("description", "")) for node in nodes]]


def _list_past_calls(messages: Sequence[Message]) -> list[PastCall]:
    calls = {
        call.id: call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
    }
    return [
        PastCall(call.name, read_reply_object(call.arguments) or {}, message.text, message.is_error)
        for message in messages
        if isinstance(message, ToolResult) and (call := calls.get(message.call_id)) is not None
    ]
