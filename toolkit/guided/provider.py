"""The provider that leads a model through small questions, and the way it is asked for its answer."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ResponseDone,
    StreamEvent,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.guided.holding import HoldingWay, SchemaHolder, strip_tools
from toolkit.guided.steps import DEFAULT_STEPS
from toolkit.guided.turn import GuidedStep, GuidedTurn
from toolkit.json_text import write_json
from toolkit.settings import PositiveInt, check_fields


class GuidedAnswer(Protocol):
    """Writes the request for the answer of a turn, in text."""

    def write(self, turn: GuidedTurn) -> ChatRequest:
        """Return the request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFromResults:
    """Restates the results as the answer, and asks for a sentence; without results the conversation is answered.

    Args:
        is_quoting: True makes a short result on one line the whole answer, word by word, by a grammar of llama.cpp: a
            small model would rather compute the sum itself, and wrongly.
        longest_quoted: Characters of results that are quoted.
    """

    is_quoting: bool = False
    longest_quoted: PositiveInt = 200

    def __post_init__(self) -> None:
        check_fields(self)

    def write(self, turn: GuidedTurn) -> ChatRequest:
        """Return the request."""
        request = turn.request
        if not turn.past_calls:
            return strip_tools(request, [_flatten_message(message) for message in request.messages])
        good = [call.result for call in turn.past_calls if not call.is_error]
        results = "\n".join(good or [call.result for call in turn.past_calls])
        if not good:
            prompt = f"{turn.question}\n\nThat failed: {results}\n\nSay in a sentence that it failed, and why."
        else:
            prompt = f"{turn.question}\n\nThe answer is: {results}\n\nSay the answer in a sentence."
        instructions = [message for message in request.messages if isinstance(message, SystemMessage)]
        asked = strip_tools(request, [*instructions, UserMessage(prompt)])
        quoted = " and ".join([result.strip().rstrip(".") for result in good])
        if self._is_quotable(quoted) and request.response_format is None and "grammar" not in request.options:
            asked = replace(asked, options={**asked.options, "grammar": _make_quoting_grammar(quoted)})
        return asked

    def _is_quotable(self, text: str) -> bool:
        return self.is_quoting and bool(text.strip()) and "\n" not in text and len(text) <= self.longest_quoted


class GuidedProvider(ProviderWrapper):
    """Leads a small model to tool calls, by small questions whose answers are always right in form.

    ::

        server = OpenAIProvider("my-model", base_url="http://localhost:8080/v1", api_key="none")
        result = await tool_loop(GuidedProvider(server), registry, "What's the weather in Paris?")

    A reply has calls of one tool; others follow its results. The server holds each reply to a JSON Schema, so form is
    certain. Values are the model's own: see `docs/weak_models.md`. Arguments that stand nowhere in the conversation are
    marked: `ToolCall.unsaid` names them, and rules and approval can ask about them.

    Args:
        provider: Talks to the model; it never receives tools.
        steps: The steps that are taken, in this order, until one of them leads to the answer.
        answer: How the model is asked for its answer.
        hold_by: The field in which the server takes a schema; ``auto`` finds out at the first request.

    Raises:
        ConfigurationError: There is no such way to hold, or there are no steps.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        steps: Sequence[GuidedStep] = DEFAULT_STEPS,
        answer: GuidedAnswer | None = None,
        hold_by: HoldingWay | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(provider)
        if not steps:
            raise ConfigurationError("a guided turn needs steps: leave them out for the default ones")
        self._steps = tuple(steps)
        self._answer: GuidedAnswer = AnswerFromResults() if answer is None else answer
        self._holder = SchemaHolder(provider, hold_by)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the calls that the steps led to, else the model's answer; the usage is that of all steps.

        Raises:
            ConfigurationError: `tool_choice` names a tool that does not exist.
            BadResponseError: The server does not hold replies to a schema.
            ProviderError: As for the provider.
        """
        turn = await self._take_steps(request)
        called = _write_calls(turn)
        if called is not None:
            return called
        response = await self._provider.generate(self._answer.write(turn))
        return replace(response, usage=response.usage + turn.usage)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; each call comes in one piece.

        Raises:
            ProviderError: As for `generate`.
        """
        turn = await self._take_steps(request)
        called = _write_calls(turn)
        if called is not None:
            for index, call in enumerate(called.tool_calls):
                yield ArgumentsDelta(index, call.id, call.name, call.arguments)
            yield ResponseDone(called)
            return
        async with closing(self._provider.stream(self._answer.write(turn))) as events:
            async for event in events:
                if isinstance(event, ResponseDone) and turn.usage != Usage():
                    response = event.response
                    yield ResponseDone(replace(response, usage=response.usage + turn.usage))
                else:
                    yield event

    async def _take_steps(self, request: ChatRequest) -> GuidedTurn:
        """Return a turn with a tool and its arguments, or without a tool."""
        turn = GuidedTurn.of(request, self._holder)
        if not turn.tools:
            return turn
        for step in self._steps:
            if await step.take(turn) == "answer":
                turn.tool = turn.tool if turn.must_call else None
                break
        return turn


def _write_calls(turn: GuidedTurn) -> ChatResponse | None:
    """Return the reply with the calls that a turn ended with; None if it ended without."""
    if turn.tool is None:
        return None
    reply = turn.response or ChatResponse(message=AssistantMessage())
    if turn.is_cut_off:
        calls = [_make_call(turn.tool.name, reply.text, {})]
    else:
        calls = [_make_call(turn.tool.name, write_json(dict(call)), _mark_unsaid(turn, call)) for call in turn.calls]
    return replace(
        reply,
        message=AssistantMessage(calls),
        usage=turn.usage,
        stop_reason="max_tokens" if turn.is_cut_off else "tool_use",
    )


def _make_call(name: str, arguments: str, extra: Mapping[str, Any]) -> ToolCall:
    return ToolCall(f"call_{secrets.token_hex(6)}", name, arguments, extra=extra or None)


def _mark_unsaid(turn: GuidedTurn, call: Mapping[str, Any]) -> dict[str, Any]:
    unsaid = turn.list_unsaid(call)
    return {"unsaid": unsaid} if unsaid else {}


def _make_quoting_grammar(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\t", "\\t")
    return f'root ::= "{quoted}" "."?'


def _flatten_message(message: Message) -> Message:
    """Return a message without calls and results, which the templates of small models drop or fail on."""
    match message:
        case AssistantMessage():
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            return AssistantMessage("\n".join([text for text in (message.text, *calls) if text]))
        case ToolResult():
            return UserMessage(f"Result of {message.tool_name or 'the call'}: {message.text}")
        case SystemMessage() | UserMessage():
            return message
