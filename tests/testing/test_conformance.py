"""Every provider passes the suite."""

from collections.abc import Sequence

import pytest

from tests.testing.wires.anthropic import MessagesWire
from tests.testing.wires.google import GenerateWire
from tests.testing.wires.openai_chat import ChatWire
from tests.testing.wires.openai_responses import ResponsesWire
from toolkit import ChatRequest, ChatResponse, Provider
from toolkit.testing import FunctionProvider, ScriptedProvider
from toolkit.testing.conformance import Features, Peer, ProviderConformance, ServerConformance, Wire


class ScriptPeer:
    """A script, which is whole however it is asked for."""

    def __init__(self) -> None:
        self.features = Features()
        self._script: list[ChatResponse] = []
        self._scripted = ScriptedProvider([self._next], repeats=True)
        self.provider: Provider = self._scripted

    def say(self, *responses: ChatResponse, streams: bool) -> None:
        self._script[:] = responses

    def _next(self, request: ChatRequest) -> ChatResponse:
        return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    @property
    def asked(self) -> Sequence[ChatRequest]:
        return self._scripted.requests


class FunctionPeer(ScriptPeer):
    """A function that plays the same script."""

    def __init__(self) -> None:
        super().__init__()
        self._function = FunctionProvider(self._next)
        self.provider: Provider = self._function

    @property
    def asked(self) -> Sequence[ChatRequest]:
        return self._function.requests


class TestScriptedProvider(ProviderConformance):
    @pytest.fixture
    def peer(self) -> Peer:
        return ScriptPeer()


class TestFunctionProvider(ProviderConformance):
    @pytest.fixture
    def peer(self) -> Peer:
        return FunctionPeer()


class TestOpenAIChat(ServerConformance):
    @pytest.fixture
    def wire(self) -> Wire:
        return ChatWire()


class TestOpenAIResponses(ServerConformance):
    @pytest.fixture
    def wire(self) -> Wire:
        return ResponsesWire()


class TestAnthropic(ServerConformance):
    @pytest.fixture
    def wire(self) -> Wire:
        return MessagesWire()


class TestGoogle(ServerConformance):
    @pytest.fixture
    def wire(self) -> Wire:
        return GenerateWire()
