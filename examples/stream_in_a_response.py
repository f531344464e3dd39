"""A stream inside an asynchronous generator, as web frameworks want it, with a heartbeat while nothing happens.

Give ``lines(question)`` to Starlette's or FastAPI's ``StreamingResponse``: when the client leaves, the framework closes
the generator, wherever it stands, and the run is cancelled. Waiting for an event with a time limit loses none.

Prints:

    data: [look_up]
    : still working
    data: It is 42.
    the next client leaves early, and its tool is cancelled
"""

import asyncio  # noqa: TID251 - what web frameworks run on
from collections.abc import AsyncGenerator

from toolkit import Done, ToolCall, ToolContext, ToolRegistry, tool_loop_stream, tool_with_ctx
from toolkit.events import ToolProgress
from toolkit.testing import ScriptedProvider

answer_is_known = asyncio.Event()


@tool_with_ctx
async def look_up(context: ToolContext[object]) -> str:
    """Look it up, which takes a while."""
    context.report_progress("looking")
    try:
        await answer_is_known.wait()
    except asyncio.CancelledError:
        print("the next client leaves early, and its tool is cancelled")
        raise
    return "42"


async def lines(question: str) -> AsyncGenerator[str]:
    """Yield server-sent events."""
    provider = ScriptedProvider([ToolCall("1", "look_up", "{}"), "It is 42."])
    async with tool_loop_stream(provider, ToolRegistry([look_up]), question) as events:
        while True:
            try:
                event = await asyncio.wait_for(anext(events), timeout=0.05)
            except TimeoutError:
                yield ": still working"
                continue
            match event:
                case ToolProgress(tool_name=name):
                    yield f"data: [{name}]"
                case Done(result):
                    yield f"data: {result.text}"
                    return
                case _:
                    pass


async def main() -> None:
    """Be two clients: one that stays, one that leaves."""
    async for line in lines("What is it?"):
        if not line.startswith(":") or not answer_is_known.is_set():
            print(line)
        if line.startswith(":"):
            answer_is_known.set()
    answer_is_known.clear()
    response = lines("What is it?")
    await anext(response)
    await response.aclose()


asyncio.run(main())
