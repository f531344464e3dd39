"""The tags and tokens between which a model writes down its thoughts: what stands there is no reply."""

from __future__ import annotations

import re

from toolkit.parsing.source import Source, Waiting

__all__ = ["THINKING_OPENING", "find_thinking_end"]

_THINKS = re.compile(
    r"think|thought|reason|reflect|scratch_?pad|monolog|deliberat|rumina|\bcot\b|chain_of", re.IGNORECASE
)
# Any tag whose name may speak of thinking; most others are told by their first letters.
THINKING_OPENING = r"[<\[\u25c1][/|]?+(?:\Z|[A-Za-z](?:\Z|[\w:.-]))|\u25c1"
_IN_THINKING_TAG = re.compile(r"[\w:.|/-]")
_HARMONY_THOUGHTS = tuple(
    f"{start}<|channel|>{channel}<|message|>"
    for start in ("", "<|start|>assistant")
    for channel in ("analysis", "commentary")
)
_IN_ATTRIBUTES = re.compile(r"[^<>\n]")
_TAG_ENDS = {"<": ">", "[": "]", "\u25c1": "\u25b7"}
_LONGEST_THINKING_TAG = 60


def find_thinking_end(source: Source) -> Waiting[str]:
    """Go past a tag that begins thoughts, and return what ends them; past one that ends them, and return ``/``.

    It stays where it is, and returns nothing, where there is another tag or none.
    """
    there = source.length
    for opening in _HARMONY_THOUGHTS:
        if (yield from source.accepts(opening)):
            return "<|end|>"
    bracket = yield from source.peek(1)
    closing = _TAG_ENDS.get(bracket, "")
    if closing:
        source.skip(1)
        name = yield from source.word(_IN_THINKING_TAG, _LONGEST_THINKING_TAG)
        is_begun = closing == ">" and not name.endswith("|") and (yield from source.peek(1)) in {" ", "\t"}
        if is_begun and _THINKS.search(name):
            yield from source.word(_IN_ATTRIBUTES, 200)
        if _THINKS.search(name) and (yield from source.accepts(closing)):
            if name.strip("|").startswith(("/", "end_")):
                return "/"
            if "begin_" in name:
                return bracket + name.replace("begin_", "end_") + closing
            return f"{bracket}|/{name[1:]}{closing}" if name.startswith("|") else f"{bracket}/{name}{closing}"
    source.back(there)
    return ""
