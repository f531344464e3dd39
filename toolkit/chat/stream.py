"""The events of a response while it streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from toolkit.chat.content import ReasoningBlock, TextBlock, ToolCall
from toolkit.chat.request import ChatResponse
from toolkit.dataclass import dataclass

__all__ = ["ArgumentsDelta", "ReasoningDelta", "ResponseDone", "Stamped", "StreamEvent", "TextDelta", "events_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """When something was told, and by which run.

    A loop fills it in, a provider leaves it empty. Two events that differ in nothing else are equal.

    Attributes:
        run_id: The run of the outermost loop, which the loops inside its tools share.
        loop_id: The loop that tells it; `ToolResult.child_loop_id` is that of a loop inside a tool.
        time: Seconds since 1970.
    """

    run_id: str = field(default="", compare=False, repr=False)
    loop_id: str = field(default="", compare=False, repr=False)
    time: float = field(default=0.0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TextDelta(Stamped):
    """Some more text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta(Stamped):
    """Some more reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta(Stamped):
    """Some more of a call's arguments.

    Args:
        index: The place of the call in this reply, from 0.
        call_id: Its id; empty until the provider gave one.
        tool_name: Its tool; empty until the provider gave one.
        text: The next piece of the JSON text; may be empty, for the first sign of a call.
    """

    index: int
    call_id: str
    tool_name: str
    text: str


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The whole answer, once, last."""

    response: ChatResponse


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta | ResponseDone
"""One item of `Provider.stream`; the last one is always `ResponseDone`."""


def events_of(response: ChatResponse) -> Iterator[StreamEvent]:
    """Yield a whole answer as a stream would give it, each block in one piece."""
    position = 0
    for block in response.message.content:
        if isinstance(block, TextBlock):
            yield TextDelta(block.text)
        elif isinstance(block, ReasoningBlock):
            yield ReasoningDelta(block.text)
        elif isinstance(block, ToolCall):
            yield ArgumentsDelta(position, block.id, block.name, block.arguments)
            position += 1
    yield ResponseDone(response)
