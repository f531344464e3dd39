"""A process that reads the events of a run as they come, and says how long after it was told it saw each.

Called with a URL and the id of a run. It prints JSON: the seconds of the events, and those of the words of replies,
whose texts are the times at which they were said (`say_times`).
"""

import json
import sys
import time
from collections.abc import AsyncGenerator

import anyio

from toolkit.durable import DurableRuns
from toolkit.events import TextDelta


async def say_times(count: int, pause: float) -> AsyncGenerator[str]:
    """Stream words, each of which is the time at which it is said."""
    for _ in range(count):
        yield f"{time.time() % 1_000:.3f} "
        await anyio.sleep(pause)


async def read_delays(url: str, run_id: str) -> dict[str, list[float]]:
    """Read a run to its end."""
    delays: dict[str, list[float]] = {"events": [], "words": []}
    async with DurableRuns(url) as runs:
        run = await runs.get(run_id)
        print("ready", flush=True)
        async for told in run.events():
            now = time.time()
            if isinstance(told.event, TextDelta):
                delays["words"] += [(now - float(word)) % 1_000 for word in told.event.text.split()]
            else:
                delays["events"].append(now - told.event.time)
    return delays


if __name__ == "__main__":
    print(json.dumps(anyio.run(read_delays, sys.argv[1], sys.argv[2])))
