"""Defaults of parameters, as far as they stand in a schema or are checked against a hint."""

from __future__ import annotations

import math
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from toolkit.schema.signature import NOTHING

__all__ = ["is_harmless", "is_plain_default", "is_type_of"]


def is_harmless(problem: ErrorDetails, default: Any) -> bool:
    """Return whether a default may be what no model may send: infinite, or a number that stands for its text."""
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    return problem["type"] in ("missing", "finite_number") or (problem["type"] == "string_type" and is_number)


def is_type_of(hint: Any, default: Any) -> bool:
    """Return whether a default can be what a docstring says of its type; words of a docstring promise nothing."""
    if default is NOTHING or default is None or isinstance(default, FieldInfo):
        return True
    try:
        TypeAdapter(hint).validate_python(default)
    except ValidationError:
        return False
    except Exception:  # noqa: BLE001 - what the hint itself does not allow is said where all are compiled
        return True
    return True


def is_plain_default(default: Any) -> bool:
    """Return whether a default stands in the schema as it is, without being encoded."""
    if type(default) in (list, dict):
        return not default
    if type(default) is float:
        return math.isfinite(default)
    return default is NOTHING or default is None or type(default) in (str, int, bool)
