"""A decision that takes hours: the loop ends, is saved as JSON, and another process takes it up with the answer.

Prints:

    awaiting approval: transfer {'amount': 900, 'to': 'landlord'}
    saved: a snapshot of version 3
    in another process: Transferred 900 to the landlord.
"""

import json
import sys
from pathlib import Path

import anyio

from toolkit import (
    ApprovalRequest,
    Approve,
    Defer,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    Yielded,
    tool,
    tool_loop,
)
from toolkit.endings import AwaitingApproval
from toolkit.testing import ScriptedProvider


@tool
def transfer(amount: int, to: str) -> str:
    """Transfer money."""
    return f"transferred {amount} to {to}"


def decide(request: ApprovalRequest) -> Approve | Defer:
    """Let small amounts pass; somebody has to look at the others."""
    return Approve() if int(str(request.arguments["amount"])) < 100 else Defer()


tools = ToolRegistry([transfer])
config: ToolLoopConfig = ToolLoopConfig(on_tool_call=decide)


async def ask() -> None:
    """Run until somebody has to decide, save the loop, and let another process go on."""
    provider = ScriptedProvider([ToolCall("1", "transfer", '{"amount": 900, "to": "landlord"}')])
    result = await tool_loop(provider, tools, "Pay the rent.", config=config)
    assert isinstance(result.reason, AwaitingApproval)
    assert result.snapshot is not None
    for pending in result.snapshot["pending_approvals"]:
        print("awaiting approval:", pending["tool_name"], pending["arguments"])
    print("saved: a snapshot of version", result.snapshot["version"], flush=True)
    await anyio.run_process(
        [sys.executable, str(Path(__file__)), "go on"], input=json.dumps(result.snapshot).encode(), stdout=None
    )


async def go_on(text: str) -> None:
    """Take the loop up with a yes; nothing that has run runs again."""
    provider = ScriptedProvider(["Transferred 900 to the landlord."])
    handle = ToolLoopHandle.restore(json.loads(text), provider, tools, ctx=None, config=config)
    for pending in handle.pending_approvals:
        # The decision names what it was made on: it can't be used for another amount.
        await handle.decide(pending.call_id, approval=True, binding=pending.binding)
    while isinstance(await handle.next_turn(), Yielded):
        pass
    print("in another process:", handle.into_result().text)


if sys.argv[1:] == ["go on"]:
    anyio.run(go_on, sys.stdin.read())
else:
    anyio.run(ask)
