"""How well tools fit a request: by the values that it says, and by its words.

It is a hint to a model that chooses among many tools, and never a verdict: a request may be put in other words, and the
value that it says may be of no use to the right tool.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.chat import ToolDefinition
from toolkit.guided.folding import find_named_values, fold_schema
from toolkit.guided.grounding import list_dates
from toolkit.guided.said_values import find_kind_of_text, hold_to_said_values, list_codes
from toolkit.guided.short_forms import list_request_stems
from toolkit.guided.spans import has_name, has_quotation, remove_quotations
from toolkit.guided.spoken_times import list_times
from toolkit.word_stems import list_stems

__all__ = ["rank_tools"]

_WORTH_OF_WORD, _WORTH_OF_VALUE, _COST_OF_UNSAID = 1.0, 0.6, 0.3
_TOLD_BY_LOOK = ("day", "time", "code", "number")
_LONGEST_LOOK = 1000
_CALCULATION = re.compile(r"\d\s*[-+*/^]\s*\(?\d")
_FIRST_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


def rank_tools(question: str, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    """Return the tools that something in a request speaks for, the best first.

    What speaks for one tool alone counts most; what speaks for each of them counts next to nothing.
    """
    question = question[:_LONGEST_LOOK]  # the time to look grows with the square of the words
    stems = frozenset(list_stems(remove_quotations(question)))
    signs = {tool.name: {*_list_shared_words(tool, stems), *_list_fitting_values(tool, question)} for tool in tools}
    counts = Counter(sign for found in signs.values() for sign in found)

    def rate(tool: ToolDefinition) -> float:
        worth = sum(
            (_WORTH_OF_WORD if kind == "word" else _WORTH_OF_VALUE) / counts[kind, what]
            for kind, what in signs[tool.name]
        )
        return worth - _COST_OF_UNSAID * _count_unsaid(tool, question)

    return sorted((tool for tool in tools if signs[tool.name]), key=rate, reverse=True)


def _list_shared_words(tool: ToolDefinition, stems: frozenset[str]) -> Iterator[tuple[str, str]]:
    sentence = _FIRST_SENTENCE.split(tool.description.strip(), maxsplit=1)[0]
    yield from [("word", stem) for stem in list_stems(f"{tool.name} {sentence}") if stem in stems]


def _list_fitting_values(tool: ToolDefinition, question: str) -> Iterator[tuple[str, str]]:
    """Yield what of a request fits a parameter of a tool by its type, its choices or the example in its description."""
    for name, node in fold_schema(tool.parameters).properties.items():
        yield from _list_fitting(name, node, question)


def _count_unsaid(tool: ToolDefinition, question: str) -> int:
    """Return how many required values of a tool a request does not say, of those that can be told."""
    view = fold_schema(tool.parameters, question)
    required = [(name, node) for name, node in view.properties.items() if name not in view.asked]
    return sum(
        not any(True for _ in _list_fitting(name, node, question))
        for name, node in required
        if "enum" in node
        or node.get("type") != "string"
        or find_kind_of_text(node, name) in ("day", "time", "code", "number")
    )


def _list_fitting(name: str, node: Mapping[str, Any], question: str) -> Iterator[tuple[str, str]]:
    if "enum" in node:
        yield from [
            ("choice", str(value)) for value in find_named_values(node["enum"], frozenset(list_request_stems(question)))
        ]
        return
    if hold_to_said_values(node, question, "", name=name) is None:
        return
    if node.get("type") in ("integer", "number"):
        units = set(list_stems(f"{name} {node.get('description', '')}")) & set(list_stems(question))
        yield from [("number", unit) for unit in ("", *units)]
    else:
        yield from _list_fitting_texts(name, node, question)


def _list_fitting_texts(name: str, node: Mapping[str, Any], question: str) -> Iterator[tuple[str, str]]:
    kind = find_kind_of_text(node, name)
    match kind:
        case "day":
            found = "said" if any(True for _ in list_dates(question)) else ""
        case "time":
            found = "said" if any(True for _ in list_times(question)) else ""
        case "code":
            found = ", ".join(list_codes(node, question))
        case "address" | "number":
            found = "said"
        case "formula":
            found = "said" if _CALCULATION.search(question) is not None else ""
        case "text":
            found = "quotation" if has_quotation(question) else "name" if has_name(question) else ""
    if found:
        yield kind, found
