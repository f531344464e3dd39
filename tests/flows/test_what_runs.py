"""What may run of a reply, and what those who decide about it see: the calls as they would run."""

from dataclasses import replace
from typing import Any

import pytest

from toolkit import (
    Abort,
    AssistantMessage,
    ChatRequest,
    LoopDetectionConfig,
    LoopLimits,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    ToolResult,
    UserMessage,
    Yielded,
    tool,
    tool_loop,
)
from toolkit.endings import Complete, MaxIterations, StopCondition
from toolkit.events import LoopDetected
from toolkit.policies import Continue, Stop, StopContext, when_called
from toolkit.testing import EventCollector, ScriptedProvider, ScriptedReply, check_transcript

pytestmark = pytest.mark.anyio


class Office:
    def __init__(self) -> None:
        self.runs: list[str] = []

    def tools(self) -> ToolRegistry[object]:
        @tool(run_in_thread=False)
        def read_file(path: str, limit: int = 10) -> str:
            """Read."""
            self.runs.append(f"read {path} {limit}")
            return path

        @tool(run_in_thread=False)
        def delete_file(path: str) -> str:
            """Delete."""
            self.runs.append(f"delete {path}")
            return "gone"

        return ToolRegistry([read_file, delete_file])


async def run(
    replies: list[ScriptedReply], config: ToolLoopConfig, request: Any = "go"
) -> tuple[ToolLoopResult, Office, EventCollector]:
    office, events = Office(), EventCollector()
    provider = ScriptedProvider([*replies, "done"])
    result = await tool_loop(provider, office.tools(), request, config=replace(config, on_event=events))
    check_transcript(result.messages, events.events)
    return result, office, events


def results_of(result: ToolLoopResult) -> list[ToolResult]:
    return [message for message in result.messages if isinstance(message, ToolResult)]


SAME_NAMES = ["delete_file", "Delete-File", "deleteFile", "functions.delete_file", '"delete_file"']


@pytest.mark.parametrize("name", SAME_NAMES)
async def test_a_stop_condition_sees_a_repaired_name(name: str) -> None:
    config = ToolLoopConfig(stop_when=when_called("delete_file"))
    result, office, _ = await run([ToolCall("1", name, '{"path": "a"}')], config)
    assert result.reason == StopCondition("delete_file was called")
    assert office.runs == []


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a", "limit": 10}',
        '{"limit":10,"path":"a"}',
        '{"path": "a"}',
        "{'path': 'a',}",
        '{"path":"a","limit":"10"}',
    ],
)
async def test_a_stop_condition_sees_what_the_tool_would_be_given(arguments: str) -> None:
    seen: list[ToolCall] = []

    def look(context: StopContext) -> Continue:
        seen.extend(context.response.tool_calls)
        return Continue()

    result, _, _ = await run([ToolCall("1", "readFile", arguments)], ToolLoopConfig(stop_when=look))
    assert seen == [ToolCall("1", "read_file", '{"limit":10,"path":"a"}')]
    assert result.messages[1] == AssistantMessage([ToolCall("1", "readFile", arguments)])


@pytest.mark.parametrize("mode", ["batch", "call"])
async def test_repeats_are_seen_however_they_are_spelled(mode: Any) -> None:
    spelled: list[ScriptedReply] = [
        ToolCall("1", "read_file", '{"path": "a"}'),
        ToolCall("2", "readFile", '{"path": "a", "limit": 10}'),
        ToolCall("3", "READ_FILE", "{'limit': '10', 'path': 'a'}"),
    ]
    detection = LoopDetectionConfig(action="stop", mode=mode)
    result, office, _ = await run(spelled, ToolLoopConfig(loop_detection=detection))
    assert result.reason == LoopDetected(tool_name="read_file", count=3, action="stop")
    assert len(office.runs) == 2


async def test_a_tool_is_exempt_under_every_spelling_of_its_name() -> None:
    replies: list[ScriptedReply] = [ToolCall(str(number), "readFile", '{"path": "a"}') for number in range(3)]
    detection = LoopDetectionConfig(threshold=2, action="stop", exempt={"read_file"})
    result, office, _ = await run(replies, ToolLoopConfig(loop_detection=detection))
    assert result.reason == Complete()
    assert len(office.runs) == 3


async def test_two_tools_that_alternate_are_both_named() -> None:
    read, delete = ("read_file", '{"path": "a"}'), ("delete_file", '{"path": "a"}')
    replies: list[ScriptedReply] = [ToolCall(str(turn), *(delete if turn % 2 else read)) for turn in range(8)]
    detection = LoopDetectionConfig(action="inject_warning", mode="call")
    result, _, events = await run(replies, ToolLoopConfig(loop_detection=detection))
    assert [event.tool_name for event in events.of(LoopDetected)][:2] == [
        "read_file+delete_file",
        "delete_file+read_file",
    ]
    warnings = [message.text for message in result.messages[1:] if isinstance(message, UserMessage)]
    assert warnings[0].startswith("You have called read_file+delete_file up to 3 times with the same arguments.")


