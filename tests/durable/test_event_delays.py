"""Prints how long after they were emitted another process reads events, however fast or slowly a run moves."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.durable.desk import make_desk
from tests.durable.fleet import start_workers, write_app
from toolkit.durable import DurableRuns

pytestmark = [pytest.mark.anyio, pytest.mark.full]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the reader is a process of its own


_ROOT = Path(__file__).parents[2]
_APP = """
from dataclasses import replace
from pathlib import Path

import anyio
from toolkit import ToolCall, ToolContext, ToolRegistry, tool_with_ctx
from toolkit.testing import FunctionProvider
from tests.durable.desk import Desk, add, find_words, make_desk
from tests.durable.event_reader import say_times

@tool_with_ctx
async def rest(context: ToolContext[Desk], seconds: float) -> str:
    "Take some time."
    await anyio.sleep(seconds)
    return "rested"

def model(request):
    turn = sum(message.role == "assistant" for message in request.messages)
    words = find_words(request.messages)
    if turn == len(words):
        return say_times(100, 0.02)
    if words[turn] == "add":
        return ToolCall(f"c{{turn}}", "add", '{{"n": 1}}')
    return ToolCall(f"c{{turn}}", "rest", '{{"seconds": ' + words[turn] + '}}')

before = make_desk(Path({folder!r}))
config = replace(before.config, max_iterations=500)
desk = replace(before, provider=FunctionProvider(model), registry=ToolRegistry([add, rest]), config=config)
"""

_PROMPTS = {
    "at full speed": "add " * 220,
    "calls of 20 to 700 ms": " ".join(f"{0.02 * 1.2 ** (each * 7 % 20):.3f}" for each in range(40)),
}


def start_reader(url: str, run_id: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.durable.event_reader", url, run_id]
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)


async def measure(runs: DurableRuns, url: str, folder: Path, prompt: str) -> dict[str, list[float]]:
    """Run once with a reader in a process of its own; return how many seconds later it read."""
    run = await runs.start(make_desk(folder), prompt)
    with start_reader(url, run.id) as reader:
        assert reader.stdout is not None
        assert await anyio.to_thread.run_sync(reader.stdout.readline) == "ready\n"
        [worker] = start_workers(1, write_app(folder, _APP), url)
        try:
            delays: dict[str, list[float]] = json.loads(await anyio.to_thread.run_sync(reader.stdout.readline))
        finally:
            worker.kill()
    return delays


@pytest.mark.parametrize("speed", _PROMPTS)
async def test_another_process_reads_all_events_and_words(
    runs: DurableRuns, url: str, tmp_path: Path, speed: str
) -> None:
    delays = await measure(runs, url, tmp_path, _PROMPTS[speed])
    assert len(delays["words"]) == 100
    assert len(delays["events"]) >= 4 * len(_PROMPTS[speed].split())
    for kind, seconds in delays.items():
        middle, late = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
        print(f"| {url.partition(':')[0]} | {speed} | {kind} | {middle * 1_000:.0f} ms, {late * 1_000:.0f} ms |")
