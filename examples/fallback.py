"""Another provider where the first can't answer, within limits, and no question asked twice.

Prints:

    busy: slow down; asking the next provider
    The answer is 42.
    The answer is 42.
    asked: 1 time at busy, 1 time at spare
"""

import logging
import sys

from toolkit import ToolRegistry, tool_loop_sync
from toolkit.errors import RateLimitedError
from toolkit.providers import CachedProvider, FallbackProvider, RateLimitedProvider
from toolkit.testing import ScriptedProvider

logging.basicConfig(format="%(message)s", stream=sys.stdout)

# Real ones: `AnthropicProvider(...)`, `OpenAIProvider(...)`, or whatever fulfils `toolkit.Provider`.
busy = ScriptedProvider([RateLimitedError("busy", "slow down")])
spare = ScriptedProvider(["The answer is 42."])

provider = CachedProvider(
    FallbackProvider(
        RateLimitedProvider(busy, requests=500, tokens=200_000, concurrency=20),  # in any minute
        spare,
    )
)
for _ in range(2):
    print(tool_loop_sync(provider, ToolRegistry([]), "What is the answer?").text)
print(f"asked: {len(busy.requests)} time at busy, {len(spare.requests)} time at spare")
