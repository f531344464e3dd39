"""A loop that is stepped by hand: turns, words in between, and its end."""

from typing import Any

import anyio
import pytest

from tests.busy_machine import with_time_enough
from tests.flows.small_tools import TOOLS, say
from toolkit import (
    AssistantMessage,
    Completed,
    ConfigurationError,
    Failed,
    ProviderError,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolResult,
    UserMessage,
    Yielded,
    tool_loop_resumable,
)
from toolkit.chat import TextBlock, validate_transcript
from toolkit.endings import Cancelled, Complete, MaxIterations, StopCondition, Timeout
from toolkit.errors import LoopUsageError, MaxDepthExceededError, TranscriptError
from toolkit.policies import Continue, InjectMessages, Stop
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


def stepped(*replies: ScriptedReply, config: ToolLoopConfig | None = None) -> ToolLoopHandle[object]:
    return ToolLoopHandle(ScriptedProvider(replies), TOOLS, "go", config=config)


async def yielded(handle: ToolLoopHandle[object]) -> Yielded:
    turn = await handle.next_turn()
    assert isinstance(turn, Yielded)
    return turn


async def test_a_turn_shows_what_happened_in_it() -> None:
    handle = stepped(AssistantMessage([TextBlock("Well."), say("a"), say("b", "2")]), "done")
    turn = await yielded(handle)
    assert [call.id for call in turn.tool_calls] == ["1", "2"]
    assert [result.text for result in turn.results] == ["a", "b"]
    assert turn.assistant_content == (TextBlock("Well."),)
    assert turn.assistant_text == "Well."
    assert (turn.iteration, turn.usage.total_tokens) == (1, 15)
    assert turn.messages is handle.messages
    assert (handle.iterations, handle.is_finished) == (1, False)
    end = await handle.next_turn()
    assert isinstance(end, Completed)
    assert (end.reason, end.result.text, handle.is_finished) == (Complete(), "done", True)
    assert handle.into_result() is end.result


async def test_after_the_end_the_same_outcome_comes_again() -> None:
    handle = stepped("done")
    first = await handle.next_turn()
    handle.resume(Stop("ignored"))
    assert await handle.next_turn() is first


async def test_injected_messages_stand_after_the_results() -> None:
    handle = stepped(say("a"), "done")
    (await yielded(handle)).inject_and_continue([UserMessage("And?")])
    await handle.next_turn()
    assert [message.text for message in handle.messages] == ["go", "", "a", "And?", "done"]


UNFIT = {
    "a result without its call": [ToolResult("9", "done")],
    "a call without its result": [AssistantMessage([say("b", "9")])],
    "the id of an earlier call": [AssistantMessage([say("b")]), ToolResult("1", "b")],
}


@pytest.mark.parametrize("messages", UNFIT.values(), ids=UNFIT)
async def test_messages_that_would_break_the_transcript_are_not_injected(messages: Any) -> None:
    handle = stepped(say("a"), "done")
    turn = await yielded(handle)
    with pytest.raises(TranscriptError):
        turn.inject_and_continue(messages)
    assert isinstance(await handle.next_turn(), Completed)
    assert [message.text for message in handle.messages] == ["go", "", "a", "done"]


async def test_a_text_is_no_list_of_messages_to_inject() -> None:
    handle = stepped(say("a"), "done")
    turn = await yielded(handle)
    text: Any = "And?"
    with pytest.raises(ConfigurationError, match=r"such as \[UserMessage\('And then\?'\)\]"):
        turn.inject_and_continue(text)
    assert isinstance(await handle.next_turn(), Completed)


async def test_an_injected_call_keeps_its_id_and_a_later_one_of_the_same_gets_another() -> None:
    handle = stepped(say("a"), say("c", "9"), "done")
    turn = await yielded(handle)
    turn.inject_and_continue([AssistantMessage([say("b", "9")]), ToolResult("9", "b")])
    assert [result.text for result in (await yielded(handle)).results] == ["c"]
    validate_transcript(handle.messages)


async def test_a_transcript_that_was_edited_wrongly_is_told_and_can_be_repaired() -> None:
    handle = stepped(say("a"), "done")
    await handle.next_turn()
    result = handle.messages.pop()
    with pytest.raises(TranscriptError, match="without the result of call '1'"):
        await handle.next_turn()
    handle.messages.append(result)
    assert isinstance(await handle.next_turn(), Completed)


async def test_what_is_no_command_is_refused() -> None:
    handle = stepped(say("a"), "done")
    wrong: Any = "stop"
    with pytest.raises(ConfigurationError, match="must be a Continue, an InjectMessages or a Stop, not 'stop'"):
        handle.resume(wrong)


async def test_stopping_makes_no_further_request() -> None:
    handle = stepped(say("a"))
    (await yielded(handle)).stop("enough")
    end = await handle.next_turn()
    assert isinstance(end, Completed)
    assert (end.reason, end.result.iterations) == (StopCondition("enough"), 1)
    assert end.response is not None


async def test_the_last_word_counts() -> None:
    handle = stepped(say("a"), "done")
    turn = await yielded(handle)
    turn.stop("no")
    turn.inject_and_continue([UserMessage("never read")])
    turn.resume(InjectMessages((UserMessage("nor this"),)))
    turn.resume(Continue())
    await handle.next_turn()
    assert [message.text for message in handle.messages] == ["go", "", "a", "done"]


