"""A turn of a guided model: what is known when it begins, and what the steps have found so far."""

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
from toolkit.guided.grounding import Ground
from toolkit.guided.holding import SchemaHolder, read_reply_object
from toolkit.guided.result_text import flatten_json_text
from toolkit.guided.said_values import is_number_of_thing
from toolkit.word_stems import list_stems

__all__ = ["GuidedStep", "GuidedTurn", "PastCall", "StepVerdict"]

StepVerdict: TypeAlias = Literal["next", "again", "answer"]
"""How a turn goes on after a step: to the next step, from the first step without this tool, or to the answer."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call that was made for the request at hand.

    Args:
        name: Its tool.
        arguments: As they were sent; empty where they were no object.
        result: The text that came back.
        is_error: True where that tells of a failure.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    is_error: bool


@dataclass(kw_only=True, eq=False)
class GuidedTurn:
    """The state that the steps of one turn share: a step reads it, asks by `ask`, and leaves what it found.

    Attributes:
        request: The request of the application.
        holder: Asks the model, and holds the reply to a schema.
        tools: The tools that may be called now.
        question: The user's last words.
        said: All that was said, by users, results and the application: what arguments may be taken from.
        past_calls: The calls that were made since `question`, with what came of them.
        refused: The names of tools that a step has refused in this turn.
        tool: The tool that was chosen; None before.
        view: The parameters that the model sees; None before.
        calls: The arguments of each call of it; empty before.
        is_cut_off: True where the reply with the arguments was cut off at the limit of tokens.
        usage: The usage of the steps so far.
        response: The last reply that a step got.
    """

    request: ChatRequest
    holder: SchemaHolder
    tools: Sequence[ToolDefinition]
    question: str
    said: str
    past_calls: Sequence[PastCall]
    refused: list[str] = field(default_factory=list[str])
    tool: ToolDefinition | None = None
    view: FoldedSchema | None = None
    calls: Sequence[Mapping[str, Any]] = ()
    is_cut_off: bool = False
    usage: Usage = field(default_factory=Usage)
    response: ChatResponse | None = None

    @classmethod
    def of(cls, request: ChatRequest, holder: SchemaHolder) -> GuidedTurn:
        """Return the turn that a request begins.

        Raises:
            ConfigurationError: `tool_choice` names a tool that is not there.
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
            said="\n".join([_read_source(message) for message in messages if _is_source(message)]),
            past_calls=_list_past_calls(messages[position + 1 :]),
        )

    @property
    def must_call(self) -> bool:
        """True where the request leaves no choice: some tool, or this tool, has to be called."""
        return self.request.tool_choice not in ("auto", "none")

    @property
    def is_tool_named(self) -> bool:
        """True where the request names the tool to call, which vendors take for exactly one call."""
        return self.request.tool_choice not in ("auto", "none", "required")

    @property
    def known(self) -> str:
        """The words said beside the question."""
        return self.said.replace(self.question, "", 1)

    @property
    def open_tools(self) -> list[ToolDefinition]:
        """The tools that no step has refused."""
        return [tool for tool in self.tools if tool.name not in self.refused]

    @cached_property
    def ground(self) -> Ground:
        """The words that were said, as values are looked up in them."""
        return Ground(self.said)

    def require_tool(self, asker: object) -> ToolDefinition:
        """Return the tool that was chosen.

        Raises:
            ConfigurationError: No step before has chosen one.
        """
        if self.tool is None:
            raise ConfigurationError(
                f"{type(asker).__name__} comes before a tool is chosen: put ChooseTool, or a step that sets the turn's "
                "tool, before it in 'steps'"
            )
        return self.tool

    @cached_property
    def numbered_things(self) -> Mapping[str, frozenset[str]]:
        """For each tool, the stems of the parameters that take the number of a thing, such as a customer."""
        return {
            tool.name: frozenset(
                [
                    stem
                    for name, node in fold_schema(tool.parameters).properties.items()
                    if is_number_of_thing(node)
                    for stem in list_stems(name.rpartition(".")[2])
                ]
            )
            for tool in self.tools
        }

    async def ask(
        self, messages: Sequence[Message], schema: Mapping[str, Any], *, max_tokens: int | None = None
    ) -> Mapping[str, Any] | None:
        """Ask the model for an object of a schema, and return it; None where the reply was cut off.

        Raises:
            BadResponseError: The server does not hold the reply to the schema.
            ProviderError: The server failed.
        """
        reply = await self.holder.ask(self.request, messages, schema, max_tokens=max_tokens)
        self.response, self.is_cut_off = reply.response, reply.value is None
        self.usage += reply.response.usage
        return reply.value


class GuidedStep(Protocol):
    """One step of a turn: asks the model something small, or checks what was found so far."""

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Do it, and say how the turn goes on."""
        ...


def _is_source(message: Message) -> bool:
    return bool(message.text) and not (isinstance(message, ToolResult) and message.is_error)


def _read_source(message: Message) -> str:
    return flatten_json_text(message.text) if isinstance(message, ToolResult) else message.text


def _list_past_calls(messages: Sequence[Message]) -> list[PastCall]:
    calls = {
        call.id: call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
    }
    return [
        PastCall(call.name, read_reply_object(call.arguments) or {}, message.text, message.is_error)
        for message in messages
        if isinstance(message, ToolResult) and (call := calls.get(message.call_id)) is not None
    ]
