"""``<invoke name="tool">`` with ``<parameter name="key">`` elements: Anthropic's prompts, MiniMax, DeepSeek's DSML."""

from __future__ import annotations

import json
import re

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count, read_json
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of
from toolkit.parsing.source import Source, Waiting

__all__ = ["InvokeForm"]

_TAG_PREFIXES = ("", "antml:", "\uff5cDSML\uff5c")
_TAG_WRAPPERS = {
    f"<{prefix}{name}>": (f"</{prefix}{name}>", inner)
    for prefix, name, inner in (
        ("", "function_calls", ""),
        ("antml:", "function_calls", "antml:"),
        ("\uff5cDSML\uff5c", "function_calls", "\uff5cDSML\uff5c"),
        ("\uff5cDSML\uff5c", "tool_calls", "\uff5cDSML\uff5c"),
        ("minimax:", "tool_call", ""),
    )
}
_IN_INVOKE_TAG = re.compile(r"[^<>\n]")
_NAME_ATTRIBUTE = re.compile(r"""\bname\s*=\s*(["'])(?P<name>[^"'<>\n]{1,256})\1""")
_IS_STRING = re.compile(r"""\bstring\s*=\s*["'](?P<word>true|false)["']""")
_LONGEST_INVOKE_TAG = 400


class InvokeForm:
    """One element, or several between the tags of a wrapper; every tag must be closed."""

    characters = "<"
    opening: str = "|".join(
        [*map(beginnings_of, _TAG_WRAPPERS), *[beginnings_of(f"<{prefix}invoke ") for prefix in _TAG_PREFIXES]]
    )

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one element, or all that one wrapper holds."""
        closing, prefix = "", ""
        for opening, (end, inner) in _TAG_WRAPPERS.items():
            if (yield from source.accepts(opening)):
                closing, prefix = end, inner
                yield from source.spaces()
                break
        if not closing:
            for prefix in _TAG_PREFIXES:
                if (yield from source.accepts(f"<{prefix}invoke ")):
                    source.back(source.length - len(prefix) - 8)
                    closing = f"</{prefix}invoke>"
                    break
        if not closing:
            return None
        if before.is_spoken_of:
            return source.past(closing)
        try:
            return (yield from _read_elements(source, tools, prefix, closing))
        except UnclearCallError:
            yield from source.past(closing)
            raise


def _read_elements(source: Source, tools: KnownTools, prefix: str, closing: str) -> Waiting[list[ToolCall]]:
    calls: list[ToolCall] = []
    is_wrapped = closing != f"</{prefix}invoke>"
    while (yield from source.accepts(f"<{prefix}invoke ")):
        calls.append((yield from _read_element(source, tools, prefix)))
        check_count(calls)
        if not is_wrapped:
            return calls
        yield from source.spaces()
    if not calls or not (yield from source.accepts(closing)):
        raise UnclearCallError(f'Between the tags there must be <{prefix}invoke name="..."> elements, then {closing}.')
    return calls


def _read_element(source: Source, tools: KnownTools, prefix: str) -> Waiting[ToolCall]:
    name, _ = yield from _read_attributes(source)
    members: dict[str, str] = {}
    end = f"</{prefix}parameter>"
    yield from source.spaces()
    while (yield from source.accepts(f"<{prefix}parameter ")):
        key, is_string = yield from _read_attributes(source)
        start = source.length
        if not (yield from source.past(end)):
            raise UnclearCallError(f"The call is cut off: {end} is missing.")
        text = source.piece(start)[: -len(end)]
        if f"<{prefix}parameter " in text or f"</{prefix}invoke>" in text:
            raise UnclearCallError(f"A parameter has no end: {end} is missing.")
        if key in members:
            raise UnclearCallError(f"The parameter '{key[:64]}' is there twice.")
        members[key] = _read_parameter_value(tools, name, key, text.removeprefix("\n").removesuffix("\n"), is_string)
        yield from source.spaces()
    if not (yield from source.accepts(f"</{prefix}invoke>")):
        raise UnclearCallError(f"A call has only <{prefix}parameter> elements, and ends with </{prefix}invoke>.")
    return ToolCall("", name, "{" + ", ".join([f"{json.dumps(key)}: {value}" for key, value in members.items()]) + "}")


def _read_attributes(source: Source) -> Waiting[tuple[str, bool | None]]:
    """Read the rest of a tag: its name, and whether its value is said to be a string."""
    written = yield from source.word(_IN_INVOKE_TAG, _LONGEST_INVOKE_TAG)
    name = _NAME_ATTRIBUTE.search(f" {written}")
    if name is None or not (yield from source.accepts(">")):
        raise UnclearCallError('A tag is not complete: write name="..." in it, and close it with >.')
    is_string = _IS_STRING.search(written)
    return name["name"].strip(), None if is_string is None else is_string["word"] == "true"


def _read_parameter_value(tools: KnownTools, name: str, key: str, text: str, is_string: bool | None) -> str:
    if is_string is None:
        return tools.value(name, key, text)
    read = json.dumps(text) if is_string else read_json(text)
    if read is None:
        raise UnclearCallError(f"The value of '{key[:64]}' is not valid JSON.")
    return read
