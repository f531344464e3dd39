"""What is compiled by hand is what Pydantic would have made."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from toolkit.errors import InvalidArgumentsError
from toolkit.schema import ArgumentsParser, function_schema
from toolkit.schema.fields import plain_hint

HINTS: list[Any] = [
    str, int, float, bool, Any, list[str], list[Any], list[list[int]], dict[str, int], dict[str, Any],
    dict[str, list[float]], int | None, list[int] | None, list[int | None], Literal["a"],
    Literal["a", "b"], Literal["a", "b"] | None,
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, 1, -5, 1.0, 1.5, 2**70, "", "a", "5", "true", "1.5", [], [1], ["a"], [None], [[1]], {},
    {"a": 1}, {"a": "b"}, {"a": [1.5]}, [1, "2"], [True],
]  # fmt: skip


def received(parser: ArgumentsParser, text: str) -> Any:
    try:
        arguments = parser.parse_json(text)
    except InvalidArgumentsError as error:
        return str(error)
    return arguments, repr(arguments), parser.dump_json(arguments)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_a_plain_hint_is_compiled_as_pydantic_would(hint: Any, strict: bool) -> None:
    def plain(value: Any, other: Any = None) -> None:
        """Do.

        Args:
            value: It.
        """

    def general(value: Any, other: Any = None) -> None:
        """Do.

        Args:
            value: It.
        """

    assert plain_hint(hint) is not None
    plain.__annotations__ = {"value": hint, "other": hint}
    general.__annotations__ = {"value": Annotated[hint, Field()], "other": Annotated[hint, Field()]}
    one, other = function_schema(plain, strict=strict), function_schema(general, strict=strict)
    assert json.dumps(one.parameters) == json.dumps(other.parameters)
    for value in VALUES:
        for arguments in ({"value": value}, {"value": value, "other": value}):
            text = json.dumps(arguments)
            assert received(one.arguments, text) == received(other.arguments, text)
