"""Readers of events share their queries: many cost no more than one, and each reads the events of its own run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.durable.desk import make_desk
from tests.durable.serving import worker_beside
from tests.durable.test_runs_at_rest import decide_run
from tests.durable.test_workers_limits import wait_for_state
from toolkit.durable import DurableRun, DurableRuns
from toolkit.durable.event_reader import EventWatch
from toolkit.events import Done

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


async def wait_for_count(found: Sequence[object], count: int) -> None:
    with anyio.fail_after(90):
        while len(found) < count:  # noqa: ASYNC110 - of other tasks
            await anyio.sleep(0.02)


async def count_readers_of_looks(monkeypatch: pytest.MonkeyPatch, looks: int) -> list[int]:
    """Return how many readers each of the next looks into the database is for."""
    counts = list[int]()
    look: Any = EventWatch._look_at  # pyright: ignore[reportPrivateUsage]

    def look_and_count(self: EventWatch, due: Sequence[object]) -> None:
        counts.append(len(due))
        look(self, due)

    with monkeypatch.context() as patch:
        patch.setattr(EventWatch, "_look_at", look_and_count)
        await wait_for_count(counts, looks)
    return counts


async def test_readers_of_runs_that_wait_share_their_queries_and_each_reads_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, ended = make_desk(tmp_path), list[str]()

    async def read_on(run: DurableRun) -> None:
        async for told in run.events(until="end"):
            if isinstance(told.event, Done):
                ended.append(run.id)

    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            made = [await runs.start(desk, "refund", run_id=f"r{each}") for each in range(8)]
            for run in made:
                await wait_for_state(run, "waiting")
        async with anyio.create_task_group() as tasks:
            for run in made * 4:
                tasks.start_soon(read_on, run)
            await wait_for_count(ended, 32)  # each run waits for a decision
            looked_at = await count_readers_of_looks(monkeypatch, looks=12)
            assert sum(looked_at) >= 32 * 3, "one query asks for several readers"
            ended.clear()
            with worker_beside(url, desk):
                for run in made:
                    await decide_run(run)
                await wait_for_count(ended, 32)
    assert sorted(ended) == sorted([run.id for run in made] * 4)


async def test_a_reader_that_outlives_its_client_reads_on_to_the_end(url: str, tmp_path: Path) -> None:
    desk, ended = make_desk(tmp_path), list[bool]()

    async def read_on(run: DurableRun) -> None:
        ended.extend([isinstance(told.event, Done) async for told in run.events()])

    async with anyio.create_task_group() as tasks:
        async with DurableRuns(url) as runs:
            run = await runs.start(desk, "add")
            tasks.start_soon(read_on, run)
            await anyio.sleep(0.3)
        with worker_beside(url, desk), anyio.fail_after(90):
            while not ended or not ended[-1]:  # noqa: ASYNC110 - of another task
                await anyio.sleep(0.02)
