"""A durable run crashes at every point there is, once and twice, and is what it would have been."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.durable.memory_journal import CrashError, CrashPlan, Memory, MemoryJournal
from tests.durable.scenarios import SCENARIOS, Scenario, World, append, call, find_faults, look
from toolkit import Message, ToolLoopConfig, ToolLoopResult, ToolOutput, ToolRegistry
from toolkit.chat import ToolResult, dump_messages, validate_transcript
from toolkit.loop.middleware import CallInfo, CallProceed, Middleware
from toolkit.testing import ScriptedProvider

SEED = 7


async def attempt(
    scenario: Scenario, memory: Memory, world: World, crash: int = 0
) -> tuple[tuple[ToolLoopResult[Any] | Exception, list[Message]] | None, int]:
    """Run in a process that crashes at a point; return how it ended, None for the crash, and the points passed."""
    plan = CrashPlan(crash)
    try:
        return await scenario.run(MemoryJournal(memory, plan), world), plan.passed
    except CrashError:
        return None, plan.passed


async def check_history(scenario: Scenario, crashes: list[int], faults: list[str]) -> None:
    """Crash so often, run to the end, and note what is wrong."""
    memory, world = Memory(), World()
    ended = None
    for crash in [*crashes, 0]:
        ended, _ = await attempt(scenario, memory, world, crash)
        if ended is not None:
            break
    assert ended is not None
    outcome, messages = ended
    validate_transcript(messages)
    found = find_faults(world, messages)
    found += [
        f"{message.call_id} is told as interrupted, without a crash"
        for message in messages
        if isinstance(message, ToolResult) and "the process that ran it ended" in message.text and not any(crashes)
    ]
    before = dict(world.starts), dict(world.asked), memory.names
    again, repeated = await replay(scenario, memory, world)
    assert (dict(world.starts), dict(world.asked), memory.names) == before, "a replay does nothing"
    if dump_messages(repeated) != dump_messages(messages):
        found.append("the replay has another transcript")
    if tell_outcome(again) != tell_outcome(outcome):
        found.append(f"the replay ended as {tell_outcome(again)}, not as {tell_outcome(outcome)}")
    faults += [f"{scenario.name} {crashes}: {fault}" for fault in found]


async def replay(
    scenario: Scenario, memory: Memory, world: World
) -> tuple[ToolLoopResult[Any] | Exception, list[Message]]:
    """Run what has ended with no tools, and a provider that has nothing to say."""
    nothing = ScriptedProvider([])
    return await scenario.run(MemoryJournal(memory), world, provider=nothing, registry=ToolRegistry[World]())


def tell_outcome(outcome: ToolLoopResult[Any] | Exception) -> tuple[object, ...]:
    if isinstance(outcome, Exception):
        return type(outcome), str(outcome)
    times = [message.time for message in outcome.messages if isinstance(message, ToolResult)]
    return outcome.reason, outcome.text, outcome.output, outcome.usage, outcome.iterations, outcome.tool_rounds, times


async def count_points(scenario: Scenario) -> int:
    ended, points = await attempt(scenario, Memory(), World())
    assert ended is not None
    return points


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.full)])
async def test_no_crash_runs_a_call_twice_or_loses_a_result(name: str, anyio_backend: str) -> None:
    scenario, faults = SCENARIOS[name], list[str]()
    points = await count_points(scenario)
    assert points >= 9
    for first in range(points + 1):
        await check_history(scenario, [first], faults)
    pairs = [(first, second) for first in range(1, points + 1) for second in range(1, points + 1)]
    for first, second in random.Random(SEED).sample(pairs, 3):
        await check_history(scenario, [first, second], faults)
    assert faults == []


async def test_without_the_marks_the_same_crashes_run_calls_twice(anyio_backend: str) -> None:
    def forget_marks() -> ToolRegistry[World]:
        return ToolRegistry[World]([append, look]).configured("append", on_crash="rerun")

    scenario = SCENARIOS["parallel"]
    careless = Scenario(name="parallel", plan=scenario.plan, registry=forget_marks)
    faults: list[str] = []
    for first in range(1, await count_points(careless) + 1):
        await check_history(careless, [first], faults)
    doubled = [fault for fault in faults if "ran 2 times" in fault]
    assert len(doubled) >= 5
    assert doubled == faults


class _Ended(Middleware[object]):
    """Lists the calls that have come to their ends, across crashes."""

    name = "ended"

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def around_call(self, call: CallInfo[object], proceed: CallProceed) -> ToolOutput:
        output = await proceed()
        self.calls.append(call.call_id)
        return output

    def save(self) -> Any:
        return self.calls

    def load(self, state: Any) -> None:
        self.calls = list(state)


@pytest.mark.parametrize("tool", ["append", "look"])
async def test_middleware_goes_on_with_the_state_of_all_stored_calls(anyio_backend: str, tool: str) -> None:
    ended = _Ended()

    def configure() -> ToolLoopConfig[Any]:
        nonlocal ended
        ended = _Ended()
        return ToolLoopConfig(middleware=[ended])

    calls = [call(f"c{number}", tool, n=number) for number in range(5)]
    scenario = Scenario(name="ended", plan=([call("c9")], calls, "done"), config=configure)
    for crash in range(await count_points(scenario) + 1):
        memory, world = Memory(), World()
        done, _ = await attempt(scenario, memory, world, crash)
        if done is None:
            done, _ = await attempt(scenario, memory, world)
        assert done is not None
        assert not isinstance(done[0], Exception)
        results = {each.call_id: each.text for each in done[1] if isinstance(each, ToolResult)}
        stored = {call_id for call_id, text in results.items() if text.startswith("did")}
        assert stored <= set(ended.calls) <= set(results), f"crash at {crash}"


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_pair_of_crashes_does(name: str, anyio_backend: str) -> None:
    scenario, faults = SCENARIOS[name], list[str]()
    points = await count_points(scenario)
    for first in range(1, points + 1):
        for second in range(1, points + 1):
            await check_history(scenario, [first, second], faults)
    assert faults == []


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_random_history_of_crashes_does(name: str, anyio_backend: str) -> None:
    scenario, faults, chance = SCENARIOS[name], list[str](), random.Random(f"{SEED} {name}")
    points = await count_points(scenario)
    for _ in range(10_000 // len(SCENARIOS) + 1):
        await check_history(scenario, [chance.randint(1, points) for _ in range(chance.randint(1, 6))], faults)
    assert faults == []
