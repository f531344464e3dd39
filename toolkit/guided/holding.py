"""Replies held to a JSON Schema, in the words of whatever server there is; and whether it does what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from toolkit.chat import ChatRequest, ChatResponse, Message, Provider, ResponseFormat, Usage
from toolkit.errors import BadResponseError, ConfigurationError, ContextTooLongError, ProviderError, SchemaError
from toolkit.schema.nodes import is_object
from toolkit.schema.raw_schema import RawSchema

__all__ = ["HeldReply", "HoldingWay", "SchemaHolder", "make_check", "read_reply_object", "strip_tools"]

HoldingWay: TypeAlias = Literal["response_format", "json_schema", "structured_outputs", "guided_json", "format"]
"""The field by which a server takes a schema: OpenAI's and most others', llama.cpp's, vLLM's two, Ollama's."""

_FIELDS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "json_schema": lambda schema: schema,
    "structured_outputs": lambda schema: {"json": schema},
    "guided_json": lambda schema: schema,
    "format": lambda schema: schema,
}
# What servers answer where they don't know a field, or can't make a grammar of a schema.
_REFUSALS = frozenset({400, 404, 422, 500, 501})
_LONGEST_SHOWN_REPLY = 80


@dataclass(frozen=True, slots=True)
class HeldReply:
    """A reply that was held to a schema.

    Args:
        response: As the provider gave it.
        value: The object; None where the reply was cut off before its end.
    """

    response: ChatResponse
    value: Mapping[str, Any] | None


class SchemaHolder:
    """Asks a provider for objects of a schema, by the first way that its server obeys.

    Args:
        provider: Talks to the model.
        way: The field that its server takes; ``auto`` tries one after the other, and keeps to what worked.

    Raises:
        ConfigurationError: There is no such way.
    """

    def __init__(self, provider: Provider, way: HoldingWay | Literal["auto"]) -> None:
        ways: tuple[HoldingWay, ...] = get_args(HoldingWay)
        if way != "auto" and way not in ways:
            known = ", ".join([f"'{each}'" for each in ("auto", *ways)])
            raise ConfigurationError(f"hold_by must be one of {known}, not {way!r}")
        self._provider = provider
        self._ways: tuple[HoldingWay, ...] = ways if way == "auto" else (way,)

    async def ask(
        self,
        request: ChatRequest,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        *,
        max_tokens: int | None = None,
    ) -> HeldReply:
        """Return the model's reply to the messages, with the settings of the request.

        Raises:
            BadResponseError: No reply fits the schema: the server holds none to it.
            ProviderError: The server failed, or refused the schema in every way.
        """
        asked = strip_tools(request, messages)
        asked = replace(asked, stop=(), max_tokens=max_tokens or request.max_tokens)
        check = RawSchema(schema, subject="the schema of a step")
        spent, failure, said = Usage(), None, ""
        for way in self._ways:
            try:
                response = await self._provider.generate(_hold_to_schema(asked, schema, way))
            except ContextTooLongError:
                raise
            except ProviderError as error:
                if error.status not in _REFUSALS or len(self._ways) == 1:
                    raise
                failure = failure or error
                continue
            spent += response.usage
            response = replace(response, usage=spent)
            value = read_reply_object(response.text)
            if value is not None and check.is_valid(value):
                # Kept: the other ways cost a request each.
                self._ways = (way, *[other for other in self._ways if other != way])
                return HeldReply(response, value)
            if response.stop_reason == "max_tokens":
                return HeldReply(response, None)
            said = response.text
        if failure is not None and not said:
            raise failure
        raise _explain_neglect(self._provider, self._ways, said)


def make_check(schema: Mapping[str, Any]) -> Callable[[object], bool]:
    """Return a function that tells whether a value fits a schema; nothing fits an invalid one."""
    try:
        return RawSchema(schema, subject="the schema of an argument").is_valid
    except SchemaError:
        return lambda _: False


def strip_tools(request: ChatRequest, messages: Sequence[Message]) -> ChatRequest:
    """Return the request with other messages, and without a word of tools."""
    return replace(request, messages=messages, tools=None, tool_choice="auto", parallel_tool_calls=None)


def read_reply_object(text: str) -> Mapping[str, Any] | None:
    """Return the object that a text is, within a fence or not; None where it is no whole JSON object."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.strip("`").removeprefix("json")
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


def _hold_to_schema(request: ChatRequest, schema: Mapping[str, Any], way: HoldingWay) -> ChatRequest:
    if way == "response_format":
        return replace(request, response_format=ResponseFormat(schema, name="reply"))
    return replace(request, response_format=None, options={**request.options, way: _FIELDS[way](schema)})


def _explain_neglect(provider: Provider, ways: Sequence[HoldingWay], said: str) -> BadResponseError:
    shown = said if len(said) <= _LONGEST_SHOWN_REPLY else f"{said[:_LONGEST_SHOWN_REPLY]}..."
    return BadResponseError(
        str(getattr(provider, "name", "the provider")),
        f"the server does not hold a reply to a JSON Schema, which guided calls need (asked by {', '.join(ways)}): it "
        f"answered {shown!r}. Use a server that does (llama.cpp, vLLM, Ollama, OpenAI), or TextToolProvider",
    )
