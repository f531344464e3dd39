"""A loop as a tool: what its caller's model, and the caller's application, see of it."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from tests.busy_machine import with_time_enough
from toolkit import (
    Abort,
    AnswerFormat,
    Approve,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Done,
    Failed,
    LoopDetectionConfig,
    LoopLimits,
    ProviderError,
    SystemMessage,
    Timeouts,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    Usage,
    UsageLimits,
    UserMessage,
    stop_after,
    tool,
    tool_loop,
    tool_loop_stream,
    tool_with_ctx,
)
from toolkit.agents import SubAgentEvent, SubAgentRun, sub_agent_tool
from toolkit.chat import ChatResponse, validate_transcript
from toolkit.endings import Complete, UsageLimit
from toolkit.events import LoopEvent, RunStart, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, ToolProgress
from toolkit.testing import ScriptedProvider, ScriptedReply, check_transcript

pytestmark = pytest.mark.anyio


@tool
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} is blue"


def used(tokens: int, reply: str | ToolCall) -> ChatResponse:
    content = reply if isinstance(reply, str) else [reply]
    return ChatResponse(message=AssistantMessage(content), usage=Usage(input_tokens=tokens, output_tokens=1))


def call(name: str, **arguments: Any) -> ToolCall:
    import json

    return ToolCall("", name, json.dumps(arguments))


def child(
    *replies: ScriptedReply, config: ToolLoopConfig[Any] | None = None, **options: Any
) -> tuple[ScriptedProvider, Any]:
    provider, tools = ScriptedProvider(replies), ToolRegistry([look])
    return provider, sub_agent_tool("painter", "Knows colours.", provider, tools, "You look.", config, **options)


async def asked(agent: Any, *, config: ToolLoopConfig | None = None, task: str = "Which colour?") -> ToolResult:
    """Let a parent hand one task to the agent, and return the result that its model reads."""
    parent = ScriptedProvider([call("painter", task=task), "Thanks."])
    result = await tool_loop(parent, ToolRegistry([agent]), "Go.", config=config)
    validate_transcript(result.messages)
    (answer,) = [message for message in result.messages if isinstance(message, ToolResult)]
    return answer


async def test_it_works_on_the_task_alone_with_its_own_prompt_and_tools() -> None:
    request = ChatRequest(messages=(), reasoning_effort="high")
    provider, agent = child(call("look", what="the sky"), "Blue.", request=request)
    answer = await asked(agent)
    assert (answer.text, answer.is_error) == ("Blue.", False)
    first = provider.requests[0]
    assert list(first.messages) == [SystemMessage("You look."), UserMessage("Which colour?")]
    assert [definition.name for definition in first.tools or ()] == ["look"]
    assert first.reasoning_effort == "high"
    assert isinstance(answer.details, SubAgentRun)
    assert answer.child_loop_id == answer.details.loop_id
    assert answer.details.result is not None
    assert isinstance(answer.details.result.reason, Complete)


async def test_each_task_starts_afresh() -> None:
    provider, agent = child("One.", "Two.")
    parent = ScriptedProvider([call("painter", task="first"), call("painter", task="second"), "Done."])
    await tool_loop(parent, ToolRegistry([agent]), "Go.")
    assert [request.messages[-1] for request in provider.requests] == [UserMessage("first"), UserMessage("second")]
    assert [len(request.messages) for request in provider.requests] == [2, 2]


async def test_what_it_used_is_in_the_usage_of_the_whole() -> None:
    _, agent = child(used(100, call("look", what="sky")), used(10, "Blue."))
    parent = ScriptedProvider([used(1, call("painter", task="t")), used(2, "Thanks.")])
    result = await tool_loop(parent, ToolRegistry([agent]), "Go.")
    assert result.usage == Usage(input_tokens=113, output_tokens=4)


async def test_what_it_used_counts_although_it_failed() -> None:
    _, agent = child(used(100, call("look", what="sky")), ProviderError("model", "is gone"))
    parent = ScriptedProvider([used(1, call("painter", task="t")), used(2, "A pity.")])
    result = await tool_loop(parent, ToolRegistry([agent]), "Go.")
    assert result.usage.input_tokens == 103


async def test_its_events_come_as_updates_of_the_call_with_its_name() -> None:
    events: list[LoopEvent] = []
    own: list[LoopEvent] = []
    _, agent = child(call("look", what="sky"), "It is blue.", config=ToolLoopConfig(on_event=own.append))
    answer = await asked(agent, config=ToolLoopConfig(on_event=events.append))
    updates = [event for event in events if isinstance(event, ToolExecutionUpdate)]
    assert {event.run_id for event in own} == {event.run_id for event in events} == {events[0].loop_id}
    assert {event.loop_id for event in own} == {answer.child_loop_id}
    start = own[0]
    assert isinstance(start, RunStart)
    assert (start.parent_loop_id, start.depth) == (events[0].loop_id, 1)
    assert {event.call_id for event in updates} == {answer.call_id}
    told = [event.output.details for event in updates]
    assert all(isinstance(each, SubAgentEvent) and each.sub_agent == "painter" for each in told)
    assert {each.loop_id for each in told} == {answer.child_loop_id}
    assert [each.event for each in told] == own
    texts = [event.output.text for event in updates if event.output.text]
    assert texts[0] == "[painter calls look]"
    assert "".join(texts[1:]) == "It is blue."
    outer = [event.tool_name for event in events if isinstance(event, (ToolExecutionStart, ToolExecutionEnd))]
    assert outer == ["painter", "painter"]


async def test_its_tools_progress_is_told_with_its_name() -> None:
    @tool_with_ctx
    async def wait(context: ToolContext[object]) -> str:
        context.report_progress("half")
        return "done"

    events: list[LoopEvent] = []
    provider = ScriptedProvider([call("wait"), "Waited."])
    agent = sub_agent_tool("painter", "", provider, ToolRegistry([wait]))
    await asked(agent, config=ToolLoopConfig(on_event=events.append))
    told = [event for event in events if isinstance(event, ToolProgress)]
    assert [event.text for event in told] == ["painter: half"]
    assert isinstance(told[0].details, SubAgentEvent)
    inner = told[0].details.event
    assert isinstance(inner, ToolProgress)
    assert (inner.tool_name, inner.text) == ("wait", "half")


async def test_none_of_its_events_is_dropped_or_comes_out_of_order() -> None:
    """Eighty quick calls of the child, while the reader looks at each event for a while."""
    quick = AssistantMessage([ToolCall(f"c{number}", "look", '{"what": "sky"}') for number in range(80)])
    provider, agent = child(quick, "Seen.")
    parent = ScriptedProvider([call("painter", task="look"), "Done."])
    seen: list[LoopEvent] = []
    with anyio.fail_after(120):
        async with tool_loop_stream(parent, ToolRegistry([agent]), "Go.") as events:
            async for event in events:
                await anyio.lowlevel.checkpoint()
                if isinstance(event, ToolExecutionUpdate) and isinstance(event.output.details, SubAgentEvent):
                    assert event.output.details.sub_agent == "painter"
                    seen.append(event.output.details.event)
    assert len(provider.requests) == 2
    check_transcript([], seen)
    for kind in (ToolExecutionStart, ToolExecutionEnd):
        assert sorted(event.call_id for event in seen if isinstance(event, kind)) == sorted(f"c{n}" for n in range(80))
    assert isinstance(seen[-1], Done)


async def test_its_failure_carries_its_loop_and_transcript() -> None:
    events: list[LoopEvent] = []
    _, agent = child(call("look", what="sky"), ProviderError("model", "is gone"))
    answer = await asked(agent, config=ToolLoopConfig(on_event=events.append))
    assert answer.is_error
    assert isinstance(answer.details, SubAgentRun)
    assert isinstance(answer.details.error, ProviderError)
    assert answer.child_loop_id == answer.details.loop_id
    assert answer.details.messages == answer.details.error.messages
    assert [message.role for message in answer.details.messages][-2:] == ["assistant", "tool"]
    told = [event.output.details.event for event in events if isinstance(event, ToolExecutionUpdate)]
    assert isinstance(told[-1], Failed)


async def test_the_context_is_handed_on() -> None:
    @tool_with_ctx
    async def whose(app: dict[str, str]) -> str:
        return app["user"]

    inner = ScriptedProvider([call("whose"), lambda request: request.messages[-1].text])
    agent = sub_agent_tool("painter", "", inner, ToolRegistry[dict[str, str]]([whose]))
    parent = ScriptedProvider([call("painter", task="t"), "Done."])
    result = await tool_loop(parent, ToolRegistry[dict[str, str]]([agent]), "Go.", ctx={"user": "Ada"})
    assert [message.text for message in result.messages if isinstance(message, ToolResult)] == ["Ada"]


class Colours(BaseModel):
    names: list[str]


ENDINGS: dict[str, tuple[ToolLoopConfig[Any], list[ScriptedReply], str, bool]] = {
    "a limit of turns, with words": (
        ToolLoopConfig(max_iterations=1),
        [AssistantMessage([*AssistantMessage("So far blue.").content, call("look", what="a")])],
        "So far blue.\n\n[Sub-agent 'painter' was stopped after 1 turns: this may be incomplete]",
        False,
    ),
    "a limit of turns, without words": (
        ToolLoopConfig(max_iterations=1),
        [call("look", what="a")],
        "[Sub-agent 'painter' was stopped after 1 turns: this may be incomplete]",
        True,
    ),
    "a limit of requests": (
        ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=1))),
        [call("look", what="a")],
        "[Sub-agent 'painter' was stopped by the limit of 1 requests: this may be incomplete]",
        True,
    ),
    "a stop condition": (
        ToolLoopConfig(stop_when=stop_after(steps=1)),
        ["Blue."],
        "Blue.\n\n[Sub-agent 'painter' was stopped: 1 steps were made]",
        False,
    ),
    "going in circles": (
        ToolLoopConfig(loop_detection=LoopDetectionConfig(threshold=2, action="stop")),
        [call("look", what="a"), call("look", what="a")],
        "[Sub-agent 'painter' failed: it repeated look without getting further]",
        True,
    ),
    "an approver who aborts": (
        ToolLoopConfig(on_tool_call=lambda request: Abort("not today")),
        [call("look", what="a")],
        "[Sub-agent 'painter' was aborted: not today]",
        True,
    ),
    "an answer that is not of the type": (
        ToolLoopConfig(
            answer=AnswerFormat(Colours, max_retries=1),
        ),
        ["Many.", "Some."],
        "Some.\n\n[Sub-agent 'painter' failed: its answer is not of the type that was asked for]",
        True,
    ),
    "an answer of the type": (
        ToolLoopConfig(answer=AnswerFormat(Colours)),
        [call("final_answer", answer={"names": ["red"]})],
        '{"names":["red"]}',
        False,
    ),
    "silence": (ToolLoopConfig(), [""], "(sub-agent 'painter' said nothing)", False),
    "a provider that fails": (
        ToolLoopConfig(),
        [ProviderError("model", "is gone")],
        "Sub-agent 'painter' failed: model: is gone",
        True,
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_callers_model_is_told_how_it_ended(ending: str) -> None:
    config, replies, text, is_error = ENDINGS[ending]
    _, agent = child(*replies, config=config)
    answer = await asked(agent)
    assert (answer.text, answer.is_error) == (text, is_error)


async def test_a_sub_agent_that_takes_too_long_says_so() -> None:
    async def hang(request: ChatRequest) -> ChatResponse:
        await anyio.sleep_forever()
        raise AssertionError

    class Hanging:
        generate = staticmethod(hang)

        def stream(self, request: ChatRequest) -> Any:
            raise AssertionError

    agent = sub_agent_tool("painter", "", Hanging(), ToolRegistry([look]), "", ToolLoopConfig(timeout=0.05))
    answer = await asked(agent)
    assert answer.text == "[Sub-agent 'painter' was stopped after 0.05 s: this may be incomplete]"
    assert answer.is_error


async def test_cancelling_the_parent_cancels_the_child_and_its_tools() -> None:
    began, ended = anyio.Event(), anyio.Event()

    @tool
    async def hang() -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    agent = sub_agent_tool("painter", "", ScriptedProvider([call("hang")]), ToolRegistry([hang]))
    parent = ScriptedProvider([call("painter", task="t")])
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: tool_loop(parent, ToolRegistry([agent]), "Go."))
            await began.wait()
            tasks.cancel_scope.cancel()
    assert ended.is_set()


async def test_requests_and_calls_are_taken_from_the_callers_budget() -> None:
    spent: list[str] = []

    @tool
    async def spend() -> str:
        spent.append("call")
        return "spent"

    inner = ScriptedProvider([call("spend")], repeats=True)
    agent = sub_agent_tool("painter", "", inner, ToolRegistry([spend]))
    parent = ScriptedProvider([call("painter", task="t"), "Done."])
    limits = UsageLimits(requests=3, tool_calls=2)
    result = await tool_loop(
        parent, ToolRegistry([agent]), "Go.", config=ToolLoopConfig(limits=LoopLimits(usage=limits))
    )
    assert isinstance(result.reason, UsageLimit)
    assert len(inner.requests) + len(parent.requests) <= 3
    assert len(spent) + 1 <= 2
    validate_transcript(result.messages)


@pytest.mark.parametrize("children", [2, 5])
async def test_tokens_go_over_by_at_most_one_response_for_each_request_in_flight(children: int) -> None:
    agents = [
        sub_agent_tool(
            f"agent_{number}",
            "",
            ScriptedProvider([used(10, call("look", what=str(turn))) for turn in range(50)]),
            ToolRegistry([look]),
            "",
            ToolLoopConfig(max_iterations=50),
        )
        for number in range(children)
    ]
    calls = AssistantMessage([ToolCall(f"c{number}", f"agent_{number}", '{"task": "t"}') for number in range(children)])
    parent = ScriptedProvider([calls, "Done."])
    config = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(total_tokens=100)))
    result = await tool_loop(parent, ToolRegistry(agents), "Go.", config=config)
    assert 100 <= result.usage.total_tokens <= 100 + 11 * children


async def test_a_third_level_is_refused_at_a_depth_of_two() -> None:
    deepest = sub_agent_tool("deepest", "", ScriptedProvider(["Deep."]), ToolRegistry([look]))
    middle = sub_agent_tool(
        "middle", "", ScriptedProvider([call("deepest", task="t"), lambda request: request.messages[-1].text]),
        ToolRegistry([deepest]), allow_sub_agents=True,
    )  # fmt: skip
    parent = ScriptedProvider([call("middle", task="t"), lambda request: request.messages[-1].text])
    result = await tool_loop(parent, ToolRegistry([middle]), "Go.", config=ToolLoopConfig(max_depth=2))
    assert result.text.startswith("Sub-agent 'deepest' failed: ")
    assert "depth" in result.text


async def test_sub_agents_inside_of_sub_agents_have_to_be_allowed() -> None:
    inner = sub_agent_tool("inner", "", ScriptedProvider([]), ToolRegistry([look]))
    with pytest.raises(ConfigurationError, match=r"'outer' has sub-agents among its tools \(inner\)"):
        sub_agent_tool("outer", "", ScriptedProvider([]), ToolRegistry([inner]))
    tools = ToolRegistry([look])
    provider = ScriptedProvider(["Done."])
    outer = sub_agent_tool("painter", "", provider, tools)
    tools.register(inner)
    await asked(outer)
    assert [definition.name for definition in provider.requests[0].tools or ()] == ["look"]


async def test_a_task_may_be_called_a_prompt() -> None:
    provider, agent = child("Blue.")
    parent = ScriptedProvider([call("painter", prompt="Which?"), "Thanks."])
    await tool_loop(parent, ToolRegistry([agent]), "Go.")
    assert provider.requests[0].messages[-1] == UserMessage("Which?")
    assert list(agent.definition.parameters["properties"]) == ["task"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"provider": None}, "must be an object with 'generate' and 'stream'"),
        ({"registry": [look]}, "must be a ToolRegistry, not a list"),
        ({"config": {}}, "must be a ToolLoopConfig or None, not a dict"),
        ({"request": {}}, "request must be a ChatRequest or None, not a dict"),
        ({"system_prompt": None}, "system_prompt must be text or a function, not None"),
    ],
    ids=str,
)
def test_what_it_is_made_of_is_checked_where_it_is_made(wrong: dict[str, Any], says: str) -> None:
    right: dict[str, Any] = {"provider": ScriptedProvider([]), "registry": ToolRegistry([look]), "description": ""}
    with pytest.raises(ConfigurationError, match=says):
        sub_agent_tool("painter", **{**right, **wrong})


async def test_its_system_prompt_comes_from_the_context() -> None:
    async def greet(user: str) -> str:
        return f"You work for {user}."

    provider = ScriptedProvider(["Blue."])
    agent = sub_agent_tool("painter", "Paints.", provider, ToolRegistry[str](), greet)
    parent = ScriptedProvider([call("painter", task="Which?"), "Done."])
    await tool_loop(parent, ToolRegistry[str]([agent]), "Go.", ctx="Ada")
    assert list(provider.requests[0].messages) == [SystemMessage("You work for Ada."), UserMessage("Which?")]


async def test_it_is_under_the_rules_of_any_tool() -> None:
    provider, agent = child("Blue.", max_usage_count=1, requires_approval=True)
    parent = ScriptedProvider([call("painter", task="a"), call("painter", task="b"), "Done."])
    config = ToolLoopConfig(on_tool_call=lambda request: Approve())
    result = await tool_loop(parent, ToolRegistry([agent]), "Go.", config=config)
    first, second = [message for message in result.messages if isinstance(message, ToolResult)]
    assert first.text == "Blue."
    assert "usage limit" in second.text
    assert len(provider.requests) == 1


@pytest.mark.parametrize("end", ["tool_timeout", "timeout", "cancel"])
async def test_who_watches_is_told_how_a_run_ended_that_its_caller_gave_up(end: str) -> None:
    async def run(seconds: float) -> tuple[ToolLoopHandle[Any], list[LoopEvent], bool]:
        has_begun = anyio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            has_begun.set()
            await anyio.sleep_forever()
            return "never"

        agent = sub_agent_tool(
            "waiter", "Waits.", ScriptedProvider([ToolCall("w", "wait", "{}")]), ToolRegistry([wait])
        )
        told: list[LoopEvent] = []
        config = ToolLoopConfig(
            on_event=told.append,
            timeouts=Timeouts(tool=seconds if end == "tool_timeout" else None),
            timeout=seconds if end == "timeout" else None,
        )
        provider = ScriptedProvider([ToolCall("1", "waiter", '{"task": "Wait."}'), "Given up."])
        handle = ToolLoopHandle(provider, ToolRegistry([agent]), "go", config=config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.run)
            if end == "cancel":
                await has_begun.wait()
                tasks.cancel_scope.cancel()
        return handle, told, has_begun.is_set()

    with anyio.fail_after(120):
        handle, told, _ = await with_time_enough(run, lambda ran: ran[2])
    updates = [event for event in told if isinstance(event, ToolExecutionUpdate)]
    inner = [event.output.details for event in updates if isinstance(event.output.details, SubAgentEvent)]
    kinds = [type(each.event) for each in inner]
    assert kinds.count(ToolExecutionStart) == kinds.count(ToolExecutionEnd) == 1
    assert kinds.count(Done) == 1
    assert kinds[-1] is Done
    result = next(message for message in handle.messages if isinstance(message, ToolResult))
    assert result.child_loop_id == inner[-1].loop_id
    assert isinstance(result.details, SubAgentRun)
    check_transcript(list(result.details.messages))
