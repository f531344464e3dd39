"""What is sent to a durable run, and transcripts that it goes on from: with a signing key, nothing forged is taken."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy as sa

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.memory_journal import Memory, MemoryJournal
from tests.durable.serving import worker_beside
from tests.durable.test_workers_limits import wait_for_state
from toolkit import Approve, Modify
from toolkit.chat import UserMessage, dump_messages
from toolkit.chat.messages import messages_to_plain
from toolkit.durable import DurableError, DurableLoop, DurableRun, DurableRuns, RunPlace
from toolkit.durable.rests import Rest, RunSegment, seal_item, write_decision
from toolkit.durable.rows import RunRows, decision_key
from toolkit.durable.storage import Storage, inbox
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.loop.approvals import PendingApproval

pytestmark = pytest.mark.anyio
KEY = b"32 random bytes of your own....."


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def make_sealed_desk(folder: Path) -> DurableLoop[Desk, None]:
    desk = make_desk(folder)
    return replace(desk, config=replace(desk.config, signing_key=KEY))


def forge_plain(run_id: str, pending: PendingApproval) -> dict[str, Any]:
    return {"call_id": pending.call_id, "binding": pending.binding, "decision": write_decision(Approve())}


def forge_with_another_key(run_id: str, pending: PendingApproval) -> dict[str, Any]:
    return seal_item(b"x", run_id, "decide", "", forge_plain(run_id, pending))


def move_from_another_run(run_id: str, pending: PendingApproval) -> dict[str, Any]:
    return seal_item(KEY, "another", "decide", "", forge_plain(run_id, pending))


def change_arguments(run_id: str, pending: PendingApproval) -> dict[str, Any]:
    right = seal_item(KEY, run_id, "decide", "", forge_plain(run_id, pending))
    return {**right, "decision": write_decision(Modify({"n": 2200}))}


FORGED = [forge_plain, forge_with_another_key, move_from_another_run, change_arguments]


async def wait_for_rest(rows: RunRows, run: DurableRun, segment: int) -> PendingApproval:
    with anyio.fail_after(90):
        while rows.read(run.id).segment < segment:  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.02)
    await wait_for_state(run, "waiting")
    [pending] = (await run.status()).pending
    return pending


async def test_no_forged_decision_is_taken_and_a_right_one_is_taken_after_it(tmp_path: Path) -> None:
    url, desk = f"sqlite:///{tmp_path / 'runs.db'}", make_sealed_desk(tmp_path)
    storage = Storage(url, None)
    rows = RunRows(storage)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            begun = [await runs.start(desk, "refund", run_id=forge.__name__) for forge in FORGED]
            for run, forge in zip(begun, FORGED, strict=True):
                pending = await wait_for_rest(rows, run, 1)
                key = decision_key(pending.call_id, pending.binding)
                assert rows.put_item(run.id, "decide", key, forge(run.id, pending))
            for run in begun:
                await wait_for_rest(rows, run, 2)
                assert read_notes(tmp_path, run.id) == []
            run = begun[0]
            pending = await wait_for_rest(rows, run, 2)
            unknown = await runs.get(run.id)
            with pytest.raises(ConfigurationError, match="has a signing_key"):
                await unknown.decide(pending.call_id, Approve(), binding=pending.binding)
            async with DurableRuns(url, signing_key=KEY) as others:
                await (await others.get(run.id)).decide(pending.call_id, Approve(), binding=pending.binding)
            await wait_for_state(run, "done")
            assert read_notes(tmp_path, run.id) == ["refund c0 0"]
    storage.close()


async def wait_until_taken(storage: Storage, run: DurableRun) -> None:
    """Wait until a segment has begun with all that was sent to a run, and has come to its rest."""
    waiting = sa.select(inbox.c.id).where(inbox.c.run_id == run.id, inbox.c.segment.is_(None))
    with anyio.fail_after(90):
        while True:
            with storage.engine.connect() as connection:
                if not connection.execute(waiting).all() and (await run.status()).is_at_rest:
                    return
            await anyio.sleep(0.02)


SENT: dict[str, dict[str, Any]] = {
    "say": {"message": messages_to_plain([UserMessage("add")])[0]},
    "steer": {"message": messages_to_plain([UserMessage("add")])[0]},
    "cancel": {"reason": "enough"},
}


def forge_items(kind: str, run_id: str) -> dict[str, Any]:
    """Return bodies of items that nobody with the key has sent to a run, by their keys."""
    body = SENT[kind]
    other = "steer" if kind == "say" else "say"
    return {
        "plain": body,
        "no seal": {**body, "seal": ""},
        "a list": {**body, "seal": ["x"]},
        "half a letter": {**body, "seal": "\ud800"},
        "another key": seal_item(b"x", run_id, kind, "another key", body),
        "another run": seal_item(KEY, "another", kind, "another run", body),
        "another kind": seal_item(KEY, run_id, other, "another kind", body),
        "copied": seal_item(KEY, run_id, kind, "the first", body),
        "changed": {
            **seal_item(KEY, run_id, kind, "changed", body),
            "reason": "none",
            "message": SENT["say"]["message"],
        },
        "more": {**seal_item(KEY, run_id, kind, "more", body), "call_id": "c0"},
    }


@pytest.mark.parametrize("kind", SENT)
async def test_nothing_forged_is_taken_by_a_run(kind: str, tmp_path: Path) -> None:
    url, desk = f"sqlite:///{tmp_path / 'runs.db'}", make_sealed_desk(tmp_path)
    storage = Storage(url, None)
    rows = RunRows(storage)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "refund")
            await wait_for_state(run, "waiting")
            for key, body in forge_items(kind, run.id).items():
                assert rows.put_item(run.id, kind, key, body)
            if kind == "cancel":  # words are read after the decision
                await wait_until_taken(storage, run)
            [pending] = (await run.status()).pending
            await run.decide(pending.call_id, Approve(), binding=pending.binding)
            await wait_until_taken(storage, run)
            result = await run.result()
            assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
            assert (await run.status()).state == "done"
            assert read_notes(tmp_path, run.id) == ["refund c0 0"]
            unknown = await runs.get(run.id)
            with pytest.raises(ConfigurationError, match="has a signing_key"):
                await unknown.say("add")
            await run.say("then add")
            await wait_until_taken(storage, run)
            assert read_notes(tmp_path, run.id) == ["refund c0 0", "add c2"]
    storage.close()


async def test_a_worker_with_the_key_denies_what_nobody_has_decided_on(tmp_path: Path) -> None:
    url, desk = f"sqlite:///{tmp_path / 'runs.db'}", replace(make_sealed_desk(tmp_path), approval_expiry=0.2)
    async with DurableRuns(url) as runs:
        with worker_beside(url, desk):
            run = await runs.start(desk, "refund")
            await wait_for_state(run, "done")
            assert "nobody decided in time" in (await run.result()).messages[2].text
    assert read_notes(tmp_path, run.id) == []


def change_transcript(left: dict[str, Any]) -> dict[str, Any]:
    return {**left, "messages": messages_to_plain([UserMessage("add 9")])}


def take_seal_off(left: dict[str, Any]) -> dict[str, Any]:
    return {**left, "seal": ""}


@pytest.mark.parametrize("change", [None, change_transcript, take_seal_off])
async def test_a_run_goes_on_from_no_transcript_that_others_wrote(
    change: Callable[[dict[str, Any]], dict[str, Any]] | None, tmp_path: Path
) -> None:
    desk = make_sealed_desk(tmp_path)
    place = RunPlace(run_id="run", loop="desk", tenant="", metadata={})
    failed = RunSegment(desk, place, [UserMessage("end")])
    left = failed.leave_error(ProviderError("desk", "it is broken"), {}, is_resumable=False, is_read=True).write()
    assert left["snapshot"] is None
    kept = {name: value for name, value in (change(left) if change else left).items() if name != "v"}
    again = RunSegment(desk, place, Rest(**kept))
    if change is not None:
        with pytest.raises(DurableError, match="was changed, or made without its signing_key"):
            await again.move(MemoryJournal(Memory()), [])
        return
    result = await again.move(MemoryJournal(Memory()), [])
    assert "end" in dump_messages(result.messages)
