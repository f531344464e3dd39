"""Answers that a check judges, functions as answers, and lists of which the valid items are the answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    ConfigurationError,
    Timeouts,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import validate_transcript
from toolkit.endings import NoValidAnswer, ResultAsAnswer, Timeout, TypedAnswer
from toolkit.errors import ToolCrashedError, ToolFailedError
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

MODES = ["tool", "native"]


class Trip(BaseModel):
    city: str
    days: int


@dataclass
class Booking:
    number: int
    city: str


@dataclass
class Refusal:
    reason: str


@dataclass
class Desk:
    prefix: str


NO_TOOLS = ToolRegistry[object]()


def reply(mode: str, text: str, call_id: str = "a") -> Any:
    """Return the reply of a model that answers in one of the modes."""
    return text if mode == "native" else ToolCall(call_id, "final_answer", f'{{"answer": {text}}}')


async def allow_short(answer: Trip) -> Trip:
    if answer.days > 3:
        raise ToolFailedError("a trip takes at most 3 days")
    return answer


def allow_short_sync(answer: Trip) -> Trip:
    if answer.days > 3:
        raise ToolFailedError("a trip takes at most 3 days")
    return answer


@pytest.mark.parametrize("check", [allow_short, allow_short_sync])
@pytest.mark.parametrize("mode", MODES)
async def test_what_a_check_refuses_goes_to_the_model_in_its_words(mode: Any, check: Any) -> None:
    replies = [reply(mode, '{"city": "Rome", "days": 9}'), reply(mode, '{"city": "Rome", "days": 2}', "b")]
    provider = ScriptedProvider(replies)
    config = ToolLoopConfig(answer=AnswerFormat(Trip, check=check, mode=mode))
    result = await tool_loop(provider, NO_TOOLS, "Where?", config=config)
    assert (result.output, result.reason) == (Trip(city="Rome", days=2), TypedAnswer())
    assert "a trip takes at most 3 days" in result.messages[2].text
    validate_transcript(result.messages)


@pytest.mark.parametrize("mode", MODES)
async def test_a_check_gets_the_context_and_what_it_returns_is_the_answer(mode: Any) -> None:
    def book(ctx: Desk, answer: Trip) -> Booking:
        return Booking(7, ctx.prefix + answer.city)

    def book_seen(envelope: ToolContext[Desk], answer: Trip) -> Booking:
        return book(envelope.state, answer)

    def book_any(*given: Any, **named: Any) -> Any:
        return book(*given, **named)

    book_any.__annotations__ = {}
    vars(book_any)["__signature__"] = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in "ca"])
    checks: list[Any] = [book, book_seen, book_any]
    for check in checks:
        provider = ScriptedProvider([reply(mode, '{"city": "Rome", "days": 2}')])
        config = ToolLoopConfig(answer=AnswerFormat(Trip, check=check, mode=mode))
        result = await tool_loop(provider, ToolRegistry[Desk](), "Where?", ctx=Desk("to "), config=config)
        assert result.output == Booking(7, "to Rome")
    with pytest.raises(ConfigurationError, match=r"the check of AnswerFormat needs a context of type .*Desk.*as ctx"):
        await tool_loop(
            ScriptedProvider([]), NO_TOOLS, "?", config=ToolLoopConfig(answer=AnswerFormat(Trip, check=book))
        )


@pytest.mark.parametrize("mode", MODES)
async def test_a_sync_check_does_not_hold_up_the_event_loop(mode: Any) -> None:
    threads: list[int] = []

    def check(answer: Trip) -> Trip:
        threads.append(threading.get_ident())
        return answer

    provider = ScriptedProvider([reply(mode, '{"city": "Rome", "days": 2}')])
    await tool_loop(provider, NO_TOOLS, "?", config=ToolLoopConfig(answer=AnswerFormat(Trip, check=check, mode=mode)))
    assert threads[0] != threading.get_ident()


def crash(answer: Trip) -> Trip:
    raise KeyError(answer.city)


def forget(answer: Trip) -> Trip:
    del answer
    return None  # type: ignore[return-value] # pyright: ignore[reportReturnType]


def take_none() -> Trip:
    return Trip(city="", days=0)


def take_three(first: Trip, second: Trip, third: Trip) -> Trip:
    del second, third
    return first


async def hang(answer: Trip) -> Trip:
    await anyio.sleep_forever()
    return answer


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (crash, "KeyError: 'Rome'"),
        (forget, "it must return the answer, of type Trip"),
        (print, "it must return the answer"),
        (hang, "timed out"),
    ],
    ids=["raises", "returns another type", "returns nothing", "hangs"],
)
@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_on_which_the_check_fails_is_a_wrong_answer(mode: Any, check: Any, problem: str) -> None:
    replies = [reply(mode, '{"city": "Rome", "days": 2}', str(number)) for number in range(9)]
    provider = ScriptedProvider(replies)
    config = ToolLoopConfig(
        answer=AnswerFormat(Trip, check=check, mode=mode, max_retries=1),
        timeouts=Timeouts(tool=0.05 if check is hang else None),
    )
    result = await tool_loop(provider, NO_TOOLS, "Where?", config=config)
    assert isinstance(result.reason, NoValidAnswer)
    assert problem in result.reason.problem
    assert (len(provider.requests), result.output) == (2, None)
    validate_transcript(result.messages)


@pytest.mark.parametrize("mode", MODES)
async def test_a_check_that_hangs_ends_with_the_time_of_the_run(mode: Any) -> None:
    provider = ScriptedProvider([reply(mode, '{"city": "Rome", "days": 2}')])
    config = ToolLoopConfig(answer=AnswerFormat(Trip, check=hang, mode=mode), timeout=0.05)
    result = await tool_loop(provider, NO_TOOLS, "Where?", config=config)
    assert (result.reason, result.output) == (Timeout(0.05), None)
    validate_transcript(result.messages)


@pytest.mark.parametrize("mode", MODES)
async def test_a_check_that_crashes_ends_the_run_where_the_configuration_wants_that(mode: Any) -> None:
    provider = ScriptedProvider([reply(mode, '{"city": "Rome", "days": 2}')])
    config = ToolLoopConfig(answer=AnswerFormat(Trip, check=crash, mode=mode), on_tool_exception="raise")
    with pytest.raises(ToolCrashedError):
        await tool_loop(provider, NO_TOOLS, "Where?", config=config)


@pytest.mark.parametrize("mode", MODES)
async def test_a_restored_answer_is_what_the_check_returned_and_it_is_not_asked_again(mode: Any) -> None:
    asked: list[Trip] = []

    def book(answer: Trip) -> Booking:
        asked.append(answer)
        return Booking(len(asked), answer.city)

    config = ToolLoopConfig(answer=AnswerFormat(Trip, check=book, mode=mode))
    handle = ToolLoopHandle(
        ScriptedProvider([reply(mode, '{"city": "Rome", "days": 2}')]), NO_TOOLS, "Where?", config=config
    )
    result = await handle.run()
    again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), NO_TOOLS, ctx=None, config=config)
    assert again.result.output == result.output == Booking(1, "Rome")
    assert len(asked) == 1


async def test_the_failures_of_a_check_count_across_a_restore() -> None:
    replies = [reply("tool", '{"city": "Rome", "days": 9}', str(number)) for number in range(4)]
    config = ToolLoopConfig(answer=AnswerFormat(Trip, check=allow_short, max_retries=2))
    handle = ToolLoopHandle(ScriptedProvider(replies[:1]), NO_TOOLS, "Where?", config=config)
    await handle.next_turn()
    provider = ScriptedProvider(replies[1:])
    handle = ToolLoopHandle.restore(handle.snapshot(), provider, NO_TOOLS, ctx=None, config=config)
    result = await handle.run()
    assert isinstance(result.reason, NoValidAnswer)
    assert len(provider.requests) == 2


NO_ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"check": allow_short}, "give the type"),
    ({"type": Trip, "check": take_none}, "takes the answer, or the context and the answer"),
    ({"type": Trip, "check": take_three}, "takes the answer, or the context and the answer"),
    ({"type": int, "check": int}, "the check of AnswerFormat, function 'int', can't judge an answer"),
    ({"type": Trip, "keep_valid": True}, "keep_valid is for a list"),
    ({"type": []}, "names the functions"),
    ({"type": [Booking, Refusal]}, "write a union"),
    ({"type": ["book"]}, "names the functions"),
    ({"type": [allow_short, allow_short]}, "two functions of the answer are named"),
    ({"type": [allow_short], "mode": "native"}, "leave mode='native' out"),
    ({"type": [allow_short], "check": allow_short}, "leave check out"),
]


@pytest.mark.parametrize(("settings", "words"), NO_ANSWERS)
async def test_what_can_be_no_answer_is_refused_in_words(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        config: Any = ToolLoopConfig(answer=AnswerFormat(**settings))
        await tool_loop(ScriptedProvider([]), NO_TOOLS, "?", config=config)


# functions as answers


def book(city: str, days: int) -> Booking:
    """Book a trip."""
    if days > 3:
        raise ToolFailedError("a trip takes at most 3 days")
    return Booking(7, city)


async def refuse(reason: str) -> Refusal:
    """Refuse to book."""
    return Refusal(reason)


def endings(max_retries: int = 2) -> AnswerFormat[Booking | Refusal]:
    return AnswerFormat([book, refuse], max_retries=max_retries)


@pytest.mark.parametrize(
    ("call", "output"),
    [
        (ToolCall("a", "book", '{"city": "Rome", "days": 2}'), Booking(7, "Rome")),
        (ToolCall("a", "refuse", '{"reason": "full"}'), Refusal("full")),
    ],
)
async def test_the_model_ends_by_calling_one_of_the_functions(call: ToolCall, output: object) -> None:
    config = ToolLoopConfig(answer=endings())
    handle = ToolLoopHandle(ScriptedProvider([call]), NO_TOOLS, "Book!", config=config)
    result = await handle.run()
    assert (result.output, result.require_output(), result.reason) == (output, output, TypedAnswer())
    again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), NO_TOOLS, ctx=None, config=config)
    assert again.result.output == output


async def test_wrong_calls_of_the_functions_are_asked_for_again_as_often_as_allowed() -> None:
    replies: list[ScriptedReply] = [
        "I would book Rome.",
        ToolCall("a", "book", '{"city": "Rome"}'),
        ToolCall("b", "book", '{"city": "Rome", "days": 9}'),
        ToolCall("c", "book", '{"city": "Rome", "days": 2}'),
    ]
    for retries in (2, 3):
        provider = ScriptedProvider(replies)
        config = ToolLoopConfig(answer=endings(retries))
        result = await tool_loop(provider, NO_TOOLS, "Book!", config=config)
        assert result.output == (Booking(7, "Rome") if retries == 3 else None)
        assert len(provider.requests) == retries + 1
        assert result.messages[2].text == "Give your answer by calling one of the tools book, refuse."
        assert "days: required, but missing" in result.messages[4].text
        assert result.messages[6].text == "a trip takes at most 3 days"
        validate_transcript(result.messages)


async def test_a_right_answer_beside_one_that_its_function_refuses_is_the_answer() -> None:
    calls = [ToolCall("a", "book", '{"city": "Rome", "days": 9}'), ToolCall("b", "refuse", '{"reason": "too long"}')]
    for order in (calls, calls[::-1]):
        config = ToolLoopConfig(answer=endings(0))
        result = await tool_loop(ScriptedProvider([AssistantMessage(order)]), NO_TOOLS, "Book!", config=config)
        assert result.output == Refusal("too long")


async def test_a_function_that_is_a_tool_already_answers_with_its_options_and_the_context() -> None:
    @tool_with_ctx(name="book_it")
    def reserve(ctx: Desk, city: str) -> Booking:
        """Reserve."""
        return Booking(1, ctx.prefix + city)

    answer: AnswerFormat[Booking | Refusal] = AnswerFormat([reserve, refuse])
    config = ToolLoopConfig(answer=answer)
    provider = ScriptedProvider([ToolCall("a", "book_it", '{"city": "Rome"}')])
    result = await tool_loop(provider, ToolRegistry[Desk](), "Book!", ctx=Desk("to "), config=config)
    assert result.output == Booking(1, "to Rome")
    with pytest.raises(ConfigurationError, match="'book_it' of AnswerFormat needs a context"):
        await tool_loop(provider, NO_TOOLS, "Book!", config=config)


@pytest.mark.parametrize(
    ("registry", "words"),
    [
        (ToolRegistry([tool(book)]), "'book' is an answer of AnswerFormat and the name of a tool"),
        (ToolRegistry([tool(name="reserve")(book)]), "'book' is an answer of AnswerFormat, and as 'reserve' a tool"),
    ],
    ids=["of the same name", "under another name"],
)
async def test_an_answer_function_that_is_a_tool_too_is_refused(registry: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        await tool_loop(ScriptedProvider(["x"]), registry, "Book!", config=ToolLoopConfig(answer=endings()))


async def test_the_object_of_a_tool_whose_result_is_the_answer_is_the_output() -> None:
    @tool(result_as_answer=True)
    def reserve(city: str) -> Booking:
        """Reserve."""
        return Booking(3, city)

    registry = ToolRegistry([reserve])
    handle = ToolLoopHandle(ScriptedProvider([ToolCall("a", "reserve", '{"city": "Rome"}')]), registry, "Book!")
    result: ToolLoopResult[Any] = await handle.run()
    assert (result.output, result.reason) == (Booking(3, "Rome"), ResultAsAnswer("a", "reserve"))
    assert result.text == '{"number":3,"city":"Rome"}'
    again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), registry, ctx=None)
    assert again.result.output == Booking(3, "Rome")


async def test_an_answer_is_never_cut_to_the_length_of_a_result() -> None:
    def give(text: str) -> list[str]:
        """Give it."""
        return [text] * 9_000

    config = ToolLoopConfig(answer=AnswerFormat([give]))
    handle = ToolLoopHandle(ScriptedProvider([ToolCall("a", "give", '{"text": "long"}')]), NO_TOOLS, "?", config=config)
    result = await handle.run()
    again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), NO_TOOLS, ctx=None, config=config)
    assert result.output == again.result.output == ["long"] * 9_000


# lists


@pytest.mark.parametrize("mode", MODES)
async def test_the_valid_items_of_a_list_are_the_answer_and_the_others_are_described(mode: Any) -> None:
    config = ToolLoopConfig(answer=AnswerFormat(list[Trip], keep_valid=True, mode=mode))
    items = '[{"city": "Rome", "days": 2}, {"city": "Oslo"}, {"city": "Bern", "days": "x"}, {"city": "Ulm", "days": 1}]'
    text = items if mode == "tool" else f'{{"answer": {items}}}'
    handle = ToolLoopHandle(ScriptedProvider([reply(mode, text)]), NO_TOOLS, "?", config=config)
    result = await handle.run()
    again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), NO_TOOLS, ctx=None, config=config).result
    for each in (result, again):
        assert each.output == [Trip(city="Rome", days=2), Trip(city="Ulm", days=1)]
        assert type(each.output) is list
        assert [problem.split(":")[0] for problem in each.answer_problems] == ["[1].days", "[2].days"]
        assert "required, but missing" in each.answer_problems[0]


async def test_a_list_in_which_no_item_is_valid_is_a_wrong_answer() -> None:
    config = ToolLoopConfig(answer=AnswerFormat(list[Trip], keep_valid=True, max_retries=1))
    replies = [reply("tool", '[{"city": "Oslo"}]'), reply("tool", "[]", "b")]
    result = await tool_loop(ScriptedProvider(replies), NO_TOOLS, "?", config=config)
    assert (result.output, result.answer_problems) == ([], ())
    assert "answer[0].days: required, but missing" in result.messages[2].text


async def test_too_few_valid_items_are_a_wrong_answer() -> None:
    answer = AnswerFormat[list[int]](Annotated[list[int], Field(min_length=2)], keep_valid=True, max_retries=1)
    replies = [reply("tool", '[1, "x"]'), reply("tool", '[1, "x", 3]', "b")]
    result = await tool_loop(ScriptedProvider(replies), NO_TOOLS, "?", config=ToolLoopConfig(answer=answer))
    assert (result.output, len(result.answer_problems)) == ([1, 3], 1)
    assert "at least 2 items" in result.messages[2].text


async def test_a_check_gets_the_valid_items_alone() -> None:
    seen: list[list[Trip]] = []

    def check(answer: list[Trip]) -> list[Trip]:
        seen.append(answer)
        return answer

    config = ToolLoopConfig(answer=AnswerFormat(list[Trip], keep_valid=True, check=check))
    provider = ScriptedProvider([reply("tool", '[{"city": "Rome", "days": 2}, 5]')])
    result = await tool_loop(provider, NO_TOOLS, "?", config=config)
    assert seen == [[Trip(city="Rome", days=2)]] == [result.output]
    assert len(result.answer_problems) == 1


@pytest.mark.parametrize(
    ("kind", "text", "is_bare"),
    [(Trip, '{"city": "Rome", "days": 2}', True), (dict[str, int], '{"a": 1}', True), (int, '{"answer": 5}', False)],
)
async def test_an_object_is_the_whole_reply_and_anything_else_stands_in_one(
    kind: Any, text: str, is_bare: bool
) -> None:
    provider = ScriptedProvider([text])
    config = ToolLoopConfig(answer=AnswerFormat(kind, mode="native"))
    result = await tool_loop(provider, NO_TOOLS, "?", config=config)
    held_to = provider.requests[0].response_format
    assert held_to is not None
    assert ("answer" not in held_to.schema.get("properties", {})) is is_bare
    assert isinstance(result.reason, TypedAnswer)
