"""A weak model is brought to the end of its task: steps are required, mistakes are retried as calls, words don't count.

Prints:

    held to: lookup
    free among: lookup, refund, final_answer
    held to: refund
    free among: lookup, refund, final_answer
    held to: lookup, refund, final_answer
    Not run: call lookup first, and refund once you have read what that gives.
    Order 7 is refunded.
    ran: lookup, refund
"""

from toolkit import AnswerFormat, ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool, tool_loop_sync
from toolkit.policies import SteeredRetries, ToolOrder
from toolkit.testing import ScriptedProvider

ran: list[str] = []


@tool
def lookup(item: str) -> str:
    """Find the order of an item."""
    ran.append("lookup")
    return f"{item}: order 7"


@tool
def refund(order: int) -> str:
    """Refund an order."""
    ran.append("refund")
    return f"order {order} is refunded"


# What a small model might write: it comes too early, forgets the arguments, and chats in place of answering.
model = ScriptedProvider(
    [
        ToolCall("1", "refund", '{"order": 1}'),
        ToolCall("2", "lookup", '{"item": "tea"}'),
        ToolCall("3", "refund", "{}"),
        ToolCall("4", "refund", '{"order": 7}'),
        "I have done it, I think.",
        ToolCall("5", "final_answer", '{"answer": "Order 7 is refunded."}'),
    ]
)
config = ToolLoopConfig(
    answer=AnswerFormat(),
    middleware=(ToolOrder(required_steps=("refund",), after={"refund": "lookup"}), SteeredRetries()),
)
result = tool_loop_sync(model, ToolRegistry([lookup, refund]), "Refund the tea.", config=config)
for request in model.requests[1:]:
    offered = [definition.name for definition in request.tools or ()]
    print("held to:" if request.tool_choice == "required" else "free among:", ", ".join(offered))
print(next(message.text for message in result.messages if isinstance(message, ToolResult)))
print(result.text)
print("ran:", ", ".join(ran))
