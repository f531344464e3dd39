"""Calls between tokens of their own, such as ``<|tool_call_begin|>``: DeepSeek's, Kimi's and Harmony's."""

from __future__ import annotations

import re

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count, explain_unreadable, read_json
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of, pass_fence, pass_ticks
from toolkit.parsing.source import Source, Waiting

__all__ = ["HarmonyForm", "SectionForm"]

_IN_TOKEN = re.compile(r"[\w\u2581 ]")
_IN_NAME = re.compile(r"[^<>\n{]")
_LONGEST_TOKEN, _LONGEST_NAME = 40, 128
_KIMI_NAME = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::\d+)?")
_SECTIONS = {"tool_calls_begin": "tool_calls_end", "tool_calls_section_begin": "tool_calls_section_end"}
_CUT_OFF_CALL = "The call is cut off, or its brackets don't match."


class SectionForm:
    """DeepSeek's and Kimi's calls: a section of calls, or one call alone; each ends with a token."""

    characters = "<"
    opening: str = "|".join([beginnings_of(f"<{bar}tool{blank}call") for bar in "|\uff5c" for blank in "_\u2581"])

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read the calls of one section."""
        del tools
        mark = yield from _read_token(source)
        if mark not in _SECTIONS and mark != "tool_call_begin":
            return None
        if before.is_spoken_of:
            return _pass_token(source, _SECTIONS.get(mark, "tool_call_end"))
        try:
            return (yield from _read_call_section(source, mark))
        except UnclearCallError:
            yield from _pass_token(source, _SECTIONS.get(mark, "tool_call_end"))
            raise


def _read_call_section(source: Source, opening: str) -> Waiting[list[ToolCall]]:
    if opening == "tool_call_begin":
        return [(yield from _read_section_call(source))]
    calls: list[ToolCall] = []
    while True:
        yield from source.spaces()
        mark = yield from _read_token(source)
        if mark == _SECTIONS[opening] and calls:
            return calls
        if mark != "tool_call_begin":
            raise UnclearCallError("A section of calls holds only calls, and ends with its own token.")
        calls.append((yield from _read_section_call(source)))
        check_count(calls)


def _read_section_call(source: Source) -> Waiting[ToolCall]:
    name = (yield from source.word(_IN_NAME, _LONGEST_NAME)).strip()
    mark = yield from _read_token(source)
    if mark == "tool_sep" and name == "function":
        name = (yield from source.word(_IN_NAME, _LONGEST_NAME)).strip()
        name = name.rstrip("`").removesuffix("json").strip("` ")
    elif mark == "tool_call_argument_begin":
        match = _KIMI_NAME.fullmatch(name)
        name = match["name"] if match is not None else ""
    elif mark != "tool_sep":
        raise UnclearCallError("A call is the name of a tool, the token that parts them, and its arguments.")
    if not name:
        raise UnclearCallError("A call needs the name of a tool.")
    arguments = yield from _read_arguments_object(source)
    yield from source.spaces()
    if (yield from _read_token(source)) != "tool_call_end":
        raise UnclearCallError("A call ends with its own token, directly behind the arguments.")
    return ToolCall("", name, arguments)


def _read_arguments_object(source: Source) -> Waiting[str]:
    if (yield from source.spaces()) in {"`", "~"}:
        yield from pass_fence(source)
    if (yield from source.spaces()) != "{":
        raise UnclearCallError("The arguments of a call must be a JSON object.")
    start = source.length
    if not (yield from source.value()):
        raise UnclearCallError(_CUT_OFF_CALL)
    text = source.piece(start)
    arguments = read_json(text)
    if arguments is None:
        raise UnclearCallError(explain_unreadable(text))
    yield from source.spaces()
    yield from pass_ticks(source)
    return arguments


def _read_token(source: Source) -> Waiting[str]:
    """Go past a token such as ``<|tool_sep|>``, and return its name; stay where none is."""
    there = source.length
    if (yield from source.accepts("<")):
        bar = yield from source.peek(1)
        if bar and bar in "|\uff5c":
            source.skip(1)
            name = yield from source.word(_IN_TOKEN, _LONGEST_TOKEN)
            if (yield from source.accepts(f"{bar}>")):
                return name.replace("\u2581", "_").replace(" ", "_")
    source.back(there)
    return ""


def _pass_token(source: Source, wanted: str) -> Waiting[None]:
    while (yield from source.past("<")):
        source.back(source.length - 1)
        if (yield from _read_token(source)) == wanted:
            return
        yield from source.accepts("<")


_CHANNEL, _START, _MESSAGE, _CALL = "<|channel|>", "<|start|>assistant", "<|message|>", "<|call|>"
_LONGEST_HEADER = 100
_IN_HEADER = re.compile(r"[\w .=-]")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?(?P<name>[\w.-]{1,64})")


class HarmonyForm:
    """``<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>``; GPT-OSS."""

    characters = "<"
    opening: str = f"{beginnings_of(_CHANNEL)}|{beginnings_of(_START)}"

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one message with a recipient."""
        del tools
        header = _CHANNEL if (yield from source.accepts(_CHANNEL)) else ""
        if not header and not (yield from source.accepts(_START)):
            return None
        while not (yield from source.accepts(_MESSAGE)):
            words = yield from source.word(_IN_HEADER, _LONGEST_HEADER)
            mark = yield from _header_token(source, header)
            if not words and not mark:
                return None
            header += words + mark
        recipient = _RECIPIENT.search(header)
        if recipient is None:
            return source.rest() if f"{_CHANNEL}final" in header else source.past("<|end|>")
        if before.is_spoken_of:
            return source.past(_CALL)
        try:
            arguments = yield from _read_harmony_arguments(source)
        except UnclearCallError:
            yield from source.past(_CALL)
            raise
        return [ToolCall("", recipient["name"], arguments)]


def _header_token(source: Source, header: str) -> Waiting[str]:
    """Go past a token that may stand in a header once, and is not in it yet."""
    for token in (_CHANNEL, "<|constrain|>"):
        if token not in header and (yield from source.accepts(token)):
            return token
    return ""


def _read_harmony_arguments(source: Source) -> Waiting[str]:
    arguments = yield from _read_arguments_object(source)
    if (yield from source.spaces()) and not (yield from source.accepts(_CALL)):
        raise UnclearCallError(f"A call ends with {_CALL}, directly behind the arguments.")
    return arguments
