"""Shortening a transcript never parts a call from its result."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Message,
    SystemMessage,
    ToolCall,
    ToolkitError,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import Usage, validate_transcript
from toolkit.errors import ContextTooLongError
from toolkit.policies import keep_last, mask_old_results, summarize
from toolkit.testing import ScriptedProvider


def turn(number: int, *results: str, is_error: bool = False) -> list[Message]:
    calls = [ToolCall(f"c{number}_{index}", "read", "{}") for index in range(len(results))]
    answers = [
        ToolResult(call.id, text, tool_name="read", is_error=is_error)
        for call, text in zip(calls, results, strict=True)
    ]
    return [AssistantMessage(calls), *answers]


START: list[Message] = [SystemMessage("Be brief."), UserMessage("Read.")]


def test_the_newest_messages_stay_with_the_instructions_and_the_question() -> None:
    transcript = [*START, *turn(1, "a"), *turn(2, "b", "c"), AssistantMessage("well"), *turn(3, "d")]
    shorter = keep_last(4)(transcript)
    assert shorter == [*START, AssistantMessage("well"), *turn(3, "d")]
    assert keep_last(99)(transcript) is transcript


def test_a_turn_that_is_longer_than_allowed_stays_whole() -> None:
    transcript = [*START, *turn(1, "a"), *turn(2, *"bcdefg")]
    assert keep_last(3)(transcript) == [*START, *turn(2, *"bcdefg")]


def test_old_results_are_masked_once_and_stay_the_same() -> None:
    long = "x" * 3000
    mask = mask_old_results(keep_turns=1, min_chars=1000)
    transcript = [*START, *turn(1, long, "short"), *turn(2, long)]
    once = mask(transcript)
    texts = [message.text for message in once if isinstance(message, ToolResult)]
    assert texts == ["[The result of read, 3000 characters, was left out.]", "short", long]
    again = mask([*once, *turn(3, long)])
    assert again[3] is once[3]
    assert mask(START) is START


def test_errors_are_not_masked() -> None:
    transcript = [*START, *turn(1, "x" * 3000, is_error=True), *turn(2, "b")]
    assert mask_old_results(keep_turns=1)(transcript) == transcript


@pytest.mark.anyio
async def test_a_model_summarizes_what_is_old() -> None:
    model = ScriptedProvider(["They read a and b."])
    transcript = [*START, *turn(1, "a" * 500), *turn(2, "b" * 500), *turn(3, "c")]
    compact = summarize(model, max_chars=500, keep=2)
    shorter = await compact(transcript)
    assert shorter == [
        START[0],
        UserMessage("Summary of the conversation so far:\n\nThey read a and b."),
        *turn(3, "c"),
    ]
    assert "a" * 500 in model.requests[0].messages[0].text
    assert await compact(shorter) is shorter


TRANSCRIPTS = st.lists(st.one_of(st.just(0), st.integers(1, 4)), max_size=12).map(
    lambda sizes: [
        *START,
        *[
            message
            for number, size in enumerate(sizes)
            for message in (turn(number, *["x" * 2500] * size) if size else [UserMessage(f"go {number}")])
        ],
    ]
)


@given(TRANSCRIPTS, st.integers(1, 15))
def test_what_is_valid_stays_valid(transcript: list[Message], keep: int) -> None:
    ways: list[Callable[[Sequence[Message]], Sequence[Message]]] = [keep_last(keep), mask_old_results(keep_turns=keep)]
    before = list(transcript)
    for compact in ways:
        shorter = compact(transcript)
        validate_transcript(shorter)
        assert list(compact(shorter)) == list(shorter)
        assert transcript == before


def test_nothing_to_keep_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="keep_last must be 1 or more"):
        keep_last(0)
    with pytest.raises(ConfigurationError, match="keep_turns must be 1 or more"):
        mask_old_results(keep_turns=0)


@pytest.mark.anyio
async def test_a_compaction_that_parts_a_call_from_its_result_is_refused() -> None:
    @tool
    async def read() -> str:
        return "x"

    def cut(transcript: Sequence[Message]) -> Sequence[Message]:
        return transcript[-1:]

    config: ToolLoopConfig = ToolLoopConfig(compaction=cut)
    provider = ScriptedProvider([ToolCall("1", "read", "{}"), "never"])
    with pytest.raises(Exception, match="the compaction gave a transcript that is not valid") as failure:
        await tool_loop(provider, ToolRegistry([read]), "go", config=config)
    validate_transcript(failure.value.messages)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("shorter", "message"),
    [([], "left nothing of the transcript"), (None, "what the compaction gives must be a list, not None")],
    ids=["nothing", "no list"],
)
async def test_a_compaction_that_loses_the_transcript_is_refused(shorter: Any, message: str) -> None:
    config: ToolLoopConfig = ToolLoopConfig(compaction=lambda _: shorter)
    with pytest.raises(ToolkitError, match=message):
        await tool_loop(ScriptedProvider(["never"]), ToolRegistry(), "go", config=config)


@pytest.mark.anyio
async def test_a_handle_steps_by_turns_also_when_each_is_compacted() -> None:
    from toolkit import ToolLoopHandle, Yielded
    from toolkit.events import Compacted, LoopEvent

    @tool
    async def read() -> str:
        return "x"

    events: list[LoopEvent] = []
    requests: list[int] = []

    def model(request: ChatRequest) -> ToolCall | str:
        requests.append(len(request.messages))
        return "done" if len(requests) == 4 else ToolCall(f"c{len(requests)}", "read", "{}")

    config: ToolLoopConfig = ToolLoopConfig(compaction=keep_last(2), on_event=events.append)
    handle = ToolLoopHandle(ScriptedProvider([model], repeats=True), ToolRegistry([read]), "go", config=config)
    turns = 0
    while isinstance(await handle.next_turn(), Yielded):
        turns += 1
    assert turns == 3
    assert requests == [1, 3, 3, 3]
    assert [(event.before, event.after) for event in events if isinstance(event, Compacted)] == [(5, 3), (5, 3)]


TOO_LONG = ContextTooLongError("model", "too long")
TOO_LONG.usage = Usage(input_tokens=5)


def leave(messages: Sequence[Message]) -> Sequence[Message]:
    return messages


COMPACTIONS: dict[str, Callable[[], Any]] = {
    "nothing to do": lambda: leave,
    "keeps more": lambda: keep_last(40),
    "masks": mask_old_results,
    "summarizes": lambda: summarize(ScriptedProvider(["Much."]), keep=2),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", COMPACTIONS)
async def test_a_transcript_that_the_model_refuses_is_compacted_once_and_asked_about_again(name: str) -> None:
    lengths: list[int] = []

    def answer(request: ChatRequest) -> str:
        lengths.append(len(request.messages))
        if len(lengths) in (1, 3):
            raise TOO_LONG
        return "Done."

    messages: list[Message] = [SystemMessage("Be kind."), *[UserMessage(f"Question {number}?") for number in range(9)]]
    config: ToolLoopConfig = ToolLoopConfig(compaction=COMPACTIONS[name](), instructions=(lambda ctx: "It is noon.",))
    model = ScriptedProvider([answer], repeats=True)
    result = await tool_loop(model, ToolRegistry(), messages, config=config)
    assert (result.text, lengths[0], lengths[1] < lengths[0]) == ("Done.", 11, True)
    assert result.usage.input_tokens >= 5
    lengths[:] = []

    def refuse(request: ChatRequest) -> str:
        lengths.append(len(request.messages))
        raise TOO_LONG

    config = ToolLoopConfig(compaction=COMPACTIONS[name]())
    with pytest.raises(ContextTooLongError):
        await tool_loop(ScriptedProvider([refuse], repeats=True), ToolRegistry(), messages, config=config)
    assert len(lengths) == 2
    with pytest.raises(ContextTooLongError):
        await tool_loop(ScriptedProvider([refuse], repeats=True), ToolRegistry(), messages)
    assert len(lengths) == 3
