"""Long runs, many runs, and slow readers: nothing grows that should not."""

import sys
import tracemalloc
from collections.abc import AsyncIterator
from types import FrameType

import anyio
import anyio.lowlevel
import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    LoopDetectionConfig,
    LoopLimits,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    UsageLimits,
    tool,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
)
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent, validate_transcript
from toolkit.endings import Complete, MaxIterations
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


TOOLS = ToolRegistry([add])


class Counting:
    """Asks for an addition in each turn, and counts the functions that are called in a hundred early and late turns."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.asked = 0
        self.counted: list[int] = []

    async def generate(self, request: ChatRequest) -> ChatResponse:
        if self.asked in (100, self.turns - 200):
            self.counted.append(0)
            sys.setprofile(self._count_call)
        elif self.asked in (200, self.turns - 100):
            sys.setprofile(None)
        self.asked += 1
        if self.asked > self.turns:
            return ChatResponse(message=AssistantMessage("done"))
        call = ToolCall(f"call_{self.asked}", "add", f'{{"a": {self.asked}, "b": 1}}')
        return ChatResponse(message=AssistantMessage([call]))

    def _count_call(self, frame: FrameType, event: str, argument: object) -> None:
        self.counted[-1] += event in ("call", "c_call")

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        raise NotImplementedError


async def test_ten_thousand_turns_run_without_recursion_or_growth() -> None:
    provider = Counting(10_000)
    config = ToolLoopConfig(
        max_iterations=20_000,
        loop_detection=LoopDetectionConfig(),
        limits=LoopLimits(usage=UsageLimits(requests=20_000, tool_calls=20_000)),
    )
    result = await tool_loop(provider, TOOLS, "count", config=config)
    assert result.reason == Complete()
    assert result.tool_rounds == 10_000
    assert len(result.messages) == 20_002
    validate_transcript(result.messages)
    early, late = provider.counted
    assert 0 < late <= early * 1.01


@pytest.mark.full
async def test_a_turn_costs_the_same_with_five_thousand_tools_that_nobody_calls() -> None:
    counted: list[int] = []
    for idle in (0, 5_000):
        registry = ToolRegistry([add, *[tool(name=f"idle_{number}")(add.__wrapped__) for number in range(idle)]])
        provider = Counting(400)
        await tool_loop(provider, registry, "count", config=ToolLoopConfig(max_iterations=500))
        counted += provider.counted
    assert 0 < max(counted) <= min(counted) * 1.01


async def test_a_thousand_loops_run_at_once() -> None:
    finished = 0

    async def one() -> None:
        nonlocal finished
        result = await tool_loop(Counting(10), TOOLS, "count", config=ToolLoopConfig(max_iterations=5))
        assert result.reason == MaxIterations(5)
        validate_transcript(result.messages)
        finished += 1

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(1000):
                tasks.start_soon(one)
    assert finished == 1000


class Talkative:
    """Speaks without end until it has said so many words."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.said = 0

    async def generate(self, request: ChatRequest) -> ChatResponse:
        raise NotImplementedError

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        for _ in range(self.words):
            self.said += 1
            yield TextDelta("x" * 1000)
        yield ResponseDone(ChatResponse(message=AssistantMessage("done")))


async def test_a_slow_reader_of_a_channel_keeps_memory_flat() -> None:
    provider = Talkative(5_000)
    read = before = 0
    tracemalloc.start()
    try:
        async with tool_loop_channel(provider, TOOLS, "talk", buffer_size=1) as (events, handle):
            async for event in events:
                read += 1
                await anyio.lowlevel.checkpoint()
                # What is under way is what the reader holds, the one that waits, and the one that is made.
                assert provider.said <= read + 3
                if isinstance(event, TextDelta) and read == 100:
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                if read == 5_000:
                    assert tracemalloc.get_traced_memory()[1] - before < 200_000
            assert (await handle.result()).text == "done"
    finally:
        tracemalloc.stop()
    assert read > 5_000


class Counted(Talkative):
    """Speaks, and counts the functions that are called while a thousand early and a thousand late words are read."""

    def __init__(self, words: int) -> None:
        super().__init__(words)
        self.counted: list[int] = []

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        async for event in super().stream(request):
            if self.said in (1000, self.words - 2000):
                self.counted.append(0)
                sys.setprofile(self._count_call)
            elif self.said in (2000, self.words - 1000):
                sys.setprofile(None)
            yield event

    def _count_call(self, frame: FrameType, event: str, argument: object) -> None:
        self.counted[-1] += event in ("call", "c_call")


@pytest.mark.parametrize("words", [20_000, pytest.param(200_000, marks=pytest.mark.full)])
async def test_a_streamed_delta_costs_no_more_late_than_early_and_few_wait_for_a_slow_reader(words: int) -> None:
    provider, read = Counted(words), 0
    async with tool_loop_stream(provider, TOOLS, "talk", config=ToolLoopConfig(keep_partial=True)) as events:
        async for event in events:
            read += isinstance(event, TextDelta)
            assert provider.said <= read + 33
    early, late = provider.counted
    assert 0 < late <= early * 1.02
    assert early < 30_000  # a thousand words, with what the provider and the event loop take


async def test_a_wide_turn_gives_its_results_in_call_order() -> None:
    calls = [ToolCall(f"c{number}", "add", f'{{"a": {number}, "b": 0}}') for number in range(1000)]
    provider, config = (
        ScriptedProvider([AssistantMessage(calls), "done"]),
        ToolLoopConfig(limits=LoopLimits(calls_per_turn=None)),
    )
    result = await tool_loop(provider, TOOLS, "go", config=config)
    assert [message.text for message in result.messages[2:-1]] == [str(number) for number in range(1000)]
