"""The answers to "may this call run?", and what is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, field
from typing import Any, TypeAlias

from toolkit.chat import ToolCall, ToolDefinition
from toolkit.chat.definition import copy_definition
from toolkit.dataclass import dataclass
from toolkit.settings import check_fields

__all__ = [
    "Abort",
    "Approval",
    "ApprovalHook",
    "ApprovalRequest",
    "Approve",
    "Defer",
    "Deny",
    "Modify",
    "Verdict",
    "put_off_asked",
    "to_approval",
]


@dataclass(frozen=True, slots=True)
class Approve:
    """Run it as it is."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Don't run it; the model reads `reason` as the call's error, word for word."""

    reason: str = "Tool call denied."


@dataclass(frozen=True, slots=True)
class Modify:
    """Run it with these arguments instead: all of them, as JSON would say them. They are validated, never repaired."""

    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_fields(self, "the {} of Modify")


@dataclass(frozen=True, slots=True)
class Abort:
    """Run nothing more and end the loop."""

    reason: str = "The run was aborted."


@dataclass(frozen=True, slots=True)
class Defer:
    """Decide later: the loop ends as `AwaitingApproval` and can be taken up again."""


Approval: TypeAlias = Approve | Deny | Modify | Abort | Defer
"""The answers that an approver may give."""

Verdict: TypeAlias = Approve | Deny | Abort | Defer
"""The outcome of an answer: a `Modify` has changed the call, or denied it where the arguments are wrong."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that asks to run.

    Args:
        call_id: The id of the call.
        tool_name: The tool that would run, its name repaired.
        arguments: The arguments that the tool would be given, validated.
        original: The call as the model wrote it.
        tags: The tool's tags.
        reason: Why it is asked about, where a rule says so.
        preview: The arguments as JSON to be shown to a person: characters that are not seen, or that change how others
            are seen, stand as escapes, and secrets as digests.
        agent: The sub-agent that wants to make the call; empty where it is no sub-agent's.
        loop_id: The id of the sub-agent's loop.

    Attributes:
        definition: The definition of the tool, as the model has it; each time a copy, which changes nothing.
    """

    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    _: KW_ONLY
    original: ToolCall
    _definition: ToolDefinition = field(repr=False)
    tags: frozenset[str] = frozenset()
    reason: str = ""
    preview: str = ""
    agent: str = ""
    loop_id: str = ""

    @property
    def definition(self) -> ToolDefinition:
        """See the class."""
        return copy_definition(self._definition)


ApprovalHook: TypeAlias = Callable[[ApprovalRequest], Approval | bool | str | Awaitable[Approval | bool | str]]
"""Decides on a call: with one of the answers, True (approve), False (deny) or a reason to deny. Raising denies."""


async def put_off_asked(request: ApprovalRequest) -> Approve | Defer:
    """Have a call that asks for a decision wait for one, at once; the approver of runs that nobody sits in front of."""
    return Defer() if request.reason else Approve()


def to_approval(answer: object) -> Approval:
    """Read a hook's answer; nonsense denies."""
    if isinstance(answer, (Approve, Deny, Modify, Abort, Defer)):
        return answer
    if answer is True:
        return Approve()
    if answer is False:
        return Deny()
    if isinstance(answer, str):
        return Deny(answer) if answer else Deny()
    return Deny(f"Tool call denied: the approval hook answered {type(answer).__qualname__}, which is no answer.")
