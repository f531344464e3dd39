"""Every reply of the corpus is read as its model meant it, whole and in pieces."""

import json
from collections.abc import Sequence

import pytest

from tests.parsing.corpus import CORPUS, TOOLS, Case
from toolkit import ToolCall
from toolkit.parsing import ReplyReader, UnreadCall, read_reply

every_case = pytest.mark.parametrize(
    "case", CORPUS, ids=[f"{case.shape}-{number}" for number, case in enumerate(CORPUS)]
)

SHAPES: dict[str, list[Case]] = {}
for each in CORPUS:
    SHAPES.setdefault(each.shape, []).append(each)
every_shape = pytest.mark.parametrize("shape", SHAPES)


def as_read(calls: Sequence[ToolCall]) -> tuple[tuple[str, object], ...]:
    return tuple([(call.name, json.loads(call.arguments)) for call in calls])


@every_case
def test_a_reply_is_read_as_it_was_meant(case: Case) -> None:
    reply = read_reply(case.reply, TOOLS, format=case.reads)
    assert as_read(reply.calls) == case.calls
    assert bool(reply.unread) is case.is_error
    assert all(unread.reason and unread.text.strip() for unread in reply.unread)
    if case.displaced is not None:
        assert as_read(reply.displaced) == case.displaced
    if case.text is not None:
        assert reply.text == case.text


@every_shape
def test_no_beginning_of_a_reply_has_a_call_that_the_whole_has_not(shape: str) -> None:
    for case in SHAPES[shape]:
        reader = ReplyReader(TOOLS, format=case.reads)
        calls = [part for character in case.reply for part in reader.feed(character) if not isinstance(part, str)]
        calls += [part for part in reader.finish() if not isinstance(part, str)]
        whole = read_reply(case.reply, TOOLS, format=case.reads)
        assert calls == [part for part in whole.parts if not isinstance(part, str)], case.reply


@every_shape
def test_a_call_that_is_cut_off_is_never_another_call(shape: str) -> None:
    for case in SHAPES[shape]:
        for length in range(len(case.reply)):
            calls = as_read(read_reply(case.reply[:length], TOOLS, format=case.reads).calls)
            assert calls == case.calls[: len(calls)] or not case.calls, case.reply[:length]


def test_the_corpus_has_every_shape_and_enough_of_each() -> None:
    assert len(CORPUS) >= 300
    errors = [case for case in CORPUS if case.is_error]
    texts = [case for case in CORPUS if not case.is_error and not case.calls]
    assert len(errors) >= 80
    assert len(texts) >= 60


def test_what_can_not_be_read_says_what_would_be_right() -> None:
    def reason(text: str) -> str:
        (unread,) = read_reply(text, TOOLS).unread
        assert isinstance(unread, UnreadCall)
        return unread.reason

    assert reason('<tool_call>{"name": "add"') == "The call is cut off."
    assert (
        reason('{"name": "get_wheather_now", "arguments": {}}')
        == "There is no tool 'get_wheather_now'. Tools: get_weather."
    )
    assert reason('[get_weather("Paris")]') == "Each argument needs its name: write name=value."
    assert (
        reason('<tool_call>{"name": "add", "a": 1}</tool_call>')
        == 'A call has the tool\'s "name" and its "arguments", nothing else. It has "a", "name".'
    )
