"""`RunLog`: the middleware that logs runs, the reader of logged runs, and approvals that are requested on their page.

A thread writes the log: no run waits for a disk, or fails because of one.

The approval hook writes its question as an entry of the run, and waits for an answer to exactly that question, from a
page or a program in this or another process. Anyone who can write to the log can answer: its files are private.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias
from weakref import WeakSet

import anyio
from anyio import to_thread

from toolkit.calls.approval import Approval, ApprovalRequest, Approve, Deny
from toolkit.chat import ArgumentsDelta, ChatResponse, Message, ReasoningDelta, TextDelta, ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.events import write_event
from toolkit.json_text import write_json
from toolkit.logs import get_logger
from toolkit.loop.events import Done, Failed, LoopEvent, ProviderRetried, ResponseReceived
from toolkit.loop.middleware import Middleware, RequestInfo, RequestProceed, RunInfo, RunProceed
from toolkit.run_log.entries import (
    ContentPolicy,
    EntryCleaner,
    LogEntry,
    LogItem,
    LogRecord,
    ReplyText,
    RunSummary,
    RunTally,
    dump_item,
    make_header,
    read_header,
    read_line,
    read_object,
    write_line,
)
from toolkit.run_log.stores import DatabaseStore, FolderStore, RunStore, StoredRun
from toolkit.settings import check_setting

recorded_run: ContextVar[RunInfo[Any] | None] = ContextVar("toolkit_recorded_run", default=None)
"""The loop that is being logged, for questions to a person on its behalf."""
_logger = get_logger("toolkit.run_log")
_MOST_WAITING = 20_000
_MOST_DELTAS_WAITING = 5_000  # their text comes again with the whole reply
_BATCH = 2_000
_REPLY_SECONDS = 0.3
_BEAT_SECONDS = 5.0
_LINGER_SECONDS = 2.0
_EXIT_SECONDS = 3.0
_writers: WeakSet[RunWriter] = WeakSet()
_DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_GONE_SECONDS = 15.0
"""Seconds without a sign of life after which a run counts as cut off: its writer gives one every 5 s."""
_MOST_TALLIES = 1_000
_FOLLOW_SECONDS = 0.2
QuestionAnswer: TypeAlias = Literal["approve", "deny"]
_ANSWER_POLL_SECONDS = 0.25


class RunRecorder(Middleware[object]):
    """Records one loop; `put` gets each event or record, and returns at once."""

    def __init__(self, put: Callable[[LogItem], None], run: RunInfo[object]) -> None:
        self._put = put
        self._run = run
        self._last: Message | None = None
        self._count = 0
        self._definitions: Sequence[ToolDefinition] | None = None
        self._is_opened = False

    async def around_run(self, run: RunInfo[object], proceed: RunProceed) -> None:
        """Log the owner of the loop once, and make the loop known to the code inside it."""
        if not self._is_opened:
            self._is_opened = True
            self._record_entry(
                "loop_opened",
                agent=run.agent,
                provider=run.provider,
                model=run.model,
                parent_loop_id=run.parent_loop_id,
                parent_call_id=run.parent_call_id,
            )
        token = recorded_run.set(run)
        try:
            await proceed()
        finally:
            recorded_run.reset(token)

    async def around_request(self, request: RequestInfo[object], proceed: RequestProceed) -> ChatResponse:
        """Log the messages that no earlier request had."""
        messages, count = request.chat.messages, self._count
        # All of a shortened or edited transcript is new.
        if count > len(messages) or (count and messages[count - 1] is not self._last):
            count = 0
        fields: dict[str, Any] = {
            "iteration": request.iteration,
            "attempt": request.attempt,
            "model": request.run.model,
            "known_messages": count,
            "messages": tuple(messages[count:]),
        }
        if request.chat.tools is not self._definitions:
            self._definitions = request.chat.tools
            fields["definitions"] = tuple(request.chat.tools or ())
        self._record_entry("request_made", **fields)
        self._count, self._last = len(messages), messages[-1] if messages else None
        return await proceed()

    def on_event(self, event: LoopEvent) -> None:
        """Log an event."""
        self._put(event)

    def _record_entry(self, kind: str, **fields: Any) -> None:
        self._put(make_record(self._run, kind, fields))


def make_record(run: RunInfo[Any], kind: str, fields: dict[str, Any]) -> LogRecord:
    """Return a record of a loop with the current time."""
    return LogRecord(kind=kind, run_id=run.run_id, loop_id=run.loop_id, time=time.time(), fields=fields)


@dataclass(slots=True)
class _OpenRun:
    """A run that is being written."""

    cleaner: EntryCleaner
    tally: RunTally
    replies: dict[tuple[str, type], ReplyText] = field(default_factory=dict[tuple[str, type], ReplyText])
    lines: list[bytes] = field(default_factory=list[bytes])
    dropped: int = 0


class RunWriter:
    """Appends the items of runs to a store.

    The queue is bounded: items are dropped when it is full, and the log records how many.
    """

    def __init__(self, store: RunStore, content: ContentPolicy, secrets: Iterable[str]) -> None:
        self._store = store
        self._content: ContentPolicy = content
        self._secrets = tuple(secrets)
        self._waiting: deque[LogItem] = deque()
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._runs: dict[str, _OpenRun] = {}
        self._dropped = 0
        self._has_failed = False
        _writers.add(self)

    def put(self, item: LogItem, /) -> None:
        """Add an event or a record; return at once."""
        waiting = len(self._waiting)
        if waiting >= _MOST_DELTAS_WAITING and (
            waiting >= _MOST_WAITING or isinstance(item, (TextDelta, ReasoningDelta))
        ):
            self._dropped += not isinstance(item, (TextDelta, ReasoningDelta))
            return
        self._waiting.append(item)
        if not self._news.is_set():
            self._news.set()
        if self._thread is None or not self._thread.is_alive():
            self._start_thread()

    def flush(self, timeout: float = _EXIT_SECONDS) -> bool:
        """Wait until the whole queue is written; return False at the timeout."""
        deadline = time.monotonic() + timeout
        with self._idle:
            while self._waiting or self._news.is_set():
                if self._thread is None or not self._thread.is_alive():
                    return not self._waiting
                if not self._idle.wait(min(0.05, max(0.0, deadline - time.monotonic()))) and (
                    time.monotonic() >= deadline
                ):
                    return False
        return True

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._write_on, name="toolkit run log", daemon=True)
                self._thread.start()

    def _write_on(self) -> None:
        """Write items as they arrive; return after some time without items and open runs."""
        beat = time.monotonic()
        while True:
            has_news = self._news.wait(self._find_pause())
            self._take_waiting()
            now = time.monotonic()
            if now - beat >= _BEAT_SECONDS:
                beat = now
                self._run_safely(lambda: self._store.touch(list(self._runs)))
            if not has_news and not self._runs:
                with self._lock:
                    if not self._waiting and not self._news.is_set():
                        self._thread = None
                        return

    def _find_pause(self) -> float:
        if any(run.replies for run in self._runs.values()):
            return _REPLY_SECONDS
        return _BEAT_SECONDS if self._runs else _LINGER_SECONDS

    def _take_waiting(self) -> None:
        """Write the queue, in batches."""
        while True:
            self._news.clear()  # before the check, so that an item that arrives meanwhile sets it again
            batch = [self._waiting[index] for index in range(min(_BATCH, len(self._waiting)))]
            for item in batch:
                self._run_safely(lambda item=item: self._handle_item(item))
            self._show_replies()
            self._append_lines()
            for _ in batch:
                self._waiting.popleft()
            if not self._waiting:
                with self._idle:
                    self._idle.notify_all()
                return

    def _handle_item(self, item: LogItem) -> None:
        """Add the line of an item."""
        run_id = item.run_id
        run = self._runs.get(run_id)
        if run is None:
            run = self._open_run(item)
        match item:
            case TextDelta() | ReasoningDelta():
                key = (item.loop_id, type(item))
                reply = run.replies.get(key)
                if reply is None:
                    reply = run.replies[key] = ReplyText(run.cleaner.clean_text, time.monotonic())
                reply.add(item.text)
                return
            case ArgumentsDelta():
                return  # the whole reply has them
            case ResponseReceived() | ProviderRetried() | Done() | Failed():
                run.replies = {key: reply for key, reply in run.replies.items() if key[0] != item.loop_id}
            case _:
                pass
        self._add_entry(run, run.cleaner.clean(dump_item(item, run.cleaner)))
        if isinstance(item, (Done, Failed)) and item.loop_id == run_id:
            summary = {"summary": run.tally.dump_summary()}
            ended = LogRecord(kind="run_ended", run_id=run_id, loop_id=item.loop_id, time=item.time, fields=summary)
            self._add_entry(run, dump_item(ended, run.cleaner))
            self._append_lines()
            self._runs.pop(run_id, None)
            self._store.close_run(run_id)

    def _open_run(self, item: LogItem) -> _OpenRun:
        run = _OpenRun(EntryCleaner(self._content, self._secrets), RunTally(item.run_id))
        self._runs[item.run_id] = run
        if self._store.find_run(item.run_id) is None:
            self._add_entry(run, make_header(item.run_id, item.time, self._content))
        else:
            for line in self._store.read_lines(item.run_id):  # it ended to await a decision, and is resumed
                plain = read_line(line.line)
                if plain is not None:
                    run.tally.add(plain)
        return run

    def _add_entry(self, run: _OpenRun, plain: dict[str, Any]) -> None:
        run.tally.add(plain)
        run.lines.append(write_line(plain))

    def _show_replies(self) -> None:
        """Write the parts of incomplete replies."""
        if self._content == "none":
            return
        now = time.monotonic()
        for run_id, run in self._runs.items():
            for (loop_id, kind), reply in run.replies.items():
                if now - reply.since >= _REPLY_SECONDS:
                    text = reply.take(now, run.cleaner.longest_secret)
                    if text:
                        event = kind(text, run_id=run_id, loop_id=loop_id, time=time.time())
                        run.lines.append(write_line(write_event(event)))

    def _append_lines(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            for run in self._runs.values():
                run.dropped += dropped
        for run_id, run in self._runs.items():
            if not run.lines:
                continue
            lines = run.lines
            if run.dropped:
                count = {"count": run.dropped}
                gap = LogRecord(kind="entries_dropped", run_id=run_id, loop_id="", time=time.time(), fields=count)
                lines = [write_line(dump_item(gap, run.cleaner)), *lines]
            run.lines = []
            try:
                self._store.append(run_id, b"".join(lines))
                run.dropped = 0
            except Exception as error:  # noqa: BLE001 - errors of the disk do not affect runs
                run.dropped += len(lines)
                self._log_failure(error)

    def _run_safely(self, work: Any) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - as above
            self._dropped += 1
            self._log_failure(error)

    def _log_failure(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            _logger.error("a run log can't be written, and runs continue without it: %s", error, exc_info=error)


@atexit.register
def _flush_writers() -> None:
    for writer in list(_writers):
        writer.flush()


class RunLog(Middleware[object]):
    """Logs each run as lines, and reads logged runs.

    ::

        log = RunLog("runs/")
        config = ToolLoopConfig(middleware=(log,))
        result = await tool_loop(provider, registry, "What's the weather?", config=config)

        for run in log.runs():
            print(run.id, run.state, run.ending, run.tool_calls)
        for entry in log.read(log.runs()[0].id):
            print(entry.kind, entry.event)

    Logging never blocks a run and never makes one fail: a thread writes some milliseconds later, and if that fails, as
    on a full disk, one error is logged and the run continues. The log of a killed process can be read up to its last
    whole line. Sub-agents and loops inside tools are part of the log of their run. Several processes may write and read
    the same log.

    A path that ends in ``.db``, ``.sqlite`` or ``.sqlite3`` is an SQLite file; any other is a folder, with a file of
    JSON lines for each run. Files are for their owner alone (0600, a new folder 0700).

    Args:
        path: Where the runs are.
        content: ``all`` logs messages, arguments and results. ``none`` logs the facts alone: tools and models, times,
            tokens, and how the run ended. Either way secrets are removed: texts that look like a key, values of names
            such as ``password``, and arguments that their schema calls secret.
        secrets: More texts to remove everywhere, such as the keys that the application knows.

    Raises:
        ConfigurationError: The path is a file that is no run log.
    """

    is_inherited = True

    def __init__(
        self, path: str | os.PathLike[str], *, content: ContentPolicy = "all", secrets: Iterable[str] = ()
    ) -> None:
        check_setting("the path of a run log", path, str, os.PathLike)
        check_setting("content", content, "all", "none")
        self.path = Path(path)
        self.content: ContentPolicy = content
        self._read_from(_open_store(self.path), str(self.path), secrets)

    @classmethod
    def of_store(cls, store: RunStore, place: str) -> RunLog:
        """Return a log over runs in another kind of store.

        Args:
            store: The runs.
            place: Where they are, for people.
        """
        log = cls.__new__(cls)
        log.path, log.content = Path(place), "all"
        log._read_from(store, place, ())
        return log

    def _read_from(self, store: RunStore, place: str, secrets: Iterable[str]) -> None:
        self.place: str = place
        self.store: RunStore = store
        self.writer: RunWriter = RunWriter(store, self.content, secrets)
        self._tallies: dict[str, RunTally] = {}
        self._lock = threading.Lock()

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        """Return the middleware that logs this run."""
        return RunRecorder(self.writer.put, run)

    def flush(self, timeout: float = 3.0) -> bool:
        """Wait until everything that was logged so far is written.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            True if it is written; False if that took longer.
        """
        return self.writer.flush(timeout)

    def runs(self, limit: int | None = None) -> list[RunSummary]:
        """Return summaries of the runs, newest first; `problem` explains why a run can't be read."""
        self.flush()
        return [self._summarize_run(stored) for stored in self.store.list_runs(limit)]

    def find(self, run_id: str) -> str:
        """Return the id of the one run whose id begins with a text.

        Raises:
            ConfigurationError: There is none, or more than one.
        """
        if self.store.find_run(run_id) is not None:
            return run_id
        ids = [stored.id for stored in self.store.list_runs() if stored.id.startswith(run_id)]
        if len(ids) == 1 and run_id:
            return ids[0]
        if ids:
            raise ConfigurationError(
                f"{len(ids)} runs in {self.place} begin with {run_id!r}: {', '.join(ids[:3])}...; write more of the id"
            )
        raise ConfigurationError(f"there is no run {run_id!r} in {self.place}")

    def summary(self, run_id: str) -> RunSummary:
        """Return one run in short.

        Raises:
            ConfigurationError: There is no such run.
        """
        return self._summarize_run(self._find_stored(run_id))

    def read(self, run_id: str, start: int = 0) -> Iterator[LogEntry]:
        """Yield the entries of a run as they are read: memory does not grow with the run.

        Lines that can't be read, such as one that was cut off by a kill, are ignored.

        Args:
            run_id: The run.
            start: `LogEntry.next_position` of the last entry that is known; 0 begins with the first.

        Raises:
            ConfigurationError: There is no such run, it is no run log, or of another version.
        """
        return self._read_entries(self._find_stored(run_id), start)

    def follow(self, run_id: str, start: int = 0) -> AsyncIterator[LogEntry]:
        """Yield the entries of a run, and then each new one as it is written, until the run has ended or is cut off.

        A run that ended to await a decision and resumes later must be followed again. The iterator may be left at any
        time.

        Args:
            run_id: The run.
            start: As for `read`.
        """
        return _Follower(self, run_id, start)

    def read_chunk(self, run_id: str, start: int = 0, most: int = 1_000) -> list[LogEntry]:
        """Return the next entries from a position on, at most so many; none where there is nothing new."""
        return list(islice(self.read(run_id, start), most))

    def find_lines(self, run_id: str, text: str) -> list[int]:
        """Return the positions of the entries that contain a text, ignoring case."""
        wanted = write_json(text)[1:-1].casefold()
        lines = self.store.read_lines(run_id)
        return [line.position for line in lines if wanted in line.line.decode("utf-8", "replace").casefold()]

    def _find_stored(self, run_id: str) -> StoredRun:
        self.flush()
        stored = self.store.find_run(run_id)
        if stored is None:
            raise ConfigurationError(f"there is no run {run_id!r} in {self.place}")
        return stored

    def _read_entries(self, stored: StoredRun, start: int) -> Iterator[LogEntry]:
        is_first = start == 0
        for line in self.store.read_lines(stored.id, start):
            if is_first:
                read_header(line.line, stored.where)
                is_first = False
            plain = read_line(line.line)
            if plain is not None:
                yield LogEntry(position=line.position, next_position=line.next_position, plain=plain)

    def _summarize_run(self, stored: StoredRun) -> RunSummary:
        first = next(iter(self.store.read_lines(stored.id)), None)
        try:
            read_header(b"" if first is None else first.line, stored.where)
        except ConfigurationError as error:
            problem = str(error) if first is not None else "its first line is not whole"
            return RunSummary(id=stored.id, state="unreadable", problem=problem, where=stored.where)
        last = read_line(self.store.read_last(stored.id))
        if last is not None and last["event"] == "run_ended":
            known = {part.name for part in fields(RunSummary)}
            counts: dict[str, Any] = {
                name: count for name, count in read_object(last, "summary").items() if name in known
            }
            counts |= {"id": stored.id, "where": stored.where}
            return RunSummary(**counts)
        counted = replace(self._count_entries(stored), where=stored.where)
        if counted.state == "running" and time.time() - stored.seen > _GONE_SECONDS:
            return replace(counted, state="cut off", problem="its process ended before it did")
        return counted

    def _count_entries(self, stored: StoredRun) -> RunSummary:
        """Count the entries since the last time."""
        with self._lock:
            tally = self._tallies.pop(stored.id, None) or RunTally(stored.id)
            self._tallies[stored.id] = tally  # the last one; of too many, the first is counted anew next time
            if len(self._tallies) > _MOST_TALLIES:
                del self._tallies[next(iter(self._tallies))]
            for line in self.store.read_lines(stored.id, tally.position):
                plain = read_line(line.line)
                if plain is not None:
                    tally.add(plain)
                tally.position = line.next_position
            return tally.summarize()


