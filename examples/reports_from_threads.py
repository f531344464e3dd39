"""A tool whose own threads report how far they are: every report reaches the reader, and no thread runs ahead of it.

Prints:

    page 1 is fetched
    page 2 is fetched
    page 3 is fetched
    All three pages are fetched.
"""

from concurrent.futures import ThreadPoolExecutor

import anyio

from toolkit import Done, ToolCall, ToolContext, ToolRegistry, tool_loop_stream, tool_with_ctx
from toolkit.events import ToolProgress
from toolkit.testing import ScriptedProvider


@tool_with_ctx
def fetch(context: ToolContext[object], pages: int) -> str:
    """Fetch pages."""

    def fetch_page(number: int) -> str:
        context.report_progress(f"page {number} is fetched")  # waits here until somebody has taken it
        return f"text of page {number}"

    with ThreadPoolExecutor(max_workers=1) as pool:
        return "\n".join(pool.map(fetch_page, range(1, pages + 1)))


async def main() -> None:
    """Print the reports as they come."""
    provider = ScriptedProvider([ToolCall("1", "fetch", '{"pages": 3}'), "All three pages are fetched."])
    async with tool_loop_stream(provider, ToolRegistry([fetch]), "Fetch the first three pages.") as events:
        async for event in events:
            match event:
                case ToolProgress(text=text):
                    print(text)
                case Done(result):
                    print(result.text)
                case _:
                    pass


anyio.run(main)
