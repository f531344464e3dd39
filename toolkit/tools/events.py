"""What one call tells while it is handled: the facts that an application may show or count."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from toolkit.chat import ToolResult
from toolkit.dataclass import dataclass
from toolkit.tools.output import ToolOutput

__all__ = [
    "ApprovalRequested",
    "Observer",
    "ToolCallRefused",
    "ToolCallRepaired",
    "ToolEvent",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "ToolProgress",
]


@dataclass(slots=True, kw_only=True)
class ToolCallRepaired:
    """A call was not quite right and could be mended without guessing.

    Args:
        call_id: The call.
        tool_name: The tool that it means.
        kind: What was mended: the ``name``, the ``text`` of the arguments, or ``values`` in them.
        before: As the model wrote it.
        after: As it is taken.
        assumed: What was assumed for that, in words.
    """

    call_id: str
    tool_name: str
    kind: Literal["name", "text", "values"]
    before: str
    after: str
    assumed: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class ApprovalRequested:
    """Somebody is asked whether a call may run, and the call waits for the answer.

    Args:
        call_id: The call.
        tool_name: The tool that would run.
        arguments: What it would be given, validated.
        reason: Why it is asked about, where a rule says so.
    """

    call_id: str
    tool_name: str
    arguments: dict[str, Any]
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class ToolCallRefused:
    """A call that will not run: unknown, invalid, denied or skipped. It has no Start and no End."""

    call_id: str
    tool_name: str
    result: ToolResult


@dataclass(slots=True, kw_only=True)
class ToolExecutionStart:
    """A tool is about to run, with these validated arguments."""

    call_id: str
    tool_name: str
    arguments: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class ToolExecutionUpdate:
    """A running tool shows what it has so far. No model reads it.

    Args:
        call_id: The call.
        tool_name: Its tool.
        output: What the tool shows.
        dropped: How many earlier updates gave way to this one because nobody took them in time.
    """

    call_id: str
    tool_name: str
    output: ToolOutput
    dropped: int = 0


@dataclass(slots=True, kw_only=True)
class ToolExecutionEnd:
    """A tool has run; its result is kept.

    Args:
        call_id: The call.
        tool_name: Its tool.
        result: The whole output, also where the model reads a shortened one.
        duration: Seconds since the Start, retries and their pauses included.
        is_cached: Whether the result came from the cache.
        error: What the tool raised, with its traceback, where that was no `ToolError`.
    """

    call_id: str
    tool_name: str
    result: ToolResult
    duration: float
    is_cached: bool = False
    error: BaseException | None = None


@dataclass(slots=True, kw_only=True)
class ToolProgress:
    """A running tool says how far it is."""

    call_id: str
    tool_name: str
    text: str
    dropped: int = 0


ToolEvent: TypeAlias = (
    ToolCallRepaired
    | ApprovalRequested
    | ToolCallRefused
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | ToolProgress
)


class Observer(Protocol):
    """Takes the events of calls. Must not raise."""

    async def emit(self, event: ToolEvent) -> None:
        """Deliver `event`; waits until it is taken."""
        ...

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Take `event` without waiting; what waits is bounded, and the oldest gives way."""
        ...