class _Follower(AsyncIterator[LogEntry]):
    """Waits for the entries of one run; it need not be closed."""

    def __init__(self, log: RunLog, run_id: str, start: int) -> None:
        self._log = log
        self._run_id = run_id
        self._position = start
        self._entries: deque[LogEntry] = deque()

    async def __anext__(self) -> LogEntry:
        while not self._entries:
            # Before reading, so that everything that is written until the end of a run is read after that.
            state = (await to_thread.run_sync(self._log.summary, self._run_id)).state
            self._entries += await to_thread.run_sync(self._log.read_chunk, self._run_id, self._position)
            if not self._entries:
                if state != "running":
                    raise StopAsyncIteration
                await anyio.sleep(_FOLLOW_SECONDS)
        entry = self._entries.popleft()
        self._position = entry.next_position
        return entry


def _open_store(path: Path) -> RunStore:
    if path.suffix.lower() in _DATABASE_ENDINGS:
        return DatabaseStore(path)
    if path.exists() and not path.is_dir():
        raise ConfigurationError(
            f"{path} is a file, and a run log is a folder of files: give the folder, or a path that ends in .db"
        )
    return FolderStore(path)


def ask_on_page(log: RunLog) -> Callable[[ApprovalRequest], Awaitable[Approval]]:
    """Return an approval hook that asks on the page of a log, where ``toolkit runs view`` takes the answer.

    ::

        log = RunLog("runs/")
        config = ToolLoopConfig(middleware=(log,), on_tool_call=ask_on_page(log))

    The run waits for an answer; ``ToolLoopConfig.timeouts.approval`` bounds that. Two pages may show the same
    question: the first answer counts.

    Args:
        log: The log of the same configuration; it must log contents, since unseen arguments must not be approved.

    Raises:
        ConfigurationError: The log has no contents.
    """
    if log.content != "all":
        raise ConfigurationError("a page can ask only about contents that it shows: give RunLog(..., content='all')")

    async def ask(request: ApprovalRequest) -> Approval:
        run = recorded_run.get()
        if run is None:
            return Deny("Tool call denied: there is no page to ask on, because this run is not logged.")
        question = os.urandom(8).hex()
        facts: dict[str, Any] = {"question": question, "call_id": request.call_id, "tool_name": request.tool_name}
        shown = {"preview": request.preview, "reason": request.reason, "agent": request.agent}
        log.writer.put(make_record(run, "question_asked", {**facts, **shown}))
        answer: dict[str, Any] = {"answer": "withdrawn"}
        try:
            answer = await _wait_for_answer(log, run.run_id, question)
        finally:
            decision = {"answer": answer["answer"], "reason": answer.get("reason", "")}
            log.writer.put(make_record(run, "question_answered", {**facts, **decision}))
        return Approve() if answer["answer"] == "approve" else Deny(answer["reason"] or "Tool call denied.")

    return ask


