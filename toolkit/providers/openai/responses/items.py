"""The items of a response: which say something, which OpenAI settles itself, and which wait for the application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.chat import UnansweredItem
from toolkit.providers.json_values import as_mapping, as_text

__all__ = ["MESSAGE_ITEMS", "SETTLED", "WAITING", "find_unanswered"]

MESSAGE_ITEMS = frozenset({"function_call", "image_generation_call", "message", "reasoning"})
"""Items that have a block of ours."""

SETTLED = frozenset(
    {"additional_tools", "code_interpreter_call", "compaction", "file_search_call", "mcp_approval_response", "mcp_call"}
    | {"mcp_list_tools", "web_search_call"}
    | {"apply_patch_call_output", "computer_call_output", "custom_tool_call_output", "function_call_output"}
    | {"local_shell_call_output", "program_output", "shell_call_output", "tool_search_output"}
)
"""Items that report what happened at OpenAI, and answers that stand in the response already."""

WAITING = frozenset(
    {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request", "program"}
    | {"shell_call", "tool_search_call"}
)
"""Items that the application answers, unless the response holds the answer."""


def find_unanswered(items: Sequence[Mapping[str, Any]]) -> tuple[UnansweredItem, ...]:
    """Return the items that wait for an answer, in order.

    A program waits for nobody while calls of its own are answered. What is not known yet waits where it can be
    answered: where it has a ``call_id`` or is a request, and no answer stands beside it.
    """
    waiting = [item for item in items if _is_waiting(item)]
    if not waiting:
        return ()
    answered = {name for item in items for name in _list_answered(item)}
    return tuple(
        [
            UnansweredItem(as_text(item.get("type")), _find_item_id(item), as_text(item.get("name")))
            for item in waiting
            if _find_item_id(item) not in answered
        ]
    )


def _is_waiting(item: Mapping[str, Any]) -> bool:
    kind = as_text(item.get("type"))
    if kind in MESSAGE_ITEMS or kind in SETTLED:
        return False
    if kind == "tool_search_call":
        return as_text(item.get("execution", "client" if item.get("call_id") else "server")) == "client"
    if kind == "shell_call":
        return as_text(as_mapping(item.get("environment")).get("type")) != "container_reference"
    if kind in WAITING or kind.endswith("_request"):
        return True
    return bool(item.get("call_id")) and not kind.endswith(("_output", "_response"))


def _find_item_id(item: Mapping[str, Any]) -> str:
    return as_text(item.get("call_id")) or as_text(item.get("id"))


def _list_answered(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of what an item answers, or goes on with."""
    if as_text(item.get("type")).endswith("_output"):
        yield as_text(item.get("call_id"))
    if request := as_text(item.get("approval_request_id")):
        yield request
    if item.get("type") == "function_call":
        yield as_text(as_mapping(item.get("caller")).get("caller_id"))
