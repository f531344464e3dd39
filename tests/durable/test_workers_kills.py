"""Workers that are killed at random: no call runs twice, no result is lost, each transcript is valid."""

import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.durable.desk import make_desk, read_notes
from tests.durable.postgres import start_postgres
from tests.forked import fork_process
from toolkit import ToolResult
from toolkit.chat import validate_transcript
from toolkit.durable import DurableRun, DurableRuns, DurableWorker
from toolkit.events import Done, ResponseReceived, ToolExecutionEnd

_WORDS = "wait slow pair helper slow pair slow"
_CALLS = ["c0", "c1", "c2.0", "c2.1", "c3", "c4", "c5.0", "c5.1", "c6"]
_HELPER = "c3"
_AT_ONCE = 4


async def work(folder: Path, url: str, lease: float) -> None:
    # Workers are killed faster than the calls of a run end on a busy machine: that is no fault of the run.
    async with DurableWorker([replace(make_desk(folder), max_lost=None)], url, lease=lease, concurrency=20):
        await anyio.sleep_forever()


class Nursery:
    """Starts workers and kills them."""

    work: Callable[[Path, str, float], Coroutine[Any, Any, None]] = staticmethod(work)

    def __init__(self, folder: Path, url: str, lease: float = 0.5) -> None:
        self._folder, self._url, self._lease = folder, url, lease
        self.workers: list[ForkServerProcess] = []

    def start_worker(self) -> None:
        log = self._folder / "workers.log"
        self.workers.append(fork_process(anyio.run, self.work, self._folder, self._url, self._lease, log=log))

    def kill_worker(self) -> None:
        worker = self.workers.pop(0)
        worker.kill()
        worker.join(120)

    def close(self) -> None:
        while self.workers:
            self.kill_worker()


async def check_run(run: DurableRun, folder: Path, found: Counter[str]) -> None:
    """Check what came of a run against what its tools did."""
    result = await run.result()
    assert result.text.startswith("Done after 7 turns")
    validate_transcript(result.messages)
    notes = Counter(read_notes(folder, run.id))
    results = [message for message in result.messages if isinstance(message, ToolResult)]
    assert [each.call_id for each in results] == _CALLS
    assert all(notes[f"slow h{each}"] <= 1 for each in range(2)), "a call of the sub-agent ran twice"
    for each in results:
        if each.call_id == _HELPER:
            assert not each.is_error, "a sub-agent goes on with what it has done"
            continue
        started, ended = notes[f"{each.tool_name} {each.call_id}"], notes[f"ended {each.call_id}"]
        assert started <= 1, f"{each.call_id} of {run.id} ran {started} times"
        if each.is_error:
            assert "may have taken effect" in each.text
            found["told that it may have taken effect"] += 1
            found["of these had ended"] += ended
        elif each.tool_name == "wait":
            assert (each.text, started) == ("waited", 1)
        else:
            assert (each.text, started, ended) == (f"slept {run.id}/{each.call_id}", 1, 1)
    told = [each async for each in run.events()]
    assert [each.seq for each in told] == sorted({each.seq for each in told})
    ends = [each.event for each in told if isinstance(each.event, ToolExecutionEnd)]
    assert sorted(event.call_id for event in ends if event.loop_id == run.id) == sorted(_CALLS), "each end once"
    assert sorted(event.call_id for event in ends if event.loop_id != run.id) == ["h0", "h1"], "those inside, too"
    by_call = {event.call_id: event.result.text for event in ends if event.loop_id == run.id}
    assert by_call == {each.call_id: each.text for each in results}, "what was told is what was recorded"
    replies = [each.event.iteration for each in told if isinstance(each.event, ResponseReceived)]
    assert Counter(replies) == Counter([*range(1, 9), *range(1, 4)]), "each reply once"
    assert sum(isinstance(each.event, Done) for each in told if each.event.loop_id == run.id) == 1
    found["taken up more than once"] += (await run.status()).attempts > 1
    found["runs"] += 1


def count_lines(folder: Path) -> int:
    notes = folder / "notes"
    return notes.read_bytes().count(b"\n") if notes.exists() else 0


async def wait_for_lines(folder: Path, count: int) -> None:
    """Return when the tools have noted so much, or when they have nothing more to do."""
    with anyio.move_on_after(10):  # a worker needs some seconds to begin on a busy machine
        while count_lines(folder) < count:  # noqa: ASYNC110 - of other processes
            await anyio.sleep(0.002)


async def kill_workers(folder: Path, url: str, kills: int, seed: int) -> Counter[str]:
    """Have runs move while their workers are killed; return what was found.

    The first kill comes while the first calls of the first runs wait, the others at any moment.
    """
    chance, found, desk = random.Random(seed), Counter[str](), make_desk(folder)
    async with DurableRuns(url) as runs:
        with closing(Nursery(folder, url)) as nursery:
            moving: list[DurableRun] = []
            nursery.start_worker()
            while moving or found["kills"] < kills:
                while found["kills"] < kills and len(moving) < _AT_ONCE:
                    moving.append(await runs.start(desk, _WORDS, run_id=f"run{seed}x{found['runs'] + len(moving)}y"))
                if found["kills"] < kills:
                    if found["kills"] == 0:
                        while count_lines(folder) < _AT_ONCE:  # noqa: ASYNC110 - of other processes
                            await anyio.sleep(0.002)
                    else:
                        await wait_for_lines(folder, count_lines(folder) + chance.randint(1, 12))
                        await anyio.sleep(chance.uniform(0.0, 0.06))
                    nursery.kill_worker()
                    for run in moving:
                        (folder / f"go-{run.id}").touch()
                    nursery.start_worker()
                    found["kills"] += 1
                else:
                    await anyio.sleep(0.2)
                for run in list(moving):
                    status = await run.status()
                    assert status.state != "failed", status.error
                    if status.state == "done":
                        await check_run(run, folder, found)
                        moving.remove(run)
    return found


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_after_five_kills_no_call_ran_twice_and_no_result_is_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with anyio.fail_after(1_200):
        found = await kill_workers(tmp_path, url, kills=5, seed=1)
    print(dict(found))
    assert found["taken up more than once"] >= _AT_ONCE
    assert found["told that it may have taken effect"] >= _AT_ONCE


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_after_three_hundred_kills_no_call_ran_twice_and_no_result_is_lost(tmp_path: Path, database: str) -> None:
    server = start_postgres() if database == "postgres" else None
    url = f"sqlite:///{tmp_path / 'runs.db'}" if server is None else server.make_database()
    try:
        with anyio.fail_after(7_200):
            found = await kill_workers(tmp_path, url, kills=300, seed=int(time.time()))
    finally:
        if server is not None:
            server.stop()
    assert found["taken up more than once"] > 0
    print(dict(found))
