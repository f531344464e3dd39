"""A handle stops a run from any thread, and has its transcript whatever ended it.

The same holds after Ctrl-C in ``handle.run_sync()``, after a cancelled task, and after a stream that was left.

Prints:

    ended: Cancelled(reason='the stop button')
      user: Count the files, then search them.
      assistant asks for count
      tool: 12 files
      assistant asks for search
      tool: Interrupted: the run was cancelled. The tool was running and may have taken effect.
    and on from there: I had counted 12 files.
"""

import threading

import anyio

from toolkit import AssistantMessage, ToolCall, ToolLoopHandle, ToolRegistry, UserMessage, tool, tool_loop_sync
from toolkit.testing import ScriptedProvider

search_runs = threading.Event()


@tool
async def count() -> str:
    """Count the files."""
    return "12 files"


@tool
async def search() -> str:
    """Search all files, which takes for ever."""
    search_runs.set()
    await anyio.sleep_forever()
    return "never"


def press_stop(handle: ToolLoopHandle[object]) -> None:
    """Be the user, who is in another thread."""
    search_runs.wait()
    handle.cancel("the stop button")


provider = ScriptedProvider([ToolCall("1", "count", "{}"), ToolCall("2", "search", "{}"), "I had counted 12 files."])
tools = ToolRegistry([count, search])
handle = ToolLoopHandle(provider, tools, "Count the files, then search them.")
threading.Thread(target=press_stop, args=(handle,)).start()
result = handle.run_sync()

print("ended:", result.reason)
for message in handle.messages:
    if isinstance(message, AssistantMessage):
        print("  assistant asks for", ", ".join(call.name for call in message.tool_calls))
    else:
        print(f"  {message.role}: {message.text}")
# The transcript is valid, so a conversation may go on from it.
print("and on from there:", tool_loop_sync(provider, tools, [*handle.messages, UserMessage("How far?")]).text)
