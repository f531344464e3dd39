"""What is said to a run while it comes to rest, and before a worker takes it up again: it is kept, or told why not."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
import sqlalchemy as sa
from dbos import error as dbos_error

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.serving import worker_beside
from tests.durable.test_damaged_logs import stop_in_mid_run
from tests.durable.test_runs_at_rest import counted_rows
from tests.durable.test_workers_limits import wait_for_state
from toolkit import Approve, Deny, LoopLimits, Middleware, ToolLoopConfig, ToolResult, UsageLimits
from toolkit.chat import UserMessage, validate_transcript
from toolkit.durable import (
    DecisionRefusedError,
    DurableError,
    DurableLoop,
    DurableRun,
    DurableRuns,
    client as client_module,
    worker as worker_module,
)
from toolkit.durable.rows import RunRows
from toolkit.durable.storage import Storage, inbox
from toolkit.loop.approvals import PendingApproval
from toolkit.policies import CallInfo, RunInfo

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PATIENCE", 2)


@contextmanager
def worker_that_ends_at_the_rest(
    url: str, desk: DurableLoop[Desk, None], monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """Run a worker that ends when a run has come to rest, and before the engine has kept how."""
    runner = worker_module.SegmentRunner
    finish: Any = runner._finish_attempt  # pyright: ignore[reportPrivateUsage]

    def finish_and_end(self: Any, mover: Any, left: Any) -> Any:
        finish(self, mover, left)
        raise dbos_error.DBOSWorkflowConflictIDError("the worker has ended")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_finish_attempt", finish_and_end)
        with worker_beside(url, desk, grace=0):
            yield


async def end_worker_at(url: str, desk: DurableLoop[Desk, None], patch: pytest.MonkeyPatch, run: DurableRun) -> None:
    """Have a worker end as the run has come to rest."""
    with worker_that_ends_at_the_rest(url, desk, patch), anyio.fail_after(120):
        async with DurableRuns(url) as runs:
            while (await runs.list())[0].state in ("queued", "running"):  # noqa: ASYNC110 - of another thread
                await anyio.sleep(0.02)
    assert (await run.status()).state == "running", "it is not known yet how it stands"


async def rest_with_two_calls(url: str, desk: DurableLoop[Desk, None], runs: DurableRuns) -> list[PendingApproval]:
    with worker_beside(url, desk):
        run = await runs.start(desk, "both add", run_id="r")
        await wait_for_state(run, "waiting")
        return list((await run.status()).pending)


async def test_a_decision_is_kept_until_it_is_known_how_the_run_has_come_to_rest(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        first, second = await rest_with_two_calls(url, desk, runs)
        run = await runs.get("r")
        await run.decide(first.call_id, Approve(), binding=first.binding)
        await end_worker_at(url, desk, monkeypatch, run)
        refused: list[DecisionRefusedError] = []

        async def decide() -> None:
            try:
                await run.decide(second.call_id, Approve(), binding=second.binding)
            except DecisionRefusedError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(decide)
        assert len(refused) == 2, "one decides, and the others are told"
        assert all("somebody has decided on it already" in str(error) for error in refused)
        with pytest.raises(DecisionRefusedError, match="look at it again"):
            await run.decide(second.call_id, Approve(), binding="0" * 64)
        with pytest.raises(DecisionRefusedError, match=r"is about to rest.*`status\(\)` says it at its rest"):
            await run.decide("c9", Approve(), binding=second.binding)
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(run, "done")
    assert sorted(read_notes(tmp_path, "r")) == ["add c1", "refund c0.0 0", "refund c0.1 1"]


async def test_a_decision_is_kept_before_a_worker_takes_the_run_up(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        first, second = await rest_with_two_calls(url, desk, runs)
        run = await runs.get("r")
        await run.decide(first.call_id, Deny("no"), binding=first.binding)
        await run.decide(second.call_id, Approve(), binding=second.binding)
        with pytest.raises(DecisionRefusedError, match="somebody has decided on it already"):
            await run.decide(second.call_id, Deny("no"), binding=second.binding)
        with pytest.raises(DecisionRefusedError, match="the run moves, and it is not known yet"):
            await run.decide("c9", Approve(), binding=second.binding)
        with worker_beside(url, desk):
            await wait_for_state(run, "done")
    assert sorted(read_notes(tmp_path, "r")) == ["add c1", "refund c0.1 1"]


async def test_a_decision_on_a_run_that_is_being_cancelled_is_refused(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        first, _ = await rest_with_two_calls(url, desk, runs)
        run = await runs.get("r")
        await run.cancel()
        with pytest.raises(DecisionRefusedError, match="the run is being cancelled"):
            await run.decide(first.call_id, Approve(), binding=first.binding)
        with worker_beside(url, desk):
            await wait_for_state(run, "cancelled")
    assert read_notes(tmp_path, "r") == []


async def test_a_decision_outlives_a_failure_and_one_on_a_run_that_has_failed_is_told_what_to_do(
    url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path)

    def refuse(run: object) -> Desk:
        raise RuntimeError("the customers' database is away")

    async with DurableRuns(url) as runs:
        first, second = await rest_with_two_calls(url, desk, runs)
        run = await runs.get("r")
        await run.decide(first.call_id, Approve(), binding=first.binding)
        with worker_beside(url, replace(desk, make_context=refuse)):
            await wait_for_state(run, "failed")
        with pytest.raises(DecisionRefusedError, match=r"the run has failed: `retry\(\)` it, and decide when it waits"):
            await run.decide(second.call_id, Approve(), binding=second.binding)
        await run.retry()
        with pytest.raises(DurableError, match="run 'r' is queued: only one that failed"):
            await run.retry()
        await run.decide(second.call_id, Approve(), binding=second.binding)  # as it goes on from where it waited
        with worker_beside(url, replace(desk, make_context=refuse)):
            await wait_for_state(run, "failed")
        await run.retry()
        with worker_beside(url, desk):
            await wait_for_state(run, "done")
            messages = (await run.result()).messages
    assert sorted(read_notes(tmp_path, "r")) == ["add c1", "refund c0.0 0", "refund c0.1 1"]
    validate_transcript(messages)


async def test_what_is_said_as_a_run_comes_to_rest_reaches_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "add", run_id="r")
        await end_worker_at(url, desk, monkeypatch, run)
        await run.say("say")
        await run.steer("steer")
        with worker_beside(url, desk, lease=0.5):
            said: list[str] = []
            with anyio.fail_after(90):
                while len(said) < 3:
                    messages = (await run.result()).messages
                    said = [message.text for message in messages if isinstance(message, UserMessage)]
                    await anyio.sleep(0.02)
    assert sorted(said) == ["add", "say", "steer"]
    assert read_notes(tmp_path, "r") == ["add c0"]


async def test_a_cancel_as_a_run_comes_to_rest_leaves_what_it_has_done(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "add", run_id="r")
        await end_worker_at(url, desk, monkeypatch, run)
        await run.cancel("enough")
        with worker_beside(url, desk, lease=0.5):
            result = await run.result(timeout=90)
            assert (await run.status()).state == "done"
            results = [message.text for message in result.messages if isinstance(message, ToolResult)]
            assert results == ["added 0"]
            validate_transcript(result.messages)


@pytest.mark.parametrize("words", ["add refund add", "add wait add"])
async def test_a_cancelled_run_goes_on_with_what_is_said_later_and_not_with_what_was_said_before(
    url: str, tmp_path: Path, words: str
) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, words, run_id="r")
            with anyio.fail_after(120):
                while "refund" in words or "wait c1" not in read_notes(tmp_path, "r"):
                    if (await run.status()).state == "waiting":
                        break
                    await anyio.sleep(0.02)
            await run.say("add")
            await run.cancel("enough")
            await wait_for_state(run, "cancelled")
        storage = await anyio.to_thread.run_sync(Storage, url)
        with closing(storage):
            rows = RunRows(storage)
            assert await anyio.to_thread.run_sync(rows.find_called, 10) == {}
            assert not await anyio.to_thread.run_sync(rows.begin_next, "r")
        with worker_beside(url, desk):
            await run.say("add add")
            await wait_for_state(run, "done")
            said = [message.text for message in (await run.result()).messages if isinstance(message, UserMessage)]
    assert said == [words, "add", "add add"], "nothing is lost, and each stands once"


async def test_a_retry_as_a_run_fails_is_kept_and_a_second_one_is_told(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "add fail", run_id="r")
        await end_worker_at(url, desk, monkeypatch, run)
        await run.retry()
        with pytest.raises(DurableError, match="is being tried again already"):
            await run.retry()
        (tmp_path / "mended").touch()
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(run, "done")
            assert (await run.result()).text == "Done after 2 turns: add fail."
    assert read_notes(tmp_path, "r") == ["add c0", "add c1"]


def begin_nothing(rows: RunRows, run_id: str) -> bool:
    return False


async def test_what_was_said_by_a_client_that_ended_in_mid_word_is_taken_by_an_idle_worker(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "add", run_id="r")
            await wait_for_state(run, "done")
            with monkeypatch.context() as patch:
                patch.setattr(RunRows, "begin_next", begin_nothing)
                await run.say("add add")
            with anyio.fail_after(120):
                while (await run.result()).text != "Done after 3 turns: add add add.":  # noqa: ASYNC110 - of a thread
                    await anyio.sleep(0.02)
    assert read_notes(tmp_path, "r") == ["add c0", "add c2"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_with_nothing_to_do_looks_for_messages_at_a_pace_of_its_own(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    find: Any = RunRows.find_called

    def find_and_note(self: RunRows, limit: int) -> dict[str, int]:
        looks.append(limit)
        found: dict[str, int] = find(self, limit)
        return found

    monkeypatch.setattr(RunRows, "find_called", find_and_note)
    monkeypatch.setattr(worker_module, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(worker_module, "_IDLE_LOOK_SECONDS", 3_600)
    with worker_beside(url, make_desk(tmp_path), lease=0.1), counted_rows() as statements, anyio.fail_after(120):
        while len([each for each in statements if "toolkit_workers" in each]) < 20:  # noqa: ASYNC110 - of a thread
            await anyio.sleep(0.02)
    assert len(looks) <= 2, "at its start and its end"


@pytest.mark.parametrize("step", ["_read_inbox", "_read_start"])
async def test_what_is_said_stands_once_whenever_an_attempt_is_given_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    desk = make_desk(tmp_path)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    attempt: Any = worker_module._Attempt  # pyright: ignore[reportPrivateUsage]
    run_step = getattr(attempt, step)

    def deliver_first(self: Any) -> Any:
        """Deliver all that the inbox has, as the watch over it may at any time."""
        rows = RunRows(self._storage)
        for item in rows.find_waiting([self.run_id]).get(self.run_id, ()):
            self.deliver(item)
        return run_step(self)

    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        await run.steer("steer")
        await run.say("say")
        monkeypatch.setattr(attempt, step, deliver_first)
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(run, "done")
            messages = (await run.result()).messages
    said = [message.text for message in messages if isinstance(message, UserMessage)]
    assert sorted(said) == ["add wait add", "say", "steer"]


class Calls(Middleware[Any]):
    """Counts the calls of a run, however many segments it has."""

    name = "calls"
    counted: ClassVar[list[int]] = []

    def for_run(self, run: RunInfo[Any]) -> "Calls":
        return Calls()

    def __init__(self) -> None:
        self._count = 0

    async def guard_call(self, call: CallInfo[Any]) -> None:
        self._count += 1
        self.counted.append(self._count)

    def save(self) -> int:
        return self._count

    def load(self, state: int) -> None:
        self._count = state


async def count_said(run: DurableRun) -> int:
    return len([message for message in (await run.result()).messages if message.role == "user"])


async def test_a_run_that_goes_on_after_its_end_has_its_limits_and_the_state_of_its_middleware(
    url: str, tmp_path: Path
) -> None:
    Calls.counted.clear()
    config: ToolLoopConfig[None] = ToolLoopConfig(
        limits=LoopLimits(usage=UsageLimits(requests=5)), middleware=(Calls(),)
    )
    desk = replace(make_desk(tmp_path), config=config)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "add", run_id="r")
            await wait_for_state(run, "done")
            usage, endings = (await run.result()).usage, list[str]()
            for count, words in enumerate(("x add", "x add", "more"), 2):
                await run.say(words)
                with anyio.fail_after(120):
                    while await count_said(run) < count:  # noqa: ASYNC110 - of another thread
                        await anyio.sleep(0.02)
                endings.append((await run.result()).reason.kind)
            result = await run.result()
    assert endings == ["complete", "usage_limit", "usage_limit"]
    assert (result.iterations, result.usage.input_tokens > usage.input_tokens) == (5, True)
    assert Calls.counted == [1, 2, 3]
    validate_transcript(result.messages)


async def test_what_nobody_will_take_is_deleted_when_the_run_has_ended(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "add", run_id="r")
        storage = Storage(url)
        assert RunRows(storage).put_item("r", "retry", "retry/9", {})  # as by a client whose run went on
        with worker_beside(url, desk):
            await run.result(timeout=60)
            await run.cancel()
            await run.say("then add")
            await wait_for_state(run, "done")
            result = await run.result(timeout=60)
        assert result.text == "Done after 3 turns: add then add."
        kinds = [kind for (kind,) in storage.fetch(sa.select(inbox.c.kind).where(inbox.c.run_id == "r"))]
        storage.close()
    assert kinds == ["say"]
