"""Tools that the model searches for before it sees them, for vendors that have no such search themselves.

A run offers the others, and a tool that searches by BM25 over names, descriptions, parameters and tags. Those that it
finds are appended to what is offered and stay for the run, so the beginning of each request stays as it was. They are
read back from the transcript, which is why a run that is restored or replayed has them again.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import Field

from toolkit.calls.registration import Registration
from toolkit.chat import Message, ToolDefinition, ToolHints, ToolResult
from toolkit.foreign_text import shorten_to_line
from toolkit.loop.config import Embed, ToolSearch
from toolkit.tools.decorators import tool
from toolkit.tools.registry import ToolRegistry

SEARCH_NAME = "search_tools"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")
_FOUND = re.compile(r"^- ([A-Za-z0-9_-]+): ", re.MULTILINE)
_NAME_WEIGHT, _TAG_WEIGHT = 3, 2
_SATURATION, _LENGTH_SHARE = 1.2, 0.75  # the usual constants of BM25
_RANK_OFFSET = 60  # the usual constant for joining two rankings
_LONGEST_SUMMARY = 160


class ToolIndex:
    """Words of tools and their tags, for a search that looks only at the tools that have a word of the query."""

    def __init__(self, tools: Iterable[tuple[ToolDefinition, Iterable[str]]], embed: Embed | None = None) -> None:
        self._tools: list[ToolDefinition] = []
        self._places: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._embed = embed
        counts: list[Counter[str]] = []
        for definition, tags in tools:
            self._tools.append(definition)
            counts.append(_count_words(definition, tags))
        average = sum([count.total() for count in counts]) / max(1, len(counts)) or 1.0
        for place, count in enumerate(counts):
            norm = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * count.total() / average)
            for word, times in count.items():
                self._places[word].append((place, times * (_SATURATION + 1) / (times + norm)))
        self._vectors = (
            [] if embed is None else [*map(_scale_vector, embed([_write_text(each) for each in self._tools]))]
        )

    def search(self, query: str, most: int) -> list[ToolDefinition]:
        """Return the tools that fit a query best, the best first."""
        scores: dict[int, float] = defaultdict(float)
        for word in set(_list_words(query)):
            places = self._places.get(word, ())
            rarity = math.log(1 + (len(self._tools) - len(places) + 0.5) / (len(places) + 0.5))
            for place, weight in places:
                scores[place] += rarity * weight
        ranked = sorted(scores, key=lambda place: (-scores[place], place))
        if self._embed is not None and self._vectors:
            ranked = _join_rankings(ranked, self._rank_alike(query))
        return [self._tools[place] for place in ranked[:most]]

    def _rank_alike(self, query: str) -> list[int]:
        assert self._embed is not None
        (wanted,) = map(_scale_vector, self._embed([query]))
        likeness = [sum([a * b for a, b in zip(wanted, vector, strict=False)]) for vector in self._vectors]
        return sorted(range(len(likeness)), key=lambda place: (-likeness[place], place))


def _join_rankings(*rankings: Sequence[int]) -> list[int]:
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, place in enumerate(ranking):
            scores[place] += 1 / (_RANK_OFFSET + rank)
    return sorted(scores, key=lambda place: (-scores[place], place))


def _scale_vector(vector: Sequence[float]) -> Sequence[float]:
    length = math.sqrt(sum([value * value for value in vector])) or 1.0
    return [value / length for value in vector]


def _list_words(text: str) -> list[str]:
    return [_cut_plural(word.lower()) for word in _WORD.findall(text)]


def _cut_plural(word: str) -> str:
    if len(word) <= 3 or word.endswith("ss"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def _count_words(definition: ToolDefinition, tags: Iterable[str]) -> Counter[str]:
    properties: Mapping[str, Any] = definition.parameters.get("properties", {})
    count = Counter(_list_words(definition.description))
    for name, schema in properties.items():
        about = cast("Mapping[str, Any]", schema).get("description", "") if isinstance(schema, Mapping) else ""
        count.update(_list_words(f"{name} {about}"))
    count.update(_list_words(definition.name) * _NAME_WEIGHT)
    count.update([word for tag in tags for word in _list_words(tag)] * _TAG_WEIGHT)
    return count


def _write_text(definition: ToolDefinition) -> str:
    return f"{definition.name.replace('_', ' ')}: {definition.description}"


class DeferredTools:
    """Splits the tools of a run into those that the model sees, and those that it finds by a tool of this name."""

    def __init__(self, registry: ToolRegistry[Any], settings: ToolSearch, name: str) -> None:
        self._registry = registry
        self._settings = settings
        self._split: tuple[object, Sequence[ToolDefinition], dict[str, ToolDefinition]] = ((), (), {})
        self._index: tuple[object, ToolIndex] | None = None
        self._found: dict[str, None] = {}
        self._read: tuple[object, int] = (None, 0)
        self.registration: Registration[object] = self._make_tool(name)

    def list_shown(self, tools: Sequence[ToolDefinition]) -> Sequence[ToolDefinition]:
        """Return the tools that the model sees at once; the same object for the same tools."""
        if self._split[0] is not tools:
            deferred = {
                each.name: replace(each, hints=replace(each.hints or ToolHints(), deferred=False))
                for each in tools
                if each.is_deferred
            }
            shown = (*[each for each in tools if each.name not in deferred], self.registration.definition)
            self._split = (tools, shown, deferred)
        return self._split[1]

    def list_found(self, messages: Sequence[Message]) -> list[ToolDefinition]:
        """Return the tools that searches of a transcript have found, in their order, as far as they may be offered."""
        whose, count = self._read
        start = count if whose is messages and count <= len(messages) else 0
        for message in messages[start:]:
            if isinstance(message, ToolResult) and message.tool_name == self.registration.name:
                self._found.update(dict.fromkeys(_FOUND.findall(message.text)))
        self._read = (messages, len(messages))
        deferred = self._split[2]
        return [deferred[name] for name in self._found if name in deferred]

    def _make_tool(self, name: str) -> Registration[object]:
        def search_tools(
            query: Annotated[str, Field(description="What the tool should do, or a part of its name.")],
        ) -> str:
            """Search for more tools. Those that are found can be called from the next turn on."""
            found = self._find_index().search(query, self._settings.most)
            if not found:
                return f"No tool fits. There are {len(self._split[2])} more tools: try other words."
            lines = [f"- {each.name}: {shorten_to_line(each.description, _LONGEST_SUMMARY)}" for each in found]
            return "\n".join(["These tools can be called now:", *lines])

        made = tool(name=name, tags={"read"}, run_in_thread=self._settings.embed is not None, cache=False)(search_tools)
        registration = Registration[object](made)
        registration.is_offered_by_loop = True
        return registration

    def _find_index(self) -> ToolIndex:
        deferred = self._split[2]
        if self._index is None or self._index[0] is not deferred:
            known = self._registry.registrations
            tagged = [(each, known[name].tags if name in known else ()) for name, each in deferred.items()]
            self._index = (deferred, ToolIndex(tagged, self._settings.embed))
        return self._index[1]
