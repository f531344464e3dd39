r"""Texts of others made harmless: no marker of a call and no token of a chat template stands in them.

A backslash behind the first character of a marker breaks it: ``<\tool_call>``. In JSON, where the text is read back,
the first character is written as an escape instead, which means the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

__all__ = ["escape_json", "escape_markers"]

# Tokens by which chat templates part turns, and tags by which models think and call, whatever the model.
_TEMPLATE_TOKENS = (
    r"<[|\uff5c][\w\u2581 /.:-]{1,60}[|\uff5c]>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|CALL_ID|ARGS|THINK|IMG)\]|<</?SYS>>"
    r"|</?(?:tool_call|tool_calls|tool_response|tool_result|tools|function_call|function_calls|functioncall|function_results"
    r"|antml:[\w]+|minimax:tool_call|think|thinking|system|arg_key|arg_value)\b|</?(?:function|parameter|invoke)\b(?=[\s=>])"
    r"|</?\uff5cDSML\uff5c|\u25c1/?\w+\u25b7|\bfunctools(?=\[)"
)


def escape_markers(text: str, markers: Iterable[str] = ()) -> str:
    """Return a text of a user or a tool without the markers of a format, and without tokens of any chat template.

    Args:
        text: A text that somebody else wrote.
        markers: The other marks of the format. A word counts at the beginning of a line, in any case.
    """
    return _compile_markers(tuple(markers)).sub(lambda found: f"{found[0][0]}\\{found[0][1:]}", text)


def escape_json(text: str) -> str:
    """Return JSON that means the same, in whose strings no token of a chat template stands."""
    return _compile_markers(()).sub(lambda found: f"\\u{ord(found[0][0]):04x}{found[0][1:]}", text)


@cache
def _compile_markers(markers: tuple[str, ...]) -> re.Pattern[str]:
    own = [rf"(?<![^\n])[ \t*]*{re.escape(marker)}" if marker[0].isalpha() else re.escape(marker) for marker in markers]
    return re.compile("|".join([_TEMPLATE_TOKENS, *own]), re.IGNORECASE)
