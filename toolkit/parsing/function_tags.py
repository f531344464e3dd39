"""``<function=name>`` with ``<parameter=key>`` elements, as Qwen Coder writes it, or with JSON, as Llama does."""

from __future__ import annotations

import json
import re

from toolkit.chat import ToolCall
from toolkit.parsing.calls import MOST_CALLS, KnownTools, UnclearCallError, check_count, read_json
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of, pass_nothing
from toolkit.parsing.source import Source, Waiting

__all__ = ["FunctionTagsForm"]

_WRAPPER, _WRAPPER_END = "<tool_call>", "</tool_call>"
_OPEN, _CLOSE = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_IN_FUNCTION_NAME = re.compile(r"[^<>\n]")
_LONGEST_FUNCTION_NAME = 256


class FunctionTagsForm:
    """Functions in tags, with or without ``<tool_call>`` round them; every tag of a function must be closed."""

    characters = "<"
    opening: str = f"{beginnings_of(_OPEN)}|{beginnings_of(_WRAPPER)}"

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one function, or all that one ``<tool_call>`` holds."""
        is_wrapped = yield from source.accepts(_WRAPPER)
        if is_wrapped:
            yield from source.spaces()
        if not (yield from source.accepts(_OPEN)):
            return pass_nothing() if is_wrapped else None
        if before.is_spoken_of:
            return source.past(_WRAPPER_END if is_wrapped else _CLOSE)
        calls = [(yield from self._read_function(source, tools))]
        while True:
            there = source.length
            yield from source.spaces()
            if (yield from source.accepts(_WRAPPER_END)):
                return calls
            if not is_wrapped or (yield from source.peek(1)) == "" or (yield from source.peek(11)) == _WRAPPER:
                source.back(there)
                return calls
            if not (yield from source.accepts(_OPEN)):
                yield from source.past(_WRAPPER_END)
                raise UnclearCallError(f"After {_CLOSE} only {_WRAPPER_END} may come.")
            calls.append((yield from self._read_function(source, tools)))
            if len(calls) > MOST_CALLS:
                yield from source.rest()
                check_count(calls)

    def _read_function(self, source: Source, tools: KnownTools) -> Waiting[ToolCall]:
        try:
            name = yield from _read_tag_name(source)
            if (yield from source.spaces()) == "{":
                return ToolCall("", name, (yield from _read_json_body(source)))
            return ToolCall("", name, (yield from self._read_parameters(source, tools, name)))
        except UnclearCallError:
            yield from source.past(_CLOSE)
            raise

    def _read_parameters(self, source: Source, tools: KnownTools, name: str) -> Waiting[str]:
        values: dict[str, str] = {}
        while (yield from source.accepts(_PARAMETER)):
            parameter = yield from _read_tag_name(source)
            if parameter in values:
                raise UnclearCallError(f"The parameter '{parameter}' is there twice.")
            start = source.length
            if not (yield from source.past(_PARAMETER_END)):
                raise UnclearCallError(f"The call is cut off: {_PARAMETER_END} is missing.")
            text = source.piece(start)[: -len(_PARAMETER_END)]
            if _PARAMETER in text or _CLOSE in text:
                raise UnclearCallError(f"A parameter has no end: {_PARAMETER_END} is missing.")
            values[parameter] = tools.value(name, parameter, _strip_line_breaks(text))
            yield from source.spaces()
        if not (yield from source.accepts(_CLOSE)):
            raise UnclearCallError(f"A function has only {_PARAMETER}NAME> elements, and ends with {_CLOSE}.")
        members = [f"{json.dumps(parameter)}: {value}" for parameter, value in values.items()]
        return "{" + ", ".join(members) + "}"


def _read_tag_name(source: Source) -> Waiting[str]:
    name = (yield from source.word(_IN_FUNCTION_NAME, _LONGEST_FUNCTION_NAME)).strip(" \t\"'")
    if not name or not (yield from source.accepts(">")):
        raise UnclearCallError(f"A tag is not complete: write {_OPEN}NAME> and {_PARAMETER}NAME>.")
    return name


def _read_json_body(source: Source) -> Waiting[str]:
    start = source.length
    is_whole = yield from source.value(stop=_CLOSE)
    text = source.piece(start)
    yield from source.spaces()
    read = read_json(text) if is_whole else None
    if read is None or not (yield from source.accepts(_CLOSE)):
        raise UnclearCallError(f"Between {_OPEN}NAME> and {_CLOSE} there must be one valid JSON object.")
    return read


def _strip_line_breaks(text: str) -> str:
    """The format puts a value on lines of its own."""
    text = text.removeprefix("\r").removeprefix("\n")
    return text.removesuffix("\n").removesuffix("\r")
