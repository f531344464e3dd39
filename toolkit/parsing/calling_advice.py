"""How to ask a model for calls, from what its name and its file tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolkit.dataclass import dataclass
from toolkit.parsing.families import CallingWay, ModelFamily, find_family
from toolkit.parsing.forms import TextFormat

__all__ = ["CallingAdvice", "advise_calling"]

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
