"""The parts of a reply: text, calls, and calls that could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolkit.chat import ToolCall

__all__ = ["Reply", "ReplyPart", "UnreadCall"]


@dataclass(frozen=True, slots=True)
class UnreadCall:
    """A call that was meant and could not be read.

    Args:
        text: All that belongs to it, as it was written.
        reason: The problem, for the model.
    """

    text: str
    reason: str


ReplyPart: TypeAlias = str | ToolCall | UnreadCall
"""Some text, a call, or one that could not be read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The parts of a reply, in its order; no two texts stand side by side.

    White space round calls is left out, and so is what follows a call as its result: the model has made that up. All
    other text stays as it was written.
    """

    parts: tuple[ReplyPart, ...]

    @property
    def text(self) -> str:
        """The text, without the calls and what was meant as one."""
        return "".join([part for part in self.parts if isinstance(part, str)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls; their ids are ``call_1``, ``call_2`` and so on."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def unread(self) -> tuple[UnreadCall, ...]:
        """The calls that were meant and could not be read."""
        return tuple([part for part in self.parts if isinstance(part, UnreadCall)])
