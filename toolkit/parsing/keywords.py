"""``name(key=value, ...)`` as Python writes it: values are literals, read as JSON is."""

from __future__ import annotations

import json
import re

from toolkit.chat import ToolCall
from toolkit.parsing.calls import UnclearCallError, read_json
from toolkit.parsing.source import Source, Waiting

__all__ = ["NAME", "read_call"]

NAME = re.compile(r"[\w.-]")
_KEYWORD = re.compile(r"(?:\s|\#[^\n]*\n)*+(\w+)\s*=(?!=)")
_LITERAL_TOKEN = re.compile(
    r""""[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+' | \#[^\n]*+ | [\[\]{}()"'/,]""",
    re.VERBOSE | re.DOTALL,
)


def read_call(source: Source, name: str) -> Waiting[ToolCall]:
    """Read the arguments in the parentheses that begin here.

    Raises:
        UnclearCallError: They are no literals with a name each, or they are cut off.
    """
    start = source.length
    if not (yield from source.value()):
        raise UnclearCallError("The call is cut off, or its brackets don't match.")
    arguments = _read_keywords(source.piece(start)[1:-1])
    return ToolCall("", name, arguments)


def _read_keywords(text: str) -> str:
    members: list[str] = []
    for part in _split_keywords(text):
        key = _KEYWORD.match(part)
        if key is None:
            raise UnclearCallError("Each argument needs its name: write name=value.")
        value = part[key.end() :].strip()
        # The line break ends a comment that the value may have behind it.
        members.append(f"{json.dumps(key[1])}: {value}" + ("\n" if "#" in value else ""))
    read = read_json("{" + ", ".join(members) + "}")
    if read is None:
        raise UnclearCallError("Each argument must be a literal value, and come once.")
    return read


def _split_keywords(text: str) -> list[str]:
    """Split at the commas that stand in no brackets."""
    parts: list[str] = []
    depth = start = 0
    for token in _LITERAL_TOKEN.finditer(text):
        character = token[0]
        if character == "/":
            raise UnclearCallError("Arguments can't be computed: write the value.")
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start : token.start()])
            start = token.end()
    if text[start:].strip():
        parts.append(text[start:])
    return parts
