"""The errors of Pydantic, read as problems of arguments: where each stands, and of what kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

from pydantic_core import ErrorDetails

from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object
from toolkit.schema.phrases import names_form
from toolkit.schema.problems import WRONG_NAME, Problem, value_at

__all__ = ["KINDS_OF_ERRORS", "find_path", "read_validation_errors"]

_MESSAGE_PREFIXES = ("Value error, ", "Assertion failed, ")
_ABOUT_FORM = ("_parsing", "_from_datetime_inexact")
_ALWAYS_TOLD = ("decimal_", "url_", "byte_size")
# Models and functions on the one hand, dataclasses on the other.
KINDS_OF_ERRORS = {
    "missing": "missing",
    "missing_argument": "missing",
    "extra_forbidden": "unknown",
    "unexpected_keyword_argument": "unknown",
}
_SAID_BY_THE_AUTHOR = frozenset({"value_error", "assertion_error"})


def find_path(location: tuple[str | int, ...], value: Any, *, is_missing: bool = False) -> JsonPath:
    """Return an error's location without what is no key of the value: the names that Pydantic gives to choices."""
    path: list[str | int] = []
    last = len(location) - 1
    for index, key in enumerate(location):
        inner = value_at(value, tuple(path))
        if (
            (is_object(inner) and key in inner)
            or (is_array(inner) and isinstance(key, int) and key < len(inner))
            or (is_missing and index == last)
        ):
            path.append(key)
    return tuple(path)


def read_validation_errors(details: Sequence[ErrorDetails], value: Any, nodes: Nodes) -> list[Problem]:
    """Return what is wrong with a value, one problem for each place, in the order of the errors."""
    found: dict[JsonPath, Problem] = {}
    for detail in _keep_nearest_choice(details, value):
        kind = KINDS_OF_ERRORS.get(detail["type"], "wrong")
        path = find_path(detail["loc"], value, is_missing=kind == "missing")
        problem = _read_detail(detail, cast("Any", kind), path, value, nodes)
        known = found.get(path)
        if known is None or not known.reason or (problem.is_told and not known.is_told):
            found[path] = problem
    return list(found.values())


def _read_detail(
    detail: ErrorDetails, kind: Literal["wrong", "missing", "unknown"], path: JsonPath, value: Any, nodes: Nodes
) -> Problem:
    message = detail["msg"]
    if kind != "wrong":
        inside = _locate_in_json(detail, path, value, nodes)
        if inside is None:
            return Problem(path=path, kind=kind)
        return Problem(path=path, kind="wrong", reason=f"{inside}{message}", is_told=True)
    if detail["loc"] and detail["loc"][-1] == "[key]":
        reason = f"{WRONG_NAME}: {message}"
        return Problem(path=path, kind=kind, reason=reason, is_told=True)
    if detail["type"] in _SAID_BY_THE_AUTHOR:
        for prefix in _MESSAGE_PREFIXES:
            message = message.removeprefix(prefix)
        return Problem(path=path, kind=kind, reason=message, is_told=True)
    if (inside := _locate_in_json(detail, path, value, nodes)) is not None:
        return Problem(path=path, kind=kind, reason=f"{inside}{message}", is_told=True)
    if detail["type"].startswith(_ALWAYS_TOLD):
        return Problem(path=path, kind=kind, reason=message, is_told=True)
    if detail["type"].endswith(_ABOUT_FORM) and names_form(nodes, nodes.at(path)):
        came = value_at(value, path)
        # Of what is nothing like it, the words of the schema tell more: "a date like ...".
        is_near = isinstance(came, str) and any(letter.isdigit() for letter in came)
        return Problem(path=path, kind=kind, reason=message if is_near else "")
    return Problem(path=path, kind=kind, reason=message)


def _is_json_text(node: Node) -> bool:
    return node.get("format") == "json-string" or node.get("contentMediaType") == "application/json"


def _locate_in_json(detail: ErrorDetails, path: JsonPath, value: Any, nodes: Nodes) -> str | None:
    """Return where in the JSON that a string holds something is wrong, in words; None where it is no such string."""
    if not isinstance(value_at(value, path), str) or not any(map(_is_json_text, nodes.choices(nodes.at(path)))):
        return None
    rest = [str(key) for key in detail["loc"][len(path) :]]
    return f"In the JSON that it holds, at {'.'.join(rest)}: " if rest else ""


def _keep_nearest_choice(details: Sequence[ErrorDetails], value: Any) -> list[ErrorDetails]:
    """Keep, of the errors of each choice of a union, those of the choice that is nearest to right."""
    groups: dict[JsonPath, dict[str, list[ErrorDetails]]] = {}
    tagged: dict[int, tuple[JsonPath, str]] = {}
    for index, detail in enumerate(details):
        location = detail["loc"]
        for position, key in enumerate(location):
            path = find_path(location[: position + 1], value)
            is_tag = len(path) < len([*find_path(location[:position], value), key])
            is_name = position == len(location) - 1 and detail["type"] == "missing"
            if is_tag and not is_name:
                groups.setdefault(path, {}).setdefault(str(key), []).append(detail)
                tagged[index] = (path, str(key))
                break
    best: dict[JsonPath, str] = {}
    for path, choices in groups.items():
        inner = [
            name
            for name, errors in choices.items()
            if any(find_path(e["loc"], value) != path or e["type"] == "missing" for e in errors)
        ]
        best[path] = min(
            inner or choices,
            key=lambda name: (len(choices[name]), sum(error["type"] == "missing" for error in choices[name])),
        )
    return [
        detail
        for index, detail in enumerate(details)
        if index not in tagged or best[tagged[index][0]] == tagged[index][1]
    ]
