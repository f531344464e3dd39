"""A model without tools of its own gets them by text: it reads of them in its prompt, and its calls are read back.

Prints:

    user: What is 12 + 30?
    assistant: I'll add them. [add {"a": 12, "b": 30}]
    tool: 42
    assistant: It is 42.
    the model was asked 3 times, and read: Observation: 42
"""

from toolkit import AssistantMessage, ToolRegistry, tool, tool_loop_sync
from toolkit.parsing import TextToolProvider
from toolkit.testing import ScriptedProvider


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# What a small model writes: first a call that is cut off, then, being told so, the whole of it.
model = ScriptedProvider(
    [
        'I\'ll add them.\nAction: add\nAction Input: {"a": 12, "b"',
        'I\'ll add them.\nAction: add\nAction Input: {"a": 12, "b": 30}',
        "It is 42.",
    ]
)
result = tool_loop_sync(TextToolProvider(model, format="react"), ToolRegistry([add]), "What is 12 + 30?")
for message in result.messages:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    print(f"{message.role}: {message.text}", *[f"[{call.name} {call.arguments}]" for call in calls])
print(f"the model was asked {len(model.requests)} times, and read: {model.requests[-1].messages[-1].text}")
