"""Pydantic AI's tools in a loop of ours, and ours in an agent of theirs."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from toolkit import (
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
from toolkit.chat import ImageBlock, TextBlock
from toolkit.testing import ScriptedProvider

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed: uv pip install pydantic-ai-slim")

from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from toolkit.interop import from_pydantic_ai, to_pydantic_ai


async def add(context: RunContext[int], first: int, second: int = 1) -> int:
    """Add two numbers.

    Args:
        context: Of the run.
        first: One.
        second: Another.
    """
    return first + second + context.deps


def retry(why: str) -> str:
    """Ask for another try."""
    raise ModelRetry(f"try again: {why}")


def draw() -> ToolReturn:
    """Draw."""
    return ToolReturn(return_value="a cat", content=[BinaryContent(b"hi", media_type="image/png")], metadata={"a": 1})


def registry() -> ToolRegistry[Any]:
    return ToolRegistry[Any](from_pydantic_ai([Tool(add), Tool(retry, requires_approval=True), Tool(draw)]))


async def ask(tools: ToolRegistry[Any], name: str, ctx: object = None, **arguments: Any) -> ToolResult:
    return await tools.execute(ToolCall("1", name, json.dumps(arguments)), ctx, approve=lambda request: True)


@pytest.mark.anyio
async def test_their_functions_see_our_context_in_a_loop_of_ours() -> None:
    provider = ScriptedProvider([ToolCall("1", "add", '{"first": "2"}'), lambda request: request.messages[-1].text])
    assert (await tool_loop(provider, registry(), "Add.", ctx=10)).text == "13"


@pytest.mark.anyio
async def test_retries_are_errors_and_returns_keep_their_parts() -> None:
    failed = await ask(registry(), "retry", why="so")
    assert (failed.text, failed.is_error) == ("try again: so", True)
    drawn = await ask(registry(), "draw")
    assert drawn.content == (TextBlock("a cat"), ImageBlock(b"hi"))
    assert drawn.details == {"a": 1}


@pytest.mark.anyio
async def test_their_approval_is_ours() -> None:
    refused = await registry().execute(ToolCall("1", "retry", '{"why": "so"}'), None)
    assert "approval" in refused.text


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_validator_of_arguments_is_asked(is_async: bool) -> None:
    def check(context: RunContext[int], first: int, second: int = 1) -> None:
        if first > context.deps:
            raise ModelRetry(f"first is more than {context.deps}")

    async def check_later(context: RunContext[int], first: int, second: int = 1) -> None:
        await anyio.lowlevel.checkpoint()
        check(context, first, second)

    theirs: Tool[Any] = Tool(add, args_validator=check_later if is_async else check)
    tools = ToolRegistry[Any](from_pydantic_ai([theirs]))
    assert (await ask(tools, "add", 5, first=2)).text == "8"
    refused = await ask(tools, "add", 5, first=6)
    assert (refused.text, refused.is_error) == ("first is more than 5", True)


def test_what_is_no_tool_is_named() -> None:
    function: Any = add
    with pytest.raises(ConfigurationError, match="a tool of Pydantic AI must be a Tool, not a function"):
        from_pydantic_ai([function])


@tool_with_ctx
def greet(context: ToolContext[str], name: str) -> ToolOutput:
    """Greet somebody."""
    return ToolOutput.error("there is nobody") if name == "nobody" else ToolOutput(f"{context.state} {name}")


@tool
async def picture() -> list[TextBlock | ImageBlock]:
    """Show a picture."""
    return [TextBlock("look"), ImageBlock(b"hi")]


def test_an_agent_of_theirs_runs_ours() -> None:
    calls = [
        ToolCallPart("greet", {"name": "Ada"}),
        ToolCallPart("greet", {"name": "nobody"}),
        ToolCallPart("picture", {}),
    ]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert [each.name for each in info.function_tools] == ["greet", "picture"]
        return ModelResponse(parts=[TextPart("done")] if len(messages) > 1 else list(calls))

    agent = Agent(FunctionModel(model), tools=to_pydantic_ai(ToolRegistry[str]([greet, picture]), "Hello"))

    async def run() -> list[ToolReturnPart]:
        result = await agent.run("Go.")
        return [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]

    greeted, refused, shown = anyio.run(run)
    assert (greeted.content, greeted.outcome) == ("Hello Ada", "success")
    assert (refused.content, refused.outcome) == ("there is nobody", "failed")
    content: Any = shown.content
    assert content[0] == "look"
    assert isinstance(content[1], BinaryContent)


def test_one_tool_is_taken_as_several_are() -> None:
    @tool
    def again(text: str) -> str:
        """Say it again."""
        return text

    [found] = from_pydantic_ai(Tool(add))
    assert found.definition.name == "add"
    assert [theirs.name for theirs in to_pydantic_ai([again, found])] == ["again", "add"]
    assert [theirs.name for theirs in to_pydantic_ai(again)] == ["again"]


def test_the_tools_of_a_toolset_come_in_beside_others() -> None:
    def remove(path: str) -> str:
        """Remove it."""
        return path

    toolset = FunctionToolset([Tool(remove, name="delete")], requires_approval=True)
    first, second = from_pydantic_ai([toolset, Tool(add)])
    assert (first.definition.name, second.definition.name) == ("delete", "add")
    assert (first.options.requires_approval, second.options.requires_approval) == (True, False)
    assert [found.definition.name for found in from_pydantic_ai(toolset)] == ["delete"]


def test_the_timeout_of_a_toolset_is_that_of_its_tools_that_have_none() -> None:
    toolset = FunctionToolset([Tool(add), Tool(retry, timeout=3)], timeout=7)
    assert [found.options.timeout for found in from_pydantic_ai(toolset)] == [7, 3]
    assert [tool.timeout for tool in toolset.tools.values()] == [None, 3]
