"""What a streamed answer costs, piece by piece, by toolkit and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection

from bench.clock import on_asyncio, sized
from bench.floor import Loop
from bench.instructions import MARKS
from bench.ours import Script, Setting, responses_of
from bench.workload import QUESTION, forecast
from toolkit import AssistantMessage, ChatRequest, TextDelta, UserMessage, tool_loop_stream
from toolkit.chat import ArgumentsDelta, ChatResponse, ResponseDone, StreamEvent

DELTAS = 500 if MARKS else 10_000
CALLS, WORDS, PIECE = 3, 20, 8


class Talker(Script):
    """Streams a long answer."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        for _ in range(DELTAS):
            yield TextDelta("word ")
        yield ResponseDone(ChatResponse(message=AssistantMessage("word " * DELTAS)))


class WaitingTalker(Talker):
    """Waits before each piece of its answer, as one does that reads from a network."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        async for event in super().stream(request):
            await asyncio.sleep(0)
            yield event


class Caller(Script):
    """Streams a text and calls in pieces, then an answer."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        response = await self.generate(request)
        for _ in range(WORDS):
            yield TextDelta("word ")
        for index, call in enumerate(response.tool_calls):
            for start in range(0, len(call.arguments), PIECE):
                yield ArgumentsDelta(index, call.id, call.name, call.arguments[start : start + PIECE])
        yield ResponseDone(response)


def deltas(features: Collection[str]) -> float:
    return _read_answer(Talker, features)


def waiting_deltas(features: Collection[str]) -> float:
    return _read_answer(WaitingTalker, features)


def _read_answer(provider: Callable[[], Talker], features: Collection[str]) -> float:
    setting = Setting(forecast, features)

    async def work() -> None:
        parts: list[str] = []
        async with tool_loop_stream(provider(), setting.registry, "Talk.", config=setting.config(1)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    parts.append(event.text)
        assert len("".join(parts)) == 5 * DELTAS

    return on_asyncio(work, DELTAS)


def streamed_calls(features: Collection[str]) -> float:
    """Read a whole run of one turn with three calls."""
    setting, responses, runs = Setting(forecast, features), responses_of(1, CALLS), sized(1_000)

    async def work() -> None:
        for _ in range(runs):
            parts: list[str] = []
            async with tool_loop_stream(
                Caller(responses), setting.registry, "Talk.", config=setting.config(1)
            ) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        parts.append(event.text)
            assert len(parts) == 2 * WORDS

    return on_asyncio(work, runs)


def read_by_hand(provider: Callable[[], Talker]) -> float:
    """Read the same provider's stream without a loop, and join."""

    async def work() -> None:
        request = ChatRequest(messages=[UserMessage("Talk.")])
        parts: list[str] = []
        async for event in provider().stream(request):
            if isinstance(event, TextDelta):
                parts.append(event.text)
        assert len("".join(parts)) == 5 * DELTAS

    return on_asyncio(work, DELTAS)


def call_by_hand() -> float:
    """Read a stream with three calls, run them, and read the answer."""
    loop, responses, runs = Loop(forecast), responses_of(1, CALLS), sized(1_000)

    async def work() -> None:
        for _ in range(runs):
            provider, request = Caller(responses), ChatRequest(messages=[UserMessage(QUESTION)])
            while await read_turn(provider, request):
                pass

    async def read_turn(provider: Caller, request: ChatRequest) -> bool:
        words: list[str] = []
        texts: dict[str, list[str]] = {}
        names: dict[str, str] = {}
        async for event in provider.stream(request):
            if isinstance(event, TextDelta):
                words.append(event.text)
            elif isinstance(event, ArgumentsDelta):
                texts.setdefault(event.call_id, []).append(event.text)
                names[event.call_id] = event.tool_name
        calls = [{"id": key, "name": names[key], "arguments": "".join(parts)} for key, parts in texts.items()]
        await asyncio.gather(*[loop.run_call(call) for call in calls])
        return bool(calls)

    return on_asyncio(work, runs)
