"""A reply that was cut off runs nothing that it did not finish saying, and nothing that waits for us is dropped."""

import json
from collections.abc import Callable

import pytest

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    ChatRequest,
    LoopDetectionConfig,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    Usage,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatResponse, ReasoningBlock, StopReason, TextBlock, UnansweredItem
from toolkit.endings import Complete, CutStop, NoValidAnswer, UnansweredItems
from toolkit.events import Done, ToolCallRefused, dump_event, load_event
from toolkit.parsing import TextToolProvider
from toolkit.testing import EventCollector, ScriptedProvider, check_transcript

pytestmark = pytest.mark.anyio

_DELETED: list[str] = []
_CUT = "cut off before its arguments were complete; call it again"


@pytest.fixture(autouse=True)
def nothing_deleted() -> None:
    _DELETED.clear()


@tool
def delete_files(pattern: str = "*") -> str:
    """Delete files.

    Args:
        pattern: Which.
    """
    _DELETED.append(pattern)
    return "done"


def said(
    *content: TextBlock | ToolCall | ReasoningBlock,
    stop_reason: StopReason = "max_tokens",
    unanswered: tuple[UnansweredItem, ...] = (),
) -> ChatResponse:
    return ChatResponse(
        message=AssistantMessage(content), usage=Usage(), stop_reason=stop_reason, unanswered=unanswered
    )


def delete(arguments: str, call_id: str = "c") -> ToolCall:
    return ToolCall(call_id, "delete_files", arguments)


async def run(
    *replies: ChatResponse, streams: bool = False, config: ToolLoopConfig | None = None
) -> tuple[ToolLoopResult, EventCollector]:
    events = EventCollector()
    config = config or ToolLoopConfig()
    config = ToolLoopConfig(
        stream=streams, on_event=events, loop_detection=config.loop_detection, max_iterations=config.max_iterations
    )
    result = await tool_loop(
        ScriptedProvider([*replies, "Done."]), ToolRegistry([delete_files]), "Tidy up", config=config
    )
    check_transcript(result.messages, events.events)
    return result, events


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize(
    "arguments",
    ["", " \n", "{}", " { } ", "null", "[]", '""', '{"pattern', '{"pattern": "a', '{"pattern": "a"', "[1]", "1"],
)
async def test_a_call_that_a_cut_reply_did_not_finish_is_not_run(arguments: str, streams: bool) -> None:
    result, events = await run(said(TextBlock("Well,"), delete(arguments)), streams=streams)
    assert _DELETED == []
    assert [_CUT in message.text for message in result.messages if message.role == "tool"] == [True]
    assert [event.call_id for event in events.events if isinstance(event, ToolCallRefused)] == ["c"]
    assert (result.text, result.reason) == ("Done.", Complete())


async def test_replies_cut_at_every_character_run_nothing_but_what_was_said_whole() -> None:
    whole = json.dumps({"pattern": 'a "quoted" \\ path/é'})
    for length in range(len(whole) + 1):
        await run(said(delete('{"pattern": "first"}', "a"), delete(whole[:length], "b")))
        assert set(_DELETED) == ({"first"} if length < len(whole) else {"first", json.loads(whole)["pattern"]})
        _DELETED.clear()


@pytest.mark.parametrize(
    ("content", "ran"),
    [
        pytest.param([delete("{}", "a"), delete('{"pattern": "b"}', "b")], ["*", "b"], id="another call follows"),
        pytest.param([delete("{}", "a"), TextBlock("Then")], ["*"], id="text follows"),
        pytest.param([delete("{}", "a"), ReasoningBlock(encrypted="x")], [], id="what nobody reads follows"),
    ],
)
async def test_what_was_said_before_the_cut_runs(content: list[TextBlock | ToolCall], ran: list[str]) -> None:
    await run(said(*content))
    assert sorted(_DELETED) == ran


@pytest.mark.parametrize("arguments", ["", "{}"])
@pytest.mark.parametrize("reason", ["tool_use", "end_turn"])
async def test_a_whole_reply_may_leave_the_arguments_out(reason: StopReason, arguments: str) -> None:
    await run(said(delete(arguments), stop_reason=reason))
    assert _DELETED == ["*"]


