"""The events of a loop's end: of the calls that the machine answered itself, and of how the loop ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.calls.events import ToolCallRefused, ToolExecutionEnd
from toolkit.calls.handler import Registration
from toolkit.chat import ToolResult
from toolkit.chat.output import copy_result
from toolkit.loop.outcome import Out, ToolLoopResult

__all__ = ["copy_outcome", "describe_call_end", "take_closing_event"]


def take_closing_event(
    closed: list[tuple[ToolResult, bool]], registrations: Mapping[str, Registration[Any]]
) -> ToolExecutionEnd | ToolCallRefused:
    """Return the event of the first call that was answered, and forget that."""
    result, has_started = closed.pop(0)
    end = describe_call_end(result, registrations)
    if has_started:
        return end
    return ToolCallRefused(
        call_id=end.call_id, tool_name=end.tool_name, label=end.label, tags=end.tags, result=end.result
    )


def describe_call_end(result: ToolResult, registrations: Mapping[str, Registration[Any]]) -> ToolExecutionEnd:
    """Return the event of a call that is known by its result alone; it says nothing of how long the call took."""
    registration = registrations.get(result.tool_name)
    options = None if registration is None else registration.options
    return ToolExecutionEnd(
        call_id=result.call_id,
        tool_name=result.tool_name,
        label="" if options is None else options.label,
        tags=frozenset() if options is None else options.tags,
        result=result,
        duration=0.0,
    )


def copy_outcome(result: ToolLoopResult[Out]) -> ToolLoopResult[Out]:
    """Return what a loop left for somebody who may change the list of its messages, and what is in their details."""
    messages = [
        copy_result(each) if isinstance(each, ToolResult) and each.details is not None else each
        for each in result.messages
    ]
    return ToolLoopResult(
        text=result.text,
        output=result.output,
        response=result.response,
        messages=messages,
        usage=result.usage,
        iterations=result.iterations,
        tool_rounds=result.tool_rounds,
        reason=result.reason,
        snapshot=result.snapshot,
    )
