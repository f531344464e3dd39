"""Runs as they were written: listed, read, followed, and what becomes of them when things go wrong."""

import gc
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    ConfigurationError,
    Defer,
    Deny,
    ProviderError,
    ProviderRetryConfig,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolOutput,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_stream,
    tool_loop_sync,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.calls.caching import SqliteCache
from toolkit.chat import ChatResponse, ImageBlock, TextBlock, TextDelta, UserMessage
from toolkit.loop.events import Done
from toolkit.policies import Continue, Stop
from toolkit.run_log import LogEntry, RunLog, Timeline, log as log_module
from toolkit.run_log.entries import make_header, write_line
from toolkit.run_log.log import RunWriter
from toolkit.run_log.stores import StoredLine, StoredRun
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["runs", "runs.db"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


ADDS = ToolCall("1", "add", '{"a": 1, "b": 2}')


def run_once(log: RunLog, *replies: Any, tools: Iterable[Any] = (add,)) -> str:
    script: list[Any] = list(replies) or [ADDS, "It is 3."]
    provider = ScriptedProvider(script)
    known = {run.id for run in log.runs()}
    tool_loop_sync(provider, ToolRegistry(list(tools)), "What is 1 + 2?", config=ToolLoopConfig(middleware=(log,)))
    (run_id,) = {run.id for run in log.runs()} - known
    return run_id


def kinds_of(entries: Iterable[LogEntry]) -> list[str]:
    return [entry.kind for entry in entries]


WHOLE_RUN = [
    *("run_opened", "loop_opened", "run_start"),
    *("iteration_start", "request_made", "response_received", "tool_execution_start", "tool_execution_end"),
    *("iteration_start", "request_made", "response_received", "done", "run_ended"),
]


# what a long life leaves behind


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_an_answer_that_was_cut_off_is_listed_and_shown_as_such(path: Path) -> None:
    log, reply = RunLog(path), ChatResponse(message=AssistantMessage("h"), stop_reason="max_tokens")
    await tool_loop(ScriptedProvider([reply]), ToolRegistry(), "go", config=ToolLoopConfig(middleware=[log]))
    [run] = log.runs()
    assert (run.state, run.ending) == ("ended", "complete (max_tokens)")
    timeline = Timeline()
    for entry in log.read(run.id):
        timeline.add(entry)
    assert [step.note for step in timeline.steps] == ["complete (max_tokens)", "max_tokens"]


async def test_many_runs_at_once_have_at_most_a_hundred_files_open_and_lose_no_line(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs")
    before = count_descriptors()
    most: list[int] = []
    arrived = anyio.Semaphore(0)
    opened = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        arrived.release()
        await opened.wait()
        return "done"

    async def run() -> None:
        provider = ScriptedProvider([ToolCall("1", "wait", "{}"), "done"])
        await tool_loop(provider, ToolRegistry([wait]), "go", config=ToolLoopConfig(middleware=(log,)))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(130):
                tasks.start_soon(run)
            for _ in range(130):
                await arrived.acquire()
            log.flush()
            most.append(count_descriptors())
            opened.set()
    log.flush()
    assert 100 <= most[0] - before <= 110
    assert [(run.state, run.ending) for run in log.runs(130)] == [("ended", "complete")] * 130
    assert {kind for run in log.runs(130) for kind in kinds_of(log.read(run.id))} == set(WHOLE_RUN)


def test_a_log_refers_to_no_file_of_a_run_that_is_over(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs")
    for _ in range(130):
        tool_loop_sync(ScriptedProvider(["ok"]), ToolRegistry([]), "go", config=ToolLoopConfig(middleware=(log,)))
    log.flush()
    assert len(log.runs(200)) == 130
    gc.collect()
    paths = [thing for thing in gc.get_objects() if isinstance(thing, Path)]
    assert len([path for path in paths if path.suffix == ".jsonl" and tmp_path in path.parents]) <= 100


# writing and reading


def test_a_run_is_listed_with_what_it_came_to(path: Path) -> None:
    run_once(RunLog(path))
    (run,) = RunLog(path).runs()
    assert (run.state, run.ending, run.model, run.prompt) == ("ended", "complete", "scripted", "What is 1 + 2?")
    assert (run.requests, run.tool_calls, run.tool_errors, run.sub_agents) == (2, 1, 0, 0)
    assert (run.input_tokens, run.output_tokens, run.cost, run.problem) == (20, 10, None, "")
    assert run.ended is not None
    assert 0 <= run.seconds == run.ended - run.started


def test_its_entries_are_its_events_and_what_was_asked(path: Path) -> None:
    log = RunLog(path)
    entries = list(log.read(run_once(log)))
    assert kinds_of(entries) == WHOLE_RUN
    done = next(entry.event for entry in entries if entry.kind == "done")
    assert isinstance(done, Done)
    assert done.result.text == "It is 3."
    requests = [entry.plain for entry in entries if entry.kind == "request_made"]
    assert [[message["role"] for message in each["messages"]] for each in requests] == [["user"], ["assistant", "tool"]]
    assert [each["known_messages"] for each in requests] == [0, 1]
    assert requests[0]["definitions"][0]["name"] == "add"
    assert "definitions" not in requests[1]


def test_reading_goes_on_where_it_stopped(path: Path) -> None:
    log = RunLog(path)
    run_id = run_once(log)
    entries = list(log.read(run_id))
    assert list(log.read(run_id, entries[4].next_position)) == entries[5:]


def test_sub_agents_stand_in_the_run_that_they_are_a_part_of(path: Path) -> None:
    log = RunLog(path)
    inner = sub_agent_tool("adder", "Adds.", ScriptedProvider([ADDS, "Three."]), ToolRegistry([add]))
    outer = sub_agent_tool(
        "boss",
        "Has it added.",
        ScriptedProvider([ToolCall("2", "adder", '{"task": "1 + 2"}'), "Three!"]),
        ToolRegistry([inner]),
        allow_sub_agents=True,
    )
    run_id = run_once(log, ToolCall("3", "boss", '{"task": "add"}'), "It is 3.", tools=[outer])
    (run,) = log.runs()
    assert (run.requests, run.tool_calls, run.sub_agents, run.input_tokens) == (6, 3, 2, 60)
    timeline = Timeline()
    for entry in log.read(run_id):
        timeline.add(entry)
    parents = {step.title: step for step in timeline.steps if step.kind in ("loop", "tool")}
    by_id = {step.id: step for step in timeline.steps}
    path_up: list[tuple[str, str]] = []
    step = next(step for step in timeline.steps if step.title == "add")
    while step.parent is not None:
        path_up.append((step.kind, step.title))
        step = by_id[step.parent]
    assert path_up == [("tool", "add"), ("loop", "adder"), ("tool", "adder"), ("loop", "boss"), ("tool", "boss")]
    assert {step.status for step in parents.values()} == {"done"}
    assert "tool_execution_update" not in kinds_of(log.read(run_id))


def test_a_run_that_failed_says_with_what(path: Path) -> None:
    log = RunLog(path)
    with pytest.raises(ProviderError):
        run_once(log, ProviderError("Test", "the key sk-proj-" + "a1B2" * 8 + " is wrong", status=401))
    (run,) = log.runs()
    assert (run.state, run.ending, run.error) == ("failed", "ProviderError", "the key *** is wrong")


async def test_a_run_that_awaited_a_decision_goes_on_in_its_log(path: Path) -> None:
    log = RunLog(path)
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,), on_tool_call=lambda request: Defer())
    provider, registry = ScriptedProvider([ADDS, "It is 3."]), ToolRegistry([add])
    result = await tool_loop(provider, registry, "1 + 2?", config=config)
    assert result.snapshot is not None
    assert [(run.state, run.ending) for run in log.runs()] == [("ended", "awaiting_approval")]
    later = RunLog(path)
    config = ToolLoopConfig(middleware=(later,))
    handle = ToolLoopHandle.restore(result.snapshot, provider, registry, ctx=None, config=config)
    (pending,) = handle.pending_approvals
    await handle.decide("1", True, binding=pending.binding)
    await handle.run()
    (run,) = later.runs()
    assert (run.state, run.ending, run.requests, run.tool_calls) == ("ended", "complete", 2, 1)


async def test_text_that_comes_in_pieces_is_written_in_fewer_and_whole_at_the_end(path: Path) -> None:
    log = RunLog(path)
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,))
    words = "word " * 500
    told = 0
    async with tool_loop_stream(ScriptedProvider([words]), ToolRegistry(), "Talk.", config=config) as events:
        async for event in events:
            told += isinstance(event, TextDelta)
    entries = list(log.read(log.runs()[0].id))
    assert told == 500
    assert kinds_of(entries).count("text_delta") < 50
    (response,) = [entry.plain["response"] for entry in entries if entry.kind == "response_received"]
    assert response["message"]["content"][0]["text"] == words


