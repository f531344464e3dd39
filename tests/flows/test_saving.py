"""A loop that is saved and taken up again, and decisions that come later."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import pytest

from toolkit import (
    AnswerFormat,
    ApprovalRequest,
    Approve,
    AssistantMessage,
    ChatRequest,
    Completed,
    Defer,
    Deny,
    Failed,
    LoopLimits,
    Middleware,
    Modify,
    SystemMessage,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    UsageLimits,
    UserMessage,
    Yielded,
    tool,
    tool_loop,
)
from toolkit.chat import UnansweredItem, dump_messages, validate_transcript
from toolkit.chat.messages import call_ids_of
from toolkit.endings import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    Complete,
    MaxIterations,
    MissingSteps,
    NoValidAnswer,
    ResultAsAnswer,
    StopCondition,
    Timeout,
    TypedAnswer,
    UnansweredItems,
    UsageLimit,
)
from toolkit.errors import LoopUsageError
from toolkit.events import LoopDetected
from toolkit.loop.feeds import Command
from toolkit.loop.outcome import TerminationReason
from toolkit.loop.snapshot import dump_snapshot, load_snapshot
from toolkit.policies import CallInfo, Continue, InjectMessages, Stop, stop_after
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


class Bank:
    def __init__(self) -> None:
        self.runs: list[str] = []

    def tools(self) -> ToolRegistry[object]:
        @tool
        def pay(amount: int, to: str = "rent") -> str:
            """Pay."""
            self.runs.append(f"pay {amount} {to}")
            return f"paid {amount}"

        @tool
        def look() -> str:
            """Look."""
            self.runs.append("look")
            return "seen"

        return ToolRegistry([pay, look])


def defer_payments(request: ApprovalRequest) -> Approve | Defer:
    return Defer() if request.tool_name == "pay" else Approve()


CONFIG: ToolLoopConfig = ToolLoopConfig(on_tool_call=defer_payments)
TURN = AssistantMessage(
    [
        ToolCall("p1", "pay", '{"amount": 3}'),
        ToolCall("l", "look", "{}"),
        ToolCall("p2", "pay", '{"amount": 4}'),
    ]
)


def through_json(snapshot: dict[str, Any] | None) -> dict[str, Any]:
    assert snapshot is not None
    plain: dict[str, Any] = json.loads(json.dumps(snapshot))
    return plain


async def test_a_deferred_call_ends_the_run_and_its_siblings_are_dealt_with() -> None:
    bank = Bank()
    result = await tool_loop(ScriptedProvider([TURN]), bank.tools(), "Pay.", config=CONFIG)
    assert isinstance(result.reason, AwaitingApproval)
    assert [call.id for call in result.reason.calls] == ["p1", "p2"]
    assert bank.runs == ["look"]
    validate_transcript(result.messages)
    waiting = "Not started: approval is awaited."
    assert [message.text for message in result.messages] == ["Pay.", "", waiting, "seen", waiting]


async def test_decisions_come_one_by_one_in_other_processes_and_nothing_runs_twice() -> None:
    bank = Bank()
    first = await tool_loop(ScriptedProvider([TURN]), bank.tools(), "Pay.", config=CONFIG)

    second = ToolLoopHandle.restore(
        through_json(first.snapshot), ScriptedProvider([]), bank.tools(), ctx=None, config=CONFIG
    )
    approval = second.pending_approvals[0]
    assert (approval.call_id, approval.tool_name, approval.arguments) == ("p1", "pay", {"amount": 3, "to": "rent"})
    await second.decide("p1", True, binding=approval.binding)
    outcome = await second.next_turn()
    assert isinstance(outcome, Completed)
    assert isinstance(outcome.reason, AwaitingApproval)
    assert bank.runs == ["look", "pay 3 rent"]

    provider = ScriptedProvider(["Paid one of two."])
    third = ToolLoopHandle.restore(through_json(second.snapshot()), provider, bank.tools(), ctx=None, config=CONFIG)
    approval = third.pending_approvals[0]
    await third.decide("p2", Deny("Too much."), binding=approval.binding)
    outcome = await third.next_turn()
    assert isinstance(outcome, Completed)
    assert outcome.reason == Complete()
    assert bank.runs == ["look", "pay 3 rent"]
    assert [message.text for message in outcome.result.messages] == [
        "Pay.",
        "",
        "paid 3",
        "seen",
        "Too much.",
        "Paid one of two.",
    ]
    validate_transcript(outcome.result.messages)


async def test_what_an_approver_changed_survives_saving() -> None:
    bank = Bank()
    turn = AssistantMessage([ToolCall("p1", "pay", '{"amount": 3}')])
    first = await tool_loop(ScriptedProvider([turn]), bank.tools(), "Pay.", config=CONFIG)
    handle = ToolLoopHandle.restore(
        through_json(first.snapshot), ScriptedProvider([]), bank.tools(), ctx=None, config=CONFIG
    )
    await handle.decide("p1", Modify({"amount": 1}), binding=handle.pending_approvals[0].binding)
    again = ToolLoopHandle.restore(
        through_json(handle.snapshot()), ScriptedProvider(["ok"]), bank.tools(), ctx=None, config=CONFIG
    )
    while isinstance(await again.next_turn(), Yielded):
        pass
    assert bank.runs == ["pay 1 rent"]


async def test_a_decision_on_something_else_is_refused() -> None:
    bank = Bank()
    first = await tool_loop(ScriptedProvider([TURN]), bank.tools(), "Pay.", config=CONFIG)
    handle = ToolLoopHandle.restore(
        through_json(first.snapshot), ScriptedProvider([]), bank.tools(), ctx=None, config=CONFIG
    )
    one, two = handle.pending_approvals
    with pytest.raises(LoopUsageError, match="other arguments"):
        await handle.decide("p1", True, binding=two.binding)
    with pytest.raises(LoopUsageError, match="no decision is awaited on call 'l'"):
        await handle.decide("l", True, binding=one.binding)
    assert bank.runs == ["look"]


async def test_closing_a_waiting_loop_answers_its_calls_as_not_started() -> None:
    bank = Bank()
    handle = ToolLoopHandle(ScriptedProvider([TURN]), bank.tools(), "Pay.", config=CONFIG)
    await handle.next_turn()
    await handle.close()
    result = handle.into_result()
    assert result.reason == Cancelled()
    assert [message.text.partition(":")[0] for message in result.messages[2:]] == ["Not started", "seen", "Not started"]
    validate_transcript(result.messages)


async def test_a_loop_can_be_saved_between_any_two_turns() -> None:
    def provider(replies: int) -> ScriptedProvider:
        script: list[ScriptedReply] = [AssistantMessage([ToolCall(f"l{turn}", "look", "{}")]) for turn in range(3)]
        return ScriptedProvider([*script, "done"][replies:])

    plain_bank = Bank()
    plain = await tool_loop(provider(0), plain_bank.tools(), [SystemMessage("Look."), UserMessage("thrice")])

    bank = Bank()
    request = ChatRequest(messages=[SystemMessage("Look."), UserMessage("thrice")], temperature=0.5, seed=7)
    handle = ToolLoopHandle(provider(0), bank.tools(), request)
    model = provider(0)
    turns = 0
    while isinstance(await handle.next_turn(), Yielded):
        turns += 1
        model = provider(turns)
        handle = ToolLoopHandle.restore(through_json(handle.snapshot()), model, bank.tools(), ctx=None)
    result = handle.into_result()
    assert dump_messages(result.messages) == dump_messages(plain.messages)
    assert (result.usage, result.iterations, result.tool_rounds) == (plain.usage, plain.iterations, plain.tool_rounds)
    assert bank.runs == plain_bank.runs == ["look"] * 3
    assert (model.requests[-1].temperature, model.requests[-1].seed) == (0.5, 7)


async def test_a_finished_loop_restores_as_finished() -> None:
    handle = ToolLoopHandle(ScriptedProvider(["hi"]), Bank().tools(), "Hello")
    await handle.next_turn()
    again = ToolLoopHandle.restore(through_json(handle.snapshot()), ScriptedProvider([]), Bank().tools(), ctx=None)
    assert again.is_finished
    assert again.into_result().text == "hi"


async def test_what_was_spent_stays_spent() -> None:
    config: ToolLoopConfig = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=1)))
    handle = ToolLoopHandle(
        ScriptedProvider([AssistantMessage([ToolCall("l", "look", "{}")])]), Bank().tools(), "Look", config=config
    )
    assert isinstance(await handle.next_turn(), Yielded)
    again = ToolLoopHandle.restore(
        through_json(handle.snapshot()), ScriptedProvider(["never"]), Bank().tools(), ctx=None, config=config
    )
    outcome = await again.next_turn()
    assert isinstance(outcome, Completed)
    assert outcome.reason == UsageLimit("requests", 1, 1)


async def pending_snapshot() -> dict[str, Any]:
    result = await tool_loop(ScriptedProvider([TURN]), Bank().tools(), "Pay.", config=CONFIG)
    return through_json(result.snapshot)


async def test_a_snapshot_of_another_version_is_refused() -> None:
    snapshot = {**await pending_snapshot(), "version": 99}
    with pytest.raises(LoopUsageError, match="version 99"):
        ToolLoopHandle.restore(snapshot, ScriptedProvider([]), Bank().tools(), ctx=None)


async def test_a_snapshot_edited_by_hand_is_refused() -> None:
    snapshot = await pending_snapshot()
    snapshot["loop"]["state"]["messages"][1]["content"][0]["arguments"] = '{"amount":1000000}'
    with pytest.raises(LoopUsageError, match="changed after it was made"):
        ToolLoopHandle.restore(snapshot, ScriptedProvider([]), Bank().tools(), ctx=None)


@pytest.mark.parametrize("nonsense", [{}, {"messages": []}, [], "x"])
async def test_what_is_no_snapshot_is_refused(nonsense: Any) -> None:
    with pytest.raises(LoopUsageError, match="no snapshot"):
        ToolLoopHandle.restore(nonsense, ScriptedProvider([]), Bank().tools(), ctx=None)


async def test_a_snapshot_whose_tools_are_gone_is_refused() -> None:
    snapshot = await pending_snapshot()
    with pytest.raises(LoopUsageError, match="Unknown tool: pay"):
        ToolLoopHandle.restore(snapshot, ScriptedProvider([]), ToolRegistry(), ctx=None, config=CONFIG)


async def test_a_loop_that_failed_asks_again_where_it_is_restored() -> None:
    handle = ToolLoopHandle(ScriptedProvider([RuntimeError("no")]), Bank().tools(), "Hello")
    assert isinstance(await handle.next_turn(), Failed)
    restored = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider(["Hello!"]), Bank().tools(), ctx=None)
    assert (await restored.run()).text == "Hello!"


class Calls(Middleware[object]):
    """Counts the calls of a run, however often it goes on."""

    name = "calls"

    def __init__(self) -> None:
        self.count = 0

    async def guard_call(self, call: CallInfo[object]) -> None:
        self.count += 1

    def save(self) -> int:
        return self.count

    def load(self, state: int) -> None:
        self.count = state


ENDED: dict[str, tuple[list[ScriptedReply], ToolLoopConfig[Any]]] = {
    "complete": (["Done."], ToolLoopConfig()),
    "max_iterations": ([], ToolLoopConfig(max_iterations=1)),
    "stop_condition": ([], ToolLoopConfig(stop_when=stop_after(steps=2))),
    "usage_limit": ([], ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(tool_calls=1)))),
    "result_as_answer": ([ToolCall("f", "finish", "{}")], ToolLoopConfig()),
    "typed_answer": ([ToolCall("f", "final_answer", '{"answer": 3}')], ToolLoopConfig(answer=AnswerFormat(int))),
    "failed": ([RuntimeError("no")], ToolLoopConfig()),
}


@tool(result_as_answer=True)
async def finish() -> str:
    """Give the answer."""
    return "finished"


@tool
async def count(n: int) -> str:
    """Count."""
    return str(n)


@pytest.mark.parametrize("ending", ENDED)
async def test_a_loop_goes_on_after_its_end_with_what_it_has_used(ending: str) -> None:
    replies, config = ENDED[ending]
    tools = ToolRegistry([count, finish])
    calls, after = Calls(), Calls()
    first = ScriptedProvider([ToolCall("1", "count", '{"n": 1}'), *replies, ToolCall("x", "count", '{"n": 2}')])
    handle: Any = ToolLoopHandle(first, tools, "Count.", config=replace(config, middleware=[calls]))
    with suppress(RuntimeError):
        assert (await handle.run()).reason.kind == ending
    used = call_ids_of(handle.messages)
    second = ScriptedProvider([ToolCall("1", "count", '{"n": 3}'), "All counted."])
    limits = LoopLimits(usage=UsageLimits(tool_calls=3))
    restored = ToolLoopHandle.restore(
        json.loads(json.dumps(handle.snapshot())),
        second,
        tools,
        ctx=None,
        config=ToolLoopConfig(middleware=[after], limits=limits),
        messages=[UserMessage("And on.")],
    )
    result = await restored.run()
    assert result.text == "All counted."
    assert result.iterations == handle.iterations + 2
    assert result.usage.input_tokens == handle.usage.input_tokens + 20
    assert after.count == calls.count + 1
    validate_transcript(result.messages)
    assert len(call_ids_of(result.messages)) == len(used) + 1, "an id is used once, also after the end"


async def test_a_limit_that_was_reached_is_reached_again_where_the_loop_goes_on() -> None:
    config: ToolLoopConfig = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=2)))
    tools = ToolRegistry([count])
    handle = ToolLoopHandle(ScriptedProvider(["One.", "Two."]), tools, "Go.", config=config)
    await handle.run()
    snapshot = handle.snapshot()
    for text, requests in (("Two.", 1), ("", 0)):
        provider = ScriptedProvider(["Two.", "Three."])
        restored = ToolLoopHandle.restore(
            snapshot, provider, tools, ctx=None, config=config, messages=[UserMessage("And?")]
        )
        result = await restored.run()
        assert (len(provider.requests), result.text if requests else "") == (requests, text)
        snapshot = restored.snapshot()
    assert result.reason == UsageLimit("requests", 2, 2)


async def test_messages_are_for_a_loop_that_awaits_no_decision() -> None:
    bank = Bank()
    handle = ToolLoopHandle(
        ScriptedProvider([TURN]), bank.tools(), "Pay.", config=ToolLoopConfig(on_tool_call=defer_payments)
    )
    await handle.run()
    with pytest.raises(LoopUsageError, match="awaits decisions"):
        ToolLoopHandle.restore(
            handle.snapshot(), ScriptedProvider([]), bank.tools(), ctx=None, messages=[UserMessage("And?")]
        )


async def test_options_that_are_no_json_can_not_be_saved() -> None:
    request = ChatRequest(messages=[UserMessage("hi")], options={"callback": object()})
    handle = ToolLoopHandle(ScriptedProvider(["hi"]), Bank().tools(), request)
    with pytest.raises(LoopUsageError, match="can't be saved"):
        handle.snapshot()


async def test_a_late_approval_beyond_the_budget_is_answered_and_ends_the_loop() -> None:
    bank = Bank()
    config: ToolLoopConfig = ToolLoopConfig(
        on_tool_call=defer_payments, limits=LoopLimits(usage=UsageLimits(tool_calls=2))
    )
    handle = ToolLoopHandle(ScriptedProvider([TURN]), bank.tools(), "Pay.", config=config)
    await handle.next_turn()
    for approval in handle.pending_approvals:
        await handle.decide(approval.call_id, True, binding=approval.binding)
    while isinstance(await handle.next_turn(), Yielded):
        pass
    result = handle.into_result()
    assert result.reason == UsageLimit("tool_calls", 2, 2)
    assert bank.runs == ["look", "pay 3 rent"]
    assert result.messages[-1].text == "Not started: the run may make 2 tool calls, and they are used up."
    validate_transcript(result.messages)


REASONS: list[TerminationReason] = [
    Complete(),
    MaxIterations(3),
    Timeout(0.5),
    StopCondition(),
    StopCondition("enough"),
    LoopDetected(tool_name="look", count=3, action="stop", is_in_row=False),
    ResultAsAnswer("l", "look"),
    TypedAnswer(),
    NoValidAnswer("answer: required"),
    MissingSteps(("look",)),
    UsageLimit("cost", 0.5, 0.75),
    UnansweredItems((UnansweredItem("computer_call", "i", "click"),)),
    Aborted("no"),
    Cancelled(),
    Cancelled("the user left"),
]
COMMANDS: list[Command] = [Continue(), Stop(), Stop("enough"), InjectMessages((UserMessage("more"),))]


def test_each_reason_and_command_stands_in_the_tables() -> None:
    assert {type(reason) for reason in REASONS} | {AwaitingApproval} == set(get_args(TerminationReason))
    assert {type(command) for command in COMMANDS} == set(get_args(Command))
    assert len({each.kind for each in REASONS}) == len({type(each) for each in REASONS})


@pytest.mark.parametrize("reason", REASONS, ids=repr)
async def test_a_restored_loop_ends_as_it_ended(reason: TerminationReason) -> None:
    saved = load_snapshot(ToolLoopHandle(ScriptedProvider([]), Bank().tools(), "Hello").snapshot(), None)
    saved.state.reason = reason
    snapshot = through_json(dump_snapshot(saved, [], None))
    again = ToolLoopHandle.restore(snapshot, ScriptedProvider([]), Bank().tools(), ctx=None)
    assert again.is_finished
    assert again.result.reason == reason


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
async def test_a_command_is_saved_as_what_it_is(command: Command) -> None:
    handle = ToolLoopHandle(ScriptedProvider([]), Bank().tools(), "Hello")
    handle.resume(command)
    snapshot = through_json(handle.snapshot())
    provider = ScriptedProvider(["hi"])
    outcome = await ToolLoopHandle.restore(snapshot, provider, Bank().tools(), ctx=None).next_turn()
    assert isinstance(outcome, Completed)
    assert outcome.reason == (StopCondition(command.reason) if isinstance(command, Stop) else Complete())
    asked = [message.text for request in provider.requests for message in request.messages]
    expected = {"continue": ["Hello"], "stop": [], "inject_messages": ["Hello", "more"]}
    assert asked == expected[command.kind]
