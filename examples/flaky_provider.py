"""What a loop does when its provider fails, without waiting for a real one to do so.

Prints:

    rate_limit: asked again, and then: All is well.
    cut_stream: asked again, and then: All is well.
    malformed_chunk: BadResponseError: flaky: a piece of the answer is no JSON
    the transcript that it carries is valid, and ends with: tool
"""

import logging

from toolkit import ProviderError, ProviderRetryConfig, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.chat import validate_transcript
from toolkit.testing import Fault, FlakyProvider, ScriptedProvider


@tool
def check() -> str:
    """Check that all is well."""
    return "yes"


logging.getLogger("toolkit").setLevel(logging.ERROR)  # a request that is made again is a warning
faults: list[Fault] = ["rate_limit", "cut_stream", "malformed_chunk"]
config = ToolLoopConfig(provider_retry=ProviderRetryConfig(initial_backoff=0.01), stream=True)
for fault in faults:
    script = ScriptedProvider([ToolCall("call_1", "check", "{}"), "All is well."])
    provider = FlakyProvider(script, [None, fault])  # the second request goes wrong
    try:
        result = tool_loop_sync(provider, ToolRegistry([check]), "Is all well?", config=config)
    except ProviderError as error:
        print(f"{fault}: {type(error).__name__}: {error}")
        validate_transcript(error.messages)
        print("the transcript that it carries is valid, and ends with:", error.messages[-1].role)
    else:
        print(f"{fault}: asked again, and then: {result.text}")
