"""Runs are found, counted, tried again, cancelled and deleted by what they are, many at a time."""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import event

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.postgres import SQLITE_FIRST, PostgresServer
from tests.durable.serving import worker_beside
from tests.durable.test_retention import read_rows
from tests.durable.test_runs_at_rest import counted_rows
from tests.durable.test_workers_limits import flip, wait_for_notes, wait_for_state
from toolkit import Deny, Modify, ToolResult
from toolkit.durable import DurableError, DurableLoop, DurableRun, DurableRuns, Encryption, RunFilters, RunPlace
from toolkit.durable.event_reader import open_durable_log
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
    ({"error": "BROKEN"}, "cd"),
    ({"text": "broken"}, ""),
    ({"text": "gol"}, "ab"),
    ({"text": "GOLD"}, ""),
    ({"text": "ert"}, ""),
    ({"text": "be"}, "bd"),
    ({"text": "a-d"}, "a"),
    ({"text": "3"}, "cde"),
    ({"text": "%"}, ""),
    ({"since": datetime(2020, 1, 1, tzinfo=UTC), "before": _LATER, "state": "done"}, "ab"),
    ({"since": _LATER}, ""),
    ({"before": 1.0}, ""),
]


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
    with counted_rows() as statements:
        assert [each.id for each in open_durable_log(url).runs(2)] == ["e-waiting", "d-failed"]
    assert any(" LIMIT " in each and "toolkit_runs" in each for each in statements), "the others are not read"


async def test_runs_are_found_by_the_beginning_of_a_text_without_reading_the_others(
    tmp_path: Path, desk: DurableLoop[Desk, None]
) -> None:
    plans: list[str] = []

    def explain(_: object, cursor: Any, statement: str, parameters: Any, *__: object) -> None:
        if "toolkit_labels" in statement:
            plans.extend(row[3] for row in cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    async with DurableRuns(f"sqlite:///{tmp_path / 'runs.db'}") as runs:
        await runs.start(desk, "add", run_id="r", tenant="acme", metadata={"customer": "Ada"})
        event.listen(sa.Engine, "before_cursor_execute", explain)
        try:
            assert [len(await runs.list(text=text)) for text in ("r", "ac", "Ad", "d")] == [1, 1, 1, 0]
        finally:
            event.remove(sa.Engine, "before_cursor_execute", explain)
    assert sum("SEARCH toolkit_labels" in each for each in plans) >= 4
    assert [each for each in plans if "SCAN toolkit" in each] == []


@SQLITE_FIRST
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


@SQLITE_FIRST
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


@SQLITE_FIRST
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


@SQLITE_FIRST
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


@SQLITE_FIRST
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


@SQLITE_FIRST
async def test_a_run_begins_at_its_time_or_when_it_is_cancelled(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None]
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1.5)
    run = await runs.start(desk, "add", at=soon)
    later = await runs.start(desk, "add", at=_LATER)
    with worker_beside(url, desk):
        result = await run.result(timeout=60)
        assert datetime.now(UTC) >= soon
        assert result.text == "Done after 1 turns: add."
        status = await later.status()
        assert (status.state, status.begins) == ("queued", _LATER.timestamp())
        with pytest.raises(TimeoutError, match=f"begins at {_LATER:%Y-%m-%d %H:%M:%S} UTC"):
            await later.result(timeout=0.1)
        await later.cancel("not needed")
        await wait_for_state(later, "cancelled")
    with pytest.raises(ConfigurationError, match="has no time zone"):
        await runs.start(desk, "add", at=datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused


@SQLITE_FIRST
async def test_runs_begin_by_a_schedule_until_it_is_deleted(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None]
) -> None:
    for cron in ("0 3 * * *", "* * * * * *"):  # the second one replaces the first
        await runs.schedule(desk, "add", name="tick", cron=cron, tenant="acme", metadata={"customer": 1})
    with worker_beside(url, desk), anyio.fail_after(120):
        while len(await runs.list(tenant="acme", state="done")) < 2:  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.05)
        [schedule] = await runs.list_schedules()
        assert (schedule.name, schedule.loop, schedule.cron) == ("tick", "desk", "* * * * * *")
        await runs.unschedule("tick")
        assert await runs.list_schedules() == []
    begun = {each.run_id for each in await runs.list(metadata={"customer": 1})}
    assert all(re.fullmatch(r"tick-\d{8}T\d{6}Z", each) for each in begun), begun


