"""Plain functions as tools: hints and docstring become what the model is told.

Prints:

    {'type': 'number', 'description': 'The second one.'}
    add({'a': 19.5, 'b': 22.5}) -> 42.0
    repeat({'word': 'ha', 'times': 3}) -> hahaha
    It is 42, hahaha.
"""

from toolkit import AssistantMessage, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.events import LoopEvent, ToolExecutionEnd, ToolExecutionStart
from toolkit.testing import ScriptedProvider


@tool
def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


@tool(tags={"text"})
async def repeat(word: str, times: int = 2) -> str:
    """Say a word several times."""
    return word * times


def show(event: LoopEvent) -> None:
    """Print what the tools are given and what they give."""
    match event:
        case ToolExecutionStart(tool_name=name, arguments=arguments):
            print(f"{name}({arguments})", end="")
        case ToolExecutionEnd(result=result):
            print(f" -> {result.text}")
        case _:
            pass


# A real model would ask for these calls by itself: `OpenAIProvider("gpt-...")` in place of the script.
provider = ScriptedProvider(
    [
        ToolCall("1", "add", '{"a": 19.5, "b": 22.5}'),
        AssistantMessage([ToolCall("2", "repeat", '{"word": "ha", "times": 3}')]),
        "It is 42, hahaha.",
    ]
)

print(add.definition.parameters["properties"]["b"])
result = tool_loop_sync(
    provider, ToolRegistry([add, repeat]), "What is 19.5 + 22.5? Laugh about it.", config=ToolLoopConfig(on_event=show)
)
print(result.text)
