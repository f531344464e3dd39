"""What decides without waiting: stop conditions, repetition, budgets, depth."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from toolkit import (
    AssistantMessage,
    ConfigurationError,
    LoopDetectionConfig,
    ToolCall,
    ToolResult,
    Usage,
    UsageLimits,
    stop_after,
)
from toolkit.calls.prepare import canonical_arguments
from toolkit.chat import ChatResponse
from toolkit.endings import UsageLimit
from toolkit.errors import MaxDepthExceededError
from toolkit.loop.limits import (
    LoopDetector,
    LoopFrame,
    RunBudget,
    current_call,
    enter_depth,
    nested_context,
    warning_text,
)
from toolkit.policies import Continue, Stop, StopContext, and_, or_, token_budget, when_called

# stop conditions


def context(iteration: int = 1, *, calls: tuple[str, ...] = (), tokens: int = 0) -> StopContext:
    message = AssistantMessage([ToolCall(name, name, "{}") for name in calls])
    return StopContext(
        iteration=iteration,
        response=ChatResponse(message=message),
        usage=Usage(input_tokens=tokens),
        tool_calls_executed=0,
        last_tool_results=(),
    )


def test_ready_made_conditions_stop_when_they_say() -> None:
    assert stop_after(steps=2)(context(1)) == Continue()
    assert stop_after(steps=2)(context(2)) == Stop("2 steps were made")
    assert when_called("end")(context(calls=("go",))) == Continue()
    assert when_called("end")(context(calls=("go", "end"))) == Stop("end was called")
    assert token_budget(10)(context(tokens=9)) == Continue()
    assert token_budget(10)(context(tokens=10)) == Stop("10 of 10 tokens are used")


def test_conditions_combine() -> None:
    either = or_(stop_after(steps=3), when_called("end"))
    both = and_(stop_after(steps=3), when_called("end"))
    assert either(context(1)) == both(context(3)) == both(context(1, calls=("end",))) == Continue()
    assert either(context(1, calls=("end",))) == Stop("end was called")
    assert both(context(3, calls=("end",))) == Stop("3 steps were made; end was called")
    assert or_()(context()) == Continue()


def test_a_condition_that_would_stop_at_once_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be 1 or more, not 0"):
        stop_after(steps=0)
    with pytest.raises(ConfigurationError, match="must be 1 or more, not 0"):
        token_budget(0)
    with pytest.raises(ConfigurationError, match="at least one condition"):
        and_()


# repetition


@dataclass(frozen=True)
class Turns:
    name: str
    config: LoopDetectionConfig
    turns: tuple[str, ...]
    counts: tuple[int | None, ...]


WARN = LoopDetectionConfig(threshold=2)
A, B, A_AGAIN = 'f {"x": 1, "y": 2}', 'f {"x": 2}', 'f {"y":2,"x":1}'
G = 'g {"x": 1}'
CALLS = replace(WARN, mode="call")
DETECTIONS = [
    Turns("the same in a row", WARN, (A, A, A), (None, 2, 3)),
    Turns("another call starts anew", WARN, (A, B, A, A), (None, None, None, 2)),
    Turns("the order of keys does not matter", WARN, (A, A_AGAIN), (None, 2)),
    Turns("a number is not its fraction", WARN, ('f {"x": 1}', 'f {"x": 1.0}'), (None, None)),
    Turns("nor a text", WARN, ('f {"x": 1}', 'f {"x": "1"}'), (None, None)),
    Turns("what is no JSON is compared as text", WARN, ("f {x", "f {x", "f {y"), (None, 2, None)),
    Turns("a batch is one", WARN, (f"{A} | {B}", f"{A} | {B}"), (None, 2)),
    Turns("another order is another batch", WARN, (f"{A} | {B}", f"{B} | {A}"), (None, None)),
    Turns("unless order is ignored", replace(WARN, ignore_order=True), (f"{A} | {B}", f"{B} | {A}"), (None, 2)),
    Turns("three of one turn are one batch", WARN, (f"{A} | {A} | {A}",), (None,)),
    Turns("but three calls", replace(WARN, mode="call", threshold=3), (f"{A} | {A} | {A}",), (3,)),
    Turns("a tool may be exempt", replace(WARN, exempt={"f"}), (A, A, A), (None, None, None)),
    Turns(
        "a warning comes at each threshold", replace(WARN, action="inject_warning"), (A,) * 5, (None, 2, None, 4, None)
    ),
    Turns("a, b, a, b is seen in a window", replace(WARN, window=4), (A, B, A, B), (None, None, 2, 2)),
    Turns("and forgotten outside of it", replace(WARN, window=2), (A, B, A), (None, None, None)),
    Turns("two calls side by side", replace(CALLS, threshold=3), (f"{A} | {B}",) * 3, (None, None, 3)),
    Turns("in any order", replace(CALLS, threshold=3), (f"{A} | {B}", f"{B} | {A}", f"{A} | {B}"), (None, None, 3)),
    Turns("beside others", replace(CALLS, threshold=3), (f"{A} | {B}", f"{A} | {G}", f"{A} | {B}"), (None, None, 3)),
    Turns("two calls that alternate", replace(CALLS, threshold=3), (A, G) * 3, (None,) * 4 + (3, 3)),
    Turns("two calls of one tool that alternate", replace(CALLS, threshold=3), (A, B) * 3, (None,) * 4 + (3, 3)),
    Turns("alternating twice", CALLS, (A, G) * 2, (None, None, None, 2)),
    Turns("no loop: what lies between differs", replace(CALLS, threshold=3), (A, G, A, B, A), (None,) * 5),
    Turns("first alternating, then in a row", replace(CALLS, threshold=3), (A, G, A, A, A), (None,) * 4 + (3,)),
]


def calls_of(turn: str) -> list[tuple[str, str]]:
    parts = [part.split(" ", 1) for part in turn.split(" | ")]
    return [(name, canonical_arguments(arguments)) for name, arguments in parts]


@pytest.mark.parametrize("case", DETECTIONS, ids=lambda case: case.name)
def test_repetition_is_counted(case: Turns) -> None:
    detector = LoopDetector(case.config)
    counts: list[int | None] = []
    for turn in case.turns:
        found = detector.saw_calls(calls_of(turn))
        counts.append(found.fact.count if found is not None and found.is_due else None)
    assert tuple(counts) == case.counts


@pytest.mark.parametrize(
    ("results", "counts"), [("abbb", [None, None, None, 3]), ("abcd", [None] * 4), ("aaaa", [None, None, 3, 4])]
)
def test_another_result_is_progress_where_results_count(results: str, counts: list[int | None]) -> None:
    detector = LoopDetector(LoopDetectionConfig(threshold=3, include_results=True))
    seen: list[int | None] = []
    for text in results:
        found = detector.saw_calls(calls_of(A))
        seen.append(None if found is None else found.fact.count)
        detector.saw_results([ToolResult("c0", text)])
    assert seen == counts


WAYS = [
    replace(WARN, threshold=3),
    replace(WARN, threshold=3, window=5),
    replace(CALLS, threshold=3),
    replace(CALLS, threshold=3, window=9, include_results=True),
    replace(CALLS, threshold=3, include_results=True, exempt={"poll"}),
]
MANY = (A, A, f"{A} | {G}", G, A, G, "poll {}", A, f"poll {{}} | {G}", B, B, B, B)


@pytest.mark.parametrize("config", WAYS, ids=str)
def test_what_was_counted_can_be_saved_after_any_turn(config: LoopDetectionConfig) -> None:
    kept, saved = LoopDetector(config), LoopDetector(config)
    for turn in MANY:
        calls = calls_of(turn)
        assert saved.saw_calls(calls) == kept.saw_calls(calls)
        for detector in (kept, saved):
            detector.saw_results([ToolResult(f"c{index}", "same") for index in range(len(calls))])
        plain = json.loads(json.dumps(saved.state()))
        saved = LoopDetector(config)
        saved.restore(plain)


@pytest.mark.parametrize("mode", ["batch", "call"])
@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize(
    ("results", "counts"),
    [("abbb", [None, None, None, 3]), ("abcd", [None] * 4), ("aaaa", [None, None, 3, 4])],
)
def test_a_window_counts_what_gave_the_same(
    mode: Any, window: int | None, results: str, counts: list[int | None]
) -> None:
    config = LoopDetectionConfig(threshold=3, include_results=True, window=window, mode=mode)
    detector = LoopDetector(config)
    seen: list[int | None] = []
    for text in results:
        found = detector.saw_calls(calls_of(A))
        seen.append(None if found is None else found.fact.count)
        detector.saw_results([ToolResult("c0", text)])
    assert seen == counts


NAMED = [
    (replace(CALLS, threshold=3), (f"{A} | {G}",) * 3, "f+g", True),
    (replace(CALLS, threshold=3), (A, G, A, G, A), "f+g", False),
    (replace(CALLS, threshold=3, window=9), (A, G, A, G, A), "f+g", False),
    (replace(CALLS, threshold=3, window=9), (f"{A} | {G}",) * 3, "f+g", False),
    (replace(CALLS, threshold=3), (f"{A} | {B}", f"{A} | {G}", A), "f", False),
    (replace(CALLS, threshold=3), (A, A, A), "f", True),
    (replace(WARN, threshold=3, window=5), (A, G, A, G, A), "f", False),
    (replace(WARN, threshold=3, window=5), (G, A, A, A), "f", True),
    (replace(WARN, threshold=3, exempt={"poll"}), (A, "poll {}", A, A), "f", False),
    (replace(WARN, threshold=3, exempt={"poll"}), (f"{A} | poll {{}}",) * 3, "f", False),
]


@pytest.mark.parametrize(("config", "turns", "names", "is_in_row"), NAMED, ids=str)
def test_all_that_is_repeated_is_named_and_in_a_row_is_said_only_where_it_is(
    config: LoopDetectionConfig, turns: tuple[str, ...], names: str, is_in_row: bool
) -> None:
    detector = LoopDetector(config)
    found = [detector.saw_calls(calls_of(turn)) for turn in turns]
    assert all(each is None for each in found[:-1])
    last = found[-1]
    assert last is not None
    assert (last.fact.tool_name, last.fact.count, last.fact.is_in_row) == (names, 3, is_in_row)
    assert ("in a row" in warning_text(last.fact)) is is_in_row


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 1}, {"threshold": 0}, {"window": 2}, {"action": "shout"}],
    ids=str,
)
def test_settings_that_can_not_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        LoopDetectionConfig(**wrong)


# budgets


def test_requests_and_calls_are_taken_before_they_are_made() -> None:
    budget = RunBudget(UsageLimits(requests=1, tool_calls=2))
    assert budget.reserve_request(None) is None
    assert budget.reserve_request(None) == UsageLimit("requests", 1, 1)
    assert [budget.reserve_tool_call() for _ in range(3)] == [None, None, UsageLimit("tool_calls", 2, 2)]


def test_tokens_under_way_count() -> None:
    budget = RunBudget(UsageLimits(output_tokens=100))
    assert budget.reserve_request(60) is None
    assert budget.reserve_request(60) == UsageLimit("output_tokens", 100, 60)
    budget.settle_request(60, Usage(output_tokens=10))
    assert budget.reserve_request(60) is None
    budget.settle_request(60, None)
    assert budget.usage.output_tokens == 10


@pytest.mark.parametrize(
    ("limits", "usage", "limit"),
    [
        (UsageLimits(input_tokens=5), Usage(input_tokens=5), "input_tokens"),
        (UsageLimits(output_tokens=5), Usage(output_tokens=6), "output_tokens"),
        (UsageLimits(total_tokens=5), Usage(input_tokens=3, output_tokens=2), "total_tokens"),
        (UsageLimits(cost=0.5), Usage(cost=0.5), "cost"),
    ],
)
def test_each_limit_holds(limits: UsageLimits, usage: Usage, limit: str) -> None:
    budget = RunBudget(limits)
    assert budget.reserve_request(None) is None
    budget.settle_request(None, usage)
    refused = budget.reserve_request(None)
    assert refused is not None
    assert refused.limit == limit


def test_an_inner_budget_spends_from_the_outer_one() -> None:
    outer = RunBudget(UsageLimits(requests=3, tool_calls=1))
    inner = RunBudget(UsageLimits(requests=2, tool_calls=5), outer)
    assert [inner.reserve_request(None) for _ in range(3)] == [None, None, UsageLimit("requests", 2, 2)]
    assert outer.requests == 2
    assert inner.reserve_tool_call() is None
    assert inner.reserve_tool_call() == UsageLimit("tool_calls", 1, 1)
    inner.settle_request(None, Usage(input_tokens=7))
    assert outer.usage.input_tokens == 7


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="tool_calls must be 0 or more"):
        UsageLimits(tool_calls=-1)


# depth


@dataclass
class Deep:
    loop_depth: int = 0

    def with_depth(self, depth: int) -> "Deep":
        return Deep(depth)


@pytest.mark.parametrize(
    ("inherited", "own", "expected"),
    [
        (None, None, LoopFrame(1, None)),
        (None, 1, LoopFrame(1, 1)),
        (LoopFrame(1, 3), 3, LoopFrame(2, 3)),
        (LoopFrame(1, 3), None, LoopFrame(2, 3)),
        (LoopFrame(1, 3), 9, LoopFrame(2, 3)),
        (LoopFrame(1, None), 2, LoopFrame(2, 2)),
    ],
)
def test_the_smaller_limit_holds(inherited: LoopFrame | None, own: int | None, expected: LoopFrame) -> None:
    token = current_call.set(None if inherited is None else (inherited, "c1"))
    try:
        assert enter_depth(object(), own) == expected
    finally:
        current_call.reset(token)


@pytest.mark.parametrize(
    ("inherited", "own", "limit"), [(None, 0, 0), (LoopFrame(1, 1), 5, 1), (LoopFrame(2, 9), 2, 2)]
)
def test_too_deep_is_refused(inherited: LoopFrame | None, own: int, limit: int) -> None:
    token = current_call.set(None if inherited is None else (inherited, "c1"))
    try:
        with pytest.raises(MaxDepthExceededError) as failure:
            enter_depth(None, own)
        assert failure.value.limit == limit
    finally:
        current_call.reset(token)


def test_a_context_can_carry_the_depth_itself() -> None:
    assert enter_depth(Deep(2), 3) == LoopFrame(3, 3)
    with pytest.raises(MaxDepthExceededError):
        enter_depth(Deep(3), 3)
    assert nested_context(Deep(0), LoopFrame(2, 3)) == Deep(2)
    plain = object()
    assert nested_context(plain, LoopFrame(2, 3)) is plain


def test_an_answer_that_does_not_tell_its_cost_is_the_last_one_of_a_limited_cost() -> None:
    outer = RunBudget(UsageLimits(cost=5))
    inner = RunBudget(UsageLimits(requests=9), outer)
    assert inner.reserve_request(None) is None
    inner.settle_request(None, Usage())
    assert inner.reserve_request(None) is None
    inner.settle_request(None, Usage(input_tokens=1))
    assert inner.reserve_request(None) == UsageLimit("cost", 5, 0)
