"""Databases of each version of the tables, kept as files: later versions migrate them and go on with their runs.

``python -m tests.durable.kept_databases`` writes those of a new version, and must not be run for an old one.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.postgres import PostgresServer, start_postgres
from tests.forked import fork_process
from toolkit import Approve
from toolkit.durable import DurableLoop, DurableRuns, DurableWorker
from toolkit.durable.storage import TABLES_VERSION

FOLDER = Path(__file__).with_name("kept_databases")
LARGE = "large" * 4_000
"""So large that it is stored beside the rows."""

PROMPTS: Mapping[str, str] = {
    "done": "add",
    "failed": "add fail add",
    "cancelled": "refund",
    "waiting": "add refund add",
    "both": "both",
    "large": f"refund {LARGE}",
    "moving": "add wait add",
    "queued": "add",
}
STATES: Mapping[str, str] = {
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "waiting": "waiting",
    "both": "waiting",
    "large": "waiting",
    "moving": "running",
    "queued": "queued",
}
"""The state of each run in the kept databases. Of ``both`` one call is decided, and the other one awaits it."""


async def _work(folder: Path, url: str) -> None:
    async with DurableWorker([make_desk(folder)], url, lease=1.0):
        await anyio.sleep_forever()


async def _wait_for_state(runs: DurableRuns, run_id: str, state: str) -> None:
    run = await runs.get(run_id)
    with anyio.fail_after(120):
        while (await run.status()).state != state:  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)


async def _make_runs(folder: Path, url: str, desk: DurableLoop[Desk, Any]) -> None:
    worker = fork_process(anyio.run, _work, folder, url, log=folder / "worker.log")
    async with DurableRuns(url) as runs:
        try:
            for number, (run_id, prompt) in enumerate(PROMPTS.items()):
                if run_id != "queued":
                    metadata = {"customer": number, "plan": "gold"}
                    await runs.start(desk, prompt, run_id=run_id, tenant=f"t{number % 2}", metadata=metadata)
            for run_id, state in STATES.items():
                if state in ("done", "failed", "waiting"):
                    await _wait_for_state(runs, run_id, state)
            cancelled = await runs.get("cancelled")
            await cancelled.cancel("not wanted")
            await _wait_for_state(runs, "cancelled", "cancelled")
            both = await runs.get("both")
            pending = (await both.status()).pending[0]
            await both.decide(pending.call_id, Approve(), binding=pending.binding)
            with anyio.fail_after(120):
                while len((await both.status()).pending) != 1:  # noqa: ASYNC110 - of another process
                    await anyio.sleep(0.02)
                while "wait c1" not in read_notes(folder, "moving"):  # noqa: ASYNC110 - of another process
                    await anyio.sleep(0.02)
            await anyio.sleep(1)  # the last rows are written
        finally:
            worker.kill()
            worker.join(60)
        await runs.start(desk, PROMPTS["queued"], run_id="queued", metadata={"customer": 7, "plan": "gold"})
        waiting = await runs.get("waiting")
        await waiting.say("add")


def restore_sqlite(version: int, file: Path) -> str:
    """Write a kept database as a file; return its URL."""
    file.write_bytes(gzip.decompress((FOLDER / f"v{version}.sqlite3.gz").read_bytes()))
    return f"sqlite:///{file}"


def restore_postgres(version: int, server: PostgresServer) -> str:
    """Load a kept database into a server; return its URL."""
    url = server.make_database()
    server.load(url, gzip.decompress((FOLDER / f"v{version}.sql.gz").read_bytes()).decode())
    return url


def _save(name: str, content: bytes) -> None:
    path = FOLDER / name
    if path.exists():
        raise FileExistsError(f"{path} is never written again: a new version of the tables gets a file of its own")
    path.write_bytes(gzip.compress(content, mtime=0))


def _save_sqlite(folder: Path) -> None:
    file, copy = folder / "runs.db", folder / "copy.db"
    anyio.run(_make_runs, folder, f"sqlite:///{file}", make_desk(folder))
    connection = sqlite3.connect(file)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.close()
    _save(f"v{TABLES_VERSION}.sqlite3.gz", copy.read_bytes())


def _save_postgres(folder: Path) -> None:
    server = start_postgres()
    try:
        url = server.make_database()
        anyio.run(_make_runs, folder, url, make_desk(folder))
        _save(f"v{TABLES_VERSION}.sql.gz", server.dump(url).encode())
    finally:
        server.stop()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for save in (_save_sqlite, _save_postgres):
        with TemporaryDirectory() as temporary:
            save(Path(temporary))
