"""A loop that goes on in another process: its ids, its decisions, and the events of its start and its end."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from toolkit import (
    Abort,
    ApprovalRequest,
    AssistantMessage,
    Defer,
    Deny,
    LoopLimits,
    Message,
    Permissions,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    UsageLimits,
    Yielded,
    deny,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse
from toolkit.endings import AwaitingApproval
from toolkit.errors import ConfigurationError, LoopUsageError, TranscriptError
from toolkit.events import Done, RunStart, ToolCallRefused
from toolkit.policies import InjectMessages
from toolkit.testing import EventCollector, ScriptedProvider

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
    with pytest.raises(ConfigurationError, match="the arguments of a ToolCall must be JSON text, not dict"):
        ToolCall("a", "pay", arguments)


def test_a_response_refuses_a_stop_reason_that_is_no_word_of_ours() -> None:
    reason: Any = "stop"
    with pytest.raises(ConfigurationError, match=r"stop_reason .* 'end_turn'.*not 'stop'"):
        ChatResponse(message=AssistantMessage("hi"), stop_reason=reason)


# the events of a restored run, and decisions that no longer fit


@tool(run_in_thread=False)
def look(n: int = 0) -> str:
    """Look."""
    return "seen"


def make_pay(default: int = 5) -> ToolRegistry[object]:
    @tool(run_in_thread=False)
    def pay(n: int, more: int = default) -> str:
        """Pay."""
        return "paid"

    return ToolRegistry([pay, look])


async def defer_payment(**settings: Any) -> dict[str, Any]:
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off, **settings)
    provider = ScriptedProvider([AssistantMessage([ToolCall("p", "pay", '{"n": 1}')])])
    return through_json((await tool_loop(provider, make_pay(), "Pay.", config=config)).snapshot)


ONE_CALL = LoopLimits(usage=UsageLimits(tool_calls=0))
ENDINGS: list[tuple[Any, dict[str, Any], list[type]]] = [
    (Abort("enough"), {}, [RunStart, ToolCallRefused, Done]),
    (Deny("no"), {"max_iterations": 1}, [RunStart, ToolCallRefused, Done]),
    (True, {"limits": ONE_CALL}, [RunStart, ToolCallRefused, Done]),
]


@pytest.mark.parametrize("view", ["run", "stream", "next_turn", "tool_loop"])
@pytest.mark.parametrize(("decision", "settings", "kinds"), ENDINGS, ids=["abort", "denial", "limit"])
async def test_a_run_that_a_decision_ends_at_once_emits_its_start_and_its_end(
    view: str, decision: Any, settings: dict[str, Any], kinds: list[type]
) -> None:
    snapshot = await defer_payment(**settings)
    events = EventCollector()
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off, on_event=events, **settings)
    provider = ScriptedProvider([])
    if view == "tool_loop":
        result = await tool_loop(provider, make_pay(), snapshot, config=config, decisions={"p": decision})
    else:
        handle = ToolLoopHandle.restore(snapshot, provider, make_pay(), ctx=None, config=config)
        [pending] = handle.pending_approvals
        await handle.decide("p", decision, binding=pending.binding)
        if view == "stream":
            async with handle.stream() as stream:
                streamed = [event async for event in stream]
            assert streamed == events.events
        else:
            await (handle.run() if view == "run" else handle.next_turn())
        result = handle.result
        assert await handle.run() == result
    assert [type(event) for event in events.events] == kinds
    done = events.events[-1]
    assert isinstance(done, Done)
    assert done.result.reason == result.reason


@pytest.mark.parametrize("is_finished", [True, False])
async def test_a_restored_run_that_has_nothing_to_do_emits_its_start_and_its_end(is_finished: bool) -> None:
    snapshot = await defer_payment()
    if is_finished:
        handle = ToolLoopHandle(ScriptedProvider(["hi"]), make_pay(), "Hello")
        await handle.run()
        snapshot = through_json(handle.snapshot())
    events = EventCollector()
    config: ToolLoopConfig = ToolLoopConfig(on_event=events)
    for _ in range(2):
        await tool_loop(ScriptedProvider([]), make_pay(), snapshot, config=config)
    assert [type(event) for event in events.events] == [RunStart, Done] * 2


async def test_a_decision_that_no_longer_fits_is_asked_again() -> None:
    snapshot = await defer_payment()
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off)
    result = await tool_loop(ScriptedProvider([]), make_pay(6), snapshot, config=config, decisions={"p": True})
    assert isinstance(result.reason, AwaitingApproval)
    assert result.snapshot is not None
    [pending] = result.snapshot["pending_approvals"]
    assert pending["arguments"] == {"n": 1, "more": 6}
    again = ScriptedProvider(["Paid."])
    result = await tool_loop(again, make_pay(6), result.snapshot, config=config, decisions={"p": True})
    assert [message.text for message in result.messages] == ["Pay.", "", "paid", "Paid."]


async def test_a_decision_on_a_call_that_is_refused_by_now_raises_nothing() -> None:
    snapshot = await defer_payment()
    registry = make_pay()
    registry.permissions = Permissions([deny("pay")])
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off)
    result = await tool_loop(ScriptedProvider(["ok"]), registry, snapshot, config=config, decisions={"p": True})
    assert result.messages[2].text == "Tool 'pay' may not be called here."
    with pytest.raises(LoopUsageError, match="no decision is awaited on call 'q'"):
        await tool_loop(ScriptedProvider(["ok"]), registry, snapshot, config=config, decisions={"q": True})
