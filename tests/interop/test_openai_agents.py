"""The OpenAI Agents SDK's tools in a loop of ours, and ours in a run of theirs."""

import os
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from toolkit import (
    ApprovalRequest,
    ConfigurationError,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import FileBlock, ImageBlock, TextBlock
from toolkit.testing import ScriptedProvider

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
pytest.importorskip("agents", reason="openai-agents is not installed: uv pip install openai-agents")

from agents import (
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    WebSearchTool,
    function_tool,
    tool_input_guardrail,
)
from agents.tool import ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext as AgentsContext

from toolkit.interop import from_openai_agents, to_openai_agents


@function_tool
async def add(context: RunContextWrapper[Any], first: int, second: int = 1) -> int:
    """Add two numbers.

    Args:
        first: One.
        second: Another.
    """
    return first + second + (context.context or 0)


@function_tool(needs_approval=True)
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@function_tool(failure_error_function=None)
def crash() -> str:
    """Crash."""
    raise ValueError("crashed")


@function_tool
def draw() -> list[ToolOutputText | ToolOutputImage]:
    """Draw."""
    return [ToolOutputText(text="a cat"), ToolOutputImage(image_url="https://example.org/cat.png")]


def ask(
    tools: ToolRegistry[Any], name: str, arguments: str, approve: Callable[[ApprovalRequest], bool] | None = None
) -> ToolResult:
    async def run() -> ToolResult:
        return await tools.execute(ToolCall("1", name, arguments), None, approve=approve)

    return anyio.run(run)


def registry() -> ToolRegistry[Any]:
    return ToolRegistry[Any](from_openai_agents([add, fail, crash, draw]))


def test_their_functions_see_our_context_in_a_loop_of_ours() -> None:
    provider = ScriptedProvider(
        [ToolCall("1", "add", '{"first": "2", "second": 1}'), lambda request: request.messages[-1].text]
    )

    async def run() -> str:
        return (await tool_loop(provider, registry(), "Add.", ctx=10)).text

    assert anyio.run(run) == "13"


def test_their_approval_is_ours() -> None:
    assert "approval" in ask(registry(), "fail", '{"why": "so"}').text
    allowed = ask(registry(), "fail", '{"why": "so"}', approve=lambda request: True)
    assert "An error occurred" in allowed.text  # the SDK's own words


def test_what_they_raise_is_an_error_and_blocks_are_blocks() -> None:
    failed = ask(registry(), "crash", "{}")
    assert failed.is_error
    assert "crashed" in failed.text
    assert ask(registry(), "draw", "{}").content == (TextBlock("a cat"), ImageBlock(url="https://example.org/cat.png"))


def test_a_tool_that_is_off_is_left_out_and_a_time_limit_holds() -> None:
    @function_tool(is_enabled=False)
    def off() -> str:
        """Off."""
        return "on"

    @function_tool(timeout=0.05)
    async def slow() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return "waited"

    tools = ToolRegistry[Any](from_openai_agents([off, slow]))
    assert tools.names == ("slow",)
    assert ask(tools, "slow", "{}").text == "Tool 'slow' timed out after 0.05 s. It may have taken effect."


def test_what_would_not_hold_here_is_refused() -> None:
    @tool_input_guardrail
    def guard(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("never")

    @function_tool(tool_input_guardrails=[guard])
    def guarded() -> str:
        """Guarded."""
        return "done"

    with pytest.raises(ConfigurationError, match="the tool 'guarded' has guardrails, which would not run here"):
        from_openai_agents([guarded])
    hosted: Any = WebSearchTool()
    with pytest.raises(ConfigurationError, match="a tool of the SDK must be a FunctionTool, not a WebSearchTool"):
        from_openai_agents([hosted])


@tool_with_ctx
def greet(context: ToolContext[str], name: str) -> ToolOutput:
    """Greet somebody."""
    return ToolOutput.error("there is nobody") if name == "nobody" else ToolOutput(f"{context.state} {name}")


@tool
async def picture() -> list[TextBlock | ImageBlock | FileBlock]:
    """Show a picture."""
    return [TextBlock("look"), ImageBlock(b"hi"), FileBlock(b"x", name="a.bin")]


def theirs(name: str, arguments: str) -> Any:
    tools = {each.name: each for each in to_openai_agents(ToolRegistry[str]([greet, picture]), "Hello")}
    context: AgentsContext[Any] = AgentsContext(None, tool_name=name, tool_call_id="c1", tool_arguments=arguments)

    async def run() -> Any:
        return await tools[name].on_invoke_tool(context, arguments)

    return anyio.run(run)


def test_ours_are_invoked_as_their_runner_invokes_tools() -> None:
    assert theirs("greet", '{"name": "Ada"}') == "Hello Ada"
    assert theirs("greet", '{"name": "nobody"}') == "Error: there is nobody"
    assert theirs("greet", "{}").startswith("Error: ")
    assert [part.type for part in theirs("picture", "{}")] == ["text", "image", "file"]


def test_blocks_go_over_and_come_back() -> None:
    back = ToolRegistry[Any](from_openai_agents(to_openai_agents(ToolRegistry([picture]), None)))
    image = ImageBlock(url="data:image/png;base64,aGk=")
    assert ask(back, "picture", "{}").content == (TextBlock("look"), image, FileBlock(b"x", name="a.bin"))


def test_one_tool_is_taken_as_several_are() -> None:
    @tool
    def again(text: str) -> str:
        """Say it again."""
        return text

    [found] = from_openai_agents(add)
    assert found.definition.name == "add"
    assert [theirs.name for theirs in to_openai_agents([again, found])] == ["again", "add"]
    assert [theirs.name for theirs in to_openai_agents(again)] == ["again"]
