"""What a loop with a journal does: what is told, what is recorded, what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tests.durable.memory_journal import CrashError, CrashPlan, Memory, MemoryJournal
from tests.durable.scenarios import SCENARIOS, World, append, call, find_faults, plan_provider
from toolkit import (
    AnswerFormat,
    Message,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import ChatRequest, ToolResult, dump_messages
from toolkit.durable import JournalEntry, JournalValue
from toolkit.endings import Cancelled, Complete, StopCondition, Timeout
from toolkit.errors import ConfigurationError, JournalError, LoopUsageError
from toolkit.events import LoopEvent, RunStart, ToolExecutionEnd, ToolExecutionStart
from toolkit.policies import Continue, OutputLimits, ResultStore, Stop, StopContext, keep_last
from toolkit.testing import FunctionProvider, ScriptedProvider

LOST = "Interrupted: the process that ran it ended. The tool was running and may have taken effect."


async def crash_at(name: str, world: World, point: int) -> Memory:
    memory = Memory()
    with pytest.raises(CrashError):
        await SCENARIOS[name].run(MemoryJournal(memory, CrashPlan(point)), world)
    return memory


def results_of(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolResult)]


async def test_a_call_that_was_under_way_is_told_as_such_and_runs_once(anyio_backend: str) -> None:
    # The points of an entry are: before its work, after it, after it is kept. The third entry is the first call.
    world = World()
    memory = await crash_at("parallel", world, 3 * 2 + 2)
    _, messages = await SCENARIOS["parallel"].run(MemoryJournal(memory), world)
    assert results_of(messages)[0] == LOST
    assert max(world.starts.values()) == 1


async def test_a_call_whose_loops_had_no_logs_when_it_began_is_told_though_its_tool_would_now_resume(
    anyio_backend: str,
) -> None:
    world = World()
    memory = await crash_at("parallel", world, 3 * 2 + 2)
    resuming = SCENARIOS["parallel"].registry().configured("append", on_crash="resume")
    _, messages = await SCENARIOS["parallel"].run(MemoryJournal(memory), world, registry=resuming)
    assert results_of(messages)[0] == LOST
    assert max(world.starts.values()) == 1


async def test_a_call_that_may_run_again_runs_again_under_the_same_key(anyio_backend: str) -> None:
    keys: list[str] = []

    @tool_with_ctx(idempotent=True)
    async def book(context: ToolContext[World], n: int) -> str:
        """Book a seat."""
        keys.append(context.idempotency_key)
        return f"seat {n}"

    registry, memory = ToolRegistry[World]([book]), Memory()
    scenario = replace(SCENARIOS["parallel"], plan=([call("b1", "book")], "done"), registry=lambda: registry)
    with pytest.raises(CrashError):
        await scenario.run(MemoryJournal(memory, CrashPlan(3 * 2 + 2)), World())
    _, messages = await scenario.run(MemoryJournal(memory), World())
    assert results_of(messages) == ["seat 1"]
    assert keys == ["run/b1", "run/b1"]


@pytest.mark.parametrize("saved_chars", [10_000, 0])
async def test_what_was_cut_before_a_crash_is_in_the_log_or_its_notice_says_that_it_is_gone(
    anyio_backend: str, saved_chars: int
) -> None:
    @tool
    def read_book() -> str:
        """Read the book."""
        return "0123456789" * 100

    memory, tools = Memory(), ToolRegistry([read_book])
    name = ResultStore().put("0123456789" * 100)
    reads = ToolCall("r", "read_result", f'{{"id": "{name}", "start": 500, "length": 3}}')

    async def run(plan: CrashPlan | None = None) -> list[str]:
        config = ToolLoopConfig(
            output=OutputLimits(max_chars=100, saved_chars=saved_chars), journal=MemoryJournal(memory, plan)
        )
        model = ScriptedProvider([ToolCall("b", "read_book", "{}"), reads, "done"])
        model = model if plan else ScriptedProvider([reads, "done"])
        return results_of((await tool_loop(model, tools, "go", config=config)).messages)

    with pytest.raises(CrashError):
        await run(CrashPlan(3 * 3 + 1))
    cut, page = await run()
    assert ("not stored anymore" in cut) == (saved_chars == 0)
    assert page.startswith("Unknown tool" if saved_chars == 0 else "[characters 500 to 503 of 1000")
    assert await run() == [cut, page]


async def test_observers_are_told_what_is_new_and_that_the_run_goes_on(anyio_backend: str) -> None:
    memory, events = await crash_at("parallel", World(), 3 * 3 + 1), list[LoopEvent]()
    await SCENARIOS["parallel"].run(MemoryJournal(memory), World(), on_event=events.append)
    assert isinstance(events[0], RunStart)
    assert events[0].is_resumed
    assert events[0].message_count == 3
    ended = [event.call_id for event in events if isinstance(event, ToolExecutionEnd)]
    assert ended == ["c2", "c3", "c4", "c5", "c6", "c7"]
    assert {event.run_id for event in events} == {"run"}


async def test_each_call_is_told_of_that_the_log_did_not_have_wherever_the_process_ended(anyio_backend: str) -> None:
    whole = Memory()
    _, messages = await SCENARIOS["parallel"].run(MemoryJournal(whole), World())
    calls = {message.call_id for message in messages if isinstance(message, ToolResult)}
    for point in range(1, 3 * len(whole.names) + 1):
        memory, events = await crash_at("parallel", World(), point), list[LoopEvent]()
        kept = {name.removeprefix("run:call ") for name in memory.names if name.startswith("run:call ")}
        await SCENARIOS["parallel"].run(MemoryJournal(memory), World(), on_event=events.append)
        ended = [event.call_id for event in events if isinstance(event, ToolExecutionEnd)]
        assert sorted(ended) == sorted(calls - kept), f"after a crash at point {point}"


async def test_a_run_that_has_ended_tells_its_beginning_and_end_again(anyio_backend: str) -> None:
    memory, events = Memory(), list[LoopEvent]()
    await SCENARIOS["parallel"].run(MemoryJournal(memory), World())
    await SCENARIOS["parallel"].run(MemoryJournal(memory), World(), on_event=events.append)
    assert [type(event).__name__ for event in events] == ["RunStart", "Done"]


async def test_a_stream_of_a_resumed_run_has_what_is_new(anyio_backend: str) -> None:
    memory, scenario = await crash_at("parallel", World(), 3 * 5), SCENARIOS["parallel"]
    config = ToolLoopConfig(journal=MemoryJournal(memory))
    handle = ToolLoopHandle(
        plan_provider(scenario.plan), scenario.registry(), scenario.name, ctx=World(), config=config
    )
    async with handle.stream() as events:
        kinds = [type(event).__name__ async for event in events]
    assert kinds[0] == "RunStart"
    assert kinds[-1] == "Done"
    assert kinds.count("ResponseReceived") == 3


@tool
async def sleep_long(n: int) -> str:
    """Sleep."""
    del n
    await anyio.sleep_forever()
    raise AssertionError


async def test_a_cancelled_run_stays_cancelled_with_what_was_told_of_its_calls(anyio_backend: str) -> None:
    memory, world = Memory(), World()
    registry: ToolRegistry[World] = ToolRegistry[World]([append, sleep_long])
    provider = plan_provider([[call("c1"), call("s1", "sleep_long")], "done"])

    async def run(provider: Any, tools: ToolRegistry[World], *, stops: bool) -> ToolLoopResult[Any]:
        config = ToolLoopConfig(journal=MemoryJournal(memory))
        handle = ToolLoopHandle(provider, tools, "go", ctx=world, config=config)
        async with anyio.create_task_group() as tasks:
            if stops:
                tasks.start_soon(stop, handle)
            await handle.run()
        return handle.result

    async def stop(handle: ToolLoopHandle[World, Any]) -> None:
        while "call c1" not in "".join(memory.names):
            await anyio.lowlevel.checkpoint()
        handle.cancel("enough")

    with anyio.fail_after(120):
        first = await run(provider, registry, stops=True)
    again = await run(ScriptedProvider([]), ToolRegistry[World](), stops=False)
    assert first.reason == again.reason == Cancelled("enough")
    assert dump_messages(first.messages) == dump_messages(again.messages)
    assert results_of(first.messages) == [
        "did run/c1 with 1",
        "Interrupted: the run was cancelled. The tool was running and may have taken effect.",
    ]


async def run_until_asleep(
    provider: Any, tools: ToolRegistry[World], world: World, config: ToolLoopConfig[None]
) -> None:
    """Cancel the task of a run when its tool sleeps."""
    asleep = anyio.Event()

    def note_start(event: LoopEvent) -> None:
        if isinstance(event, ToolExecutionStart) and event.tool_name == "sleep_long":
            asleep.set()

    async def cancel() -> None:
        await asleep.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        await tool_loop(provider, tools, "go", ctx=world, config=replace(config, on_event=note_start))


async def test_a_run_whose_task_was_cancelled_goes_on(anyio_backend: str) -> None:
    memory, world = Memory(), World()
    provider = plan_provider([[call("c1")], [call("s1", "sleep_long")], "done"])
    config = ToolLoopConfig(journal=MemoryJournal(memory))
    tools = ToolRegistry[World]([append, sleep_long])
    await run_until_asleep(provider, tools, world, config)
    config = ToolLoopConfig(journal=MemoryJournal(memory))
    result = await tool_loop(provider, tools, "go", ctx=world, config=config)
    assert isinstance(result.reason, Complete)
    assert results_of(result.messages) == ["did run/c1 with 1", LOST]


async def test_a_run_that_is_cancelled_before_it_goes_on_has_what_was_done(anyio_backend: str) -> None:
    memory, world, scenario = await crash_at("parallel", World(), 3 * 3), World(), SCENARIOS["parallel"]
    config = ToolLoopConfig(journal=MemoryJournal(memory))
    handle = ToolLoopHandle(plan_provider(scenario.plan), scenario.registry(), scenario.name, ctx=world, config=config)
    handle.cancel("not wanted")
    result = await handle.run()
    assert result.reason == Cancelled("not wanted")
    assert results_of(result.messages) == ["did run/c1 with 1"]
    assert not world.starts


async def test_the_time_that_is_left_is_kept(anyio_backend: str) -> None:
    memory = Memory()
    provider = plan_provider([[call("c1")], [call("s1", "sleep_long")], "done"])
    tools = ToolRegistry[World]([append, sleep_long])

    async def run() -> ToolLoopResult[Any]:
        config = ToolLoopConfig(journal=MemoryJournal(memory), timeout=0.3)
        return await tool_loop(provider, tools, "go", ctx=World(), config=config)

    first, again = await run(), await run()
    assert first.reason == again.reason == Timeout(0.3)
    assert dump_messages(first.messages) == dump_messages(again.messages)
    position, (name, text) = [*memory.runs["run"].items()][-2]
    assert name == "turn 2", position
    assert 0 < json.loads(text)["side"]["left"] < 0.3


async def test_stop_when_is_asked_once_for_each_reply(anyio_backend: str) -> None:
    asked: list[int] = []

    def stop_when(context: StopContext) -> Continue | Stop:
        asked.append(context.iteration)
        return Stop("seen") if context.iteration == 2 else Continue()

    memory = Memory()
    scenario = replace(SCENARIOS["parallel"], config=lambda: ToolLoopConfig(stop_when=stop_when))
    first, _ = await scenario.run(MemoryJournal(memory), World())
    again, _ = await scenario.run(MemoryJournal(memory), World())
    assert isinstance(first, ToolLoopResult)
    assert isinstance(again, ToolLoopResult)
    assert first.reason == again.reason == StopCondition("seen")
    assert asked == [1, 2]


async def test_a_decision_that_was_kept_is_not_asked_for_again(anyio_backend: str) -> None:
    scenario, memory, world = SCENARIOS["late approvals"], Memory(), World()
    await scenario.run(MemoryJournal(memory), world)
    assert dict(world.asked) == {"p1": 1, "p2": 1, "p3": 1}
    outcome, messages = await scenario.run(MemoryJournal(memory), world)
    assert isinstance(outcome, ToolLoopResult)
    assert dict(world.asked) == {"p1": 1, "p2": 1, "p3": 1}
    assert any(text.startswith("did run/p2 with 22\n\n[The approver changed") for text in results_of(messages))


class EngineJournal(MemoryJournal):
    """A log that has nothing to recall where a decision is awaited, and does not know there that it goes on."""

    async def recall(self, name: str) -> None:
        return None

    async def finish(self) -> None:
        pass


async def test_a_decision_that_is_made_anew_is_taken_from_the_log_and_the_run_goes_on(anyio_backend: str) -> None:
    scenario, whole = SCENARIOS["late approvals"], Memory()
    await scenario.run(EngineJournal(whole), World())
    for point in range(1, 3 * len(whole.names) + 1):
        memory, world = Memory(), World()
        with pytest.raises(CrashError):
            await scenario.run(EngineJournal(memory, CrashPlan(point)), world)
        outcome, messages = await scenario.run(EngineJournal(memory), world)
        assert isinstance(outcome, ToolLoopResult)
        assert outcome.text == "done"
        assert find_faults(world, messages) == []
        assert "did run/p2 with 2" not in results_of(messages), f"after a crash at point {point}"


async def test_arguments_that_were_decided_on_hold_where_the_run_is_restored_after_a_crash(anyio_backend: str) -> None:
    scenario, first = SCENARIOS["late approvals"], Memory()
    outcome, _ = await replace(scenario, decide=None).run(EngineJournal(first), World())
    assert isinstance(outcome, ToolLoopResult)
    snapshot = outcome.snapshot
    assert snapshot is not None

    async def go_on(memory: Memory, crash: int) -> list[str]:
        config = replace(scenario.config(), journal=EngineJournal(memory, CrashPlan(crash)))
        provider = plan_provider(scenario.plan)
        handle = ToolLoopHandle.restore(snapshot, provider, scenario.registry(), ctx=World(), config=config)
        for pending in handle.pending_approvals:
            assert scenario.decide is not None
            await handle.decide(pending.call_id, scenario.decide(pending.call_id), binding=pending.binding)
        return results_of((await handle.run()).messages)

    whole = Memory()
    assert any(text.startswith("did run/p2 with 22\n\n[The approver changed") for text in await go_on(whole, 0))
    for point in range(1, 3 * len(whole.names) + 1):
        memory = Memory()
        with pytest.raises(CrashError):
            await go_on(memory, point)
        assert "did run/p2 with 2" not in await go_on(memory, 0), f"after a crash at point {point}"


async def test_a_loop_with_a_journal_is_not_stepped(anyio_backend: str) -> None:
    handle = ToolLoopHandle(ScriptedProvider(["x"]), ToolRegistry(), "go", config=_with(Memory()))
    with pytest.raises(ConfigurationError, match="not stepped by hand"):
        await handle.next_turn()
    with pytest.raises(ConfigurationError, match="not stepped by hand"):
        handle.resume(Stop())


def _with(memory: Memory, **settings: Any) -> ToolLoopConfig[Any]:
    return ToolLoopConfig(journal=MemoryJournal(memory), **settings)


async def _fail(memory: Memory, prompt: str = "parallel", **settings: Any) -> JournalError:
    scenario = SCENARIOS["parallel"]
    with pytest.raises(JournalError) as caught:
        await tool_loop(
            plan_provider(scenario.plan), scenario.registry(), prompt, ctx=World(), config=_with(memory, **settings)
        )
    return caught.value


async def test_another_prompt_is_an_error_that_names_both(anyio_backend: str) -> None:
    memory = await crash_at("parallel", World(), 12)
    error = await _fail(memory, "something else")
    assert "its prompt is {'messages': [{'content': 'parallel'" in str(error)
    assert "something else" in str(error)


async def test_settings_that_ask_for_other_entries_are_an_error_that_names_both(anyio_backend: str) -> None:
    memory = await crash_at("parallel", World(), 12)
    error = await _fail(memory, compaction=keep_last(100))
    assert "the log has the entry 'turn 1' where the run asks for 'compact 1'" in str(error)


async def test_a_run_that_ends_before_its_log_does_is_an_error(anyio_backend: str) -> None:
    memory = Memory()
    await SCENARIOS["parallel"].run(MemoryJournal(memory), World())
    assert "the log goes on with" in str(await _fail(memory, max_iterations=2))


async def test_a_log_of_another_format_is_an_error(anyio_backend: str) -> None:
    memory = await crash_at("parallel", World(), 12)
    name, text = memory.runs["run"][1]
    memory.runs["run"][1] = name, json.dumps({**json.loads(text), "format": 99})
    assert "the log is of format 99, and this library reads format 1" in str(await _fail(memory))


CHANGED: list[list[Any]] = [
    [["tool_returned", "c9", {}]],
    [["nonsense"]],
    [["tool_started", "c1"], ["tool_started", "c1"]],
    [3],
]


@pytest.mark.parametrize("feeds", CHANGED)
async def test_an_entry_that_was_changed_is_an_error(feeds: list[Any], anyio_backend: str) -> None:
    memory = await crash_at("parallel", World(), 12)
    name, text = memory.runs["run"][3]
    memory.runs["run"][3] = name, json.dumps({**json.loads(text), "feeds": feeds})
    assert f"the entry '{name}' of the log does not fit the run" in str(await _fail(memory))


async def test_what_can_not_be_kept_is_an_error_that_names_it(anyio_backend: str) -> None:
    def model(request: ChatRequest) -> Any:
        from toolkit import AssistantMessage
        from toolkit.chat import ChatResponse

        return ChatResponse(message=AssistantMessage("x"), metadata={"raw": object()})

    with pytest.raises(JournalError, match="ModelReplied can't be stored in the log"):
        await tool_loop(FunctionProvider(model), ToolRegistry(), "go", config=_with(Memory()))


async def test_a_call_that_was_approved_and_may_have_begun_is_not_run_by_another_tool(anyio_backend: str) -> None:
    memory, world, scenario = Memory(), World(), SCENARIOS["approvals"]
    with pytest.raises(CrashError):
        await scenario.run(MemoryJournal(memory, CrashPlan(3 * 3)), world)

    @tool_with_ctx(name="append")
    async def other(context: ToolContext[World], n: int) -> str:
        """Do something else."""
        return "something else"

    result, messages = await scenario.run(MemoryJournal(memory), world, registry=ToolRegistry[World]([other]))
    assert isinstance(result, ToolLoopResult)
    assert result.reason.kind == "complete"
    assert results_of(messages)[0] == LOST


def test_a_journal_must_be_one() -> None:
    with pytest.raises(ConfigurationError, match="journal must be a Journal"):
        ToolLoopConfig(journal="run.db")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_late_decision_is_made_on_what_was_replayed(anyio_backend: str) -> None:
    scenario, memory = SCENARIOS["late approvals"], Memory()
    undecided = replace(scenario, decide=None)
    first, _ = await undecided.run(MemoryJournal(memory), World())
    second, _ = await undecided.run(MemoryJournal(memory), World())
    assert isinstance(first, ToolLoopResult)
    assert isinstance(second, ToolLoopResult)
    assert first.snapshot is not None
    assert second.snapshot is not None
    assert first.snapshot["pending_approvals"] == second.snapshot["pending_approvals"]
    handle = ToolLoopHandle(
        plan_provider(scenario.plan), scenario.registry(), scenario.name, ctx=World(), config=_with_late(memory)
    )
    await handle.run()
    with pytest.raises(LoopUsageError, match="no decision is awaited on call 'nobody'"):
        await handle.decide("nobody", approval=True, binding="")
    assert not any("decided" in name for name in memory.names)


def _with_late(memory: Memory) -> ToolLoopConfig[Any]:
    return replace(SCENARIOS["late approvals"].config(), journal=MemoryJournal(memory))


class SlowJournal(MemoryJournal):
    """A log that takes its time to be read."""

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        if self._next == 0:
            await anyio.sleep(0.15)
        return await super().all(entries)


async def test_the_time_stands_while_the_log_is_read_and_nothing_of_it_is_lost(anyio_backend: str) -> None:
    memory = Memory()
    provider = plan_provider([[call("c1")], [call("s1", "sleep_long")], "done"])
    tools = ToolRegistry[World]([append, sleep_long])
    await run_until_asleep(provider, tools, World(), _with(memory, timeout=60))
    config = ToolLoopConfig[None](journal=SlowJournal(memory), timeout=0.1)
    result = await tool_loop(provider, tools, "go", ctx=World(), config=config)
    assert isinstance(result.reason, Complete), "what was left is what the log says, 60 seconds"
    assert results_of(result.messages) == ["did run/c1 with 1", LOST]


async def test_a_run_whose_time_is_over_has_what_was_recorded(anyio_backend: str) -> None:
    memory, world = Memory(), World()
    plan: list[list[ToolCall] | str] = [[call("c1")], [call("c2")], "done"]
    with pytest.raises(CrashError):
        await tool_loop(
            plan_provider(plan),
            ToolRegistry[World]([append]),
            "go",
            ctx=world,
            config=ToolLoopConfig[None](journal=MemoryJournal(memory, CrashPlan(3 * 3 + 1)), timeout=1),
        )
    position = max(memory.runs["run"])
    name, text = memory.runs["run"][position]
    value = json.loads(text)
    memory.runs["run"][position] = name, json.dumps({**value, "side": {**value.get("side", {}), "left": 0.0}})
    result = await tool_loop(
        plan_provider(plan), ToolRegistry[World]([append]), "go", ctx=world, config=_with(memory, timeout=1)
    )
    assert result.reason == Timeout(1)
    assert results_of(result.messages)[:1] == ["did run/c1 with 1"]
    assert max(world.starts.values()) == 1


async def test_a_restored_loop_that_had_no_limit_of_time_may_be_given_one(anyio_backend: str) -> None:
    scenario = SCENARIOS["late approvals"]
    undecided = replace(scenario, decide=None)
    first, _ = await undecided.run(MemoryJournal(Memory()), World())
    assert isinstance(first, ToolLoopResult)
    assert first.snapshot is not None
    memory = Memory()
    handle = ToolLoopHandle.restore(
        first.snapshot,
        plan_provider(scenario.plan),
        scenario.registry(),
        ctx=World(),
        config=replace(_with_late(memory), timeout=60),
    )
    for pending in handle.pending_approvals:
        await handle.decide(pending.call_id, approval=True, binding=pending.binding)
    await handle.run()
    assert all("Infinity" not in text for _, text in memory.runs["run"].values())


@pytest.mark.parametrize("mode", ["tool", "native"])
async def test_a_check_is_not_asked_again_about_an_answer_that_the_log_has(mode: Any, anyio_backend: str) -> None:
    del anyio_backend
    asked: list[int] = []

    def double(answer: int) -> float:
        asked.append(answer)
        return answer * 2.0

    def config(memory: Memory) -> ToolLoopConfig[float]:
        return ToolLoopConfig(answer=AnswerFormat(int, check=double, mode=mode), journal=MemoryJournal(memory))

    memory = Memory()
    said: Any = call("f1", "final_answer", answer=7) if mode == "tool" else '{"answer": 7}'
    first = await tool_loop(ScriptedProvider([said]), ToolRegistry(), "go", config=config(memory))
    again = await tool_loop(ScriptedProvider([]), ToolRegistry(), "go", config=config(memory))
    assert (first.output, again.output, asked) == (14.0, 14.0, [7])
