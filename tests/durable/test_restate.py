"""Durable runs in Restate: the crash suite over a real server, whose workers are killed."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeAlias

import anyio
import pytest

from tests.durable.memory_journal import Memory
from tests.durable.restate_server import RestateFleet
from tests.durable.restate_worker import open_world
from tests.durable.scenarios import SCENARIOS, World, find_faults
from tests.durable.test_crashes import attempt, count_points
from tests.durable.test_kills import Findings, check_findings, count_notes, hold_calls, judge
from toolkit.chat import Message, ToolResult, load_messages, validate_transcript

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by POSIX's signal")

SEED = 11
INTERRUPTED = "Interrupted: the process that ran it ended."
UNLIKE = {
    "checked answer": "an answer whose check was interrupted is asked for again",
    "too many checked answers": "an answer whose check was interrupted is asked for again",
    "said during the answer": "what was said is in a queue in memory, as in steering",
    "steering": "what was said is in a queue in memory, which ends with its process",
    "typed answer": "an answer that was interrupted is asked for again",
    "tool fails": "which calls are under way then, time decides",
}
"""The scenarios whose transcripts a crash may make others, and why: each is one that crashes make in memory, too."""

TIMELY = {
    "tool fails": {
        "did run/c1 with 1",
        "did run/c3 with 1",
        "Interrupted: the run failed. The tool was running and may have taken effect.",
    }
}
"""Results that calls have in memory at other times."""

Shape: TypeAlias = tuple[tuple[str, str], ...]


def read_told(told: dict[str, Any]) -> list[Message]:
    return load_messages(json.dumps(told["messages"]))


async def play_in_memory(name: str, crashes: Sequence[int]) -> list[Message]:
    """Return the transcript of a run without an engine that crashes so."""
    memory, world = Memory(), World()
    for crash in (*crashes, 0):
        ended, _ = await attempt(SCENARIOS[name], memory, world, crash)
        if ended is not None:
            return ended[1]
    raise AssertionError


def find_shape(messages: Sequence[Message]) -> Shape:
    return tuple((each.role, each.call_id if isinstance(each, ToolResult) else "") for each in messages)


@cache
def play_histories(name: str) -> Mapping[Shape, Sequence[set[str]]]:
    """Return the texts that crashes leave in memory at each place of a transcript, by the form of that."""
    texts: dict[Shape, Sequence[set[str]]] = {}

    async def play_all() -> None:
        points = await count_points(SCENARIOS[name])
        again = [[], *([point] for point in range(1, 7)), *([point] * 4 for point in range(1, 4))]
        for crashes in [(first, *more) for first in range(points + 1) for more in again]:
            messages = await play_in_memory(name, crashes)
            places = texts.setdefault(find_shape(messages), [set[str]() for _ in messages])
            for place, message in zip(places, messages, strict=True):
                place.add(message.text)

    anyio.run(play_all)
    return texts


@cache
def play_undisturbed(name: str) -> Sequence[set[str]]:
    """Return the one text at each place of a transcript of a run without an engine or a crash."""
    return [{message.text} for message in anyio.run(play_in_memory, name, ())]


def list_differences(name: str, messages: Sequence[Message], *, has_crashed: bool) -> list[str]:
    """Return what a transcript has otherwise than one in memory."""
    places = play_histories(name).get(find_shape(messages), ()) if name in UNLIKE else play_undisturbed(name)
    if len(places) != len(messages):
        return [f"the transcript is another one: {find_shape(messages)}"]
    pairs = [(message.text, place) for message, place in zip(messages, places, strict=True)]
    timely = TIMELY.get(name, set[str]())
    unlike = [(text, place) for text, place in pairs if text not in place | timely]
    unlike = [(text, place) for text, place in unlike if not (has_crashed and INTERRUPTED in text)]
    return [f"{text!r} in place of {place}" for text, place in unlike]


def check_history(fleet: RestateFleet, name: str, crashes: list[int], faults: list[str]) -> None:
    """Crash so often, run to the end, replay that, and note what is wrong."""
    told = fleet.play(name, *crashes)
    messages, found = read_told(told["first"]), list[str]()
    validate_transcript(messages)
    found += find_faults(open_world(fleet.folder / f"{told['run']}.world"), messages)
    if told["first"]["messages"] != told["again"]["messages"] or told["first"]["end"] != told["again"]["end"]:
        found.append("the replay is another one")
    found += list_differences(name, messages, has_crashed=bool(crashes))
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
    """Run it in workers of which up to so many are killed, the first in a call; judge what it says in the end."""
    place = fleet.folder / name
    place.mkdir()
    held = hold_calls(place)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(fleet.server.call, "/crashes/run_slowly", name)
        for _ in range(most):
            aim = 1 if held.exists() else count_notes(place) + chance.randint(0, 4)
            while not run.done() and count_notes(place) < aim:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.02)
            if not run.done():
                fleet.workers.kill()
                held.unlink(missing_ok=True)
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
    check_findings(torture(fleet, 5))


@pytest.mark.full
def test_three_hundred_kills_run_no_call_twice_and_lose_no_result(fleet: RestateFleet) -> None:
    check_findings(torture(fleet, 300))
