"""A million durable runs in a database: how long lists, counts and deletions by filters take.

``python -m bench.many_runs sqlite:////tmp/many.db``, or ``postgresql://...``: a new database, which is filled.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import sqlalchemy as sa

from toolkit import ToolRegistry
from toolkit.durable import DurableRuns, durable_loop
from toolkit.durable.operations import RunSearch
from toolkit.durable.storage import Storage
from toolkit.testing import ScriptedProvider

_LOOP = durable_loop("desk", provider=ScriptedProvider([]), registry=ToolRegistry())
_RUNS = """
    INSERT INTO toolkit_runs (run_id, loop, tenant, priority, metadata, state, segment, attempts, lost, ended, last_seq,
        created, updated, ending, error, described)
    SELECT 'r' || n, loop, 't' || (n % 100), 0, metadata,
        CASE WHEN n % 100 < 90 THEN 'done' WHEN n % 100 < 95 THEN 'failed' WHEN n % 100 < 98 THEN 'waiting'
            ELSE 'cancelled' END,
        1, 1, 0, 0, 1, created - n, created - n,
        CASE WHEN n % 100 < 90 THEN 'complete' WHEN n % 100 < 95 THEN 'ProviderError'
            WHEN n % 100 < 98 THEN 'awaiting_approval' ELSE 'cancelled' END,
        CASE WHEN n % 100 BETWEEN 90 AND 94 THEN ' openai: error ' || n || ' of the server' ELSE '' END, 1
    FROM toolkit_runs, numbers WHERE run_id = 'first'"""
_LABELS = "INSERT INTO toolkit_labels SELECT 'r' || n, 'customer', CAST(n % 100000 AS TEXT) FROM numbers"
_EVENTS = """
    INSERT INTO toolkit_events (run_id, seq, segment, turn, attempt, line)
    SELECT 'r' || n, 1, 1, 1, 'a', '{"event":"done"}' FROM numbers"""


def fill(url: str, count: int) -> None:
    """Copy the run ``first`` so often, with a label, an event and its row of the engine each."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    is_postgres = engine.dialect.name == "postgresql"
    status = "dbos.workflow_status" if is_postgres else "workflow_status"
    with engine.begin() as connection:
        numbers = "SELECT n FROM generate_series(1, :count) AS n"
        if not is_postgres:
            numbers = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :count) SELECT n FROM s"
        connection.execute(sa.text("CREATE TABLE numbers (n INTEGER)"))
        connection.execute(sa.text(f"INSERT INTO numbers {numbers}"), {"count": count})
        for statement in (_RUNS, _LABELS, _EVENTS):
            connection.execute(sa.text(statement))
        columns = [
            each["name"]
            for each in sa.inspect(connection).get_columns("workflow_status", schema="dbos" if is_postgres else None)
            if each["name"] not in ("workflow_uuid", "status", "deduplication_id")
        ]
        names = ", ".join(columns)
        connection.execute(
            sa.text(
                f"INSERT INTO {status} (workflow_uuid, status, {names}) SELECT 'r' || n || '/1', 'SUCCESS', {names} "
                f"FROM {status}, numbers WHERE workflow_uuid = 'first/1'"
            )
        )
        connection.execute(sa.text("DROP TABLE numbers"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("VACUUM ANALYZE" if is_postgres else "ANALYZE"))
    engine.dispose()


async def measure(name: str, work: Callable[[], Awaitable[list[Any] | dict[Any, int] | int]]) -> None:
    """Print the median and the longest of five."""
    seconds: list[float] = []
    size = 0
    for _ in range(5):
        began = time.perf_counter()
        match await work():
            case list(found):
                size = len(found)
            case dict(counts):
                size = sum(counts.values())
            case number:
                size = number
        seconds.append(time.perf_counter() - began)
    print(f"| {name} | {sorted(seconds)[2] * 1_000:,.0f} ms | {max(seconds) * 1_000:,.0f} ms | {size:,} |", flush=True)


async def main(url: str, count: int) -> None:
    """Fill a database, and measure it."""
    async with DurableRuns(url) as runs:
        await runs.start(_LOOP, "Where is my order?", run_id="first", metadata={"customer": -1})
        began = time.perf_counter()
        await anyio.to_thread.run_sync(fill, url, count)
        print(f"{count:,} runs in {time.perf_counter() - began:.0f} s", flush=True)
        hour = time.time() - 3_600
        lists: dict[str, dict[str, Any]] = {
            "list()": {},
            "list(state='failed')": {"state": "failed"},
            "list(tenant='t93')": {"tenant": "t93"},
            "list(tenant='t7', state='done', ending='complete')": {
                "tenant": "t7",
                "state": "done",
                "ending": "complete",
            },
            "list(ending='ProviderError', since=an_hour_ago)": {"ending": "ProviderError", "since": hour},
            "list(metadata={'customer': 4711})": {"metadata": {"customer": 4711}},
            "list(state='failed', error='error 1234')": {"state": "failed", "error": "error 1234"},
            "list(text='r654321')": {"text": "r654321"},
            "list(state='failed', before=1.0)": {"state": "failed", "before": 1.0},
        }
        for name, filters in lists.items():
            await measure(name, partial(runs.list, **filters))
        counts: dict[str, dict[str, Any]] = {
            "count()": {},
            "count(tenant='t7')": {"tenant": "t7"},
            "count(since=an_hour_ago)": {"since": hour},
        }
        for name, filters in counts.items():
            await measure(name, partial(runs.count, **filters))
        storage = await anyio.to_thread.run_sync(Storage, url)
        search = RunSearch(storage)
        meant: list[tuple[str, dict[str, Any]]] = [
            ("done", {"tenant": "t7"}),
            ("failed", {"ending": "ProviderError", "tenant": "t93"}),
        ]
        for state, filters in meant:
            await measure(
                f"a slice of delete_all({', '.join(f'{key}={value!r}' for key, value in filters.items())})",
                partial(anyio.to_thread.run_sync, partial(search.delete_slice, [state], **filters)),
            )
        storage.close()
        began = time.perf_counter()
        deleted = await runs.delete_all(tenant="t8")
        print(f"delete_all(tenant='t8'): {deleted:,} runs in {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--runs", type=int, default=1_000_000)
    given = parser.parse_args()
    anyio.run(main, given.url, given.runs)
