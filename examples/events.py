"""Everything that happens in a loop is an event: for logs, for counters, for a progress bar.

Prints:

    turn 1 begins with 1 message
    a tool runs: resize
      resize: 1 of 2 pictures
      resize: 2 of 2 pictures
    resize gave: 2 pictures resized
    turn 2 begins with 3 messages
    done: Complete(stop=None) after 2 requests
"""

from toolkit import Done, ToolCall, ToolContext, ToolLoopConfig, ToolRegistry, tool_loop_sync, tool_with_ctx
from toolkit.events import IterationStart, LoopEvent, ToolExecutionEnd, ToolExecutionStart, ToolProgress
from toolkit.testing import ScriptedProvider


@tool_with_ctx
async def resize(context: ToolContext[object], pictures: int) -> str:
    """Resize pictures."""
    for number in range(pictures):
        context.report_progress(f"{number + 1} of {pictures} pictures")
    return f"{pictures} pictures resized"


def show(event: LoopEvent) -> None:
    """Print the events that a person would care about."""
    match event:
        case IterationStart(iteration=number, message_count=count):
            print(f"turn {number} begins with {count} message{'s' if count > 1 else ''}")
        case ToolExecutionStart(tool_name=name):
            print(f"a tool runs: {name}")
        case ToolProgress(tool_name=name, text=text):
            print(f"  {name}: {text}")
        case ToolExecutionEnd(tool_name=name, result=result):
            print(f"{name} gave: {result.text}")
        case Done(result):
            print(f"done: {result.reason} after {result.iterations} requests")
        case _:
            pass


provider = ScriptedProvider([ToolCall("1", "resize", '{"pictures": 2}'), "Resized."])
tool_loop_sync(provider, ToolRegistry([resize]), "Resize my pictures.", config=ToolLoopConfig(on_event=show))
