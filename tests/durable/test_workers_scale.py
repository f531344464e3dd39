"""Many runs over several workers: how many a second, how long a turn takes, what is stored of each."""

import os
import statistics
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from tests.durable.desk import make_desk, read_notes
from tests.durable.postgres import start_postgres
from tests.durable.serving import worker_beside
from tests.durable.test_workers_kills import Nursery
from toolkit.durable import DurableRuns
from toolkit.events import IterationStart, TextDelta

_WORDS = "add add add add add"
_TABLES = ("workflow_status", "toolkit_entries", "toolkit_runs", "toolkit_events")
_TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def database_of(kind: str, folder: Path) -> Generator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'runs.db'}"
        return
    server = start_postgres()
    try:
        yield server.make_database()
    finally:
        server.stop()


def count_stored(url: str) -> tuple[int, int]:
    """Return how many rows a database has, and how many bytes."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    is_postgres = engine.dialect.name == "postgresql"
    rows = 0
    with engine.connect() as connection:
        for table in _TABLES:
            name = f"dbos.{table}" if is_postgres and not table.startswith("toolkit") else table
            rows += connection.scalar(sa.text(f"select count(*) from {name}")) or 0
        size = "select pg_database_size(current_database())" if is_postgres else "pragma page_count"
        found = connection.scalar(sa.text(size)) or 0
        scale = 1 if is_postgres else connection.scalar(sa.text("pragma page_size")) or 1
    engine.dispose()
    return rows, found * scale


def read_cpu(pid: int) -> float:
    """Return how many seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def move_many(runs: DurableRuns, nursery: Nursery, folder: Path, count: int) -> str:
    """Move so many runs over the workers of the nursery; return a row of the table."""
    desk = make_desk(folder)
    for _ in range(4):
        nursery.start_worker()
    began = time.monotonic()
    made = [await runs.start(desk, _WORDS, run_id=f"run{each}x{count}", tenant=f"t{each % 7}") for each in range(count)]
    with anyio.fail_after(3_000):
        while await runs.list(state="queued", limit=1) or await runs.list(state="running", limit=1):  # noqa: ASYNC110
            await anyio.sleep(0.2)  # until other processes have done it
    seconds = time.monotonic() - began
    cpu = sum(read_cpu(worker.pid) for worker in nursery.workers if worker.pid is not None)
    turns: list[float] = []
    for run in made:
        assert (await run.result()).text.startswith("Done after 5 turns"), run.id
        starts = [told.event.time async for told in run.events() if isinstance(told.event, IterationStart)]
        turns += [later - earlier for earlier, later in pairwise(starts)]
        assert len(read_notes(folder, run.id)) == 5
    turns.sort()
    p50, p95 = statistics.median(turns) * 1_000, turns[int(len(turns) * 0.95)] * 1_000
    spent = cpu / count * 1_000
    return f"{count / seconds:.1f} runs/s | p50 {p50:.0f} ms, p95 {p95:.0f} ms a turn | {spent:.0f} ms CPU a run"


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("database", "count"), [("sqlite", 300), ("postgres", 1_000)])
async def test_many_runs_move_over_four_workers(tmp_path: Path, database: str, count: int) -> None:
    count = int(os.environ.get("TOOLKIT_DURABLE_RUNS", count))
    with database_of(database, tmp_path) as url:
        async with DurableRuns(url) as runs:
            _, empty = count_stored(url)
            with closing(Nursery(tmp_path, url, lease=10)) as nursery:
                row = await move_many(runs, nursery, tmp_path, count)
            stored, size = count_stored(url)
    print(
        f"| {database} | {count} | {row} | {stored / count:.0f} rows, {(size - empty) / count / 1_024:.1f} kB a run |"
    )


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_turn_costs_the_same_after_two_hundred(tmp_path: Path, database: str) -> None:
    desk = make_desk(tmp_path)
    desk = replace(desk, config=replace(desk.config, max_iterations=500))
    with database_of(database, tmp_path) as url, worker_beside(url, desk):
        async with DurableRuns(url) as runs:
            run = await runs.start(desk, "add " * 220)
            delays = [time.time() - told.event.time async for told in run.events() if not is_text(told.event)]
            starts = [told.event.time async for told in run.events() if isinstance(told.event, IterationStart)]
    turns = [(later - earlier) * 1_000 for earlier, later in pairwise(starts)]
    first, last = statistics.median(turns[10:60]), statistics.median(turns[-50:])
    assert len(turns) == 220
    later = statistics.median(delays)
    print(f"| {database} | {first:.1f} ms a turn at first, {last:.1f} ms after 170 | read {later:.3f} s later |")


def is_text(event: object) -> bool:
    return isinstance(event, TextDelta)
