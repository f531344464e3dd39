"""Answers of a type while they come: each is a part of the whole, and the last one is the whole."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, model_validator
from pydantic_core import core_schema, from_json

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    ProviderError,
    ProviderRetryConfig,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    tool_loop_stream,
)
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent, TextDelta
from toolkit.chat.provider import ArgumentsDelta
from toolkit.loop import answers
from toolkit.schema.nodes import is_array, is_object
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


class Day(BaseModel):
    number: int
    note: str = "none"


class Trip(BaseModel):
    city: str
    begin: date
    kind: Literal["short", "shortest"]
    days: list[Day]
    best: Day
    price: float
    next: Trip | None = None
    text: str

    @model_validator(mode="after")
    def check_text(self) -> Trip:
        assert self.text
        return self


@dataclass(frozen=True, slots=True)
class Note:
    title: str
    day: Day
    count: int = 3


class Draft(TypedDict):
    title: str
    lines: list[str]


TRIP = {
    "city": 'Par"is \\ 1',
    "begin": "2026-11-23",
    "kind": "shortest",
    "days": [{"number": 1}, {"number": 22, "note": "é [x], {y}"}],
    "best": {"number": 12, "note": "sun\n"},
    "price": 12.5,
    "next": None,
    "text": "The end 🙂.",
}
NOTE = {"title": "a title", "day": {"number": 10, "note": "ten"}, "count": 44}
DRAFT = {"title": "Dear", "lines": ["one", "two, three", "[four]"]}
ANSWERS: list[tuple[Any, Any]] = [
    (Trip, TRIP | {"next": TRIP}),
    (Note, NOTE),
    (Draft, DRAFT),
    (list[Day], [{"number": 1, "note": "a"}, {"number": 2}]),
    (str, 'a "quoted" text'),
    (Note | Draft, DRAFT),
    (int, 1234),
]


TEXT = core_schema.typed_dict_schema({"answer": core_schema.typed_dict_field(core_schema.str_schema())})


class Pieces(ScriptedProvider):
    """Streams one reply in pieces that end anywhere."""

    def __init__(self, text: str, mode: str, cut: random.Random | None) -> None:
        reply = ToolCall("a", "final_answer", text) if mode == "tool" else text
        super().__init__([reply], repeats=True)
        self._text, self._mode, self._cut = text, mode, cut

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        response: ChatResponse = await self.generate(request)
        place = 0
        while place < len(self._text):
            end = place + (1 if self._cut is None else self._cut.choice([1, 1, 2, 3, 7, 40]))
            piece, place = self._text[place:end], end
            yield TextDelta(piece) if self._mode == "native" else ArgumentsDelta(0, "a", "final_answer", piece)
        yield ResponseDone(response)


def write_reply(kind: Any, value: Any, mode: str) -> str:
    is_bare = mode == "native" and kind in (Trip, Note, Draft)
    return json.dumps(value if is_bare else {"answer": value}, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a partial value as JSON values, without what is missing."""
    if isinstance(value, BaseModel):
        return {name: plain(each) for name, each in vars(value).items()}
    if is_dataclass(value):
        names = [each.name for each in fields(value)]
        return {name: plain(getattr(value, name)) for name in names if hasattr(value, name)}
    if is_object(value):
        return {name: plain(each) for name, each in value.items()}
    if is_array(value):
        return [plain(each) for each in value]
    return value


def is_part(part: Any, whole: Any) -> bool:
    if type(part) is not type(whole):
        return False
    if is_object(part):
        return all(name in whole and is_part(each, whole[name]) for name, each in part.items())
    if is_array(part):
        return bool(part == whole[: len(part)])
    return whole.startswith(part) if isinstance(part, str) else bool(part == whole)


@pytest.mark.parametrize(("kind", "value"), ANSWERS)
@pytest.mark.parametrize("mode", ["tool", "native"])
async def test_each_partial_answer_is_a_part_of_the_next_and_the_last_is_the_whole(
    mode: Any, kind: Any, value: Any
) -> None:
    config = ToolLoopConfig(answer=AnswerFormat(kind, mode=mode))
    for seed in range(6):
        provider = Pieces(write_reply(kind, value, mode), mode, random.Random(seed) if seed else None)
        async with tool_loop_stream(provider, ToolRegistry(), "go", config=config) as events:
            found = [each async for each in events.partial_answers()]
        parts = list(map(plain, found))
        assert found[-1] == events.result.output
        assert all(is_part(part, later) for part, later in itertools.pairwise(parts))
        assert len(found) > 3 or kind is int or seed


async def test_texts_grow_by_pieces_and_lists_by_whole_items() -> None:
    config = ToolLoopConfig(answer=AnswerFormat(Draft))
    provider = Pieces(write_reply(Draft, {"title": "Dear", "lines": ["one", "two"]}, "tool"), "tool", None)
    async with tool_loop_stream(provider, ToolRegistry(), "go", config=config) as events:
        found = [dict(each) async for each in events.partial_answers()]
    titles = [{"title": "Dear"[:count]} for count in range(5)]
    whole = {"title": "Dear", "lines": ["one", "two"]}
    lists = [{"title": "Dear", "lines": ["one", "two"][:count]} for count in range(3)]
    assert [each for each in found if each] == [*titles, *lists, whole]


@pytest.mark.parametrize("mode", ["tool", "native"])
async def test_a_text_of_the_answer_comes_as_deltas(mode: Any) -> None:
    config = ToolLoopConfig(answer=AnswerFormat(Trip, mode=mode))
    provider = Pieces(write_reply(Trip, TRIP, mode), mode, None)
    async with tool_loop_stream(provider, ToolRegistry(), "go", config=config) as events:
        deltas = [each.text async for each in events.answer_text("city")]
    assert "".join(deltas) == TRIP["city"]
    assert len(deltas) > 1


