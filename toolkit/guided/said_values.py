"""The values that a request offers: what arguments can be copied from it, so that a model only has to point at them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from toolkit.guided.folding import find_named_values
from toolkit.guided.grounding import SMALL_NUMBERS, list_dates, may_have_code, names_a_day
from toolkit.guided.languages import is_copyable, is_english
from toolkit.guided.short_forms import MONTHS, list_request_stems
from toolkit.guided.spans import EDGES, has_name, is_value_like, list_named_things, list_quotations, list_spans
from toolkit.guided.spoken_numbers import (
    list_converted_numbers,
    list_figures,
    list_free_numbers,
    list_plain_numbers,
    remove_amounts,
)
from toolkit.guided.spoken_times import list_times
from toolkit.schema.nodes import is_object
from toolkit.word_stems import list_stems, split_words

__all__ = [
    "TextKind",
    "find_kind_of_text",
    "fits_example",
    "holds_moment",
    "hold_to_said_values",
    "is_number_of_thing",
    "list_codes",
]

TextKind: TypeAlias = Literal["day", "time", "address", "formula", "code", "number", "text"]
"""How a text is found in what was said; a formula is composed of it, a number is that of a thing, such as RJ162."""

_QUERY = re.compile(r"query|question|search|prompt", re.IGNORECASE)
_QUESTION = re.compile(r"(?<![^.!?\n])[^.!?\n]++(?=\?)")
_EXAMPLE = re.compile(r"(?:such as|e\.g\.,?|for example,?|like) (\S+)", re.IGNORECASE)
_ADDRESS = re.compile(r"e-?mail address", re.IGNORECASE)
_MAIL = re.compile(r"e-?mail", re.IGNORECASE)
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b|YYYY-MM-DD", re.IGNORECASE)
_TIME = re.compile(r"\b\d\d?:\d\d\b|\bHH:MM", re.IGNORECASE)
_MONTH_AT_END = re.compile(rf"\b(?:on|in|by) (?:the )?(?:{'|'.join(month.capitalize() for month in MONTHS)})$")
_CLOCK_TIME = re.compile(r"\d:\d\d")
_OTHER_CODE = re.compile(r"(?!\d{4}-\d\d-\d\d)[A-Za-z_/#-]*\d[\w#/-]*")
# A parameter for the number of one thing, and not for how many there are.
_NUMBER_OF = re.compile(r"\b(?:number|id) of (?:the|an?|its)\b", re.IGNORECASE)
_DAY_FIRST = re.compile(r"\d{4}-\d\d-\d\d(?!\w)")
_CAPITALS = re.compile(r"[A-Z]{1,4}")
_DENIAL = r"(?:\b(?:not|no|never|but|except|without)|n['\u2019]t)"
_DIGIT = re.compile(r"\d")
_SEPARATOR = re.compile(r",|;|&|\b(?:and|or|plus|to|with)\b", re.IGNORECASE)
_JOINT = r"\s*[,;&/]\s*(?:and |or )?|\s+(?:and|or|plus|y|e|et|und|en|och|og|i|oder|ou|o)\s+"
_FORMULA = re.compile(r"\b(?:expression|formula|equation|sql|regex|arithmetic|source code)\b", re.IGNORECASE)
_MOST_SPANS = 200
_ISO_LENGTH = 10


def hold_to_said_values(
    node: Mapping[str, Any],
    question: str,
    known: str,
    *,
    name: str = "",
    frees_texts: bool = False,
    needs_shape: bool = False,
) -> dict[str, Any] | None:
    """Return a schema whose texts and numbers can only be those that were said.

    A model that has to copy can't invent. Nothing is held where the words don't show what values look like, and texts
    of scripts that write no spaces are not held at all.

    Args:
        node: The schema of a parameter.
        question: The user's last words: any run of its words may be a value.
        known: The words said before, and results: names, numbers and ids of it may be values.
        name: The parameter's name, which may tell a unit.
        frees_texts: True where a text that is no id, address or day may be any text.
        needs_shape: True where an id must look like the example in the description; else any number will do.

    Returns:
        The schema; None where no value of it was said.
    """
    if "enum" in node:
        return _hold_choice(node, question, known)
    if is_object(node.get("properties")):
        return _hold_members(node, question, known)
    if "anyOf" in node:
        return dict(node)
    kind = node.get("type")
    if kind == "array" and is_object(node.get("items")):
        about = {"description": node["description"]} if "description" in node else {}
        items = hold_to_said_values(
            {**about, **node["items"]}, question, known, name=name, frees_texts=frees_texts, needs_shape=needs_shape
        )
        if items is None:
            return None
        # A model that goes on and on with a list comes to its end: so many can be told apart, and one of a result.
        most = len(_SEPARATOR.findall(question)) + 2
        return {**node, "items": items, "maxItems": max(node.get("minItems", 0), min(node.get("maxItems", most), most))}
    if kind == "string":
        if needs_shape and find_kind_of_text(node, name) == "code" and not list_codes(node, f"{question}\n{known}"):
            return None
        return _hold_text(node, name, question, known, frees_texts=frees_texts)
    if kind in ("integer", "number"):
        return _hold_number(node, name, f"{question}\n{known}", is_whole=kind == "integer")
    return dict(node)


def _hold_choice(node: Mapping[str, Any], question: str, known: str) -> dict[str, Any]:
    """Return the choices that are named; all where the question names none, since it may say them in other words."""
    named = find_named_values(node["enum"], frozenset(list_request_stems(question)))
    if not named or any(_is_denied(value, question) for value in named):
        return dict(node)
    said = find_named_values(node["enum"], frozenset(list_request_stems(f"{question}\n{known}")))
    return {**node, "enum": [value for value in node["enum"] if value in said or not isinstance(value, str)]}


def _is_denied(value: str, question: str) -> bool:
    """Return whether a choice is what is not meant: "not done", "anything but red"."""
    return re.search(rf"{_DENIAL} (?:\w+ ){{0,2}}{re.escape(value)}\b", question, re.IGNORECASE) is not None


def _hold_members(node: Mapping[str, Any], question: str, known: str) -> dict[str, Any]:
    """Return an object inside a list, with each of its members held as far as something was said for it."""
    members: dict[str, Any] = {}
    for name, member in node["properties"].items():
        # Texts of items are compared by their stems later: "two pizzas" are two times "pizza".
        held = hold_to_said_values(member, question, known, name=name, frees_texts=True)
        if held is not None and "enum" in held and member.get("type") in ("integer", "number"):
            held = {**held, "enum": list(dict.fromkeys([*held["enum"], 1]))}  # "milk and two eggs"
        members[name] = dict(member) if held is None else held
    return {**node, "properties": members}


def find_kind_of_text(node: Mapping[str, Any], name: str) -> TextKind:
    """Return what a parameter's texts are, by its format, its name and its description."""
    description = str(node.get("description", ""))
    if node.get("format") in ("date", "date-time") or _DAY.search(description) is not None:
        return "day"
    if node.get("format") == "time" or _TIME.search(description) is not None:
        return "time"
    if _is_address(node, name, description):
        return "address"
    if _FORMULA.search(f"{name} {description}") is not None:
        return "formula"
    if _find_shape(description) is not None:
        return "code"
    return "number" if _NUMBER_OF.search(description) is not None else "text"


