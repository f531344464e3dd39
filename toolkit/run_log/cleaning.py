"""Entries without secrets, media and endless texts, and without contents where those are not logged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, cast

from toolkit.chat import ToolDefinition
from toolkit.json_text import canonical_json
from toolkit.redaction import Scrubber, digest_of
from toolkit.schema.nodes import Nodes, is_array, is_object

ContentPolicy: TypeAlias = Literal["all", "none"]
"""``all`` logs the texts of people, models and tools; ``none`` logs that there were some."""

_LONGEST_TEXT = 100_000
_OPENS_JSON = ("{", "[")
_MEMO_FROM = 200  # shorter texts are cleaned sooner than found
_MEMO_SIZE = 64
_MEDIA = frozenset({"image", "audio", "file"})
_SEALS = frozenset({"signature", "encrypted"})
_FREE_FIELDS = frozenset({"arguments", "metadata", "extra", "output", "parameters"})
_OWN_FIELDS = frozenset({"v", "event", "run_id", "loop_id", "time", "parent_loop_id", "question"})

# Texts of a person, a model or a tool, by the names of their fields; emptied if contents are not logged.
_EMPTY: dict[str, Callable[[Any], Any]] = {
    "text": lambda _: "",
    "content": lambda value: "" if isinstance(value, str) else value,
    "arguments": lambda value: "" if isinstance(value, str) else {},
    "before": lambda value: "" if isinstance(value, str) else value,
    "after": lambda value: "" if isinstance(value, str) else value,
    "assumed": lambda _: [],
    "metadata": lambda _: {},
    "problem": lambda _: "",
    "extra": lambda _: None,
    "prompt": lambda _: "",
    "unserializable": lambda _: [],
}
_LAST_WORDS = re.compile(r"\S{0,400}[ \t]?\S{0,100}$")  # a name such as "password:" and what follows it
_OPEN_KEY = re.compile(r"PRIVATE KEY-----(?!.*-----END)", re.DOTALL)


class EntryCleaner:
    """Cleans the entries of one run.

    Args:
        content: The content that is logged.
        secrets: Texts to strike out wherever they are.
    """

    def __init__(self, content: ContentPolicy, secrets: Iterable[str] = ()) -> None:
        self._content = content
        self._scrubber = Scrubber(secrets, replace=_digest_value, is_learning=True)
        self._memo: dict[str, str] = {}
        self._memo_secrets = self._scrubber.secrets
        self._short_texts: list[str] = []

    def learn_tools(self, definitions: Iterable[ToolDefinition]) -> None:
        """Remember which arguments of tools are secret."""
        for definition in definitions:
            self._scrubber.learn_tool(definition.name, partial(Nodes, definition.parameters))

    def clean(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry as it may be stored; the original is not changed."""
        self._short_texts.clear()
        shortened: dict[str, Any] = self._shorten_value(plain)
        # Searched in one piece, most entries are found to hold no secret in a quarter of the time.
        joined = "\n".join(self._short_texts)
        if self._scrubber.clean_text(joined) == joined:
            return shortened
        return {name: value if name in _OWN_FIELDS else self._scrub_value(value) for name, value in shortened.items()}

    def clean_text(self, text: str) -> str:
        """Return a text without secrets, cut if it is very long."""
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}\n[{len(text) - _LONGEST_TEXT:,} more characters are not in this log]"
        known = self._memo.get(text)
        if known is None or self._memo_secrets is not self._scrubber.secrets:
            if len(self._memo) >= _MEMO_SIZE or self._memo_secrets is not self._scrubber.secrets:
                self._memo.clear()
                self._memo_secrets = self._scrubber.secrets
            known = self._memo[text] = self._scrubber.clean_text(text)
        return known

    @property
    def longest_secret(self) -> int:
        """The length of the longest known secret."""
        return max(map(len, self._scrubber.secrets), default=0)

    def _shorten_value(self, value: Any) -> Any:
        """Return JSON values without media, seals and secret fields, and without contents if those are not logged.

        Long texts are cleaned here, since they repeat; short ones are collected and searched together.
        """
        if type(value) is str:
            if len(value) >= _MEMO_FROM or value.startswith(_OPENS_JSON):
                return self.clean_text(value)
            self._short_texts.append(value)
            return value
        if is_object(value):
            fields = self._scrubber.mask_fields(value)
            if fields.get("type") in _MEDIA and "media_type" in fields:
                return {"text": self.clean_text(_describe_media(fields)), "type": "text"}
            return {name: self._shorten_field(name, each) for name, each in fields.items()}
        if isinstance(value, (list, tuple)):
            return [self._shorten_value(each) for each in cast("Sequence[Any]", value)]
        return value

    def _shorten_field(self, name: str, value: Any) -> Any:
        if name in _OWN_FIELDS:
            return value
        if name in _SEALS:
            return None
        if self._content == "none":
            if name in _EMPTY:
                value = _EMPTY[name](value)
            elif name == "error" and is_object(value) and "provider" not in value:
                value = {**value, "message": ""}
        if name in _FREE_FIELDS and isinstance(value, dict):
            self._short_texts += _list_field_names(value)
        return self._shorten_value(value)

    def _scrub_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._scrubber.clean_text(value)
        if is_object(value):
            return {self._scrubber.clean_text(name): self._scrub_value(each) for name, each in value.items()}
        if is_array(value):
            return [self._scrub_value(each) for each in value]
        return value


