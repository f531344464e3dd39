"""The events of one call: the facts that an application may show or count."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import field
from typing import Any, Literal, Protocol, TypeAlias, get_args

from toolkit.chat import Stamped, ToolResult
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class CallEvent(Stamped):
    """A fact about one call.

    Args:
        call_id: The call.
        tool_name: Its tool, as the registry names it.
        label: The tool's name for people, where it has one.
        tags: The tool's tags.
        program: The id of the code at the vendor that made the call, as `ToolCall.program`; empty where the model did.
    """

    call_id: str
    tool_name: str
    label: str = ""
    tags: frozenset[str] = frozenset()
    program: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolCallRepaired(CallEvent):
    """A call had a mistake that could be repaired without guessing.

    Args:
        kind: The part that was repaired: the ``name``, the ``text`` of the arguments, or ``values`` in them.
        before: As the model wrote it; ``***`` where a parameter of the tool is a secret.
        after: As it is used, with digests in place of secrets.
        assumed: The assumptions behind it, in words; left out if a parameter of the tool is a secret.
    """

    kind: Literal["name", "text", "values"]
    before: str
    after: str
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ApprovalRequested(CallEvent):
    """Somebody is asked whether a call may run, and the call waits for the answer.

    Args:
        arguments: A copy of the arguments that it would get, validated.
        arguments_json: The same as JSON; secrets are shown as digests.
        reason: Why a decision is needed, if a rule requires it.
        agent: The sub-agent that wants to make the call; empty if it is not a sub-agent's.
    """

    arguments: dict[str, Any] = field(repr=False)
    arguments_json: str = ""
    reason: str = ""
    agent: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolCallRefused(CallEvent):
    """A call that will not run: unknown, invalid, denied or skipped. It has no Start and no End.

    Args:
        result: Why, for the model.
        error: The exception of a validator that crashed, with its traceback, where the result repeats it.
    """

    result: ToolResult
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class ToolExecutionStart(CallEvent):
    """A tool is about to run, with these validated arguments.

    Args:
        arguments: A copy: changing it changes no run.
        arguments_json: The same as JSON; secrets are shown as digests.
    """

    arguments: dict[str, Any] = field(repr=False)
    arguments_json: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolExecutionUpdate(CallEvent):
    """The output of a running tool so far. No model reads it.

    Args:
        output: The output so far.
        dropped: The number of earlier updates that were dropped because nobody received them in time.
    """

    output: ToolOutput
    dropped: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolExecutionEnd(CallEvent):
    """A tool has run; its result is stored.

    Args:
        result: The whole output, also where the model reads a shortened one.
        duration: Seconds since the Start, retries and their pauses included.
        is_cached: True where the result came from the cache.
        error: The exception that the tool raised, with its traceback, where that was no `ToolError`.
        unserializable: The values in the result that became text because JSON can't carry them: a path and a type each.
    """

    result: ToolResult
    duration: float
    is_cached: bool = False
    error: BaseException | None = None
    unserializable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolProgress(CallEvent):
    """A running tool reports how far it is.

    Args:
        text: How far.
        dropped: The number of earlier reports that were dropped because nobody received them in time.
        details: For the application alone, such as the event of a loop inside the tool.
    """

    text: str
    dropped: int = 0
    details: Any = None


ToolEvent: TypeAlias = (
    ToolCallRepaired
    | ApprovalRequested
    | ToolCallRefused
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | ToolProgress
)
"""An event of a call, in a loop or outside of one."""

TOOL_EVENTS: frozenset[type] = frozenset(get_args(ToolEvent))
"""The kinds of these events."""


class Observer(Protocol):
    """Receives the events of calls. Must not raise."""

    def emit(self, event: ToolEvent) -> Awaitable[None] | None:
        """Deliver `event`; return an awaitable until it is delivered, None if it is already."""
        ...

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Deliver `event` without waiting; if too many wait, the oldest are dropped."""
        ...


async def emit_and_wait(observer: Observer, event: ToolEvent) -> None:
    """Deliver `event` to an observer; wait until it is delivered."""
    left = observer.emit(event)
    if left is not None:
        await left
