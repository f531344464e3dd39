"""After a mistake the next request is held to a call; what failed is not made again; never more often than allowed."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    UserMessage,
    deny,
    tool,
    tool_loop,
)
from toolkit.chat import validate_transcript
from toolkit.endings import Complete, MaxIterations
from toolkit.errors import ToolFailedError
from toolkit.events import ToolCallRefused
from toolkit.policies import SteeredRetries, ToolOrder
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

STEERED = SteeredRetries()


def deny_all(_: object) -> bool:
    return False


@dataclass
class Shop:
    """Tools, and what ran."""

    runs: list[str] = field(default_factory=list[str])
    is_open: bool = False

    def tools(self) -> ToolRegistry[object]:
        @tool
        async def buy(item: str, count: int) -> str:
            """Buy something."""
            self.runs.append(f"buy {count} {item}")
            if not self.is_open:
                raise ToolFailedError("the shop is closed")
            return f"{count} {item}"

        @tool
        async def open_shop() -> str:
            """Open the shop."""
            self.runs.append("open")
            self.is_open = True
            return "open"

        return ToolRegistry([buy, open_shop])


def call(name: str, call_id: str, **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


def buy(call_id: str, count: object = 1) -> ToolCall:
    return call("buy", call_id, item="tea", count=count)


OPEN = call("open_shop", "o")


def holds(provider: ScriptedProvider) -> list[str]:
    """Return to what each request was held: the tools that it offered, or ``-`` where it was free."""
    return [
        "+".join([each.name for each in request.tools or ()]) if request.tool_choice == "required" else "-"
        for request in provider.requests
    ]


@dataclass
class Case:
    """Replies, and to what each request was held."""

    replies: list[ScriptedReply]
    holds: list[str]
    config: dict[str, Any] = field(default_factory=dict[str, Any])


ANY = "buy+open_shop"
CASES = {
    "nothing is wrong": Case([OPEN, "ok"], ["-", "-"]),
    "arguments are wrong": Case([call("buy", "1"), "ok"], ["-", "buy"]),
    "arguments are no JSON": Case([ToolCall("1", "buy", "{item: tea, count"), "ok"], ["-", "buy"]),
    "the tool does not exist": Case([call("sell", "1"), "ok"], ["-", ANY]),
    "a repaired name with wrong arguments": Case([call("functions.Buy", "1"), "ok"], ["-", "buy"]),
    "two tools are called wrongly": Case(
        [AssistantMessage([call("buy", "1"), call("open_shop", "2", now=True)]), "ok"], ["-", ANY]
    ),
    "one tool twice": Case([AssistantMessage([call("buy", "1"), call("buy", "2", count=1)]), "ok"], ["-", "buy"]),
    "a tool that fails": Case([buy("1"), "ok"], ["-", "-"]),
    "never more often than allowed": Case(
        [call("buy", "1"), call("buy", "2", a=1), call("buy", "3", a=2), call("buy", "4", a=3), "ok"],
        ["-", "buy", "buy", "-", "-"],
    ),
    "again after a success": Case(
        [OPEN, call("buy", "1"), call("buy", "2", a=1), buy("3"), call("buy", "4"), "ok"],
        ["-", "-", "buy", "buy", "-", "buy"],
    ),
    "held never": Case([call("buy", "1"), "ok"], ["-", "-"], {"middleware": (SteeredRetries(max_held=0),)}),
    "without the setting": Case([call("buy", "1"), "ok"], ["-", "-"], {"middleware": ()}),
    "a call that was denied": Case([buy("1"), "ok"], ["-", "-"], {"on_tool_call": deny_all}),
    "what comes first": Case(
        [buy("1"), OPEN, buy("2"), "ok"],
        ["-", "open_shop", "-", "-"],
        {"middleware": (ToolOrder(after={"buy": "open_shop"}), STEERED)},
    ),
    "what comes first stands beside it": Case(
        [AssistantMessage([buy("1"), OPEN]), buy("2"), "ok"],
        ["-", "-", "-"],
        {"middleware": (ToolOrder(after={"buy": "open_shop"}), STEERED)},
    ),
    "a required step": Case(
        ["done", OPEN, "ok"],
        ["-", "open_shop", "-"],
        {"middleware": (ToolOrder(required_steps=("open_shop",)), STEERED)},
    ),
    "the last answer has no tools": Case(
        [call("buy", "1"), "ok"], ["-", "-"], {"max_iterations": 1, "on_max_iterations": "answer"}
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_request_after_a_mistake_is_held_to_a_call(name: str) -> None:
    case = CASES[name]
    provider = ScriptedProvider(case.replies)
    settings: dict[str, Any] = {"middleware": (STEERED,), **case.config}
    config: ToolLoopConfig[Any] = ToolLoopConfig(**settings)
    result = await tool_loop(provider, Shop().tools(), "Go", config=config)
    assert holds(provider) == case.holds
    assert result.text == "ok"
    assert isinstance(result.reason, Complete | MaxIterations)
    validate_transcript(result.messages)


async def test_a_call_that_a_rule_forbids_holds_nothing() -> None:
    registry = ToolRegistry(Shop().tools(), permissions=Permissions([deny("buy")]))
    provider = ScriptedProvider([buy("1"), "ok"])
    await tool_loop(provider, registry, "Go", config=ToolLoopConfig(middleware=(STEERED,)))
    assert holds(provider) == ["-", "-"]


async def test_a_reply_in_words_where_a_call_gives_the_answer_is_followed_by_a_call() -> None:
    provider = ScriptedProvider(["It is so.", call("final_answer", "a"), call("final_answer", "b", answer="so")])
    config = ToolLoopConfig(middleware=(STEERED,), answer=AnswerFormat())
    result = await tool_loop(provider, Shop().tools(), "Go", config=config)
    assert holds(provider) == ["-", f"{ANY}+final_answer", "final_answer"]
    assert result.text == "so"


@pytest.mark.parametrize("choice", ["none", "open_shop", "required"])
async def test_a_choice_of_the_caller_stays(choice: str) -> None:
    provider = ScriptedProvider([call("buy", "1"), "ok"])
    request = ChatRequest(messages=[UserMessage("Go")], tool_choice=choice)
    await tool_loop(provider, Shop().tools(), request, config=ToolLoopConfig(middleware=(STEERED,)))
    assert [each.tool_choice for each in provider.requests] == [choice, choice]


TRIED = (
    "Not run: you have made this call already, with the same arguments, and it failed: the shop is closed\n"
    "Use other arguments or another tool, or answer with what you have."
)


def texts(messages: list[Any]) -> dict[str, str]:
    return {each.call_id: each.text for each in messages if isinstance(each, ToolResult)}


async def test_a_call_that_failed_is_answered_at_once_when_it_is_made_again() -> None:
    shop, events = Shop(), list[Any]()
    again = ToolCall("2", "functions.buy", '{"count": "1", "item": "tea"}')  # which means the same
    provider = ScriptedProvider([buy("1"), again, buy("3", 2), "ok"])
    config = ToolLoopConfig(middleware=(STEERED,), on_event=events.append)
    result = await tool_loop(provider, shop.tools(), "Go", config=config)
    assert texts(result.messages) == {"1": "the shop is closed", "2": TRIED, "3": "the shop is closed"}
    assert shop.runs == ["buy 1 tea", "buy 2 tea"]
    assert [each.call_id for each in events if isinstance(each, ToolCallRefused)] == ["2"]
    validate_transcript(result.messages)


async def test_a_success_lets_all_be_tried_again() -> None:
    shop = Shop()
    provider = ScriptedProvider([buy("1"), OPEN, buy("2"), "ok"])
    result = await tool_loop(provider, shop.tools(), "Go", config=ToolLoopConfig(middleware=(STEERED,)))
    assert texts(result.messages)["2"] == "1 tea"


@pytest.mark.parametrize(("most", "runs"), [(1, 1), (2, 2), (None, 4)])
async def test_a_call_may_fail_as_often_as_the_setting_says(most: int | None, runs: int) -> None:
    shop = Shop()
    provider = ScriptedProvider([*[buy(str(turn)) for turn in range(4)], "ok"])
    config = ToolLoopConfig(middleware=(SteeredRetries(max_failures=most),))
    await tool_loop(provider, shop.tools(), "Go", config=config)
    assert len(shop.runs) == runs


async def test_the_same_calls_of_one_reply_all_run() -> None:
    shop = Shop()
    provider = ScriptedProvider([AssistantMessage([buy("1"), buy("2")]), buy("3"), "ok"])
    result = await tool_loop(provider, shop.tools(), "Go", config=ToolLoopConfig(middleware=(STEERED,)))
    assert len(shop.runs) == 2
    assert texts(result.messages)["3"] == TRIED


async def test_wrong_arguments_that_are_written_again_are_told_so() -> None:
    provider = ScriptedProvider([call("buy", "1"), call("buy", "2"), "ok"])
    result = await tool_loop(provider, Shop().tools(), "Go", config=ToolLoopConfig(middleware=(STEERED,)))
    assert texts(result.messages)["2"].startswith("Not run: you have made this call already, with the same arguments")


async def test_what_the_loop_itself_did_not_run_is_no_failure() -> None:
    shop = Shop(is_open=True)
    order = ToolOrder(after={"buy": "open_shop"})
    provider = ScriptedProvider([buy("1"), OPEN, buy("2"), "ok"])
    config = ToolLoopConfig(middleware=(STEERED, order))
    result = await tool_loop(provider, shop.tools(), "Go", config=config)
    assert texts(result.messages)["2"] == "1 tea"


@pytest.mark.parametrize("step", range(1, 4))
async def test_what_failed_and_what_is_held_survives_saving(step: int) -> None:
    shop = Shop()
    replies: list[ScriptedReply] = [call("buy", "0"), buy("1"), buy("2"), "ok"]
    config = ToolLoopConfig(middleware=(STEERED,))
    handle = ToolLoopHandle(ScriptedProvider(replies), shop.tools(), "Go", config=config)
    for _ in range(step):
        await handle.next_turn()
    saved = json.loads(json.dumps(handle.snapshot()))
    provider = ScriptedProvider(replies[step:])
    again = ToolLoopHandle.restore(saved, provider, shop.tools(), ctx=None, config=config)
    result = await again.run()
    assert texts(result.messages)["2"] == TRIED
    assert shop.runs == ["buy 1 tea"]
    assert holds(provider) == ["-", "buy", "-", "-"][step:]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_held": -1}, r"steered_retries\.max_held must be 0 or more"),
        ({"max_failures": 0}, r"steered_retries\.max_failures must be 1 or more"),
        ({"max_held": "two"}, r"steered_retries\.max_held must be a whole number"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SteeredRetries(**settings)
