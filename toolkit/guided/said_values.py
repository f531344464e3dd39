"""The values that a request offers: what arguments can be copied from it, so that a model only has to point at them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from toolkit.guided.folding import find_named_values
from toolkit.guided.grounding import list_dates, may_have_code, names_a_day
from toolkit.guided.languages import is_copyable, is_english
from toolkit.guided.spoken_numbers import list_converted_numbers, list_free_numbers, list_plain_numbers
from toolkit.guided.spoken_times import list_times
from toolkit.schema.nodes import is_object
from toolkit.word_stems import STOP_WORDS, list_stems, split_words

__all__ = [
    "TextKind",
    "find_kind_of_text",
    "fits_example",
    "has_name",
    "has_quotation",
    "has_value",
    "holds_moment",
    "hold_to_said_values",
    "list_codes",
    "list_names",
    "list_quotations",
    "list_spans",
    "remove_quotations",
]

TextKind: TypeAlias = Literal["day", "time", "address", "formula", "code", "text"]
"""How a text is found in what was said; a formula is composed of it."""

_WORD = re.compile(r"\S+")
_QUOTED = re.compile(r"[\"\u201c]([^\"\u201c\u201d]+)[\"\u201d]|(?<!\w)['\u2018]([^\u2018\u2019]+?)['\u2019](?!\w)")
_EDGES = ",.;:!?\"'()[]{}\u201c\u201d\u2018\u2019"
_SENTENCE_START = re.compile(r"(?:^|[.!?:\n])[\s\"'\u201c\u2018]*$")
_QUERY = re.compile(r"query|question|search|prompt", re.IGNORECASE)
_OBJECT = re.compile(r"\s+(?:an?|the|my|me|our|us|your|this|that|it|some|all|each|another)\b", re.IGNORECASE)
_QUESTION = re.compile(r"[^.!?\n]+(?=\?)")
_SENTENCE_END = re.compile(r"[.!?;]\s")
_SPECIAL = re.compile(r"\d|@|\w[A-Z]|\w_\w")
# What follows a colon, or a word for a text: "with the message The meeting is moved to Friday".
_TAIL_END = r"([^\n]*?\w)(?=[.!?]*(?:\s*$|[.!?]\s|\n))"
_TAILS = (
    re.compile(rf": {_TAIL_END}"),
    re.compile(rf"\b(?:message|text|note|body|saying|says|say|that|reading)\b:? {_TAIL_END}", re.IGNORECASE),
)
_EXAMPLE = re.compile(r"(?:such as|e\.g\.,?|for example,?|like) (\S+)", re.IGNORECASE)
_ADDRESS = re.compile(r"e-?mail address", re.IGNORECASE)
_MAIL = re.compile(r"e-?mail", re.IGNORECASE)
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b|YYYY-MM-DD", re.IGNORECASE)
_TIME = re.compile(r"\b\d\d?:\d\d\b|\bHH:MM", re.IGNORECASE)
_CLOCK_TIME = re.compile(r"\d:\d\d")
_OTHER_CODE = re.compile(r"(?!\d{4}-\d\d-\d\d)[A-Za-z_/#-]*\d[\w#/-]*")
_DIGIT = re.compile(r"\d")
_SEPARATOR = re.compile(r",|;|&|\b(?:and|or|plus|to|with)\b", re.IGNORECASE)
_JOINT = r"\s*[,;&/]\s*(?:and |or )?|\s+(?:and|or|plus|y|e|et|und|en|och|og|i|oder|ou|o)\s+"
_FORMULA = re.compile(r"\b(?:expression|formula|equation|sql|regex|arithmetic|source code)\b", re.IGNORECASE)
_MOST_WORDS = 8
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
    if not find_named_values(node["enum"], frozenset(list_stems(question))):
        return dict(node)
    return {**node, "enum": find_named_values(node["enum"], frozenset(list_stems(f"{question}\n{known}")))}


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
    return "text" if _find_shape(description) is None else "code"


def _hold_text(
    node: Mapping[str, Any], name: str, question: str, known: str, *, frees_texts: bool
) -> dict[str, Any] | None:
    text, description = f"{question}\n{known}", str(node.get("description", ""))
    kind = find_kind_of_text(node, name)
    if kind == "day":
        return _hold_day(node, text)
    if kind == "time":
        return _hold_time(node, text, description)
    spans = [*list_spans(question), *_list_named_things(known)]
    if kind == "address":
        spans = [span for span in spans if "@" in span and " " not in span]
        return _offer_values(node, spans) if spans else None
    if kind == "formula":
        return dict(node)
    if kind == "code":
        return _hold_code(node, name, spans, question)
    if _QUERY.search(name) is not None:
        spans += [sentence.strip(_EDGES + " ") for sentence in _QUESTION.findall(question)]
    is_free = frees_texts or not is_copyable(question) or not any(_is_value_like(question, span) for span in spans)
    return _offer_values(node, [] if is_free else spans)


def list_codes(node: Mapping[str, Any], text: str) -> list[str]:
    """Return what in a text has the shape of the example in a parameter's description."""
    shape = _find_shape(str(node.get("description", "")))
    return [span for span in list_spans(text) if len(span) > 1 and _describe_shape(span) == shape]


