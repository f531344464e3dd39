"""Somebody speaks to a running loop: calls that have not started are skipped, and the model reads the message next.

Prints:

    tool: sent to ada
    tool: Not started: skipped because of a new message.
    user: Stop, that was the wrong list!
    assistant: I stopped after ada.
    user: Then apologise to her.
    assistant: Done.
"""

from toolkit import AssistantMessage, Steering, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.policies import Sequential
from toolkit.testing import ScriptedProvider

steering = Steering()


@tool
def send_mail(to: str) -> str:
    """Send a mail."""
    # In an application this comes from another task: a person at a keyboard, a webhook.
    steering.steer("Stop, that was the wrong list!")
    return f"sent to {to}"


steering.follow_up("Then apologise to her.")
provider = ScriptedProvider(
    [
        AssistantMessage(
            [ToolCall("1", "send_mail", '{"to": "ada"}'), ToolCall("2", "send_mail", '{"to": "everybody"}')]
        ),
        "I stopped after ada.",
        "Done.",
    ]
)
config = ToolLoopConfig(steering=steering, execution=Sequential())
result = tool_loop_sync(provider, ToolRegistry([send_mail]), "Mail the list.", config=config)
for message in result.messages[2:]:
    print(f"{message.role}: {message.text}")
