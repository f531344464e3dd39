"""However an answer comes and whoever reads it: cut off anywhere, the transcript has exactly what was read of it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings, strategies as st

from toolkit import (
    AssistantMessage,
    ChatRequest,
    Done,
    Failed,
    ProviderError,
    ProviderRetryConfig,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    Yielded,
    tool,
)
from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    ChatResponse,
    ReasoningDelta,
    ResponseDone,
    StreamEvent,
    TextBlock,
)
from toolkit.endings import Cancelled, Complete
from toolkit.events import IterationStart, LoopEvent, ProviderRetried, ResponseReceived
from toolkit.testing import check_transcript

RETRY = ProviderRetryConfig(max_retries=1, initial_backoff=0)


@dataclass(frozen=True)
class Reply:
    """So many words and calls; each piece comes after as many rounds of the event loop as are next; may break off."""

    words: int
    calls: int
    pauses: Sequence[int]
    breaks_after: int | None
    is_retryable: bool

    def pieces(self, number: int) -> list[StreamEvent]:
        text = [f"{number}.{index} " for index in range(self.words)]
        calls = [ToolCall(f"c{number}.{index}", "work", '{"rounds": 1}') for index in range(self.calls)]
        content: list[AssistantContent] = [*([TextBlock("".join(text))] if text else []), *calls]
        response = ChatResponse(
            message=AssistantMessage(content or "silence"), stop_reason="tool_use" if calls else "end_turn"
        )
        return [
            ReasoningDelta("hm"),
            *map(TextDelta, text),
            *[ArgumentsDelta(index, call.id, call.name, call.arguments) for index, call in enumerate(calls)],
            ResponseDone(response),
        ]


@dataclass(frozen=True)
class Reader:
    """Rests so many rounds after each event, and may only look, without waiting, whether there is a next one."""

    view: str
    rests: Sequence[int]
    polls: bool
    cut: str
    after: int


REPLIES = st.builds(
    Reply,
    st.sampled_from([0, 1, 2, 5, 33, 70]),
    st.sampled_from([0, 0, 1, 2]),
    st.lists(st.integers(0, 2), max_size=3),
    st.none() | st.integers(0, 40),
    st.booleans(),
)
READERS = st.builds(
    Reader,
    st.sampled_from(["stream", "generator", "channel 0", "channel 2"]),
    st.lists(st.integers(0, 2), max_size=3),
    st.booleans(),
    st.sampled_from(["none", "leave", "cancel", "cancel in hook", "scope"]),
    st.integers(1, 20) | st.integers(20, 100),
)


class Speaker:
    """Streams replies, of which the last is repeated."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = replies
        self.asked = 0
        self.open = 0

    async def generate(self, request: ChatRequest) -> ChatResponse:
        raise NotImplementedError

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        number, self.asked, self.open = self.asked, self.asked + 1, self.open + 1
        reply = self.replies[number] if number < len(self.replies) else Reply(1, 0, (), None, False)
        try:
            for index, piece in enumerate(reply.pieces(number)):
                for _ in range(reply.pauses[index % len(reply.pauses)] if reply.pauses else 0):
                    await anyio.lowlevel.checkpoint()
                if index == reply.breaks_after:
                    raise ProviderError("model", "is gone", is_retryable=reply.is_retryable)
                yield piece
        finally:
            self.open -= 1


