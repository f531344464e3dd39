"""Two fleets with different code at work on one database at the same moment, and workers of both killed meanwhile."""

import random
from collections import Counter
from pathlib import Path

import anyio
import pytest

from tests.durable.desk import make_desk, read_notes
from tests.durable.fleet import WorkerProcess, start_workers, write_app
from tests.durable.postgres import SQLITE_FIRST
from toolkit import Approve, ToolResult
from toolkit.chat import validate_transcript
from toolkit.durable import DecisionRefusedError, DurableRun, DurableRuns
from toolkit.events import ToolCallRefused, ToolExecutionEnd

pytestmark = [pytest.mark.anyio, pytest.mark.real]

_WORDS = "wait slow refund pair add refund helper slow"
_PLACES = 4
_RUNS = 4 * _PLACES  # each of the four workers has its places taken when all of them move

_NEW = """
from dataclasses import replace
from pathlib import Path

import anyio
from toolkit import ToolContext, ToolRegistry, tool_with_ctx
from tests.durable import desk as old

@tool_with_ctx(requires_approval=True)
async def refund(context: ToolContext[old.Desk], n: int, currency: str = "EUR") -> str:
    "Give money back, in a currency."
    context.state.note(f"refund {{context.call_id}} {{n}}")
    context.state.note(f"new {{context.call_id}}")
    return f"refunded {{n}} {{currency}}"

@tool_with_ctx
async def slow(context: ToolContext[old.Desk], moments: int = 1) -> str:
    "Take some moments."
    context.state.note(f"slow {{context.call_id}}")
    context.state.note(f"new {{context.call_id}}")
    await anyio.sleep(0.03 * moments)
    context.state.note(f"ended {{context.call_id}}")
    return f"slept anew {{context.call_id}}"

desk = replace(old.make_desk(Path({folder!r})), registry=ToolRegistry([old.helper, refund, slow, old.wait]))
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # clients on trio are tested with a worker in this process


class Fleets:
    """Workers with the old code and with the new one, as many of each all the time."""

    def __init__(self, folder: Path, url: str) -> None:
        (folder / "new").mkdir()
        new = folder / "new" / "app.py"
        new.write_text(_NEW.format(folder=str(folder)))
        self._url = url
        self._apps = [write_app(folder), new]
        self._workers: list[list[WorkerProcess]] = [self._start(app, 2) for app in self._apps]

    def replace_worker(self, fleet: int) -> None:
        """Kill a worker, and start another one of its fleet."""
        self._workers[fleet].pop(0).kill()
        self._workers[fleet] += self._start(self._apps[fleet], 1)

    def _start(self, app: Path, count: int) -> list[WorkerProcess]:
        return start_workers(count, app, self._url, "--concurrency", str(_PLACES))

    def end(self) -> None:
        for worker in [*self._workers[0], *self._workers[1]]:
            worker.kill()


async def decide_all(run: DurableRun) -> int:
    """Agree to whatever a run awaits; return how many decisions were taken."""
    taken = 0
    for pending in (await run.status()).pending:
        try:
            await run.decide(pending.call_id, Approve(), binding=pending.binding)
        except DecisionRefusedError:
            continue  # it is another call by now: the other fleet's tool is to be decided on
        taken += 1
    return taken


async def check_run(run: DurableRun, folder: Path) -> Counter[str]:
    """Check that nothing ran twice and that the transcript says what was done; return what was seen."""
    result, notes = await run.result(), Counter(read_notes(folder, run.id))
    validate_transcript(result.messages)
    assert result.text == f"Done after {len(_WORDS.split())} turns: {_WORDS}."
    assert [note for note, count in notes.items() if count > 1] == [], run.id
    seen = Counter[str]()
    answers = [each for each in result.messages if isinstance(each, ToolResult)]
    for each in answers:
        is_new = f"new {each.call_id}" in notes
        began = any(note.split()[:2] == [each.tool_name, each.call_id] for note in notes)
        if not each.is_error and each.tool_name in ("slow", "refund", "add"):
            assert began, each
            assert (each.tool_name == "slow") == (f"ended {each.call_id}" in notes), each
            assert is_new == (each.text.startswith("slept anew") or each.text.endswith("EUR")), each
            seen["new" if is_new else "old"] += 1
        elif each.is_error:
            what = "interrupted" if "may have taken effect" in each.text else "refused"
            assert what == "interrupted" or not began, each
            seen[what] += 1
    told = [each.event async for each in run.events()]
    mine = [event for event in told if event.loop_id == run.id]
    ends = [event.call_id for event in mine if isinstance(event, ToolExecutionEnd)]
    refused = [event.call_id for event in mine if isinstance(event, ToolCallRefused)]
    assert sorted(ends + refused) == sorted(each.call_id for each in answers), "each end is told once"
    return seen


async def kill_workers(fleets: Fleets, folder: Path, kills: int) -> None:
    """Kill workers of both fleets by turns, while something is done."""
    chance, notes = random.Random(3), folder / "notes"
    for number in range(kills):
        size = notes.stat().st_size
        with anyio.move_on_after(2):  # where all runs wait, it is killed all the same
            while notes.stat().st_size == size:  # noqa: ASYNC110 - of other processes
                await anyio.sleep(0.002)
        await anyio.sleep(chance.uniform(0.0, 0.03))
        await anyio.to_thread.run_sync(fleets.replace_worker, number % 2)


async def decide_and_check(moving: list[DurableRun], folder: Path, seen: Counter[str]) -> None:
    """Decide whatever runs await until all of them have ended."""
    while moving:
        for run in list(moving):
            seen["decisions"] += await decide_all(run)
            status = await run.status()
            assert status.state != "failed", status.error
            if status.state == "done":
                seen += await check_run(run, folder)
                moving.remove(run)
        await anyio.sleep(0.05)


@SQLITE_FIRST
@pytest.mark.parametrize("kills", [0, pytest.param(20, marks=pytest.mark.full)])
async def test_two_fleets_with_different_tools_share_runs_and_no_call_runs_twice(
    runs: DurableRuns, url: str, tmp_path: Path, kills: int
) -> None:
    """A worker of each fleet is killed while calls wait in it, and then so many at random moments."""
    desk, seen = make_desk(tmp_path), Counter[str]()
    fleets = Fleets(tmp_path, url)
    try:
        moving = [await runs.start(desk, _WORDS, run_id=f"r{each}y") for each in range(_RUNS)]
        with anyio.fail_after(600):
            for run in moving:
                while not read_notes(tmp_path, run.id):  # noqa: ASYNC110 - of other processes
                    await anyio.sleep(0.02)
            for fleet in (0, 1):
                await anyio.to_thread.run_sync(fleets.replace_worker, fleet)
            for run in moving:
                (tmp_path / f"go-{run.id}").touch()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_workers, fleets, tmp_path, kills)
                tasks.start_soon(decide_and_check, moving, tmp_path, seen)
    finally:
        fleets.end()
    print(dict(seen))
    assert seen["old"] > 0
    assert seen["new"] > 0
    assert seen["interrupted"] > 0, "workers of both were killed in calls"
