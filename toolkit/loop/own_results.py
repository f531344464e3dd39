"""The results that a loop writes itself: of calls that did not run, and of those that its end interrupted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from toolkit.calls.run import CutCall
from toolkit.chat import ToolCall, ToolResult
from toolkit.loop.detection import warning_text
from toolkit.loop.outcome import LoopDetected
from toolkit.text_encodings import replace_surrogates

__all__ = [
    "LOST",
    "join_steps",
    "write_cut_off",
    "write_denied",
    "write_early",
    "write_interrupted",
    "write_lost",
    "write_not_started",
    "write_one_too_many",
    "write_repeated",
    "write_tried",
]

LOST = "Interrupted: the process that ran it ended. The tool was running and may have taken effect."
"""The text of the result of a call that was under way when its process ended."""


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


def write_lost(call: ToolCall) -> ToolResult:
    """Return the result of a call that may have started in a process that ended before its result was kept."""
    return ToolResult(call.id, LOST, tool_name=call.name, is_error=True)


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


_LONGEST_FAILURE = 300


def write_tried(call: ToolCall, failure: str) -> ToolResult:
    """Return the result of a call that has failed before, just as it is; `failure` is what it was told then."""
    said = failure if len(failure) <= _LONGEST_FAILURE else f"{failure[:_LONGEST_FAILURE]}..."
    text = (
        f"Not run: you have made this call already, with the same arguments, and it failed: {said}\n"
        "Use other arguments or another tool, or answer with what you have."
    )
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def write_early(call: ToolCall, missing: Sequence[str], called: Collection[str]) -> ToolResult:
    """Return the result of a call that comes too early.

    Args:
        call: The call.
        missing: The tools that come first, in their order.
        called: The tools that the same reply calls.
    """
    if all(name in called for name in missing):
        text = (
            f"Not run: {call.name} needs the result of {join_steps(missing)}, which you asked for in the same reply. "
            f"Read that result, then call {call.name} again."
        )
    else:
        text = f"Not run: call {join_steps(missing)} first, and {call.name} once you have read what that gives."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def join_steps(names: Sequence[str]) -> str:
    """Return tools as they are to be called: ``a``, ``a, then b``."""
    return ", then ".join(names)
