"""The types that docstrings name in words: read, never evaluated."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

__all__ = ["find_unsaid", "read_type"]

_TYPE_QUALIFIERS = re.compile(
    r",?\s*(?:\(optional\)|\boptional\b|\bdefaults?\b.*|\bkeyword[- ]only\b)\s*$", re.IGNORECASE
)

_NODES_OF_HINTS = (
    ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple, ast.List, ast.Load
)  # fmt: skip

_TYPES_BY_NAME: dict[str, Any] = {
    "int": int, "integer": int, "str": str, "string": str, "text": str, "float": float, "number": float,
    "double": float, "bool": bool, "boolean": bool, "bytes": bytes, "list": list, "array": list, "sequence": list,
    "iterable": list, "tuple": tuple, "set": set, "dict": dict, "dictionary": dict, "mapping": dict, "object": object,
    "any": Any, "none": None, "null": None, "optional": typing.Optional, "union": typing.Union,
    "literal": typing.Literal,
}  # fmt: skip


# Python's parser raises a `MemoryError` for what is nested too deeply.
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def read_type(text: str, namespace: Mapping[str, Any]) -> Any:
    """Return the type that a text means; `NotImplemented` where it means none that is known.

    Names, ``list of int``, ``int or None``, ``{'a', 'b'}``, ``int[]`` and the syntax of hints are read.
    """
    try:
        return _read_type_text(_strip_type_qualifiers(text), namespace)
    except (*_UNREADABLE, TypeError, LookupError, AttributeError):
        return NotImplemented


def find_unsaid(text: str, hint: Any, default: Any) -> bool:
    """Return whether a type's text says what neither the hint nor the default does: ``{'m', 'km'}`` beside ``str``."""
    plain = _strip_type_qualifiers(text)
    qualifiers = text.strip().strip("`")[len(plain) :]
    told = re.search(r"\bdefaults?\b\W*(?:to|is|value)?\W*(?P<value>.*)", qualifiers, re.IGNORECASE)
    if told is not None and told["value"].strip("`'\"() .") not in (str(default), "", "optional"):
        return True
    found = read_type(plain, {})
    if found is NotImplemented:
        return not all(_is_hint(part) for part in re.split(r",? or |(?<!,), (?![^\[(]*[\])])", plain))
    return typing.get_origin(found) is typing.Literal and typing.get_origin(hint) is not typing.Literal


def _is_hint(text: str) -> bool:
    """Return whether a text is written as hints are, whatever its names mean."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except _UNREADABLE:
        return False
    return all(isinstance(node, _NODES_OF_HINTS) or _is_literal_part(node) for node in ast.walk(tree))


def _is_literal_part(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or node.value is ...)


def _strip_type_qualifiers(text: str) -> str:
    return _TYPE_QUALIFIERS.sub("", text.strip().strip("`")).strip()


def _read_type_text(text: str, namespace: Mapping[str, Any]) -> Any:
    if (of := re.fullmatch(r"(list|array|sequence|iterable|set|tuple)s?\s+of\s+(.+)", text, re.IGNORECASE)) is not None:
        item = _read_type_text(of[2].removesuffix("s") if of[2].lower() not in _TYPES_BY_NAME else of[2], namespace)
        arguments = (item, ...) if of[1].lower() == "tuple" else (item,)
        return _TYPES_BY_NAME[of[1].lower()][arguments]
    if text.endswith("[]"):
        return list[_read_type_text(text[:-2], namespace)]  # type: ignore[misc]  # a type known at run time only
    if text.startswith("{") and text.endswith("}"):
        return typing.Literal[tuple(ast.literal_eval(f"[{text[1:-1]}]"))]
    if " or " in text:
        hints = [_or_none(_read_type_text(part.strip(), namespace)) for part in text.split(" or ")]
        return reduce(lambda left, right: left | right, hints)
    return _read_type_node(ast.parse(text, mode="eval").body, namespace)


def _or_none(hint: Any) -> Any:
    return type(None) if hint is None else hint


def _read_type_node(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name):
            found = namespace.get(name)
            is_hint = isinstance(found, type) or (name not in _TYPES_BY_NAME and typing.get_origin(found) is not None)
            return found if is_hint else _TYPES_BY_NAME[name.lower()]
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return getattr(namespace[module], name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _or_none(_read_type_node(left, namespace)) | _or_none(_read_type_node(right, namespace))
        case ast.Subscript(value=value, slice=inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return _fill_generic(_read_type_node(value, namespace), parts, namespace)
        case _:
            raise ValueError(f"no type: {ast.dump(node)}")


def _fill_generic(outer: Any, parts: Sequence[ast.expr], namespace: Mapping[str, Any]) -> Any:
    if outer is typing.Literal:
        return typing.Literal[tuple(ast.literal_eval(part) for part in parts)]
    hints = tuple(
        ... if isinstance(part, ast.Constant) and part.value is ... else _read_type_node(part, namespace)
        for part in parts
    )
    return outer[hints] if len(hints) != 1 else outer[next(iter(hints))]
