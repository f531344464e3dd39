"""Arguments made from a schema by a seeded generator: the fewest, or with some of what may be left out."""

import base64
import re
import uuid
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

from hypothesis import find, settings, strategies

from toolkit.schema.nodes import is_array, is_object

__all__ = ["Generator"]

_DEPTH = 6
_TEXT = "abcdefghijklmnopqrstuvwxyz"


class Generator:
    """Makes values of a schema that stands alone.

    Args:
        schema: Its definitions under ``$defs``.
        seed: The same seed, the same values.
        optional: How likely a property is there that may be left out.
    """

    def __init__(self, schema: Mapping[str, Any], *, seed: str, optional: float) -> None:
        self._root = schema
        self._random = Random(seed)
        self._optional = optional

    def value(self) -> Any:
        """One value."""
        return self._value(self._root, 0)

    def _value(self, schema: Any, depth: int) -> Any:
        schema = self._flat(schema, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            fitting = [value for value in schema["enum"] if value is not None] or schema["enum"]
            return self._random.choice(fitting)
        said: Any = schema.get("type", "object" if "properties" in schema else "string")
        kinds: list[str] = said if is_array(said) else [said]
        match next((kind for kind in kinds if kind != "null"), "null"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._text(schema)
            case "integer" | "number":
                return self._number(schema, is_float="integer" not in kinds)
            case "boolean":
                return self._random.random() < 0.5
            case _:
                return None

    def _flat(self, schema: Any, depth: int) -> dict[str, Any]:
        """Follow references and choose among alternatives, until there is one plain schema."""
        flat: dict[str, Any] = dict(schema) if is_object(schema) else {}
        for _ in range(50):
            if "$ref" in flat:
                target = self._root["$defs"][flat.pop("$ref").removeprefix("#/$defs/")]
                flat = merged(target, flat)
            elif "allOf" in flat:
                for member in flat.pop("allOf"):
                    flat = merged(flat, self._flat(member, depth + 1))
            elif "oneOf" in flat or "anyOf" in flat:
                members = flat.pop("oneOf", None) or flat.pop("anyOf")
                kinds = [self._flat(member, depth + 1) for member in members] if depth < _DEPTH else members[:1]
                fitting = [kind for kind in kinds if kind.get("type") != "null" and kind.get("enum") != [None]]
                if any(kind.get("type") == "string" for kind in fitting):
                    # A number in a URL is text too, so that it meets two of one of several, says prism.
                    fitting = [kind for kind in fitting if kind.get("type") not in ("integer", "number")]
                flat = merged(flat, self._random.choice(fitting or kinds))
            else:
                break
        return flat

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties: dict[str, Any] = schema.get("properties", {})
        required: list[str] = schema.get("required", [])
        made = {name: self._value(properties.get(name, {}), depth + 1) for name in required}
        for name, member in properties.items():
            wanted = len(made) < schema.get("minProperties", 0)
            if name not in made and depth < _DEPTH and (wanted or self._random.random() < self._optional):
                made[name] = self._value(member, depth + 1)
        more = schema.get("additionalProperties")
        while len(made) < schema.get("minProperties", 0) and more is not False:
            made[f"key{len(made)}"] = self._value(more, depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        wanted = self._random.randint(0, 2) if depth <= _DEPTH else 0
        length = max(schema.get("minItems", 0), min(schema.get("maxItems", 2), wanted))
        items = [self._value(schema.get("items", {}), depth + 1) for _ in range(length)]
        if schema.get("uniqueItems"):
            items = [item for index, item in enumerate(items) if item not in items[:index]]
        return items

    def _text(self, schema: Mapping[str, Any]) -> str:
        if "pattern" in schema:
            return matching(schema["pattern"], schema.get("minLength", 0), schema.get("maxLength", 10_000))
        number = self._random.randrange(1_000, 9_000)
        formats = {
            "date-time": f"2026-01-{number % 28 + 1:02}T12:00:00Z",
            "date": f"2026-01-{number % 28 + 1:02}",
            "time": "12:00:00Z",
            "uuid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "email": f"ada{number}@example.com",
            **dict.fromkeys(("uri", "url", "uri-reference", "iri"), f"https://example.com/{number}"),
            "hostname": f"host{number}.example.com",
            **dict.fromkeys(("ipv4", "ip"), f"192.0.2.{number % 250}"),
            "ipv6": f"2001:db8::{number}",
            **dict.fromkeys(("byte", "base64"), base64.b64encode(str(number).encode()).decode()),
            "regex": "^a+$",
            "duration": "PT1H",
        }
        length = max(schema.get("minLength", 1), min(schema.get("maxLength", 8), 8))
        return formats.get(str(schema.get("format"))) or "".join(self._random.choices(_TEXT, k=length))

    def _number(self, schema: Mapping[str, Any], *, is_float: bool) -> int | float:
        step = schema.get("multipleOf", 1)
        least: float = schema.get("minimum", schema.get("exclusiveMinimum", step * -1) + step)
        most = schema.get("maximum", schema.get("exclusiveMaximum", least + 100 * step + step) - step)
        low, high = -int(-least // 1), int(min(most, least + 100))
        if low > high:
            return least
        chosen = self._random.randint(low, high)
        if step != 1:
            return float(-(-least // step) * step) if is_float else int(-(-least // step) * step)
        return chosen


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both schemas at once, as far as that is simple."""
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        names = one["properties"].keys() | other["properties"].keys()
        both["properties"] = {
            name: {"allOf": [part["properties"][name] for part in (one, other) if name in part["properties"]]}
            for name in sorted(names)
        }
    if "required" in one and "required" in other:
        both["required"] = sorted({*one["required"], *other["required"]})
    if "enum" in one and "enum" in other:
        both["enum"] = [value for value in one["enum"] if value in other["enum"]] or one["enum"]
    return both


@cache
def matching(pattern: str, least: int, most: int) -> str:
    """The simplest text that matches a pattern."""
    quick = settings(max_examples=200, database=None, derandomize=True, deadline=None)
    text: str = find(
        strategies.from_regex(re.compile(pattern, re.ASCII), fullmatch=not pattern.startswith("^")),
        lambda text: least <= len(text) <= most and bool(text.strip()) and "\n" not in text,
        settings=quick,
    )
    return text
