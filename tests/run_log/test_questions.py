"""A run that asks by its log, and whoever answers beside it."""

from pathlib import Path

import anyio
import pytest

from tests.run_log.questions import find_question
from toolkit import (
    ConfigurationError,
    ToolCall,
    ToolLoopConfig,
    ToolLoopResult,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_sync,
)
from toolkit.agents import sub_agent_tool
from toolkit.calls.policy import Timeouts
from toolkit.run_log import RunLog, answer_question, ask_on_page
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool
def delete(name: str) -> str:
    """Delete."""
    return f"{name} is gone"


DELETES = ToolCall("1", "delete", '{"name": "a"}')


@pytest.fixture(params=["runs", "runs.db"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / str(request.param))


async def play_and_answer(log: RunLog, registry: ToolRegistry[object], answer: str, call: ToolCall) -> str:
    """Return what the tool gave once another object on the same log has answered."""
    results: list[ToolLoopResult[None]] = []
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,), on_tool_call=ask_on_page(log))

    async def run() -> None:
        results.append(await tool_loop(ScriptedProvider([call, "Well."]), registry, "Go", config=config))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            page = RunLog(log.path)
            question = await find_question(page)
            run_id = page.runs()[0].id
            if answer == "approve":
                answer_question(page, run_id, question["question"], "approve")
            else:
                answer_question(page, run_id, question["question"], "deny", answer)
            with pytest.raises(ConfigurationError, match="the question is no longer open"):
                answer_question(page, run_id, question["question"], "approve")
    return results[0].messages[2].text


async def test_a_call_runs_once_it_was_approved_on_another_page(log: RunLog) -> None:
    assert await play_and_answer(log, ToolRegistry([delete]), "approve", DELETES) == "a is gone"
    kinds = [entry.kind for entry in log.read(log.runs()[0].id)]
    asked = ["approval_requested", "question_asked", "question_answered", "tool_execution_start"]
    assert [kind for kind in kinds if kind in asked] == asked


async def test_a_denial_is_read_by_the_model(log: RunLog) -> None:
    assert await play_and_answer(log, ToolRegistry([delete]), "Not that one.", DELETES) == "Not that one."


async def test_the_call_of_a_sub_agent_is_asked_about_in_its_own_loop(log: RunLog) -> None:
    cleaner = sub_agent_tool("cleaner", "Cleans.", ScriptedProvider([DELETES, "Clean."]), ToolRegistry([delete]))
    config: ToolLoopConfig[None] = ToolLoopConfig(
        middleware=(log,),
        on_tool_call=lambda request: ask_on_page(log)(request) if request.agent else True,
    )
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            provider = ScriptedProvider([ToolCall("9", "cleaner", '{"task": "clean"}'), "Done."])
            tasks.start_soon(lambda: tool_loop(provider, ToolRegistry([cleaner]), "Go", config=config))
            question = await find_question(log)
            assert (question["agent"], question["tool_name"]) == ("cleaner", "delete")
            assert question["loop_id"] != question["run_id"]
            answer_question(log, question["run_id"], question["question"], "approve")
    assert log.runs()[0].ending == "complete"


def test_a_question_that_nobody_answers_is_withdrawn_when_its_time_is_over(log: RunLog) -> None:
    config: ToolLoopConfig[None] = ToolLoopConfig(
        middleware=(log,), on_tool_call=ask_on_page(log), timeouts=Timeouts(approval=0.1)
    )
    result = tool_loop_sync(ScriptedProvider([DELETES, "Well."]), ToolRegistry([delete]), "Go", config=config)
    assert "nobody decided on it within 0.1 s" in result.messages[2].text
    run_id = log.runs()[0].id
    (asked,) = [entry.plain for entry in log.read(run_id) if entry.kind == "question_asked"]
    (answered,) = [entry.plain for entry in log.read(run_id) if entry.kind == "question_answered"]
    assert answered["answer"] == "withdrawn"
    with pytest.raises(ConfigurationError, match="or was withdrawn"):
        answer_question(log, run_id, asked["question"], "approve")


def test_a_run_that_is_not_written_to_the_log_asks_nobody(log: RunLog) -> None:
    config: ToolLoopConfig[None] = ToolLoopConfig(on_tool_call=ask_on_page(log))
    result = tool_loop_sync(ScriptedProvider([DELETES, "Well."]), ToolRegistry([delete]), "Go", config=config)
    assert "this run is not logged" in result.messages[2].text


def test_a_page_asks_only_about_what_it_shows(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="content='all'"):
        ask_on_page(RunLog(tmp_path / "runs", content="none"))
