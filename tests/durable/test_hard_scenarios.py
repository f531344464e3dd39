"""What may come together in the life of a run: ends of workers, new code, messages, cancels, rates; in this process."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.durable.desk import Desk, make_desk, read_notes, refund, wait
from tests.durable.serving import worker_beside
from tests.durable.test_damaged_logs import stop_in_mid_run
from tests.durable.test_workers_limits import wait_for_notes, wait_for_state
from toolkit import Approve, AssistantMessage, Message, ToolCall, ToolContext, ToolRegistry, ToolResult, tool_with_ctx
from toolkit.chat import ChatRequest, ChatResponse, UserMessage, validate_transcript
from toolkit.durable import (
    DecisionRefusedError,
    DurableError,
    DurableLoop,
    DurableRun,
    DurableRuns,
    LoopQueue,
    StartRate,
)
from toolkit.events import ResponseReceived
from toolkit.loop.approvals import PendingApproval
from toolkit.policies import Continue, StopContext
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


def results_of(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolResult)]


def done_by(folder: Path) -> list[str]:
    """Return what the tools of run ``r`` did, without what they were told."""
    return [note for note in read_notes(folder, "r") if "told" not in note]


async def test_what_was_said_to_a_run_reaches_its_model_once_though_its_workers_end(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        run = await runs.start(desk, "wait add slow", run_id="r")
        for text in ("first", "second", "third"):
            with worker_beside(url, desk, grace=0, lease=0.5):
                with anyio.fail_after(90):
                    while not read_notes(tmp_path, "r"):  # noqa: ASYNC110 - of another thread
                        await anyio.sleep(0.01)
                await run.say(f"say {text}")
                await run.steer(f"steer {text}")
                await anyio.sleep(0.4)  # the worker looks into the inbox, and may take it
        with worker_beside(url, desk, lease=0.5):
            said: list[str] = []
            result = await run.result(timeout=90)
            with anyio.fail_after(90):
                while len(said) < 7:
                    result = await run.result()
                    said = [message.text for message in result.messages if isinstance(message, UserMessage)]
                    await anyio.sleep(0.02)
    texts = [f"{how} {text}" for how in ("say", "steer") for text in ("first", "second", "third")]
    assert sorted(said[1:]) == sorted(texts)
    assert [text for text in said if text.startswith("steer")] == ["steer first", "steer second", "steer third"]
    validate_transcript(result.messages)
    assert max(done_by(tmp_path).count(note) for note in done_by(tmp_path)) == 1


async def test_a_cancel_that_no_worker_saw_ends_the_run_with_all_that_was_recorded(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        await run.cancel("enough")
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(run, "cancelled")
            result = await run.result()
            assert results_of(result.messages)[0] == "added 0"
            assert done_by(tmp_path) == ["add c0", "wait c1"]
            await run.retry()
            await wait_for_state(run, "done")
            result = await run.result()
    validate_transcript(result.messages)
    assert done_by(tmp_path) == ["add c0", "wait c1", "add c2"]


async def test_a_cancel_between_two_calls_of_a_turn_runs_no_other(url: str, tmp_path: Path) -> None:
    from toolkit.policies import Sequential

    desk = make_desk(tmp_path)
    desk = replace(desk, config=replace(desk.config, execution=Sequential()))
    calls = AssistantMessage([ToolCall("c0", "wait", "{}"), ToolCall("c1", "add", '{"n": 1}')])
    desk = replace(desk, provider=FunctionProvider(lambda request: calls if len(request.messages) == 1 else "Done."))
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "go", run_id="r")
            await wait_for_notes(tmp_path, [run], 1)
            await run.cancel()
            with anyio.fail_after(120):
                result = await run.result()
    assert result.reason.kind == "cancelled"
    assert done_by(tmp_path) == ["wait c0"]
    assert len(results_of(result.messages)) == 2


async def test_the_time_of_a_run_goes_on_where_it_was_and_ends_it_with_what_was_recorded(
    url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path)
    timed = replace(desk, config=replace(desk.config, timeout=1.0))
    await stop_in_mid_run(url, tmp_path, timed, "add wait wait", "wait c1")
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with worker_beside(url, timed, lease=0.5):
            await wait_for_state(run, "done")
            result = await run.result()
    assert result.reason.kind == "timeout"
    assert results_of(result.messages)[0] == "added 0"
    assert "may have taken effect" in results_of(result.messages)[1]
    assert done_by(tmp_path) == ["add c0", "wait c1", "wait c2"]


async def test_stop_when_is_asked_once_for_each_reply_whatever_it_would_say_later(url: str, tmp_path: Path) -> None:
    asked: list[int] = []

    def stop_when(context: StopContext) -> Continue:
        asked.append(context.iteration)
        return Continue()

    desk = make_desk(tmp_path)
    desk = replace(desk, config=replace(desk.config, stop_when=stop_when))
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk, lease=0.5):
            await wait_for_state(await runs.get("r"), "done")
    assert asked == sorted(set(asked))


async def test_a_release_that_asks_for_other_things_fails_the_run_and_the_old_one_goes_on(
    url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    shorter = replace(desk, config=replace(desk.config, max_iterations=1))
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with (
            worker_beside(url, shorter, lease=0.5),
            pytest.raises(DurableError, match="goes on with 'turn 2' where the run has ended"),
        ):
            await run.result(timeout=90)
        with worker_beside(url, desk):
            await run.retry()
            await wait_for_state(run, "done")
            result = await run.result()
    assert results_of(result.messages)[0] == "added 0"
    assert done_by(tmp_path) == ["add c0", "wait c1", "add c2"]


async def test_a_decision_is_kept_for_a_release_that_has_its_tool_again(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    without: DurableLoop[Desk, None] = replace(desk, registry=ToolRegistry[Desk]([wait]))
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "refund", run_id="r")
            await wait_for_state(run, "waiting")
        [pending] = (await run.status()).pending
        with worker_beside(url, without):
            await run.decide(pending.call_id, Approve(), binding=pending.binding)
            await wait_for_state(run, "failed")
        with worker_beside(url, replace(desk, registry=ToolRegistry[Desk]([refund]))):
            await run.retry()
            await wait_for_state(run, "done")
    assert done_by(tmp_path) == ["refund c0 0"]


async def decide_and_wait(run: DurableRun) -> PendingApproval:
    """Agree to what a run awaits, and wait until it awaits something else; return that."""
    [pending] = (await run.status()).pending
    await run.decide(pending.call_id, Approve(), binding=pending.binding)
    with pytest.raises(DecisionRefusedError, match="already"):
        await run.decide(pending.call_id, Approve(), binding=pending.binding)
    with anyio.fail_after(90):
        while True:
            status = await run.status()
            if status.pending and status.pending[0].binding != pending.binding:
                return status.pending[0]
            await anyio.sleep(0.02)


async def test_a_decision_that_did_not_hold_is_made_again_where_the_call_is_what_it_was_again(
    url: str, tmp_path: Path
) -> None:
    @tool_with_ctx(requires_approval=True)
    async def refund(context: ToolContext[Desk], n: int, currency: str = "EUR") -> str:
        """Give money back, in a currency."""
        context.state.note(f"new refund {context.call_id} {n}")
        return f"refunded {n} {currency}"

    old = make_desk(tmp_path)
    new: DurableLoop[Desk, None] = replace(old, registry=ToolRegistry[Desk]([refund]))
    async with DurableRuns(url) as runs:
        with worker_beside(url, old):
            run = await runs.start(old, "refund", run_id="r")
            await wait_for_state(run, "waiting")
        [first] = (await run.status()).pending
        with worker_beside(url, new):
            assert (await decide_and_wait(run)).binding != first.binding
        with worker_beside(url, old):
            assert (await decide_and_wait(run)).binding == first.binding
            await run.decide(first.call_id, Approve(), binding=first.binding)
            with pytest.raises(DecisionRefusedError, match="already"):
                await run.decide(first.call_id, Approve(), binding=first.binding)
            await wait_for_state(run, "done")
    assert done_by(tmp_path) == ["refund c0 0"]


async def test_a_reply_that_can_not_be_stored_fails_the_run_and_is_asked_for_again(url: str, tmp_path: Path) -> None:
    desk, mended = make_desk(tmp_path), tmp_path / "mended"

    def model(request: ChatRequest) -> Any:
        if len(request.messages) == 1:
            return ToolCall("c0", "add", '{"n": 0}')
        return "Well." if mended.exists() else ChatResponse(message=AssistantMessage("x"), metadata={"raw": object()})

    async with DurableRuns(url) as runs:
        with worker_beside(url, replace(desk, provider=FunctionProvider(model))):
            run = await runs.start(desk, "go", run_id="r")
            with pytest.raises(DurableError, match="ModelReplied can't be stored in the log"):
                await run.result(timeout=90)
            mended.touch()
            await run.retry()
            await wait_for_state(run, "done")
            assert (await run.result()).text == "Well."
    assert done_by(tmp_path) == ["add c0"]


@tool_with_ctx
async def echo(context: ToolContext[Desk], n: int) -> str:
    """Say the id of the call."""
    return f"{n} of {context.call_id}"


async def test_texts_that_no_database_likes_are_stored(url: str, tmp_path: Path) -> None:
    await store_odd_texts(url, tmp_path)


async def store_odd_texts(url: str, folder: Path) -> None:
    """Move a run whose texts and ids are not UTF-8, or have a NUL."""
    odd = "nul \x00, half a pair \ud800, and \u2028"

    def model(request: ChatRequest) -> str | ToolCall:
        return ToolCall(odd, "echo", '{"n": 0}') if len(request.messages) == 1 else f"Done: {odd}"

    desk = make_desk(folder)
    async with DurableRuns(url) as runs:
        with worker_beside(url, replace(desk, provider=FunctionProvider(model), registry=ToolRegistry[Desk]([echo]))):
            run = await runs.start(desk, odd, run_id="r", metadata={odd: odd})
            other = await runs.start(desk, "x", run_id="other")
            for each in (run, other):
                await wait_for_state(each, "done")
            result = await run.result()
            assert result.text.startswith("Done: nul")
            assert len(results_of(result.messages)) == 1
            assert [told async for told in run.events()]


async def test_no_more_runs_begin_than_the_rates_of_a_loop_and_of_a_tenant_allow(url: str, tmp_path: Path) -> None:
    queue = LoopQueue(rate=StartRate(4, 1.0), tenant_rate=StartRate(2, 1.0))
    desk = make_desk(tmp_path, queue=queue)
    async with DurableRuns(url) as runs:
        made = [await runs.start(desk, "add", tenant=f"t{each % 3}", run_id=f"r{each}") for each in range(12)]
        with worker_beside(url, desk):
            for run in made:
                await wait_for_state(run, "done")
        with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
            query = "SELECT started_at_epoch_ms, workflow_uuid FROM workflow_status ORDER BY 1"
            starts = [(began, int(name[1:].split("/")[0]) % 3) for began, name in database.execute(query)]
    assert len(starts) == 12
    for index, (began, tenant) in enumerate(starts):
        within = [each for each in starts[index:] if each[0] < began + 1_000]
        assert len(within) <= 4
        assert len([each for each in within if each[1] == tenant]) <= 2


async def test_one_tenants_many_runs_do_not_hold_up_anothers_one(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path, queue=LoopQueue(concurrency=1))
    async with DurableRuns(url) as runs:
        many = [await runs.start(desk, "slow slow", tenant="many", run_id=f"m{each}") for each in range(20)]
        few = await runs.start(desk, "slow slow", tenant="few", run_id="few")
        with worker_beside(url, desk):
            await wait_for_state(few, "done")
            left = [run.id for run in many if (await run.status()).state == "queued"]
    assert len(left) >= 5, "its place was drawn among two tenants, not among 21 runs"


async def test_a_run_that_waits_is_forked_with_its_calls_answered(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "add refund", run_id="r")
            await wait_for_state(run, "waiting")
            for turn in (1, 2):
                fork = await runs.fork("r", turn=turn, prompt="end", new_run_id=f"fork{turn}")
                with anyio.fail_after(90):
                    validate_transcript((await fork.result()).messages)
            assert (await run.status()).state == "waiting"
    assert done_by(tmp_path) == ["add c0"]


async def test_a_message_to_a_run_that_is_gone_or_broken_holds_up_no_other(url: str, tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            broken = await runs.start(desk, "add", run_id="broken")
            await wait_for_state(broken, "done")
            run = await runs.start(desk, "wait", run_id="r")
            await wait_for_notes(tmp_path, [run], 1)
            with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
                put = "INSERT INTO toolkit_inbox (run_id, key, kind, body) VALUES (?, ?, 'say', '{}')"
                database.executemany(put, [(f"gone{each}", "x") for each in range(1_200)])
                database.execute(put, ("broken", "x"))
                database.execute("DELETE FROM workflow_status WHERE workflow_uuid = 'broken/1'")
            await run.cancel("enough")
            with anyio.fail_after(120):
                assert (await run.result()).reason.kind == "cancelled"


async def test_a_reader_of_a_run_whose_workers_end_sees_each_reply_and_each_number_once(
    url: str, tmp_path: Path
) -> None:
    desk = make_desk(tmp_path)
    await stop_in_mid_run(url, tmp_path, desk, "add wait add", "wait c1")
    async with DurableRuns(url) as runs:
        run = await runs.get("r")
        with worker_beside(url, desk, lease=0.5):
            told = [each async for each in run.events()]
    numbers = [each.seq for each in told]
    assert numbers == sorted(set(numbers))
    assert len({each.attempt for each in told}) == 2
    assert [each.event.iteration for each in told if isinstance(each.event, ResponseReceived)] == [1, 2, 3, 4]
