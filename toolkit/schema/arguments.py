"""The protocol of argument parsers, and their shared parts: JSON decoding, limits, and decoding of strings.

The parsers are `TypedArguments` for the hints of a function and `RawArguments` for a JSON Schema.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import local
from typing import Any, Literal, Protocol, cast

from toolkit.errors import ConfigurationError, InvalidArgumentsError
from toolkit.json_text import canonical_json
from toolkit.redaction import digest_of, is_replaced, may_name_secrets
from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object, types_of
from toolkit.schema.problems import example_line, value_at

MAX_DEPTH = 100
"""The deepest nesting of arguments: their readers, here and elsewhere, are recursive."""
_STEPS_OF_CHECK = 500_000
_STEPS_OF_TRIAL = 20_000
_MOST_DIGITS = 4_000
_MOST_STRUCTURES = 20_000  # lists and objects, which observers get copies of
_STRUCTURED = frozenset({"array", "object"})
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # without its end, too: that takes no second look
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONGEST_AMOUNT = 60
_MOST_ENCODINGS = 2
_WRITTEN_AMOUNT = re.compile(
    r"(?P<sign>[-+\u2212]?)"
    r"(?P<number>[0-9]+(?:\.[0-9]+)?|[0-9]{1,3}(?:(?P<mark>[,_'\u2019\u00a0\u202f ])[0-9]{3})(?:(?P=mark)[0-9]{3})*"
    r"(?:\.[0-9]+)?)"
)


class TooMuchWorkError(Exception):
    """A check was given up: it would have taken more steps than it may."""


class WorkBudget:
    """Limits validation by counted steps of about a microsecond, so that results do not depend on machine speed.

    Args:
        steps: The number of steps.
        is_trial: True if the caller catches `TooMuchWorkError` and retries in a thread; else the arguments are refused.
    """

    __slots__ = ("is_trial", "left")

    def __init__(self, steps: int = _STEPS_OF_CHECK, *, is_trial: bool = False) -> None:
        self.left = steps
        self.is_trial = is_trial

    def spend(self, steps: int) -> None:
        """Spend steps.

        Raises:
            TooMuchWorkError: Fewer are left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooMuchWorkError


class _SharedBudget(local):
    """The shared budget of the checks of one call, in the thread that prepares it without waiting.

    Attributes:
        current: The budget; ``trial`` becomes a small one when it is opened, and None is none.
    """

    current: WorkBudget | Literal["trial"] | None = None


SHARED_BUDGET = _SharedBudget()


def open_budget() -> WorkBudget:
    """Return the shared budget of this thread, or a new one for a single check."""
    shared = SHARED_BUDGET.current
    if shared == "trial":
        shared = SHARED_BUDGET.current = WorkBudget(_STEPS_OF_TRIAL, is_trial=True)
    return shared or WorkBudget()


def is_trial() -> bool:
    """Return True if the caller retries in a thread when this budget runs out."""
    return open_budget().is_trial


class MalformedJsonError(InvalidArgumentsError):
    """The text is not JSON: the only failure that a repair of the text can help."""


class ArgumentsTooLargeError(InvalidArgumentsError):
    """Checking the arguments would take too long, and so would a search for what they were meant to be."""

    def __init__(self, reason: str = "checking them takes too long. Send fewer or simpler values.") -> None:
        super().__init__(f"The arguments were refused: {reason}")


class ArgumentsParser(Protocol):
    """Parses the arguments of one tool."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        ...

    @property
    def nodes(self) -> Nodes:
        """The same schema with its references followed; lookups are cached."""
        ...

    @property
    def is_strict(self) -> bool:
        """True if values are not coerced, such as ``"5"`` for a number."""
        ...

    def parse_json(self, text: str) -> dict[str, Any]:
        """Return the validated arguments of a JSON text; an empty text and ``null`` are no arguments.

        Raises:
            MalformedJsonError: It is not JSON.
            InvalidArgumentsError: It has problems; the message lists all of them.
        """
        ...

    def parse(self, value: object, *, repair: bool = True) -> dict[str, Any]:
        """Return the validated arguments of decoded JSON, which may contain validated values.

        Without `repair`, values are not interpreted: null does not mean that a parameter is left out.

        Raises:
            InvalidArgumentsError: It has problems; the message lists all of them.
        """
        ...

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """Return the canonical JSON text of validated arguments: sorted, compact, ASCII, the same in each process.

        Secrets are replaced by digests that only this process can make: equal secrets have equal digests, and no
        secret is shown or can be guessed. With `reveal_secrets` they are written as they are, and `parse_json` restores
        the arguments: only for another process of the same program.
        """
        ...

    def is_strict_at(self, path: JsonPath) -> bool:
        """Return whether the author made the field at a path strict, so that its value is not coerced."""
        ...


def may_be_deep(text: str) -> bool:
    """Return whether the JSON of a text may be nested too deeply."""
    return len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH


def check_depth(value: object) -> None:
    """Refuse values that are nested too deeply for their readers.

    Raises:
        InvalidArgumentsError: The value has more than `MAX_DEPTH` levels.
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
    """Return the arguments without the nulls at these paths that mean "left out"; None if there are none.

    Models write null for parameters with a default; in OpenAI's strict mode they have no other way.
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
    """Refuse a text with half of a surrogate pair, which no JSON can have.

    Raises:
        MalformedJsonError: There is one.
        ConfigurationError: It is not a text, which is a fault of the provider and not of the model.
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


