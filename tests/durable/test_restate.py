"""Durable runs in Restate: the crash suite over a real server, whose workers are killed."""

from __future__ import annotations

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from tests.durable.memory_journal import Memory, MemoryJournal
from tests.durable.restate_server import RestateFleet
from tests.durable.restate_worker import adapt, open_world
from tests.durable.scenarios import SCENARIOS, World, find_faults
from tests.durable.test_kills import Findings, check_findings, count_notes, judge
from toolkit.chat import Message, load_messages, validate_transcript

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by POSIX's signal")

SEED = 11
INTERRUPTED = "Interrupted: the process that ran it ended."
UNLIKE = {
    "steering": "what was said is in a queue in memory, which ends with its process",
    "requests run out": "what an interrupted sub-agent had spent is not counted",
    "typed answer": "an answer that was interrupted is asked for again",
    "tool fails": "which calls are under way then, time decides",
}
"""The scenarios whose transcripts differ after a crash, and why."""


def read_told(told: dict[str, Any]) -> list[Message]:
    return load_messages(json.dumps(told["messages"]))


def play_undisturbed(name: str) -> list[Message]:
    """Return the transcript of a run without an engine or a crash."""
    scenario = SCENARIOS[name]

    async def run() -> list[Message]:
        _, messages = await scenario.run(MemoryJournal(Memory()), World(), registry=adapt(scenario))
        return messages

    return anyio.run(run)


def list_differences(messages: list[Message], undisturbed: list[Message], *, has_crashed: bool) -> list[str]:
    """Return what a transcript has that a run without a crash has otherwise, but for calls that were interrupted."""
    if [each.role for each in undisturbed] != [each.role for each in messages]:
        return ["the transcript is another one"]
    pairs = [(mine.text, other.text) for mine, other in zip(messages, undisturbed, strict=True)]
    unlike = [(mine, other) for mine, other in pairs if mine != other and not (has_crashed and INTERRUPTED in mine)]
    return [f"{mine!r} in place of {other!r}" for mine, other in unlike]


def check_history(fleet: RestateFleet, name: str, crashes: list[int], faults: list[str]) -> None:
    """Crash so often, run to the end, replay that, and note what is wrong."""
    told = fleet.play(name, *crashes)
    messages, found = read_told(told["first"]), list[str]()
    validate_transcript(messages)
    found += find_faults(open_world(fleet.folder / f"{told['run']}.world"), messages)
    if told["first"]["messages"] != told["again"]["messages"] or told["first"]["end"] != told["again"]["end"]:
        found.append("the replay is another one")
    if name not in UNLIKE:
        found += list_differences(messages, play_undisturbed(name), has_crashed=bool(crashes))
    faults += [f"{name} {crashes}: {fault}" for fault in found]


@pytest.mark.real
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_runs_a_call_twice_or_loses_a_result(name: str, fleet: RestateFleet) -> None:
    points, faults, chance = fleet.play(name)["first"]["points"], list[str](), random.Random(f"{SEED} {name}")
    assert points >= 9
    check_history(fleet, name, [], faults)
    for first in chance.sample(range(1, points + 1), 2):
        check_history(fleet, name, [first], faults)
    check_history(fleet, name, [chance.randint(1, points), chance.randint(1, points)], faults)
    assert faults == []


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_at_any_point_does(name: str, fleet: RestateFleet) -> None:
    points, faults, chance = fleet.play(name)["first"]["points"], list[str](), random.Random(f"{SEED} {name}")
    for first in range(1, points + 1):
        check_history(fleet, name, [first], faults)
    for _ in range(20):
        check_history(fleet, name, [chance.randint(1, points) for _ in range(chance.randint(2, 5))], faults)
    assert faults == []


def kill_at_random(fleet: RestateFleet, name: str, chance: random.Random, most: int, findings: Findings) -> None:
    """Run it in workers of which up to so many are killed; judge what it says in the end."""
    place = fleet.folder / name
    place.mkdir()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(fleet.server.call, "/crashes/run_slowly", name)
        for _ in range(most):
            aim = count_notes(place) + chance.randint(0, 4)
            while not run.done() and count_notes(place) < aim:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.02)
            if not run.done():
                fleet.workers.kill()
                findings.kills += 1
        judge(place, json.dumps(run.result()), findings)


def torture(fleet: RestateFleet, kills: int) -> Findings:
    findings, chance, runs = Findings(), random.Random(kills), 0
    while findings.kills < kills:
        runs += 1
        kill_at_random(fleet, f"killed{kills}.{runs}", chance, min(5, kills - findings.kills), findings)
    print(f"{runs} runs")
    return findings


@pytest.mark.real
def test_kills_at_random_run_no_call_twice_and_lose_no_result(fleet: RestateFleet) -> None:
    check_findings(torture(fleet, 15))


@pytest.mark.full
def test_three_hundred_kills_run_no_call_twice_and_lose_no_result(fleet: RestateFleet) -> None:
    check_findings(torture(fleet, 300))
