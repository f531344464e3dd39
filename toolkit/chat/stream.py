"""What a provider says while it is speaking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolkit.chat.request import ChatResponse

__all__ = ["ArgumentsDelta", "ReasoningDelta", "ResponseDone", "StreamEvent", "TextDelta"]


@dataclass(slots=True)
class TextDelta:
    """Some more text."""

    text: str


@dataclass(slots=True)
class ReasoningDelta:
    """Some more reasoning."""

    text: str


@dataclass(slots=True)
class ArgumentsDelta:
    """Some more of a call's arguments.

    Args:
        index: Which call of this reply, from 0.
        call_id: Its id; empty until the provider gave one.
        tool_name: Its tool; empty until the provider gave one.
        text: The next piece of the JSON text; may be empty, for the first sign of a call.
    """

    index: int
    call_id: str
    tool_name: str
    text: str


@dataclass(slots=True)
class ResponseDone:
    """The whole answer, once, last."""

    response: ChatResponse


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta | ResponseDone
"""One item of `Provider.stream`; the last one is always `ResponseDone`."""