def test_pictures_and_texts_without_end_are_named_and_cut(path: Path) -> None:
    @tool
    def look() -> ToolOutput:
        """Look."""
        return ToolOutput((TextBlock("x" * 300_000), ImageBlock(b"\x89PNG" * 1000)))

    log = RunLog(path)
    run_id = run_once(log, ToolCall("1", "look", "{}"), "Nice.", tools=[look])
    (result,) = [entry.plain["result"] for entry in log.read(run_id) if entry.kind == "tool_execution_end"]
    text, picture = [block["text"] for block in result["content"]]
    assert text.endswith("200,000 more characters are not in this log]")
    assert picture == "[image of type image/png, 4,002 bytes: not in this log]"


def test_without_contents_it_says_that_things_were_said_and_not_what(path: Path) -> None:
    @tool
    def whisper(word: str) -> str:
        """Whisper."""
        raise ValueError(f"{word} is not to be said")

    log = RunLog(path, content="none")
    run_id = run_once(
        log,
        AssistantMessage([TextBlock("I whisper."), ToolCall("1", "whisper", '{"word": "xyzzy"}')]),
        "The word was xyzzy.",
        tools=[whisper],
    )
    entries = list(log.read(run_id))
    assert kinds_of(entries) == WHOLE_RUN
    text = json.dumps([dict(entry.plain) for entry in entries])
    assert [word for word in ("xyzzy", "1 + 2", "I whisper", "The word") if word in text] == []
    assert [entry.event is not None for entry in entries if entry.kind not in ("run_opened", "run_ended")]
    (run,) = log.runs()
    assert (run.tool_calls, run.tool_errors, run.prompt, run.output_tokens) == (1, 1, "", 10)