class Run:
    """A run of which some turns are stepped, and saved after each; the rest is read."""

    def __init__(self, replies: Sequence[Reply], reader: Reader) -> None:
        @tool
        async def work(rounds: int) -> str:
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            self.ran += 1
            return "done"

        self.ran = 0
        self.reader = reader
        self.told: list[LoopEvent] = []
        self.seen: list[LoopEvent] = []
        self.is_reading = False
        self.model = Speaker(replies)
        self.tools = ToolRegistry([work])
        self.config: ToolLoopConfig = ToolLoopConfig(on_event=self.tell, keep_partial=True, provider_retry=RETRY)
        self.handle: ToolLoopHandle[object] = ToolLoopHandle(self.model, self.tools, "go", config=self.config)

    def tell(self, event: LoopEvent) -> None:
        self.told.append(event)
        if self.is_reading and self.reader.cut == "cancel in hook" and len(self.told) == self.reader.after:
            self.handle.cancel("cut")

    def save_and_restore(self) -> None:
        saved = json.loads(json.dumps(self.handle.snapshot()))
        restored = ToolLoopHandle.restore(saved, self.model, self.tools, ctx=None, config=self.config)
        assert list(restored.messages) == list(self.handle.messages)
        self.handle = restored

    async def lines(self) -> AsyncGenerator[LoopEvent]:
        """Yield inside of the stream's block, as people do."""
        async with self.handle.stream() as events:
            async for event in events:
                yield event

    async def read(self) -> None:
        self.is_reading = True
        with anyio.CancelScope() as scope:
            if self.reader.view == "generator":
                async with aclosing(self.lines()) as lines:
                    await self.read_from(lines, scope)
            elif self.reader.view == "stream":
                async with self.handle.stream() as stream:
                    await self.read_from(stream, scope)
            else:
                async with self.handle.channel(int(self.reader.view[-1])) as (channel, _):
                    await self.read_from(channel, scope)

    async def read_from(self, events: AsyncIterator[LoopEvent], scope: anyio.CancelScope) -> None:
        rests = self.reader.rests or [0]
        while (event := await self.next_of(events)) is not None:
            self.seen.append(event)
            if len(self.seen) == self.reader.after:
                if self.reader.cut == "leave":
                    return
                if self.reader.cut == "cancel":
                    self.handle.cancel("cut")
                elif self.reader.cut == "scope":
                    scope.cancel()
            for _ in range(rests[len(self.seen) % len(rests)]):
                await anyio.lowlevel.checkpoint()

    async def next_of(self, events: AsyncIterator[LoopEvent]) -> LoopEvent | None:
        while self.reader.polls and self.reader.view != "generator":  # which would be closed by that
            with anyio.CancelScope() as scope:
                scope.cancel()
                return await anext(events, None)
            await anyio.lowlevel.checkpoint()
        return await anext(events, None)

    def check(self, before: int) -> None:
        """The transcript has what was read since the first so many messages, and the end is that of the moment."""
        check_transcript(self.handle.messages, self.told)
        assert self.model.open == 0
        read, partial, is_answered = list[str](), "", False
        for event in self.seen:
            if isinstance(event, TextDelta):
                partial += event.text
            elif isinstance(event, IterationStart | ProviderRetried):
                partial = ""
            elif isinstance(event, ResponseReceived):
                read.append(event.response.message.text)
                partial, is_answered = "", not event.response.tool_calls
        said = [message.text for message in self.handle.messages[before:] if message.role == "assistant"]
        if self.reader.view == "channel 2":  # which runs ahead by what it holds, also to a request that is made again
            assert said[: len(read)] == read
            is_again = any(isinstance(event, ProviderRetried) for event in self.told)
            assert is_again or "".join(said[len(read) :]).startswith(partial)
        else:
            assert said == read + ([partial] if partial else [])
        rest = iter(self.told)
        assert all(any(event is each for each in rest) for event in self.seen)
        if isinstance(self.told[-1], Done):
            reason = self.handle.result.reason
            assert isinstance(reason, Complete) or self.reader.cut != "none"
            if self.reader.view != "channel 2":
                assert isinstance(reason, Complete) == is_answered
            assert isinstance(reason, Complete) or reason == Cancelled(
                "cut" if self.reader.cut.startswith("cancel") else None
            )


def check_cut(backend: str, replies: list[Reply], reader: Reader, steps: int) -> None:
    """Read the run once, cut as its reader says, and look at what it leaves."""

    async def main() -> None:
        run = Run(replies, reader)
        with anyio.fail_after(120):
            for _ in range(steps):
                if not isinstance(await run.handle.next_turn(), Yielded):
                    return
                run.save_and_restore()
            before, first = len(run.handle.messages), len(run.told)
            try:
                await run.read()
            except ProviderError:
                assert isinstance(run.told[-1], Failed)
            run.check(before)
            if reader.cut == "none":
                assert run.seen == run.told[first:]
            if isinstance(run.told[-1], Done):
                run.save_and_restore()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=50, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=3), READERS, st.integers(0, 2))
def test_a_stream_that_is_cut_leaves_what_was_read(
    backend: str, replies: list[Reply], reader: Reader, steps: int
) -> None:
    check_cut(backend, replies, reader, steps)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=5_000, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=3), READERS, st.integers(0, 2))
def test_ten_thousand_streams_that_are_cut_leave_what_was_read(
    backend: str, replies: list[Reply], reader: Reader, steps: int
) -> None:
    check_cut(backend, replies, reader, steps)
