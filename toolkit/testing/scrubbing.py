"""Strikes secrets out of what is recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from toolkit.secrets import MASK, without_keys

__all__ = ["SECRET_NAMES", "Scrubber"]

SECRET_NAMES = ("key", "apikey", "authorization", "token", "secret", "password", "cookie", "credential", "credentials")
"""The last words of the names of fields that hold secrets: ``x-api-key`` and ``accessToken`` end so."""

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Long random texts, in which anything may turn up, and which must come back as they were.
_SEALED = frozenset({"data", "signature", "encrypted"})


class Scrubber:
    """Strikes out secrets by the names of their fields, by what keys look like, and those that it is told.

    Names count in options and in the metadata of answers; the rest of an exchange is searched for the texts alone.

    Args:
        secrets: Texts to strike out wherever they are; empty ones are passed over.
        names: The last words of the names of fields that hold secrets.
    """

    def __init__(self, secrets: Iterable[str] = (), names: Iterable[str] = SECRET_NAMES) -> None:
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._names = frozenset(name.lower() for name in names)

    def __call__(self, plain: object, *, by_name: bool = False) -> Any:
        """Return JSON values without the secrets; what is given stays as it is.

        Args:
            plain: Texts, numbers, lists and mappings.
            by_name: Whether the fields of `plain` are searched by name, too.
        """
        match plain:
            case str():
                return self._text(plain)
            case dict():
                fields = cast("Mapping[str, object]", plain)
                return {name: self._field(name, value, by_name=by_name) for name, value in fields.items()}
            case list():
                return [self(item, by_name=by_name) for item in cast("list[object]", plain)]
            case _:
                return plain

    def events(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the events of a stream without the secrets, those that are spread over several deltas too.

        Where there is one, the deltas of that text become one, at the place of the first.
        """
        texts: dict[object, list[str]] = {}
        for event in events:
            key, text = _delta(event)
            texts.setdefault(key, []).append(text)
        joined = {key: "".join(pieces) for key, pieces in texts.items()}
        clean = {key: self._text(text) for key, text in joined.items() if self._text(text) != text}
        kept: list[dict[str, Any]] = []
        told: set[object] = set()
        for event in events:
            key, _ = _delta(event)
            if key is None:
                kept.append(self(event))
            elif key not in clean:
                kept.append(event)
            elif key not in told:
                told.add(key)
                kept.append(_with_text(event, clean[key]))
        return kept

    def _field(self, name: str, value: object, *, by_name: bool) -> Any:
        if by_name and isinstance(value, str) and self._is_secret(name):
            return MASK
        if name in _SEALED and isinstance(value, str):
            return value
        return self(value, by_name=by_name or name in ("options", "metadata"))

    def _is_secret(self, name: str) -> bool:
        words = _WORDS.findall(name)
        return bool(words) and words[-1].lower() in self._names

    def _text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return without_keys(text)


def _delta(event: Mapping[str, Any]) -> tuple[object, str]:
    """Return what the delta is a part of, and its text; the end of a stream has none."""
    match event:
        case {"text": str(text)}:
            return "text", text
        case {"reasoning": str(text)}:
            return "reasoning", text
        case {"arguments": [int(index), _, _, str(text)]}:
            return index, text
        case _:
            return None, ""


def _with_text(event: Mapping[str, Any], text: str) -> dict[str, Any]:
    if "arguments" in event:
        index, call_id, tool_name, _ = event["arguments"]
        return {"arguments": [index, call_id, tool_name, text]}
    return dict.fromkeys(event, text)
