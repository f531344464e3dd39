"""What somebody says to a running loop reaches its model, or stays in the queue: it is never lost."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest

from toolkit import (
    AnswerFormat,
    Approve,
    AssistantMessage,
    Defer,
    Deny,
    LoopDetectionConfig,
    LoopLimits,
    Message,
    ProviderError,
    Steering,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    UsageLimits,
    UserMessage,
    Yielded,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.chat import validate_transcript
from toolkit.endings import Complete, ResultAsAnswer, TypedAnswer
from toolkit.events import LoopEvent, ToolExecutionEnd, ToolExecutionStart
from toolkit.policies import Batched, Parallel, Sequential, Stop, when_called
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


class Room:
    """Somebody says "hey" while the first of two calls runs, and "bye" for the end."""

    def __init__(self) -> None:
        self.steering = Steering()
        self.steering.follow_up("bye")

    def tools(self) -> ToolRegistry[object]:
        @tool
        async def work(answer: bool = False) -> str:
            """Work."""
            self.steering.steer("hey")
            return "worked"

        @tool
        async def rest() -> str:
            """Rest."""
            return "rested"

        @tool(result_as_answer=True)
        async def hand_over() -> str:
            """Hand over."""
            self.steering.steer("hey")
            return "over"

        return ToolRegistry([work, rest, hand_over])

    def left(self) -> list[str]:
        said: list[Message] = self.steering.take_steered()
        while more := self.steering.take_follow_up():
            said += more
        return [message.text for message in said]


WORK = AssistantMessage([ToolCall("1", "work", "{}"), ToolCall("2", "rest", "{}")])
CONFIGS: dict[str, ToolLoopConfig[Any]] = {
    "the only turn": ToolLoopConfig(max_iterations=1),
    "the only turn, then an answer": ToolLoopConfig(max_iterations=1, on_max_iterations="answer"),
    "no more tool calls": ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(tool_calls=1))),
    "no more requests": ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=1))),
    "no more tokens": ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(total_tokens=1))),
    "a stop": ToolLoopConfig(stop_when=lambda context: Stop() if context.iteration == 2 else when_called("x")(context)),
    "a loop": ToolLoopConfig(loop_detection=LoopDetectionConfig(threshold=2, action="stop")),
    "plain": ToolLoopConfig(),
    "an answer of a type": ToolLoopConfig(
        answer=AnswerFormat(int, mode="native"),
    ),
    "no answer of a type": ToolLoopConfig(
        answer=AnswerFormat(int, max_retries=0),
    ),
    "denied": ToolLoopConfig(on_tool_call=lambda request: Deny() if request.tool_name == "rest" else Approve()),
}
ENDINGS: dict[str, list[ScriptedReply]] = {
    "the model answers": ["done", "done", "done", "done"],
    "the model goes on": [WORK] * 10,
    "a tool answers": [
        AssistantMessage([ToolCall("3", "hand_over", "{}"), ToolCall("4", "rest", "{}")]),
        *["done"] * 6,
    ],
    "the provider fails": [ProviderError("scripted", "gone")],
}


@pytest.mark.parametrize("execution", [Sequential(), Parallel(), Batched(1)], ids=repr)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("config", CONFIGS)
async def test_every_word_is_in_the_transcript_or_in_the_queue_once(config: str, ending: str, execution: Any) -> None:
    room = Room()
    settings = replace(CONFIGS[config], execution=execution, steering=room.steering)
    handle = ToolLoopHandle(ScriptedProvider([WORK, *ENDINGS[ending]]), room.tools(), "go", config=settings)
    with suppress(ProviderError):
        await handle.run()
    validate_transcript(handle.messages)
    left = room.left()
    said = [message.text for message in handle.messages if isinstance(message, UserMessage)]
    assert said.count("bye") + left.count("bye") == 1
    runs = sum(message.text in ("worked", "over") for message in handle.messages)
    assert said.count("hey") + left.count("hey") == runs >= 1


async def test_what_a_run_did_not_deliver_is_read_by_the_next_one() -> None:
    room = Room()
    config = ToolLoopConfig(max_iterations=1, execution=Sequential(), steering=room.steering)
    first = await tool_loop(ScriptedProvider([WORK]), room.tools(), "go", config=config)
    assert not room.steering.is_empty
    second = await tool_loop(ScriptedProvider(["a", "b"]), room.tools(), first.messages, config=config)
    assert [message.text for message in second.messages[4:]] == ["hey", "a", "bye", "b"]
    assert second.reason == Complete()
    assert room.steering.is_empty


@pytest.mark.parametrize("order", [("first", "second"), ("1", "2", "3", "4")])
async def test_a_caller_that_stops_leaves_the_words_in_their_order(order: tuple[str, ...]) -> None:
    room = Room()
    config = ToolLoopConfig(steering=room.steering)
    handle = ToolLoopHandle(ScriptedProvider([WORK]), room.tools(), "go", config=config)
    turn = await handle.next_turn()
    assert isinstance(turn, Yielded)
    for word in order:
        room.steering.steer(word)
    turn.stop()
    await handle.next_turn()
    assert room.left() == ["hey", *order, "bye"]


@pytest.mark.parametrize("way", ["cancelled", "timed out", "closed"])
async def test_who_leaves_loses_no_word(way: str) -> None:
    room = Room()
    started = anyio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        room.steering.steer("hey")
        started.set()
        await anyio.sleep_forever()
        return ""

    registry = room.tools() | ToolRegistry([hang])
    config = ToolLoopConfig(
        execution=Sequential(), steering=room.steering, timeout=0.05 if way == "timed out" else None
    )
    turn = AssistantMessage([ToolCall("1", "work", "{}"), ToolCall("2", "rest", "{}")])
    provider = ScriptedProvider([turn, ToolCall("3", "hang", "{}")])
    handle = ToolLoopHandle(provider, registry, "go", config=config)
    with anyio.fail_after(120):
        if way == "timed out":
            await handle.run()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(handle.run)
                await started.wait()
                if way == "closed":
                    await handle.close()
                else:
                    handle.cancel()
    asked = [message.text for request in provider.requests for message in request.messages]
    assert asked.count("hey") == 1
    assert room.left() == ["hey", "bye"]


async def test_who_leaves_a_stream_loses_no_word() -> None:
    room = Room()
    config = ToolLoopConfig(steering=room.steering)
    async with tool_loop_stream(ScriptedProvider([WORK]), room.tools(), "go", config=config) as events:
        async for event in events:
            if isinstance(event, ToolExecutionEnd):
                break
    assert room.left() == ["hey", "bye"]


async def test_what_was_steered_while_a_decision_was_awaited_is_not_lost() -> None:
    room = Room()
    config = ToolLoopConfig(steering=room.steering, on_tool_call=lambda request: Defer(), execution=Sequential())
    handle = ToolLoopHandle(ScriptedProvider([WORK, "done", "done"]), room.tools(), "go", config=config)
    await handle.run()
    room.steering.steer("hey")
    restored = ToolLoopHandle.restore(
        handle.snapshot(), ScriptedProvider(["done", "done"]), room.tools(), ctx=None, config=config
    )
    result = await restored.run()
    said = [message.text for message in result.messages if isinstance(message, UserMessage)]
    assert sorted([*said, *room.left()]) == ["bye", "go", "hey"]


@pytest.mark.parametrize("said", ["steer", "follow_up"])
@pytest.mark.parametrize("way", ["typed", "text", "result_as_answer"])
async def test_what_is_said_while_the_answer_is_under_way_is_read_before_the_run_ends(way: str, said: str) -> None:
    steering, left = Steering(), ["Also in Rome?"]

    def send(event: LoopEvent) -> None:
        if left and isinstance(event, ToolExecutionStart):
            getattr(steering, said)(left.pop())

    @tool(result_as_answer=True)
    async def hand_over() -> str:
        """Give the answer."""
        return "handed over"

    answer = ToolCall("1", "final_answer", '{"answer": "1"}')
    once: Any = ToolCall("1", "hand_over", "{}") if way == "result_as_answer" else answer
    answers: dict[str, Any] = {"typed": AnswerFormat(int), "text": AnswerFormat(), "result_as_answer": None}
    provider = ScriptedProvider([once, replace(once, id="2", arguments=once.arguments.replace("1", "2"))])
    config: ToolLoopConfig[Any] = ToolLoopConfig(steering=steering, answer=answers[way], on_event=send)
    result = await tool_loop(provider, ToolRegistry([hand_over]), "Where?", config=config)
    assert len(provider.requests) == 2
    assert provider.requests[1].messages[-1] == UserMessage("Also in Rome?")
    assert isinstance(result.reason, TypedAnswer if way == "typed" else ResultAsAnswer)
    assert result.output == {"typed": 2, "result_as_answer": "handed over"}.get(way)
    assert steering.is_empty
