"""A run for others: lines, Markdown, and a test that passes as it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    ConfigurationError,
    Deny,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_loop_sync,
)
from toolkit.events import load_event
from toolkit.run_log import RunLog, export_lines, export_markdown, export_test
from toolkit.testing import ScriptedProvider


@tool
def search(query: str) -> str:
    """Search."""
    if query == "odd":
        raise ValueError("odd things are not found")
    return f"found {query}\n```\ncode with 'quotes' and \"others\"\n```"


@tool(result_as_answer=True)
def answer(text: str) -> str:
    """Answer."""
    return text.upper()


def call(number: int, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(str(number), name, json.dumps(arguments))


def write_run(log: RunLog, *replies: Any, **options: Any) -> str:
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,), **options)
    tool_loop_sync(ScriptedProvider(replies), ToolRegistry([search, answer]), "Find it.", config=config)
    return log.runs()[0].id


SEVERAL = AssistantMessage([call(1, "search", query="a"), call(2, "search", query="odd"), call(3, "nope")])


def test_the_lines_are_the_entries(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs.db")
    lines = [json.loads(line) for line in export_lines(log, write_run(log, SEVERAL, "Found."))]
    assert [line["event"] for line in lines][:3] == ["run_opened", "loop_opened", "run_start"]
    assert [load_event(line) for line in lines if line["event"] == "done"]


def test_the_transcript_has_what_was_given_and_what_came(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs")
    text = export_markdown(log, write_run(log, SEVERAL, "Found."))
    for part in ("ended (complete)", "### tool search (done,", "### tool search (error,", "### tool nope (refused,"):
        assert part in text
    assert "````\nfound a\n```" in text  # its own fence is longer than what is in it
    assert text.index('"query": "a"') < text.index("found a") < text.rindex("Found.")


def deny(request: ApprovalRequest) -> Deny:
    return Deny("not today")


PLAYED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("Hello.",), {}),
    ((SEVERAL, call(4, "search", query="b"), "Found 'it'."), {}),
    ((call(1, "search", query="a"), call(2, "answer", text="there")), {}),
    ((call(1, "search", query="a"), call(2, "search", query="b")), {"max_iterations": 1}),
    ((call(1, "search", query="a"), "No then."), {"on_tool_call": deny}),
]


@pytest.mark.parametrize(
    ("replies", "options"),
    PLAYED,
    ids=["an answer", "several calls", "a result as the answer", "a limit", "a denial"],
)
def test_the_test_that_is_made_of_a_run_passes(tmp_path: Path, replies: Any, options: Any) -> None:
    log = RunLog(tmp_path / "runs")
    run_id = write_run(log, *replies, **options)
    names: dict[str, Any] = {}
    source = export_test(log, run_id)
    exec(compile(source, "exported.py", "exec"), names)
    names[f"test_run_{run_id[:12]}"]()
    assert "result.text ==" in source


def test_the_test_fails_where_the_run_would_go_otherwise(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs")
    run_id = write_run(log, call(1, "search", query="a"), "Found.")
    names: dict[str, Any] = {}
    exec(compile(export_test(log, run_id).replace("'query': 'a'", "'query': 'b'"), "exported.py", "exec"), names)
    with pytest.raises(AssertionError):
        names[f"test_run_{run_id[:12]}"]()


def test_a_run_without_contents_or_answers_can_not_be_played(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs", content="none")
    with pytest.raises(ConfigurationError, match="written without contents"):
        export_test(log, write_run(log, "Hello."))
    log = RunLog(tmp_path / "others")
    with pytest.raises(ValueError, match="boom"):
        write_run(log, ValueError("boom"))
    with pytest.raises(ConfigurationError, match="no model has answered"):
        export_test(log, log.runs()[0].id)
