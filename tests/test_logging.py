"""What is logged, where and how loud: one logger for each package, and nothing important that nobody sees."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

import toolkit
from toolkit import (
    ProviderError,
    ProviderRetryConfig,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolRetryConfig,
    tool,
    tool_loop_sync,
)
from toolkit.logs import get_logger
from toolkit.policies import RunFacts
from toolkit.testing import ScriptedProvider

PACKAGE = Path(toolkit.__file__).parent
DOCS = PACKAGE.parent / "docs" / "logging.md"
_MADE = re.compile(r"get_logger\(\"(toolkit[\w.]*)\"\)")


def list_loggers() -> dict[Path, str]:
    """Return the logger of each module that has one."""
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    return {path: found[1] for path, text in texts.items() if (found := _MADE.search(text))}


def test_each_package_has_one_logger_of_its_own_name() -> None:
    for path, name in list_loggers().items():
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        depth = 3 if parts[1] == "sources" else 2
        assert name == ".".join(parts[:depth]), path


def test_all_loggers_are_made_where_their_records_are_cleaned() -> None:
    assert len(list_loggers()) > 40
    made = re.compile(r"getLogger\((__name__|\"toolkit)")
    assert [path for path in PACKAGE.rglob("*.py") if made.search(path.read_text(encoding="utf-8"))] == []


def test_neither_messages_nor_tracebacks_nor_facts_show_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-proj-" + "a1B2" * 9
    names = set(list_loggers().values())

    @tool
    def look() -> str:
        """Look."""
        try:
            int(f"password={key}")
        except ValueError:
            for name in names:
                get_logger(name).exception("it failed with %s", key)
        return "done"

    config: ToolLoopConfig[None] = ToolLoopConfig(metadata={"user": "ada", "api_token": "facts-81"})
    caplog.set_level(logging.INFO, "toolkit.loop")
    tool_loop_sync(ScriptedProvider([ToolCall("1", "look", "{}"), "Oh."]), ToolRegistry([look]), "Go", config=config)
    formatted = caplog.text + "".join(repr(vars(record).get("run_metadata")) for record in caplog.records)
    assert formatted.count("it failed with ***") == len(names)
    assert "'user': 'ada'" in formatted
    assert key not in formatted
    assert "facts-81" not in formatted


def test_the_docs_name_only_loggers_that_there_are() -> None:
    named = set(re.findall(r"`(toolkit\.[\w.]+)`", DOCS.read_text(encoding="utf-8")))
    assert len(named) > 3
    assert named <= set(list_loggers().values())


def test_a_run_that_begins_and_ends_is_told_once_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "toolkit.loop"):
        handle = ToolLoopHandle(ScriptedProvider(["Hello."]), ToolRegistry(), "Hi")
        handle.run_sync()
    run_id = handle.loop_id
    assert [record.getMessage() for record in caplog.records] == [
        f"run {run_id} begins: loop {run_id} at depth 0",
        f"run {run_id} ended as complete: loop {run_id}, 1 requests, 15 tokens",
    ]


def test_a_run_that_fails_is_told_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "toolkit.loop"), pytest.raises(ProviderError):
        tool_loop_sync(ScriptedProvider([ProviderError("Test", "no")]), ToolRegistry(), "Hi")
    assert "ended as ProviderError" in caplog.records[-1].getMessage()
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_what_is_done_again_is_a_warning_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-proj-" + "a1B2" * 9
    tries: list[int] = []

    @tool(retry=ToolRetryConfig(max_retries=1, initial_backoff=0))
    async def fetch() -> str:
        """Fetch."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError(f"refused with {key}")
        return "fetched"

    config: ToolLoopConfig[None] = ToolLoopConfig(provider_retry=ProviderRetryConfig(initial_backoff=0, jitter=0))
    replies: list[Any] = [
        ProviderError("Test", f"busy, {key}", is_retryable=True),
        ToolCall("1", "fetch", "{}"),
        "Done.",
    ]
    tool_loop_sync(ScriptedProvider(replies), ToolRegistry([fetch]), "Go", config=config)
    told = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert [each[:2] for each in told] == [("toolkit.loop", "WARNING"), ("toolkit.calls", "WARNING")]
    assert "is made again in 0.0 s: Test: busy, ***" in told[0][2]
    assert told[1][2] == "attempt 1 of call 1 of fetch is repeated in 0.0 s: ConnectionError: refused with ***"


def test_a_tool_that_crashes_is_an_error_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def crash() -> str:
        """Crash."""
        raise ZeroDivisionError

    tool_loop_sync(ScriptedProvider([ToolCall("1", "crash", "{}"), "Oh."]), ToolRegistry([crash]), "Go")
    (record,) = caplog.records
    assert (record.name, record.levelname, record.exc_info is not None) == ("toolkit.calls", "ERROR", True)


def test_records_have_the_run_the_call_and_the_tool_that_they_are_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(RunFacts())

    @tool
    def crash() -> str:
        """Crash."""
        logging.getLogger("shop").warning("about to")
        raise ValueError

    caplog.set_level(logging.INFO, "toolkit.loop")
    config: ToolLoopConfig[None] = ToolLoopConfig(metadata={"user": "ada"})
    provider = ScriptedProvider([ToolCall("call_1", "crash", "{}"), "Sorry."])
    tool_loop_sync(provider, ToolRegistry([crash]), "Go.", config=config)
    records = {record.getMessage().split()[0]: vars(record) for record in caplog.records}
    run_id = caplog.records[0].getMessage().split()[1]
    assert {name: record["run_id"] for name, record in records.items()} == dict.fromkeys(records, run_id)
    assert {record["run_metadata"]["user"] for record in records.values()} == {"ada"}
    assert [records[name]["call_id"] for name in ("about", "tool")] == ["call_1", "call_1"]
    assert records["tool"]["tool"] == "crash"
    logging.getLogger("toolkit.loop").warning("from outside")
    assert not hasattr(caplog.records[-1], "run_id")
