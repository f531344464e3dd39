"""Whatever goes wrong with a provider, the error is the documented one and the transcript is valid."""

from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    ProviderError,
    ProviderRetryConfig,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolLoopResult,
    ToolRegistry,
    UserMessage,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.chat import StreamEvent
from toolkit.errors import BadResponseError, ProviderTimeoutError, RateLimitedError
from toolkit.events import ArgumentsDelta
from toolkit.testing import FAULTS, EventCollector, Fault, FlakyProvider, ScriptedProvider, check_transcript

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
NO_RETRY = ProviderRetryConfig(max_retries=0)
FAST_RETRY = ProviderRetryConfig(initial_backoff=0.001, max_backoff=0.02)
both_ways = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


@dataclass(frozen=True)
class Case:
    fault: Fault
    raises: type[ProviderError] | None
    is_retryable: bool = True
    facts: tuple[int | None, float | None] = (None, None)


CASES = [
    Case("timeout", ProviderTimeoutError),
    Case("rate_limit", RateLimitedError, facts=(429, None)),
    Case("rate_limit_with_retry_after", RateLimitedError, facts=(429, 0.01)),
    Case("server_error", ProviderError, facts=(500, None)),
    Case("cut_stream", ProviderError),
    Case("malformed_chunk", BadResponseError, is_retryable=False),
    Case("duplicate_ids", None),
    Case("missing_ids", None),
]
every_fault = pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)


class Run:
    """A loop of three turns: two calls side by side, one more, the answer."""

    def __init__(self, **settings: Any) -> None:
        self.ran: list[int] = []
        self.script = ScriptedProvider(
            [
                AssistantMessage([ToolCall("a", "note", '{"number": 1}'), ToolCall("b", "note", '{"number": 2}')]),
                ToolCall("c", "note", '{"number": 3}'),
                "All is noted.",
            ]
        )
        self.provider = FlakyProvider(self.script, **settings)
        self.events = EventCollector()

    async def finish(self, *, streams: bool, retry: ProviderRetryConfig) -> ToolLoopResult:
        @tool
        def note(number: int) -> str:
            """Note a number."""
            self.ran.append(number)
            return f"noted {number}"

        config = ToolLoopConfig(provider_retry=retry)
        registry = ToolRegistry([note])
        if not streams:
            config = ToolLoopConfig(provider_retry=retry, on_event=self.events)
            return await tool_loop(self.provider, registry, "Note.", config=config)
        async with tool_loop_stream(self.provider, registry, "Note.", config=config) as heard:
            async for event in heard:
                self.events(event)
        return self.events.result


@both_ways
@every_fault
async def test_every_fault_is_the_documented_error_and_leaves_a_valid_transcript(case: Case, streams: bool) -> None:
    run = Run(script=[None, case.fault])
    if case.raises is None:
        result = await run.finish(streams=streams, retry=NO_RETRY)
        check_transcript(result.messages, run.events.events)
        assert result.text == "All is noted."
        assert run.ran == [1, 2, 3]
        return
    with pytest.raises(case.raises) as caught:
        await run.finish(streams=streams, retry=NO_RETRY)
    error = caught.value
    assert type(error) is case.raises
    assert error.is_retryable is case.is_retryable
    assert (error.status, error.retry_after) == case.facts
    assert [message.role for message in error.messages] == ["user", "assistant", "tool", "tool"]
    check_transcript(error.messages, run.events.events)
    assert sorted(run.ran) == [1, 2]


@both_ways
@every_fault
async def test_a_loop_that_retries_gets_over_what_is_retryable_and_runs_nothing_twice(
    case: Case, streams: bool
) -> None:
    run = Run(script=[case.fault, None, case.fault])
    if not case.is_retryable:
        with pytest.raises(BadResponseError):
            await run.finish(streams=streams, retry=FAST_RETRY)
        return
    result = await run.finish(streams=streams, retry=FAST_RETRY)
    check_transcript(result.messages, run.events.events)
    assert result.text == "All is noted."
    assert sorted(run.ran) == [1, 2, 3]
    assert run.script.unplayed == 0


@both_ways
@pytest.mark.parametrize("seed", range(20))
async def test_a_loop_gets_over_faults_at_random(seed: int, streams: bool) -> None:
    run = Run(probability=0.5, seed=seed, faults=[fault for fault in FAULTS if fault != "malformed_chunk"])
    patient = ProviderRetryConfig(max_retries=50, initial_backoff=0.0001, max_backoff=0.02)
    result = await run.finish(streams=streams, retry=patient)
    check_transcript(result.messages, run.events.events)
    assert sorted(run.ran) == [1, 2, 3]


async def test_equal_seeds_fail_alike() -> None:
    async def injected(seed: int) -> list[Fault | None]:
        provider = FlakyProvider(ScriptedProvider(["x"], repeats=True), probability=0.5, seed=seed)
        for _ in range(30):
            with suppress(ProviderError):
                await provider.generate(REQUEST)
        return provider.injected

    first, again, other = await injected(1), await injected(1), await injected(2)
    assert first == again != other
    assert None in first


async def test_a_cut_stream_gives_half_and_then_the_error() -> None:
    provider = FlakyProvider(
        ScriptedProvider([ToolCall("1", "add", '{"a": 12345}'), "One two three four."]),
        ["cut_stream", None, "cut_stream", None],
    )

    async def listen(messages: str) -> tuple[list[StreamEvent], bool]:
        heard: list[StreamEvent] = []
        try:
            async with aclosing(provider.stream(ChatRequest(messages=[UserMessage(messages)]))) as events:
                async for event in events:
                    heard.append(event)
        except ProviderError:
            return heard, True
        return heard, False

    assert await listen("a") == ([ArgumentsDelta(0, "1", "add", '{"a": ')], True)
    whole, is_cut = await listen("a")
    assert (len(whole), is_cut) == (2, False)
    assert await listen("b") == ([TextDelta("One"), TextDelta(" t")], True)
    whole, is_cut = await listen("b")
    assert (len(whole), is_cut) == (5, False)


def test_a_fault_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no fault 'timout'; there are timeout, rate_limit"):
        FlakyProvider(ScriptedProvider([]), ["timout"])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"probability": 1.5}, "probability must be between 0 and 1, not 1.5"),
        ({"probability": "often"}, "probability must be a number"),
        ({"faults": []}, "there must be faults"),
    ],
    ids=["too much", "words", "no faults"],
)
def test_a_chance_must_be_one(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        FlakyProvider(ScriptedProvider([]), **settings)
