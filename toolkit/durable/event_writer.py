"""Writes the events of runs as rows that other processes read.

`AttemptEvents` decides when an event may be written, and makes its row; `EventWriter` is the thread that writes the
rows of all runs of a worker in common transactions: emitting an event never waits for the database.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from toolkit.calls.approval import Deny
from toolkit.calls.events import ApprovalRequested, ToolCallRefused, ToolExecutionEnd
from toolkit.calls.registration import Registration
from toolkit.calls.run import CallReturned, CallSuspended, write_waiting
from toolkit.chat import ArgumentsDelta, ReasoningDelta, TextDelta, ToolCall
from toolkit.dataclass import dataclass
from toolkit.durable.contents import ContentRow, split_value
from toolkit.durable.storage import DatabaseThread, Storage, events, insert_missing, runs, store_contents
from toolkit.events import write_event
from toolkit.logs import get_logger
from toolkit.loop.approvals import describe_call_end, describe_refusal
from toolkit.loop.events import Done, Failed, IterationStart, ProviderRetried, ResponseReceived
from toolkit.loop.feeds import CallDecided, ModelReplied, load_feed, write_denied
from toolkit.loop.journal import storable_id
from toolkit.run_log.entries import EntryCleaner, LogItem, LogRecord, ReplyText, dump_item, make_header, write_line
from toolkit.sql_database import database_now
from toolkit.stored_text import StoredText

_EventRow: TypeAlias = dict[str, Any]
_NO_TOOLS: Mapping[str, Registration[Any]] = {}
_MOST_WAITING = 20_000
_DELTAS = (TextDelta, ReasoningDelta)
_REPLAYED = {"model_replied", "tool_returned", "tool_suspended", "approval_decided"}
_ENDS = (ResponseReceived, ToolExecutionEnd, ToolCallRefused, Done, Failed)
_logger = get_logger("toolkit.durable")
_PIECE_SECONDS = 0.04
"""The time between two transactions with texts of replies."""
_GAP_SECONDS = 0.01
"""The time between any two transactions, unless the last one took longer: then as long as that."""


@dataclass(frozen=True, slots=True)
class _QueuedItem:
    item: LogItem
    turn: int
    entry: str | None  # the log's entry that has the same content; None where no log has it


@dataclass(frozen=True, slots=True)
class AttemptPlace:
    """An attempt at a segment of a run, by its token."""

    run_id: str
    segment: int
    attempt: str


class AttemptEvents:
    """The events of one attempt, from the loop that emits them to the thread that writes them.

    An event with the content of a log entry (a reply, the end of a call) is written after that entry is stored, and
    later events wait for it. The next attempt emits the events of stored entries that have no event row yet, so that
    each recorded end of a call is written once.

    Attributes:
        loop_id: The run's own loop, whose turns are counted.
        is_refused: True once another attempt owns the run.
    """

    def __init__(
        self,
        place: AttemptPlace,
        *,
        last_seq: int,  # of the run's written events
        emitted: frozenset[str],  # the keys of entries whose events earlier attempts have written
        only_ends: bool = False,  # only replies, and the ends of calls and of runs
        text: StoredText,
        wake: Callable[[], None],
    ) -> None:
        self.place = place
        self.loop_id = place.run_id
        self.is_refused = False
        self._last_seq = last_seq
        self._end_key = f"end {place.segment}"
        self._emitted = set(emitted)
        self._only_ends = only_ends
        self._text = text
        self._stored: set[str] = set()
        self._key_heads: dict[str, str] = {}  # of the loops inside of calls that have logs, by their ids
        self._queue: deque[_QueuedItem] = deque()
        self._programs: dict[tuple[str, str], str] = {}  # of replayed calls that have one, by log and id
        self._turn = 0
        self._since: float | None = None  # the time when the oldest unwritten event was emitted
        self._read = 0.0
        self._end: _QueuedItem | None = None
        self._wake = wake
        self._lock = threading.Lock()
        self._cleaner = EntryCleaner("all")
        self._replies: dict[tuple[str, type], ReplyText] = {}
        self._rows: list[_EventRow] = []  # until they are written
        self._contents: list[ContentRow] = []

    # from the loop

    def put(self, item: LogItem) -> None:
        """Add an event or a record, from any thread."""
        is_own = item.loop_id == self.loop_id
        if isinstance(item, IterationStart) and is_own:
            self._turn = item.iteration
        if self._is_left_out(item):
            return
        if isinstance(item, (Done, Failed)) and is_own:
            self._end = _QueuedItem(item, self._turn, self._end_key)
            return
        entry = self._find_entry(item)
        if entry in self._emitted:
            return
        if entry is not None:
            self._emitted.add(entry)
            if isinstance(item, ToolCallRefused):  # it waits for no entry, only for the reply before it
                self._stored.add(entry)
        if self._since is None:
            self._since = time.monotonic()
        self._queue.append(_QueuedItem(item, self._turn, entry))
        self._wake()

    def _is_left_out(self, item: LogItem) -> bool:
        match item:
            case ApprovalRequested(reason=""):
                return True  # an approver that is asked about every call lets it pass
            case ArgumentsDelta():
                return True  # they come whole with the reply
            case TextDelta() | ReasoningDelta() if len(self._queue) > _MOST_WAITING:
                return True
            case _:
                return self._only_ends and not isinstance(item, _ENDS)

    def _find_entry(self, item: LogItem) -> str | None:
        """Return the key of the entry with the content of an event; None if there is none."""
        match item:
            case ResponseReceived(iteration=iteration):
                name = f"turn {iteration}"
            case ToolExecutionEnd(call_id=call_id):
                name = f"call {storable_id(call_id)}"
            case ToolCallRefused(call_id=call_id):
                name = f"refused {storable_id(call_id)}"
            case _:
                return None
        return name if item.loop_id == self.loop_id else self._key_of(name, item.loop_id)

    def _key_of(self, name: str, log: str) -> str | None:
        head = self._key_heads.get(log)
        return None if head is None else head + name

    # from the logs

    def open_log(self, log: str) -> None:
        """Register the log of a loop inside a call; its name is the loop's id."""
        self._key_heads[log] = f"{log}: "

    def note_stored(self, name: str, log: str = "") -> None:
        """Release the event of an entry that was stored, in the run's own log or that of a loop inside it."""
        self._stored.add(self._key_of(name, log) or name)
        self._wake()

    def replay_entry(
        self,
        name: str,
        value: Mapping[str, Any],
        log: str = "",
        registrations: Mapping[str, Registration[Any]] = _NO_TOOLS,
    ) -> None:
        """Emit the event of an entry of an earlier attempt that ended before it wrote the event."""
        kind, _, key = name.partition(" ")
        if kind == "turn" and not log:
            self._turn = int(key)
        self.note_stored(name, log)
        stamps: dict[str, Any] = {"run_id": self.place.run_id, "loop_id": log or self.loop_id, "time": time.time()}
        for plain in value.get("feeds", ()):
            feed = load_feed(plain) if plain[0] in _REPLAYED else None
            if isinstance(feed, ModelReplied):
                calls = feed.response.tool_calls
                self._programs.update({(log, call.id): call.program for call in calls if call.program})
                self.put(ResponseReceived(iteration=int(key), response=feed.response, **stamps))
            elif isinstance(feed, (CallReturned, CallSuspended)):
                result = feed.result if isinstance(feed, CallReturned) else write_waiting(feed.call, feed.child)
                program = self._programs.get((log, result.call_id), "")
                self.put(replace(describe_call_end(result, registrations, program), **stamps))
            elif isinstance(feed, CallDecided) and isinstance(feed.verdict, Deny):
                call = ToolCall(feed.call_id, feed.tool_name, "{}")
                denied = write_denied(call, feed.verdict.reason, feed.tool_name)
                program = self._programs.get((log, feed.call_id), "")
                self.put(replace(describe_refusal(denied, registrations, program), **stamps))

    # to the thread that writes

    @property
    def is_waiting(self) -> bool:
        """True if there is something to write."""
        return bool(self._queue or self._rows or self.has_text)

    @property
    def lag(self) -> float:
        """The seconds since the oldest event was emitted that is not written."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def has_text(self) -> bool:
        """True if text of a reply was added since the last call of `cut_text`."""
        return any(reply.has_more for reply in list(self._replies.values()))

    def cut_text(self) -> bool:
        """Make events of the text since the last call; return whether there was any."""
        with self._lock:
            self._make_rows()
            had_text = self.has_text
            for key, reply in self._replies.items():
                self._add_delta(key, reply.take(time.monotonic(), self._cleaner.longest_secret))
            return had_text

    def read_rows(self) -> tuple[list[_EventRow], list[ContentRow]]:
        """Return the rows to be written, with their large contents, until they are confirmed."""
        with self._lock:
            self._make_rows()
            self._read = time.monotonic()
            return list(self._rows), list(self._contents)

    def confirm(self, count: int) -> None:
        """Remove the first rows, which were written."""
        with self._lock:
            del self._rows[:count]
            self._contents.clear()
            self._since = self._read if self.is_waiting else None

    def release_end(self) -> None:
        """Release the end of the run, which is written in one transaction with its state.

        Events of entries that were never stored are dropped.
        """
        with self._lock:
            for _ in range(len(self._queue)):  # in place: other threads may append meanwhile
                queued = self._queue.popleft()
                if self._is_released(queued):
                    self._queue.append(queued)
            end, self._end = self._end, None
            if end is not None and end.entry not in self._emitted:
                self._stored.add(self._end_key)
                self._queue.append(end)

    def _is_released(self, queued: _QueuedItem) -> bool:
        return queued.entry is None or queued.entry in self._stored

    # the rows

    def _make_rows(self) -> None:
        while self._queue and self._is_released(self._queue[0]):
            self._make_row(self._queue.popleft())

    def _make_row(self, queued: _QueuedItem) -> None:
        """Make the row of an event or a record; text of a reply waits for `cut_text`, or for the reply's end."""
        item = queued.item
        if isinstance(item, _DELTAS):
            key = (item.loop_id, type(item))
            if key not in self._replies:
                self._replies[key] = ReplyText(self._cleaner.clean_text, time.monotonic())
            self._replies[key].add(item.text)
            return
        ended = [] if isinstance(item, LogRecord) else [key for key in self._replies if key[0] == item.loop_id]
        for key in ended:
            rest = self._replies.pop(key).take_rest()
            self._add_delta(key, "" if isinstance(item, ProviderRetried) else rest)
        self._add_row(self._cleaner.clean(dump_item(item, self._cleaner)), queued.turn, queued.entry)

    def _add_delta(self, key: tuple[str, Any], text: str) -> None:
        loop_id, kind = key
        if text:
            event = kind(text, run_id=self.place.run_id, loop_id=loop_id, time=time.time())
            self._add_row(write_event(event), self._turn, None)

    def _add_row(self, plain: dict[str, Any], turn: int, entry: str | None) -> None:
        if self._last_seq == 0:
            self._append_row(make_header(self.place.run_id, plain.get("time") or time.time(), "all"), 0, None)
        self._append_row(plain, turn, entry)

    def _append_row(self, plain: dict[str, Any], turn: int, entry: str | None) -> None:
        self._last_seq += 1
        line = write_line(plain).decode().rstrip("\n")
        small, contents = split_value(self._text, self.place.run_id, plain, line)
        if small is not plain:
            line = write_line(small).decode().rstrip("\n")
            self._contents += contents
        place = {"run_id": self.place.run_id, "segment": self.place.segment, "attempt": self.place.attempt}
        stored = {"seq": self._last_seq, "turn": turn, "entry": entry, "line": self._text.seal(line)}
        self._rows.append({**place, **stored})


