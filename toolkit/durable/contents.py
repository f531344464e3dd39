"""The values that a durable run stores: JSON, checked for the limits of databases.

A large content is a row of its own, stored once beside the values that have it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from toolkit.errors import JournalError, UnstorableValueError
from toolkit.foreign_text import replace_surrogates
from toolkit.json_text import write_json
from toolkit.stored_text import StoredText

MOST_CHARACTERS = 16_000
"""A longer text inside of a value is a content of its own."""

BESIDE = "$beside"
"""The only key of an object that replaces a value with contents beside it."""

_CONTENT = "$content"
"""The only key of an object that replaces a text, with its digest; or the user's object with that key."""
_MOST_CHARACTERS = 500
_MOST_NUMBER = 2**31 - 1
_PLAIN_TYPES = (str, int, float, bool, type(None))
ContentRow: TypeAlias = Mapping[str, str]
"""The columns of a content."""


def set_aside(value: Any, text: str, run_id: str) -> tuple[Any, dict[str, str]]:
    """Return a value without its large texts, and these by their digests; a small value unchanged.

    `text` is the value as JSON. The digests of two runs differ.
    """
    is_escaped = has_contents(value)
    if len(text) <= MOST_CHARACTERS and not is_escaped:
        return value, {}
    contents: dict[str, str] = {}
    try:
        small = _replace_texts(value, run_id, contents)
    except RecursionError:  # too deep to be walked: stored whole
        return value, {}
    return ({BESIDE: small}, contents) if contents or is_escaped else (value, {})


def _replace_texts(value: Any, run_id: str, contents: dict[str, str]) -> Any:
    match value:
        case str() if len(value) > MOST_CHARACTERS:
            content = replace_surrogates(value)
            digest = _digest_content(run_id, content)
            contents[digest] = content
            return {_CONTENT: digest}
        case dict():
            members = cast("Mapping[Any, Any]", value)
            replaced = {key: _replace_texts(member, run_id, contents) for key, member in members.items()}
            return {_CONTENT: replaced} if _CONTENT in replaced else replaced
        case list() | tuple():
            return [_replace_texts(item, run_id, contents) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def has_contents(value: Any) -> bool:
    """Return whether a stored value has contents beside it."""
    return isinstance(value, dict) and BESIDE in value


def find_digests(value: Any) -> list[str]:
    """Return the digests of the contents of a stored value."""
    found: list[str] = []

    def note(digest: str) -> str:
        found.append(digest)
        return digest

    put_back(value, note)
    return found


def put_back(value: Any, find: Callable[[str], str]) -> Any:
    """Return the value that was passed to `set_aside`; `find` returns the content of a digest."""
    return _restore_texts(value[BESIDE], find) if has_contents(value) else value


def _restore_texts(value: Any, find: Callable[[str], str]) -> Any:
    match value:
        case {"$content": str(digest)}:
            return find(digest)
        case dict():
            stored = cast("Mapping[str, Any]", value)
            members: Mapping[str, Any] = stored.get(_CONTENT, stored)  # of the user's object that has our key
            return {key: _restore_texts(member, find) for key, member in members.items()}
        case list():
            return [_restore_texts(item, find) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def check_content(digest: str, content: object, run_id: str, run: str) -> str:
    """Return a content that was found, None if there is none; `run` is the run as the application names it."""
    if content is None:
        raise JournalError(f"the log of the run '{run}' was cut: the content {digest[:16]} that it has is missing")
    if not isinstance(content, str) or _digest_content(run_id, content) != digest:
        raise JournalError(f"the log of the run '{run}' can't be read: the content {digest[:16]} of it was changed")
    return content


def _digest_content(run_id: str, content: str) -> str:
    return hashlib.sha256(f"{run_id}\n{content}".encode()).hexdigest()


def check_storable_text(place: str, text: str) -> None:
    """Check that a text can stand in a column that rows are looked up by."""
    if "\x00" in text:
        raise UnstorableValueError(place, "it has a NUL character, which no database takes: leave that out")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UnstorableValueError(place, "it has half a surrogate pair, which is no Unicode: leave that out")
    if len(text) > _MOST_CHARACTERS:
        raise UnstorableValueError(
            place, f"it has {len(text):,} characters: give {_MOST_CHARACTERS} at most, such as a digest of it"
        )


def check_number(place: str, number: int) -> None:
    """Check that a number can stand in a column."""
    if not -_MOST_NUMBER <= number <= _MOST_NUMBER:
        raise UnstorableValueError(place, f"it is {number}: give one of at most {_MOST_NUMBER:,}")


def check_json(place: str, value: object) -> None:
    """Check that a value is JSON, part for part."""
    try:
        found = _find_no_json(value, place)
    except RecursionError:
        raise UnstorableValueError(place, "it contains itself, or is nested too deep: it is no JSON") from None
    if found is not None:
        where, part = found
        if isinstance(part, float):
            raise UnstorableValueError(where, f"it is {part}, which is no number of JSON: leave it out, or give None")
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
        case float():
            return None if math.isfinite(value) else (place, value)
        case _:
            return None if isinstance(value, _PLAIN_TYPES) else (place, value)
    return next((each for each in found if each is not None), None)


def split_value(
    stored: StoredText, run_id: str, value: Any, text: str | None = None
) -> tuple[Any, Sequence[ContentRow]]:
    """Return a value without its large contents, and their rows; `text` is the value as JSON, if it was written."""
    small, beside = set_aside(value, write_json(value) if text is None else text, run_id)
    return small, [{"run_id": run_id, "digest": key, "value": stored.write(beside[key])} for key in beside]


def write_value(stored: StoredText, run_id: str, value: Any) -> tuple[str, Sequence[ContentRow]]:
    """Return a value as it is stored, and the rows of its large contents."""
    text = write_json(value)
    small, rows = split_value(stored, run_id, value, text)
    return stored.write_text(text if small is value else write_json(small)), rows
