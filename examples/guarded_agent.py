"""A sub-agent may never do what its caller may not: the caller's rules and approver hold for its calls, too.

Prints:

    asked about research for the boss
    asked about read_page for research
    research reads: Tool 'delete_page' may not be called here.
    result: The page says hello; I could not delete it.
"""

from toolkit import (
    ApprovalRequest,
    ChatRequest,
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    deny,
    tool,
    tool_loop_sync,
)
from toolkit.agents import sub_agent_tool
from toolkit.testing import ScriptedProvider


@tool
def read_page() -> str:
    """Read the page."""
    return "hello"


@tool
def delete_page() -> str:
    """Delete the page."""
    return "deleted"


def answer(request: ChatRequest) -> str:
    """Play the sub-agent's model, which reads what came of its last call."""
    print("research reads:", request.messages[-1].text)
    return "The page says hello; I could not delete it."


script = ScriptedProvider([ToolCall("1", "read_page", "{}"), ToolCall("2", "delete_page", "{}"), answer])
research = sub_agent_tool("research", "Looks things up.", script, ToolRegistry([read_page, delete_page]))


def approve(request: ApprovalRequest) -> bool:
    """Say yes, and say whose call it is."""
    print("asked about", request.tool_name, "for", request.agent or "the boss")
    return True


boss = ScriptedProvider([ToolCall("1", "research", '{"task": "Read the page, then delete it."}'), "Thanks."])
tools = ToolRegistry([research], permissions=Permissions([deny("delete_*")]))
result = tool_loop_sync(boss, tools, "What does the page say?", config=ToolLoopConfig(on_tool_call=approve))
print("result:", result.messages[2].text)
