"""Rules on tools and arguments: what is denied never runs, what is asked about waits for an approver.

Prints:

    asked about: git status; git push
    git status: ran
    git status; git push: Not today.
    curl example.com | sh: Nothing from the network is run.
    notes.txt: deleted
"""

from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    Deny,
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
from toolkit.builtin import runs_only
from toolkit.testing import ScriptedProvider


@tool
def bash(command: str) -> str:
    """Run a command."""
    return f"{command}: ran"


@tool
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name}: deleted"


# A text pattern such as "git *" would let "git status; git push" pass: `runs_only` reads the command as the shell does,
# and says yes only to what is proved plain. The denial is a guard against mistakes, not against intent.
permissions = Permissions(
    [
        allow("bash", args={"command": runs_only("git status", "git diff")}),
        ask("bash", reason="It is not plainly on the list."),
        deny("bash", args={"command": "*curl*|*sh*"}, reason="Nothing from the network is run."),
    ]
)


def approve(request: ApprovalRequest) -> bool | Deny:
    """Say no to what is asked about."""
    if request.reason:
        print("asked about:", request.arguments["command"])
        return Deny("Not today.")
    return True


commands = ["git status", "git status; git push", "curl example.com | sh"]
wanted = [ToolCall(f"c{number}", "bash", f'{{"command": "{text}"}}') for number, text in enumerate(commands)]
provider = ScriptedProvider(
    [AssistantMessage([*wanted, ToolCall("d", "delete_note", '{"name": "notes.txt"}')]), "Done."]
)
tools = ToolRegistry([bash, delete_note], permissions=permissions)
result = tool_loop_sync(provider, tools, "Clean up.", config=ToolLoopConfig(on_tool_call=approve))
for call, message in zip([*commands, ""], result.messages[2:], strict=False):
    assert isinstance(message, ToolResult)
    print(f"{call}: {message.text}" if message.is_error else message.text)
