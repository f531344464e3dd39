"""The values that a request offers: what arguments can be copied from it, so that a model only has to point at them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.guided.folding import find_named_values
from toolkit.guided.grounding import list_dates, names_a_day
from toolkit.guided.spoken_numbers import has_converted_units, list_plain_numbers
from toolkit.schema.nodes import is_object
from toolkit.word_stems import STOP_WORDS, list_stems

__all__ = ["has_value", "hold_to_said_values", "list_spans"]

_WORD = re.compile(r"\S+")
_QUOTED = re.compile(r"[\"\u201c]([^\"\u201c\u201d]+)[\"\u201d]|(?<!\w)['\u2018]([^\u2018\u2019]+?)['\u2019](?!\w)")
_EDGES = ",.;:!?\"'()[]{}\u201c\u201d\u2018\u2019"
_SENTENCE_END = re.compile(r"[.!?;]\s")
_SPECIAL = re.compile(r"\d|@|\w[A-Z]|\w_\w")
_EXAMPLE = re.compile(r"(?:such as|e\.g\.,?|for example,?|like) (\S+)", re.IGNORECASE)
_ADDRESS = re.compile(r"e-?mail", re.IGNORECASE)
_SEPARATOR = re.compile(r",|;|&|\b(?:and|or|plus|to|with)\b", re.IGNORECASE)
_MOST_WORDS = 8
_MOST_SPANS = 200
_ISO_LENGTH = 10


def hold_to_said_values(
    node: Mapping[str, Any], question: str, known: str, *, frees_texts: bool = False
) -> dict[str, Any] | None:
    """Return a schema whose texts and numbers can only be those that were said.

    Where nothing is said that looks like a value, the schema is left as it is, and what comes of it has to be checked:
    a model that makes a value up shows that there was none.

    Args:
        node: The schema of a parameter.
        question: The user's last words: any run of its words may be a value.
        known: The words said before, and results: names, numbers and ids of it may be values.
        frees_texts: True where a text that is no id, address or day may be any text.

    Returns:
        The schema; None where no value of it was said.
    """
    if "enum" in node:
        named = find_named_values(node["enum"], frozenset(list_stems(f"{question}\n{known}")))
        return {**node, "enum": named} if named else dict(node)
    if "anyOf" in node or "properties" in node:
        return dict(node)
    kind = node.get("type")
    if kind == "array" and is_object(node.get("items")):
        about = {"description": node["description"]} if "description" in node else {}
        items = hold_to_said_values({**about, **node["items"]}, question, known, frees_texts=frees_texts)
        if items is None:
            return None
        # A model that goes on and on with a list comes to its end: so many can be told apart, and one of a result.
        most = len(_SEPARATOR.findall(question)) + 2
        return {**node, "items": items, "maxItems": max(node.get("minItems", 0), min(node.get("maxItems", most), most))}
    if kind == "string":
        return _hold_text(node, question, known, frees_texts=frees_texts)
    if kind in ("integer", "number"):
        return _hold_number(node, f"{question}\n{known}", is_whole=kind == "integer")
    return dict(node)


def _hold_text(node: Mapping[str, Any], question: str, known: str, *, frees_texts: bool) -> dict[str, Any] | None:
    text = f"{question}\n{known}"
    if node.get("format") in ("date", "date-time"):
        return _hold_day(node, text)
    spans = [*list_spans(question), *_list_named_things(known)]
    if _ADDRESS.search(f"{node.get('description', '')} {node.get('format', '')}") is not None:
        spans = [span for span in spans if "@" in span and " " not in span]
        if not spans:
            return None
    elif (shape := _find_shape(str(node.get("description", "")))) is not None:
        spans = [span for span in spans if _describe_shape(span) == shape]
        if not spans:
            return None
    elif frees_texts or not any(_is_value_like(question, span) for span in spans):
        spans = []
    if not spans:
        return dict(node)
    return {
        **{key: node[key] for key in ("description",) if key in node},
        "enum": list(dict.fromkeys(spans))[:_MOST_SPANS],
    }


def _hold_day(node: Mapping[str, Any], text: str) -> dict[str, Any] | None:
    days = list(list_dates(text))
    whole = [day for day in days if len(day) == _ISO_LENGTH]
    if whole and not names_a_day(text) and node["format"] == "date":
        return {**node, "enum": list(dict.fromkeys(whole))}
    return dict(node) if days or names_a_day(text) else None


def _find_shape(description: str) -> str | None:
    """Return the shape of the id that a description gives as an example; None where it gives no id."""
    example = _EXAMPLE.search(description)
    if example is None:
        return None
    word = example[1].strip(_EDGES)
    is_id = any(character.isdigit() for character in word) or (len(word) > 1 and word.isupper())
    return _describe_shape(word) if is_id else None


def _describe_shape(text: str) -> str:
    """Return a text with a sign for each kind of letter: `A-1042` and `B-7` are `A-9`, `ABC` is `A`."""
    shape = re.sub(r"\d+", "9", re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", text)))
    return shape if "9" in shape else re.sub(r"([Aa])\1+", r"\1", shape)


def _hold_number(node: Mapping[str, Any], text: str, *, is_whole: bool) -> dict[str, Any] | None:
    least, most = node.get("minimum"), node.get("maximum")
    numbers = [
        int(number) if number.is_integer() else number
        for number in dict.fromkeys(list_plain_numbers(text))
        if (number.is_integer() or not is_whole)
        and (least is None or number >= least)
        and (most is None or number <= most)
    ]
    if has_converted_units(text):
        return dict(node)
    if not numbers:
        return None
    return {**{key: node[key] for key in ("description",) if key in node}, "enum": numbers[:_MOST_SPANS]}


def has_value(text: str) -> bool:
    """Return whether something in a text looks like a value: a name, a number, an id or a quotation."""
    return (
        any(_is_value_like(text, span) for span in list_spans(text)) or next(list_plain_numbers(text), None) is not None
    )


def list_spans(text: str) -> Iterator[str]:
    """Yield the runs of words of a text that may be a value: those in quotes first, then the others, the short first.

    None begins or ends with a word that says nothing, such as "in"; a name may begin with "the".
    """
    for found in _QUOTED.finditer(text):
        yield found[1] or found[2]
    words = [(found.start(), found.end()) for found in _WORD.finditer(text)]
    longest = _MOST_WORDS if len(words) <= 40 else 3
    for length in range(1, longest + 1):
        for first in range(len(words) - length + 1):
            start, end = words[first][0], words[first + length - 1][1]
            span = text[start:end].strip(_EDGES + " ")
            if span.strip() and _SENTENCE_END.search(span) is None and not _has_silent_edge(span):
                yield span.removesuffix("'s").removesuffix("\u2019s")


def _has_silent_edge(span: str) -> bool:
    words = [word.strip(_EDGES) for word in span.split()]
    first, last = (word if word.islower() else "" for word in (words[0], words[-1]))
    return last in STOP_WORDS or (first in STOP_WORDS and (first != "the" or len(words) == 1))


def _list_named_things(text: str) -> Iterator[str]:
    """Yield what looks like a name, a number or an id in a text."""
    for line in text.splitlines():
        run: list[str] = []
        for raw in [*line.split(), ""]:
            word = raw.strip(_EDGES)
            is_name = word[:1].isupper() and word.isalpha()
            if _SPECIAL.search(word) is not None or is_name:
                yield word
            run = [*run, word] if is_name else []
            if len(run) > 1:
                yield " ".join(run)


def _is_value_like(question: str, span: str) -> bool:
    """Return whether a run of words looks like a name, a number, an id or a quotation."""
    if _SPECIAL.search(span) is not None or span in [found[1] or found[2] for found in _QUOTED.finditer(question)]:
        return True
    is_first = question.strip().startswith(span)
    return span[:1].isupper() and span not in ("I", "I'm") and not is_first
