"""Every provider passes the suite."""

from pathlib import Path

import pytest

from tests.testing.peers import FunctionPeer, ScriptPeer
from tests.testing.wires.anthropic import MessagesWire
from tests.testing.wires.bedrock import ConverseWire
from tests.testing.wires.google import GenerateWire
from tests.testing.wires.openai_chat import ChatWire
from tests.testing.wires.openai_responses import ResponsesWire
from toolkit.providers import FallbackProvider, RateLimitedProvider
from toolkit.testing import FlakyProvider, RecordingProvider
from toolkit.testing.conformance import Peer, ProviderConformance, ServerConformance, Wire


class TestScriptedProvider(ProviderConformance):
    @pytest.fixture
    def peer(self) -> Peer:
        return ScriptPeer()


class TestFunctionProvider(ProviderConformance):
    @pytest.fixture
    def peer(self) -> Peer:
        return FunctionPeer()


class TestWrappers(ProviderConformance):
    """One inside the other, none of them changes what is said."""

    @pytest.fixture
    def peer(self, tmp_path: Path) -> Peer:
        peer = ScriptPeer()
        recording = RecordingProvider(FlakyProvider(peer.provider), tmp_path / "all.jsonl")
        peer.provider = FallbackProvider(RateLimitedProvider(recording, requests=10_000, tokens=10**9, concurrency=20))
        return peer


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


class TestBedrock(ServerConformance):
    @pytest.fixture
    def wire(self) -> Wire:
        return ConverseWire()
