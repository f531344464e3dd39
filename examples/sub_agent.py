"""A master hands work to workers: each runs a loop of its own inside a tool, over a smaller registry.

The worker's registry has no `delegate`, so it can't hand on; and `max_depth` holds even if it had.

Prints:

    the worker may use: search
    worker: 3 results for 'llama'
    master: The worker found 3 results for 'llama'.
    too deep: loop depth 1 is not below the limit of 1, so this can't be handed on any further
"""

import logging

from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool, tool_loop, tool_loop_sync
from toolkit.errors import MaxDepthExceededError
from toolkit.testing import ScriptedProvider


@tool
def search(query: str) -> str:
    """Search the documents."""
    return f"3 results for '{query}'"


@tool
async def delegate(task: str) -> str:
    """Give a task to a worker and return its report."""
    provider = ScriptedProvider([ToolCall("w1", "search", '{"query": "llama"}'), "I found 3 results for 'llama'."])
    result = await tool_loop(provider, worker_tools, task, config=ToolLoopConfig(max_iterations=5))
    print("worker:", next(message.text for message in result.messages if isinstance(message, ToolResult)))
    return result.text


tools = ToolRegistry([search, delegate])
worker_tools = tools.without(["delegate"])
print("the worker may use:", ", ".join(worker_tools.names))


def master() -> ScriptedProvider:
    """Return a model that delegates once and reports."""
    return ScriptedProvider(
        [ToolCall("m1", "delegate", '{"task": "llamas"}'), "The worker found 3 results for 'llama'."]
    )


print("master:", tool_loop_sync(master(), tools, "Find out about llamas.").text)

# With a limit of 1 only the outer loop may run: the inner one fails, which is logged, and the master reads why.
logging.getLogger("toolkit").setLevel(logging.CRITICAL)
result = tool_loop_sync(master(), tools, "Find out about llamas.", config=ToolLoopConfig(max_depth=1))
error = next(message for message in result.messages if isinstance(message, ToolResult))
assert error.is_error
print("too deep:", error.text.removeprefix(f"{MaxDepthExceededError.__name__}: "))
