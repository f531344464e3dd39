"""A long conversation is shortened between turns; a call is never parted from its result.

Prints:

    request 1: 1 messages, 20 characters
    request 2: 3 messages, 5020 characters
    request 3: 5 messages, 10020 characters
    request 4: 7 messages, 10077 characters
    the last transcript is valid
"""

from toolkit import ChatRequest, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.chat import validate_transcript
from toolkit.policies import mask_old_results
from toolkit.testing import ScriptedProvider


@tool
def read_page(number: int) -> str:
    """Read a page of the book."""
    return f"{number}" * 5000


def model(request: ChatRequest) -> ToolCall | str:
    """Read three pages, then answer."""
    turn = len(provider.requests)
    length = sum(len(message.text) for message in request.messages)
    print(f"request {turn}: {len(request.messages)} messages, {length} characters")
    return "I have read it." if turn == 4 else ToolCall(f"call_{turn}", "read_page", f'{{"number": {turn}}}')


provider = ScriptedProvider([model], repeats=True)
config = ToolLoopConfig(compaction=mask_old_results(keep_turns=2, min_chars=1000))
result = tool_loop_sync(provider, ToolRegistry([read_page]), "Read the whole book.", config=config)
validate_transcript(result.messages)
print("the last transcript is valid")