def _hold_code(node: Mapping[str, Any], name: str, spans: Sequence[str], question: str) -> dict[str, Any] | None:
    shape = str(_find_shape(str(node.get("description", ""))))
    alike = [span for span in spans if len(span) > 1 and _describe_shape(span) == shape]
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
    word = example[1].strip(_EDGES)
    is_id = any(character.isdigit() for character in word) or (len(word) > 1 and word.isupper())
    return _describe_shape(word) if is_id else None


def _describe_shape(text: str) -> str:
    """Return a text with a sign for each kind of letter: `A-1042` and `B-7` are `A-9`, `ABC` is `A`."""
    shape = re.sub(r"\d+", "9", re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", text)))
    return shape if "9" in shape else re.sub(r"([Aa])\1+", r"\1", shape)


def _hold_number(node: Mapping[str, Any], name: str, text: str, *, is_whole: bool) -> dict[str, Any] | None:
    least, most = node.get("minimum"), node.get("maximum")
    said = [
        *(list_free_numbers(text) or list_plain_numbers(text)),
        *list_converted_numbers(text, f"{name} {node.get('description', '')}"),
    ]
    if most is not None and most <= 1:
        said += [number / 100 for number in said]
    numbers = [
        int(number) if number.is_integer() else number
        for number in dict.fromkeys(said)
        if (number.is_integer() or not is_whole)
        and (least is None or number >= least)
        and (most is None or number <= most)
    ]
    if not numbers:
        return None if is_english(text) else dict(node)
    return _offer_values(node, numbers)


def has_quotation(text: str) -> bool:
    """Return whether something in a text stands in quotes."""
    return _QUOTED.search(text) is not None


def remove_quotations(text: str) -> str:
    """Return a text without what stands in quotes."""
    return _QUOTED.sub(" ", text)


def fits_example(node: Mapping[str, Any], value: str) -> bool:
    """Return whether a text has the shape of the example in a parameter's description, where that gives a word."""
    shape = _find_shape(str(node.get("description", "")))
    return shape is None or "9" in shape or _describe_shape(value) == shape


def list_names(text: str) -> Iterator[str]:
    """Yield what looks like a name in a text: words with capital letters, not one alone that begins a sentence."""
    for line in text.splitlines():
        for value in _list_named_things(line):
            is_start = " " not in value and line.lstrip(_EDGES + " ").startswith(value) and len(line.split()) > 2
            if value[:1].isupper() and _DIGIT.search(value) is None and not is_start:
                yield value


def has_alike(question: str, left: str, value: str) -> bool:
    """Return whether what is left of a question has something like a value of it: a quotation, a name, an id.

    For a value in small letters it is what an "and" or a comma joins to it: "bread and milk".
    """
    if value in list_quotations(question):
        return any(each.strip(". ") for each in list_quotations(left))
    if not _is_value_like(question, value):
        return re.search(rf"\b{re.escape(value)}(?:{_JOINT})(?!\.\.\.)\w", question, re.IGNORECASE) is not None
    shape = _describe_shape(value) if _DIGIT.search(value) is not None else ""
    return any(
        _is_value_like(left, span)
        and (_describe_shape(span) == shape if shape else _DIGIT.search(span) is None and not _is_no_name(span))
        for span in list_spans(left)
    )


def _is_no_name(span: str) -> bool:
    return "@" in span or names_a_day(span) or any(True for _ in list_dates(f"{span} 1"))


def list_quotations(text: str) -> list[str]:
    """Return what stands in quotes in a text."""
    return [found[1] or found[2] for found in _QUOTED.finditer(text)]


def has_name(text: str) -> bool:
    """Return whether something in a text looks like a name."""
    return any(_is_value_like(text, span) and _DIGIT.search(span) is None for span in list_spans(text))


def has_value(text: str) -> bool:
    """Return whether something in a text looks like a value: a name, a number, an id or a quotation."""
    return (
        any(_is_value_like(text, span) for span in list_spans(text)) or next(list_plain_numbers(text), None) is not None
    )


def list_spans(text: str) -> Iterator[str]:
    """Yield the runs of words of a text that may be a value: those in quotes first, then the others, the short first.

    None begins or ends with a word that says nothing, such as "in"; a name may begin with "the". Of those that begin a
    sentence there are names alone: the others begin with what is to be done.
    """
    yield from list_quotations(text)
    yield from [found[1].strip(_EDGES + " ") for tail in _TAILS for found in tail.finditer(text)]
    words = [(found.start(), found.end()) for found in _WORD.finditer(text)]
    starts = {start for start, _ in words if _SENTENCE_START.search(text[:start]) is not None}
    longest = _MOST_WORDS if len(words) <= 40 else 3
    for length in range(1, longest + 1):
        for first in range(len(words) - length + 1):
            start, end = words[first][0], words[first + length - 1][1]
            span = text[start:end].strip(_EDGES + " ")
            if not span.strip() or _SENTENCE_END.search(span) is not None or _has_silent_edge(span):
                continue
            if start in starts and _begins_order(span, text[start + len(span) :]):
                continue
            yield span.removesuffix("'s").removesuffix("\u2019s")


def holds_moment(text: str) -> bool:
    """Return whether a text has a day in figures or by its month, or a time of the day in it."""
    return any(True for _ in list_dates(text)) or _CLOCK_TIME.search(text) is not None


def _begins_order(span: str, after: str) -> bool:
    """Return whether a run of words at the beginning of a sentence is no name: "A parcel", "Tell", "Drop" a line."""
    words = span.split()
    if len(words) > 1:
        return words[1].islower()
    return words[0].casefold() in STOP_WORDS or _OBJECT.match(after) is not None


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
            if _SPECIAL.search(word) is not None or (is_name and word.casefold() not in STOP_WORDS):
                yield word
            run = [*run, word] if is_name else []
            if len(run) > 1:
                yield " ".join(run)


def _is_value_like(question: str, span: str) -> bool:
    """Return whether a run of words looks like a name, a number, an id or a quotation."""
    if _SPECIAL.search(span) is not None or span in list_quotations(question):
        return True
    if not span[:1].isupper() or span in ("I", "I'm"):
        return False
    # The first word of a sentence has a capital letter, name or not.
    starts = [found.start() for found in re.finditer(rf"(?<!\w){re.escape(span)}(?!\w)", question)]
    return any(_SENTENCE_START.search(question[:start]) is None for start in starts)
