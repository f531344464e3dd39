"""The results that a loop writes itself: of calls that did not run, and of those that its end interrupted."""

from __future__ import annotations

from toolkit.calls.run import CutCall
from toolkit.chat import ToolCall, ToolResult
from toolkit.loop.detection import warning_text
from toolkit.loop.events import LoopDetected
from toolkit.text_encodings import replace_surrogates

__all__ = [
    "write_cut_off",
    "write_denied",
    "write_interrupted",
    "write_not_started",
    "write_one_too_many",
    "write_repeated",
]


def write_denied(call: ToolCall, reason: str, tool_name: str) -> ToolResult:
    """Return the result of a call that may not run; `tool_name` is the repaired name of its tool."""
    return ToolResult(call.id, replace_surrogates(reason), tool_name=tool_name, is_error=True)


def write_not_started(call: ToolCall, why: str, cut: CutCall | None = None) -> ToolResult:
    """Return the result of a call that never ran; `cut` tells what it was waiting for."""
    waited = f" while the call waited for {cut.waited_for}" if cut is not None and cut.waited_for else ""
    return ToolResult(call.id, f"Not started: {why}{waited}.", tool_name=call.name, is_error=True)


def write_interrupted(call: ToolCall, why: str, cut: CutCall | None) -> ToolResult:
    """Return the result of a call that had started; `cut` tells whether it may run on."""
    after = " It may still be running." if cut is not None and cut.may_run_on else ""
    child_loop_id, details = (None, None) if cut is None else cut.left_by_child
    return ToolResult(
        call.id,
        f"Interrupted: {why}. The tool was running and may have taken effect.{after}",
        tool_name=call.name,
        is_error=True,
        child_loop_id=child_loop_id,
        details=details,
    )


def write_one_too_many(call: ToolCall, most: int) -> ToolResult:
    """Return the result of a call that came after the last one that a reply may have."""
    text = f"Not run: at most {most} calls of one reply are run, and this one came after them. Ask for it again."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def write_cut_off(call: ToolCall) -> ToolResult:
    """Return the result of a call in the middle of which the reply ended."""
    text = "Not run: your reply was cut off before its arguments were complete; call it again."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def write_repeated(call: ToolCall, fact: LoopDetected) -> ToolResult:
    """Return the result of a call that was skipped because the model repeats itself."""
    return ToolResult(call.id, f"Not run. {warning_text(fact)}", tool_name=call.name, is_error=True)
