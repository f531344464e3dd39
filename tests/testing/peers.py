"""The other side of providers that speak to no server."""

from collections.abc import Sequence

from toolkit import ChatRequest, Provider
from toolkit.chat import ChatResponse
from toolkit.testing import FunctionProvider, ScriptedProvider
from toolkit.testing.conformance import Features

__all__ = ["FunctionPeer", "ScriptPeer"]


class ScriptPeer:
    """A script, which is whole however it is asked for."""

    def __init__(self) -> None:
        self.features = Features(waiting=frozenset({"computer_call"}))
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
