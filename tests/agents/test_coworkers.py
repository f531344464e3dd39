"""What a model does to work with others."""

import json
from typing import Any

import pytest

from toolkit import ConfigurationError, ToolCall, ToolRegistry, ToolResult, UserMessage
from toolkit.agents import SubAgent, coworker_tools
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


def team(*replies: ScriptedReply) -> tuple[ScriptedProvider, ToolRegistry]:
    provider = ScriptedProvider(replies)
    none = ScriptedProvider([])
    coworkers = [
        SubAgent(name="Senior Writer", provider=provider, registry=ToolRegistry()),
        SubAgent(name="editor", provider=none, registry=ToolRegistry()),
    ]
    return provider, ToolRegistry(coworker_tools(coworkers))


async def run(tools: ToolRegistry, name: str, **arguments: Any) -> ToolResult:
    return await tools.execute(ToolCall("1", name, json.dumps(arguments)))


@pytest.mark.parametrize(
    "written",
    [
        "Senior Writer",
        "senior writer",
        ' "Senior  Writer" ',
        "[Senior Writer, editor]",
        "SENIOR WRITER",
        "['Senior Writer', 'editor']",
    ],
)
async def test_a_coworker_is_found_however_a_model_writes_the_name(written: str) -> None:
    provider, tools = team("Written.")
    result = await run(tools, "delegate_work", task="Write.", context="About cats.", coworker=written)
    assert (result.text, result.is_error) == ("Written.", False)
    assert provider.requests[0].messages[-1] == UserMessage("Write.\n\nWhat you have to know for it:\nAbout cats.")


async def test_the_other_spelling_of_the_parameter_is_taken() -> None:
    _, tools = team("Yes.")
    result = await run(tools, "ask_question", question="Cats?", context="", co_worker="senior writer")
    assert result.text == "Yes."


async def test_an_unknown_coworker_is_answered_with_those_who_are_there() -> None:
    _, tools = team()
    result = await run(tools, "ask_question", question="Cats?", context="", coworker="Chef")
    assert result.is_error
    assert result.text == "There is no coworker 'Chef'. It must be one of these:\n- senior writer\n- editor"


async def test_a_coworker_who_fails_is_named() -> None:
    _, tools = team(RuntimeError("out of ink"))
    result = await run(tools, "delegate_work", task="Write.", context="", coworker="Senior Writer")
    assert result.is_error
    assert result.text.startswith("The coworker 'Senior Writer' could not do it. ")
    assert "out of ink" in result.text


async def test_both_descriptions_name_everybody() -> None:
    _, tools = team()
    for definition in tools.definitions():
        assert "Senior Writer, editor" in definition.description


async def test_a_team_has_somebody_and_nobody_twice() -> None:
    writer: SubAgent[object] = SubAgent(name="Writer", provider=ScriptedProvider([]), registry=ToolRegistry())
    twin: SubAgent[object] = SubAgent(name=" writer", provider=ScriptedProvider([]), registry=ToolRegistry())
    with pytest.raises(ConfigurationError, match="at least one"):
        coworker_tools([])
    nobody: Any = "Writer"
    with pytest.raises(ConfigurationError, match="a coworker must be a SubAgent, not 'Writer'"):
        coworker_tools([nobody])
    with pytest.raises(ConfigurationError, match="one name"):
        coworker_tools([writer, twin])
