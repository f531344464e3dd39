"""A budget for a loop and all the loops inside its tools together.

Prints:

    the agent stopped: UsageLimit(limit='requests', maximum=4, used=4, budget='')
    the run stopped: UsageLimit(limit='requests', maximum=4, used=4, budget='')
    requests made: 4
"""

from toolkit import LoopLimits, ToolCall, ToolLoopConfig, ToolRegistry, UsageLimits, tool, tool_loop, tool_loop_sync
from toolkit.testing import ScriptedProvider

worker = ScriptedProvider([ToolCall("w", "search", '{"query": "more"}')], repeats=True)
master = ScriptedProvider([ToolCall("m", "research", '{"topic": "llamas"}')], repeats=True)


@tool
def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


@tool
async def research(topic: str) -> str:
    """Have an agent look into something."""
    result = await tool_loop(worker, ToolRegistry([search]), topic)
    print("the agent stopped:", result.reason)
    return result.text or "The agent found nothing in time."


config = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=4)))
result = tool_loop_sync(master, ToolRegistry([research]), "Find out about llamas.", config=config)
print("the run stopped:", result.reason)
print("requests made:", len(master.requests) + len(worker.requests))
