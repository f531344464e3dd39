"""Tools that vendors define and the application runs: OpenAI's shell and patches, and Anthropic's memory.

The vendors themselves where OPENAI_API_KEY and ANTHROPIC_API_KEY are set, else stand-ins on this machine.

Prints:

    shell_call -> bash: cat notes.txt
    apply_patch_call -> apply_patch: update_file notes.txt
    The notes are finished.
    memory -> memory: create /memories/tea.md
    Noted.
    notes.txt: tea and biscuits
    tea.md: Ann likes tea.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import anyio

from toolkit import Provider, ToolRegistry, tool_loop
from toolkit.builtin import BashOptions, apply_patch_tool, bash_tool, memory_tool
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.openai import OpenAIResponsesProvider
from toolkit.providers.servers import SERVERS
from toolkit.testing.loopback import Answer, serving


async def run(provider: Provider, tools: ToolRegistry[Any], prompt: str) -> None:
    """Print the calls, by the vendor's name and by ours, and the answer."""
    result = await tool_loop(provider, tools, prompt)
    for message in result.messages:
        for call in message.tool_calls if message.role == "assistant" else ():
            arguments = json.loads(call.arguments)
            (data,) = (call.extra or {"": {}}).values()
            kind = data["item"]["type"] if "item" in data else call.name
            told = arguments.get("type") or arguments["command"]
            print(f"{kind} -> {call.name}: {told} {arguments.get('path', '')}".rstrip())
    print(result.text)


async def main(root: Path, openai: dict[str, Any], anthropic: dict[str, Any]) -> None:
    """Let each vendor's model work in a folder."""
    shell = ToolRegistry([bash_tool(root, BashOptions(allow=["cat"]))]).configured(native_as="shell")
    async with OpenAIResponsesProvider("gpt-5.1", server=SERVERS["openai"], **openai) as provider:
        await run(provider, shell | ToolRegistry([apply_patch_tool(root)]), "Finish notes.txt.")
    async with AnthropicProvider("claude-sonnet-5-5", **anthropic) as provider:
        await run(provider, ToolRegistry([memory_tool(root)]), "Remember that Ann likes tea.")
    print("notes.txt:", await anyio.Path(root / "notes.txt").read_text())
    print("tea.md:", await anyio.Path(root / "memories/tea.md").read_text())


def respond(**item: Any) -> Answer:
    """Word a response as OpenAI does."""
    return Answer({"id": "resp_1", "status": "completed", "output": [item]})


def say(stop_reason: str, **block: Any) -> Answer:
    """Word a message as Anthropic does."""
    return Answer({"id": "msg_1", "role": "assistant", "content": [block], "stop_reason": stop_reason})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "notes.txt").write_text("tea and")
        if "OPENAI_API_KEY" in os.environ and "ANTHROPIC_API_KEY" in os.environ:
            anyio.run(main, place, dict[str, Any](), dict[str, Any]())
        else:
            patch = {"type": "update_file", "path": "notes.txt", "diff": "-tea and\n+tea and biscuits"}
            note = {"command": "create", "path": "/memories/tea.md", "file_text": "Ann likes tea."}
            text = {"type": "output_text", "text": "The notes are finished."}
            with (
                serving(
                    respond(type="shell_call", call_id="c1", action={"commands": ["cat notes.txt"]}),
                    respond(type="apply_patch_call", call_id="c2", operation=patch, status="completed"),
                    respond(type="message", role="assistant", content=[text]),
                ) as openai_server,
                serving(
                    say("tool_use", type="tool_use", id="c3", name="memory", input=note),
                    say("end_turn", type="text", text="Noted."),
                ) as anthropic_server,
            ):
                anyio.run(
                    main,
                    place,
                    {"base_url": openai_server.url, "api_key": "none"},
                    {"base_url": anthropic_server.root},
                )
