"""Whether each call of a transcript has its result, and how to mend one in which some don't."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from toolkit.chat.content import ToolCall
from toolkit.chat.messages import AssistantMessage, Message, ToolResult
from toolkit.errors import TranscriptError

__all__ = ["mend_call_ids", "repair_transcript", "validate_transcript"]

_UNKNOWN = "No result was recorded for this call. It is not known whether the tool ran."


def validate_transcript(messages: Sequence[Message], *, allow_pending: bool = False) -> None:
    """Check that each call has exactly one result, directly after its message, in call order, and nothing between.

    Args:
        messages: The transcript.
        allow_pending: Accept an assistant message at the very end whose results are not all there: what a loop that
            awaits approval leaves.

    Raises:
        TranscriptError: Names the first message that is wrong, what is wrong and what would be right.
    """
    index = 0
    while index < len(messages):
        message = messages[index]
        if isinstance(message, ToolResult):
            raise TranscriptError(index, f"the result of call '{message.call_id}' follows no assistant message that asked for it")
        index += 1
        if not isinstance(message, AssistantMessage):
            continue
        calls = message.tool_calls
        _check_ids(calls, index - 1)
        for position, call in enumerate(calls):
            if index == len(messages) and allow_pending:
                return
            found = messages[index] if index < len(messages) else None
            if not isinstance(found, ToolResult):
                where = "the transcript ends" if found is None else f"a {found.role} message stands"
                raise TranscriptError(index, f"{where} where the result of call '{call.id}' ({call.name}) should be")
            if found.call_id != call.id:
                raise TranscriptError(
                    index,
                    f"the result of call '{found.call_id}' stands where that of call '{call.id}' should be: "
                    f"it is number {position + 1} of the message's calls",
                )
            index += 1


def _check_ids(calls: Sequence[ToolCall], index: int) -> None:
    seen: set[str] = set()
    for call in calls:
        if not call.id:
            raise TranscriptError(index, f"the call of '{call.name}' has no id")
        if call.id in seen:
            raise TranscriptError(index, f"two calls have the id '{call.id}'")
        seen.add(call.id)


def repair_transcript(messages: Sequence[Message]) -> list[Message]:
    """Return the transcript with each call answered and each result in its place.

    A missing result is given as an error that says that nothing is known; a result that stands elsewhere is moved to
    its call; one that belongs to no call, or a second one, is left out. Calls without an id or with one that a sibling
    has get a new one. What is valid stays the same, object for object; repairing twice changes nothing more.
    """
    repaired: list[Message] = []
    position = 0
    for position, message in enumerate(messages):
        if isinstance(message, ToolResult):
            continue
        if not isinstance(message, AssistantMessage) or not message.tool_calls:
            repaired.append(message)
            continue
        # The results that may be meant: all up to the next assistant message that has calls.
        candidates = _results_after(messages, position)
        mended = mend_call_ids(message, (), len(repaired))
        repaired.append(mended)
        for old, new in zip(message.tool_calls, mended.tool_calls, strict=True):
            found = next((result for result in candidates if result.call_id == old.id), None)
            if found is None:
                repaired.append(ToolResult(new.id, _UNKNOWN, tool_name=new.name, is_error=True))
                continue
            candidates.remove(found)
            repaired.append(found if old.id == new.id else _answering(found, new.id))
    return repaired


def _results_after(messages: Sequence[Message], position: int) -> list[ToolResult]:
    results: list[ToolResult] = []
    for message in messages[position + 1 :]:
        if isinstance(message, ToolResult):
            results.append(message)
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            break
    return results


def _answering(result: ToolResult, call_id: str) -> ToolResult:
    return ToolResult(
        call_id,
        result.content,
        tool_name=result.tool_name,
        is_error=result.is_error,
        result_as_answer=result.result_as_answer,
        child_loop_id=result.child_loop_id,
        details=result.details,
    )


def mend_call_ids(message: AssistantMessage, used: Collection[str], iteration: int) -> AssistantMessage:
    """Return the message with an id of its own for each call; the same object where nothing was amiss.

    Args:
        message: A reply.
        used: The ids that are taken already.
        iteration: The number of the turn; new ids are ``call_{iteration}_{position}``, so that they are the same in
            each replay.
    """
    seen: set[str] = set()
    for call in message.tool_calls:
        if not call.id or call.id in seen or call.id in used:
            break
        seen.add(call.id)
    else:
        return message
    taken = {call.id for call in message.tool_calls} | {""}
    seen = set()
    content = list(message.content)
    for position, block in enumerate(content):
        if not isinstance(block, ToolCall):
            continue
        if not block.id or block.id in seen or block.id in used:
            new = f"call_{iteration}_{position}"
            while new in taken or new in used:
                new += "_"
            taken.add(new)
            block = ToolCall(new, block.name, block.arguments, extra=block.extra)
            content[position] = block
        seen.add(block.id)
    return AssistantMessage(content)
