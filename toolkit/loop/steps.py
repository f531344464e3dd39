"""The words between a loop's machine and its driver: the steps, and the caller's commands.

Those for decisions on calls are an approver's own: `toolkit.calls.approval`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, field
from typing import Literal, TypeAlias

from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.loop.outcome import TerminationReason
from toolkit.loop.stopping import Continue, Stop
from toolkit.loop.turn import OpenCall

__all__ = [
    "AskApproval",
    "BeginTurn",
    "CallModel",
    "Command",
    "Compact",
    "Finished",
    "InjectMessages",
    "RunTools",
    "Step",
]


# Steps and commands are not frozen: each turn makes some, and only the machine and its driver hold them.


@dataclass(slots=True)
class BeginTurn:
    """Begin a turn, once what comes between two turns is fed."""


@dataclass(slots=True)
class Compact:
    """Shorten `messages`, or feed them back as they are."""

    messages: Sequence[Message]


@dataclass(slots=True)
class CallModel:
    """Ask the model; where `LoopState.is_last`, without tools, for the answer that follows the last allowed turn."""


@dataclass(slots=True)
class AskApproval:
    """Ask whether the calls of the turn that are undecided may run."""


@dataclass(slots=True)
class RunTools:
    """Run these calls, at most `limit` at once."""

    calls: Sequence[OpenCall]
    limit: int | None = None


@dataclass(slots=True)
class Finished:
    """The loop is over, or waits for a decision (`AwaitingApproval`)."""

    reason: TerminationReason


Step: TypeAlias = BeginTurn | Compact | CallModel | AskApproval | RunTools | Finished


@dataclass(frozen=True, slots=True)
class InjectMessages:
    """Append these messages before the next turn, and go on."""

    messages: tuple[Message, ...]
    _: KW_ONLY
    kind: Literal["inject_messages"] = field(default="inject_messages", repr=False)


Command: TypeAlias = Continue | InjectMessages | Stop
"""The commands for the next turn."""
