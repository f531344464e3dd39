"""The middleware that logs a loop, and the thread that writes: no run waits for a disk, or fails because of one."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import field
from typing import Any
from weakref import WeakSet

from toolkit.chat import ArgumentsDelta, ChatResponse, Message, ReasoningDelta, TextDelta, ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.loop.event_json import write_event
from toolkit.loop.events import Done, Failed, LoopEvent, ProviderRetried, ResponseReceived
from toolkit.loop.middleware import Middleware, RequestInfo, RequestProceed, RunInfo, RunProceed
from toolkit.run_log.cleaning import ContentPolicy, EntryCleaner, ReplyText
from toolkit.run_log.entries import (
    LogItem,
    LogRecord,
    RunTally,
    dump_item,
    make_header,
    read_line,
    write_line,
)
from toolkit.run_log.stores import RunStore

recorded_run: ContextVar[RunInfo[Any] | None] = ContextVar("toolkit_recorded_run", default=None)
"""The loop that is being logged, for questions to a person on its behalf."""
_logger = logging.getLogger("toolkit.run_log")
_MOST_WAITING = 20_000
_MOST_DELTAS_WAITING = 5_000  # their text comes again with the whole reply
_BATCH = 2_000
_REPLY_SECONDS = 0.3
_BEAT_SECONDS = 5.0
_LINGER_SECONDS = 2.0
_EXIT_SECONDS = 3.0
_writers: WeakSet[RunWriter] = WeakSet()


class RunRecorder(Middleware[object]):
    """Serves one loop.

    Args:
        put: Takes an event or a record, and returns at once.
        run: The loop.
    """

    def __init__(self, put: Callable[[LogItem], None], run: RunInfo[object]) -> None:
        self._put = put
        self._run = run
        self._last: Message | None = None
        self._count = 0
        self._definitions: Sequence[ToolDefinition] | None = None
        self._is_opened = False

    async def around_run(self, run: RunInfo[object], proceed: RunProceed) -> None:
        """Log the owner of the loop, once, and make the loop known to the code that runs inside it."""
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
        """Log the messages that no request before had."""
        messages, count = request.chat.messages, self._count
        # Where the transcript was shortened or edited, all of it is new.
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
        """Write an event."""
        self._put(event)

    def _record_entry(self, kind: str, **fields: Any) -> None:
        self._put(make_record(self._run, kind, fields))


def make_record(run: RunInfo[Any], kind: str, fields: dict[str, Any]) -> LogRecord:
    """Return a record of a loop, of now."""
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

    Args:
        store: Where the lines go.
        content: The content that is logged.
        secrets: Texts that are removed.
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
        """Wait until everything in the queue is written; return False if that takes longer."""
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
        """Write items as they arrive; end after a while without items and open runs."""
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
            self._news.clear()  # before looking, so that an item that comes meanwhile is news again
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
                return  # they come whole with the reply
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
            for line in self._store.read_lines(item.run_id):  # it ended before, awaiting a decision, and resumes
                plain = read_line(line.line)
                if plain is not None:
                    run.tally.add(plain)
        return run

    def _add_entry(self, run: _OpenRun, plain: dict[str, Any]) -> None:
        run.tally.add(plain)
        run.lines.append(write_line(plain))

    def _show_replies(self) -> None:
        """Write the parts of replies that are not whole yet."""
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
            except Exception as error:  # noqa: BLE001 - the run continues whatever the disk does
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
