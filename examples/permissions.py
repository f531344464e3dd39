"""Rules on tools and arguments: what is denied never runs, what is asked about waits for an approver.

Prints:

    asked about: git push
    git status: ran
    git push: ran
    rm -rf /: Only git may run.
    notes.txt: deleted
"""

from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    allow,
    ask,
    deny,
    tool,
    tool_loop_sync,
)
from toolkit.testing import ScriptedProvider


@tool
def bash(command: str) -> str:
    """Run a command."""
    return f"{command}: ran"


@tool
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name}: deleted"


permissions = Permissions(
    [
        ask("bash", args={"command": "git push*"}, reason="It leaves this machine."),
        allow("bash", args={"command": "git *"}),
        deny("bash", args={"command": lambda command: not str(command).startswith("git ")}, reason="Only git may run."),
    ]
)


def approve(request: ApprovalRequest) -> bool:
    """Say yes to what is asked about."""
    if request.reason:
        print("asked about:", request.arguments["command"])
    return True


commands = ["git status", "git push", "rm -rf /"]
wanted = [ToolCall(f"c{number}", "bash", f'{{"command": "{text}"}}') for number, text in enumerate(commands)]
provider = ScriptedProvider(
    [AssistantMessage([*wanted, ToolCall("d", "delete_note", '{"name": "notes.txt"}')]), "Done."]
)
tools = ToolRegistry([bash, delete_note], permissions=permissions)
result = tool_loop_sync(provider, tools, "Clean up.", config=ToolLoopConfig(on_tool_call=approve))
for call, message in zip([*commands, ""], result.messages[2:], strict=False):
    assert isinstance(message, ToolResult)
    print(f"{call}: {message.text}" if message.is_error else message.text)
