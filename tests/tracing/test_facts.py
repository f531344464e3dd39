"""The span of a run says whose it was, what was asked and answered, and its calls say why they failed."""

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from tests.tracing.test_spans import Recorder
from toolkit import AssistantMessage, ToolCall, ToolError, ToolLoopHandle, ToolOutput, ToolRegistry, tool, tool_loop
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatResponse, Usage
from toolkit.errors import ProviderError, RateLimitedError
from toolkit.providers import CachedProvider, FallbackProvider, RateLimitedProvider
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool
def refuse() -> ToolOutput:
    """Refuse."""
    return ToolOutput.error("The shop is closed.")


@tool
def fail() -> str:
    """Fail."""
    raise ToolError("The till is locked.")


def read(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)


async def test_the_span_of_a_run_has_its_user_its_conversation_and_its_metadata_and_so_have_its_agents() -> None:
    recorder = Recorder()
    helper = sub_agent_tool("helper", "Helps.", ScriptedProvider(["Done."]), ToolRegistry())
    provider = ScriptedProvider([ToolCall("1", "helper", '{"task": "Help."}'), "Yes."])
    metadata = {"user": "ada", "conversation": "c-7", "plan": "free", "api_key": "sk-1234567890abcdef", "tags": ["a"]}
    await tool_loop(provider, ToolRegistry([helper]), "Hello?", config=recorder.config(metadata=metadata))
    spans = [span for span in recorder.spans if span.name.startswith("invoke_agent")]
    assert len(spans) == 2
    for span in spans:
        assert read(span, "user.id") == "ada"
        assert [read(span, name) for name in ("gen_ai.conversation.id", "session.id")] == ["c-7", "c-7"]
        assert read(span, "toolkit.metadata.plan") == "free"
        assert "1234567890" not in str(read(span, "toolkit.metadata.api_key"))
        assert read(span, "toolkit.metadata.tags") is None
        assert [read(span, f"toolkit.metadata.{name}") for name in ("user", "conversation")] == [None, None]


async def test_a_tool_that_adds_an_attribute_over_all_spans_counts_each_request_once() -> None:
    recorder = Recorder()
    usage = Usage(input_tokens=10, output_tokens=5, cost=0.25)
    answer = ChatResponse(message=AssistantMessage("Done."), usage=usage)
    call = replace(answer, message=AssistantMessage([ToolCall("1", "helper", '{"task": "Help."}')]))
    helper = sub_agent_tool("helper", "Helps.", ScriptedProvider([answer]), ToolRegistry())
    provider = ScriptedProvider([call, answer])
    result = await tool_loop(provider, ToolRegistry([helper]), "Hello?", config=recorder.config())
    names = ("input_tokens", "output_tokens", "cost")
    added = [sum(read(span, f"gen_ai.usage.{name}") or 0 for span in recorder.spans) for name in names]
    assert added == [30, 15, 0.75] == [getattr(result.usage, name) for name in names]
    run = recorder.span("invoke_agent")
    assert [read(run, f"toolkit.usage.{name}") for name in names] == added


@pytest.mark.parametrize(("content", "is_there"), [("none", False), ("new", True), ("all", True)])
async def test_the_span_of_a_run_has_the_question_and_the_answer(content: Any, is_there: bool) -> None:
    recorder = Recorder({"content": content})
    secret = "sk-proj-" + "a1B2" * 10
    await tool_loop(ScriptedProvider([f"Yes. {secret}"]), ToolRegistry(), f"Hello? {secret}", config=recorder.config())
    run = recorder.span("invoke_agent")
    asked, answered = read(run, "gen_ai.input.messages"), read(run, "gen_ai.output.messages")
    assert (asked is not None, answered is not None) == (is_there, is_there)
    if is_there:
        assert ("Hello?" in asked, "Yes." in answered) == (True, True)
    found = [read(run, "input.value"), read(run, "output.value")]
    assert found == (["Hello? ***", "Yes. ***"] if is_there else [None, None])
    assert secret not in str(run.attributes)


@pytest.mark.parametrize("content", ["none", "new"])
@pytest.mark.parametrize(("name", "words"), [("refuse", "The shop is closed."), ("fail", "The till is locked.")])
async def test_a_failed_call_says_why_where_content_is_wanted(content: Any, name: str, words: str) -> None:
    recorder = Recorder({"content": content})
    provider = ScriptedProvider([ToolCall("1", name, "{}"), "Sorry."])
    await tool_loop(provider, ToolRegistry([refuse, fail]), "Go.", config=recorder.config())
    span = recorder.span(f"execute_tool {name}")
    written = f"{span.status.description} {[dict(event.attributes or {}) for event in span.events]}"
    assert (words in written) == (content == "new")


async def test_the_provider_is_named_whatever_stands_round_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    recorder = Recorder()
    model = ScriptedProvider(["Yes."])
    wrapped = CachedProvider(RateLimitedProvider(FallbackProvider(model, ScriptedProvider(["No."])), requests=9))
    await tool_loop(wrapped, ToolRegistry(), "Hello?", config=recorder.config())
    assert {read(span, "gen_ai.provider.name") for span in recorder.spans} == {"ScriptedProvider"}
    assert ProviderError("x", "y").provider == "x"


class Named(ScriptedProvider):
    def __init__(self, name: str, *script: Any) -> None:
        super().__init__(list(script))
        self.name = name


ANSWER = ChatResponse(message=AssistantMessage("Yes."), model="anthropic-large")
NAMES = ("gen_ai.provider.name", "gen_ai.response.model")


@pytest.mark.parametrize("streams", [False, True])
async def test_the_spans_and_the_records_of_a_run_name_the_provider_that_answered(
    streams: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolkit.loop")
    recorder = Recorder()
    spare = FallbackProvider(Named("openai", RateLimitedError("openai", "busy")), Named("anthropic", ANSWER))
    provider = CachedProvider(FallbackProvider(Named("google", RateLimitedError("google", "busy")), spare))
    handle = ToolLoopHandle(provider, ToolRegistry(), "Hello?", config=recorder.config())
    if streams:
        async with handle.stream() as events:
            async for _ in events:
                pass
    await handle.run()
    assert handle.result.response is not None
    assert handle.result.response.provider == "anthropic"
    assert [(each.name.split()[0], *map(partial(read, each), NAMES)) for each in recorder.spans] == [
        ("invoke_agent", "anthropic", "anthropic-large"),
        ("chat", "anthropic", "anthropic-large"),
    ]
    [ended] = [vars(each) for each in caplog.records if " ended as " in each.getMessage()]
    assert (ended["provider"], ended["model"]) == ("anthropic", "anthropic-large")
