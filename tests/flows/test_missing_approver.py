"""A developer is warned at the start of a run whose tools need an approval that nobody is there to give."""

from dataclasses import dataclass, field

import pytest

from toolkit import (
    ApprovalRequest,
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    allow,
    ask,
    deny,
    tool,
    tool_loop,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ToolResult
from toolkit.policies import Approval, CallInfo, Middleware, Rule
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(requires_approval=lambda arguments: arguments["days"] > 3)
async def book(days: int) -> str:
    """Book some days."""
    return f"booked {days}"


@tool
async def look() -> str:
    """Look."""
    return "seen"


def agree(request: ApprovalRequest) -> bool:
    return True


def read_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "nobody is asked" in record.getMessage()]


async def test_a_tool_that_needs_approval_with_nobody_to_ask_is_warned_of_once_a_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = ScriptedProvider([ToolCall("1", "pay", '{"amount": 1}'), ToolCall("2", "pay", '{"amount": 2}'), "No."])
    handle = ToolLoopHandle(provider, ToolRegistry([look, pay, book]), "Pay.")
    while not handle.is_finished:
        await handle.next_turn()
    [warning] = read_warnings(caplog)
    assert "calls of 'pay' need approval" in warning
    assert "ToolLoopConfig(on_tool_call=...)" in warning


async def test_nobody_is_warned_where_somebody_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    config = ToolLoopConfig(on_tool_call=agree)
    await tool_loop(ScriptedProvider(["Done."]), ToolRegistry([pay]), "Pay.", config=config)
    await tool_loop(ScriptedProvider(["Done."]), ToolRegistry([look, book]), "Look.")
    assert read_warnings(caplog) == []


class Guard(Middleware[object]):
    name = "guard"

    async def guard_call(self, call: CallInfo[object]) -> Approval | None:
        return None


async def test_nobody_is_warned_where_a_guard_decides(caplog: pytest.LogCaptureFixture) -> None:
    config = ToolLoopConfig(middleware=[Guard()])
    await tool_loop(ScriptedProvider(["Done."]), ToolRegistry([pay]), "Pay.", config=config)
    assert read_warnings(caplog) == []


@pytest.mark.parametrize("is_asked", [True, False])
async def test_the_approver_of_a_caller_is_asked_for_its_sub_agents(
    is_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    child = ScriptedProvider([ToolCall("1", "pay", '{"amount": 1}'), "Done."])
    helper = sub_agent_tool("payer", "Pays.", child, ToolRegistry([pay]))
    parent = ScriptedProvider([ToolCall("a", "payer", '{"task": "Pay 1."}'), "Done."])
    config = ToolLoopConfig(on_tool_call=agree if is_asked else None)
    result = await tool_loop(parent, ToolRegistry([helper]), "Pay.", config=config)
    assert isinstance(result.messages[2], ToolResult)
    assert len(read_warnings(caplog)) == (0 if is_asked else 1)


@dataclass
class Case:
    name: str
    rules: list[Rule]
    default: str = "allow"
    warned: list[str] = field(default_factory=list[str])


CASES = [
    Case("a question", [ask("look")], warned=["look"]),
    Case("a question by pattern", [ask("*")], warned=["look", "book"]),
    Case("a question about some arguments", [ask("book", args={"days": 7})], warned=["book"]),
    Case("a default", [allow("look")], default="ask", warned=["book"]),
    Case("a default, and what is allowed of a tool", [allow("book", args={"days": 1})], "ask", ["look", "book"]),
    Case("what is allowed before it is asked about", [allow("*"), ask("book")]),
    Case("what is denied anyway", [ask("book"), deny("book")]),
    Case("a tool that is not there", [ask("fly")]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_rules_that_ask_are_warned_of_too(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    permissions = Permissions(case.rules, default="ask" if case.default == "ask" else "allow")
    registry = ToolRegistry([look, book], permissions=permissions)
    await tool_loop(ScriptedProvider(["Done."]), registry, "Go.")
    names = ", ".join(f"'{name}'" for name in case.warned)
    told = [f"calls of {names} need approval"] if names else []
    assert [warning.partition(": ")[2].partition(" and ")[0] for warning in read_warnings(caplog)] == told
