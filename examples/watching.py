"""Who watches a run changes nothing, and who decides on its calls does so by the answer alone.

Prints:

    asked: transfer 250 to ada
    log: transfer(to=ada, amount=***)
    paid 250 to ada
"""

from toolkit import ApprovalRequest, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.events import ApprovalRequested, LoopEvent, ToolExecutionStart
from toolkit.testing import ScriptedProvider


@tool
def transfer(to: str, amount: int) -> str:
    """Transfer money."""
    return f"paid {amount} to {to}"


def log(event: LoopEvent) -> None:
    """Show what happens, without the amounts: the event is a copy, and the transfer stays as it was asked for."""
    if isinstance(event, ApprovalRequested):
        print("asked:", event.tool_name, event.arguments["amount"], "to", event.arguments["to"])
    if isinstance(event, ToolExecutionStart):
        event.arguments["amount"] = "***"
        shown = ", ".join(f"{name}={value}" for name, value in event.arguments.items())
        print(f"log: {event.tool_name}({shown})")


def approve(request: ApprovalRequest) -> bool:
    """Ask a person, for as long as that takes: this runs in a thread of its own, and nothing else waits for it."""
    return bool(request.arguments["amount"] < 1000)


provider = ScriptedProvider([ToolCall("1", "transfer", '{"to": "ada", "amount": 250}'), "Done."])
config = ToolLoopConfig(on_tool_call=approve, on_event=log)
result = tool_loop_sync(provider, ToolRegistry([transfer]), "Pay ada 250.", config=config)
print(result.messages[2].text)
