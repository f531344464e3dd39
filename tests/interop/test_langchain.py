"""LangChain's tools in a loop of ours, and ours as LangChain's."""

from typing import Any

import anyio
import pytest

from toolkit import (
    ImageBlock,
    TextBlock,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolRegistry,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.testing import ScriptedProvider

pytest.importorskip("langchain_core", reason="langchain-core is not installed: uv pip install langchain-core")

import anyio.lowlevel
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool as langchain_tool

from toolkit.interop import from_langchain, to_langchain


@langchain_tool
def add(first: int, second: int = 1) -> int:
    """Add two numbers.

    Args:
        first: One.
        second: Another.
    """
    return first + second


@langchain_tool
async def shout(text: str) -> str:
    """Say it loudly."""
    await anyio.lowlevel.checkpoint()
    return text.upper()


class Broken(BaseTool):
    name: str = "broken tool"
    description: str = "Fails."

    def _run(self, why: str) -> str:
        raise ToolException(f"because {why}")


@langchain_tool(response_format="content_and_artifact")
def draw(what: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Draw something."""
    image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    return [{"type": "text", "text": what}, image], {"kept": "here"}


def registry() -> ToolRegistry:
    return ToolRegistry(from_langchain([add, shout, Broken(handle_tool_error=True), draw]))


@pytest.mark.anyio
async def test_a_sync_tool_runs_in_a_loop_of_ours_on_both_backends() -> None:
    provider = ScriptedProvider([ToolCall("1", "add", '{"first": "2"}'), lambda request: request.messages[-1].text])
    assert (await tool_loop(provider, registry(), "Add.")).text == "3"


@pytest.mark.anyio
async def test_wrong_arguments_are_refused_before_the_tool_runs() -> None:
    result = await registry().execute(ToolCall("1", "add", '{"first": "two"}'))
    assert result.is_error
    assert "first" in result.text


def test_an_async_tool_runs_on_asyncio() -> None:
    result = anyio.run(registry().execute, ToolCall("1", "shout", '{"text": "hey"}'))
    assert (result.text, result.is_error) == ("HEY", False)


@pytest.mark.anyio
async def test_names_errors_and_artifacts_come_over() -> None:
    tools = registry()
    assert tools.names == ("add", "shout", "broken_tool", "draw")
    failed = await tools.execute(ToolCall("1", "broken_tool", '{"why": "so"}'))
    assert (failed.text, failed.is_error) == ("because so", True)
    drawn = await tools.execute(ToolCall("1", "draw", '{"what": "a cat"}'))
    assert drawn.content == (TextBlock("a cat"), ImageBlock(b"hi"))
    assert drawn.details == {"kept": "here"}


def test_descriptions_of_parameters_come_over() -> None:
    (definition,) = ToolRegistry(from_langchain([add])).definitions()
    assert definition.description.startswith("Add two numbers.")
    assert definition.parameters["required"] == ["first"]


@tool_with_ctx
def greet(context: ToolContext[str], name: str) -> ToolOutput:
    """Greet somebody."""
    if name == "nobody":
        return ToolOutput.error("there is nobody")
    return ToolOutput(f"{context.state} {name}", details={"id": bool(context.call_id)})


@tool
async def picture() -> list[TextBlock | ImageBlock]:
    """Show a picture."""
    return [TextBlock("look"), ImageBlock(b"hi")]


def exported() -> dict[str, StructuredTool]:
    return {each.name: each for each in to_langchain(ToolRegistry[str]([greet, picture]), "Hello")}


def call(tool_name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": "c1", "name": tool_name, "args": arguments}


def test_ours_are_called_as_langchain_calls_tools() -> None:
    tools = exported()
    assert tools["greet"].args == {"name": {"type": "string"}}
    message = tools["greet"].invoke(call("greet", name="Ada"))
    assert isinstance(message, ToolMessage)
    assert (message.content, message.status, message.artifact) == ("Hello Ada", "success", {"id": True})


def test_an_error_of_ours_is_an_error_of_theirs() -> None:
    message = exported()["greet"].invoke(call("greet", name="nobody"))
    assert (message.content, message.status) == ("there is nobody", "error")
    message = exported()["greet"].invoke(call("greet"))
    assert message.status == "error"
    assert "name" in message.content


def test_blocks_go_over_and_come_back() -> None:
    async def show() -> Any:
        return await exported()["picture"].ainvoke(call("picture"))

    message = anyio.run(show)
    assert [part["type"] for part in message.content] == ["text", "image"]
    back = ToolRegistry(from_langchain(exported().values()))
    result = anyio.run(back.execute, ToolCall("1", "picture", "{}"))
    assert result.content == (TextBlock("look"), ImageBlock(b"hi"))