async def test_deep_arguments_are_refused_and_not_raised() -> None:
    deep = '{"path": ' + "[" * 100_000 + "]" * 100_000 + "}"
    config = ToolLoopConfig(loop_detection=LoopDetectionConfig(), stop_when=when_called("delete_file"))
    result, office, _ = await run([ToolCall("1", "read_file", deep), ToolCall("2", "nothing", deep)], config)
    assert result.reason == Complete()
    assert office.runs == []


@pytest.mark.parametrize(("most", "expected"), [(128, 128), (3, 3), (None, 200)])
async def test_so_many_calls_of_one_reply_run_and_the_others_are_answered(most: int | None, expected: int) -> None:
    calls = [ToolCall(str(number), "read_file", f'{{"path": "{number}"}}') for number in range(200)]
    config = ToolLoopConfig() if most == 128 else ToolLoopConfig(limits=LoopLimits(calls_per_turn=most))
    result, office, _ = await run([AssistantMessage(calls)], config)
    assert len(office.runs) == expected
    texts = [each.text for each in results_of(result)]
    assert texts[:expected] == [str(number) for number in range(expected)]
    wanted = f"Not run: at most {most} calls of one reply are run, and this one came after them. Ask for it again."
    assert texts[expected:] == [wanted] * (200 - expected)
    assert result.reason == Complete()


async def test_what_was_not_offered_does_not_run() -> None:
    tools = Office().tools()
    request = ChatRequest(messages=[UserMessage("go")], tools=tools.only(["read_file"]).definitions())
    calls = [ToolCall("1", "delete_file", '{"path": "a"}'), ToolCall("2", "deleteFile", '{"path": "a"}')]
    result, office, _ = await run([AssistantMessage(calls)], ToolLoopConfig(), request)
    assert office.runs == []
    assert all("Unknown tool" in each.text and "read_file" in each.text for each in results_of(result))


async def test_nothing_runs_where_no_tool_was_offered() -> None:
    request = ChatRequest(messages=[UserMessage("go")], tools=())
    result, office, _ = await run([ToolCall("1", "delete_file", '{"path": "a"}')], ToolLoopConfig(), request)
    assert office.runs == []
    assert [each.is_error for each in results_of(result)] == [True]


async def test_a_tool_that_was_registered_after_the_request_runs_in_the_next_turn() -> None:
    office = Office()
    tools = office.tools()
    late = tools.only(["read_file"])
    delete = tools.registrations["delete_file"].tool

    def register(request: ChatRequest) -> ToolCall:
        if "delete_file" not in late:
            late.register(delete)
        return ToolCall(str(len(request.messages)), "delete_file", '{"path": "a"}')

    result = await tool_loop(ScriptedProvider([register, register, "done"]), late, "go")
    assert [each.is_error for each in results_of(result)] == [True, False]
    assert office.runs == ["delete a"]


async def test_what_was_not_offered_does_not_run_in_a_restored_loop_either() -> None:
    office = Office()
    tools = office.tools()
    request = ChatRequest(messages=[UserMessage("go")], tools=tools.only(["read_file"]).definitions())
    provider = ScriptedProvider([ToolCall("1", "read_file", '{"path": "a"}')])
    handle = ToolLoopHandle(provider, tools, request)
    assert isinstance(await handle.next_turn(), Yielded)
    again = ScriptedProvider([ToolCall("2", "delete_file", '{"path": "a"}'), "done"])
    restored = ToolLoopHandle.restore(
        handle.snapshot(), again, tools, ctx=None, config=ToolLoopConfig(max_iterations=2)
    )
    while isinstance(await restored.next_turn(), Yielded):
        pass
    assert office.runs == ["read a 10"]
    assert [definition.name for definition in again.requests[0].tools or ()] == ["read_file"]
    assert restored.into_result().reason == MaxIterations(2)


async def test_a_stop_condition_that_stops_leaves_all_calls_of_a_long_reply_answered() -> None:
    calls = [ToolCall(str(number), "read_file", '{"path": "a"}') for number in range(200)]
    result, office, _ = await run([AssistantMessage(calls)], ToolLoopConfig(stop_when=lambda context: Stop("enough")))
    assert result.reason == StopCondition("enough")
    assert office.runs == []
    assert len(results_of(result)) == 200


async def test_a_refused_call_keeps_its_reason_where_an_earlier_one_is_aborted() -> None:
    calls = AssistantMessage([ToolCall("1", "add", '{"a": 1, "b": 2}'), ToolCall("2", "nope", "{}")])
    config = ToolLoopConfig[None](on_tool_call=lambda _: Abort("enough"))

    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    result = await tool_loop(ScriptedProvider([calls]), ToolRegistry([add]), "go", config=config)
    aborted, refused = result.messages[2:]
    assert aborted.text == "Not started: the run was aborted."
    assert refused.text.startswith("Unknown tool: nope.")