def _hold_text(
    node: Mapping[str, Any], name: str, question: str, known: str, *, frees_texts: bool
) -> dict[str, Any] | None:
    text, description = f"{question}\n{known}", str(node.get("description", ""))
    kind = find_kind_of_text(node, name)
    if kind == "day":
        return _hold_day(node, text)
    if kind == "time":
        return _hold_time(node, text, description)
    spans = [*list_spans(question), *list_named_things(known)]
    if kind == "address":
        spans = [span for span in spans if "@" in span and " " not in span]
        return _offer_values(node, spans) if spans else None
    if kind == "formula":
        return dict(node)
    if kind == "code":
        return _hold_code(node, name, spans, question)
    if kind == "number":
        return _hold_number_of_thing(node, question, known)
    if _QUERY.search(name) is not None:
        spans += [sentence.strip(EDGES + " ") for sentence in _QUESTION.findall(question)]
    whole = list_quotations(question)
    spans = [span for span in spans if span in whole or _DAY_FIRST.match(span) is None] or spans
    is_free = frees_texts or not is_copyable(question) or not any(is_value_like(question, span) for span in spans)
    return _offer_values(node, [] if is_free else spans)


def is_number_of_thing(node: Mapping[str, Any]) -> bool:
    """Return whether a parameter takes the number of one thing, and not how many there are."""
    return node.get("type") in ("integer", "string") and _NUMBER_OF.search(str(node.get("description", ""))) is not None


