"""Spans of durable runs: what was recorded makes none again, and each process is linked to the one that began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from tests.durable.desk import make_desk, read_notes
from tests.durable.memory_journal import CrashError, CrashPlan, Memory, MemoryJournal
from tests.durable.scenarios import PLAN, World, append, look, plan_provider
from tests.durable.serving import worker_beside
from tests.tracing.test_spans import Recorder
from toolkit import Approve, ToolLoopConfig, ToolRegistry, tool_loop
from toolkit.durable import DurableRuns

pytestmark = pytest.mark.anyio


async def run_plan(recorder: Recorder, memory: Memory, crash: int = 0) -> None:
    journal = MemoryJournal(memory, CrashPlan(crash))
    config = replace(recorder.config(), journal=journal)
    await tool_loop(plan_provider(PLAN), ToolRegistry[World]([append, look]), "go", ctx=World(), config=config)


def find_links(span: ReadableSpan) -> Sequence[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def find_place(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def count_runs(recorder: Recorder, tool: str) -> int:
    """Return how often a tool ran; a process that ends by an error has the spans of calls that it did not begin."""
    spans = recorder.named(f"execute_tool {tool}")
    return sum((span.attributes or {}).get("error.type") != "refused" for span in spans)


async def test_what_is_replayed_makes_no_span_and_each_process_is_linked_to_the_first() -> None:
    first, second, third, memory = Recorder(), Recorder(), Recorder(), Memory()
    with pytest.raises(CrashError):
        await run_plan(first, memory, 3 * 3 + 1)  # before the second reply
    with pytest.raises(CrashError):
        await run_plan(second, memory, 2)  # when that has come, and is not kept
    await run_plan(third, memory)
    began = find_place(first.span("invoke_agent"))
    assert memory.runs["run"][1][1].count(f"{began[1]:016x}") == 1, "the log says where it began, once"
    assert find_links(first.span("invoke_agent")) == []
    assert find_links(second.span("invoke_agent")) == find_links(third.span("invoke_agent")) == [began]
    assert [count_runs(each, "append") for each in (first, second, third)] == [1, 0, 4]
    assert [len(each.named("chat")) for each in (first, second, third)] == [1, 1, 4]


async def test_without_tracing_the_log_says_nothing_of_it() -> None:
    memory = Memory()
    config = ToolLoopConfig[None](journal=MemoryJournal(memory))
    await tool_loop(plan_provider(PLAN), ToolRegistry[World]([append, look]), "go", ctx=World(), config=config)
    assert "trace" not in memory.runs["run"][1][1]


async def test_the_segments_of_a_durable_run_are_linked_to_its_first(tmp_path: Path) -> None:
    recorder, url = Recorder(), f"sqlite:///{tmp_path / 'runs.db'}"
    desk = make_desk(tmp_path)
    desk = replace(desk, config=recorder.config())
    async with DurableRuns(url) as runs:
        with recorder.traces.get_tracer("page").start_as_current_span("page"):
            run = await runs.start(desk, "refund wait", run_id="r")
        with worker_beside(url, desk, grace=0):
            await run.result(timeout=90)
            [pending] = (await run.status()).pending
            await run.decide(pending.call_id, Approve(), binding=pending.binding)
            with anyio.fail_after(90):
                while "wait c1" not in read_notes(tmp_path, "r"):  # noqa: ASYNC110 - of another thread
                    await anyio.sleep(0.01)
        with worker_beside(url, desk, lease=0.5):
            with anyio.fail_after(90):
                while (await run.status()).state != "done":  # noqa: ASYNC110 - of another thread
                    await anyio.sleep(0.02)
            await run.say("add")
            with anyio.fail_after(90):
                while not (await run.result()).text.startswith("Done after 3"):  # noqa: ASYNC110
                    await anyio.sleep(0.02)
    page, [first, *others] = recorder.span("page"), recorder.named("invoke_agent")
    assert first.parent is not None
    assert first.parent.span_id == find_place(page)[1], "the run is a part of what began it"
    assert [find_links(each) for each in others] == [[find_place(first)]] * 3
    assert len(recorder.named("execute_tool refund")) == 1
    assert len(recorder.named("execute_tool wait")) == 1
