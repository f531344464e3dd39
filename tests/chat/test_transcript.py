from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from toolkit.chat import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResult,
    UserMessage,
    dump_messages,
    load_messages,
    repair_call_ids,
    repair_transcript,
    validate_transcript,
)
from toolkit.errors import ToolkitError, TranscriptError


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage([TextBlock("let me see"), *(ToolCall(call_id, f"tool_{call_id}", "{}") for call_id in ids)])


def gives(call_id: str, text: str = "ok") -> ToolResult:
    return ToolResult(call_id, text, tool_name=f"tool_{call_id}")


def is_valid(messages: Sequence[Message], *, allow_pending: bool = False) -> bool:
    try:
        validate_transcript(messages, allow_pending=allow_pending)
    except TranscriptError:
        return False
    return True


HI = UserMessage("hi")
DONE = AssistantMessage("done")


# validation


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [HI],
        [SystemMessage("be nice"), HI, DONE],
        [HI, asks("a"), gives("a"), DONE],
        [HI, asks("a", "b"), gives("a"), gives("b"), asks("c"), gives("c")],
    ],
)
def test_a_transcript_whose_calls_are_answered_in_place_is_valid(messages: list[Message]) -> None:
    validate_transcript(messages)
    assert repair_transcript(messages) == messages


@dataclass
class Wrong:
    messages: list[Message]
    index: int
    words: str


