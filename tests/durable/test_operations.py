"""Runs are found, counted, tried again, cancelled and deleted by what they are, many at a time."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.serving import worker_beside
from tests.durable.test_retention import read_rows
from tests.durable.test_workers_limits import flip, wait_for_state
from toolkit import Deny, Modify
from toolkit.durable import DurableError, DurableLoop, DurableRun, DurableRuns, Encryption, RunFilters
from toolkit.errors import ConfigurationError

pytestmark = [pytest.mark.anyio, pytest.mark.real]

_LATER = datetime.now(UTC) + timedelta(days=1)
_RUNS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "a-done": ("add", "acme", {"customer": 1, "plan": "gold"}),
    "b-done": ("end", "bert", {"customer": 2, "plan": "gold"}),
    "c-failed": ("fail", "acme", {"customer": 3, "parts": ["x"]}),
    "d-failed": ("add fail", "bert", {"customer": 3, "is_new": True}),
    "e-waiting": ("refund", "acme", {"customer": "3"}),
}
_FOUND: list[tuple[RunFilters, str]] = [
    ({}, "abcde"),
    ({"state": "failed"}, "cd"),
    ({"loop": "desk", "tenant": "acme"}, "ace"),
    ({"ending": "ProviderError"}, "cd"),
    ({"ending": "complete"}, "ab"),
    ({"ending": "awaiting_approval"}, "e"),
    ({"error": "server is"}, "cd"),
    ({"error": "%"}, ""),
    ({"metadata": {"customer": 3}}, "cd"),
    ({"metadata": {"customer": "3"}}, "e"),
    ({"metadata": {"plan": "gold", "customer": 2}}, "b"),
    ({"metadata": {"is_new": True}}, "d"),
    ({"text": "BROKEN"}, "cd"),
    ({"text": "GOLD"}, "ab"),
    ({"text": "ert"}, "bd"),
    ({"text": "a-d"}, "a"),
    ({"since": datetime(2020, 1, 1, tzinfo=UTC), "before": _LATER, "state": "done"}, "ab"),
    ({"since": _LATER}, ""),
    ({"before": 1.0}, ""),
]

_SQLITE_FIRST = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)], indirect=True
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def desk(tmp_path: Path) -> DurableLoop[Desk, None]:
    return make_desk(tmp_path)


async def start_all(runs: DurableRuns, desk: DurableLoop[Desk, None]) -> dict[str, DurableRun[None]]:
    """Return the runs, at rest."""
    made: dict[str, DurableRun[None]] = {}
    for run_id, (prompt, tenant, metadata) in _RUNS.items():
        made[run_id] = await runs.start(desk, prompt, run_id=run_id, tenant=tenant, metadata=metadata)
        await wait_for_state(made[run_id], run_id.partition("-")[2])
    return made


async def find_letters(runs: DurableRuns, **filters: Any) -> str:
    return "".join(sorted(each.run_id[0] for each in await runs.list(**filters)))


async def test_runs_are_listed_and_counted_by_what_they_are(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None]
) -> None:
    with worker_beside(url, desk):
        await start_all(runs, desk)
    for filters, letters in _FOUND:
        assert await find_letters(runs, **filters) == letters, filters
        assert sum((await runs.count(**filters)).values()) == len(letters), filters
    assert await runs.count() == {"queued": 0, "running": 0, "waiting": 1, "done": 2, "failed": 2, "cancelled": 0}
    [failed] = await runs.list(text="c-failed")
    assert (failed.ending, failed.error) == ("ProviderError", "desk: the server is broken")
    assert dict(failed.metadata) == {"customer": 3, "parts": ["x"]}
    pages = [await runs.list(limit=2)]
    while pages[-1]:
        pages.append(await runs.list(limit=2, after=pages[-1][-1].run_id))
    assert [[each.run_id[0] for each in page] for page in pages] == [["e", "d"], ["c", "b"], ["a"], []]


@_SQLITE_FIRST
async def test_runs_that_failed_are_tried_again_and_others_cancelled_and_deleted_together(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None], tmp_path: Path
) -> None:
    with worker_beside(url, desk):
        made = await start_all(runs, desk)
        for change in (runs.retry_all, runs.cancel_all, runs.delete_all):
            with pytest.raises(ConfigurationError, match="this would change all runs"):
                await change()
        with pytest.raises(ConfigurationError, match="a run that is done can't be tried again"):
            await runs.retry_all(state="done")
        (tmp_path / "mended").touch()
        assert await runs.retry_all(error="broken", tenant="bert") == 1
        await wait_for_state(made["d-failed"], "done")
        assert read_notes(tmp_path, "d-failed") == ["add c0", "add c1"]
        [again] = await runs.list(text="d-failed")
        assert (again.ending, again.error) == ("complete", "")
        assert await runs.cancel_all("not needed", metadata={"customer": "3"}) == 1
        await wait_for_state(made["e-waiting"], "cancelled")
        assert await runs.cancel_all(tenant="acme") == 0, "those that have ended stay as they are"
        assert await runs.delete_all(tenant="acme") == 3
        assert await find_letters(runs) == "bd"
        assert set(read_rows(url)) == {"b-done", "d-failed"}
        assert await runs.delete_all(tenant="acme") == 0


@_SQLITE_FIRST
async def test_runs_that_await_decisions_are_deleted_together_only_where_that_is_asked(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None]
) -> None:
    with worker_beside(url, desk):
        await start_all(runs, desk)
    assert await runs.delete_all(loop=desk) == 4
    assert await runs.delete_all(state="waiting") == 1
    assert read_rows(url) == {}


_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"state": "lost"}, "the state of runs must be 'queued', "),
    ({"stat": "done"}, "runs are not found by 'stat'"),
    ({"since": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - what is refused
    ({"metadata": {"parts": ["x"]}}, "give a text, a number, True, False or None"),
    ({"error": 7}, "the error of runs must be text"),
]


@pytest.mark.parametrize(("filters", "words"), _REFUSED)
async def test_a_filter_that_finds_nothing_is_refused(tmp_path: Path, filters: dict[str, Any], words: str) -> None:
    async with DurableRuns(f"sqlite:///{tmp_path / 'runs.db'}") as runs:
        with pytest.raises(ConfigurationError, match=words):
            await runs.list(**filters)


@_SQLITE_FIRST
async def test_what_is_encrypted_is_found_by_what_was_left_readable(url: str, desk: DurableLoop[Desk, None]) -> None:
    encryption = Encryption(encrypt=flip, decrypt=flip, searchable=["customer"])
    async with DurableRuns(url, encryption=encryption) as runs:
        with worker_beside(url, desk, encryption=encryption):
            await start_all(runs, desk)
        assert await find_letters(runs, metadata={"customer": 3}) == "cd"
        assert await find_letters(runs, ending="ProviderError") == "cd"
        assert {each.error for each in await runs.list(state="failed")} == {"desk: the server is broken"}
        assert await find_letters(runs, text="broken") == ""
        with pytest.raises(ConfigurationError, match="searchable"):
            await runs.list(metadata={"plan": "gold"})
        with pytest.raises(ConfigurationError, match="are encrypted"):
            await runs.list(error="x")
    stored = str(read_rows(url))
    assert "broken" not in stored
    assert "gold" not in stored


@_SQLITE_FIRST
async def test_a_key_is_changed_while_runs_wait(url: str, desk: DurableLoop[Desk, None]) -> None:
    old = Encryption(encrypt=flip, decrypt=flip)
    new = Encryption(encrypt=lambda data: b"2" + data[::-1], decrypt=lambda data: data[:0:-1], key_id="2", older=[old])
    async with DurableRuns(url, encryption=old) as runs:
        with worker_beside(url, desk, encryption=old):
            await wait_for_state(await runs.start(desk, "refund", run_id="r"), "waiting")
    async with DurableRuns(url, encryption=new) as runs:
        run = await runs.get("r")
        with worker_beside(url, desk, encryption=new):
            [pending] = (await run.status()).pending
            await run.decide(pending.call_id, decision=True, binding=pending.binding)
            await wait_for_state(run, "done")
            assert (await run.result()).text == "Done after 1 turns: refund."
    async with DurableRuns(url, encryption=old) as runs:
        with pytest.raises(DurableError, match="is encrypted with the key '2': give that encryption in `older`"):
            await (await runs.get("r")).result()


@_SQLITE_FIRST
async def test_a_call_that_is_decided_is_marked_while_the_run_waits_for_a_worker(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None]
) -> None:
    run = await runs.start(desk, "both")
    with worker_beside(url, desk):
        await run.result(timeout=90)
    assert [each.decided for each in (await run.status()).pending] == ["", ""]
    for index, decision in ((1, Modify({"n": 7})), (0, Deny("no"))):
        pending = (await run.status()).pending[index]
        await run.decide(pending.call_id, decision, binding=pending.binding)
        status = await run.status()
        assert (status.state, status.pending[index].decided) == ("queued", ["deny", "modify"][index])
    assert [each.decided for each in status.pending] == ["deny", "modify"]
    with worker_beside(url, desk):
        await wait_for_state(run, "done")
        assert (await run.status()).pending == []
