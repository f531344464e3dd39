"""Somebody decides on each call before any call of the turn runs: approve, deny or change it.

Prints:

    delete_file({'path': 'notes.txt'}) asks to run
    delete_file({'path': '/etc/passwd'}) asks to run
    send_mail({'to': 'everybody', 'text': 'hi'}) asks to run
    1: deleted notes.txt
    2: /etc is not yours to delete.
    3: sent to test@example.com: hi

    [The approver changed the arguments of this call: it ran with {"text":"hi","to":"test@example.com"}.]
"""

from toolkit import (
    ApprovalRequest,
    Approve,
    AssistantMessage,
    Deny,
    Modify,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    tool,
    tool_loop_sync,
)
from toolkit.policies import Approval
from toolkit.testing import ScriptedProvider


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}: {text}"


def decide(request: ApprovalRequest) -> Approval:
    """Let harmless things pass, deny the rest, and send no mail to real people."""
    print(f"{request.tool_name}({request.arguments}) asks to run")
    if request.tool_name == "send_mail":
        return Modify({**request.arguments, "to": "test@example.com"})
    if str(request.arguments["path"]).startswith("/etc"):
        return Deny("/etc is not yours to delete.")
    return Approve()


provider = ScriptedProvider(
    [
        AssistantMessage(
            [
                ToolCall("1", "delete_file", '{"path": "notes.txt"}'),
                ToolCall("2", "delete_file", '{"path": "/etc/passwd"}'),
                ToolCall("3", "send_mail", '{"to": "everybody", "text": "hi"}'),
            ]
        ),
        "Done.",
    ]
)
result = tool_loop_sync(
    provider, ToolRegistry([delete_file, send_mail]), "Clean up.", config=ToolLoopConfig(on_tool_call=decide)
)
for message in result.messages:
    if isinstance(message, ToolResult):
        print(f"{message.call_id}: {message.text}")
