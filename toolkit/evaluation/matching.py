"""Comparing the arguments of a call with those that a task expects, and an answer with the facts it must say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.errors import InvalidArgumentsError
from toolkit.schema import ArgumentsParser
from toolkit.schema.nodes import is_array, is_object

__all__ = ["has_wildcard", "is_said", "match_arguments", "pick_first"]

_ANY = "$any"
_ONE_OF = "$one_of"
_EDGES = ".,!?:;()[]{}*\"'`´‘’“”$€£¥%°"  # noqa: RUF001 - quotation marks that models write


def has_wildcard(expected: Any) -> bool:
    """Return whether ``{$any: true}`` stands anywhere in a value."""
    if is_object(expected):
        return _ANY in expected or any(has_wildcard(value) for value in expected.values())
    return is_array(expected) and any(has_wildcard(value) for value in expected)


def pick_first(expected: Any) -> Any:
    """Return a value with the first of the values of each ``{$one_of: [...]}``."""
    return _resolve_choices(expected, None)


def match_arguments(expected: Mapping[str, Any], actual: Mapping[str, Any], parser: ArgumentsParser) -> bool:
    """Return whether a call has the arguments that a task expects.

    Both are compared with the defaults of the tool, and without what rarely matters: the case of letters, and spaces
    and full stops at the ends of a text.

    Args:
        expected: As the task says them.
        actual: As JSON, validated.
        parser: That of the tool.
    """
    wanted = _resolve_choices(expected, actual)
    try:
        filled: Any = json.loads(parser.dump_json(parser.parse(wanted)))
    except InvalidArgumentsError:
        filled = wanted
    return bool(_fold_value(filled) == _fold_value(actual))


def is_said(answer: str, wordings: Sequence[str]) -> bool:
    """Return whether an answer has one of the wordings as whole words, in letters of any case."""
    words = f" {' '.join(_list_answer_words(answer))} "
    return any(f" {' '.join(_list_answer_words(wording))} " in words for wording in wordings)


def _resolve_choices(expected: Any, actual: Any) -> Any:
    """Replace what stands for several values by the actual one where that fits, else by the first."""
    if is_object(expected):
        if _ANY in expected:
            return actual
        if _ONE_OF in expected:
            choices: Sequence[Any] = expected[_ONE_OF]
            return next((choice for choice in choices if _fold_value(choice) == _fold_value(actual)), choices[0])
        known: Mapping[str, Any] = actual if is_object(actual) else {}
        return {name: _resolve_choices(value, known.get(name)) for name, value in expected.items()}
    if is_array(expected):
        items: Sequence[Any] = actual if is_array(actual) and len(actual) == len(expected) else [None] * len(expected)
        return [_resolve_choices(one, other) for one, other in zip(expected, items, strict=True)]
    return expected


def _fold_value(value: Any) -> Any:
    if is_object(value):
        return {name: _fold_value(inner) for name, inner in value.items() if inner is not None}
    if is_array(value):
        return [_fold_value(inner) for inner in value]
    return value.strip(" .").casefold() if isinstance(value, str) else value


def _list_answer_words(text: str) -> list[str]:
    plain = text.casefold()
    # 1,290 and 1290 are one number.
    joined = "".join(
        character
        for place, character in enumerate(plain)
        if character != "," or not (plain[place - 1 : place].isdigit() and plain[place + 1 : place + 2].isdigit())
    )
    words = (word.strip(_EDGES) for word in joined.split())
    return [word.removesuffix("°c").removesuffix("°f") for word in words if word]
