"""A loop that is made of the wrong parts says which one is wrong, in every view."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.flows.small_tools import TOOLS, echo, say
from toolkit import (
    ApprovalRequest,
    ChatRequest,
    ConfigurationError,
    Failed,
    SystemMessage,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    UserMessage,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
)
from toolkit.errors import LoopUsageError, MaxDepthExceededError, TranscriptError
from toolkit.policies import StopContext
from toolkit.testing import ScriptedProvider, check_transcript

pytestmark = pytest.mark.anyio


@dataclass
class Case:
    name: str
    message: str
    provider: Any = field(default_factory=lambda: ScriptedProvider(["fine"]))
    registry: Any = TOOLS
    prompt: Any = "go"
    config: Any = None
    keywords: dict[str, Any] = field(default_factory=dict[str, Any])
    error: type[Exception] = ConfigurationError


CASES = [
    Case("a name for a provider", "not 'openai:gpt-5'", provider="openai:gpt-5"),
    Case("a class for a provider", "not the class ScriptedProvider", provider=ScriptedProvider),
    Case("provider and registry swapped", "not a ToolRegistry", provider=TOOLS, registry=ScriptedProvider([])),
    Case("a list for a registry", "the registry of a loop must be a ToolRegistry, not a list", registry=[echo]),
    Case("no prompt", "what a loop starts from must be text, a list or a ChatRequest, not None", prompt=None),
    Case("a message alone", "what a loop starts from must be text, a list", prompt=UserMessage("go")),
    Case("an empty prompt", "what a loop starts from is empty", prompt=" "),
    Case("an empty transcript", "of at least one message", prompt=[]),
    Case("an empty request", "of at least one message", prompt=ChatRequest(messages=[])),
    Case("what is no snapshot", "this is no snapshot", prompt={"role": "user"}, error=LoopUsageError),
    Case("system", "a loop takes no 'system': write system_prompt=", keywords={"system": "Be brief."}),
    Case("a setting", "config=ToolLoopConfig(max_iterations=...)", keywords={"max_iterations": 3}),
    Case(
        "a field of the request",
        "write ChatRequest(messages=..., seed=...) in place of the prompt",
        keywords={"seed": 1},
    ),
    Case("a vendor's field", "config=ToolLoopConfig(request_options={'top_p': ...})", keywords={"top_p": 1}),
    Case("a group", "config=ToolLoopConfig(timeouts=Timeouts(tool=...))", keywords={"tool_timeout": 1}),
    Case("a slip", "did you mean 'decisions'?", keywords={"decision": 1}),
    Case("a word of its own", "it takes ctx, config, system_prompt, decisions", keywords={"verbose": True}),
    Case(
        "a number for a system prompt", "system_prompt must be text or a function, not 3", keywords={"system_prompt": 3}
    ),
    Case("a dict for a config", "the config of a loop must be a ToolLoopConfig", config={"max_iterations": 1}),
]


async def run(case: Case) -> None:
    await tool_loop(case.provider, case.registry, case.prompt, config=case.config, **case.keywords)


async def step(case: Case) -> None:
    handle: Any = ToolLoopHandle(case.provider, case.registry, case.prompt, config=case.config, **case.keywords)
    await handle.next_turn()


async def stream(case: Case) -> None:
    async with tool_loop_stream(case.provider, case.registry, case.prompt, config=case.config, **case.keywords):
        pass


async def channel(case: Case) -> None:
    async with tool_loop_channel(case.provider, case.registry, case.prompt, config=case.config, **case.keywords) as (
        _,
        handle,
    ):
        await handle.result()


VIEWS = [run, step, stream, channel]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_wrong_part_is_named(case: Case, view: Callable[[Case], Awaitable[None]]) -> None:
    with pytest.raises(case.error) as caught:
        await view(case)
    assert case.message in str(caught.value)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("go", ["Be brief.", "go"]),
        ([UserMessage("go")], ["Be brief.", "go"]),
        ([SystemMessage("Be long."), UserMessage("go")], ["Be brief.", "go"]),
        (ChatRequest(messages=[UserMessage("go")], seed=7), ["Be brief.", "go"]),
    ],
)
async def test_a_system_prompt_stands_first_in_every_view(
    view: Callable[[Case], Awaitable[None]], prompt: Any, texts: list[str]
) -> None:
    model = ScriptedProvider(["fine"])
    await view(Case("", "", provider=model, prompt=prompt, keywords={"system_prompt": "Be brief."}))
    if view is not stream:  # which is left before anything is asked
        assert [message.text for message in model.requests[0].messages][:2] == texts
        assert model.requests[0].messages[0].role == "system"
        assert not isinstance(prompt, ChatRequest) or model.requests[0].seed == 7


def test_a_loop_that_would_ask_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_max_iterations='answer'"):
        ToolLoopConfig(max_iterations=0)


async def test_a_stream_that_is_not_entered_shows_how() -> None:
    stream: Any = tool_loop_stream(ScriptedProvider(["fine"]), TOOLS, "go")
    with pytest.raises(LoopUsageError, match=r"async with tool_loop_stream\(\.\.\.\) as events"):
        async for _ in stream:
            pass
    with pytest.raises(LoopUsageError, match=r"async with tool_loop_stream\(\.\.\.\) as events"):
        for _ in stream:
            pass


async def test_a_channel_that_is_not_entered_shows_how() -> None:
    channel: Any = tool_loop_channel(ScriptedProvider(["fine"]), TOOLS, "go")
    with pytest.raises(LoopUsageError, match=r"async with tool_loop_channel\(\.\.\.\) as \(events, handle\)"):
        _, _ = channel
    with pytest.raises(LoopUsageError, match=r"async with tool_loop_channel\(\.\.\.\) as \(events, handle\)"):
        async for _ in channel:
            pass


async def test_a_loop_depth_may_be_a_method_and_nonsense_is_named() -> None:
    class Nested:
        def __init__(self, depth: object) -> None:
            self.depth = depth

        def loop_depth(self) -> object:
            return self.depth

        def with_depth(self, depth: int) -> Any:
            return Nested(depth)

    with pytest.raises(MaxDepthExceededError, match="loop depth 2 is not below the limit of 2"):
        await tool_loop(ScriptedProvider(["fine"]), TOOLS, "go", ctx=Nested(2), config=ToolLoopConfig(max_depth=2))
    assert (await tool_loop(ScriptedProvider(["fine"]), TOOLS, "go", ctx=Nested(1))).text == "fine"
    with pytest.raises(ConfigurationError, match="loop_depth of the context must be a number"):
        await tool_loop(ScriptedProvider(["fine"]), TOOLS, "go", ctx=Nested("deep"))


async def test_an_error_of_the_providers_own_stays_what_it_is() -> None:
    class Broken(ScriptedProvider):
        async def generate(self, request: object) -> Any:
            raise AttributeError("a slip of its author")

    with pytest.raises(AttributeError, match="a slip of its author"):
        await tool_loop(Broken([]), TOOLS, "go")


async def test_arguments_that_are_no_text_are_told_to_who_made_the_call() -> None:
    wrong: Any = {"text": "hi"}
    with pytest.raises(ConfigurationError, match=r"must be JSON text, not dict: write json\.dumps"):
        await ToolRegistry([echo]).execute(ToolCall("1", "echo", wrong))


async def test_a_stop_condition_that_gives_no_decision_fails_the_loop_with_its_transcript_closed() -> None:
    def wrong(_: StopContext) -> Any:
        return True

    handle = ToolLoopHandle(ScriptedProvider([say("hi"), "fine"]), TOOLS, "go", config=ToolLoopConfig(stop_when=wrong))
    outcome = await handle.next_turn()
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "what stop_when gives must be a Continue or a Stop, not True"
    check_transcript(handle.messages)


def test_an_approver_that_can_not_take_the_request_is_refused_before_any_run() -> None:
    def decide(name: str, arguments: dict[str, Any]) -> bool:
        raise AssertionError((name, arguments))

    def decide_without() -> bool:
        return True

    def decide_with_more(request: ApprovalRequest, extra: int = 1) -> bool:
        return bool(request) and extra > 0

    wrong: list[Any] = [decide, decide_without]
    for approver in wrong:
        with pytest.raises(ConfigurationError, match="is given one argument, the ApprovalRequest"):
            ToolLoopConfig(on_tool_call=approver)
    assert ToolLoopConfig(on_tool_call=decide_with_more).on_tool_call is decide_with_more


def test_a_script_is_a_list() -> None:
    with pytest.raises(ConfigurationError, match=r"a list of replies, such as \['Hello\.'\], and not one text"):
        ScriptedProvider("Hello.")


async def test_a_transcript_that_can_not_be_repaired_is_not_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = [{"role": "user", "content": "go"}]
    with pytest.raises(TranscriptError, match="a dict is not a message"):
        await tool_loop(ScriptedProvider([]), TOOLS, wrong)
    assert caplog.records == []


async def test_a_stream_or_channel_that_is_awaited_or_entered_without_async_says_how_it_is_entered() -> None:
    provider, registry = ScriptedProvider(["never asked"]), ToolRegistry([])
    for made, spelling in (
        (tool_loop_stream(provider, registry, "go"), r"async with tool_loop_stream\(\.\.\.\) as events"),
        (tool_loop_channel(provider, registry, "go"), r"async with tool_loop_channel\(\.\.\.\) as \(events, handle\)"),
    ):
        with pytest.raises(LoopUsageError, match=spelling):
            await made
        with pytest.raises(LoopUsageError, match=spelling), made:
            pass
    assert not provider.requests
