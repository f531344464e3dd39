"""`toolkit eval`: figures with intervals, outcomes that are stored, and tasks or models that can't be."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran

Run = Callable[..., Ran]

TASKS = """
instructions: Be brief.
tasks:
  - class: weather
    prompt: What is the weather in Paris?
    calls:
      - get_weather: {city: Paris}
        returns: 18 degrees
    says: ["18"]
  - class: weather
    prompt: And in Rome, <b>now</b>?
    calls: [{get_weather: {city: Rome}}]
  - class: none
    prompt: Hello!
    calls: []
"""
MODEL = """
from toolkit import AssistantMessage, ProviderError, ToolCall, ToolResult
from toolkit.testing import FunctionProvider, ScriptedProvider

ASKED = []


def reply(request):
    words = request.messages[-1].text
    ASKED.append(words)
    if "Paris" in words:
        return ToolCall("call", "get_weather", '{"city": "Paris"}')
    return words if isinstance(request.messages[-1], ToolResult) else "<script>alert(1)</script>"


model = FunctionProvider(reply)


def other(request):
    return "I can't."


silent = FunctionProvider(other)


def leave(request):
    if len(ASKED) > 1:
        raise ProviderError("it", "connection refused", is_retryable=True, retry_after=9999)
    return reply(request)


away = FunctionProvider(leave)


def break_down(request):
    return reply(request) if not ASKED else 1 / 0


