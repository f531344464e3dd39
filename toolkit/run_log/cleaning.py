"""Entries without secrets, media and endless texts, and without contents where those are not logged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from toolkit.chat import ToolDefinition
from toolkit.redaction import MASK, Scrubber
from toolkit.schema.nodes import Nodes, is_array, is_object
from toolkit.schema.raw import digest_secrets

ContentPolicy: TypeAlias = Literal["all", "none"]
"""``all`` logs the texts of people, models and tools; ``none`` logs that there were some."""

_LONGEST_TEXT = 100_000
_SHORTEST_SECRET = 4
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
    "unsaid": lambda _: [],
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
        self._secrets = set(filter(None, secrets))
        self._scrubber = Scrubber(self._secrets)
        self._secret_tools: dict[str, Nodes] = {}
        self._memo: dict[str, str] = {}
        self._short_texts: list[str] = []

    def learn_tools(self, definitions: Iterable[ToolDefinition]) -> None:
        """Remember the tools that have secrets among their parameters."""
        for definition in definitions:
            nodes = Nodes(dict(definition.parameters))
            if nodes.is_secret(nodes.root):
                self._secret_tools[definition.name] = nodes

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
        if known is None:
            if len(self._memo) >= _MEMO_SIZE:
                self._memo.clear()
            known = self._memo[text] = self._scrubber.clean_text(text)
        return known

    @property
    def longest_secret(self) -> int:
        """The length of the longest known secret."""
        return max(map(len, self._secrets), default=0)

    def _shorten_value(self, value: Any) -> Any:
        """Return JSON values without media, seals and secret fields, and without contents if those are not logged.

        Long texts are cleaned here, since they repeat; short ones are collected and searched together.
        """
        if type(value) is str:
            if len(value) >= _MEMO_FROM:
                return self.clean_text(value)
            self._short_texts.append(value)
            return value
        if is_object(value):
            fields = self._scrubber.mask_names(value)
            if "type" in fields:
                if fields["type"] in _MEDIA and "media_type" in fields:
                    return {"text": _describe_media(fields), "type": "text"}
                if fields["type"] == "call" and fields.get("name") in self._secret_tools:
                    fields = {**fields, "arguments": self._mask_arguments(str(fields["name"]), fields["arguments"])}
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

    def _mask_arguments(self, tool: str, text: str) -> str:
        """Return the arguments of a call, with digests in place of the values that the tool's schema calls secret."""
        nodes = self._secret_tools[tool]
        try:
            arguments: Any = json.loads(text or "{}")
            masked = digest_secrets(arguments, nodes.root, nodes)
        except (ValueError, TypeError, RecursionError):
            return MASK
        found = set(_find_replaced(arguments, masked))
        if not found <= self._secrets:
            self._secrets |= found
            self._scrubber = Scrubber(self._secrets)
            self._memo.clear()
        return json.dumps(masked)


def _list_field_names(value: Any) -> list[str]:
    """Return the names of all fields in JSON values, which may be texts like any other."""
    if is_object(value):
        return [*value, *(name for each in value.values() for name in _list_field_names(each))]
    return [name for each in value for name in _list_field_names(each)] if is_array(value) else []


def _find_replaced(value: Any, masked: Any) -> list[str]:
    """Return the texts of a value that are masked in its other form."""
    if is_object(value) and is_object(masked):
        pairs = [(value[name], each) for name, each in masked.items()]
    elif is_array(value) and is_array(masked):
        pairs = list(zip(value, masked, strict=True))
    else:
        # A short one would be found in everything.
        return [str(value)] if value != masked and len(str(value)) >= _SHORTEST_SECRET else []
    return [text for one, other in pairs for text in _find_replaced(one, other)]


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
