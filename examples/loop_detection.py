"""A model that asks for the same again and again is told so, and then stopped.

Prints:

    repeated 2 times: inject_warning
    the model reads: You have called lookup 2 times in a row with the same arguments. Use other arguments or another
    tool, or answer with what you have.
    the model: Then I don't know.
    with action='stop': LoopDetected(tool_name='lookup', count=2, action='stop', is_in_row=True)
"""

import textwrap

from toolkit import LoopDetectionConfig, ToolCall, ToolLoopConfig, ToolRegistry, UserMessage, tool, tool_loop_sync
from toolkit.events import LoopDetected, LoopEvent
from toolkit.testing import ScriptedProvider


@tool
def lookup(key: str) -> str:
    """Look something up."""
    return f"no entry for {key}"


def stuck() -> ScriptedProvider:
    """Return a model that asks twice for the same."""
    return ScriptedProvider(
        [ToolCall("1", "lookup", '{"key": "x"}'), ToolCall("2", "lookup", '{"key": "x"}'), "Then I don't know."]
    )


def show(event: LoopEvent) -> None:
    """Print what was detected."""
    if isinstance(event, LoopDetected):
        print(f"repeated {event.count} times: {event.action}")


tools = ToolRegistry([lookup])
told = ToolLoopConfig(loop_detection=LoopDetectionConfig(threshold=2, action="inject_warning"), on_event=show)
result = tool_loop_sync(stuck(), tools, "What is x?", config=told)
warning = next(message for message in result.messages[1:] if isinstance(message, UserMessage))
print(textwrap.fill(f"the model reads: {warning.text}", 115))
print("the model:", result.text)

stopped = ToolLoopConfig(loop_detection=LoopDetectionConfig(threshold=2, action="stop"))
print("with action='stop':", tool_loop_sync(stuck(), tools, "What is x?", config=stopped).reason)
