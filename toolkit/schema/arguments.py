"""The protocol of what checks the arguments of a call, and the checks that all such parsers share."""

from __future__ import annotations

import copy
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from toolkit.errors import ConfigurationError, InvalidArgumentsError
from toolkit.schema.nodes import JsonPath, Nodes, is_array, is_object
from toolkit.schema.problems import example_line, value_at
from toolkit.schema.work import MAX_DEPTH

__all__ = [
    "ArgumentsParser",
    "MalformedJsonError",
    "check_depth",
    "check_text",
    "decode_clearly",
    "decode_json",
    "drop_nulls",
    "malformed",
    "may_be_deep",
]


_MOST_DIGITS = 4_000


class MalformedJsonError(InvalidArgumentsError):
    """The text is not JSON: the one failure that mending the text can help."""


class ArgumentsParser(Protocol):
    """Checks arguments; made once per tool, from a function or from a JSON Schema."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema that the arguments are checked against."""
        ...

    @property
    def nodes(self) -> Nodes:
        """The same schema with its references followed; what is found in it is kept for all who look again."""
        ...

    @property
    def is_strict(self) -> bool:
        """True where values are taken as they are: no ``"5"`` for a number."""
        ...

    def parse_json(self, text: str) -> dict[str, Any]:
        """Return the validated arguments that a JSON text says; an empty text and ``null`` say none.

        Raises:
            MalformedJsonError: It is not JSON.
            InvalidArgumentsError: All that is wrong with it, in one message.
        """
        ...

    def parse(self, value: object, *, mend: bool = True) -> dict[str, Any]:
        """Do the same with JSON that is decoded already; values that are validated already are taken too.

        Without `mend` nothing is taken for what a model may have meant by it: null is no way to leave a parameter out.

        Raises:
            InvalidArgumentsError: All that is wrong with it, in one message.
        """
        ...

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """Return the one canonical JSON text of validated arguments: sorted, compact, ASCII, the same in each process.

        Secrets stand in it as digests that only this process can make, so that two of them are told apart and none is
        shown or found by trying: with these, other processes have another text. With `reveal_secrets` they
        stand in it as they are, and `parse_json` takes the text back: only for another process of the same program.
        """
        ...

    def is_strict_at(self, path: JsonPath) -> bool:
        """Return whether the value at a path must have its type already: the author of the field made it strict."""
        ...


def may_be_deep(text: str) -> bool:
    """Return whether the JSON of a text may be nested more deeply than arguments may be."""
    return len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH


def check_depth(value: object) -> None:
    """Refuse what is nested so deeply that what reads it later, here or elsewhere, could not.

    Raises:
        InvalidArgumentsError: It is.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for part in level for item in _list_inner_values(part)]
        if not level:
            return
    raise InvalidArgumentsError(f"The arguments are nested too deeply: at most {MAX_DEPTH} levels are accepted.")


def _list_inner_values(value: object) -> Iterable[object]:
    if is_object(value):
        return value.values()
    return value if is_array(value) else ()


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


def check_text(text: str) -> None:
    """Refuse a text that no JSON can be: half of a surrogate pair in it stands for no character.

    Raises:
        MalformedJsonError: There is one.
        ConfigurationError: It is no text; the provider that made the call has to mend that, and not the model.
    """
    if not isinstance(cast("object", text), str):
        kind = type(text).__qualname__
        raise ConfigurationError(f"the arguments of a ToolCall must be JSON text, not {kind}: write json.dumps(...)")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedJsonError(
            f"The arguments are not valid JSON: character {error.start + 1} is half of a surrogate pair. "
            "Send one JSON object."
        ) from None


def _read_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:40]} is no number of JSON, or too large")
    return value


def _read_integer(number: str) -> int:
    if len(number) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(number)} digits")
    return int(number)


def _join_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) < len(members):
        times = Counter(name for name, _ in members)
        repeated = next(name for name, _ in members if times[name] > 1)
        raise ValueError(f"the name {json.dumps(repeated[:80])} stands twice in one object")
    return value


_strict_decoder = json.JSONDecoder(
    object_pairs_hook=_join_members, parse_constant=_read_finite, parse_float=_read_finite, parse_int=_read_integer
)
_surrogate_escape = re.compile(r"\\u[dD][89a-fA-F]")


def decode_json(text: str) -> Any:
    """Return what a text says by the letter of JSON, where it can be read in one way only.

    Raises:
        ValueError: It is not JSON, or has NaN, an infinite number, one of more than 4,000 digits, a name twice in one
            object, or half of a surrogate pair.
        RecursionError: It is nested too deeply.
    """
    value = _strict_decoder.decode(text)
    if _surrogate_escape.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a string has half of a surrogate pair") from None
    return value


def decode_clearly(text: str) -> Any:
    """Return what a text says, as `decode_json` does, with an error for the model.

    Raises:
        MalformedJsonError: It is JSON in some way, but not by the letter, or it says two things at once.
    """
    try:
        return decode_json(text)
    except RecursionError:
        raise MalformedJsonError("The arguments are nested too deeply.") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise MalformedJsonError(f"The arguments are not valid JSON: {error}. Send one JSON object.") from None


def malformed(text: str, reason: str, nodes: Nodes, accepts: Callable[[Any], bool]) -> MalformedJsonError:
    """Return the error that says where a text stops being JSON.

    Args:
        text: The text that came. The part around that place is quoted, unless it may hold a secret.
        reason: The message of the parser, ending in ``at line 1 column 5``.
        nodes: The schema that was wanted.
        accepts: True where some arguments would do; decides whether an example is shown.
    """
    if reason.startswith("EOF"):
        return MalformedJsonError(
            f"The arguments are not complete JSON: they end too early ({reason}). Send the whole JSON object again."
        )
    near = ""
    if not nodes.is_secret(nodes.root) and (place := re.search(r"line (\d+) column (\d+)", reason)):
        lines = text.split("\n")
        line, column = int(place[1]) - 1, int(place[2])
        if line < len(lines):
            near = f" Near: {lines[line][max(0, column - 25) : column + 15].strip()}"
    return MalformedJsonError(
        f"The arguments are not valid JSON: {reason}. Send one JSON object.{near}{example_line(nodes, accepts)}"
    )
