"""What reads schemas (the first line, then arguments for them), and arguments of a few functions."""

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from tests.fuzzing.harness import Target, hold_loop

__all__ = ["TARGETS"]
SEEDS = (
    b'{"properties": {"a": {"type": "string", "pattern": "^(?=a)(a|aa)+$"}}}\n{"a": "aaa"}',
    b'{"properties": {"a": {"type": "string", "pattern": "^(?=a)' + b"(a|aa)+$" * 100 + b'"}}}\n{"a": "aaa"}',
    b'{"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"anyOf": [{"minItems": 2}, {}]}}}\n{"a": []}',
    b'{"required": ["a"], "additionalProperties": {"oneOf": [{"$ref": "#"}, {"multipleOf": 0.1}]}}\n{"a": {"b": 1e9}}',
    b'{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}\n{"a": null}',
    b'{"properties": {"": {"pattern": "))"}}}\n{"": "a"}',
    b'{"count": "3", "names": ["a", null], "point": {"x": 1, "y": "2"}}',
)


def check_schema(data: bytes) -> None:
    """Make a tool of a schema, and call it."""
    # Not at the top: what is imported before the fuzzer is ready is not followed by it.
    from toolkit.errors import InvalidArgumentsError, SchemaError
    from toolkit.schema import raw_arguments

    line, _, rest = data.decode("utf-8", "surrogateescape").partition("\n")
    try:
        schema: Any = json.loads(line)
    except (ValueError, RecursionError):
        return
    if not isinstance(schema, dict):
        return
    try:
        parser = raw_arguments(schema, subject="fuzzed", formats=True)  # pyright: ignore[reportUnknownArgumentType]
    except SchemaError:
        return
    try:
        arguments: Any = hold_loop(partial(parser.parse_json, rest))
    except InvalidArgumentsError:
        return
    assert parser.parse_json(parser.dump_json(arguments)) is not None


def check_arguments(data: bytes) -> None:
    """Give arguments to functions."""
    from toolkit.errors import InvalidArgumentsError

    text = data.decode("utf-8", "surrogateescape")
    for parser in _parsers():
        try:
            arguments = hold_loop(partial(parser.parse_json, text))
        except InvalidArgumentsError:
            continue
        parser.dump_json(arguments)


_KNOWN: list[Any] = []


def _parsers() -> list[Any]:
    if not _KNOWN:
        from datetime import date
        from decimal import Decimal

        from pydantic import Json, SecretStr

        from toolkit.schema import function_schema

        def few(
            count: int = 1, names: list[str | None] | None = None, point: dict[str, float] | None = None
        ) -> None: ...

        def many(
            day: date | None = None,
            price: Decimal = Decimal(0),
            key: SecretStr | None = None,
            data: Any = None,
            raw: Json[Any] | None = None,
        ) -> None: ...

        def all_of(**rest: int | str | list[bool]) -> None: ...

        _KNOWN.extend(
            function_schema(
                function, localns={"date": date, "Decimal": Decimal, "SecretStr": SecretStr, "Json": Json}
            ).arguments
            for function in (few, many, all_of)
        )
    return _KNOWN


def schema_target() -> Callable[[bytes], None]:
    import_module("toolkit.schema.raw_schema")
    return check_schema


def arguments_target() -> Callable[[bytes], None]:
    import_module("toolkit.schema.arguments")
    return check_arguments


TARGETS = [
    Target(name=name, make=make, seeds=lambda: SEEDS, follows=["toolkit.schema"], longest=4_000, swollen=29_000)
    for name, make in (("schema", schema_target), ("arguments", arguments_target))
]
