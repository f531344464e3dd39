"""Numbers as people write them: with separators between thousands, or with the unit that the schema itself names."""

from __future__ import annotations

import re
from typing import Any

from toolkit.schema.nodes import JsonPath, Node, Nodes

__all__ = ["read_amount"]

_LONGEST_AMOUNT = 60
_WRITTEN_AMOUNT = re.compile(
    r"(?P<sign>[-+\u2212]?)(?P<before>[$\u20ac\u00a3\u00a5]?)\s?"
    r"(?P<number>[0-9]+(?:\.[0-9]+)?|[0-9]{1,3}(?:(?P<mark>[,_'\u2019\u00a0\u202f ])[0-9]{3})(?:(?P=mark)[0-9]{3})*"
    r"(?:\.[0-9]+)?)"
    r"\s?(?P<unit>[^\W\d_]+|[%$\u20ac\u00a3\u00a5\u00b0]|\u00b0[CF])?"
)
# Ways to write one unit. A unit of one of these groups is never taken where the schema names another of the same kind.
_UNITS: dict[str, tuple[tuple[str, ...], ...]] = {
    "time": (
        ("ms", "millisecond", "milliseconds", "millis"),
        ("s", "sec", "secs", "second", "seconds"),
        ("min", "mins", "minute", "minutes"),
        ("h", "hr", "hrs", "hour", "hours"),
        ("d", "day", "days"),
        ("week", "weeks"),
        ("month", "months"),
        ("year", "years"),
    ),
    "length": (
        ("mm", "millimeter", "millimeters", "millimetre", "millimetres"),
        ("cm", "centimeter", "centimeters", "centimetre", "centimetres"),
        ("m", "meter", "meters", "metre", "metres"),
        ("km", "kilometer", "kilometers", "kilometre", "kilometres"),
        ("mile", "miles", "mi"),
        ("ft", "foot", "feet"),
        ("inch", "inches"),
    ),
    "weight": (
        ("g", "gram", "grams"),
        ("kg", "kilo", "kilos", "kilogram", "kilograms"),
        ("lb", "lbs", "pound", "pounds"),
        ("oz", "ounce", "ounces"),
        ("t", "ton", "tons", "tonne", "tonnes"),
    ),
    "size": (
        ("b", "byte", "bytes"),
        ("kb", "kilobyte", "kilobytes"),
        ("mb", "megabyte", "megabytes"),
        ("gb", "gigabyte", "gigabytes"),
    ),
    "money": (
        ("$", "usd", "dollar", "dollars"),
        ("\u20ac", "eur", "euro", "euros"),
        ("\u00a3", "gbp"),
        ("\u00a5", "jpy", "yen"),
        ("cent", "cents"),
    ),
    "share": (("%", "percent", "percentage"),),
    "temperature": (
        ("\u00b0c", "celsius", "c"),
        ("\u00b0f", "fahrenheit", "f"),
        ("k", "kelvin"),
    ),
    "pixels": (("px", "pixel", "pixels"),),
}
_UNIT_WORD = re.compile(r"[^\W\d_]+|[%$\u20ac\u00a3\u00a5]|\u00b0[CF]")


def read_amount(text: str, node: Node, nodes: Nodes, path: JsonPath) -> int | float | None:
    """Return the number that a text must mean where a number is wanted; None where it may mean another, or none.

    Separators between thousands are taken: ``1_000``, ``1 000``, ``1,000,000``. One comma alone, as in ``1,000``, is a
    decimal comma in half of the world: it is taken where an integer is wanted only. A unit is left out where the name
    or the description of the parameter names that very unit and no other of its kind: ``"30 s"`` for `timeout_seconds`.
    """
    types = nodes.types(node)
    wants = types & {"integer", "number"}
    match = _WRITTEN_AMOUNT.fullmatch(text.strip()) if wants and len(text) <= _LONGEST_AMOUNT else None
    if match is None:
        return None
    units = [unit for unit in (match["before"], match["unit"]) if unit]
    if any(not _is_unit_named(unit, node, path) for unit in units):
        return None
    written, mark = match["number"], match["mark"]
    if mark == "," and "number" in wants and written.count(",") == 1 and "." not in written:
        return None
    digits = written.replace(mark, "") if mark else written
    if len(digits) > 1 and digits[0] == "0" and digits[1] != ".":
        return None
    digits = ("" if match["sign"] in {"", "+"} else "-") + digits
    return float(digits) if "." in digits else int(digits)


def _is_unit_named(unit: str, node: Node, path: JsonPath) -> bool:
    said = _list_words(node, path)
    unit = unit.casefold()
    for kind in _UNITS.values():
        own = next((group for group in kind if unit in group), None)
        if own is not None:
            others = {word for group in kind if group is not own for word in group if len(word) > 1}
            return not said.isdisjoint(own) and said.isdisjoint(others)
    return unit in said


def _list_words(node: Node, path: JsonPath) -> set[str]:
    name = next((str(key) for key in reversed(path) if isinstance(key, str)), "")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    description: Any = node.get("description", "")
    return {word.casefold() for word in _UNIT_WORD.findall(f"{name} {description}")}
