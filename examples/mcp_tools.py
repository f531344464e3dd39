"""Tools of an MCP server: another program offers them, and the loop uses them like its own.

The server here is this same file, started as a process of its own. Any other does: ``stdio("npx", "-y",
"@modelcontextprotocol/server-everything")``, or ``http("https://example.com/mcp", bearer=token)``.

Prints:

    the server offers: notes__find_note, notes__add_note
    only these are read: notes__find_note
    may notes__find_note run? yes
    may notes__add_note run? yes
    the notes are: milk, bread
"""

import sys

import anyio

from toolkit import ApprovalRequest, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop
from toolkit.serving.mcp import serve_mcp
from toolkit.sources.mcp import mcp_tools, stdio
from toolkit.testing import ScriptedProvider

notes = ["milk"]


@tool(tags={"read"})
def find_note(word: str) -> str:
    """Find a note."""
    return ", ".join(note for note in notes if word in note) or "none"


@tool
def add_note(note: str) -> str:
    """Add a note."""
    notes.append(note)
    return f"the notes are: {', '.join(notes)}"


def approve(request: ApprovalRequest) -> bool:
    """Let reads and additions pass, as a person would."""
    is_right = "destructive" not in request.tags
    print(f"may {request.tool_name} run? {'yes' if is_right else 'no'}")
    return is_right


async def main() -> None:
    """Start the server, and let a model that plays a script use it."""
    provider = ScriptedProvider(
        [
            ToolCall("1", "notes__find_note", '{"word": "bread"}'),
            ToolCall("2", "notes__add_note", '{"note": "bread"}'),
        ]
    )
    async with mcp_tools(stdio(sys.executable, __file__, "serve"), prefix="notes") as tools:
        registry = ToolRegistry(tools)
        print("the server offers:", ", ".join(registry.names))
        print("only these are read:", ", ".join(registry.tagged("read").names))
        config = ToolLoopConfig(on_tool_call=approve, max_iterations=2)
        result = await tool_loop(provider, registry, "Note bread, if it is missing.", config=config)
    print(result.messages[-1].text)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        anyio.run(serve_mcp, ToolRegistry([find_note, add_note]))
    else:
        anyio.run(main)
