"""A run is recorded once and played again offline; a request that was not recorded says how it differs.

Prints:

    recorded: 1 plus 2 is 3.
    replayed: 1 plus 2 is 3.
    the same to the byte: True
    -    "content": "What is 1 plus 2?",
    +    "content": "What is 2 plus 2?",
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from toolkit import ConfigurationError, Provider, ToolCall, ToolRegistry, tool, tool_loop_sync
from toolkit.chat import dump_messages
from toolkit.testing import RecordingProvider, ReplayProvider, ScriptedProvider


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def ask(provider: Provider, question: str) -> tuple[str, str]:
    """Return the answer, and the transcript as JSON."""
    result = tool_loop_sync(provider, ToolRegistry([add]), question)
    return result.text, dump_messages(result.messages)


# Stands for a real model, which is asked once.
model = ScriptedProvider([ToolCall("call_1", "add", '{"a": 1, "b": 2}'), "1 plus 2 is 3."])

with TemporaryDirectory() as folder:
    cassette = Path(folder) / "sum.jsonl"
    recorded = ask(RecordingProvider(model, cassette), "What is 1 plus 2?")
    replayed = ask(ReplayProvider(cassette), "What is 1 plus 2?")
    print("recorded:", recorded[0])
    print("replayed:", replayed[0])
    print("the same to the byte:", recorded == replayed)
    try:
        ask(ReplayProvider(cassette), "What is 2 plus 2?")
    except ConfigurationError as error:
        print("\n".join(line for line in str(error).splitlines() if line.startswith(("- ", "+ "))))