class EventWriter:
    """Writes the rows of events.

    Attributes:
        thread: Writes, and writes all waiting events when it is stopped.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._attempts: dict[str, AttemptEvents] = {}
        self._next_text = 0.0
        self._lock = threading.Lock()  # one transaction at a time
        self.thread: DatabaseThread = DatabaseThread("events", self._write_round)

    @property
    def lag(self) -> float:
        """The seconds since the oldest event of any run was emitted that is not written."""
        return max((each.lag for each in list(self._attempts.values())), default=0.0)

    def open(self, attempt: AttemptEvents) -> None:
        """Write the events of an attempt from now on."""
        self._attempts[attempt.place.run_id] = attempt

    def finish(self, attempt: AttemptEvents, values: Mapping[str, Any], also: Callable[[sa.Connection], None]) -> None:
        """Write the last events of an attempt together with the new columns of its run, and `also` more; blocks."""
        with self._lock:
            attempt.release_end()
            self._write_rows([attempt], values, also)
            self.drop(attempt)

    def drop(self, attempt: AttemptEvents) -> None:
        """Write no more events of an attempt."""
        if self._attempts.get(attempt.place.run_id) is attempt:
            del self._attempts[attempt.place.run_id]

    def _write_round(self) -> float | None:
        began = time.monotonic()
        with self._lock:
            waiting = [each for each in list(self._attempts.values()) if each.is_waiting]
            if began >= self._next_text and sum(each.cut_text() for each in waiting):
                self._next_text = began + _PIECE_SECONDS
            self._write_waiting(waiting)
        time.sleep(max(_GAP_SECONDS, time.monotonic() - began))
        has_text = any(each.has_text for each in list(self._attempts.values()))
        return max(0.0, self._next_text - time.monotonic()) if has_text else None

    def _write_waiting(self, waiting: list[AttemptEvents]) -> None:
        """Write the events of all attempts together, or of each by itself if the database refuses that."""
        try:
            self._write_rows(waiting, {})
        except SQLAlchemyError:
            if len(waiting) == 1:
                raise
            failure: SQLAlchemyError | None = None
            for attempt in waiting:
                try:
                    self._write_rows([attempt], {})
                except SQLAlchemyError as error:
                    failure = failure or error
            if failure is not None:
                raise failure from None

    def _write_rows(
        self,
        attempts: list[AttemptEvents],
        values: Mapping[str, Any],
        also: Callable[[sa.Connection], None] | None = None,
    ) -> None:
        # Made before the transaction begins, since others wait for it; locked in one order by all workers.
        made = [(each, *each.read_rows()) for each in sorted(attempts, key=lambda each: each.place.run_id)]
        made = [each for each in made if each[1] or values]
        if not made:
            return
        values = {**values, "updated": database_now(self._storage.engine)}
        with self._storage.engine.begin() as connection:
            written = [each for each in made if self._claim_run(connection, each[0], values, each[1])]
            # The transaction may have been committed before, and its answer lost with the connection.
            insert_missing(connection, events, [row for _, rows, _ in written for row in rows])
            store_contents(connection, [row for _, _, contents in written for row in contents])
            if also is not None and written:
                also(connection)
        for attempt, rows, _ in written:
            attempt.confirm(len(rows))

    def _claim_run(
        self, connection: sa.Connection, attempt: AttemptEvents, values: Mapping[str, Any], rows: list[_EventRow]
    ) -> bool:
        """Update the row of a run where this attempt is the one that moves it; return whether it is."""
        if rows:
            values = {**values, "last_seq": rows[-1]["seq"]}
        mine = runs.update().where(runs.c.run_id == attempt.place.run_id, runs.c.attempt == attempt.place.attempt)
        if connection.execute(mine.values(values)).rowcount > 0:
            return True
        if not attempt.is_refused:
            attempt.is_refused = True
            _logger.info("run %s was taken over: events of this worker are refused", attempt.place.run_id)
        self.drop(attempt)
        return False