def _list_field_names(value: Any) -> list[str]:
    """Return the names of all fields in JSON values, which may be texts like any other."""
    if is_object(value):
        return [*value, *(name for each in value.values() for name in _list_field_names(each))]
    return [name for each in value for name in _list_field_names(each)] if is_array(value) else []


def _digest_value(value: Any) -> str:
    return digest_of(canonical_json(value))


def _describe_media(block: Mapping[str, Any]) -> str:
    data, url = block.get("data"), block.get("url")
    name = f" '{block['name']}'" if block.get("name") else ""
    size = f", {len(data) * 3 // 4:,} bytes" if isinstance(data, str) else ""
    where = f" at {url}" if url else ""
    return f"[{block['type']}{name} of type {block['media_type']}{size}{where}: not in this log]"


class ReplyText:
    """Collects the deltas of one reply and returns the part that can be shown, clean.

    Args:
        clean: Strikes secrets out of a text.
    """

    __slots__ = ("_clean", "_pieces", "_shown", "_text", "since")

    def __init__(self, clean: Callable[[str], str], since: float) -> None:
        self._clean = clean
        self._text = ""
        self._pieces: list[str] = []
        self._shown = ""
        self.since = since

    def add(self, text: str) -> None:
        """Append text."""
        self._pieces.append(text)

    @property
    def has_more(self) -> bool:
        """True if text was added since the last `take`."""
        return bool(self._pieces)

    def take(self, now: float, withheld: int) -> str:
        """Return the text that can be shown and was not returned yet.

        Args:
            now: When.
            withheld: So many characters at the end wait, since a secret may have begun in them.
        """
        self.since = now
        self._text += "".join(self._pieces)
        self._pieces.clear()
        if self._text.lstrip().startswith(_OPENS_JSON):  # what it has below a telling name shows at its end
            return ""
        text = _LAST_WORDS.sub("", self._text[: len(self._text) - withheld])
        open_key = _OPEN_KEY.search(text)
        clean = self._clean(text if open_key is None else text[: open_key.start()])
        return self._take_beyond(clean)

    def take_rest(self) -> str:
        """Return the rest of a whole reply."""
        self._text += "".join(self._pieces)
        self._pieces.clear()
        return self._take_beyond(self._clean(self._text))

    def _take_beyond(self, clean: str) -> str:
        # If more text made a secret of a part that was shown, the rest waits for the whole reply.
        if len(clean) <= len(self._shown) or not clean.startswith(self._shown):
            return ""
        piece, self._shown = clean[len(self._shown) :], clean
        return piece