@pytest.mark.parametrize("action", ["stop", "skip", "inject_warning", "warn"])
async def test_loop_detection_sees_calls_that_were_cut_off(action: str) -> None:
    detection = LoopDetectionConfig(threshold=2, action=action)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - a table of literals
    replies = [said(delete("", name)) for name in "abc"]
    result, _ = await run(*replies, config=ToolLoopConfig(loop_detection=detection, max_iterations=3))
    assert _DELETED == []
    assert result.messages


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        ('<tool_call>{"name": "delete_files", "arguments": {"pattern": "a/b"}}</tool_call>', "hermes"),
        ('Action: delete_files\nAction Input: {"pattern": "a/b"}\n', "react"),
        ('<|python_tag|>{"name": "delete_files", "parameters": {"pattern": "a/b"}}', "llama"),
        ('[TOOL_CALLS][{"name": "delete_files", "arguments": {"pattern": "a/b"}}]', "mistral"),
        ('[TOOL_CALLS]delete_files[ARGS]{"pattern": "a/b"}', "mistral"),
        ("<function=delete_files><parameter=pattern>a/b</parameter></function>", "qwen"),
        ('[delete_files(pattern="a/b")]', "pythonic"),
        ('```json\n{"name": "delete_files", "arguments": {"pattern": "a/b"}}\n```', "json"),
        ("<tool_call>delete_files\n<arg_key>pattern</arg_key>\n<arg_value>a/b</arg_value>\n</tool_call>", "auto"),
    ],
)
async def test_text_calls_cut_at_every_character_run_whole_or_not_at_all(text: str, formats: str) -> None:
    for length in range(len(text) + 1):
        provider = TextToolProvider(
            ScriptedProvider([said(TextBlock(text[:length])), "Done.", "Done."]),
            format=formats,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - a table of literals
            max_parsing_attempts=1,
        )
        result = await tool_loop(provider, ToolRegistry([delete_files]), "Tidy up")
        check_transcript(result.messages)
        assert set(_DELETED) <= {"a/b"}, text[:length]
        _DELETED.clear()


CLICK = UnansweredItem("computer_call", "call_9")
PATCH = UnansweredItem("custom_tool_call", "call_8", "patch")


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_what_waits_for_the_application_ends_the_loop_and_is_named(streams: bool) -> None:
    result, _ = await run(said(stop_reason="end_turn", unanswered=(CLICK, PATCH)), streams=streams)
    assert result.reason == UnansweredItems((CLICK, PATCH))
    assert "computer_call" in str(result.reason)
    assert result.iterations == 1


@pytest.mark.parametrize("reason", ["tool_use", "max_tokens", "refusal"])
async def test_calls_beside_what_waits_are_answered_first(reason: StopReason) -> None:
    result, _ = await run(said(delete('{"pattern": "a"}'), stop_reason=reason, unanswered=(CLICK,)))
    assert result.reason == UnansweredItems((CLICK,))
    assert ([] if reason == "refusal" else ["a"]) == _DELETED
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]


async def test_a_handle_that_ended_so_is_restored_so() -> None:
    registry = ToolRegistry([delete_files])
    handle = ToolLoopHandle(ScriptedProvider([said(unanswered=(CLICK,))]), registry, "Tidy up")
    await handle.next_turn()
    snapshot = json.loads(json.dumps(handle.snapshot()))
    restored = ToolLoopHandle.restore(snapshot, ScriptedProvider(["never"]), registry, ctx=None)
    assert restored.into_result().reason == UnansweredItems((CLICK,))


async def test_a_sub_agent_says_that_something_waits() -> None:
    inner = ScriptedProvider([said(unanswered=(CLICK,))])
    agent = sub_agent_tool("helper", "Helps.", provider=inner, registry=ToolRegistry([delete_files]))
    outer = ScriptedProvider([ToolCall("c", "helper", '{"task": "Click"}'), "Done."])
    result = await tool_loop(outer, ToolRegistry([agent]), "Go")
    assert "computer_call" in result.messages[2].text


async def test_what_waits_passes_through_text_tools() -> None:
    script: Callable[[ChatRequest], ChatResponse] = lambda request: said(TextBlock("See"), unanswered=(CLICK,))  # noqa: E731
    provider = TextToolProvider(ScriptedProvider([script]))
    result = await tool_loop(provider, ToolRegistry([delete_files]), [UserMessage("Go")])
    assert result.reason == UnansweredItems((CLICK,))


