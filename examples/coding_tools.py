"""Six tools for work on the files below a folder: a model, played by a script, finds a bug and fixes it.

The file tools never leave the folder. `bash` runs what is on a list, written plainly; what an allowed program does is
held by bubblewrap alone (`sandbox=Bubblewrap()`). Needs the extra `coding`.

Prints:

    search: prices.py:2: return amount * rate
    edit_file: Replaced 1 line with 1 line in prices.py
    bash: 121.0
    bash: refused
    read_file: '../secrets.txt' is outside of the folder that may be used. Give a path relative to that folder.
    read only: read_file, list_files, search
"""

import json
import tempfile
from pathlib import Path

from toolkit import AssistantMessage, ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool_loop_sync
from toolkit.builtin import BashOptions, coding_tools
from toolkit.testing import ScriptedProvider


def call(tool: str, **arguments: str) -> AssistantMessage:
    """Return what a model says that calls one tool."""
    return AssistantMessage([ToolCall(tool, tool, json.dumps(arguments))])


with tempfile.TemporaryDirectory() as name:
    project = Path(name)
    project.joinpath("prices.py").write_text(
        "def with_tax(amount, rate=0.21):\n    return amount * rate\n\nprint(with_tax(100))\n"
    )
    provider = ScriptedProvider(
        [
            call("search", pattern="return .*rate"),
            call("edit_file", path="prices.py", old_text="amount * rate", new_text="amount * (1 + rate)"),
            call("bash", command="python prices.py"),
            call("bash", command="python prices.py; rm prices.py"),
            call("read_file", path="../secrets.txt"),
            "Prices now include the amount.",
        ]
    )
    tools = ToolRegistry(coding_tools(project, "all", bash=BashOptions(timeout=30, allow=["python prices.py"])))
    result = tool_loop_sync(provider, tools, "Prices are too low.", config=ToolLoopConfig(timeout=60))
    for message in result.messages:
        if isinstance(message, ToolResult):
            is_blocked = message.text.startswith("Command blocked by safety policy")
            print(f"{message.tool_name}: {'refused' if is_blocked else ' '.join(message.text.split())}")

    # A scope that can change nothing.
    print("read only:", ", ".join(ToolRegistry(coding_tools(project, "readonly")).names))