async def test_without_contents_neither_reasons_nor_messages_of_providers_are_written(path: Path) -> None:
    def deny(request: ApprovalRequest) -> Deny:
        return Deny(f"no {request.call_id} for xyzzy")

    log = RunLog(path, content="none")
    busy = ProviderError("Test", "xyzzy is busy", is_retryable=True)
    config: ToolLoopConfig[None] = ToolLoopConfig(
        middleware=(log,),
        on_tool_call=deny,
        provider_retry=ProviderRetryConfig(initial_backoff=0, jitter=0, max_retries=1),
        stop_when=lambda context: Stop("xyzzy was said") if context.iteration > 1 else Continue(),
    )
    stopped = ScriptedProvider([busy, ADDS, AssistantMessage([ToolCall("2", "add", ADDS.arguments)])])
    result = await tool_loop(stopped, ToolRegistry([add]), "Go.", config=config)
    assert result.ending == "stop_condition"
    with pytest.raises(ProviderError):
        await tool_loop(ScriptedProvider([busy, busy]), ToolRegistry(), "Go.", config=config)
    runs = log.runs()
    assert [(run.ending, run.error) for run in runs] == [("ProviderError", ""), ("stop_condition", "")]
    text = json.dumps([dict(entry.plain) for run in runs for entry in log.read(run.id)])
    assert "xyzzy" not in text
    assert '"provider": "Test"' in text


def test_a_reader_of_many_runs_that_go_on_counts_only_some_of_them_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_MOST_TALLIES", 2)
    log = RunLog(path)
    ids = [f"run0000{number}" for number in range(5)]
    for run_id in ids:
        log.store.append(run_id, write_line(make_header(run_id, time.time(), "all")))
    for _ in range(2):
        assert sorted(run.id for run in log.runs() if run.state == "running") == ids
    assert len(log._tallies) == 2  # pyright: ignore[reportPrivateUsage]


async def test_a_live_run_is_followed_to_its_end(path: Path) -> None:
    log, started, released = RunLog(path), anyio.Event(), anyio.Event()

    @tool_with_ctx
    async def wait(context: ToolContext[object]) -> str:
        """Wait."""
        context.report_progress("half")
        started.set()
        await released.wait()
        return "over"

    seen: list[str] = []
    reader = RunLog(path)
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,))
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            provider = ScriptedProvider([ToolCall("1", "wait", "{}"), "Done."])
            tasks.start_soon(lambda: tool_loop(provider, ToolRegistry([wait]), "Go", config=config))
            await started.wait()
            log.flush()
            (run,) = reader.runs()
            assert run.state == "running"
            async for entry in reader.follow(run.id):
                seen.append(entry.kind)
                if entry.kind == "tool_progress":
                    released.set()
    assert seen[-2:] == ["done", "run_ended"]
    assert [run.state for run in reader.runs()] == ["ended"]