def answer_question(log: RunLog, run_id: str, question: str, answer: QuestionAnswer, reason: str = "") -> None:
    """Answer a question of a run.

    Args:
        log: Where the run is.
        run_id: The run.
        question: The ``question`` of the entry ``question_asked``.
        answer: The decision.
        reason: For a denial: the text that the model reads.

    Raises:
        ConfigurationError: There is no such question, or it is answered already.
    """
    waiting: set[str] = set()
    for entry in log.read(run_id):
        if entry.kind == "question_asked":
            waiting.add(str(entry.plain["question"]))
        elif entry.kind == "question_answered":
            waiting.discard(str(entry.plain["question"]))
    if question not in waiting or _find_answer(log, run_id, question) is not None:
        raise ConfigurationError("the question is no longer open: it is answered, or was withdrawn")
    line = write_json({"event": "answer", "question": question, "answer": answer, "reason": reason})
    log.store.add_answer(run_id, line.encode() + b"\n")


async def _wait_for_answer(log: RunLog, run_id: str, question: str) -> dict[str, Any]:
    while True:
        answer = await to_thread.run_sync(_find_answer, log, run_id, question)
        if answer is not None:
            return answer
        await anyio.sleep(_ANSWER_POLL_SECONDS)


def _find_answer(log: RunLog, run_id: str, question: str) -> dict[str, Any] | None:
    """Return the first answer to a question that is one."""
    for line in log.store.read_answers(run_id):
        plain = read_line(line)
        if plain is not None and plain.get("question") == question and plain.get("answer") in ("approve", "deny"):
            return plain
    return None
