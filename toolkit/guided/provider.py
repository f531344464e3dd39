"""The provider that leads a model through small held steps."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Literal

from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Provider,
    ResponseDone,
    StreamEvent,
    ToolCall,
    Usage,
)
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.errors import ConfigurationError
from toolkit.guided.answers import AnswerFromResults, GuidedAnswer
from toolkit.guided.holding import HoldingWay, SchemaHolder
from toolkit.guided.steps import DEFAULT_STEPS
from toolkit.guided.turn import GuidedStep, GuidedTurn
from toolkit.json_text import write_json
from toolkit.settings import check_setting

__all__ = ["GuidedProvider"]


class GuidedProvider(ProviderWrapper):
    """Leads a small model to tool calls, by small questions whose answers can only be right in form.

    ::

        server = OpenAIProvider("my-model", base_url="http://localhost:8080/v1", api_key="none")
        result = await tool_loop(GuidedProvider(server), registry, "What's the weather in Paris?")

    A reply has calls of one tool; others follow its results. What a step asks for is held to a JSON Schema by
    the server, so form is certain. What a call says is not: see `docs/weak_models.md`.

    Args:
        provider: Talks to the model; it is never told of tools.
        steps: The steps that are taken, in this order, until a call stands or the model is to answer.
        answer: How the model is asked for its answer.
        hold_by: The field in which the server takes a schema; ``auto`` finds out at the first request.
        most_tools_tried: After how many refused tools the model is to answer.

    Raises:
        ConfigurationError: There is no such way to hold, there are no steps, or a limit is less than 1.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        steps: Sequence[GuidedStep] = DEFAULT_STEPS,
        answer: GuidedAnswer | None = None,
        hold_by: HoldingWay | Literal["auto"] = "auto",
        most_tools_tried: int = 3,
    ) -> None:
        super().__init__(provider)
        check_setting("most_tools_tried", most_tools_tried, int, least=1)
        if not steps:
            raise ConfigurationError("a guided turn needs steps: leave them out for the default ones")
        self._steps = tuple(steps)
        self._answer: GuidedAnswer = AnswerFromResults() if answer is None else answer
        self._holder = SchemaHolder(provider, hold_by)
        self._most_tools_tried = most_tools_tried

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the calls that stand, else the model's answer; the usage is that of all steps.

        Raises:
            ConfigurationError: `tool_choice` names a tool that is not there.
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
        """Yield the answer as it comes; calls come in one piece each.

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
        while turn.open_tools and len(turn.refused) < self._most_tools_tried:
            verdict = await self._take_round(turn)
            if verdict != "again":
                return turn
            turn.refused.append(turn.require_tool(self).name)
            if turn.must_call:
                break  # nothing but this call is allowed
        turn.tool = turn.tool if turn.must_call else None
        return turn

    async def _take_round(self, turn: GuidedTurn) -> Literal["next", "again"]:
        for step in self._steps:
            verdict = await step.take(turn)
            if verdict == "answer":
                turn.tool = None
                return "next"
            if verdict == "again":
                return "again"
        return "next"


def _write_calls(turn: GuidedTurn) -> ChatResponse | None:
    """Return the reply with the calls that a turn ended with; None where it ended without."""
    if turn.tool is None:
        return None
    reply = turn.response or ChatResponse(message=AssistantMessage())
    texts = [reply.text] if turn.is_cut_off else [write_json(dict(call)) for call in turn.calls]
    calls = [ToolCall(f"call_{secrets.token_hex(6)}", turn.tool.name, text) for text in texts]
    return replace(
        reply,
        message=AssistantMessage(calls),
        usage=turn.usage,
        stop_reason="max_tokens" if turn.is_cut_off else "tool_use",
    )