def _hold_number_of_thing(node: Mapping[str, Any], question: str, known: str) -> dict[str, Any] | None:
    """Return a schema for the number of a train or of a flight: of words that all have figures, or "RJ 162"."""
    text = remove_amounts(question)
    numbers = [
        span
        for span in [*list_spans(text), *list_named_things(remove_amounts(known))]
        if _DIGIT.search(span) is not None
        and all(_DIGIT.search(word) is not None or _CAPITALS.fullmatch(word) for word in span.split())
    ]
    if not numbers:
        return None if is_english(question) else dict(node)
    return _offer_values(node, numbers)


def list_codes(node: Mapping[str, Any], text: str) -> list[str]:
    """Return what in a text has the shape of the example in a parameter's description."""
    shape = _find_shape(str(node.get("description", "")))
    return [span for span in list_spans(text) if len(span) > 1 and _describe_shape(span) == shape]


def _list_alike(spans: Sequence[str], description: str) -> list[str]:
    """Return the runs of words that have the shape of the example, else those of its length with its signs."""
    shape = _find_shape(description)
    alike = [span for span in spans if len(span) > 1 and _describe_shape(span) == shape]
    example = _EXAMPLE.search(description)
    if alike or example is None:
        return alike
    frame = re.sub(r"\w", "x", example[1].strip(EDGES))
    return [span for span in spans if _DIGIT.search(span) is not None and re.sub(r"\w", "x", span) == frame]


def _hold_code(node: Mapping[str, Any], name: str, spans: Sequence[str], question: str) -> dict[str, Any] | None:
    description = str(node.get("description", ""))
    shape = str(_find_shape(description))
    alike = _list_alike(spans, description)
    if not alike and "9" not in shape:
        # Such a code can be known by heart: EUR for "euros", TSLA for "Tesla".
        return dict(node) if has_name(question) or may_have_code(question) else None
    if not alike and set(list_stems(name)) & set(list_stems(question)):
        alike = [span for span in spans if _OTHER_CODE.fullmatch(span) is not None]  # "order 1042" for A-1042
    return _offer_values(node, alike) if alike else None


