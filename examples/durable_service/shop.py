"""The loop of the service: what the worker runs, and what the web process starts.

The model is a function here, so that the example needs no key; `provider_for("openai:gpt-5")` takes its place.
"""

from dataclasses import dataclass

import anyio

from toolkit import ToolCall, ToolContext, ToolRegistry, ToolResult, tool_with_ctx
from toolkit.chat import ChatRequest
from toolkit.durable import RunPlace, durable_loop
from toolkit.testing import FunctionProvider


@dataclass(frozen=True)
class Shop:
    """What the tools work on."""

    customer: str


@tool_with_ctx(tags={"read"})
async def find_order(shop: ToolContext[Shop], number: int) -> str:
    """Find an order of the customer."""
    await anyio.sleep(0.2)
    return f"Order {number} of {shop.state.customer}: a lamp, 20 EUR, it came broken."


@tool_with_ctx(requires_approval=True)
async def refund(shop: ToolContext[Shop], number: int) -> str:
    """Give the money of an order back."""
    # A bank takes `shop.idempotency_key`, which is the same in each process that takes the run up.
    return f"Refunded order {number} to {shop.state.customer}."


def answer(request: ChatRequest) -> str | ToolCall:
    """Look at the order, give the money back, and tell of it."""
    results = [message.text for message in request.messages if isinstance(message, ToolResult)]
    if not results:
        return ToolCall("c1", "find_order", '{"number": 17}')
    if len(results) == 1:
        return ToolCall("c2", "refund", '{"number": 17}')
    return f"I looked at it. {results[-1]}"


def make_context(run: RunPlace) -> Shop:
    """Return the context of a run, from what the web process gave with it."""
    return Shop(customer=run.metadata["customer"])


support = durable_loop(
    "support",
    provider=FunctionProvider(answer),
    registry=ToolRegistry([find_order, refund]),
    ctx=make_context,
)
