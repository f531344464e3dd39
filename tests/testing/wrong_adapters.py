"""Providers with one mistake each, as suites that must fail: `test_suite_catches` runs them, nobody else does."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

import anyio
import pytest

from tests.testing.peers import ScriptPeer
from tests.testing.wires.openai_chat import ChatWire
from tests.testing.wires.openai_responses import ResponsesWire
from toolkit import AssistantMessage, ChatRequest, Provider, ProviderError, TextDelta, ToolCall, Usage, UserMessage
from toolkit.chat import ChatResponse, ReasoningBlock, ResponseDone, StreamEvent
from toolkit.events import ArgumentsDelta
from toolkit.testing.conformance import KEY, Peer, ProviderConformance, ServerConformance, Wire
from toolkit.testing.loopback import Server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Wrong:
    """No mistake yet."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    async def generate(self, request: ChatRequest) -> ChatResponse:
        return self.bent(await self.provider.generate(request))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        async for event in self.provider.stream(request):
            yield ResponseDone(self.bent(event.response)) if isinstance(event, ResponseDone) else event

    def bent(self, response: ChatResponse) -> ChatResponse:
        return response


class LosesCallIds(Wrong):
    def bent(self, response: ChatResponse) -> ChatResponse:
        content = [
            replace(block, id="x") if isinstance(block, ToolCall) else block for block in response.message.content
        ]
        return replace(response, message=AssistantMessage(content))


class SaysNoCost(Wrong):
    def bent(self, response: ChatResponse) -> ChatResponse:
        return replace(response, usage=Usage())


class AlwaysEndsItsTurn(Wrong):
    def bent(self, response: ChatResponse) -> ChatResponse:
        return replace(response, stop_reason="end_turn")


class LosesWhatWaits(Wrong):
    def bent(self, response: ChatResponse) -> ChatResponse:
        return replace(response, unanswered=())


class LosesItems(Wrong):
    def bent(self, response: ChatResponse) -> ChatResponse:
        content = [block for block in response.message.content if not isinstance(block, ReasoningBlock)]
        return replace(response, message=AssistantMessage(content))


class TellsTheEndTwice(Wrong):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        async for event in self.provider.stream(request):
            yield event
            if isinstance(event, ResponseDone):
                yield event


class TellsArgumentsTwice(Wrong):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        async for event in self.provider.stream(request):
            yield event
            if isinstance(event, ArgumentsDelta):
                yield event


class LosesSpaces(Wrong):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        async for event in self.provider.stream(request):
            yield TextDelta(event.text.strip()) if isinstance(event, TextDelta) else event


class ChangesTheMessages(Wrong):
    async def generate(self, request: ChatRequest) -> ChatResponse:
        assert isinstance(request.messages, list)
        request.messages.append(UserMessage("Please."))
        return await self.provider.generate(request)


class RepeatsItsFirstRequest(Wrong):
    first: ChatRequest | None = None

    async def generate(self, request: ChatRequest) -> ChatResponse:
        self.first = self.first or replace(request, messages=list(request.messages))
        return await self.provider.generate(self.first)


class ForgetsTheChoice(Wrong):
    async def generate(self, request: ChatRequest) -> ChatResponse:
        return await self.provider.generate(replace(request, tool_choice="auto"))


class DoesOneThingAtATime(Wrong):
    is_busy = False

    async def generate(self, request: ChatRequest) -> ChatResponse:
        assert not self.is_busy
        self.is_busy = True
        await anyio.lowlevel.checkpoint()
        self.is_busy = False
        return await self.provider.generate(request)


class TriesAgain(Wrong):
    async def generate(self, request: ChatRequest) -> ChatResponse:
        try:
            return await self.provider.generate(request)
        except ProviderError:
            return await self.provider.generate(request)


class ShowsTheKey(Wrong):
    async def generate(self, request: ChatRequest) -> ChatResponse:
        try:
            return await self.provider.generate(request)
        except ProviderError as error:
            error.args = (f"{error} {KEY}",)
            raise


class ForgetsTheStatus(Wrong):
    async def generate(self, request: ChatRequest) -> ChatResponse:
        try:
            return await self.provider.generate(request)
        except ProviderError as error:
            error.status = None
            raise


class TakesACutForTheEnd(Wrong):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        heard: list[str] = []
        try:
            async for event in self.provider.stream(request):
                heard.extend([event.text] if isinstance(event, TextDelta) else [])
                yield event
        except ProviderError:
            yield ResponseDone(ChatResponse(message=AssistantMessage("".join(heard))))


class HasNoTime(Wrong):
    async def generate(self, request: ChatRequest) -> ChatResponse:
        with anyio.move_on_after(1):
            return await self.provider.generate(replace(request, timeout=None))
        raise AssertionError("it would wait for ever")


class LeavesStreamsOpen(Wrong):
    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.left_open: list[AsyncIterator[StreamEvent]] = []

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        self.left_open.append(self.provider.stream(request))
        async for event in self.left_open[-1]:
            yield event


def of_scripts(wrong: type[Wrong]) -> type[ProviderConformance]:
    class Suite(ProviderConformance):
        @pytest.fixture
        def peer(self) -> Peer:
            peer = ScriptPeer()
            peer.provider = wrong(peer.provider)
            return peer

    return Suite


def of_servers(wrong: type[Wrong], kind: type[ChatWire | ResponsesWire] = ChatWire) -> type[ServerConformance]:
    class Suite(ServerConformance):
        gone_within = 0.5

        @pytest.fixture
        def wire(self, monkeypatch: pytest.MonkeyPatch) -> Wire:
            right = kind()
            make_right = right.provider

            def make_wrong(server: Server) -> Provider:
                return wrong(make_right(server))

            monkeypatch.setattr(right, "provider", make_wrong)
            return right

    return Suite


TestLosesCallIds = of_scripts(LosesCallIds)
TestSaysNoCost = of_scripts(SaysNoCost)
TestAlwaysEndsItsTurn = of_scripts(AlwaysEndsItsTurn)
TestLosesWhatWaits = of_scripts(LosesWhatWaits)
TestTellsTheEndTwice = of_scripts(TellsTheEndTwice)
TestTellsArgumentsTwice = of_scripts(TellsArgumentsTwice)
TestLosesSpaces = of_scripts(LosesSpaces)
TestChangesTheMessages = of_scripts(ChangesTheMessages)
TestRepeatsItsFirstRequest = of_scripts(RepeatsItsFirstRequest)
TestForgetsTheChoice = of_scripts(ForgetsTheChoice)
TestDoesOneThingAtATime = of_scripts(DoesOneThingAtATime)
TestLosesItems = of_servers(LosesItems, ResponsesWire)
TestTriesAgain = of_servers(TriesAgain)
TestShowsTheKey = of_servers(ShowsTheKey)
TestForgetsTheStatus = of_servers(ForgetsTheStatus)
TestTakesACutForTheEnd = of_servers(TakesACutForTheEnd)
TestHasNoTime = of_servers(HasNoTime)
TestLeavesStreamsOpen = of_servers(LeavesStreamsOpen)
