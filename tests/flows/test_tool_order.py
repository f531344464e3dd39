"""Which tools come before others, and before the answer: what is refused, sent back, counted and saved."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    LoopDetectionConfig,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import validate_transcript
from toolkit.endings import Complete, MaxIterations, MissingSteps, ResultAsAnswer, TerminationReason, TypedAnswer
from toolkit.errors import ToolFailedError
from toolkit.policies import Batched, Defer, Deny, Execution, Parallel, Sequential, ToolOrder, stop_after
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


@tool
async def lookup(order: int) -> str:
    """Look an order up."""
    if order < 0:
        raise ToolFailedError("there is no such order")
    return f"order {order}: 3 euros"


@tool
async def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool
async def search(words: str) -> str:
    """Search."""
    return f"about {words}"


@tool(result_as_answer=True)
async def hand_over() -> str:
    """Hand over to a person."""
    return "a person takes over"


TOOLS = ToolRegistry([lookup, refund, search, hand_over])
AFTER = ToolOrder(after={"refund": "lookup"})
STEPS = ToolOrder(required_steps=("search",))


def call(name: str, call_id: str, **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


def texts(messages: list[Any]) -> dict[str, str]:
    return {each.call_id: each.text for each in messages if isinstance(each, ToolResult)}


LOOK, REFUND, SEARCH = call("lookup", "l", order=1), call("refund", "r", order=1), call("search", "s", words="x")
FIRST = "Not run: call lookup first, and refund once you have read what that gives."
BESIDE = (
    "Not run: refund needs the result of lookup, which you asked for in the same reply. Read that result, then call "
    "refund again."
)


def deny_lookup(request: Any) -> Any:
    return Deny("No.") if request.tool_name == "lookup" else True


@dataclass
class Case:
    """Replies, what the call ``r`` of refund is told, and how the run ends."""

    replies: list[ScriptedReply]
    refund: str
    order: ToolOrder = AFTER
    config: dict[str, Any] = field(default_factory=dict[str, Any])


CASES = {
    "it comes too early": Case([REFUND, "ok"], FIRST),
    "it comes after": Case([LOOK, REFUND, "ok"], "refunded 1"),
    "it is asked for again": Case(
        [call("refund", "q", order=1), LOOK, REFUND, "ok"],
        "refunded 1",
    ),
    "beside what comes first": Case([AssistantMessage([LOOK, REFUND]), "ok"], BESIDE),
    "before what comes first": Case([AssistantMessage([REFUND, LOOK]), "ok"], BESIDE),
    "its name is repaired": Case(
        [call("Look-Up", "l", order=1), call("functions.Refund", "r", order=1), "ok"], "refunded 1"
    ),
    "its repaired name comes too early": Case([call("functions.Refund", "r", order=1), "ok"], FIRST),
    "what comes first failed": Case([call("lookup", "l", order=-1), REFUND, "ok"], FIRST),
    "what comes first was called wrongly": Case([call("lookup", "l", number=1), REFUND, "ok"], FIRST),
    "what comes first does not exist": Case([call("look_for", "l", order=1), REFUND, "ok"], FIRST),
    "what comes first was denied": Case(
        [LOOK, REFUND, "ok"],
        FIRST,
        config={"on_tool_call": deny_lookup},
    ),
    "it failed once and worked then": Case(
        [call("lookup", "k", order=-1), LOOK, REFUND, "ok"],
        "refunded 1",
    ),
    "its arguments are wrong too": Case([call("refund", "r"), "ok"], FIRST),
    "two come first": Case(
        [LOOK, REFUND, "ok"],
        "Not run: call search first, and refund once you have read what that gives.",
        order=ToolOrder(after={"refund": ["lookup", "search"]}),
    ),
    "a chain comes first": Case(
        [REFUND, "ok"],
        "Not run: call search, then lookup first, and refund once you have read what that gives.",
        order=ToolOrder(after={"refund": "lookup", "lookup": "search"}),
    ),
    "a loop is looked for too": Case(
        [REFUND, call("refund", "r2", order=1), "ok"],
        FIRST,
        config={"loop_detection": LoopDetectionConfig(threshold=2, action="skip")},
    ),
    "a stop condition looks on": Case([REFUND, "ok"], FIRST, config={"stop_when": stop_after(steps=9)}),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_call_runs_only_after_what_comes_first_has_given_a_result(name: str) -> None:
    case = CASES[name]
    config = replace(ToolLoopConfig(middleware=(case.order,)), **case.config)
    result = await tool_loop(ScriptedProvider(case.replies), TOOLS, "Go", config=config)
    assert texts(result.messages)["r"] == case.refund
    assert result.reason == Complete()
    assert result.text == "ok"
    validate_transcript(result.messages)


@pytest.mark.parametrize("execution", [Parallel(), Sequential(), Batched(1)], ids=repr)
async def test_a_result_of_the_same_reply_never_counts_however_calls_are_run(execution: Execution) -> None:
    config = ToolLoopConfig(middleware=(AFTER,), execution=execution)
    provider = ScriptedProvider([AssistantMessage([LOOK, REFUND]), call("refund", "again", order=1), "ok"])
    result = await tool_loop(provider, TOOLS, "Go", config=config)
    assert texts(result.messages) == {"l": "order 1: 3 euros", "r": BESIDE, "again": "refunded 1"}


async def test_nobody_is_asked_about_a_call_that_comes_too_early() -> None:
    asked: list[str] = []

    def approve(request: Any) -> bool:
        asked.append(request.tool_name)
        return True

    config = ToolLoopConfig(middleware=(AFTER,), on_tool_call=approve)
    await tool_loop(ScriptedProvider([REFUND, "ok"]), TOOLS, "Go", config=config)
    assert asked == []


NOT_YET = "Not yet: call search before you answer."


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_an_answer_before_the_required_steps_is_sent_back_as_often_as_allowed(retries: int) -> None:
    order = ToolOrder(required_steps=("search",), max_retries=retries)
    provider = ScriptedProvider(["It is so."], repeats=True)
    result = await tool_loop(provider, TOOLS, "Go", config=ToolLoopConfig(middleware=(order,)))
    assert result.reason == MissingSteps(("search",))
    assert len(provider.requests) == retries + 1
    assert [each.text for each in result.messages] == ["Go", *["It is so.", NOT_YET] * retries, "It is so."]
    validate_transcript(result.messages)


WAYS: dict[str, tuple[AnswerFormat[Any] | None, list[ScriptedReply], TerminationReason]] = {
    "in words": (None, ["early", SEARCH, "late"], Complete()),
    "by a tool whose result is the answer": (
        None,
        [call("hand_over", "1"), SEARCH, call("hand_over", "2")],
        ResultAsAnswer("2", "hand_over"),
    ),
    "by the answer's tool": (
        AnswerFormat(),
        [call("final_answer", "1", answer="early"), SEARCH, call("final_answer", "2", answer="late")],
        ResultAsAnswer("2", "final_answer"),
    ),
    "of a type": (
        AnswerFormat(int, max_retries=0),
        [call("final_answer", "1", answer=1), SEARCH, call("final_answer", "2", answer=2)],
        TypedAnswer(),
    ),
    "of a type, and wrong too": (
        AnswerFormat(int, max_retries=0),
        [call("final_answer", "1", answer="one"), SEARCH, call("final_answer", "2", answer=2)],
        TypedAnswer(),
    ),
    "of a type, natively": (
        AnswerFormat(int, mode="native", max_retries=0),
        ['{"answer": 1}', SEARCH, '{"answer": 2}'],
        TypedAnswer(),
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_an_answer_counts_once_the_required_steps_were_made_however_it_is_given(way: str) -> None:
    answer, replies, reason = WAYS[way]
    order = ToolOrder(required_steps=("search",), max_retries=1)
    provider = ScriptedProvider(replies)
    result = await tool_loop(provider, TOOLS, "Go", config=ToolLoopConfig(middleware=(order,), answer=answer))
    assert result.reason == reason
    assert len(provider.requests) == 3
    validate_transcript(result.messages)
    # One time more than allowed:
    again = ScriptedProvider([replies[0], replies[0], *replies])
    result = await tool_loop(again, TOOLS, "Go", config=ToolLoopConfig(middleware=(order,), answer=answer))
    assert result.reason == MissingSteps(("search",))
    assert len(again.requests) == 2
    validate_transcript(result.messages)


async def test_an_answer_beside_the_last_required_step_waits_for_its_result_and_is_not_counted() -> None:
    order = ToolOrder(required_steps=("search",), max_retries=0)
    both = AssistantMessage([SEARCH, call("final_answer", "a", answer="early")])
    provider = ScriptedProvider([both, call("final_answer", "b", answer="late")])
    result = await tool_loop(provider, TOOLS, "Go", config=ToolLoopConfig(middleware=(order,), answer=AnswerFormat()))
    assert (result.text, result.reason) == ("late", ResultAsAnswer("b", "final_answer"))
    assert texts(result.messages)["a"].startswith("Not run: final_answer needs the result of search, which you asked")


async def test_steps_are_named_in_the_order_in_which_they_can_be_made() -> None:
    order = ToolOrder(required_steps=("refund", "search"), after={"refund": "lookup"})
    provider = ScriptedProvider(["early", LOOK, "early", REFUND, "early"])
    result = await tool_loop(provider, TOOLS, "Go", config=ToolLoopConfig(middleware=(order,)))
    told = [each.text for each in result.messages if isinstance(each, UserMessage)][1:]
    assert told == [
        "Not yet: call lookup, then refund, then search before you answer.",
        "Not yet: call refund, then search before you answer.",
    ]
    assert result.reason == MissingSteps(("search",))


async def test_the_limit_of_turns_ends_a_run_as_before() -> None:
    config = ToolLoopConfig(middleware=(STEPS,), max_iterations=1, on_max_iterations="answer")
    result = await tool_loop(ScriptedProvider([LOOK, "That's it."]), TOOLS, "Go", config=config)
    assert (result.reason, result.text) == (MaxIterations(1), "That's it.")


@pytest.mark.parametrize("step", range(4))
async def test_what_was_used_and_sent_back_survives_saving(step: int) -> None:
    order = ToolOrder(required_steps=("search",), after={"refund": "lookup"}, max_retries=1)
    config = ToolLoopConfig(middleware=(order,))
    replies: list[ScriptedReply] = [LOOK, "early", REFUND, "early again"]
    handle = ToolLoopHandle(ScriptedProvider(replies), TOOLS, "Go", config=config)
    for _ in range(step):
        await handle.next_turn()
    saved = json.loads(json.dumps(handle.snapshot()))
    restored = ToolLoopHandle.restore(saved, ScriptedProvider(replies[step:]), TOOLS, ctx=None, config=config)
    result = await restored.run()
    assert texts(result.messages)["r"] == "refunded 1"
    assert result.reason == MissingSteps(("search",))
    validate_transcript(result.messages)


async def test_a_call_that_was_decided_on_after_restoring_counts() -> None:
    config = ToolLoopConfig(
        middleware=(AFTER,), on_tool_call=lambda request: Defer() if request.tool_name == "lookup" else True
    )
    handle = ToolLoopHandle(ScriptedProvider([LOOK]), TOOLS, "Go", config=config)
    await handle.run()
    again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([REFUND, "ok"]), TOOLS, ctx=None, config=config)
    for approval in again.pending_approvals:
        await again.decide(approval.call_id, True, binding=approval.binding)
    result = await again.run()
    assert texts(result.messages)["r"] == "refunded 1"


async def test_what_an_earlier_run_did_does_not_count() -> None:
    first = await tool_loop(ScriptedProvider([LOOK, "ok"]), TOOLS, "Go", config=ToolLoopConfig(middleware=(AFTER,)))
    second = await tool_loop(
        ScriptedProvider([REFUND, "ok"]),
        TOOLS,
        [*first.messages, UserMessage("And now?")],
        config=ToolLoopConfig(middleware=(AFTER,)),
    )
    assert texts(second.messages)["r"] == FIRST


async def test_the_names_are_those_of_the_scope() -> None:
    order = ToolOrder(after={"shop__refund": "shop__lookup"})
    replies: list[ScriptedReply] = [call("shop__lookup", "l", order=1), call("shop__refund", "r", order=1), "ok"]
    result = await tool_loop(
        ScriptedProvider(replies), TOOLS.prefixed("shop"), "Go", config=ToolLoopConfig(middleware=(order,))
    )
    assert texts(result.messages)["r"] == "refunded 1"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a step that is not there": (
        {"required_steps": ("serch",)},
        "order.required_steps names 'serch', .*did you mean 'search'",
    ),
    "a tool that is not there": ({"after": {"refnd": "lookup"}}, "order.after names 'refnd', .*did you mean 'refund'"),
    "what comes first is not there": (
        {"after": {"refund": "look"}},
        "order.after names 'look', .*did you mean 'lookup'",
    ),
    "nothing is near": ({"required_steps": ["zzzz"]}, "names 'zzzz', .* there are: lookup, refund, search"),
    "text for several": ({"required_steps": "search"}, r"order.required_steps must be several, such as \['search'\]"),
    "no text": ({"after": {"refund": [3]}}, "what comes before 'refund' in order.after must be text, not 3"),
    "no mapping": ({"after": ["refund"]}, "order.after must be a mapping"),
    "after itself": ({"after": {"refund": "refund"}}, "order.after has 'refund' come after itself"),
    "after itself by a detour": (
        {"after": {"refund": "lookup", "lookup": ["search"], "search": "refund"}},
        "order.after has 'refund' come after itself",
    ),
    "fewer than none": ({"max_retries": -1}, "order.max_retries must be 0 or more"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_order_that_can_not_be_kept_is_refused_before_anything_runs(wrong: str) -> None:
    settings, message = WRONG[wrong]
    with pytest.raises(ConfigurationError, match=message):
        ToolLoopHandle(ScriptedProvider([]), TOOLS, "Go", config=ToolLoopConfig(middleware=(ToolOrder(**settings),)))


def test_a_step_that_is_not_offered_is_refused() -> None:
    for registry, prompt in (
        (TOOLS.without(["search"]), "Go"),
        (TOOLS, ChatRequest(messages=[UserMessage("Go")], tools=[lookup.definition])),
    ):
        with pytest.raises(
            ConfigurationError, match=r"order\.required_steps names 'search', and no tool of that name is"
        ):
            ToolLoopHandle(ScriptedProvider([]), registry, prompt, config=ToolLoopConfig(middleware=(STEPS,)))