def _offer_values(node: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return a schema with these values alone; the schema itself where there are none."""
    if not values:
        return dict(node)
    return {
        **{key: node[key] for key in ("description",) if key in node},
        "enum": list(dict.fromkeys(values))[:_MOST_SPANS],
    }


def _is_address(node: Mapping[str, Any], name: str, description: str) -> bool:
    if node.get("format") == "email" or _ADDRESS.search(description) is not None:
        return True
    is_of_mail = _MAIL.search(f"{name} {description}") is not None
    return is_of_mail and bool({"email", "e-mail", "mail", "to", "cc", "bcc", "recipient"} & set(split_words(name)))


def _hold_day(node: Mapping[str, Any], text: str) -> dict[str, Any] | None:
    days = list(list_dates(text))
    whole = [day for day in days if len(day) == _ISO_LENGTH]
    if names_a_day(text) or not is_english(text):
        return dict(node)
    if not whole:
        return dict(node) if days else None
    if node.get("format") == "date-time":
        moments = [f"{day}T{time}:00" for day in dict.fromkeys(whole) for time in dict.fromkeys(list_times(text))]
        return {**node, "enum": moments} if moments else dict(node)
    return {**node, "enum": list(dict.fromkeys(whole))}


def _hold_time(node: Mapping[str, Any], text: str, description: str) -> dict[str, Any]:
    times = list(list_times(text))
    has_seconds = node.get("format") == "time" or re.search(r":\d\d:\d\d|MM:SS", description) is not None
    return _offer_values(node, [f"{time}:00" if has_seconds else time for time in times])


def _find_shape(description: str) -> str | None:
    """Return the shape of the id that a description gives as an example; None where it gives no id."""
    example = _EXAMPLE.search(description)
    if example is None:
        return None
    word = example[1].strip(EDGES)
    is_id = any(character.isdigit() for character in word) or (len(word) > 1 and word.isupper())
    return _describe_shape(word) if is_id else None


def _describe_shape(text: str) -> str:
    """Return a text with a sign for each kind of letter: `A-1042` and `B-7` are `A-9`, `ABC` is `A`."""
    shape = re.sub(r"\d+", "9", re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", text)))
    return shape if "9" in shape else re.sub(r"([Aa])\1+", r"\1", shape)


def _hold_number(node: Mapping[str, Any], name: str, text: str, *, is_whole: bool) -> dict[str, Any] | None:
    least, most = node.get("minimum"), node.get("maximum")
    about = str(node.get("description", ""))
    if is_whole and _NUMBER_OF.search(about) is not None and is_english(text):
        text = remove_amounts(text)
        is_named = bool(set(list_stems(name)) & set(list_stems(text)))
        figures = list_figures(text) or (list_free_numbers(text) if is_named else [])
        return _offer_values(node, [int(each) for each in figures if each > 0]) if figures else None
    said = [
        *(list_free_numbers(text) or list_plain_numbers(text)),
        *list_converted_numbers(text, f"{name} {about}"),
    ]
    if most is not None and most <= 1:
        said += [number / 100 for number in said]
    if said and not is_english(text):
        said += SMALL_NUMBERS
    numbers = [
        int(number) if float(number).is_integer() else number
        for number in dict.fromkeys(said)
        if (float(number).is_integer() or not is_whole)
        and (least is None or number >= least)
        and (most is None or number <= most)
    ]
    if not numbers:
        return None if is_english(text) else dict(node)
    return _offer_values(node, numbers)


def fits_example(node: Mapping[str, Any], value: str) -> bool:
    """Return whether a text has the shape of the example in a parameter's description, where that gives a word."""
    shape = _find_shape(str(node.get("description", "")))
    return shape is None or "9" in shape or _describe_shape(value) == shape


def has_alike(question: str, left: str, value: str) -> bool:
    """Return whether what is left of a question has something like a value of it: a quotation, a name, an id.

    For a value in small letters it is what an "and" or a comma joins to it: "bread and milk".
    """
    if value in list_quotations(question):
        return any(each.strip(". ") for each in list_quotations(left))
    if not is_value_like(question, value):
        return re.search(rf"\b{re.escape(value)}(?:{_JOINT})(?!\.\.\.)\w", question, re.IGNORECASE) is not None
    shape = _describe_shape(value) if _DIGIT.search(value) is not None else ""
    return any(
        is_value_like(left, span)
        and (_describe_shape(span) == shape if shape else _DIGIT.search(span) is None and not _is_no_name(span))
        for span in list_spans(left)
    )


def _is_no_name(span: str) -> bool:
    return "@" in span or names_a_day(span) or any(True for _ in list_dates(f"{span} 1"))


def holds_moment(text: str) -> bool:
    """Return whether a text has a day in figures or by its month, or a time of the day in it."""
    return (
        any(True for _ in list_dates(text))
        or _CLOCK_TIME.search(text) is not None
        or _MONTH_AT_END.search(text) is not None
    )