def test_runs_are_listed_newest_first_within_a_second_too(path: Path) -> None:
    log = RunLog(path)
    ids = [run_once(log) for _ in range(5)]
    assert [run.id for run in log.runs()] == ids[::-1]


def test_two_objects_and_several_runs_share_a_place(path: Path) -> None:
    one, other = RunLog(path), RunLog(path)
    ids = [run_once(one), run_once(other), run_once(one)]
    assert {run.id for run in other.runs()} == set(ids)
    assert len(other.runs(limit=2)) == 2
    assert other.find(ids[0][:12]) == ids[0]


# what goes wrong


def test_a_run_that_is_not_there_or_not_one_is_said_in_words(path: Path) -> None:
    log = RunLog(path)
    assert log.runs() == []
    with pytest.raises(ConfigurationError, match="there is no run 'abc'"):
        log.find("abc")
    with pytest.raises(ConfigurationError, match="there is no run 'abc'"):
        log.read("abc")
    run_once(log)
    run_once(log)
    with pytest.raises(ConfigurationError, match=r"2 runs in .* begin with ''"):
        log.find("")


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(ConfigurationError, match="is a file, and a run log is a folder"):
        RunLog(tmp_path / "a.txt")
    (tmp_path / "a.db").write_text("hello")
    with pytest.raises(ConfigurationError, match="is no run log"):
        RunLog(tmp_path / "a.db")
    SqliteCache(tmp_path / "cache.db").close()
    with pytest.raises(ConfigurationError, match="is a database, and not that of a run log"):
        RunLog(tmp_path / "cache.db")
    with pytest.raises(ConfigurationError, match="content"):
        RunLog(tmp_path, content="some")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    run_once(RunLog(tmp_path / "runs"))
    (found,) = (tmp_path / "runs").iterdir()
    return found


def test_a_line_that_was_cut_off_is_passed_over_and_the_rest_is_read(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:6]) + lines[6][:40])
    log = RunLog(file.parent)
    (run,) = log.runs()
    assert run.state == "running"
    assert kinds_of(log.read(run.id)) == WHOLE_RUN[:6]
    os.utime(file, (0, 0))
    (run,) = log.runs()
    assert (run.state, run.problem) == ("cut off", "its process ended before it did")


def test_a_log_of_another_version_or_of_somebody_else_says_so(file: Path) -> None:
    first, rest = file.read_bytes().split(b"\n", 1)
    log = RunLog(file.parent)
    (run,) = log.runs()
    file.write_bytes(first.replace(b'"toolkit_run":1', b'"toolkit_run":9') + b"\n" + rest)
    with pytest.raises(ConfigurationError, match="of version 9, and this library reads version 1"):
        list(log.read(run.id))
    file.write_bytes(b'{"some": "thing"}\n' + rest)
    with pytest.raises(ConfigurationError, match="is no run of a run log"):
        list(log.read(run.id))
    assert [(run.state, "is no run" in run.problem) for run in log.runs()] == [("unreadable", True)]
    file.write_bytes(b"")
    assert [run.problem for run in log.runs()] == ["its first line is not whole"]
    (file.parent / "notes.jsonl").write_text("mine\n")
    assert len(log.runs()) == 1


@pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX")
def test_what_is_written_is_for_its_owner_alone(path: Path) -> None:
    run_once(RunLog(path))
    for found in (path, *(path.iterdir() if path.is_dir() else ())):
        assert stat.S_IMODE(found.stat().st_mode) & 0o077 == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on the size of files is of POSIX")
