"""The events of calls that the machine of a loop answered itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.calls.events import ToolCallRefused, ToolExecutionEnd
from toolkit.chat import ToolResult
from toolkit.tools.handler import Registration

__all__ = ["take_closing_event"]


def take_closing_event(
    closed: list[tuple[ToolResult, bool]], registrations: Mapping[str, Registration[Any]]
) -> ToolExecutionEnd | ToolCallRefused:
    """Return the event of the first call that was answered, and forget that."""
    result, has_started = closed.pop(0)
    registration = registrations.get(result.tool_name)
    label, tags = ("", frozenset[str]())
    if registration is not None:
        label, tags = registration.options.label, registration.options.tags
    if has_started:
        return ToolExecutionEnd(
            call_id=result.call_id, tool_name=result.tool_name, label=label, tags=tags, result=result, duration=0.0
        )
    return ToolCallRefused(call_id=result.call_id, tool_name=result.tool_name, label=label, tags=tags, result=result)
