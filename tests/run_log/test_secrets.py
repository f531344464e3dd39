"""Thirty kinds of secrets, said by the user, the model, a tool and an error: none is in what is kept."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from tests.run_log.planted_secrets import PLANTED, Planted
from tests.run_log.questions import find_question
from toolkit import (
    AssistantMessage,
    ProviderError,
    ProviderRetryConfig,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_stream,
    tool_loop_sync,
    tool_with_ctx,
)
from toolkit.chat import ReasoningBlock, TextBlock
from toolkit.run_log import (
    RunLog,
    Timeline,
    answer_question,
    ask_on_page,
    describe_step,
    export_lines,
    export_markdown,
    export_test,
)
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool_with_ctx
def repeat(context: ToolContext[object], text: str, note: dict[str, Any] | None = None) -> str:
    """Say it again."""
    context.report_progress(text)
    return f"I was given {text}"


@tool
def crash(text: str) -> str:
    """Crash."""
    raise ValueError(text)


def make_replies(text: str) -> list[Any]:
    said = json.dumps({"text": text, "note": {"text": text, text: 1}})
    failure = ProviderError("Test", text, is_retryable=True)
    return [
        failure,
        AssistantMessage([ReasoningBlock(text=text), TextBlock(text), ToolCall("1", "repeat", said)]),
        AssistantMessage([ToolCall("2", "crash", json.dumps({"text": text})), ToolCall("3", text[:60], "{}")]),
        text,
    ]


async def play(log: RunLog, text: str) -> str:
    config: ToolLoopConfig[None] = ToolLoopConfig(
        middleware=(log,), provider_retry=ProviderRetryConfig(initial_backoff=0, jitter=0)
    )
    registry = ToolRegistry([repeat, crash])
    async with tool_loop_stream(ScriptedProvider(make_replies(text)), registry, text, config=config) as events:
        async for _ in events:
            pass
    return log.runs()[0].id


def show_all(log: RunLog, run_id: str) -> str:
    """Return all that a reader of the log may come to see."""
    timeline, entries = Timeline(), {entry.position: entry for entry in log.read(run_id)}
    for entry in entries.values():
        timeline.add(entry)
    steps = [[step, describe_step([entries[each] for each in step.positions])] for step in timeline.steps]
    kept = log.path.read_bytes() if log.path.is_file() else b"".join(file.read_bytes() for file in log.path.iterdir())
    parts = [repr(log.runs()), repr(steps), kept.decode("utf-8", "replace"), "".join(export_lines(log, run_id))]
    return "\n".join([*parts, export_markdown(log, run_id), export_test(log, run_id)])


def test_there_are_thirty_kinds() -> None:
    assert len({planted.kind for planted in PLANTED}) == 30
    assert all(planted.secret in planted.text for planted in PLANTED)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.kind)
async def test_a_planted_secret_is_nowhere(planted: Planted, tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs")
    shown = show_all(log, await play(log, planted.text))
    assert "I was given" in shown
    assert planted.secret not in shown
    assert json.dumps(planted.secret)[1:-1] not in shown


async def test_what_the_application_knows_to_be_secret_is_struck_out_whatever_it_looks_like(tmp_path: Path) -> None:
    secret = "plain words that nobody may see"
    log = RunLog(tmp_path / "runs.db", secrets=[secret])
    shown = show_all(log, await play(log, f"he said {secret} twice"))
    assert "I was given he said *** twice" in shown
    assert secret not in shown


def test_an_argument_that_its_schema_calls_secret_is_struck_out_wherever_it_comes_up_afterwards(tmp_path: Path) -> None:
    @tool
    def sign_in(pin: SecretStr, user: str) -> str:
        """Sign in."""
        return f"{user} is in with {pin.get_secret_value()}"

    log = RunLog(tmp_path / "runs")
    replies: list[Any] = [
        ToolCall("1", "sign_in", '{"user": "ada", "pin": "quite-ordinary"}'),
        "You are in: quite-ordinary.",
    ]
    config = ToolLoopConfig(middleware=(log,))
    tool_loop_sync(ScriptedProvider(replies), ToolRegistry([sign_in]), "Sign me in.", config=config)
    shown = show_all(log, log.runs()[0].id)
    assert "ada is in with ***" in shown
    assert "quite-ordinary" not in shown


async def test_a_question_shows_no_secret(tmp_path: Path) -> None:
    log, key = RunLog(tmp_path / "runs"), "sk-proj-" + "a1B2" * 9
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,), on_tool_call=ask_on_page(log))
    provider = ScriptedProvider([ToolCall("1", "repeat", json.dumps({"text": key})), "Ok."])
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: tool_loop(provider, ToolRegistry([repeat]), "Go", config=config))
            question = await find_question(log)
            assert "***" in question["preview"]
            answer_question(log, log.runs()[0].id, question["question"], "approve")
    assert key not in show_all(log, log.runs()[0].id)
