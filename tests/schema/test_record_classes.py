"""Classes of attrs and structs of msgspec as parameters."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import pytest

from toolkit.errors import InvalidArgumentsError
from toolkit.schema import FunctionSchema, function_schema

pytest.importorskip("attrs", reason="attrs is not installed: pip install attrs")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")

import attrs
import msgspec


@attrs.define
class Address:
    street: str
    number: int = attrs.field(default=1, validator=attrs.validators.gt(0))
    tags: list[str] = attrs.Factory(list[str])
    made: int = attrs.field(init=False, default=3)


def stripped(text: str) -> str:
    return text.strip()


@attrs.frozen
class Person:
    name: str = attrs.field(converter=stripped)
    _home: Address
    friends: list[Person] = attrs.Factory(list["Person"])


class Point(msgspec.Struct):
    x: Annotated[int, msgspec.Meta(ge=0, description="To the right.")]
    y: int = 0


class Shape(msgspec.Struct, rename="camel", tag="shape"):
    left_top: Point
    inner: list[Shape] = msgspec.field(default_factory=list["Shape"])


def of(hint: Any) -> FunctionSchema:
    def f(value: Any) -> None: ...

    f.__annotations__ = {"value": hint}
    return function_schema(f)


def value_of(schema: FunctionSchema, sent: str) -> Any:
    return schema.arguments.parse_json(f'{{"value": {sent}}}')["value"]


def test_a_class_of_attrs_is_a_parameter() -> None:
    schema = of(Person)
    assert schema.parameters["$defs"]["Person"]["required"] == ["name", "home"]
    assert "made" not in str(schema.parameters)
    made = value_of(
        schema, '{"name": " Ada ", "home": {"street": "S"}, "friends": [{"name": "B", "home": {"street": "T"}}]}'
    )
    assert made == Person("Ada", Address("S"), [Person("B", Address("T"))])
    assert schema.arguments.parse_json(schema.arguments.dump_json({"value": made})) == {"value": made}
    assert schema.arguments.parse({"value": made}) == {"value": made}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ('{"street": "S", "number": 0}', "'number' must be > 0"),
        ('{"street": "S", "number": "many"}', "value.number"),
        ('{"number": 1}', "value.street"),
        ('{"street": "S", "made": 4}', "value.made"),
    ],
)
def test_what_a_class_of_attrs_refuses_is_said(sent: str, said: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=said):
        value_of(of(Address), sent)


def test_a_struct_of_msgspec_is_a_parameter() -> None:
    schema = of(list[Point] | None)
    point = {
        "type": "object",
        "properties": {
            "x": {"type": "integer", "minimum": 0, "description": "To the right."},
            "y": {"type": "integer", "default": 0},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert schema.parameters["properties"]["value"] == {"anyOf": [{"type": "array", "items": point}, {"type": "null"}]}
    assert value_of(schema, '[{"x": 1}]') == [Point(1)]
    with pytest.raises(InvalidArgumentsError, match="x"):
        value_of(schema, '[{"x": -1}]')


def test_a_struct_with_other_names_and_a_tag_is_a_parameter() -> None:
    schema = of(Shape)
    made = value_of(schema, '{"type": "shape", "leftTop": {"x": 1}, "inner": [{"type": "shape", "leftTop": {"x": 2}}]}')
    assert made == Shape(Point(1), [Shape(Point(2))])
    assert schema.arguments.parse_json(schema.arguments.dump_json({"value": made})) == {"value": made}


def test_neither_library_is_imported_by_a_tool() -> None:
    program = (
        "import sys\n"
        "from toolkit import tool\n"
        "@tool\n"
        "def f(a: int, b: list[str] | None = None) -> dict[str, int]: return {}\n"
        "f.definition\n"
        "from toolkit.chat.output import to_output\n"
        "to_output(object()), to_output({1, 2}), to_output([{'a': object()}])\n"
        "assert not {'numpy', 'pandas', 'msgspec'} & {*sys.modules}, [*sys.modules]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
