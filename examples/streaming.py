"""A loop as a stream: text as the model writes it, tools as they run, the result at the end.

Prints:

    [get_time] It is noon in Oslo.
    2 requests, 30 tokens
"""

import anyio

from toolkit import Done, TextDelta, ToolCall, ToolRegistry, tool, tool_loop_stream
from toolkit.events import ToolExecutionStart
from toolkit.testing import ScriptedProvider


@tool
def get_time(city: str) -> str:
    """Tell the time in a city."""
    return f"noon in {city}"


async def main() -> None:
    """Print the stream."""
    provider = ScriptedProvider([ToolCall("1", "get_time", '{"city": "Oslo"}'), "It is noon in Oslo."])
    async with tool_loop_stream(provider, ToolRegistry([get_time]), "What time is it in Oslo?") as events:
        async for event in events:
            match event:
                case ToolExecutionStart(tool_name=name):
                    print(f"[{name}] ", end="")
                case TextDelta(text):
                    print(text, end="", flush=True)
                case Done(result):
                    print(f"\n{result.iterations} requests, {result.usage.total_tokens} tokens")
                case _:
                    pass


anyio.run(main)
