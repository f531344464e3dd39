"""Writes what runs tell, in a thread of its own: no run ever waits for a disk, or fails because of one."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import field
from typing import Any
from weakref import WeakSet

from toolkit.chat import ArgumentsDelta, ReasoningDelta, TextDelta
from toolkit.dataclass import dataclass
from toolkit.loop.event_json import dump_event
from toolkit.loop.events import Done, Failed, ProviderRetried, ResponseReceived
from toolkit.run_log.cleaning import ContentPolicy, EntryCleaner
from toolkit.run_log.entries import make_header, make_record, read_line, write_line
from toolkit.run_log.lines import Told, write_plain
from toolkit.run_log.replies import ReplyText
from toolkit.run_log.stores import RunStore
from toolkit.run_log.summary import RunTally

__all__ = ["RunWriter"]

_logger = logging.getLogger("toolkit.run_log")

_MOST_WAITING = 20_000
_MOST_DELTAS_WAITING = 5_000  # what they say comes again with the whole reply
_BATCH = 2_000
_REPLY_SECONDS = 0.3
_BEAT_SECONDS = 5.0
_LINGER_SECONDS = 2.0
_EXIT_SECONDS = 3.0


@dataclass(slots=True)
class _OpenRun:
    """A run that is being written."""

    cleaner: EntryCleaner
    tally: RunTally
    replies: dict[tuple[str, type], ReplyText] = field(default_factory=dict[tuple[str, type], ReplyText])
    lines: list[bytes] = field(default_factory=list[bytes])
    dropped: int = 0


class RunWriter:
    """Takes what runs tell and appends it to a store.

    What waits is bounded: what comes when too much waits is left out, and the log says how much that was.

    Args:
        store: Where the lines go.
        content: The part of them that is kept.
        secrets: Texts that are struck out.
    """

    def __init__(self, store: RunStore, content: ContentPolicy, secrets: Iterable[str]) -> None:
        self._store = store
        self._content: ContentPolicy = content
        self._secrets = tuple(secrets)
        self._waiting: deque[Told] = deque()
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._runs: dict[str, _OpenRun] = {}
        self._dropped = 0
        self._has_failed = False
        _writers.add(self)

    def put(self, told: Told) -> None:
        """Take an event or a record; returns at once."""
        waiting = len(self._waiting)
        if waiting >= _MOST_DELTAS_WAITING and (
            waiting >= _MOST_WAITING or isinstance(told, (TextDelta, ReasoningDelta))
        ):
            self._dropped += not isinstance(told, (TextDelta, ReasoningDelta))
            return
        self._waiting.append(told)
        if not self._news.is_set():
            self._news.set()
        if self._thread is None or not self._thread.is_alive():
            self._start_thread()

    def flush(self, timeout: float = _EXIT_SECONDS) -> bool:
        """Wait until all that was taken is written; return whether that was so in time."""
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
        """Write what comes; end when nothing has come for a while and no run is open."""
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
        """Write what waits, in batches."""
        while True:
            self._news.clear()  # before looking, so that what comes meanwhile is news again
            batch = [self._waiting[index] for index in range(min(_BATCH, len(self._waiting)))]
            for told in batch:
                self._run_safely(lambda told=told: self._read_told(told))
            self._show_replies()
            self._append_lines()
            for _ in batch:
                self._waiting.popleft()
            if not self._waiting:
                with self._idle:
                    self._idle.notify_all()
                return

    def _read_told(self, told: Told) -> None:
        """Make a line of what was told."""
        run_id = told.run_id
        run = self._runs.get(run_id)
        if run is None:
            run = self._open_run(told)
        match told:
            case TextDelta() | ReasoningDelta():
                key = (told.loop_id, type(told))
                reply = run.replies.get(key)
                if reply is None:
                    reply = run.replies[key] = ReplyText(run.cleaner.clean_text, time.monotonic())
                reply.add(told.text)
                return
            case ArgumentsDelta():
                return  # they come whole with the reply
            case ResponseReceived() | ProviderRetried() | Done() | Failed():
                run.replies = {key: reply for key, reply in run.replies.items() if key[0] != told.loop_id}
            case _:
                pass
        self._add_entry(run, run.cleaner.clean(write_plain(told, run.cleaner)))
        if isinstance(told, (Done, Failed)) and told.loop_id == run_id:
            summary = {"summary": run.tally.dump_summary()}
            self._add_entry(run, make_record("run_ended", run_id, told.loop_id, told.time, **summary))
            self._append_lines()
            self._runs.pop(run_id, None)
            self._store.close_run(run_id)

    def _open_run(self, told: Told) -> _OpenRun:
        run = _OpenRun(EntryCleaner(self._content, self._secrets), RunTally(told.run_id))
        self._runs[told.run_id] = run
        if self._store.find_run(told.run_id) is None:
            self._add_entry(run, make_header(told.run_id, told.time, self._content))
        else:
            for line in self._store.read_lines(told.run_id):  # it ended before, awaiting a decision, and goes on
                plain = read_line(line.line)
                if plain is not None:
                    run.tally.add(plain)
        return run

    def _add_entry(self, run: _OpenRun, plain: dict[str, Any]) -> None:
        run.tally.add(plain)
        run.lines.append(write_line(plain))

    def _show_replies(self) -> None:
        """Give out what has come of replies that are not whole yet."""
        if self._content == "none":
            return
        now = time.monotonic()
        for run_id, run in self._runs.items():
            for (loop_id, kind), reply in run.replies.items():
                if now - reply.since >= _REPLY_SECONDS:
                    text = reply.take(now, run.cleaner.longest_secret)
                    if text:
                        event = kind(text, run_id=run_id, loop_id=loop_id, time=time.time())
                        run.lines.append(write_line(dump_event(event)))

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
                said = make_record("entries_dropped", run_id, "", time.time(), count=run.dropped)
                lines = [write_line(said), *lines]
            run.lines = []
            try:
                self._store.append(run_id, b"".join(lines))
                run.dropped = 0
            except Exception as error:  # noqa: BLE001 - whatever a disk does, the run goes on
                run.dropped += len(lines)
                self._tell_failure(error)

    def _run_safely(self, work: Any) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - as above
            self._dropped += 1
            self._tell_failure(error)

    def _tell_failure(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            _logger.error("a run log can't be written, and runs go on without it: %s", error, exc_info=error)


_writers: WeakSet[RunWriter] = WeakSet()


@atexit.register
def _flush_writers() -> None:
    for writer in list(_writers):
        writer.flush()
