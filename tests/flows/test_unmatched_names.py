"""A developer is warned at the start of a run of rules, tags and names that match no tool."""

import pytest

from toolkit import Permissions, ToolCall, ToolLoopConfig, ToolLoopHandle, ToolRegistry, ask, deny, tool, tool_loop
from toolkit.agents import sub_agent_tool
from toolkit.policies import LoopDetectionConfig
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool(tags={"reading"})
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def poll() -> str:
    """Poll."""
    return "nothing new"


def read_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings without the id of their run."""
    return [record.getMessage().split(": ", 1)[1] for record in caplog.records if record.levelname == "WARNING"]


async def test_a_rule_that_matches_no_tool_is_warned_of_once_a_run(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry([look, poll], permissions=Permissions([deny("lok"), deny("poll")]))
    handle = ToolLoopHandle(ScriptedProvider([ToolCall("1", "look", "{}"), "Seen."]), registry, "Look.")
    while not handle.is_finished:
        await handle.next_turn()
    assert read_warnings(caplog) == ["lok: this rule to deny matches no tool: did you mean 'look'?"]


async def test_a_tag_that_no_tool_has_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    await tool_loop(ScriptedProvider(["Done."]), ToolRegistry([look]).tagged("raeding"), "Look.")
    assert read_warnings(caplog) == ["raeding: no tool has this tag, by which a scope was made"]


async def test_a_name_that_loop_detection_exempts_in_vain_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    config = ToolLoopConfig(loop_detection=LoopDetectionConfig(exempt=["pol", "look"]))
    await tool_loop(ScriptedProvider(["Done."]), ToolRegistry([look, poll]), "Poll.", config=config)
    assert read_warnings(caplog) == ["loop_detection exempts 'pol', which is no tool; did you mean 'poll'?"]


async def test_nobody_is_warned_of_what_matches_a_tool_of_a_sub_agent(caplog: pytest.LogCaptureFixture) -> None:
    reader = sub_agent_tool("reader", "Read.", ScriptedProvider(["Done."]), ToolRegistry([look]))
    registry = ToolRegistry([reader, poll], permissions=Permissions([deny("look"), deny("p*"), ask("read_result")]))
    config = ToolLoopConfig(
        on_tool_call=lambda request: True, loop_detection=LoopDetectionConfig(exempt=["poll", "final_answer"])
    )
    await tool_loop(ScriptedProvider(["Done."]), registry.tagged("sub_agent"), "Poll.", config=config)
    assert read_warnings(caplog) == []
