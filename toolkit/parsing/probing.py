"""Finds out by three small requests how a model that nobody knows can be asked for calls."""

from __future__ import annotations

import json
from typing import Any

from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseFormat, ToolCall, ToolDefinition, UserMessage
from toolkit.dataclass import dataclass
from toolkit.errors import ProviderError
from toolkit.parsing.families import CallingWay
from toolkit.parsing.forms import TextFormat
from toolkit.parsing.provider import TextToolProvider
from toolkit.secrets import without_keys
from toolkit.visible_text import shorten_to_line

__all__ = ["CallingProbe", "probe_calling"]

_CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "The name of the city"}},
    "required": ["city"],
    "additionalProperties": False,
}
_TOOL = ToolDefinition(name="get_weather", description="Tell the weather of a city.", parameters=_CITY)
_QUESTION = "What is the weather in Oslo?"
_MOST_TOKENS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingProbe:
    """The outcome of each way of asking: None where it worked, else what went wrong.

    Args:
        native: With a tool in the request.
        text: With the tool described in the prompt, and the call written as text.
        guided: With the reply held to a schema.
    """

    native: str | None
    text: str | None
    guided: str | None

    @property
    def way(self) -> CallingWay | None:
        """The first way that worked, of native, text and guided; None where none did."""
        ways: tuple[tuple[CallingWay, str | None], ...] = (
            ("native", self.native),
            ("text", self.text),
            ("guided", self.guided),
        )
        return next((way for way, problem in ways if problem is None), None)


async def probe_calling(provider: Provider, *, format: TextFormat = "auto", model: str = "") -> CallingProbe:  # noqa: A002
    """Ask a model for the same call in three ways, one request each, and return which of them it can.

    ::

        probe = await probe_calling(provider)
        if probe.way == "text":
            provider = TextToolProvider(provider)

    One request says little of how often a model gets it right: a small one may pass and still lose its way in a task.

    Args:
        provider: Talks to the model.
        format: How the model writes calls in text.
        model: Its name, for ``auto``.
    """
    in_text = TextToolProvider(provider, format=format, model=model, max_parsing_attempts=1)
    return CallingProbe(
        native=await _try_call(provider), text=await _try_call(in_text), guided=await _try_schema(provider)
    )


async def _try_call(provider: Provider) -> str | None:
    request = _make_request(_QUESTION, tools=(_TOOL,))
    response = await _ask_model(provider, request)
    if isinstance(response, str):
        return response
    calls = response.tool_calls
    if not calls:
        return f"it answered in words: {_quote_reply(response.text)}"
    return _judge_arguments(calls[0])


def _judge_arguments(call: ToolCall) -> str | None:
    if call.name != _TOOL.name:
        return f"it called {_quote_reply(call.name)}"
    return None if _names_oslo(call.arguments) else f"it wrote the arguments {_quote_reply(call.arguments)}"


async def _try_schema(provider: Provider) -> str | None:
    question = f"{_QUESTION} Reply with JSON that names the city."
    request = _make_request(question, response_format=ResponseFormat(_CITY, name="city"))
    response = await _ask_model(provider, request)
    if isinstance(response, str):
        return response
    return None if _names_oslo(response.text) else f"it replied {_quote_reply(response.text)}"


def _make_request(question: str, **settings: Any) -> ChatRequest:
    return ChatRequest(messages=[UserMessage(question)], temperature=0, max_tokens=_MOST_TOKENS, **settings)


async def _ask_model(provider: Provider, request: ChatRequest) -> ChatResponse | str:
    """Return the answer, or what went wrong; that a key is missing or refused is raised, since no way would work."""
    try:
        return await provider.generate(request)
    except ProviderError as error:
        if error.status in (401, 403):
            raise
        return f"its server refused: {_quote_reply(without_keys(str(error)))}"


def _names_oslo(text: str) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and list(found) == ["city"] and "oslo" in str(found["city"]).casefold()  # pyright: ignore[reportUnknownArgumentType]


def _quote_reply(text: str) -> str:
    return repr(shorten_to_line(text, 80))