_NO_SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("the schedule 'x' can't be used: .*Invalid cron", {"cron": "often"}),
    ("Invalid timezone", {"timezone": "Mars"}),
    ("is no name of a schedule", {"name": "a b"}),
]


@pytest.mark.parametrize(("words", "settings"), _NO_SCHEDULES)
async def test_a_schedule_that_can_not_be_used_is_refused(
    tmp_path: Path, desk: DurableLoop[Desk, None], words: str, settings: dict[str, Any]
) -> None:
    async with DurableRuns(f"sqlite:///{tmp_path / 'runs.db'}") as runs:
        with pytest.raises(ConfigurationError, match=words):
            given: dict[str, Any] = {"name": "x", "cron": "0 3 * * *", **settings}
            await runs.schedule(desk, "add", **given)


async def test_a_result_that_no_worker_can_give_says_so(tmp_path: Path, desk: DurableLoop[Desk, None]) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "add")
        unseen = pytest.raises(TimeoutError, match="is queued, and no worker of loop desk is in sight")
        with worker_beside(url, make_desk(tmp_path, name="other")), unseen:
            await run.result(timeout=0.1)
        waiting = await runs.start(desk, "wait")
        with worker_beside(url, desk):
            await run.result(timeout=60)
            with pytest.raises(TimeoutError, match=r"is (queued|running)$"):
                await waiting.result(timeout=0.1)
            (tmp_path / f"go-{waiting.id}").touch()
            await waiting.result(timeout=60)


@pytest.mark.full
async def test_who_waits_for_a_result_is_warned_after_ten_seconds_without_a_worker(
    tmp_path: Path, desk: DurableLoop[Desk, None], caplog: pytest.LogCaptureFixture
) -> None:
    async with DurableRuns(f"sqlite:///{tmp_path / 'runs.db'}") as runs:
        run = await runs.start(desk, "add", run_id="r")
        with pytest.raises(TimeoutError):
            await run.result(timeout=12)
    assert [each.getMessage() for each in caplog.records if "no worker of loop desk" in each.getMessage()]


async def test_a_failure_is_logged_as_a_line_that_says_what_failed_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, desk = f"sqlite:///{tmp_path / 'runs.db'}", make_desk(tmp_path)

    def make_nothing(place: RunPlace) -> Desk:
        raise KeyError(place.loop)

    broken = replace(desk, name="broken", make_context=make_nothing)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk, broken):
            await wait_for_state(await runs.start(desk, "add fail", run_id="r"), "failed")
            await wait_for_state(await runs.start(broken, "add", run_id="s"), "failed")
    lines = [each.getMessage() for each in caplog.records if " failed in turn " in each.getMessage()]
    assert lines[0] == "durable run r of loop desk failed in turn 2: ProviderError: desk: the server is broken"
    assert lines[1].startswith("durable run s of loop broken failed in turn 0: KeyError: 'broken' (")
    assert lines[1].endswith(", in make_nothing)")


