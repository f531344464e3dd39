"""How to ask a model for calls: from its name and its file, or by three small requests to one that is unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseFormat, ToolCall, ToolDefinition, UserMessage
from toolkit.dataclass import dataclass
from toolkit.errors import ProviderError
from toolkit.foreign_text import shorten_to_line
from toolkit.parsing.families import CallingWay, ModelFamily, find_family
from toolkit.parsing.forms import TextFormat
from toolkit.parsing.provider import TextToolProvider
from toolkit.redaction import without_keys

_SMALL = 1_000_000_000
"""Up to so many parameters a model is guided: at half a billion, native and text calls finished 3 of 30 tasks, replies
held to schemas 14."""

# Of marks that several templates share, the first decides.
_MARKS: tuple[tuple[str, TextFormat], ...] = (
    ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "deepseek"),
    ("<|tool_calls_section_begin|>", "kimi"),
    ("<|channel|>", "harmony"),
    ("<minimax:tool_call>", "minimax"),
    ("<arg_key>", "glm"),
    ("<function=", "qwen"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama"),
    ("<|tool_call|>", "phi"),
)
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(?P<experts>\d+)x)?(?P<number>\d+(?:\.\d+)?)(?P<unit>[bm])(?![a-z])")
_TOOLS_IN_TEMPLATE = re.compile(r"\btools\b")
_NAMES_IN_FILE = ("general.name", "general.basename", "general.base_model.0.name", "general.architecture")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingAdvice:
    """How a model is best asked for calls, and why.

    Args:
        way: The best way, as far as is known.
        reason: Why, in a few words for people.
        format: How it writes calls in text.
        family: Its row in the table; None where no row fits.
        parameters: How many it has; None where that is not said.
        template_has_tools: True where its template takes tools; None where that is not known.
    """

    way: CallingWay
    reason: str
    format: TextFormat = "hermes"
    family: ModelFamily | None = None
    parameters: int | None = None
    template_has_tools: bool | None = None


def advise_calling(model: str = "", metadata: Mapping[str, Any] | None = None) -> CallingAdvice:
    """Return how to ask a model for calls.

    ::

        advise_calling("qwen3:8b").way  # "native"
        advise_calling("SmolLM2-135M-Instruct").way  # "guided": it is too small to call by itself

    What stands in a model's file goes before what is known of its family: a template that takes tools is seen there.

    Args:
        model: Its name, as its server or its makers write it.
        metadata: That of its GGUF file, by the keys of the format: ``general.name``, ``tokenizer.chat_template``.
    """
    told: Mapping[str, Any] = {} if metadata is None else metadata
    names = [model, *[str(told[key]) for key in _NAMES_IN_FILE if key in told]]
    family = next((found for found in map(find_family, names) if found is not None), None)
    parameters = _count_parameters(names, told)
    advice = CallingAdvice(way="native", reason="nothing is known of it: ask for a probe", parameters=parameters)
    if family is not None:
        advice = replace(
            advice,
            way=family.calling,
            reason=f"the way of the family {family.name}",
            format=family.format,
            family=family,
            template_has_tools=family.template_has_tools,
        )
    if metadata is not None:
        advice = _read_template(advice, told)
    if parameters is not None and parameters <= _SMALL:
        return replace(
            advice, way="guided", reason=f"with {_write_count(parameters)} parameters it rarely calls by itself"
        )
    return advice


def _read_template(advice: CallingAdvice, metadata: Mapping[str, Any]) -> CallingAdvice:
    """Return the advice as a model's own template has it."""
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str) or not template:
        return replace(advice, way="guided", reason="it has no chat template", template_has_tools=False)
    if _TOOLS_IN_TEMPLATE.search(template) is None:
        way: CallingWay = "guided" if advice.family is None else "text"
        return replace(advice, way=way, reason="its chat template takes no tools", template_has_tools=False)
    format_ = next((name for mark, name in _MARKS if mark in template), advice.format)
    if advice.family is not None and advice.way == "text" and advice.family.template_has_tools is not False:
        reason = f"its chat template takes tools, and the family {advice.family.name} writes its calls as text"
        return replace(advice, reason=reason, format=format_, template_has_tools=True)
    reason = "its chat template takes tools"
    return replace(advice, way="native", reason=reason, format=format_, template_has_tools=True)


def _count_parameters(names: list[str], metadata: Mapping[str, Any]) -> int | None:
    """Return how many parameters a model has, as its file or one of its names says."""
    count = metadata.get("general.parameter_count")
    if isinstance(count, int) and count > 0:
        return count
    for text in (str(metadata.get("general.size_label", "")), *names):
        sizes = [_read_size(found) for found in _SIZE.finditer(text.casefold().replace("_", "-"))]
        if sizes:
            return max(sizes)
    return None


def _read_size(found: re.Match[str]) -> int:
    unit = 1_000_000_000 if found["unit"] == "b" else 1_000_000
    return int(float(found["number"]) * unit) * int(found["experts"] or 1)


def _write_count(parameters: int) -> str:
    if parameters >= 1_000_000_000:
        return f"{parameters / 1_000_000_000:g} billion"
    return f"{parameters / 1_000_000:.0f} million"


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