async def test_messages_may_be_edited_between_turns() -> None:
    handle = stepped(say("a"), say("b", "2"), "done")
    await handle.next_turn()
    handle.messages[1:] = [UserMessage("a was said")]
    await handle.next_turn()
    await handle.next_turn()
    assert [message.text for message in handle.messages] == ["go", "a was said", "", "b", "done"]
    validate_transcript(handle.messages)


async def test_a_message_is_edited_by_putting_another_in_its_place() -> None:
    provider = ScriptedProvider([say("a"), "done"])
    handle = ToolLoopHandle(provider, TOOLS, "my card is 4111")
    turn = await handle.next_turn()
    assert isinstance(turn, Yielded)
    turn.messages[0] = UserMessage("my card is [redacted]")
    await handle.next_turn()
    assert [request.messages[0].content for request in provider.requests] == [
        "my card is 4111",
        "my card is [redacted]",
    ]


async def test_a_transcript_that_was_emptied_is_refused_where_the_next_request_would_ask_nothing() -> None:
    provider = ScriptedProvider([say("a"), "done"])
    handle = ToolLoopHandle(provider, TOOLS, "go")
    await handle.next_turn()
    handle.messages.clear()
    with pytest.raises(TranscriptError, match="the transcript is empty"):
        await handle.next_turn()
    assert len(provider.requests) == 1
    handle.resume(InjectMessages((UserMessage("again"),)))
    assert isinstance(await handle.next_turn(), Completed)
    assert [message.text for message in handle.messages] == ["again", "done"]


async def test_a_failure_is_an_outcome_that_stays() -> None:
    handle = stepped(say("a"), ProviderError("scripted", "broken"))
    await handle.next_turn()
    failed = await handle.next_turn()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ProviderError)
    assert [message.text for message in failed.error.messages] == ["go", "", "a"]
    assert failed.iterations == 2
    assert await handle.next_turn() is failed
    with pytest.raises(ProviderError, match="broken"):
        handle.into_result()


async def test_there_is_no_result_before_the_end() -> None:
    handle = stepped(say("a"), "done")
    await handle.next_turn()
    with pytest.raises(LoopUsageError, match="has not ended yet"):
        handle.into_result()


async def test_too_deep_is_told_by_the_first_turn() -> None:
    handle = stepped("never", config=ToolLoopConfig(max_depth=0))
    failed = await handle.next_turn()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, MaxDepthExceededError)
    assert [message.text for message in handle.messages] == ["go"]
    assert [message.text for message in failed.error.messages] == ["go"]


async def test_two_turns_at_once_are_refused() -> None:
    handle = stepped(ToolCall("1", "hang", "{}"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(handle.next_turn)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(LoopUsageError, match="running already"):
            await handle.next_turn()
        with pytest.raises(LoopUsageError, match="a turn is running"):
            handle.snapshot()
        tasks.cancel_scope.cancel()
    assert handle.into_result().reason == Cancelled()
    validate_transcript(handle.messages)


async def test_a_cancelled_turn_ends_the_loop_for_good() -> None:
    handle = stepped(ToolCall("1", "hang", "{}"), "never")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(handle.next_turn)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    end = await handle.next_turn()
    assert isinstance(end, Completed)
    assert end.reason == Cancelled()
    assert end.result.messages[-1].text.startswith("Interrupted")


async def test_the_clock_stands_still_while_the_caller_thinks() -> None:
    async def think(seconds: float) -> Completed:
        handle = stepped(say("a"), ToolCall("2", "hang", "{}"), config=ToolLoopConfig(timeout=seconds))
        await handle.next_turn()
        await anyio.sleep(1.2 * seconds)
        with anyio.fail_after(120):
            end = await handle.next_turn()
        assert isinstance(end, Completed)
        assert end.reason == Timeout(seconds)
        return end

    end = await with_time_enough(think, lambda end: len(end.result.messages) == 5)
    assert end.result.messages[-1].text.startswith("Interrupted: the run's time was up")


async def test_the_time_of_the_caller_counts_where_it_is_told_to() -> None:
    async def think(seconds: float) -> tuple[int, Completed]:
        provider = ScriptedProvider([say("a"), "never asked"])
        config: ToolLoopConfig = ToolLoopConfig(timeout=seconds)
        handle = ToolLoopHandle(provider, TOOLS, "go", config=config, counts_pauses=True)
        first = await handle.next_turn()
        await anyio.sleep(seconds)
        end = await handle.next_turn()
        assert isinstance(end, Completed)
        assert end.reason == Timeout(seconds)
        return len(provider.requests) if isinstance(first, Yielded) else 0, end

    requests, end = await with_time_enough(think, lambda thought: thought[0])
    assert requests == 1
    assert [message.text for message in end.result.messages] == ["go", "", "a"]


async def test_closing_ends_the_loop_between_turns() -> None:
    handle = stepped(say("a"), "never")
    await handle.next_turn()
    await handle.close()
    await handle.close()
    assert handle.into_result().reason == Cancelled()
    validate_transcript(handle.messages)


async def test_the_last_allowed_turn_is_yielded_before_the_end() -> None:
    handle = stepped(say("a"), config=ToolLoopConfig(max_iterations=1))
    turn = await yielded(handle)
    assert ([result.text for result in turn.results], handle.is_finished) == (["a"], False)
    end = await handle.next_turn()
    assert isinstance(end, Completed)
    assert (end.reason, end.result.messages[-1].text) == (MaxIterations(1), "a")


async def test_it_has_another_name() -> None:
    assert tool_loop_resumable is ToolLoopHandle