@pytest.mark.parametrize(
    "case",
    [
        Wrong([HI, asks("a")], 1, "ends here, without the result of call 'a' ('tool_a'); each call needs one"),
        Wrong([asks("a", "b"), gives("a")], 1, "without the result of call 'b'"),
        Wrong([asks("a"), HI, gives("a")], 1, "a user message stands where the result of call 'a' ('tool_a') belongs"),
        Wrong([asks("a"), asks("b")], 1, "an assistant message stands where"),
        Wrong([asks("a", "b"), gives("b"), gives("a")], 1, "results stand in the order of their calls"),
        Wrong([asks("a"), gives("a"), gives("a")], 2, "answers it a second time"),
        Wrong([HI, gives("x")], 1, "the result of call 'x' answers no call before it"),
        Wrong([asks("a"), gives("x")], 1, "answers no call before it"),
        Wrong([asks("")], 0, "the call of 'tool_' has no id"),
        Wrong([asks("a", "a"), gives("a"), gives("a")], 0, "has the id of an earlier call"),
        Wrong([asks("a"), gives("a"), asks("a"), gives("a")], 2, "has the id of an earlier call"),
        Wrong([cast("Any", {"role": "user", "content": "hi"})], 0, "a dict is not a message; build messages from"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_with_what_would_be_right(case: Wrong) -> None:
    with pytest.raises(TranscriptError) as caught:
        validate_transcript(case.messages)
    assert caught.value.index == case.index
    assert case.words in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ToolkitError)


def test_a_pending_end_is_accepted_only_where_that_is_asked_for_and_only_as_the_very_end() -> None:
    pending: list[Message] = [HI, asks("a", "b")]
    assert not is_valid(pending)
    assert is_valid(pending, allow_pending=True)
    assert not is_valid([*pending, gives("a")], allow_pending=True)
    assert not is_valid([*pending, HI], allow_pending=True)
    assert not is_valid([asks("a"), asks("b")], allow_pending=True)


# repair


def test_a_call_without_a_result_is_answered_with_what_is_known() -> None:
    call = asks("a", "b")
    result = gives("b")
    repaired = repair_transcript([HI, call, result, DONE])
    assert repaired[0] is HI
    assert repaired[1] is call
    assert repaired[3] is result
    assert repaired[4] is DONE
    answer = repaired[2]
    assert isinstance(answer, ToolResult)
    assert answer.is_error
    assert (answer.call_id, answer.tool_name) == ("a", "tool_a")
    assert "not known whether it ran" in answer.text


def test_a_result_away_from_its_call_is_moved_there() -> None:
    call, result = asks("a"), gives("a")
    assert repair_transcript([call, HI, result]) == [call, result, HI]
    assert repair_transcript([HI, result, call]) == [HI, call, result]
    first, second = asks("a"), asks("b")
    assert repair_transcript([first, second, gives("b"), gives("a")]) == [first, gives("a"), second, gives("b")]


def test_results_in_another_order_are_put_in_call_order() -> None:
    assert repair_transcript([asks("a", "b"), gives("b"), gives("a")]) == [asks("a", "b"), gives("a"), gives("b")]


def test_an_orphan_result_is_removed() -> None:
    assert repair_transcript([HI, gives("x"), DONE]) == [HI, DONE]


def test_of_two_results_for_one_call_the_first_stays() -> None:
    assert repair_transcript([asks("a"), gives("a", "1"), gives("a", "2")]) == [asks("a"), gives("a", "1")]


def test_repeated_ids_in_one_message_are_repaired_in_the_calls_and_in_their_results() -> None:
    repaired = repair_transcript([asks("a", "a"), gives("a", "1"), gives("a", "2")])
    assert [call.id for call in cast("AssistantMessage", repaired[0]).tool_calls] == ["a", "call_1_2"]
    assert [(result.call_id, result.text) for result in cast("list[ToolResult]", repaired[1:])] == [
        ("a", "1"),
        ("call_1_2", "2"),
    ]


def test_an_id_that_an_earlier_turn_used_is_repaired_and_the_earlier_turn_stays() -> None:
    start: list[Message] = [HI, asks("a"), gives("a", "1")]
    repaired = repair_transcript([*start, asks("a"), gives("a", "2")])
    assert all(one is other for one, other in zip(repaired, start, strict=False))
    assert cast("AssistantMessage", repaired[3]).tool_calls[0].id == "call_2_1"
    assert cast("ToolResult", repaired[4]).call_id == "call_2_1"
    assert cast("ToolResult", repaired[4]).text == "2"


def test_a_result_of_a_repeated_id_answers_the_latest_call_before_it() -> None:
    repaired = repair_transcript([asks("a"), HI, asks("a"), gives("a", "late"), DONE])
    assert cast("ToolResult", repaired[1]).is_error
    assert cast("ToolResult", repaired[4]).text == "late"


def test_calls_and_results_without_ids_are_paired_by_their_order() -> None:
    repaired = repair_transcript([asks("", ""), gives("", "1"), gives("", "2")])
    assert [cast("ToolResult", result).text for result in repaired[1:]] == ["1", "2"]
    assert [cast("ToolResult", result).call_id for result in repaired[1:]] == ["call_1_1", "call_1_2"]
    assert repair_transcript([asks("a"), gives("", "1")]) == [asks("a"), ToolResult("a", "1", tool_name="tool_")]
    repaired = repair_transcript([asks("", "b"), gives("x", "1"), gives("b", "2")])
    assert [cast("ToolResult", result).text for result in repaired[1:]] == ["1", "2"]


def test_nothing_is_paired_by_order_where_the_numbers_differ_or_both_have_ids() -> None:
    repaired = repair_transcript([asks("", ""), HI, gives("", "1")])
    assert sum(result.is_error for result in repaired if isinstance(result, ToolResult)) == 1
    repaired = repair_transcript([asks("a", "b"), gives("", "1")])
    assert all(cast("ToolResult", result).is_error for result in repaired[1:])
    repaired = repair_transcript([asks("a"), gives("x", "1")])
    assert all(cast("ToolResult", result).is_error for result in repaired[1:])


def test_a_result_answers_one_call_alone() -> None:
    repaired = repair_transcript([asks(""), gives("a", "1"), asks("a")])
    assert [cast("ToolResult", repaired[index]).is_error for index in (1, 3)] == [True, False]


def test_a_new_id_collides_with_none_in_the_transcript() -> None:
    repaired = repair_transcript([asks(""), gives("", "1"), asks("call_1_1"), gives("call_1_1", "2")])
    assert cast("ToolResult", repaired[1]).call_id == "call_1_1_2"
    assert repaired[2:] == [asks("call_1_1"), gives("call_1_1", "2")]


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(TranscriptError, match="message 1: a dict is not a message"):
        repair_transcript([HI, cast("Any", {"role": "user"})])


def test_a_long_transcript_of_one_id_takes_no_longer_than_it_should() -> None:
    calls = [asks("a") for _ in range(5000)]
    assert is_valid(repair_transcript([*calls, *(gives("a") for _ in range(5000))]))
    assert is_valid(repair_transcript([asks(*[""] * 5000), *(gives("") for _ in range(5000))]))


# properties

_ids = st.sampled_from(["", "a", "b", "c", "call_1_1", "call_2_1", "call_1_1_2"])
_anything: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.just(HI),
        st.just(DONE),
        st.lists(_ids, max_size=3).map(lambda ids: asks(*ids)),
        _ids.flatmap(lambda call_id: st.sampled_from([gives(call_id, "1"), gives(call_id, "2")])),
    ),
    max_size=14,
)


