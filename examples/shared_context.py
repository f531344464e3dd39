"""A context that the tools share and that no model sees: the type checker knows it, the schema doesn't.

Prints:

    ['limit']
    The newest of ada: toaster, kettle
"""

from dataclasses import dataclass, field

from toolkit import ToolCall, ToolContext, ToolRegistry, tool_loop_sync, tool_with_ctx
from toolkit.testing import ScriptedProvider


@dataclass
class Shop:
    """What one request of the application works on."""

    user: str
    orders: list[str] = field(default_factory=list[str])


@tool_with_ctx
def newest_orders(shop: Shop, limit: int = 10) -> list[str]:
    """List the newest orders of the user."""
    return shop.orders[-limit:]


@tool_with_ctx
async def place_order(context: ToolContext[Shop], item: str) -> str:
    """Order something."""
    context.report_progress(f"ordering {item}")
    context.state.orders.append(item)
    return f"Ordered {item} (call {context.call_id})."


registry = ToolRegistry[Shop]([newest_orders, place_order])
shop = Shop(user="ada", orders=["lamp", "toaster"])
provider = ScriptedProvider(
    [
        ToolCall("1", "place_order", '{"item": "kettle"}'),
        ToolCall("2", "newest_orders", '{"limit": 2}'),
        lambda request: f"The newest of {shop.user}: toaster, kettle" if request.messages[-1].text else "",
    ]
)

print(list(newest_orders.definition.parameters["properties"]))
print(tool_loop_sync(provider, registry, "Order a kettle, then list my two newest orders.", ctx=shop).text)
