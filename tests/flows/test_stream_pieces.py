"""A stream cut at any piece: the transcript has what the reader has read, and the ending is that of the moment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

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
    tool,
)
from toolkit.chat import ArgumentsDelta, ChatResponse, ReasoningDelta, ResponseDone, StreamEvent, TextBlock
from toolkit.endings import Cancelled, Complete, Timeout
from toolkit.events import IterationStart, LoopEvent, ResponseReceived, ToolExecutionStart
from toolkit.testing import check_transcript

pytestmark = pytest.mark.anyio

CALL = ToolCall("c1", "work", '{"text": "a"}')


def said(text: str) -> list[StreamEvent]:
    return [TextDelta(text[start : start + 2]) for start in range(0, len(text), 2)]


def answer(text: str) -> list[StreamEvent]:
    return [*said(text), ResponseDone(ChatResponse(message=AssistantMessage(text)))]


def ask_for_work() -> list[StreamEvent]:
    message = AssistantMessage([TextBlock("One go"), CALL])
    arguments: list[StreamEvent] = [ArgumentsDelta(0, CALL.id, CALL.name, piece) for piece in ('{"text"', ': "a"}')]
    reply = ResponseDone(ChatResponse(message=message, stop_reason="tool_use"))
    return [ReasoningDelta("hm"), *said("One go"), *arguments, reply]


REPLIES: dict[str, list[list[StreamEvent]]] = {
    "a short answer": [answer("It is so.")],
    "more than wait at once": [answer("0123456789" * 14)],
    "a call, then an answer": [ask_for_work(), answer("It said a.")],
}


class Speaker:
    """Streams prepared replies piece by piece; raises the exceptions among them."""

    def __init__(self, replies: Sequence[Sequence[StreamEvent | Exception]], *, waits: bool) -> None:
        self.replies = iter(replies)
        self.waits = waits
        self.open = 0

    async def generate(self, request: ChatRequest) -> ChatResponse:
        raise NotImplementedError

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        self.open += 1
        try:
            for piece in next(self.replies):
                if self.waits:
                    await anyio.lowlevel.checkpoint()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.open -= 1


class Reading:
    """A run, and what its reader has read of it."""

    def __init__(self, replies: Sequence[Sequence[StreamEvent | Exception]], *, waits: bool, **settings: Any) -> None:
        @tool
        async def work(text: str) -> str:
            self.ran += 1
            return text

        self.ran = 0
        self.seen: list[LoopEvent] = []
        self.told: list[LoopEvent] = []
        self.is_over = anyio.Event()
        self.model = Speaker(replies, waits=waits)
        settings = {"keep_partial": True, "provider_retry": ProviderRetryConfig(max_retries=0), **settings}
        config = ToolLoopConfig(on_event=self.tell, **settings)
        self.handle: ToolLoopHandle[object] = ToolLoopHandle(self.model, ToolRegistry([work]), "go", config=config)

    def tell(self, event: LoopEvent) -> None:
        self.told.append(event)
        if isinstance(event, Done | Failed):
            self.is_over.set()

    @property
    def is_answered(self) -> bool:
        """True where the reader has got the whole answer: what it does then does not undo that."""
        return any(isinstance(event, ResponseReceived) and not event.response.tool_calls for event in self.seen)

    def check(self) -> None:
        """What the model said stands in the transcript as far as it was read, and nothing is open."""
        check_transcript(self.handle.messages, self.told)
        assert self.model.open == 0
        texts: list[str] = []
        partial = ""
        for event in self.seen:
            if isinstance(event, IterationStart):
                partial = ""
            elif isinstance(event, TextDelta):
                partial += event.text
            elif isinstance(event, ResponseReceived):
                texts.append(event.response.message.text)
                partial = ""
        texts += [partial] if partial else []
        assert [message.text for message in self.handle.messages if message.role == "assistant"] == texts
        ends = [event for event in self.told if isinstance(event, Done | Failed)]
        assert ends == [self.told[-1]]


Way = Callable[[Reading, int], Awaitable[None]]


async def leave(run: Reading, after: int) -> None:
    async with run.handle.stream() as events:
        async for event in events:
            run.seen.append(event)
            if len(run.seen) > after:
                break
    assert run.handle.result.reason == (Complete() if run.is_answered else Cancelled())
    if not isinstance(run.seen[-1], Done):
        assert run.ran == sum(isinstance(event, ToolExecutionStart) for event in run.seen[:-1])


async def leave_while_waiting(run: Reading, after: int) -> None:
    """Leave by a reader that is cancelled while it waits beside the one that has read."""
    async with run.handle.stream() as events:
        while len(run.seen) <= after and not (run.seen and isinstance(run.seen[-1], Done)):
            run.seen.append(await anext(events))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert run.handle.result.reason == (Complete() if run.is_answered else Cancelled())


async def cancel(run: Reading, after: int) -> None:
    async with run.handle.stream() as events:
        async for event in events:
            run.seen.append(event)
            if len(run.seen) == after + 1 and not isinstance(event, Done):
                events.cancel("enough")
    unwanted = [event for event in run.seen[after + 1 :] if isinstance(event, TextDelta | ResponseReceived)]
    assert unwanted == []
    assert isinstance(run.seen[-1], Done)
    assert run.handle.result.reason == (Complete() if run.is_answered else Cancelled("enough"))


async def cancel_own_scope(run: Reading, after: int) -> None:
    is_over = False
    with anyio.CancelScope() as scope:
        async with run.handle.stream() as events:
            async for event in events:
                run.seen.append(event)
                is_over = isinstance(event, Done)
                if len(run.seen) == after + 1 and not is_over:
                    scope.cancel()
    assert is_over != scope.cancel_called
    assert run.handle.result.reason == (Complete() if run.is_answered else Cancelled())


async def cancel_own_task(run: Reading, after: int) -> None:
    async def read() -> None:
        async with run.handle.stream() as events:
            async for event in events:
                run.seen.append(event)
                if len(run.seen) == after + 1 and not isinstance(event, Done):
                    task.cancel()

    task = asyncio.ensure_future(read())
    await asyncio.wait([task])
    assert task.cancelled() != isinstance(run.seen[-1], Done)
    assert run.handle.result.reason == (Complete() if run.is_answered else Cancelled())


async def time_out(run: Reading, after: int) -> None:
    async with run.handle.stream() as events:
        async for event in events:
            if len(run.seen) > after:
                assert not isinstance(event, TextDelta | ResponseReceived)
            run.seen.append(event)
            if len(run.seen) == after + 1:
                await run.is_over.wait()
    assert isinstance(run.seen[-1], Done)
    assert run.handle.result.reason == (Complete() if run.is_answered else Timeout(0.02))


WAYS: list[Way] = [leave, leave_while_waiting, cancel, cancel_own_scope, cancel_own_task, time_out]


async def read_all(run: Reading) -> int:
    async with run.handle.stream() as events:
        async for event in events:
            run.seen.append(event)
    return len(run.seen)


def places(count: int) -> list[int]:
    """All places in a short run, and those in a long one where something begins or ends."""
    return [*range(count)] if count < 40 else [0, 1, 2, 17, 18, *range(32, 38), *range(count - 4, count)]


@pytest.mark.parametrize("waits", [False, True], ids=["never suspends", "suspends each"])
@pytest.mark.parametrize("replies", REPLIES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_stream_cut_at_any_event_leaves_what_was_read(
    way: Way, replies: str, waits: bool, anyio_backend_name: str
) -> None:
    if way is cancel_own_task and anyio_backend_name != "asyncio":
        pytest.skip("asyncio's own way to cancel")
    whole = Reading(REPLIES[replies], waits=waits)
    with anyio.fail_after(120):
        events = await read_all(whole)
        whole.check()
        for after in places(events):
            run = Reading(REPLIES[replies], waits=waits, timeout=0.02 if way is time_out else None)
            await way(run, after)
            run.check()


@pytest.mark.parametrize("waits", [False, True], ids=["never suspends", "suspends each"])
@pytest.mark.parametrize("replies", REPLIES)
async def test_a_stream_that_breaks_off_anywhere_is_read_up_to_there_unless_its_reader_is_gone(
    replies: str, waits: bool
) -> None:
    *before, last = REPLIES[replies]
    broken = ProviderError("model", "is gone")
    with anyio.fail_after(120):
        for length in places(len(last)):
            cut: list[Sequence[StreamEvent | Exception]] = [*before, [*last[:length], broken]]
            run = Reading(cut, waits=waits)
            with pytest.raises(ProviderError):
                await read_all(run)
            run.check()
            assert isinstance(run.seen[-1], Failed)
            spoken = [event for event in run.seen if isinstance(event, TextDelta)]
            assert len(spoken) == length + sum(isinstance(event, TextDelta) for reply in before for event in reply)
            for after in {len(run.seen) - 2, len(run.seen) - 4}:
                run = Reading(cut, waits=waits)
                await leave(run, after)
                assert run.handle.result.reason == Cancelled()
                run.check()
