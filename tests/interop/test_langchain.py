"""LangChain's tools in a loop of ours, and ours as LangChain's."""

from dataclasses import replace
from typing import Annotated, Any

import anyio
import pytest

from toolkit import ConfigurationError, ToolCall, ToolContext, ToolOutput, ToolRegistry, tool, tool_loop, tool_with_ctx
from toolkit.chat import ImageBlock, TextBlock
from toolkit.testing import ScriptedProvider

pytest.importorskip("langchain_core", reason="langchain-core is not installed: uv pip install langchain-core")

import anyio.lowlevel
from langchain_core.messages import ToolMessage
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    Tool,
    ToolException,
    tool as langchain_tool,
)

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


@pytest.mark.anyio
async def test_no_model_gives_what_langchain_injects() -> None:
    @langchain_tool(return_direct=True)
    def mine(what: str, user: Annotated[str, InjectedToolArg] = "me") -> str:
        """Take it."""
        return f"{what} of {user}"

    tools = ToolRegistry(from_langchain([mine]))
    result = await tools.execute(ToolCall("1", "mine", '{"what": "hat", "user": "root"}'))
    assert result.is_error
    assert "user: unknown" in result.text
    provider = ScriptedProvider([ToolCall("1", "mine", '{"what": "hat"}')])
    assert (await tool_loop(provider, tools, "Take the hat.")).text == "hat of me"


@pytest.mark.anyio
async def test_the_oldest_kind_of_tool_takes_one_text() -> None:
    def search(text: str) -> str:
        return f"found {text}"

    found = Tool("search", search, "Search.")
    tools = ToolRegistry(from_langchain(found))
    assert tools.definitions()[0].parameters == {
        "type": "object",
        "properties": {"tool_input": {"type": "string"}},
        "required": ["tool_input"],
        "additionalProperties": False,
    }
    result = await tools.execute(ToolCall("1", "search", '{"tool_input": "hats"}'))
    assert result.text == "found hats"


@pytest.mark.anyio
async def test_a_tool_that_only_langchains_agents_can_call_is_refused_and_the_id_of_a_call_is_given() -> None:
    @langchain_tool
    def mine(what: str, user: Annotated[str, InjectedToolArg]) -> str:
        """Take it."""
        return f"{what} of {user}"

    @langchain_tool
    def numbered(what: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Take it."""
        return f"{what} by {call_id}"

    with pytest.raises(ConfigurationError, match="the tool mine of LangChain needs user, which only its own agents"):
        from_langchain([mine])
    result = await ToolRegistry(from_langchain(numbered)).execute(ToolCall("7", "numbered", '{"what": "hat"}'))
    assert result.text == "hat by 7"


def test_what_is_no_tool_is_named() -> None:
    nothing: Any = "add"
    with pytest.raises(ConfigurationError, match="a tool of LangChain must be a BaseTool, not 'add'"):
        from_langchain([nothing])
    with pytest.raises(ConfigurationError, match="a tool of LangChain or a list of them is needed here, not 'add'"):
        from_langchain(nothing)
    with pytest.raises(ConfigurationError, match="a ToolRegistry, a tool or a list of tools is needed here, not 'add'"):
        to_langchain(nothing)
    with pytest.raises(ConfigurationError, match="str is neither a tool nor a function"):
        to_langchain([nothing])


def test_one_tool_or_several_are_taken() -> None:
    def again(text: str) -> str:
        """Say it again."""
        return text

    assert [found.definition.name for found in from_langchain(add)] == ["add"]
    assert [found.definition.name for found in from_langchain((add, shout))] == ["add", "shout"]
    assert [found.name for found in to_langchain(tool(again))] == ["again"]
    assert [found.name for found in to_langchain([again, *from_langchain(add)])] == ["again", "add"]
    assert to_langchain(again)[0].invoke({"text": "hm"}) == "hm"


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


def exported() -> dict[str, BaseTool]:
    return {each.name: each for each in to_langchain(ToolRegistry[str]([greet, picture]), "Hello")}


def call(tool_name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": "c1", "name": tool_name, "args": arguments}


def test_ours_are_called_as_langchain_calls_tools() -> None:
    tools = exported()
    assert tools["greet"].args == {"name": {"type": "string"}}
    message = tools["greet"].invoke(call("greet", name="Ada"))
    assert isinstance(message, ToolMessage)
    assert (message.content, message.status, message.artifact) == ("Hello Ada", "success", {"id": True})


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "invoke in a loop"])
def test_ours_may_have_any_names_of_parameters(way: str) -> None:
    @tool
    async def joined(config: str, run_manager: str, callbacks: str, self_: str) -> str:
        """Join them."""
        return config + run_manager + callbacks + self_

    (theirs,) = to_langchain(ToolRegistry([joined]), None)
    arguments = call("joined", config="a", run_manager="b", callbacks="c", self_="d")

    async def invoke_in_a_loop() -> Any:
        return theirs.invoke(arguments)

    match way:
        case "invoke":
            message = theirs.invoke(arguments)
        case "ainvoke":
            message = anyio.run(theirs.ainvoke, arguments)
        case _:
            message = anyio.run(invoke_in_a_loop)
    assert (message.content, message.status) == ("abcd", "success")


def test_an_answer_of_ours_is_returned_directly_there_and_a_definition_comes_back_as_it_was() -> None:
    @tool(result_as_answer=True)
    def answer(text: str) -> str:
        """Answer."""
        return text

    ours = ToolRegistry([answer])
    theirs = to_langchain(ours, None)
    assert theirs[0].return_direct
    (back,), (definition,) = ToolRegistry(from_langchain(theirs)).definitions(), ours.definitions()
    assert back == replace(definition, output_schema=None)  # which LangChain has no place for


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
