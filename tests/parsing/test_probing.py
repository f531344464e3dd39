"""An unknown model is asked for a call in three ways, one request each."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from toolkit import ChatRequest, ProviderError, ToolCall
from toolkit.errors import ProviderAuthError
from toolkit.parsing import CallingProbe, CallingWay, probe_calling
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio

CALL = ToolCall("1", "get_weather", '{"city": "Oslo"}')
TEXT = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
Reply = str | ToolCall | Exception


def model(native: Reply, text: Reply, guided: Reply) -> Callable[[ChatRequest], str | ToolCall]:
    def answer(request: ChatRequest) -> str | ToolCall:
        reply = native if request.tools else guided if request.response_format else text
        if isinstance(reply, Exception):
            raise reply
        return reply

    return answer


@dataclass(frozen=True)
class Case:
    replies: tuple[Reply, Reply, Reply]
    probe: CallingProbe
    way: CallingWay | None


WORDS = "it answered in words: 'It rains.'"
CASES = {
    "all": Case((CALL, TEXT, '{"city": "Oslo"}'), CallingProbe(native=None, text=None, guided=None), "native"),
    "text": Case(("It rains.", TEXT, "no"), CallingProbe(native=WORDS, text=None, guided="it replied 'no'"), "text"),
    "guided": Case(
        ("It rains.", "It rains.", '{"city": "OSLO"}'), CallingProbe(native=WORDS, text=WORDS, guided=None), "guided"
    ),
    "none": Case(
        (
            ToolCall("1", "get_weather", '{"city": "Rome"}'),
            '<tool_call>{"name": "get_weather", "arguments": {"town": "Oslo"}}</tool_call>',
            '{"city": "Oslo", "sky": "grey"}',
        ),
        CallingProbe(
            native="""it wrote the arguments '{"city": "Rome"}'""",
            text="""it wrote the arguments '{"town": "Oslo"}'""",
            guided="""it replied '{"city": "Oslo", "sky": "grey"}'""",
        ),
        None,
    ),
    "another tool": Case(
        (ToolCall("1", "weather", "{}"), TEXT, "[" * 100_000),
        CallingProbe(native="it called 'weather'", text=None, guided=f"it replied '{'[' * 80}...'"),
        "text",
    ),
    "a server without tools": Case(
        (ProviderError("mine", "tools are not supported", status=400), TEXT, ProviderError("mine", "no", status=500)),
        CallingProbe(
            native="its server refused: 'mine (HTTP 400): tools are not supported'",
            text=None,
            guided="its server refused: 'mine (HTTP 500): no'",
        ),
        "text",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_each_way_is_tried_once_and_what_went_wrong_is_said(name: str) -> None:
    case = CASES[name]
    provider = FunctionProvider(model(*case.replies))
    probe = await probe_calling(provider)
    assert probe == case.probe
    assert probe.way == case.way
    assert len(provider.requests) == 3


async def test_a_key_that_is_refused_is_raised() -> None:
    provider = FunctionProvider(model(ProviderAuthError("mine", "wrong key", status=401), "", ""))
    with pytest.raises(ProviderAuthError):
        await probe_calling(provider)
