"""Functions written with the syntax of Python 3.12."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toolkit.schema import function_schema

type Names = list[str]
type Positive = Annotated[int, Field(gt=0)]
type Tree = dict[str, Tree] | int


def first[T](items: list[T], names: Names) -> T:
    return items[0]


def bounded[N: (int, float)](number: N, size: Positive) -> N:
    return number


def planted(tree: Tree) -> None: ...


class Shelf[T]:
    def put(self, item: T, place: int = 0) -> None: ...


def test_type_parameters_are_any_value() -> None:
    schema = function_schema(first)
    assert schema.parameters["properties"] == {
        "items": {"type": "array", "items": {}},
        "names": {"type": "array", "items": {"type": "string"}},
    }
    assert schema.arguments.parse_json('{"items": [1, "a"], "names": ["b"]}') == {"items": [1, "a"], "names": ["b"]}


def test_constrained_type_parameters_and_aliases_keep_their_limits() -> None:
    assert function_schema(bounded).parameters["properties"] == {
        "number": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
        "size": {"type": "integer", "exclusiveMinimum": 0},
    }


def test_a_recursive_alias_is_a_definition() -> None:
    schema = function_schema(planted)
    assert list(schema.parameters["$defs"]) == ["Tree"]
    assert schema.arguments.parse_json('{"tree": {"a": {"b": 1}}}') == {"tree": {"a": {"b": 1}}}


def test_methods_of_generic_classes_are_read() -> None:
    schema = function_schema(Shelf.put, receiver=True)
    assert list(schema.parameters["properties"]) == ["item", "place"]
    assert list(function_schema(Shelf[int]().put).parameters["properties"]) == ["item", "place"]
