"""Workers killed while runs are steered, talked to and decided on, also after their ends.

Each counter, budget and transcript is what the tools' own log says.
"""

import os
import random
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.durable.desk import make_tallied, read_notes
from tests.durable.restate_server import RestateError, RestateFleet
from tests.durable.test_workers_kills import Nursery, count_lines, wait_for_lines
from tests.durable.test_workers_scale import database_of
from toolkit import (
    Approve,
    Deny,
    Modify,
    ToolResult,
)
from toolkit.chat import AssistantMessage, Message, UserMessage, validate_transcript
from toolkit.durable import DecisionRefusedError, DurableRun, DurableRuns, DurableWorker
from toolkit.durable.rests import Rest, read_rest
from toolkit.durable.rows import RunRows
from toolkit.durable.storage import Storage
from toolkit.events import ToolCallRefused, ToolExecutionEnd

_BEGINS = ("slow pair refund add", "pair both slow", "helper slow refund slow", "refund pair pair")
_SAID = ("slow", "pair", "refund", "add", "both")
_AT_ONCE = 4
_MOST_SAID = 4
_HELPER_REPLIES = 3


async def work(folder: Path, url: str, lease: float) -> None:
    async with DurableWorker([make_tallied(folder)], url, lease=lease, concurrency=20):
        await anyio.sleep_forever()


class TalkNursery(Nursery):
    """Starts workers of the tallied desk."""

    work = staticmethod(work)


@dataclass
class Talk:
    """A run, and all that was said to it."""

    run: DurableRun[None]
    said: list[str] = field(default_factory=list[str])

    @property
    def is_quiet(self) -> bool:
        return len(self.said) >= _MOST_SAID


async def say_something(talk: Talk, chance: random.Random, found: Counter[str]) -> None:
    """Say or steer something, once more."""
    marker = f"m{len(talk.said)}-{talk.run.id}"
    text = f"{chance.choice(_SAID)} {marker}"
    talk.said.append(marker)
    kind = chance.choice(("say", "steer"))
    await (talk.run.say(text) if kind == "say" else talk.run.steer(text))
    found[kind] += 1


async def decide_something(talk: Talk, chance: random.Random, found: Counter[str]) -> None:
    """Decide on each call that awaits it, at random, or leave it for later."""
    for pending in (await talk.run.status()).pending:
        if pending.decided or chance.random() < 0.3:
            continue
        answers: list[Approve | Deny | Modify] = [Approve(), Approve(), Deny("not this one"), Modify({"n": 77})]
        decision = chance.choice(answers)
        try:
            await talk.run.decide(pending.call_id, decision, binding=pending.binding)
        except DecisionRefusedError:
            found["decisions refused"] += 1
        else:
            found["decisions"] += 1


def check_results(run_id: str, folder: Path, messages: list[Message], found: Counter[str]) -> int:
    """Check each result against what the tools did; return how many calls have run, also those inside of others."""
    ran, notes = 0, Counter(read_notes(folder, run_id))
    for each in messages:
        if not isinstance(each, ToolResult):
            continue
        if each.tool_name == "helper":
            # It helps by two calls; one that was interrupted before it wrote its note has been counted, too.
            ran += 3 if each.text == "helped" else 1 + sum(note.startswith("slow h") for note in notes)
            continue
        began = sum(count for note, count in notes.items() if note.split()[:2] == [each.tool_name, each.call_id])
        assert began <= 1, f"{each.call_id} of {run_id} ran {began} times"
        if "may have taken effect" in each.text:
            found["interrupted"] += 1
            ran += 1
        elif each.is_error:
            assert began == 0, each
            found["refused or skipped"] += 1
        else:
            assert began == 1, each
            assert each.tool_name != "slow" or notes[f"ended {each.call_id}"] == 1, each
            found["calls"] += 1
            ran += 1
    return ran


