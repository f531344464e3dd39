"""Words that people bring from elsewhere are answered with ours."""

import copy
import pickle
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from toolkit import (
    ConfigurationError,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolOutput,
    ToolRegistry,
    UserMessage,
    Yielded,
    tool,
    tool_from_function,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
    tool_loop_sync,
    tool_with_ctx,
)
from toolkit.chat import ToolDefinition
from toolkit.testing import ScriptedProvider


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("before_tool_execution", "ToolExecutionHooks(before=...)"),
        ("after_tool_execution", "ToolExecutionHooks(after=...)"),
        ("hook_timeout", "timeouts=Timeouts(hook=...)"),
        ("parallel_tool_execution", "execution=Parallel()"),
        ("on_approval", "on_tool_call=..."),
    ],
)
def test_a_setting_by_another_name_is_answered_with_ours(word: str, ours: str) -> None:
    settings: dict[str, Any] = {word: 1}
    with pytest.raises(ConfigurationError) as caught:
        ToolLoopConfig(**settings)
    assert ours in str(caught.value)


def test_the_tags_of_a_registration_are_there_to_choose_by() -> None:
    @tool(tags={"read"})
    def look() -> str:
        """Look."""
        return "seen"

    assert ToolRegistry([look]).where(lambda each: "read" in each.tags).names == ("look",)


NO_TOOLS = ToolRegistry[object]()


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("termination_reason", ": write .reason"),
        ("total_usage", ": write .usage"),
        ("final_output", ": write .text, or .output where an answer of a type was asked for"),
        ("iteration", ": did you mean 'iterations'?"),
        ("quite_another", ""),
    ],
)
def test_an_attribute_of_a_result_by_another_name_is_answered_with_ours(word: str, ours: str) -> None:
    result = tool_loop_sync(ScriptedProvider(["hi"]), NO_TOOLS, "go")
    with pytest.raises(AttributeError) as caught:
        getattr(result, word)
    assert str(caught.value) == f"a ToolLoopResult has no '{word}'{ours}"
    assert not hasattr(result, word)
    assert copy.deepcopy(result) == pickle.loads(pickle.dumps(result)) == result


@pytest.mark.anyio
@pytest.mark.parametrize("given", [UserMessage("And?"), "And?"], ids=["a message", "text"])
async def test_a_lone_message_is_refused_where_a_list_is_wanted(given: Any) -> None:
    handle = ToolLoopHandle(ScriptedProvider(["hi"]), NO_TOOLS, "go")
    await handle.run()
    words = r"must be a list, such as \[UserMessage\('And then\?'\)\], not"
    with pytest.raises(ConfigurationError, match=f"the messages to go on with {words}"):
        ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), NO_TOOLS, ctx=None, messages=given)
    stepped = ToolLoopHandle(ScriptedProvider([ToolCall("1", "nothing", "{}")]), NO_TOOLS, "go")
    turn = await stepped.next_turn()
    assert isinstance(turn, Yielded)
    with pytest.raises(ConfigurationError, match=f"the messages to inject {words}"):
        turn.inject_and_continue(given)


@pytest.mark.anyio
@pytest.mark.parametrize("view", [tool_loop, tool_loop_sync, tool_loop_stream, tool_loop_channel, ToolLoopHandle])
@pytest.mark.parametrize(("given", "name"), [(ToolLoopConfig(), "config"), ({"user": "ada"}, "ctx")])
async def test_settings_that_are_given_by_place_are_answered_with_their_name(
    view: Callable[..., Any], given: object, name: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"is given by name, such as {name}=..., not a"):
        started = view(ScriptedProvider(["hi"]), NO_TOOLS, "go", given)
        await started


class Handwritten:
    definition = ToolDefinition(name="look", description="Look.", parameters={"type": "object"})


class Plain(Handwritten):
    def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        return ToolOutput("seen")


def give_output(tool: object, arguments: object, context: object) -> ToolOutput:
    return ToolOutput("seen")


del give_output.__annotations__["return"]
Unhinted = type("Unhinted", (Handwritten,), {"execute": give_output})


class Awaited(Handwritten):
    async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        return ToolOutput("seen")


class PassedOn(Handwritten):
    def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> Awaitable[ToolOutput]:
        return Awaited().execute(arguments, context)


@pytest.mark.parametrize(("made", "fits"), [(Plain, False), (Unhinted, False), (Awaited, True), (PassedOn, True)])
def test_a_plain_execute_is_refused_when_its_tool_is_registered(made: Callable[[], Any], fits: bool) -> None:
    registry = ToolRegistry[object]()
    if fits:
        registry.register(made())
        return
    with pytest.raises(ConfigurationError, match="execute of tool 'look' is awaited: write 'async def execute'"):
        registry.register(made())


def test_a_timeout_of_what_holds_the_event_loop_is_refused() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    words = r"look' can't have a timeout: it runs on the event loop \(run_in_thread=False\)"
    with pytest.raises(ConfigurationError, match=words):
        tool(run_in_thread=False, timeout=3)(look)
    with pytest.raises(ConfigurationError, match=words):
        ToolRegistry([tool_from_function(look, run_in_thread=False)]).configured("look", timeout=3)

    @tool(run_in_thread=False, timeout=3)
    async def wait() -> str:
        """Wait."""
        return "seen"

    assert ToolRegistry([wait, tool(look)]).configured(timeout=5).names == ("wait", "look")


@dataclass
class Shop:
    user: str
    orders: sqlite3.Connection | None


def test_a_connection_that_belongs_to_one_thread_is_a_finding() -> None:
    @tool_with_ctx
    def of_itself(ctx: sqlite3.Connection) -> str:
        """Look."""
        return "seen"

    @tool_with_ctx
    def of_shop(ctx: ToolContext[Shop]) -> str:
        """Look."""
        return "seen"

    @tool_with_ctx
    async def awaited(ctx: Shop) -> str:
        """Look."""
        return "seen"

    @tool_with_ctx(run_in_thread=False)
    def inline(ctx: Shop) -> str:
        """Look."""
        return "seen"

    findings = ToolRegistry[Any]([of_itself, of_shop, awaited, inline]).lint()
    told = [finding.tool for finding in findings if "its context has a sqlite3.Connection" in finding.problem]
    assert told == ["of_itself", "of_shop"]
