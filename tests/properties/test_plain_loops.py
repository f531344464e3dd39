"""A loop that nobody watches goes in a straight line for as long as it can; nobody can tell by what it leaves."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    LoopEvent,
    LoopUsageError,
    Message,
    ProviderAuthError,
    ProviderError,
    ProviderRetryConfig,
    RateLimitedError,
    ResponseDone,
    StopReason,
    StreamEvent,
    SystemMessage,
    ToolCall,
    ToolContext,
    ToolError,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    Usage,
    UserMessage,
    tool,
    tool_loop,
    tool_with_ctx,
    validate_transcript,
)
from toolkit.agents import sub_agent_tool
from toolkit.loop.driver import Prompt
from toolkit.testing import ScriptedProvider

CALLS = st.builds(
    ToolCall,
    st.sampled_from(["1", "2", "3", "4", "5", "6", "7", "8", "a", "a", ""]),
    st.sampled_from(["echo", "Echo", "fail", "learn", "learned", "inner", "guarded", "answer", "nothing"]),
    st.sampled_from(['{"text": "x"}', '{"text": "y"}', "{'text': 'y',}", '{"task": "z"}', '{"text": ', '{"text": 1}']),
)
MESSAGES = st.one_of(
    CALLS.map(lambda call: AssistantMessage([call])),
    CALLS.map(lambda call: AssistantMessage([call])),
    st.lists(CALLS, min_size=2, max_size=3).map(AssistantMessage),
    st.just(AssistantMessage("the end")),
    st.just(AssistantMessage()),
)
STOP_REASONS: list[StopReason] = ["tool_use", "end_turn", "max_tokens", "content_filter", "refusal"]
Failure = tuple[type[Exception], bool]
FAILURES: list[Failure] = [(RateLimitedError, True), (ProviderAuthError, False), (LoopUsageError, False)]
RESPONSES = st.builds(
    ChatResponse,
    message=MESSAGES,
    usage=st.builds(Usage, input_tokens=st.integers(0, 9), cache_read_tokens=st.sampled_from([None, 4])),
    stop_reason=st.sampled_from(["tool_use", "tool_use", "tool_use", *STOP_REASONS]),
)
SCRIPTS = st.lists(st.one_of(RESPONSES, RESPONSES, RESPONSES, RESPONSES, st.sampled_from(FAILURES)), max_size=6)
EARLIER: list[Message] = [
    SystemMessage("Be brief."),
    UserMessage("go"),
    AssistantMessage([ToolCall("a", "echo", '{"text": "x"}')]),
    ToolResult("a", "x", tool_name="echo"),
    UserMessage("again"),
]


def prompts(registry: ToolRegistry[object]) -> list[Prompt]:
    return [
        "go",
        EARLIER,
        EARLIER[:3],
        ChatRequest(messages=EARLIER, temperature=0.5),
        ChatRequest(messages=[UserMessage("go")], tools=registry.definitions()[:2], tool_choice="required"),
        ChatRequest(messages=[UserMessage("go")], tools=()),
    ]


class Inner:
    """Calls its one tool once."""

    async def generate(self, request: ChatRequest) -> ChatResponse:
        last, usage = request.messages[-1], Usage(output_tokens=100)
        if isinstance(last, ToolResult):
            return ChatResponse(message=AssistantMessage(last.text), usage=usage)
        return ChatResponse(message=AssistantMessage([ToolCall("1", "learn", '{"text": "z"}')]), usage=usage)

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        yield ResponseDone(await self.generate(request))


def tools() -> ToolRegistry[object]:
    @tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @tool(run_in_thread=False)
    def fail(text: str) -> NoReturn:
        """Fail."""
        raise ToolError(text)

    @tool_with_ctx
    async def learn(context: ToolContext[object], text: str) -> str:
        """Learn something."""
        if "learned" not in registry:
            registry.register(tool(name="learned", run_in_thread=False)(lambda: f"learned {text}"))
        return f"{context.call_id} at {context.depth}"

    @tool(requires_approval=True)
    async def guarded(text: str) -> str:
        """Do something dangerous."""
        raise AssertionError(text)

    @tool(result_as_answer=True)
    async def answer(text: str) -> str:
        """Answer."""
        if text == "y":
            raise ToolError(text)
        return text

    inner = sub_agent_tool("inner", "Ask another model.", Inner(), ToolRegistry([learn]))
    registry: ToolRegistry[object] = ToolRegistry([echo, fail, learn, inner, guarded, answer])
    return registry


def provider(script: Sequence[ChatResponse | Failure]) -> ScriptedProvider:
    return ScriptedProvider([*[failing(*one) if isinstance(one, tuple) else replace(one) for one in script], "end"])


def failing(kind: type[Exception], is_retryable: bool) -> Callable[[ChatRequest], NoReturn]:
    def reply(request: ChatRequest) -> NoReturn:
        raise kind("scripted", "no", is_retryable=is_retryable) if issubclass(kind, ProviderError) else kind("no")

    return reply


def ignore(event: LoopEvent) -> None: ...


async def outcome(script: Sequence[ChatResponse | Failure], prompt: int, config: ToolLoopConfig) -> str:
    """Return what a loop leaves, and what its model was asked; all but the names of sub-agents' loops."""
    model, registry = provider(script), tools()
    left: tuple[Any, ...]
    try:
        result = await tool_loop(model, registry, prompts(registry)[prompt], config=config)
    except (ProviderError, LoopUsageError) as error:
        validate_transcript(error.messages)
        left = (error, error.messages)
    else:
        validate_transcript(result.messages)
        left = (
            result.messages,
            result.text,
            result.response,
            result.usage,
            result.iterations,
            result.tool_rounds,
            result.reason,
        )
    return re.sub("'[0-9a-f]{32}'", "'loop'", repr((*left, model.requests)))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    script=SCRIPTS,
    prompt=st.integers(0, 5),
    max_iterations=st.integers(1, 4),
    argument_repair=st.booleans(),
)
def test_a_loop_in_a_straight_line_leaves_what_a_watched_one_does(
    backend: str, script: list[ChatResponse | Failure], prompt: int, max_iterations: int, argument_repair: bool
) -> None:
    plain: ToolLoopConfig = ToolLoopConfig(
        max_iterations=max_iterations,
        argument_repair=argument_repair,
        provider_retry=ProviderRetryConfig(max_retries=1, initial_backoff=0),
    )
    watched = replace(plain, on_event=ignore, stream=False)

    async def compare() -> None:
        assert plain.is_plain
        assert not watched.is_plain
        assert await outcome(script, prompt, plain) == await outcome(script, prompt, watched)

    anyio.run(compare, backend=backend)