@pytest.mark.parametrize("arguments", ["", " ", "null"])
@pytest.mark.parametrize(
    "after", [ToolCall("2", "delete_files", '{"pattern": "b"}'), TextBlock("Then")], ids=["call", "text"]
)
async def test_a_call_without_arguments_does_not_run_in_a_cut_reply_wherever_it_stands(
    arguments: str, after: ToolCall | TextBlock
) -> None:
    result, _ = await run(said(ToolCall("1", "delete_files", arguments), after))
    assert _CUT in result.messages[2].text
    assert (["b"] if isinstance(after, ToolCall) else []) == _DELETED


@pytest.mark.parametrize("arguments", ["{}", '{"answer": {"a'])
@pytest.mark.parametrize("retries", [0, 2])
async def test_an_answer_that_is_cut_off_each_time_counts_as_a_wrong_one(arguments: str, retries: int) -> None:
    provider = ScriptedProvider([said(ToolCall("1", "final_answer", arguments))], repeats=True)
    config = ToolLoopConfig(answer=AnswerFormat(dict[str, int] | None, max_retries=retries), max_iterations=50)
    result = await tool_loop(provider, ToolRegistry([]), "Answer", config=config)
    assert isinstance(result.reason, NoValidAnswer)
    assert len(provider.requests) == retries + 1
    check_transcript(result.messages)


CUTS: list[tuple[CutStop, str]] = [
    ("max_tokens", "the answer was cut off at the most tokens that it may have (max_tokens)"),
    ("content_filter", "the answer was cut off by the provider's filter (content_filter)"),
    ("refusal", "the answer was cut off: the model refused to go on (refusal)"),
]


@pytest.mark.parametrize(("stop", "words"), CUTS)
async def test_a_cut_answer_says_so_in_its_ending_its_text_and_its_events(stop: CutStop, words: str) -> None:
    events = EventCollector()
    provider = ScriptedProvider([said(TextBlock("The three steps are: 1."), stop_reason=stop)])
    result = await tool_loop(provider, ToolRegistry(), "How?", config=ToolLoopConfig(on_event=events))
    assert result.reason == Complete(stop)
    assert str(result) == f"The three steps are: 1.\n\n[{words}]"
    assert result.text == "The three steps are: 1."
    done = load_event(dump_event(events.of(Done)[0]))
    assert isinstance(done, Done)
    assert done.result.reason == Complete(stop)
    handle = ToolLoopHandle(ScriptedProvider([said(TextBlock("The"), stop_reason=stop)]), ToolRegistry(), "How?")
    await handle.run()
    again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), ToolRegistry(), ctx=None)
    assert again.result.reason == Complete(stop)


@pytest.mark.parametrize(("stop", "words"), CUTS)
async def test_the_caller_of_a_sub_agent_reads_that_its_answer_was_cut_off(stop: CutStop, words: str) -> None:
    clerk = ScriptedProvider([said(TextBlock("It is"), stop_reason=stop)])
    agent = sub_agent_tool("clerk", "Knows.", clerk, ToolRegistry())
    boss = ScriptedProvider([ToolCall("1", "clerk", '{"task": "Look."}'), "ok"])
    result = await tool_loop(boss, ToolRegistry([agent]), "Ask.")
    [answer] = [message for message in result.messages if message.role == "tool"]
    assert answer.text == f"It is\n\n[Sub-agent 'clerk': {words}]"


@pytest.mark.parametrize("stop", ["end_turn", "tool_use", "stop_sequence"])
async def test_a_whole_answer_is_complete_and_its_text_is_all_that_is_said(stop: StopReason) -> None:
    result = await tool_loop(ScriptedProvider([said(TextBlock("42"), stop_reason=stop)]), ToolRegistry(), "What?")
    assert result.reason == Complete()
    assert str(result) == "42"


async def test_the_answer_after_the_last_turn_says_that_it_was_cut_off() -> None:
    provider = ScriptedProvider([said(TextBlock("It is"))])
    config: ToolLoopConfig = ToolLoopConfig(max_iterations=0, on_max_iterations="answer")
    result = await tool_loop(provider, ToolRegistry(), "What?", config=config)
    assert str(result) == f"It is\n\n[{CUTS[0][1]}]"