async def test_of_a_loop_that_stores_only_ends_replies_and_ends_are_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    stored: dict[str, tuple[int, list[str]]] = {}
    loops = {"all": make_desk(tmp_path), "ends": replace(make_desk(tmp_path, name="brief"), events="ends")}
    async with DurableRuns(url) as runs:
        with worker_beside(url, *loops.values()):
            for kind, loop in loops.items():
                run = await runs.start(loop, "add helper add", run_id=kind)
                await run.result(timeout=60)
                names = [type(each.event).__name__ async for each in run.events()]
                stored[kind] = (sum(len(line) for line in read_rows(url)[kind]["toolkit_events"]), names)
    ends = {"ResponseReceived", "ToolExecutionEnd", "Done"}
    assert stored["ends"][1] == [name for name in stored["all"][1] if name in ends]
    assert stored["ends"][0] < stored["all"][0] / 2


@SQLITE_FIRST
async def test_figures_of_the_runs_and_of_the_worker_are_measured(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None], tmp_path: Path
) -> None:
    reader = InMemoryMetricReader()
    await runs.start(make_desk(tmp_path, name="other"), "add", run_id="queued")
    await runs.start(desk, "add", run_id="later", at=_LATER)
    with worker_beside(url, desk, meter_provider=MeterProvider([reader]), lease=0.5):
        await start_all(runs, desk)
        moving = await runs.start(desk, "wait", run_id="moving")
        await wait_for_notes(tmp_path, [moving], 1)
        with anyio.fail_after(120):
            while "runs" not in read_metrics(reader):  # noqa: ASYNC110 - until the worker has looked for others
                await anyio.sleep(0.05)
        found = read_metrics(reader)
        (tmp_path / "go-moving").touch()
        await moving.result(timeout=60)
    assert found["runs"] == {"queued": 1, "running": 1, "waiting": 1, "failed": 2}
    assert found["queue.age"][""] > 0
    assert [*found["waiting"]] == ["1m", "10m", "1h", "1d", "7d"]
    assert found["waiting"]["10m"] == 0
    assert (found["taken_over"], found["worker.runs"], found["worker.take_overs"]) == ({"": 0}, {"": 1}, {"": 0})
    assert found["worker.event_lag"][""] >= 0
    assert read_metrics(reader) == {}, "none of a worker that has ended"


def read_metrics(reader: InMemoryMetricReader) -> dict[str, dict[str, float]]:
    """Return the values of our gauges, by their attribute."""
    data: Any = reader.get_metrics_data()
    if data is None:
        return {}
    metrics = [each for resource in data.resource_metrics for scope in resource.scope_metrics for each in scope.metrics]
    return {
        metric.name.removeprefix("toolkit.durable."): {
            next(iter(point.attributes.values()), ""): point.value for point in metric.data.data_points
        }
        for metric in metrics
        if metric.data.data_points
    }


@pytest.mark.full
async def test_a_backup_that_is_made_while_runs_move_is_restored_and_they_go_on(
    runs: DurableRuns, url: str, desk: DurableLoop[Desk, None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with worker_beside(url, desk, grace=0):
        await wait_for_state(await runs.start(desk, "add refund", run_id="waiting"), "waiting")
        moving = await runs.start(desk, "add wait add", run_id="moving")
        while "wait c1" not in read_notes(tmp_path, "moving"):  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.02)
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
            restored = f"sqlite:///{tmp_path / 'copy.db'}"
        else:
            server: PostgresServer = request.getfixturevalue("postgres")
            restored = server.make_database()
            server.load(restored, server.dump(url))
        (tmp_path / "go-moving").touch()
        await moving.result(timeout=60)
    async with DurableRuns(restored) as copies:
        assert (await copies.count())["running"] == 1
        with worker_beside(restored, desk, lease=0.5):
            copy, waiting = await copies.get("moving"), await copies.get("waiting")
            result = await copy.result(timeout=60)
            assert "may have taken effect" in [each.text for each in result.messages if isinstance(each, ToolResult)][1]
            [pending] = (await waiting.status()).pending
            await waiting.decide(pending.call_id, decision=True, binding=pending.binding)
            await wait_for_state(waiting, "done")
    assert read_notes(tmp_path, "moving").count("add c2") == 2, "what was done after the backup is done again"
