"""The view of a tool's parameters, held to what was said: by each parameter, and then by those beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolkit.chat import ToolDefinition
from toolkit.guided.folding import FoldedSchema, find_named_values
from toolkit.guided.languages import is_english
from toolkit.guided.said_values import (
    find_kind_of_text,
    fits_example,
    hold_to_said_values,
    holds_moment,
    is_number_of_thing,
)
from toolkit.guided.short_forms import list_request_stems
from toolkit.guided.spans import list_quotations
from toolkit.guided.spoken_numbers import has_amount
from toolkit.guided.turn import GuidedTurn
from toolkit.schema.nodes import is_object
from toolkit.word_stems import list_stems, split_words

__all__ = ["hold_view", "leave_out_repeated"]

_PREPOSITIONS = "in|on|at|to|into|for|as|with|by|from"
_NUMBERED = re.compile(r"\b([^\W\d_]+) (?:number |no\.? |#)?[\w-]*\d[\w-]*", re.IGNORECASE)
_JOINED = re.compile(r",|;|\b(?:and|or)\b")


def hold_view(turn: GuidedTurn, tool: ToolDefinition, view: FoldedSchema) -> Mapping[str, Any] | None:
    """Return the view's schema with what was said as its values; None where a required one was not said."""
    if not turn.must_call and _is_about_nothing(turn, tool, view):
        return None
    held: dict[str, Any] = {}
    named = frozenset(view.schema["required"])
    own = _remove_numbers_of_others(turn, tool)
    for name, node in view.properties.items():
        # Where a call has to be made, its text may be the answer, which nobody has said.
        values = hold_to_said_values(
            node,
            own if is_number_of_thing(node) else turn.question,
            turn.known,
            name=name,
            frees_texts=turn.must_call,
            needs_shape=bool(turn.past_calls) and not turn.must_call,
        )
        if values is not None and (name in named or name not in view.asked or _is_held(values)):
            held[name] = values
        elif name not in view.asked:
            if not turn.must_call:
                return None
            held[name] = node
    _keep_quotations(turn, view, held)
    _free_shared_choices(view, held)
    _drop_moments(view, held)
    _drop_other_parts(turn, tool, view, held)
    required = [name for name in view.schema["required"] if name in held]
    return {**view.schema, "properties": held, "required": required}


def _is_about_nothing(turn: GuidedTurn, tool: ToolDefinition, view: FoldedSchema) -> bool:
    """Return whether a tool takes choices alone, and the words neither name one nor share a word with the tool."""
    required = [node for name, node in view.properties.items() if name not in view.asked]
    if not required or not all("enum" in node for node in required):
        return False
    stems = frozenset(list_request_stems(f"{turn.question}\n{turn.known}"))
    if not is_english(turn.question) or any(find_named_values(node["enum"], stems) for node in required):
        return False
    descriptions = [str(node.get("description", "")) for node in view.properties.values()]
    return stems.isdisjoint(list_stems(" ".join([tool.name, tool.description, *view.properties, *descriptions])))


def _remove_numbers_of_others(turn: GuidedTurn, tool: ToolDefinition) -> str:
    """Return the question without the numbers of things that only other tools take: "doctor 47", for a train."""
    own = {*turn.numbered_things.get(tool.name, ()), *list_stems(tool.description)}
    others = {stem for stems in turn.numbered_things.values() for stem in stems} - own
    return _NUMBERED.sub(lambda found: " ; " if others & set(list_stems(found[1])) else found[0], turn.question)


def _is_held(node: Mapping[str, Any]) -> bool:
    """Return whether a schema has only values that were said."""
    return "enum" in node or (is_object(node.get("items")) and "enum" in node["items"])


def _free_shared_choices(view: FoldedSchema, held: dict[str, Any]) -> None:
    """Offer all choices again where fewer are named than there are parameters that take them: "80 USD into euros"."""
    for name, node in view.properties.items():
        alike = [other for other, its in view.properties.items() if "enum" in its and its["enum"] == node.get("enum")]
        if name in held and len(alike) > 1 and len(held[name].get("enum", ())) < len(alike):
            held[name] = node
    codes = [name for name, node in view.properties.items() if node.get("type") == "string" and _is_letters(node, name)]
    for name in codes:
        if name in held and len(held[name].get("enum", ())) < len(codes):
            held[name] = view.properties[name]


