"""Strikes secrets out of JSON values that are kept: what is recorded, and what a run log writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from toolkit.secrets import MASK, replace_fields, without_keys, without_secrets

__all__ = ["Scrubber"]

# Long random texts, in which anything may turn up, and which must come back as they were.
_SEALED = frozenset({"data", "signature", "encrypted"})


# Fields whose own fields are named by an application or a vendor, so that the names tell of secrets.
_NAMED_FIELDS = frozenset({"options", "metadata", "arguments"})


class Scrubber:
    """Strikes out secrets by the names of their fields, by what keys look like, and those that it is told.

    Names count in options, in the metadata of answers and in arguments; the rest is searched for the texts alone.

    Args:
        secrets: Texts to strike out wherever they are, however they are written; empty ones are passed over.
        words: More words that tell of a secret in the name of a field.
    """

    def __init__(self, secrets: Iterable[str] = (), words: Iterable[str] = ()) -> None:
        self._secrets = tuple(filter(None, secrets))
        self._words = tuple([word.lower() for word in words])

    def __call__(self, plain: object) -> Any:
        """Return JSON values without the secrets; what is given stays as it is."""
        match plain:
            case str():
                return self.clean_text(plain)
            case dict():
                fields = self.mask_names(cast("Mapping[str, object]", plain))
                return {name: self._clean_field(name, value) for name, value in fields.items()}
            case list():
                return [self(item) for item in cast("list[object]", plain)]
            case _:
                return plain

    def events(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the events of a stream without the secrets, those that are spread over several deltas too.

        Where there is one, the deltas of that text become one, at the place of the first.
        """
        texts: dict[object, list[str]] = {}
        for event in events:
            key, text = _read_delta(event)
            texts.setdefault(key, []).append(text)
        joined = {key: "".join(pieces) for key, pieces in texts.items()}
        clean = {key: cleaned for key, text in joined.items() if (cleaned := self.clean_text(text)) != text}
        kept: list[dict[str, Any]] = []
        told: set[object] = set()
        for event in events:
            key, _ = _read_delta(event)
            if key is None:
                kept.append(self(event))
            elif key not in clean:
                kept.append(event)
            elif key not in told:
                told.add(key)
                kept.append(_replace_text(event, clean[key]))
        return kept

    def mask_names(self, fields: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the fields of an object, with secrets that are known by their names struck out of options and such."""
        if _NAMED_FIELDS.isdisjoint(fields):
            return fields
        return {
            name: replace_fields(value, lambda _: MASK, words=self._words) if name in _NAMED_FIELDS else value
            for name, value in fields.items()
        }

    def _clean_field(self, name: str, value: object) -> Any:
        return value if name in _SEALED and isinstance(value, str) else self(value)

    def clean_text(self, text: str) -> str:
        """Return a text without the secrets."""
        return without_keys(without_secrets(text, self._secrets, shortest=1))


def _read_delta(event: Mapping[str, Any]) -> tuple[object, str]:
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


def _replace_text(event: Mapping[str, Any], text: str) -> dict[str, Any]:
    if "arguments" in event:
        index, call_id, tool_name, _ = event["arguments"]
        return {"arguments": [index, call_id, tool_name, text]}
    return dict.fromkeys(event, text)
