"""Small values that a schema should take, for a model to copy; whether they are taken is for the caller to try."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolkit.schema.nodes import Node, Nodes, is_array, is_object
from toolkit.schema.work import TooMuchWorkError

__all__ = ["ATTEMPTS", "make_example"]

ATTEMPTS = 15
"""How many different examples there are, at most."""
_MAX_VALUES = 200
_MAX_TEXT = 500
_MAX_LEVELS = 12
# The first is tried first; the others are for what a schema doesn't say: in the past, of version 7, a power of ten.
_TEXTS = ("...", "example", "a", "1", "A1", "example.txt", "en", "https://example.com", "4242424242424242")
_NUMBERS = (1, 0, 2, 10, 100, 1000, 7, -1)
_TEXTS_OF_FORMATS: dict[str, tuple[str, ...]] = {
    "date-time": ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2000-01-01T00:00:00Z", "2999-12-31T00:00:00Z",
                  "2000-01-01T00:00:00", "2999-12-31T00:00:00"),
    "date": ("2026-01-31", "2000-01-01", "2999-12-31", "1970-01-01", "1800-01-01"),
    "time": ("12:00:00", "12:00:00Z", "00:00:00", "23:59:59"),
    "duration": ("PT1H", "PT1S", "P1D", "P30D", "PT0S", "-PT1H"),
    "uuid": ("123e4567-e89b-42d3-a456-426614174000",),
    "uuid1": ("123e4567-e89b-12d3-a456-426614174000",),
    "uuid3": ("123e4567-e89b-32d3-a456-426614174000",),
    "uuid4": ("123e4567-e89b-42d3-a456-426614174000",),
    "uuid5": ("123e4567-e89b-52d3-a456-426614174000",),
    "uuid6": ("123e4567-e89b-62d3-a456-426614174000",),
    "uuid7": ("0198e4b2-7d3a-7c51-8f02-426614174000",),
    "uuid8": ("123e4567-e89b-82d3-a456-426614174000",),
    "email": ("name@example.com",),
    "name-email": ("Name <name@example.com>",),
    "uri": ("https://example.com", "http://example.com", "ftp://example.com", "wss://example.com", "file:///example",
            "redis://example.com:6379/0", "amqp://example.com", "kafka://example.com:9092",
            "mysql://user@example.com:3306/name", "nats://example.com:4222", "mariadb://user@example.com:3306/name",
            "clickhouse://example.com:9000/name", "snowflake://user@example.com/name",
            "cockroachdb://user@example.com:26257/name"),
    "multi-host-uri": ("postgresql://user:password@example.com:5432/name", "mongodb://example.com:27017",
                       "mysql://user@example.com:3306/name", "kafka://example.com:9092", "amqp://example.com",
                       "nats://example.com:4222", "clickhouse://example.com:9000/name",
                       "cockroachdb://user@example.com:26257/name"),
    "json-string": ("{}", "[]", "1", '"text"', "true"),
    "ipv4": ("192.0.2.1",),
    "ipv6": ("2001:db8::1",),
    "ipv4network": ("192.0.2.0/24",),
    "ipv6network": ("2001:db8::/32",),
    "ipv4interface": ("192.0.2.1/24",),
    "ipv6interface": ("2001:db8::1/32",),
    "ipvanyaddress": ("192.0.2.1",),
    "ipvanynetwork": ("192.0.2.0/24",),
    "ipvanyinterface": ("192.0.2.1/24",),
    "zoneinfo": ("UTC",),
    "base64": ("aGVsbG8=",),
    "base64url": ("aGVsbG8=", "aGVsbG8"),
    "hostname": ("example.com",),
    "regex": (".*",),
    "color": ("red", "#ff0000"),
    "path": ("example.txt",),
    "file-path": ("example.txt", "."),
    "directory-path": (".", "/"),
}  # fmt: skip


def make_example(nodes: Nodes, node: Node, *, attempt: int = 0) -> Any:
    """Return a small value that a node should take; a guess where patterns or formats decide.

    Raises:
        TooMuchWorkError: It would not be small.
    """
    return _ExampleMaker(nodes, attempt).make(node, 0)


class _ExampleMaker:
    def __init__(self, nodes: Nodes, attempt: int) -> None:
        self._nodes = nodes
        self._attempt = attempt
        self._left = _MAX_VALUES

    def make(self, node: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_LEVELS:
            raise TooMuchWorkError
        node = self._nodes.resolve(node)
        for key in ("default", "const"):
            if key in node:
                return node[key]
        if is_array(listed := node.get("examples")) and listed:
            return self._pick_one(listed)
        if is_array(listed := node.get("enum")) and listed:
            return self._pick_one(listed)
        choices = self._nodes.choices(node)
        choice = next((one for one in choices if one.get("type") != "null"), choices[0])
        if choice is not node:
            return self.make(choice, depth + 1)
        kind = node.get("type", "object" if "properties" in node else None)
        return self._make_of_type(kind[0] if is_array(kind) else kind, node, depth)

    def _make_of_type(self, kind: Any, node: Node, depth: int) -> Any:
        match kind:
            case "object":
                properties: Node = node.get("properties", {})
                required: list[str] = node.get("required", [])
                if len(required) > self._left:
                    raise TooMuchWorkError
                return {name: self.make(properties.get(name, {}), depth + 1) for name in required}
            case "array":
                return self._make_list(node, depth)
            case "string":
                return self._make_text(node, depth)
            case "integer" | "number":
                return _make_number(node, self._pick_one(_NUMBERS))
            case "boolean":
                return self._attempt % 2 == 0
            case _:
                return None

    def _make_list(self, node: Node, depth: int) -> list[Any]:
        first: list[Any] = node.get("prefixItems", [])
        wanted = node.get("minItems", 0)
        if max(wanted, len(first)) > self._left:
            raise TooMuchWorkError
        some = [self.make(member, depth + 1) for member in first]
        if len(some) < wanted:
            items = node.get("items")
            kinds: Any = items if is_object(items) else {}
            some += [self.make(kinds, depth + 1) for _ in range(int(wanted) - len(some))]
        if node.get("uniqueItems") and len(some) > 1 and all(isinstance(item, str) for item in some):
            some = [f"{item}{index}" if index else item for index, item in enumerate(some)]
        return some

    def _make_text(self, node: Node, depth: int) -> str:
        if is_object(inner := node.get("contentSchema")):
            return json.dumps(self.make(inner, depth + 1), ensure_ascii=False)
        least, most = node.get("minLength", 0), node.get("maxLength", _MAX_TEXT)
        if least > _MAX_TEXT:
            raise TooMuchWorkError
        known = _TEXTS_OF_FORMATS.get(str(node.get("format")))
        if known is None and isinstance(pattern := node.get("pattern"), str):
            fitting = _write_fitting_text(pattern, least=int(least))
            if fitting is not None:
                return fitting
        text: str = self._pick_one(known or _TEXTS)
        return text.ljust(int(least), ".")[: int(most)] if known is None else text

    def _pick_one(self, values: Any) -> Any:
        return values[self._attempt % len(values)]


def _make_number(node: Node, wanted: int) -> Any:
    """Return a number within the limits, as near as that is to the one that is wanted."""
    least, most = _find_limits(node)
    number: Any = wanted
    if least is not None and (number < least or wanted == 1):
        number = least
    if most is not None and number > most:
        number = most
    step: Any = node.get("multipleOf")
    if step is not None:
        try:
            whole: Any = number // step * step
            number = whole if whole == number or least is None or whole >= least else whole + step
            number = number or (step if most is None or step <= most else 0)
        except (OverflowError, ValueError):
            raise TooMuchWorkError from None
    return number


def _find_limits(node: Node) -> tuple[Any, Any]:
    """Return the least and the greatest number that a schema takes, where an exclusive limit is a step away."""
    least: Any = node.get("minimum")
    most: Any = node.get("maximum")
    above: Any = node.get("exclusiveMinimum")
    below: Any = node.get("exclusiveMaximum")
    is_wide = node.get("type") == "integer" or None in (above, below)
    gap: Any = node.get("multipleOf") or (1 if is_wide else (below - above) / 2)
    if above is not None:
        least = above + gap if least is None else max(least, above + gap)
    if below is not None:
        most = below - gap if most is None else min(most, below - gap)
    return least, most


def _write_fitting_text(pattern: str, *, least: int) -> str | None:
    r"""Return a short text that should match a regular expression of usual form; None for others.

    The first of alternatives is taken, and what looks ahead or behind is left out; what is optional is written only
    where the text has to be longer: ``^[A-Z]{3}-\d+$`` gives ``AAA-0``.
    """
    if len(pattern) > _LONGEST_PATTERN_READ:
        return None
    try:
        return _write_alternative(_PIECE_OF_PATTERN.finditer(pattern), least)
    except (re.error, LookupError, ValueError):
        return None


def _write_alternative(pieces: Iterator[re.Match[str]], least: int) -> str:
    """Return the text of the first alternative, up to the end of its group."""
    text, is_first = "", True
    for piece in pieces:
        opening, closing, other, atom, quantifier = piece.groups()
        if closing:
            return text + "\0" + (quantifier or "")
        if other:
            is_first = False
        if opening:
            inside, _, quantifier = _write_alternative(pieces, 0).partition("\0")
            one = "" if opening.startswith(("(?=", "(?!", "(?<=", "(?<!")) else inside
        elif atom:
            one = _PROBES[[re.fullmatch(atom, probe) is not None for probe in _PROBES].index(True)]
        else:
            continue
        if is_first:
            text += one * _count_repeats(quantifier or "", least - len(text), one)
    return text


def _count_repeats(quantifier: str, lacking: int, one: str) -> int:
    if counted := re.match(r"\{(\d+)(?:,(\d*))?", quantifier):
        fewest, most = int(counted[1]), int(counted[2] or counted[1]) if counted[2] != "" else _MAX_TEXT
    else:
        fewest, most = {"": (1, 1), "+": (1, _MAX_TEXT), "*": (0, _MAX_TEXT), "?": (0, 1)}[quantifier[:1]]
    if fewest * len(one) > _MAX_TEXT:
        raise TooMuchWorkError
    return max(fewest, min(most, lacking if one else 0))


_LONGEST_PATTERN_READ = 1_000
_PROBES = "aA1b0B2 _-./:@#,;+*%&=?!~|()[]{}<>'\"\\^$`\n\t\u00e9\u4e00"
_PIECE_OF_PATTERN = re.compile(
    r"(?:(\((?:\?(?:<?[=!]|:|P?<\w+>))?)|(\))|(\|)|\\[bBAzZ]|[\^$]|(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^*+?{(\[|)]))"
    r"([*+?]\??|\{\d+(?:,\d*)?\}\??)?",
    re.DOTALL,
)
