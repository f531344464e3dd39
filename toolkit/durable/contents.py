"""Large contents of what a durable run keeps: each is kept once, beside the values that have it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from toolkit.errors import JournalError
from toolkit.text_encodings import replace_surrogates

__all__ = ["BESIDE", "MOST_CHARACTERS", "check_content", "find_digests", "has_contents", "put_back", "set_aside"]

MOST_CHARACTERS = 16_000
"""A longer text inside of a value is kept beside it."""

BESIDE = "$beside"
"""The one member of an object that stands for a value with contents beside it."""

_CONTENT = "$content"
"""The one member of an object that stands for a text, whose digest it has; or for the user's object with that key."""


def set_aside(value: Any, text: str, run_id: str) -> tuple[Any, dict[str, str]]:
    """Return a value without its large texts, and these by their digests; a small value as it is.

    Args:
        value: JSON.
        text: The same, written.
        run_id: The run, of which the digests are: those of two runs are not the same.
    """
    is_escaped = has_contents(value)
    if len(text) <= MOST_CHARACTERS and not is_escaped:
        return value, {}
    contents: dict[str, str] = {}
    try:
        small = _replace_texts(value, run_id, contents)
    except RecursionError:  # deeper than can be walked: kept whole
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
    """Return whether a value that is kept stands for another one: has contents beside it."""
    return isinstance(value, dict) and BESIDE in value


def find_digests(value: Any) -> Iterator[str]:
    """Yield the digests of the contents that a kept value has."""
    if has_contents(value):
        yield from _walk_digests(value[BESIDE])


def _walk_digests(value: Any) -> Iterator[str]:
    match value:
        case {"$content": str(digest)}:
            yield digest
        case dict():
            for member in _unescape_members(cast("Mapping[str, Any]", value)).values():
                yield from _walk_digests(member)
        case list():
            for item in cast("Sequence[Any]", value):
                yield from _walk_digests(item)
        case _:
            pass


def _unescape_members(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the members of an object, also of the user's that has our key."""
    members: Mapping[str, Any] = value.get(_CONTENT, value)
    return members


def put_back(value: Any, find: Callable[[str], str]) -> Any:
    """Return the value that `set_aside` was given.

    Args:
        value: A value that is kept.
        find: Returns the content of a digest.
    """
    return _restore_texts(value[BESIDE], find) if has_contents(value) else value


def _restore_texts(value: Any, find: Callable[[str], str]) -> Any:
    match value:
        case {"$content": str(digest)}:
            return find(digest)
        case dict():
            members = _unescape_members(cast("Mapping[str, Any]", value))
            return {key: _restore_texts(member, find) for key, member in members.items()}
        case list():
            return [_restore_texts(item, find) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def check_content(digest: str, content: object, run_id: str, run: str) -> str:
    """Return a content that was found.

    Args:
        digest: Its digest.
        content: The text that stands for it; None where there is none.
        run_id: The run that the digest is of.
        run: The run, as the application names it.

    Raises:
        JournalError: It is missing or was changed.
    """
    if content is None:
        raise JournalError(f"the log of the run '{run}' was cut: the content {digest[:16]} that it has is missing")
    if not isinstance(content, str) or _digest_content(run_id, content) != digest:
        raise JournalError(f"the log of the run '{run}' can't be read: the content {digest[:16]} of it was changed")
    return content


def _digest_content(run_id: str, content: str) -> str:
    return hashlib.sha256(f"{run_id}\n{content}".encode()).hexdigest()
