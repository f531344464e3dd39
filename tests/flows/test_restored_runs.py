"""A loop that goes on in another process: its ids, its decisions, and the events of its start and its end."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    Defer,
    Message,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    Yielded,
    tool,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse
from toolkit.errors import ConfigurationError, LoopUsageError, TranscriptError
from toolkit.policies import InjectMessages
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


def put_off(request: ApprovalRequest) -> Defer:
    return Defer()


def through_json(snapshot: dict[str, Any] | None) -> dict[str, Any]:
    assert snapshot is not None
    plain: dict[str, Any] = json.loads(json.dumps(snapshot))
    return plain


def keep_question(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[:1]


# ids


async def test_an_id_is_used_once_though_its_turn_was_compacted_away_and_the_loop_restored() -> None:
    keys: list[str] = []

    @tool_with_ctx(run_in_thread=False)
    def pay(context: ToolContext[object], n: int) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    config: ToolLoopConfig = ToolLoopConfig(compaction=keep_question)
    registry = ToolRegistry([pay])
    handle = ToolLoopHandle(ScriptedProvider([]), registry, "Pay.", config=config)
    for turn in range(4):
        provider = ScriptedProvider([AssistantMessage([ToolCall("call_0", "pay", json.dumps({"n": turn}))])])
        handle = ToolLoopHandle.restore(through_json(handle.snapshot()), provider, registry, ctx=None, config=config)
        assert isinstance(await handle.next_turn(), Yielded)
    assert len(set(keys)) == 4
    again = ToolLoopHandle.restore(
        through_json(handle.snapshot()), ScriptedProvider([]), registry, ctx=None, config=config
    )
    with pytest.raises(TranscriptError, match="'call_0' has the id of an earlier call"):
        again.resume(inject(ToolCall("call_0", "pay", "{}")))


def inject(call: ToolCall) -> Any:
    return InjectMessages((AssistantMessage([call]), ToolResult(call.id, "paid")))


@pytest.mark.parametrize("key", [None, b"key"])
async def test_an_approval_holds_for_the_turn_that_it_was_given_in(key: bytes | None) -> None:
    @tool(run_in_thread=False)
    def pay(n: int) -> str:
        """Pay."""
        return "paid"

    config: ToolLoopConfig = ToolLoopConfig(compaction=keep_question, on_tool_call=put_off, signing_key=key)
    registry = ToolRegistry([pay])
    bindings: list[str] = []
    handle = ToolLoopHandle(ScriptedProvider([]), registry, "Pay.", config=config)
    for _ in range(3):
        provider = ScriptedProvider([AssistantMessage([ToolCall("call_0", "pay", '{"n": 5}')])])
        handle = ToolLoopHandle.restore(through_json(handle.snapshot()), provider, registry, ctx=None, config=config)
        await handle.next_turn()
        [pending] = handle.pending_approvals
        for old in bindings:
            with pytest.raises(LoopUsageError, match="was made on another"):
                await handle.decide(pending.call_id, True, binding=old)
        bindings.append(pending.binding)
        await handle.decide(pending.call_id, True, binding=pending.binding)
        assert isinstance(await handle.next_turn(), Yielded)


@pytest.mark.parametrize(("fields", "wrong"), [((None, "pay", "{}"), "id"), (("a", None, "{}"), "name")])
def test_a_call_without_text_for_its_parts_is_refused_where_it_is_made(fields: tuple[Any, ...], wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the {wrong} of a ToolCall must be text, not None"):
        ToolCall(*fields)
    arguments: Any = {"n": 5}
    with pytest.raises(ConfigurationError, match="the arguments of a ToolCall must be text, not"):
        ToolCall("a", "pay", arguments)


def test_a_response_refuses_a_stop_reason_that_is_no_word_of_ours() -> None:
    reason: Any = "stop"
    with pytest.raises(ConfigurationError, match=r"stop_reason .* 'end_turn'.*not 'stop'"):
        ChatResponse(message=AssistantMessage("hi"), stop_reason=reason)
