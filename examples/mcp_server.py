"""A registry as an MCP server over HTTP, with a token, and a tool that asks the client's user before it runs.

Prints:

    without the token: it refuses who calls (HTTP 401)
    the user is asked: Tool 'wipe' needs approval.
    wiped /tmp/a
    not approved: The user did not approve this call, so it was not run.
"""

import anyio
from anyio.abc import TaskStatus

from toolkit import ToolCall, ToolRegistry, tool
from toolkit.errors import McpError
from toolkit.serving.mcp import serve_mcp_http
from toolkit.sources.mcp import Elicitation, http, mcp_tools

TOKEN = "a-token-of-your-own"


@tool(requires_approval=True, tags={"destructive"})
def wipe(path: str) -> str:
    """Wipe a file."""
    return f"wiped {path}"


async def serve(*, task_status: TaskStatus[str]) -> None:
    """Serve on a free port of loopback."""
    await serve_mcp_http(ToolRegistry([wipe]), port=0, auth=TOKEN, task_status=task_status)


async def use(url: str) -> None:
    """Call the tool twice, as two users."""
    try:
        async with mcp_tools(http(url)):
            pass
    except McpError as error:
        print("without the token:", str(error).partition("connect: ")[2].partition(";")[0])

    def consent(question: Elicitation) -> dict[str, bool]:
        print("the user is asked:", question.message.partition(" Run it")[0])
        return {"approve": True}

    call = ToolCall("1", "wipe", '{"path": "/tmp/a"}')
    async with mcp_tools(http(url, bearer=TOKEN), elicitation=consent) as tools:
        print((await ToolRegistry(tools).execute(call)).text)
    async with mcp_tools(http(url, bearer=TOKEN), elicitation=lambda _: False) as tools:
        print("not approved:", (await ToolRegistry(tools).execute(call)).text)


async def main() -> None:
    """Serve, use and end."""
    async with anyio.create_task_group() as tasks:
        await use(await tasks.start(serve))
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
