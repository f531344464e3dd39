"""An approver is asked about what rules leave to it, and what it has changed is said to the model."""

from typing import Any

import pytest

from toolkit import (
    ApprovalRequest,
    Modify,
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolOutput,
    ToolRegistry,
    allow,
    ask,
    deny,
    tool,
    tool_loop,
)
from toolkit.agents import sub_agent_tool
from toolkit.policies import Rule
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool(run_in_thread=False)
def read(n: int = 1) -> str:
    """Read."""
    return f"read {n}"


@tool(run_in_thread=False, requires_approval=True)
def pay(n: int = 1) -> str:
    """Pay."""
    return f"paid {n}"


RULES: list[tuple[str, list[Rule] | None, str, bool]] = [
    ("read", None, "allow", True),
    ("read", [allow("read")], "allow", False),
    ("read", [allow("read")], "ask", False),
    ("read", [allow("read", args={"n": 2})], "allow", True),
    ("read", [ask("read")], "allow", True),
    ("read", [deny("pay")], "allow", True),
    ("read", [], "ask", True),
    ("pay", [allow("*")], "allow", True),
]


@pytest.mark.parametrize("is_agent", [False, True])
@pytest.mark.parametrize(("name", "rules", "default", "is_asked"), RULES)
async def test_an_approver_is_asked_about_what_rules_leave_to_asking(
    is_agent: bool, name: str, rules: list[Rule] | None, default: Any, is_asked: bool
) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool_name)
        return True

    permissions = None if rules is None else Permissions(rules, default=default)
    registry = ToolRegistry([read, pay], permissions=permissions)
    model = ScriptedProvider([ToolCall("1", name, "{}"), "ok"])
    if is_agent:
        more = [*(rules or []), allow("clerk")]
        agent = sub_agent_tool("clerk", "Works.", model, ToolRegistry([read, pay]))
        permissions = None if rules is None else Permissions(more, default=default)
        registry = ToolRegistry([agent, read, pay], permissions=permissions)
        model = ScriptedProvider([ToolCall("c", "clerk", '{"task": "Go."}'), "ok"])
    await tool_loop(model, registry, "Go.", config=ToolLoopConfig(on_tool_call=approve))
    assert (name in asked) == is_asked


NOTE = "[The approver changed the arguments of this call: it ran with {}.]"


@pytest.mark.parametrize(
    ("given", "text"),
    [({"n": 3}, "read 3\n\n" + NOTE.format('{"n":3}')), ({"n": 1}, "read 1")],
    ids=["changed", "the same"],
)
async def test_what_an_approver_changed_is_said_to_the_model(given: dict[str, Any], text: str) -> None:
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=lambda request: Modify(given))
    provider = ScriptedProvider([ToolCall("1", "read", "{}"), "ok"])
    result = await tool_loop(provider, ToolRegistry([read]), "Go.", config=config)
    assert result.messages[2].text == text


async def test_an_answer_and_an_error_of_a_changed_call() -> None:
    @tool(run_in_thread=False, result_as_answer=True)
    def answer(n: int) -> str:
        """Answer."""
        return str(n)

    @tool(run_in_thread=False)
    def fail(n: int) -> ToolOutput:
        """Fail."""
        return ToolOutput.error(f"no {n}")

    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=lambda request: Modify({"n": 3}))
    script = [ToolCall("1", "fail", '{"n": 1}'), ToolCall("2", "answer", '{"n": 1}')]
    result = await tool_loop(ScriptedProvider(script), ToolRegistry([answer, fail]), "Go.", config=config)
    assert result.text == "3"
    assert result.messages[2].text.startswith("no 3\n\n[The approver changed")
