"""Why a task is not solved; and that tools don't run unless they are to."""

from dataclasses import dataclass
from typing import Literal

import pytest

from toolkit import ProviderError, ToolCall, ToolRegistry, tool
from toolkit.evaluation import EvaluationTask, TaskCall, TrialSettings, run_trial
from toolkit.evaluation.tasks import states_fact
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@tool(requires_approval=True)
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius", days: list[str] | None = None) -> str:
    """Get the weather."""
    RAN.append(city)
    return f"18 degrees {unit} in {city}, {days}"


@tool
def find_city(name: str) -> str:
    """Find a city."""
    return name


TOOLS = ToolRegistry([get_weather, find_city])
PARIS = TaskCall(tool="get_weather", arguments={"city": "Paris"}, returns="18 degrees")
TASK = EvaluationTask(
    id="paris", kind="one call", prompt="Weather in Paris?", calls=(PARIS,), says=(("18", "eighteen"),)
)


@dataclass(frozen=True)
class Case:
    """How the weather in Paris is gone about."""

    name: str
    replies: tuple[ScriptedReply, ...]
    reason: str


def called(name: str = "get_weather", arguments: str = '{"city": "Paris"}') -> ToolCall:
    return ToolCall("call", name, arguments)


ROME = called(arguments='{"city": "Rome"}')
CASES = [
    Case("right", (called(), "It is 18 degrees."), ""),
    Case("in other words", (called(), "It is Eighteen."), ""),
    Case("a default in so many words", (called(arguments='{"city": "paris.", "unit": "celsius"}'), "18"), ""),
    Case("another unit", (called(arguments='{"city": "Paris", "unit": "fahrenheit"}'), "18"), "wrong arguments"),
    Case("more than was asked", (called(arguments='{"city": "Paris", "days": ["today"]}'), "18"), "wrong arguments"),
    Case("guessed", ("It is 18 degrees.",), "no call"),
    Case("no such tool", (called("banana"), "18"), "unknown tool"),
    Case("no such parameter", (called(arguments='{"town": "Paris"}'), "18"), "arguments refused"),
    Case("another city", (ROME, "18"), "wrong arguments"),
    Case("another tool", (called("find_city", '{"name": "Paris"}'), "18"), "wrong tool"),
    Case("two cities", (called(), ROME, "18"), "a call too many"),
    Case("the same twice", (called(), called(), "18"), ""),
    Case("another answer", (called(), "It is 118 degrees."), "the answer lacks a fact"),
    Case("silence", (called(), ""), "no answer"),
    Case("calls without end", (called(), called(), called()), "no answer"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_judge_says_why_a_task_is_not_solved(case: Case) -> None:
    RAN.clear()
    trial = await run_trial(TASK, ScriptedProvider(case.replies), TOOLS, TrialSettings(max_turns=3))
    assert trial.reason == case.reason
    assert RAN == []


async def test_a_task_of_two_calls_needs_both_and_may_allow_others() -> None:
    rome = TaskCall(tool="get_weather", arguments={"city": {"$one_of": ["Roma", "Rome"]}, "unit": {"$any": True}})
    both = EvaluationTask(id="two", kind="two", prompt="?", calls=(PARIS, rome), may_call=frozenset({"find_city"}))
    half = await run_trial(both, ScriptedProvider([called(), "18"]), TOOLS, TrialSettings())
    assert half.reason == "a call is missing"
    replies: list[ScriptedReply] = [called("find_city", '{"name": "x"}'), called(), ROME, "Both."]
    whole = await run_trial(both, ScriptedProvider(replies), TOOLS, TrialSettings())
    assert (whole.reason, [name for name, _ in whole.calls]) == ("", ["find_city", "get_weather", "get_weather"])


async def test_no_tool_is_to_be_called_where_the_list_is_empty() -> None:
    none = EvaluationTask(id="hello", kind="none", prompt="Hello!", calls=())
    assert (await run_trial(none, ScriptedProvider(["Hello."]), TOOLS, TrialSettings())).is_solved
    trial = await run_trial(none, ScriptedProvider([called(), "18"]), TOOLS, TrialSettings())
    assert trial.reason == "a call too many"


async def test_where_tools_run_an_approval_that_nobody_gives_is_a_refusal() -> None:
    trial = await run_trial(TASK, ScriptedProvider([called(), "18"]), TOOLS, TrialSettings(runs_tools=True))
    assert (trial.reason, RAN) == ("arguments refused", [])


async def test_a_request_that_fails_is_an_outcome() -> None:
    trial = await run_trial(TASK, ScriptedProvider([ProviderError("it", "boom")]), TOOLS, TrialSettings())
    assert trial.reason == "the request failed"
    assert "boom" in trial.error
    assert not trial.is_unreachable


@pytest.mark.parametrize(
    ("answer", "fact", "is_in"),
    [
        ("It is 1,290 USD.", "1290", True),
        ("It is 12.", "1", False),
        ("The code: **TR-2541**!", "tr-2541", True),
        ("18°C, and 24", "18", True),
        ("GUTEN   Morgen", "guten morgen", True),
        ("minus -3 degrees", "-3", True),
        ("3 degrees", "-3", False),
        ("", "18", False),
    ],
)
def test_a_fact_is_said_in_whole_words(answer: str, fact: str, is_in: bool) -> None:
    assert states_fact(answer, [fact]) is is_in