def leave_out_repeated(schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema in which no text is that of a parameter before it; None where none was filled in twice."""
    seen: set[str] = set()
    changed: dict[str, Any] = {}
    for name, node in schema["properties"].items():
        value = values.get(name)
        if not isinstance(value, str):
            continue
        others = [each for each in node.get("enum", ()) if each not in seen]
        if value in seen and others and "type" not in node:
            changed[name] = {**node, "enum": others}
        seen.add(value)
    return {**schema, "properties": {**schema["properties"], **changed}} if changed else None


def _is_letters(node: Mapping[str, Any], name: str) -> bool:
    """Return whether a parameter takes codes of letters, such as EUR."""
    return find_kind_of_text(node, name) == "code" and not fits_example(node, "1")


def _keep_quotations(turn: GuidedTurn, view: FoldedSchema, held: dict[str, Any]) -> None:
    """Offer texts in quotes alone, where there is one for each text: "Translate 'good night' into French"."""
    quoted = list_quotations(turn.question)
    texts = [
        name
        for name, node in held.items()
        if "enum" not in view.properties[name] and find_kind_of_text(node, name) == "text" and "enum" in node
        if view.properties[name].get("type") == "string"
    ]
    if quoted and len(texts) <= len(quoted):
        held.update({name: {**held[name], "enum": quoted} for name in texts})


def _drop_moments(view: FoldedSchema, held: dict[str, Any]) -> None:
    """Leave out texts with a day or a time in them, where another parameter takes that: "Lunch on 2026-02-10"."""
    kinds = {name: find_kind_of_text(node, name) for name, node in view.properties.items()}
    if not {"day", "time"} & set(kinds.values()):
        return
    for name, node in held.items():
        values = [value for value in node.get("enum", ()) if not holds_moment(str(value))]
        if values and kinds[name] == "text" and "enum" not in view.properties[name]:
            held[name] = {**node, "enum": values}


def _drop_other_parts(turn: GuidedTurn, tool: ToolDefinition, view: FoldedSchema, held: dict[str, Any]) -> None:
    """Leave out texts that go on into another parameter, and the tool's own name.

    They go on by its name ("12 Oak Avenue, city Austin"), by one of its choices ("Abba in the kitchen"), by an address
    or by an amount; and an item of a list does not go on into the next.
    """
    verbs = set(list_stems(tool.name))
    first = turn.question.split(maxsplit=1)[:1]
    quoted = list_quotations(turn.question)
    goes_on = _find_other_parts(turn, view)
    kinds = {name: find_kind_of_text(node.get("items", node), name) for name, node in view.properties.items()}
    takes_numbers = any(node.get("type") in ("integer", "number") for node in view.properties.values())
    for name, node in held.items():
        inner = node["items"] if is_object(node.get("items")) else node
        if "enum" in view.properties[name] or kinds[name] not in ("text", "code"):
            continue

        def is_own(value: Any, name: str = name, is_item: bool = inner is not node) -> bool:
            text = str(value)
            if text in quoted:
                return True
            if goes_on.search(text) is not None or (text in first and set(list_stems(text)) <= verbs):
                return False
            if any(kind == "address" and other != name for other, kind in kinds.items()) and "@" in text:
                return False
            return not (is_item and _JOINED.search(text)) and not (takes_numbers and has_amount(text))

        values = [value for value in inner.get("enum", ()) if is_own(value)]
        if values:
            changed = {**inner, "enum": values}
            held[name] = changed if inner is node else {**node, "items": changed}


def _find_other_parts(turn: GuidedTurn, view: FoldedSchema) -> re.Pattern[str]:
    stems = frozenset(list_request_stems(turn.question))
    names = [re.escape(word) for name in view.properties for word in split_words(name.rpartition(".")[2])]
    choices = [
        re.escape(str(value))
        for node in view.properties.values()
        for value in find_named_values(node.get("enum", ()), stems)
    ]
    article = "(?:the |my |our |an? )?"
    parts = [rf"(?:, | and | with ){article}(?:{'|'.join(names)})\b"]
    if choices:
        parts.append(rf"\b(?:{_PREPOSITIONS}) {article}(?:{'|'.join(choices)})\b")
    return re.compile("|".join(parts), re.IGNORECASE)