def check_rest(run_id: str, said: list[str], rest: Rest, folder: Path, found: Counter[str]) -> None:
    """Check how a run has come to rest: its transcript and its counters."""
    result = rest.load_result()
    messages = list(result.messages)
    validate_transcript(messages)
    ran = check_results(run_id, folder, messages, found)
    heard = " ".join(message.text for message in messages if isinstance(message, UserMessage)).split()
    assert sorted(word for word in heard if word.startswith("m")) == sorted(said), "each once"
    assert rest.snapshot is not None
    replies = sum(isinstance(message, AssistantMessage) for message in messages)
    requests, guarded = rest.snapshot["loop"]["middleware"]["tally"]
    texts = {each.call_id: each.text for each in messages if isinstance(each, ToolResult)}
    helped = [each.text for each in messages if isinstance(each, ToolResult) and each.tool_name == "helper"]
    inner = _HELPER_REPLIES * len(helped)
    assert (requests, result.iterations) == (replies, replies), f"{run_id} has {replies} replies"
    if all(text == "helped" for text in helped):  # else a message has skipped it
        booked, skipped = rest.snapshot["loop"], sum("skipped because" in text for text in texts.values())
        assert booked["requests"] == replies + inner, (run_id, texts)
        assert ran <= booked["tool_calls"] <= ran + skipped, (run_id, texts)  # one that was skipped may be approved
        assert guarded == len(texts) + 2 * len(helped), (run_id, texts)  # it is asked about those inside, too
        assert result.usage.input_tokens == replies + 10 * inner
    found["runs"] += 1


async def check_talk(talk: Talk, folder: Path, storage: Storage, found: Counter[str]) -> None:
    """Check what came of a run: its rest and its events."""
    run, rows = talk.run, RunRows(storage)
    rest = await anyio.to_thread.run_sync(lambda: rows.read_rest(rows.read(run.id)))
    assert rest is not None
    check_rest(run.id, talk.said, rest, folder, found)
    texts = {each.call_id for each in rest.load_messages() if isinstance(each, ToolResult)}
    events = [each async for each in run.events()]
    assert [each.seq for each in events] == sorted({each.seq for each in events})
    ends = Counter(
        each.event.call_id
        for each in events
        if isinstance(each.event, (ToolExecutionEnd, ToolCallRefused)) and each.event.loop_id == run.id
    )
    assert all(count == 1 for count in ends.values()), ends
    assert texts >= {*ends}
    found["taken up more than once"] += (await run.status()).attempts > 1


async def talk_and_kill(folder: Path, url: str, kills: int, seed: int) -> Counter[str]:
    """Talk to runs while their workers are killed; return what was found."""
    chance, found, desk = random.Random(seed), Counter[str](), make_tallied(folder)
    storage = await anyio.to_thread.run_sync(Storage, url)
    async with DurableRuns(url) as runs:
        with closing(storage), closing(TalkNursery(folder, url)) as nursery:
            nursery.start_worker()
            talks: list[Talk] = []
            while talks or found["kills"] < kills:
                while found["kills"] < kills and len(talks) < _AT_ONCE:
                    run_id = f"run{seed}x{found['runs'] + len(talks)}y"
                    talks.append(Talk(await runs.start(desk, chance.choice(_BEGINS), run_id=run_id)))
                for talk in talks:
                    if not talk.is_quiet and chance.random() < 0.5:
                        found["said after the end"] += (await talk.run.status()).state == "done"
                        await say_something(talk, chance, found)
                    await decide_something(talk, chance, found)
                if found["kills"] < kills:
                    await wait_for_lines(folder, count_lines(folder) + chance.randint(1, 6))
                    await anyio.sleep(chance.uniform(0.0, 0.06))
                    nursery.kill_worker()
                    nursery.start_worker()
                    found["kills"] += 1
                else:
                    await anyio.sleep(0.2)
                for talk in list(talks):
                    status = await talk.run.status()
                    assert status.state != "failed", status.error
                    if status.state == "done" and talk.is_quiet:
                        await anyio.sleep(1.0)  # what was said last may have it go on
                        if (await talk.run.status()).state == "done" and not await has_open_items(storage, talk.run.id):
                            await check_talk(talk, folder, storage, found)
                            talks.remove(talk)
    return found


