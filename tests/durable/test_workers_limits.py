"""How workers share runs out, what they delete, what they store and how it is read; on SQLite, in this process."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.durable.desk import make_desk, read_notes
from tests.durable.serving import worker_beside
from toolkit import ConfigurationError, Steering, ToolLoopConfig
from toolkit.durable import (
    DurableError,
    DurableRun,
    DurableRuns,
    DurableWorker,
    Encryption,
    LoopQueue,
    StartRate,
)
from toolkit.durable.event_reader import open_durable_log
from toolkit.errors import LoopUsageError
from toolkit.run_log import export_markdown

pytestmark = pytest.mark.anyio


_FLIPPED = bytes(byte ^ 0x5A for byte in range(256))


def flip(data: bytes) -> bytes:
    return data.translate(_FLIPPED)


ENCRYPTION = Encryption(encrypt=flip, decrypt=flip)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


async def wait_for_state(run: DurableRun, state: str) -> None:
    with anyio.fail_after(90):
        while (await run.status()).state != state:  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.02)


async def wait_for_notes(folder: Path, runs: list[DurableRun], count: int) -> list[DurableRun]:
    with anyio.fail_after(90):
        while True:
            begun = [run for run in runs if read_notes(folder, run.id)]
            if len(begun) >= count:
                return begun
            await anyio.sleep(0.02)


async def test_a_tenant_has_no_more_runs_at_once_than_it_may_and_others_are_not_held_up(
    url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path, queue=LoopQueue(concurrency=3, tenant_concurrency=2))
    async with DurableRuns(url) as runs:
        many = [await runs.start(desk, "wait", tenant="many") for _ in range(4)]
        few = await runs.start(desk, "wait", tenant="few")
        with worker_beside(url, desk, grace=0):
            await wait_for_notes(tmp_path, [few], 1)
            begun = await wait_for_notes(tmp_path, many, 2)
            await anyio.sleep(0.5)
            assert len([run for run in many if read_notes(tmp_path, run.id)]) == 2
            for run in [few, *many]:
                (tmp_path / f"go-{run.id}").touch()
            for run in [few, *many]:
                await wait_for_state(run, "done")
        assert len(begun) == 2


async def test_runs_of_a_lower_number_begin_first(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path, queue=LoopQueue(concurrency=1))
    async with DurableRuns(url) as runs:
        late = await runs.start(desk, "add", run_id="late", priority=9)
        middle = await runs.start(desk, "add", run_id="middle", priority=5)
        first = await runs.start(desk, "add", run_id="first")
        with worker_beside(url, desk):
            for run in (late, middle, first):
                await wait_for_state(run, "done")
    order = [line.split()[0] for line in (tmp_path / "notes").read_text().splitlines()]
    assert order == ["first", "middle", "late"]


async def test_a_call_that_nobody_decides_on_in_time_is_denied(url: str, tmp_path: Path) -> None:
    desk = replace(make_desk(tmp_path), approval_expiry=0.2)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "refund")
            await wait_for_state(run, "done")
            result = await run.result()
    assert "nobody decided in time" in result.messages[2].text
    assert read_notes(tmp_path, run.id) == []


async def test_what_is_stored_can_be_encrypted_and_not_be_read_without(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url, encryption=ENCRYPTION) as runs:
        with worker_beside(url, desk, encryption=ENCRYPTION):
            run = await runs.start(desk, "add canary-of-the-mine", metadata={"name": "canary-of-the-mine"})
            await wait_for_state(run, "done")
            assert "canary-of-the-mine" in (await run.result()).text
            assert [told async for told in run.events()]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        assert "canary" not in "\n".join(database.iterdump())
    async with DurableRuns(url) as others:
        with pytest.raises(DurableError, match="a stored value is encrypted: give the encryption"):
            await others.get(run.id)
    wrong = Encryption(encrypt=flip, decrypt=lambda data: bytes(reversed(data)))
    async with DurableRuns(url, encryption=wrong) as others:
        with pytest.raises(DurableError, match="another key"):
            await others.get(run.id)


async def test_runs_that_ended_are_deleted_in_time_and_those_that_wait_are_not(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk, keep_seconds=0.1):
            done, waits = await runs.start(desk, "add"), await runs.start(desk, "refund")
            await wait_for_state(waits, "waiting")
            with anyio.fail_after(90):
                while [status.run_id for status in await runs.list()] != [waits.id]:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
        assert done.id != waits.id
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        kept = {run_id for (run_id,) in database.execute("select run_id from toolkit_events")}
    assert kept == {waits.id}


async def test_secrets_are_struck_out_of_what_is_told(url: str, tmp_path: Path) -> None:
    desk, key = make_desk(tmp_path), "sk-" + "a1" * 20
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, f"add {key}")
            await wait_for_state(run, "done")
            told = str((await run.export())["events"])
            assert key in (await run.result()).text
    assert key not in told


async def test_durable_runs_are_read_as_run_logs_are(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "add add", run_id="ticket17")
            await wait_for_state(run, "done")
    log = open_durable_log(url)
    (summary,) = log.runs()
    assert (summary.id, summary.state, summary.ending, summary.requests, summary.tool_calls) == (
        "ticket17",
        "ended",
        "complete",
        3,
        2,
    )
    assert summary.prompt == "add add"
    assert log.find("tick") == "ticket17"
    assert "Done after 2 turns: add add." in export_markdown(log, "ticket17")
    assert [entry.kind for entry in log.read("ticket17")][-1] == "done"


def test_settings_that_can_not_be_durable_are_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    steered = ToolLoopConfig(steering=Steering())
    with pytest.raises(ConfigurationError, match=r"run\.steer"):
        replace(desk, config=steered)
    with pytest.raises(ConfigurationError, match="ctx=lambda run"):
        replace(desk, make_context=None)
    with pytest.raises(ConfigurationError, match="no name of a durable loop"):
        make_desk(tmp_path, name="a loop")
    with pytest.raises(ConfigurationError, match="one tenant can't have more than all"):
        LoopQueue(concurrency=1, tenant_concurrency=2)
    with pytest.raises(ConfigurationError, match="limit of a StartRate"):
        StartRate(0, 1.0)
    with pytest.raises(ConfigurationError, match="two durable loops are named 'desk'"):
        DurableWorker([desk, make_desk(tmp_path)], "sqlite:///x.db")
    with pytest.raises(ConfigurationError, match="without a loop"):
        DurableWorker([], "sqlite:///x.db")


async def test_a_worker_says_where_it_can_not_run(url: str, tmp_path: Path, anyio_backend_name: str) -> None:
    desk = make_desk(tmp_path)
    if anyio_backend_name == "trio":
        with pytest.raises(LoopUsageError, match="runs on asyncio"):
            async with DurableWorker([desk], url):
                pass
        return
    with worker_beside(url, desk), pytest.raises(LoopUsageError, match="a worker in this process already"):
        async with DurableWorker([desk], url):
            pass
