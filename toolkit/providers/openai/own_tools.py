"""Tools that OpenAI defines and the application runs: their items as calls of a tool, and its results as outputs.

A tool with ``native_as="shell"`` is offered as OpenAI's shell. The model's item becomes a call of the tool, so that
permissions, approvals and limits apply to it, and is sent back as it came; the result becomes the output that the item
waits for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolkit.chat import ImageBlock, ToolCall, ToolDefinition, ToolResult, VendorTool
from toolkit.dataclass import dataclass
from toolkit.providers.encoding import (
    JsonObject,
    as_count,
    as_items,
    as_mapping,
    as_text,
    data_url_of,
    list_native_tools,
)

RESPONSES_SEAL = "openai-responses"
_EXIT_CODE = re.compile(r"\nExit code: (\d+)\Z")
# The output of a computer call holds a screenshot alone; a failed call gets one pixel, and a message beside it.
_NO_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool that OpenAI defines."""

    wire: Mapping[str, Any]  # as it is offered
    item: str  # the type of the items that call it
    read: Callable[[Mapping[str, Any]], JsonObject]  # the arguments of an item
    answer: Callable[[Mapping[str, Any], ToolResult], JsonObject]  # the fields of the output
    has_callers: bool = True  # False where it takes no ``allowed_callers``


def _read_shell(item: Mapping[str, Any]) -> JsonObject:
    action = as_mapping(item.get("action"))
    commands = [command for command in action.get("commands") or () if isinstance(command, str)]
    milliseconds = as_count(action.get("timeout_ms"))
    return {"command": "\n".join(commands), **({"timeout": milliseconds / 1000} if milliseconds else {})}


def _answer_shell(item: Mapping[str, Any], result: ToolResult) -> JsonObject:
    found = _EXIT_CODE.search(result.text)
    code = int(found[1]) if found else int(result.is_error)
    streams = {"stdout": "", "stderr": result.text} if result.is_error else {"stdout": result.text, "stderr": ""}
    longest = as_count(as_mapping(item.get("action")).get("max_output_length"))
    bound = {} if longest is None else {"max_output_length": longest}
    return {"output": [{**streams, "outcome": {"type": "exit", "exit_code": code}}], **bound}


def _read_patch(item: Mapping[str, Any]) -> JsonObject:
    return dict(as_mapping(item.get("operation")))


def _answer_patch(item: Mapping[str, Any], result: ToolResult) -> JsonObject:  # noqa: ARG001 - as the others
    return {"status": "failed" if result.is_error else "completed", "output": result.text}


def _read_computer(item: Mapping[str, Any]) -> JsonObject:
    actions = as_items(item.get("actions")) or [as_mapping(item.get("action"))]
    checks = as_items(item.get("pending_safety_checks"))
    return {"actions": [*map(dict, actions)], **({"pending_safety_checks": [*map(dict, checks)]} if checks else {})}


def _answer_computer(item: Mapping[str, Any], result: ToolResult) -> JsonObject:
    blocks = () if isinstance(result.content, str) else result.content
    shown = [data_url_of(block) for block in blocks if isinstance(block, ImageBlock)]
    output = {"type": "computer_screenshot", "image_url": shown[-1] if shown else _NO_SCREENSHOT}
    checks = as_items(item.get("pending_safety_checks"))
    # What a person or a rule refused is not acknowledged.
    acknowledged = {"acknowledged_safety_checks": checks} if checks and not result.is_error else {}
    return {"output": output, **acknowledged}


OPENAI_TOOLS: Mapping[VendorTool, OwnTool] = {
    "shell": OwnTool({"type": "shell", "environment": {"type": "local"}}, "shell_call", _read_shell, _answer_shell),
    "patch": OwnTool({"type": "apply_patch"}, "apply_patch_call", _read_patch, _answer_patch),
    "computer": OwnTool({"type": "computer"}, "computer_call", _read_computer, _answer_computer, has_callers=False),
}
"""The tools by the kind that `ToolHints.native_as` names."""
_BY_ITEM = {own.item: own for own in OPENAI_TOOLS.values()}


def find_openai_tool(definition: ToolDefinition) -> OwnTool | None:
    """Return the tool of OpenAI's that is offered in place of a tool; None where there is none."""
    kind = None if definition.hints is None else definition.hints.native_as
    return None if kind is None else OPENAI_TOOLS.get(kind)


def list_own_tools(tools: Iterable[ToolDefinition]) -> Mapping[str, ToolDefinition]:
    """Return the tools that are offered as OpenAI's own, by the items that call them; mostly empty."""
    return {OPENAI_TOOLS[kind].item: tool for kind, tool in list_native_tools(tools).items() if kind in OPENAI_TOOLS}


def read_own_call(item: Mapping[str, Any], definition: ToolDefinition) -> ToolCall:
    """Return an item as a call of the tool that implements it; the item is sealed in the call."""
    known = as_mapping(definition.parameters.get("properties"))
    arguments = _BY_ITEM[as_text(item.get("type"))].read(item)
    text = json.dumps({name: value for name, value in arguments.items() if name in known}, ensure_ascii=False)
    return ToolCall(as_text(item.get("call_id")), definition.name, text, extra={RESPONSES_SEAL: {"item": dict(item)}})


def sealed_item(call: ToolCall) -> Mapping[str, Any]:
    """Return the item that a call came as; empty for calls of functions."""
    item = as_mapping(as_mapping((call.extra or {}).get(RESPONSES_SEAL)).get("item"))
    return item if item.get("type") in _BY_ITEM else {}


def answer_own_call(item: Mapping[str, Any], call_id: str, result: ToolResult) -> list[JsonObject]:
    """Return the items that answer an item: its output, and a message where the output can't hold the text."""
    own = _BY_ITEM[item["type"]]
    caller = {"caller": item["caller"]} if item.get("caller") and own.has_callers else {}
    output = {"type": f"{own.item}_output", "call_id": call_id, **own.answer(item, result), **caller}
    if own.item == "computer_call" and result.is_error:
        content = f"The actions of {call_id} failed: {result.text}"
        return [output, {"type": "message", "role": "user", "content": content}]
    return [output]
