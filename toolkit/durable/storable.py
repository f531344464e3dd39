"""Checks what a database can keep, and tells one that is away from one that refuses a value."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError, TimeoutError as PoolTimeoutError

from toolkit.durable.errors import UnstorableValueError

__all__ = ["check_json", "check_number", "check_storable_text", "is_away", "is_refusal"]

_MOST_CHARACTERS = 500
_MOST_NUMBER = 2**31 - 1
_REFUSALS = ("22", "54")
"""The classes of Postgres's codes that are about a value: data exceptions, and limits of the program."""

_PLAIN_TYPES = (str, int, float, bool, type(None))


def check_storable_text(place: str, text: str) -> None:
    """Check that a text can stand in a column that rows are looked up by.

    Raises:
        UnstorableValueError: It can't.
    """
    if "\x00" in text:
        raise UnstorableValueError(place, "it has a NUL character, which no database takes: leave that out")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UnstorableValueError(place, "it has half a surrogate pair, which is no Unicode: leave that out")
    if len(text) > _MOST_CHARACTERS:
        raise UnstorableValueError(
            place, f"it has {len(text):,} characters: give {_MOST_CHARACTERS} at most, such as a digest of it"
        )


def check_number(place: str, number: int) -> None:
    """Check that a number can stand in a column.

    Raises:
        UnstorableValueError: It can't.
    """
    if not -_MOST_NUMBER <= number <= _MOST_NUMBER:
        raise UnstorableValueError(place, f"it is {number}: give one of at most {_MOST_NUMBER:,}")


def check_json(place: str, value: object) -> None:
    """Check that a value is JSON, part for part.

    Raises:
        UnstorableValueError: A part is not; the place says which.
    """
    try:
        found = _find_no_json(value, place)
    except RecursionError:
        raise UnstorableValueError(place, "it contains itself, or is nested too deep: it is no JSON") from None
    if found is not None:
        where, part = found
        kind = type(part).__name__
        raise UnstorableValueError(where, f"it is no JSON, but of type {kind}: give its text, or its parts")


def _find_no_json(value: object, place: str) -> tuple[str, object] | None:
    """Return where a value has a part that is no JSON, and that part; None where it has none."""
    match value:
        case Mapping():
            parts = cast("Mapping[Any, Any]", cast("object", value))
            keys = [key for key in parts if not isinstance(key, _PLAIN_TYPES)]
            if keys:
                return f"the key {keys[0]!r} of {place}", keys[0]
            found = (_find_no_json(part, f"{place}[{key!r}]") for key, part in parts.items())
        case list() | tuple():
            items = cast("list[Any]", value)
            found = (_find_no_json(part, f"{place}[{index}]") for index, part in enumerate(items))
        case _:
            return None if isinstance(value, _PLAIN_TYPES) else (place, value)
    return next((each for each in found if each is not None), None)


def is_refusal(error: BaseException) -> bool:
    """Return whether a database has refused a value, however often it is asked."""
    if isinstance(error, (DataError, OverflowError, UnicodeEncodeError, sqlite3.DataError)):
        return True
    code: object = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
    return isinstance(code, str) and code.startswith(_REFUSALS)


def is_away(error: BaseException) -> bool:
    """Return whether a database is away, full or busy, so that it may take later what it does not take now."""
    return isinstance(error, (OperationalError, InterfaceError, PoolTimeoutError)) and not is_refusal(error)