async def has_open_items(storage: Storage, run_id: str) -> bool:
    rows = RunRows(storage)
    found = await anyio.to_thread.run_sync(lambda: rows.find_waiting([run_id]))
    # A decision on a call that a steered message has skipped is never taken.
    return any(item.kind != "decide" for item in found.get(run_id, ()))


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_after_three_hundred_kills_each_counter_and_transcript_is_what_the_tools_did(
    tmp_path: Path, database: str
) -> None:
    kills = int(os.environ.get("TOOLKIT_KILLS", "300"))
    with database_of(database, tmp_path) as url, anyio.fail_after(14_400):
        found = await talk_and_kill(tmp_path, url, kills, seed=int(time.time()))
    print(dict(found))
    assert found["said after the end"] > 0
    assert found["taken up more than once"] > 0


def has_come_to_its_end(fleet: RestateFleet, run_id: str) -> bool:
    """Return whether a run in Restate has ended, and nothing that was sent to it is left."""
    query = f"select id from sys_invocation where target_service_key = '{run_id}' and status != 'completed'"
    return not fleet.server.query(query) and bool(fleet.server.call(f"/tallied/{run_id}/status")["state"] == "done")


def talk_in_restate(fleet: RestateFleet, kills: int, seed: int) -> Counter[str]:
    """Talk to runs in Restate while their workers are killed; return what was found."""
    chance, found, said = random.Random(seed), Counter[str](), dict[str, list[str]]()
    while said or found["kills"] < kills:
        while found["kills"] < kills and len(said) < _AT_ONCE:
            run_id = f"run{seed}x{found['runs'] + len(said)}y"
            said[run_id] = []
            fleet.server.call(f"/tallied/{run_id}/start/send", {"prompt": chance.choice(_BEGINS)})
        for run_id, markers in said.items():
            path = f"/tallied/{run_id}"
            try:
                status = fleet.server.call(f"{path}/status")
            except RestateError:  # it has not begun
                continue
            if len(markers) < _MOST_SAID and chance.random() < 0.5:
                found["said after the end"] += status["state"] == "done"
                markers.append(f"m{len(markers)}-{run_id}")
                fleet.server.call(f"{path}/say/send", {"message": f"{chance.choice(_SAID)} {markers[-1]}"})
                found["say"] += 1
            for pending in status["pending"]:
                if chance.random() < 0.7:
                    kinds: dict[str, dict[str, Any]] = {
                        "approve": {},
                        "deny": {"reason": "not this one"},
                        "modify": {"arguments": {"n": 77}},
                    }
                    kind = chance.choice([*kinds])
                    body = {"call_id": pending["call_id"], "binding": pending["binding"]}
                    fleet.server.call(f"{path}/decide/send", {**body, "decision": {"kind": kind, **kinds[kind]}})
                    found["decisions"] += 1
        if found["kills"] < kills:
            lines, deadline = count_lines(fleet.folder) + chance.randint(1, 6), time.monotonic() + 1
            while count_lines(fleet.folder) < lines and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(chance.uniform(0.0, 0.06))
            fleet.workers.kill()
            found["kills"] += 1
        for run_id in [each for each, markers in said.items() if len(markers) >= _MOST_SAID]:
            if has_come_to_its_end(fleet, run_id):
                rest = read_rest(fleet.server.call(f"/tallied/{run_id}/result"))
                check_rest(run_id, said.pop(run_id), rest, fleet.folder, found)
    return found


@pytest.mark.full
def test_after_three_hundred_kills_in_restate_each_counter_and_transcript_is_what_the_tools_did(
    fleet: RestateFleet,
) -> None:
    found = talk_in_restate(fleet, int(os.environ.get("TOOLKIT_KILLS", "300")), seed=int(time.time()))
    print(dict(found))
    assert found["said after the end"] > 0
    assert found["interrupted"] > 0
