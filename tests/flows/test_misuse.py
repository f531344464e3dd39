"""A loop that is made of the wrong parts says which one is wrong, in every view."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.flows.small_tools import TOOLS, echo, say
from toolkit import (
    ConfigurationError,
    Failed,
    StopContext,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    TranscriptError,
    UserMessage,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
)
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


CASES = [
    Case("a name for a provider", "not 'openai:gpt-5'", provider="openai:gpt-5"),
    Case("a class for a provider", "not the class ScriptedProvider", provider=ScriptedProvider),
    Case("provider and registry swapped", "not a ToolRegistry", provider=TOOLS, registry=ScriptedProvider([])),
    Case("a list for a registry", "the registry of a loop must be a ToolRegistry, not a list", registry=[echo]),
    Case("no prompt", "what a loop starts from must be text, a list or a ChatRequest, not None", prompt=None),
    Case("a message alone", "what a loop starts from must be text, a list", prompt=UserMessage("go")),
    Case("a dict for a config", "the config of a loop must be a ToolLoopConfig", config={"max_iterations": 1}),
]


async def run(case: Case) -> None:
    await tool_loop(case.provider, case.registry, case.prompt, config=case.config)


async def step(case: Case) -> None:
    await ToolLoopHandle(case.provider, case.registry, case.prompt, config=case.config).next_turn()


async def stream(case: Case) -> None:
    async with tool_loop_stream(case.provider, case.registry, case.prompt, config=case.config):
        pass


async def channel(case: Case) -> None:
    async with tool_loop_channel(case.provider, case.registry, case.prompt, config=case.config) as (_, handle):
        await handle.result()


@pytest.mark.parametrize("view", [run, step, stream, channel], ids=lambda view: view.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_wrong_part_is_named(case: Case, view: Callable[[Case], Awaitable[None]]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await view(case)
    assert case.message in str(caught.value)


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


def test_a_script_is_a_list() -> None:
    with pytest.raises(ConfigurationError, match=r"a list of replies, such as \['Hello\.'\], and not one text"):
        ScriptedProvider("Hello.")


async def test_a_transcript_that_can_not_be_repaired_is_not_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = [{"role": "user", "content": "go"}]
    with pytest.raises(TranscriptError, match="a dict is not a message"):
        await tool_loop(ScriptedProvider([]), TOOLS, wrong)
    assert caplog.records == []