broken = FunctionProvider(break_down)
"""


@pytest.fixture
def tasks(file: Path) -> Path:
    file.with_name("some_model.py").write_text(MODEL)
    path = file.with_name("tasks.yaml")
    path.write_text(TASKS)
    return path


def evaluate(run: Run, *arguments: str, model: str = "model") -> Ran:
    return run("eval", "some_tools.py", "--tasks", "tasks.yaml", "--model", f"some_model.py:{model}", *arguments)


def test_classes_are_counted_with_intervals_and_no_tool_runs(run: Run, tasks: Path) -> None:
    ran = evaluate(run)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split() == ["solved,", "in", "%", "(interval)", "some_model.py:model"]
    assert [line.split("  ")[0] for line in lines[1:4]] == ["weather (2)", "none (1)", "all (3)"]
    assert lines[3].endswith("67 (21 to 94)")
    assert "no call 1" in ran.out
    assert "printed by the tool" not in ran.err


def test_tools_run_where_they_are_to(run: Run, tasks: Path) -> None:
    assert "printed by the tool" in evaluate(run, "--run-tools").err


def test_each_model_is_measured_in_each_way(run: Run, tasks: Path) -> None:
    ran = evaluate(run, "--model", "some_model.py:silent", "--way", "native", "--way", "text", "-o", "json")
    document = json.loads(ran.out)
    assert [each["label"] for each in document["candidates"]] == [
        f"some_model.py:{model} {way}" for model in ("model", "silent") for way in ("native", "text")
    ]
    assert [each["scores"]["all"]["solved"] for each in document["candidates"]] == [2, 1, 1, 1]
    assert document["candidates"][2]["reasons"] == {"no call": 2}
    assert document["trials"][0]["calls"] == [["get_weather", {"city": "Paris", "days": 1, "unit": "celsius"}]]


def test_outcomes_are_kept_and_a_cut_line_is_run_again(run: Run, tasks: Path) -> None:
    kept = tasks.with_name("kept.jsonl")
    first = evaluate(run, "--results", "kept.jsonl", "-o", "json")
    lines = kept.read_text().splitlines()
    assert len(lines) == 3
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])
    again = evaluate(run, "--results", "kept.jsonl", "-o", "json")
    assert len(kept.read_text().splitlines()) == 4

    def solved(ran: Ran) -> dict[str, Any]:
        return {each["task"]: each["reason"] for each in json.loads(ran.out)["trials"]}

    assert solved(first) == solved(again)
    third = evaluate(run, "--results", "kept.jsonl", "-o", "json")
    assert len(kept.read_text().splitlines()) == 4
    assert json.loads(third.out)["trials"][0]["seconds"] == json.loads(first.out)["trials"][0]["seconds"]


def test_a_guided_model_whose_server_holds_no_reply_to_a_schema_is_told(run: Run, tasks: Path) -> None:
    ran = evaluate(run, "--way", "native", "--way", "guided", model="silent")
    assert "guided: 0 tokens" in ran.out
    assert "the request failed 3" in ran.out
    assert "silent guided, a request that failed: " in ran.err
    assert "schema" in ran.err


def test_a_model_that_goes_away_is_given_up_with_what_it_did(run: Run, tasks: Path) -> None:
    tasks.write_text(TASKS + "\n".join(f"  - {{prompt: 'Task {number}', calls: []}}" for number in range(5)))
    ran = evaluate(run, "--results", "kept.jsonl", "--model", "some_model.py:silent", "-o", "json", model="away")
    assert ran.code == 1
    away, silent = json.loads(ran.out)["candidates"]
    assert "connection refused" in away["problem"]
    assert away["scores"]["all"]["tasks"] == 1
    assert silent["scores"]["all"]["tasks"] == 8
    assert len(tasks.with_name("kept.jsonl").read_text().splitlines()) == 9


def test_a_model_of_the_users_own_that_raises_is_told_after_what_was_done(run: Run, tasks: Path) -> None:
    tasks.write_text(TASKS.replace("Paris?", "Oslo?").replace("city: Paris", "city: Oslo"))
    ran = evaluate(run, model="broken")
    assert ran.code == 1
    assert "ZeroDivisionError" in ran.err
    assert "weather (1)" in ran.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tasks: [", "tasks.yaml can't be read"),
        ("- 1", "the key 'tasks' is missing"),
        ("tasks: []", "has 0 tasks"),
        ("tasks: [{prompt: Hello}]", "tasks.0 ('Hello'): it checks nothing: give 'calls'"),
        ("tasks: [{prompt: ' ', calls: []}]", "its prompt is empty"),
        ("tasks: [{prompt: A, calls: [], sais: [1]}]", "tasks[0].sais"),
        ("tasks: [{prompt: A, calls: [{get_wether: {}}]}]", "which does not exist; did you mean 'get_weather'?"),
        ("tasks: [{prompt: A, calls: [{get_weather: {town: x}}]}]", "that the tool does not accept: - town: unknown"),
        ("tasks: [{prompt: A, calls: [get_weather]}]", "calls[0]"),
        ("tasks: [{prompt: A, calls: [{get_weather: 3}]}]", "the arguments of get_weather must be an object"),
        ("tasks: [{id: x, prompt: A, calls: []}, {id: x, prompt: B, calls: []}]", "another task has the id 'x'"),
        (
            "tasks: [{prompt: A, calls: [], may_call: [banana]}]",
            "names the tool 'banana', which does not exist; there are",
        ),
        ("tasks: &a [*a]", "tasks.yaml can't be read"),
        ("returns: {banana: x}\ntasks: [{prompt: A, calls: []}]", "'returns' names the tool 'banana'"),
    ],
)
def test_tasks_that_can_not_be_are_told(run: Run, tasks: Path, text: str, told: str) -> None:
    tasks.write_text(text)
    ran = evaluate(run)
    assert ran.code == 2
    assert told in ran.err.splitlines()[-1]


def test_what_can_not_be_used_is_told(run: Run, tasks: Path) -> None:
    tasks.with_name("kept.jsonl").write_text("hello\nthere\n")
    ran = evaluate(run, "--results", "kept.jsonl")
    assert (ran.code, "kept.jsonl:1 is no outcome of `toolkit eval`" in ran.err) == (2, True)
    assert "is no model" in evaluate(run, model="nothing").err


@pytest.mark.real
def test_ctrl_c_ends_it_and_keeps_what_was_done(tasks: Path) -> None:
    slow = """
import sys, anyio

class Slow:
    asked = 0
    async def generate(self, request):
        Slow.asked += 1
        if Slow.asked == 3:
            print("waiting", file=sys.stderr, flush=True)
            await anyio.sleep_forever()
        return await model.generate(request)
    def stream(self, request):
        raise NotImplementedError

slow = Slow()
"""
    tasks.with_name("some_model.py").write_text(MODEL + slow)
    command = [sys.executable, "-m", "toolkit", "eval", "some_tools.py", "--tasks", "tasks.yaml", "--results", "kept"]
    with subprocess.Popen(
        [*command, "--model", "some_model.py:slow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        while "waiting" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(tasks.with_name("kept").read_text().splitlines()) == 1
    assert "weather (1)" in out