class BreaksOff(Pieces):
    """Streams a reply in two halves, and breaks off between them the first time."""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        response = await self.generate(request)
        for half in (self._text[:45], self._text[45:]):
            if half == self._text[45:] and len(self.requests) == 1:
                raise ProviderError("acme", "it broke off", is_retryable=True)
            for piece in half:
                yield ArgumentsDelta(0, "a", "final_answer", piece)
        yield ResponseDone(response)


async def test_a_reply_that_breaks_off_and_comes_again_gives_its_text_once() -> None:
    config = ToolLoopConfig(answer=AnswerFormat(Draft), provider_retry=ProviderRetryConfig(initial_backoff=0))
    text = write_reply(Draft, DRAFT, "tool")
    async with tool_loop_stream(BreaksOff(text, "tool", None), ToolRegistry(), "go", config=config) as events:
        parts = [dict(each) async for each in events.partial_answers()]
    assert parts.count({"title": "Dear"}) == 2
    assert parts[-1] == DRAFT
    async with tool_loop_stream(BreaksOff(text, "tool", None), ToolRegistry(), "go", config=config) as events:
        assert [each.text async for each in events.answer_text("title")] == ["D", "e", "a", "r"]


async def test_an_answer_in_a_call_of_its_tool_comes_as_text() -> None:
    provider = Pieces('{"answer": "It is warm."}', "tool", None)
    async with tool_loop_stream(provider, ToolRegistry(), "go", config=ToolLoopConfig(answer=AnswerFormat())) as events:
        deltas = [each.text async for each in events.answer_text()]
    assert ("".join(deltas), len(deltas)) == ("It is warm.", len("It is warm."))


async def test_an_answer_that_is_asked_for_again_begins_anew() -> None:
    wrong, right = ToolCall("a", "final_answer", '{"answer": {"title": "No"}}'), {"title": "Yes", "lines": ["x"]}
    provider = ScriptedProvider([wrong, ToolCall("b", "final_answer", json.dumps({"answer": right}))])
    async with tool_loop_stream(
        provider, ToolRegistry(), "go", config=ToolLoopConfig(answer=AnswerFormat(Draft))
    ) as events:
        found = [dict(each) async for each in events.partial_answers()]
    assert found[0] == {"title": "No"}
    assert found[-1] == right


def book(city: str) -> str:
    return city


def shorten(answer: Draft) -> str:
    return answer["title"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no answer of a type was asked for"),
        (AnswerFormat([book]), "functions return their answer whole"),
        (AnswerFormat(Draft, check=shorten), "another type than the answer"),
    ],
)
async def test_what_can_not_come_in_pieces_is_refused_in_words(answer: Any, words: str) -> None:
    async with tool_loop_stream(
        ScriptedProvider(["x"]), ToolRegistry(), "go", config=ToolLoopConfig(answer=answer)
    ) as events:
        with pytest.raises(ConfigurationError, match=words):
            await anext(events.partial_answers())


@pytest.mark.parametrize(
    ("kind", "field", "words"),
    [
        (Note, "titel", "the answer has no 'titel'; its texts: 'title'"),
        (Note, "count", "the field 'count' of the answer is no text; its texts: 'title'"),
        (Note, None, "the answer is no text: name a field of it that is one: 'title'"),
        (Note | Draft, "name", "the answer has no 'name'; its texts: 'title'"),
        (Trip | None, "days", "'days' of the answer is no text; its texts: 'city', 'kind', 'text'"),
        (str, "title", "the answer has no fields"),
        (list[Day], None, "the answer is no text: name a field of it that is one: none"),
    ],
)
async def test_a_text_that_the_answer_does_not_have_is_refused(kind: Any, field: str | None, words: str) -> None:
    config: ToolLoopConfig[Any] = ToolLoopConfig(answer=AnswerFormat(kind))
    async with tool_loop_stream(ScriptedProvider(["x"]), ToolRegistry(), "go", config=config) as events:
        with pytest.raises(ConfigurationError, match=words):
            await anext(events.answer_text(field))


async def test_a_text_under_any_key_of_a_mapping_comes_as_deltas() -> None:
    provider = Pieces('{"answer": {"any": "one"}}', "tool", None)
    config = ToolLoopConfig(answer=AnswerFormat(dict[str, str]))
    async with tool_loop_stream(provider, ToolRegistry(), "go", config=config) as events:
        assert "".join([each.text async for each in events.answer_text("any")]) == "one"


async def test_a_long_answer_is_read_in_time_proportional_to_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    read = [0]
    parse: Callable[..., Any] = from_json

    def count(text: str, **options: Any) -> Any:
        read[0] += len(text)
        return parse(text, **options)

    monkeypatch.setattr(answers, "from_json", count)
    reader = answers.PartialAnswers(TEXT, None, is_wrapped=False)
    text = json.dumps("word " * 20_000)
    for place in range(0, len(text), 5):
        reader.take(TextDelta(text[place : place + 5]))
    assert len(text) < read[0] < 70 * len(text)


async def test_nobody_pays_for_partial_answers_who_does_not_read_them() -> None:
    provider = ScriptedProvider([AssistantMessage("done")])
    async with tool_loop_stream(provider, ToolRegistry(), "go") as events:
        assert [type(event).__name__ async for event in events][-1] == "Done"