def decode_json(text: str) -> Any:
    """Return the value of a strict JSON text.

    Raises:
        ValueError: It is not JSON, or has NaN, an infinite number, one of more than 4,000 digits, a repeated name in an
            object, or half of a surrogate pair.
        RecursionError: It is nested too deeply.
    """
    value = _strict_decoder.decode(text)
    if _SURROGATE_ESCAPE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a string has half of a surrogate pair") from None
    return value


def without_strings(text: str) -> str:
    """Return a JSON text without its strings."""
    return _STRING.sub("", text)


def check_structures(text: str) -> None:
    """Refuse arguments with too many parts for those that check, copy and show them.

    Raises:
        ArgumentsTooLargeError: There are more than 20,000 lists and objects.
    """
    if len(text) > _MOST_STRUCTURES and text.count("[") + text.count("{") > _MOST_STRUCTURES:
        outside = without_strings(text)
        if outside.count("[") + outside.count("{") > _MOST_STRUCTURES:
            raise ArgumentsTooLargeError(f"they have more than {_MOST_STRUCTURES:,} lists and objects. Send fewer.")


def decode_clearly(text: str) -> Any:
    """Return the value of a text as `decode_json` does, with an error for the model.

    Raises:
        MalformedJsonError: The text is accepted by `json`, but is not strict JSON.
        ArgumentsTooLargeError: It has too many lists and objects.
        json.JSONDecodeError: It is not JSON.
    """
    check_structures(text)
    try:
        return decode_json(text)
    except RecursionError:
        raise MalformedJsonError("The arguments are nested too deeply.") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise MalformedJsonError(f"The arguments are not valid JSON: {error}. Send one JSON object.") from None


def malformed(
    text: str, reason: str, nodes: Nodes, accepts: Callable[[Any], bool], *, is_cut_off: bool
) -> MalformedJsonError:
    """Return the error about a text that is not JSON, with the place and an example.

    Args:
        text: The text. The part around the place is quoted, unless it may hold a secret.
        reason: The message of the parser.
        nodes: The schema of the arguments.
        accepts: Returns whether arguments are valid, to choose an example.
        is_cut_off: True if the text ends too early.
    """
    if is_cut_off:
        return MalformedJsonError(
            f"The arguments are not complete JSON: they end too early ({reason}). Send the whole JSON object again."
        )
    near = "" if may_hold_secrets(text, nodes) else _quote_break(text)
    return MalformedJsonError(
        f"The arguments are not valid JSON: {reason}. Send one JSON object.{near}{example_line(nodes, accepts)}"
    )


