"""Turns that Anthropic's server pauses: what is asked to go on, and the parts as one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolkit.chat import AssistantMessage, ChatRequest, ChatResponse
from toolkit.providers.json_values import as_count, as_mapping

__all__ = ["PAUSED", "continue_request", "join_replies"]

PAUSED = ("pause_turn", "compaction")
"""Why the server stops a turn that it goes on with when it is asked again."""


def continue_request(request: ChatRequest, response: ChatResponse) -> ChatRequest | None:
    """Return what to ask for the rest of a paused turn; None where the turn is over, or waits for results."""
    if response.metadata.get("stop_reason") not in PAUSED or response.tool_calls or response.unanswered:
        return None
    options = dict(request.options)
    if container := as_mapping(response.metadata.get("container")).get("id"):
        options.setdefault("container", container)  # what its tools have made is in there
    return replace(request, messages=[*request.messages, response.message], options=options)


def join_replies(earlier: ChatResponse, later: ChatResponse) -> ChatResponse:
    """Return the parts of a turn as one: all that was said and spent, the rest as the later one tells it."""
    metadata: dict[str, Any] = {**earlier.metadata, **later.metadata}
    if later.metadata.get("stop_reason") is None:
        metadata.pop("stop_reason", None)
    if citations := [*earlier.metadata.get("citations", ()), *later.metadata.get("citations", ())]:
        metadata["citations"] = citations
    if used := _add_counts(earlier.metadata.get("server_tool_use"), later.metadata.get("server_tool_use")):
        metadata["server_tool_use"] = used
    metadata["requests"] = earlier.metadata.get("requests", 1) + 1
    message = AssistantMessage([*earlier.message.content, *later.message.content])
    unanswered = (*earlier.unanswered, *later.unanswered)
    return replace(later, message=message, usage=earlier.usage + later.usage, metadata=metadata, unanswered=unanswered)


def _add_counts(earlier: object, later: object) -> Mapping[str, int]:
    told = [as_mapping(earlier), as_mapping(later)]
    return {name: sum([as_count(each.get(name)) or 0 for each in told]) for name in {**told[0], **told[1]}}
