"""What checks the arguments of a call, and what is the same for all that do."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolkit.errors import InvalidArgumentsError
from toolkit.schema.nodes import JsonPath, Nodes, is_object
from toolkit.schema.problems import value_at

__all__ = ["ArgumentsParser", "MalformedJsonError", "drop_nulls", "malformed"]


class MalformedJsonError(InvalidArgumentsError):
    """The text is not JSON: the one failure that mending the text can help."""


class ArgumentsParser(Protocol):
    """Checks arguments; made once per tool, from a function or from a JSON Schema."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema that the arguments are checked against."""
        ...

    @property
    def is_strict(self) -> bool:
        """Whether values are taken as they are: no ``"5"`` for a number."""
        ...

    def parse_json(self, text: str) -> dict[str, Any]:
        """Return the validated arguments that a JSON text says; an empty text and ``null`` say none.

        Raises:
            MalformedJsonError: It is not JSON.
            InvalidArgumentsError: All that is wrong with it, in one message.
        """
        ...

    def parse(self, value: object) -> dict[str, Any]:
        """Do the same with JSON that is decoded already; values that are validated already are taken too.

        Raises:
            InvalidArgumentsError: All that is wrong with it, in one message.
        """
        ...

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """Return the one canonical JSON text of validated arguments: sorted, compact, ASCII, the same in each process.

        Secrets stand in it as digests, so that two of them are told apart and none is shown. With `reveal_secrets` they
        stand in it as they are, and `parse_json` takes the text back: only for another process of the same program.
        """
        ...


def drop_nulls(value: Any, paths: Sequence[JsonPath], nodes: Nodes) -> Any | None:
    """Return the arguments without the nulls at these paths that mean "left out"; None where there are none.

    Models say so of what has a default, and OpenAI's strict mode leaves them no other way.
    """
    dropped = False
    result: Any = value
    for path in paths:
        if not path or not isinstance(path[-1], str) or value_at(value, path) is not None:
            continue
        container: Any = value_at(value, path[:-1])
        choices = nodes.choices(nodes.at(path[:-1]))
        is_optional = any(path[-1] in choice.get("properties", {}) for choice in choices) and not any(
            path[-1] in choice.get("required", ()) for choice in choices
        )
        if is_optional and is_object(container) and path[-1] in container:
            if not dropped:
                result = copy.deepcopy(value)
                dropped = True
            value_at(result, path[:-1]).pop(path[-1], None)
    return result if dropped else None


def malformed(text: str, reason: str, *, show: bool = True) -> MalformedJsonError:
    """Return the error that says where a text stops being JSON.

    Args:
        text: What came.
        reason: What the parser said, ending in ``at line 1 column 5``.
        show: Whether to quote the text around that place; not where it may hold a secret.
    """
    if reason.startswith("EOF"):
        return MalformedJsonError(
            f"The arguments are not complete JSON: they end too early ({reason}). Send the whole JSON object again."
        )
    near = ""
    if show and (place := re.search(r"line (\d+) column (\d+)", reason)):
        lines = text.split("\n")
        line, column = int(place[1]) - 1, int(place[2])
        if line < len(lines):
            near = f" Near: {lines[line][max(0, column - 25) : column + 15].strip()}"
    return MalformedJsonError(f"The arguments are not valid JSON: {reason}. Send one JSON object.{near}")