def _quote_break(text: str) -> str:
    """Return the part of the line around the place where a text stops being JSON; empty if `json` accepts it."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        start = max(error.pos - error.colno + 1, error.pos - 24)
        return f" Near: {text[start : error.pos + 16].partition(chr(10))[0].strip()}"
    except (ValueError, RecursionError):
        pass
    return ""


def decode_strings(parser: ArgumentsParser, value: Any, *, assumed: list[str] | None = None) -> Any | None:
    """Return refused arguments with strings decoded as the schema requires; None if there are none.

    Such strings are ``"[1, 2]"`` for a list, ``"null"``, ``"3"`` and ``"1,000"``, where no string is allowed. In strict
    fields, only lists and objects are decoded. The assumptions are appended to `assumed`, in words.
    """
    if open_budget().left < 0:  # a check of this call was given up
        return None
    assumed = [] if assumed is None else assumed
    before = len(assumed)
    try:
        decoded = _Decoder(parser, assumed).decode(value, parser.schema, ())
    except RecursionError:
        return None
    return decoded if len(assumed) > before else None


def find_dropped_nulls(nodes: Nodes, value: Any) -> list[JsonPath]:
    """Return the paths of nulls in accepted arguments where the schema accepts no null: they were left out."""
    found: list[JsonPath] = []
    waiting: list[tuple[Any, Node, JsonPath]] = [(value, nodes.root, ())]
    while waiting:
        part, node, path = waiting.pop()
        if part is None and path and isinstance(path[-1], str) and "null" not in nodes.types(node):
            found.append(path)
        if is_object(part):
            waiting += [(item, nodes.at_key(node, key), (*path, key)) for key, item in part.items()]
        elif is_array(part):
            inside = zip(part, nodes.at_items(node, len(part)), strict=True)
            waiting += [(item, member, (*path, index)) for index, (item, member) in enumerate(inside)]
    return sorted(found, key=str)


class _Decoder:
    def __init__(self, parser: ArgumentsParser, assumed: list[str]) -> None:
        self.nodes = parser.nodes
        self.parser = parser
        self.assumed = assumed

    def decode(self, value: Any, node: Node, path: JsonPath) -> Any:
        if isinstance(value, str):
            value = self._decode_text(value, node, path)
        if is_object(value):
            members = value
            return {key: self.decode(item, self.nodes.at_key(node, key), (*path, key)) for key, item in members.items()}
        if is_array(value):
            items = value
            inside = self.nodes.at_items(node, len(items))
            return [
                self.decode(item, member, (*path, index))
                for index, (item, member) in enumerate(zip(items, inside, strict=True))
            ]
        return value

    def _decode_text(self, text: str, node: Node, path: JsonPath) -> Any:
        types = self.nodes.types(node)
        if "string" in types or len(text) > 1_000_000:
            return text
        try:
            decoded = decode_json(text)
        except (ValueError, RecursionError):
            amount = read_amount(text, node, self.nodes)
            if amount is None or self.parser.is_strict_at(path):
                return text
            self.assumed.append(f"{'.'.join(map(str, path))}: {text} was written as {amount}")
            return amount
        for _ in range(_MOST_ENCODINGS):
            if not isinstance(decoded, str):
                break
            try:
                decoded = decode_json(decoded)
            except (ValueError, RecursionError):
                return text
        found = types_of(decoded)
        if not found & types or (not found & _STRUCTURED and self.parser.is_strict_at(path)):
            return text
        self.assumed.append(f"{'.'.join(map(str, path))}: the string was decoded as JSON")
        return decoded


def read_amount(text: str, node: Node, nodes: Nodes) -> int | float | None:
    """Return the number that a text must mean where a number is wanted; None if it may mean another, or none.

    Separators between thousands are accepted: ``1_000``, ``1 000``, ``1,000,000``. A single comma, as in ``1,000``, may
    be a decimal comma: it is accepted for an integer only.
    """
    types = nodes.types(node)
    wants = types & {"integer", "number"}
    match = _WRITTEN_AMOUNT.fullmatch(text.strip()) if wants and len(text) <= _LONGEST_AMOUNT else None
    if match is None:
        return None
    written, mark = match["number"], match["mark"]
    if mark == "," and "number" in wants and written.count(",") == 1 and "." not in written:
        return None
    digits = written.replace(mark, "") if mark else written
    if len(digits) > 1 and digits[0] == "0" and digits[1] != ".":
        return None
    digits = ("" if match["sign"] in {"", "+"} else "-") + digits
    return float(digits) if "." in digits else int(digits)


def hide_secrets(text: str, value: Any, nodes: Nodes) -> str:
    """Return the canonical text of arguments with digests in place of secrets.

    Args:
        text: Their text.
        value: The same as JSON values; None to decode the text.
        nodes: Their schema.
    """
    if not may_hold_secrets(text, nodes):
        return text
    return canonical_json(digest_secrets(json.loads(text) if value is None else value, nodes))


def may_hold_secrets(text: str, nodes: Nodes) -> bool:
    """Return whether the JSON text of arguments may hold secrets, by their schema or by the names in the text."""
    if nodes.takes_secrets or not nodes.may_take_secrets:
        return nodes.takes_secrets
    return may_name_secrets(text)


def digest_secrets(value: Any, nodes: Nodes) -> Any:
    """Return a JSON value with digests in place of the fields that are secret by their schema or name."""
    return nodes.replace_secrets(value, _digest_secret)


def _digest_secret(secret: Any, path: JsonPath, is_marked: bool) -> Any:
    del path, is_marked
    # The type of a parameter may have written a digest.
    return secret if is_replaced(secret) else digest_of(canonical_json(secret))