def test_a_disk_that_is_full_is_told_once_and_the_run_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import resource

    log = RunLog(tmp_path / "runs")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with caplog.at_level(logging.ERROR, logger="toolkit.run_log"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
        try:
            config = ToolLoopConfig(middleware=(log,))
            for _ in range(3):
                result = tool_loop_sync(ScriptedProvider([ADDS, "It is 3."]), ToolRegistry([add]), "Go", config=config)
                assert result.text == "It is 3."
            log.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [record.message for record in caplog.records if record.name == "toolkit.run_log"] == [
        "a run log can't be written, and runs continue without it: [Errno 27] File too large"
    ]
    run_once(log)
    assert "ended" in {run.state for run in log.runs()}


def test_a_place_that_can_not_be_written_to_fails_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("a file")
    log = RunLog(tmp_path / "taken" / "runs")
    with caplog.at_level(logging.ERROR, logger="toolkit.run_log"):
        result = tool_loop_sync(
            ScriptedProvider(["Hi."]), ToolRegistry(), "Go", config=ToolLoopConfig(middleware=(log,))
        )
        log.flush()
    assert result.text == "Hi."
    assert len(caplog.records) == 1


class StuckStore:
    """A disk that answers nobody until it is told to."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.lines: list[bytes] = []

    def append(self, run_id: str, lines: bytes) -> None:
        self.is_free.wait(300)
        self.lines += lines.split(b"\n")[:-1]

    def touch(self, run_ids: Iterable[str]) -> None: ...
    def close_run(self, run_id: str) -> None: ...
    def list_runs(self, limit: int | None = None) -> list[StoredRun]:
        return []

    def find_run(self, run_id: str) -> StoredRun | None:
        return None

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        return iter(())

    def read_last(self, run_id: str) -> bytes:
        return b""

    def add_answer(self, run_id: str, line: bytes) -> None: ...
    def read_answers(self, run_id: str) -> list[bytes]:
        return []


def test_a_disk_that_hangs_holds_up_nothing_and_what_was_left_out_is_counted() -> None:
    from toolkit.loop.events import Compacted

    store = StuckStore()
    writer = RunWriter(store, "all", ())
    for _ in range(30_000):
        writer.put(Compacted(before=2, after=1, run_id="r", loop_id="r", time=1.0))
    store.is_free.set()
    assert writer.flush(30)
    told = [json.loads(line) for line in store.lines]
    dropped = sum(each["count"] for each in told if each["event"] == "entries_dropped")
    assert dropped + sum(each["event"] == "compacted" for each in told) == 30_000
    assert 0 < dropped <= 10_000


KILLED = """
import sys, time
from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.run_log import RunLog
from toolkit.testing import ScriptedProvider

@tool
def hang() -> str:
    '''Hang.'''
    log.flush()
    print("in the tool", flush=True)
    time.sleep(600)
    return ""

log = RunLog(sys.argv[1])
config = ToolLoopConfig(middleware=(log,))
tool_loop_sync(ScriptedProvider([ToolCall("1", "hang", "{}")]), ToolRegistry([hang]), "Go", config=config)
"""


@pytest.mark.real
def test_a_run_whose_process_was_killed_is_read_up_to_its_last_entry(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in the tool\n"
        process.send_signal(signal.SIGKILL)
        process.wait(300)
    log = RunLog(path)
    (run,) = log.runs()
    assert kinds_of(log.read(run.id)) == WHOLE_RUN[:7]


@pytest.mark.real
def test_what_waits_is_written_when_the_interpreter_ends(path: Path) -> None:
    code = KILLED.replace("    time.sleep(600)\n", "").replace("[ToolCall(", '["Hi.", ToolCall(')
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)
    assert [run.state for run in RunLog(path).runs()] == ["ended"]


def test_a_run_that_is_stepped_by_hand_is_written_too(path: Path) -> None:
    log = RunLog(path)

    async def step() -> None:
        config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,))
        handle = ToolLoopHandle(ScriptedProvider([ADDS, "It is 3."]), ToolRegistry([add]), "Go", config=config)
        while not handle.is_finished:
            await handle.next_turn()

    anyio.run(step)
    assert kinds_of(log.read(log.runs()[0].id)) == WHOLE_RUN


def test_a_transcript_that_was_shortened_is_written_anew(path: Path) -> None:
    log = RunLog(path)
    config: ToolLoopConfig[None] = ToolLoopConfig(
        middleware=(log,), compaction=lambda messages: messages if len(messages) < 3 else [UserMessage("Go on.")]
    )
    tool_loop_sync(ScriptedProvider([ADDS, "It is 3."]), ToolRegistry([add]), "Go", config=config)
    requests = [entry.plain for entry in log.read(log.runs()[0].id) if entry.kind == "request_made"]
    assert [(each["known_messages"], len(each["messages"])) for each in requests] == [(0, 1), (0, 1)]


def test_time_passes_in_steps(path: Path) -> None:
    before = time.time()
    log = RunLog(path)
    timeline = Timeline()
    for entry in log.read(run_once(log)):
        timeline.add(entry)
    assert all(before <= step.start <= (step.end or 0) <= time.time() for step in timeline.steps)