@st.composite
def _valid(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    number = 0
    for calls in draw(st.lists(st.integers(min_value=0, max_value=3), max_size=5)):
        messages.append(UserMessage(f"question {number}"))
        ids = [f"call_id{number + offset}" for offset in range(calls)]
        number += calls
        messages.append(asks(*ids))
        messages.extend(gives(call_id, f"result of {call_id}") for call_id in ids)
    return messages


@st.composite
def _damaged(draw: st.DrawFn) -> list[Message]:
    messages = draw(_valid())
    kept = [message for message in messages if draw(st.integers(0, 5))]
    doubled = [copy for message in kept for copy in [message] * (1 if draw(st.integers(0, 5)) else 2)]
    return draw(st.permutations(doubled)) if draw(st.booleans()) else doubled


def _check(messages: list[Message]) -> list[Message]:
    before = dump_messages(messages)
    repaired = repair_transcript(messages)
    validate_transcript(repaired)
    assert repair_transcript(repaired) == repaired
    assert load_messages(dump_messages(repaired)) == repaired
    assert dump_messages(messages) == before
    others = [message for message in messages if not isinstance(message, (ToolResult, AssistantMessage))]
    assert [message for message in repaired if not isinstance(message, (ToolResult, AssistantMessage))] == others
    prefix = max(end for end in range(len(messages) + 1) if is_valid(messages[:end]))
    assert all(one is other for one, other in zip(messages[:prefix], repaired[:prefix], strict=True))
    real = [message.text for message in messages if isinstance(message, ToolResult)]
    kept = [message.text for message in repaired if isinstance(message, ToolResult) and not message.is_error]
    assert all(kept.count(text) <= real.count(text) for text in kept)
    return repaired


@settings(max_examples=100)
@given(_anything)
def test_any_list_of_messages_is_repaired_once_and_for_all(messages: list[Message]) -> None:
    _check(messages)


@given(_damaged())
def test_a_damaged_transcript_keeps_each_result_that_has_a_call_and_each_for_its_own(messages: list[Message]) -> None:
    repaired = _check(messages)
    texts = {message.text for message in messages if isinstance(message, ToolResult)}
    calls = [message for message in messages if isinstance(message, AssistantMessage)]
    ids = [call.id for message in calls for call in message.tool_calls]
    for message in repaired:
        if isinstance(message, ToolResult) and not message.is_error and ids.count(message.call_id) == 1:
            assert message.text == f"result of {message.call_id}"
    for call_id in set(ids):
        if ids.count(call_id) == 1 and f"result of {call_id}" in texts:
            assert any(result == gives(call_id, f"result of {call_id}") for result in repaired)


@given(_valid())
def test_a_valid_transcript_comes_back_as_the_same_objects(messages: list[Message]) -> None:
    validate_transcript(messages)
    assert all(one is other for one, other in zip(messages, repair_transcript(messages), strict=True))


# fresh replies


def test_a_reply_with_good_ids_is_the_same_object() -> None:
    message = asks("a", "b")
    assert repair_call_ids(message, {"c"}, 1) is message
    assert repair_call_ids(DONE, (), 1) is DONE


def test_missing_repeated_and_used_ids_become_new_ones() -> None:
    message = asks("a", "", "a", "used")
    repaired = repair_call_ids(message, {"used"}, 7)
    assert [call.id for call in repaired.tool_calls] == ["a", "call_7_2", "call_7_3", "call_7_4"]
    assert [call.name for call in repaired.tool_calls] == [call.name for call in message.tool_calls]
    assert repaired.content[0] == TextBlock("let me see")
    assert [call.id for call in message.tool_calls] == ["a", "", "a", "used"]


def test_a_new_id_of_a_reply_collides_with_nothing() -> None:
    repaired = repair_call_ids(asks("", "call_1_1"), {"call_1_1_2"}, 1)
    assert [call.id for call in repaired.tool_calls] == ["call_1_1_3", "call_1_1"]


def test_what_the_provider_wants_back_with_a_call_is_kept() -> None:
    message = AssistantMessage([ToolCall("", "f", "{}", extra={"signature": "x"})])
    assert repair_call_ids(message, (), 1).tool_calls[0] == ToolCall("call_1_1", "f", "{}", extra={"signature": "x"})


@given(st.lists(_ids, max_size=6), st.frozensets(_ids), st.integers(1, 3))
def test_a_repaired_reply_has_ids_of_its_own_and_is_repaired_the_same_each_time(
    ids: list[str], used: frozenset[str], iteration: int
) -> None:
    repaired = repair_call_ids(asks(*ids), used, iteration)
    new = [call.id for call in repaired.tool_calls]
    assert len(set(new)) == len(ids)
    assert not used & set(new)
    assert all(new)
    assert repair_call_ids(asks(*ids), used, iteration) == repaired
    assert repair_call_ids(repaired, used, iteration) is repaired


def test_what_could_not_be_loaded_again_is_not_saved() -> None:
    wrong: Any = [UserMessage("hi"), {"role": "assistant", "content": "hello"}]
    with pytest.raises(TranscriptError, match="message 1: a dict is not a message"):
        dump_messages(wrong)


def test_blocks_in_a_list_are_saved_as_well() -> None:
    blocks: Any = [TextBlock("hi")]
    assert load_messages(dump_messages([UserMessage(blocks)])) == [UserMessage(tuple(blocks))]
