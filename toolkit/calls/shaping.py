"""The result of a call: an output with the call's id, and as much of it as the model reads."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Literal

from toolkit.calls.context import ToolContext
from toolkit.calls.policy import ExecutionPolicy
from toolkit.calls.prepare import Ready
from toolkit.calls.run_memory import RunMemory
from toolkit.calls.text_cutting import limit_text
from toolkit.chat import ContentBlock, TextBlock, ToolCall, ToolResult
from toolkit.chat.output import ToolOutput, to_output
from toolkit.dataclass import maker_of

__all__ = ["shape_result"]

_logger = logging.getLogger("toolkit.calls")


def shape_result(
    ready: Ready[Any], output: ToolOutput, policy: ExecutionPolicy, context: ToolContext[Any]
) -> tuple[tuple[str, ...], ToolResult, ToolResult]:
    """Return what of a result JSON could not carry, the whole of it, and as far as the model may read it."""
    call, registration = ready.call, ready.registration
    if context.left_by_child[0] is not None:
        output = _add_child(output, context)
    if type(output) is not ToolOutput or output.is_error or output.unsaid:
        output = _ensure_output(call, output)
    result = maker_of(ToolResult)(
        call.id,
        output.content,
        tool_name=call.name,
        is_error=output.is_error,
        result_as_answer=(output.result_as_answer or registration.options.result_as_answer) and not output.is_error,
        child_loop_id=output.child_loop_id,
        details=output.details,
        time=time.time(),
    )
    most = registration.max_output_chars or policy.config.output.max_chars
    if most is None or (len(result.content) <= most and isinstance(result.content, str)):
        return output.unsaid, result, result
    keep = registration.options.keep_output or policy.config.output.keep
    return output.unsaid, result, _limit_result(result, most, keep, context.memory)


def _ensure_output(call: ToolCall, value: object) -> ToolOutput:
    """Return what a tool gave as an output that says something, and log what of it JSON could not carry."""
    output = value if type(value) is ToolOutput and not value.is_error else _add_reason(to_output(value))
    if output.unsaid:
        _logger.warning(
            "tool %s gave what JSON can't carry; its text stands for %s", call.name, ", ".join(output.unsaid)
        )
    return output


def _add_child(output: ToolOutput, context: ToolContext[Any]) -> ToolOutput:
    """Return an output that, if the call was given up, tells of the loop that ran inside."""
    if type(output) is not ToolOutput or not output.is_error or output.child_loop_id is not None:
        return output
    child_loop_id, details = context.left_by_child
    return replace(output, child_loop_id=child_loop_id, details=details)


def _add_reason(output: ToolOutput) -> ToolOutput:
    """Return an output that, if it is an error, says something."""
    if not output.is_error or output.text.strip():
        return output
    reason = "The tool failed and gave no reason."
    blocks = () if isinstance(output.content, str) else output.content
    return replace(output, content=(TextBlock(reason), *blocks) if blocks else reason)


def _limit_result(
    result: ToolResult, most: int, keep: Literal["head", "tail", "both"], memory: RunMemory | None
) -> ToolResult:
    """Return the result with its text cut to what the model may read."""
    if isinstance(result.content, str):
        return replace(result, content=_cut_text(result.content, most, keep, memory))
    if len(result.text) <= most:
        return result
    blocks: list[ContentBlock] = []
    for block in result.content:
        if isinstance(block, TextBlock):
            # What is left goes to the texts in their order; the last ones may keep a single character.
            left = max(1, most)
            most -= len(block.text)
            blocks.append(TextBlock(_cut_text(block.text, left, keep, memory)) if len(block.text) > left else block)
        else:
            blocks.append(block)
    return replace(result, content=tuple(blocks))


def _cut_text(text: str, most: int, keep: Literal["head", "tail", "both"], memory: RunMemory | None) -> str:
    reference = None if memory is None else memory.put(text)
    if memory is None or reference is None:
        return limit_text(text, most, keep)
    return limit_text(text, most, keep, reference=reference, reader=memory.reader)
