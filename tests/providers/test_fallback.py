"""Another provider answers when the first can't."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from toolkit import ChatRequest, ConfigurationError, Provider, ProviderError, TextDelta, UserMessage
from toolkit.chat import ResponseDone, StreamEvent
from toolkit.chat.provider import closing
from toolkit.errors import ProviderAuthError, RateLimitedError
from toolkit.providers import CachedProvider, FallbackProvider, RateLimitedProvider
from toolkit.testing import FunctionProvider, ScriptedProvider

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
BUSY = RateLimitedError("first", "slow down", status=429)
WRONG_KEY = ProviderAuthError("first", "wrong key", status=401)


async def answer(provider: Provider, *, streams: bool) -> str:
    if not streams:
        return (await provider.generate(REQUEST)).text
    async with closing(provider.stream(REQUEST)) as events:
        heard: list[StreamEvent] = [event async for event in events]
    done = heard[-1]
    assert isinstance(done, ResponseDone)
    assert "".join(event.text for event in heard if isinstance(event, TextDelta)) == done.response.text
    return done.response.text


both_ways = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


@both_ways
async def test_the_first_one_that_can_answers(streams: bool) -> None:
    first = ScriptedProvider([BUSY, "First."])
    second = ScriptedProvider(["Second."])
    provider = FallbackProvider(first, second)
    assert await answer(provider, streams=streams) == "Second."
    assert await answer(provider, streams=streams) == "First."
    assert second.unplayed == 0


@both_ways
async def test_what_would_go_wrong_elsewhere_too_is_raised(streams: bool) -> None:
    second = ScriptedProvider(["Second."])
    with pytest.raises(ProviderAuthError, match="wrong key"):
        await answer(FallbackProvider(ScriptedProvider([WRONG_KEY]), second), streams=streams)
    assert second.requests == []


@both_ways
async def test_who_falls_back_decides_when(streams: bool) -> None:
    provider = FallbackProvider(
        ScriptedProvider([WRONG_KEY]), ScriptedProvider(["Second."]), when=lambda error: error.status == 401
    )
    assert await answer(provider, streams=streams) == "Second."


@both_ways
async def test_when_none_can_answer_the_last_error_is_raised_with_the_others_as_notes(streams: bool) -> None:
    last = ProviderError("last", "down", is_retryable=True)
    provider = FallbackProvider(*[ScriptedProvider([error]) for error in (BUSY, WRONG_KEY, last)], when=lambda _: True)
    with pytest.raises(ProviderError) as caught:
        await answer(provider, streams=streams)
    assert caught.value is last
    assert last.__notes__ == [f"asked before: {BUSY}", f"asked before: {WRONG_KEY}"]


@both_ways
async def test_other_exceptions_are_not_the_business_of_a_fallback(streams: bool) -> None:
    with pytest.raises(ZeroDivisionError):
        await answer(
            FallbackProvider(ScriptedProvider([ZeroDivisionError()]), ScriptedProvider(["x"])), streams=streams
        )


async def test_a_stream_that_has_begun_is_not_begun_again() -> None:
    async def breaks_off(request: ChatRequest) -> AsyncGenerator[str]:
        yield "Hel"
        raise BUSY

    second = ScriptedProvider(["Second."])
    heard: list[StreamEvent] = []
    with pytest.raises(RateLimitedError):
        async with aclosing(FallbackProvider(FunctionProvider(breaks_off), second).stream(REQUEST)) as events:
            async for event in events:
                heard.append(event)
    assert heard == [TextDelta("Hel")]
    assert second.requests == []


async def test_leaving_a_stream_closes_that_of_the_provider() -> None:
    closed: list[bool] = []

    async def model(request: ChatRequest) -> AsyncGenerator[str]:
        try:
            yield "Hel"
            yield "lo"
        finally:
            closed.append(True)

    async with aclosing(FallbackProvider(FunctionProvider(model)).stream(REQUEST)) as events:
        assert await anext(events) == TextDelta("Hel")
    assert closed == [True]


def test_there_must_be_a_provider() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        FallbackProvider()
    with pytest.raises(ConfigurationError, match=r"one by one, as in FallbackProvider\(a, b\)"):
        FallbackProvider([ScriptedProvider([])])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_wrappers_show_what_they_wrap() -> None:
    class Named(ScriptedProvider):
        def __repr__(self) -> str:
            return "Named()"

    wrapped = FallbackProvider(RateLimitedProvider(Named([])), CachedProvider(Named([])))
    assert repr(wrapped) == "FallbackProvider(RateLimitedProvider(Named()), CachedProvider(Named()))"
