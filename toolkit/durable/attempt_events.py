"""The events of one attempt at a segment of a run, as the rows in which other processes read it.

Those of all runs of a worker are written together, several runs in one transaction: emitting never waits for a disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from toolkit.calls.events import ApprovalRequested, ToolExecutionEnd
from toolkit.calls.handler import Registration
from toolkit.chat import ArgumentsDelta, ReasoningDelta, TextDelta
from toolkit.dataclass import dataclass
from toolkit.durable.contents import ContentRow, StoredText, keep_contents, split_value
from toolkit.durable.storage import Storage
from toolkit.durable.tables import database_now, events, runs
from toolkit.loop.approvals import describe_call_end
from toolkit.loop.event_json import dump_event
from toolkit.loop.events import Done, Failed, IterationStart, ProviderRetried, ResponseReceived
from toolkit.loop.feeds import CallReturned, ModelReplied, load_feed
from toolkit.loop.journal import storable_id
from toolkit.run_log.cleaning import EntryCleaner, ReplyText
from toolkit.run_log.entries import LogItem, LogRecord, dump_item, make_header, write_line

__all__ = [
    "AttemptEvents",
    "EventRow",
    "EventWriter",
]


EventRow: TypeAlias = dict[str, Any]
"""The columns of an event."""

_NO_TOOLS: Mapping[str, Registration[Any]] = {}
_MOST_WAITING = 20_000
_DELTAS = (TextDelta, ReasoningDelta)


@dataclass(frozen=True, slots=True)
class _Taken:
    told: LogItem
    turn: int
    entry: str | None


def _name_entry(told: LogItem) -> str:
    """Return the name of the log's entry that says what an event tells; empty for others."""
    match told:
        case ResponseReceived(iteration=iteration):
            return f"turn {iteration}"
        case ToolExecutionEnd(call_id=call_id):
            return f"call {storable_id(call_id)}"
        case _:
            return ""


class AttemptEvents:
    """The events of one attempt, from what tells them to what writes them.

    What an entry of a log says, a reply or the end of a call, is written once that entry is kept, and what comes behind
    it waits. So an attempt that ends before has told nothing of it, and the next one tells what it finds in the log and
    not among the events: each end of a call that was recorded is told once, and no other is.

    Args:
        run_id: The run.
        segment: The segment.
        attempt: The token of the attempt.
        last_seq: The number of the last event of the run that is written.
        told: The entries that the attempts before have told of, by their keys.
        stored: How values are stored.
        wake: Called when there is something to write.
    """

    def __init__(
        self,
        run_id: str,
        segment: int,
        attempt: str,
        *,
        last_seq: int,
        told: frozenset[str],
        stored: StoredText,
        wake: Callable[[], None],
    ) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.loop_id = run_id
        """The run's own loop, whose turns are counted."""
        self.is_refused = False
        self._segment = segment
        self._last_seq = last_seq
        self._told = set(told)
        self._kept: set[str] = set()
        self._logs: dict[str, str] = {}  # of the loops inside of calls: what their keys begin with
        self._stored = stored
        self._wake = wake
        self._waiting: deque[_Taken] = deque()
        self._rows: list[EventRow] = []
        self.contents: list[ContentRow] = []
        """The large contents of the rows that were taken last."""
        self._turn = 0
        self._end: _Taken | None = None
        self._cleaner = EntryCleaner("all")
        self._replies: dict[tuple[str, type], ReplyText] = {}
        self._lock = threading.Lock()

    def put(self, told: LogItem) -> None:
        """Take an event or a record, from any thread."""
        if isinstance(told, IterationStart) and told.loop_id == self.loop_id:
            self._turn = told.iteration
        if isinstance(told, ApprovalRequested) and not told.reason:
            return  # an approver that is asked about every call lets it pass
        if isinstance(told, ArgumentsDelta) or (isinstance(told, _DELTAS) and len(self._waiting) > _MOST_WAITING):
            return  # they come whole with the reply
        if isinstance(told, (Done, Failed)) and told.loop_id == self.loop_id:
            self._end = _Taken(told, self._turn, f"end {self._segment}")
            return
        entry = self._find_key(told)
        if entry is not None:
            if entry in self._told:
                return
            self._told.add(entry)
        self._waiting.append(_Taken(told, self._turn, entry))
        self._wake()

    def open_log(self, log: str) -> None:
        """Learn of a loop inside of a call that has a log, whose name is the loop's id."""
        self._logs[log] = f"{log}: "

    def note_kept(self, name: str, log: str = "") -> None:
        """Learn that an entry is kept: of the run's own log, or of that of a loop inside of it."""
        self._kept.add(self._logs.get(log, "") + name)
        self._wake()

    def read_entry(
        self,
        name: str,
        value: Mapping[str, Any],
        log: str = "",
        registrations: Mapping[str, Registration[Any]] = _NO_TOOLS,
    ) -> None:
        """Tell of an entry that was kept before, where the attempt that kept it ended before it told."""
        kind, _, key = name.partition(" ")
        if kind == "turn" and not log:
            self._turn = int(key)
        self.note_kept(name, log)
        if self._logs.get(log, "") + name in self._told:
            return
        stamps: dict[str, Any] = {"run_id": self.run_id, "loop_id": log or self.loop_id, "time": time.time()}
        for feed in value.get("feeds", ()):
            if (kind, feed[0]) not in (("turn", "model_replied"), ("call", "tool_returned")):
                continue
            fed = load_feed(feed)
            if isinstance(fed, ModelReplied):
                self.put(ResponseReceived(iteration=int(key), response=fed.response, **stamps))
            elif isinstance(fed, CallReturned):
                self.put(replace(describe_call_end(fed.result, registrations), **stamps))

    def _find_key(self, told: LogItem) -> str | None:
        """Return the key of the entry that says what an event tells; None where no log has it."""
        name = _name_entry(told)
        if not name or (told.loop_id != self.loop_id and told.loop_id not in self._logs):
            return None
        return self._logs.get(told.loop_id, "") + name

    def release_end(self) -> None:
        """Have the end of the run be written, together with how it stands: who reads the one finds the other.

        What waits for an entry that was never kept is forgotten.
        """
        with self._lock:
            for _ in range(len(self._waiting)):
                taken = self._waiting.popleft()
                if self._is_kept(taken):
                    self._waiting.append(taken)
            end, self._end = self._end, None
            if end is not None and end.entry not in self._told:
                self._kept.add(end.entry or "")
                self._waiting.append(end)

    def _is_kept(self, taken: _Taken) -> bool:
        return taken.entry is None or taken.entry in self._kept

    @property
    def is_waiting(self) -> bool:
        """True where there is something to write."""
        return bool(self._waiting or self._rows or self.has_text)

    @property
    def has_text(self) -> bool:
        """True where text of a reply has come that `cut_text` was not asked for."""
        return any(reply.has_more for reply in list(self._replies.values()))

    def cut_text(self) -> bool:
        """Make an event of the text of each reply that has come since the last time; return whether there was any."""
        with self._lock:
            self._read_waiting()
            had_text = self.has_text
            for (loop_id, kind), reply in self._replies.items():
                piece = reply.take(time.monotonic(), self._cleaner.longest_secret)
                if piece:
                    self._add_delta(kind, piece, loop_id)
            return had_text

    def take_rows(self) -> list[EventRow]:
        """Return what is to be written now; what is not confirmed by `confirm` is returned again."""
        with self._lock:
            self._read_waiting()
            return list(self._rows)

    def _read_waiting(self) -> None:
        while self._waiting and self._is_kept(self._waiting[0]):
            self._read_taken(self._waiting.popleft())

    def confirm(self, count: int) -> None:
        """Forget the first rows: they are written."""
        with self._lock:
            del self._rows[:count]
            self.contents.clear()

    def _read_taken(self, taken: _Taken) -> None:
        told = taken.told
        if isinstance(told, _DELTAS):
            key = (told.loop_id, type(told))
            reply = self._replies.get(key)
            if reply is None:
                reply = self._replies[key] = ReplyText(self._cleaner.clean_text, time.monotonic())
            reply.add(told.text)
            return
        self._end_replies(told)
        self._add_row(self._cleaner.clean(dump_item(told, self._cleaner)), taken.turn, taken.entry)

    def _end_replies(self, told: LogItem) -> None:
        """Write what is left of the text of a reply that is whole; that of one that failed doesn't count."""
        for loop_id, kind in list(self._replies):
            if loop_id != told.loop_id or isinstance(told, LogRecord):
                continue
            rest = "" if isinstance(told, ProviderRetried) else self._replies[loop_id, kind].take_rest()
            if rest:
                self._add_delta(kind, rest, loop_id)
            del self._replies[loop_id, kind]

    def _add_delta(self, kind: Any, text: str, loop_id: str) -> None:
        event = kind(text, run_id=self.run_id, loop_id=loop_id, time=time.time())
        self._add_row(dump_event(event), self._turn, None)

    def _add_row(self, plain: dict[str, Any], turn: int, entry: str | None) -> None:
        if self._last_seq == 0:
            self._append_line(make_header(self.run_id, plain.get("time") or time.time(), "all"), 0, None)
        self._append_line(plain, turn, entry)

    def _append_line(self, plain: dict[str, Any], turn: int, entry: str | None) -> None:
        self._last_seq += 1
        line = write_line(plain).decode().rstrip("\n")
        small, contents = split_value(self._stored, self.run_id, plain, line)
        if small is not plain:
            line = write_line(small).decode().rstrip("\n")
            self.contents += contents
        self._rows.append(
            {
                "run_id": self.run_id,
                "seq": self._last_seq,
                "segment": self._segment,
                "turn": turn,
                "attempt": self.attempt,
                "entry": entry,
                "line": self._stored.seal(line),
            }
        )


_logger = logging.getLogger("toolkit.durable")

_PIECE_SECONDS = 0.04
"""Between two transactions with texts of replies: they come in pieces of so long."""

_GAP_SECONDS = 0.01
"""Between any two transactions, or as long as the last one took."""

_RETRY_SECONDS = 0.5


class EventWriter:
    """A thread that writes.

    Args:
        storage: The database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._attempts: dict[str, AttemptEvents] = {}
        self._news = threading.Event()
        self._lock = threading.Lock()  # over what is written: one transaction at a time
        self._is_ending = False
        self._thread = threading.Thread(target=self._write_on, name="toolkit durable events", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end."""
        self._is_ending = True
        self._news.set()
        self._thread.join(5)

    def wake(self) -> None:
        """Say that there is something to write."""
        if not self._news.is_set():
            self._news.set()

    def open(self, attempt: AttemptEvents) -> None:
        """Write what this attempt tells from now on."""
        self._attempts[attempt.run_id] = attempt

    def finish(self, attempt: AttemptEvents, values: Mapping[str, Any], also: Callable[[sa.Connection], None]) -> None:
        """Write what is left of an attempt together with how its run stands now; blocks.

        Args:
            attempt: The attempt.
            values: The columns of the run's row.
            also: Writes more in the same transaction.

        Raises:
            Exception: The database is away.
        """
        with self._lock:
            attempt.release_end()
            self._write_rows([attempt], values, also)
            if self._attempts.get(attempt.run_id) is attempt:
                del self._attempts[attempt.run_id]

    def drop(self, attempt: AttemptEvents) -> None:
        """Write nothing more of an attempt."""
        if self._attempts.get(attempt.run_id) is attempt:
            del self._attempts[attempt.run_id]

    def _write_on(self) -> None:
        next_text = 0.0
        while not self._is_ending:
            has_text = any(each.has_text for each in list(self._attempts.values()))
            self._news.wait(max(0.0, next_text - time.monotonic()) if has_text else None)
            self._news.clear()
            began = time.monotonic()
            is_text_due = began >= next_text
            try:
                with self._lock:
                    waiting = [each for each in list(self._attempts.values()) if each.is_waiting]
                    if is_text_due and sum(each.cut_text() for each in waiting):
                        next_text = began + _PIECE_SECONDS
                    self._write_waiting(waiting)
            except Exception as error:  # noqa: BLE001 - whatever a database does, runs go on, and it is tried again
                _logger.warning("events of durable runs can't be written, and are kept until they can be: %s", error)
                self._news.set()
                time.sleep(_RETRY_SECONDS)
            time.sleep(max(_GAP_SECONDS, time.monotonic() - began))

    def _write_waiting(self, waiting: list[AttemptEvents]) -> None:
        """Write what waits; where the database does not take it together, that of each run by itself.

        Raises:
            Exception: The database is away, or does not take what one of them tells.
        """
        if not waiting:
            return
        try:
            self._write_rows(waiting, {})
        except SQLAlchemyError:
            if len(waiting) == 1:
                raise
            failures: list[SQLAlchemyError] = []
            for attempt in waiting:
                try:
                    self._write_rows([attempt], {})
                except SQLAlchemyError as error:
                    failures.append(error)
            if failures:
                raise failures[0] from None

    def _write_rows(
        self,
        attempts: list[AttemptEvents],
        values: Mapping[str, Any],
        also: Callable[[sa.Connection], None] | None = None,
    ) -> None:
        now = database_now(self._storage.engine)
        written: list[tuple[AttemptEvents, int]] = []
        # Made before the transaction begins, which keeps others waiting; locked in one order by all workers.
        made = [(each, each.take_rows()) for each in sorted(attempts, key=lambda each: each.run_id)]
        made = [(each, taken) for each, taken in made if taken or values]
        if not made:
            return
        with self._storage.engine.begin() as connection:
            rows: list[dict[str, Any]] = []
            contents: list[ContentRow] = []
            for attempt, taken in made:
                if self._claim_row(connection, attempt, {**values, "updated": now}, taken):
                    rows += taken
                    contents += attempt.contents
                    written.append((attempt, len(taken)))
            if rows:
                # A transaction may have been committed whose answer was lost with the connection.
                insert = postgresql.insert if self._storage.is_postgres else sqlite.insert
                connection.execute(insert(events).on_conflict_do_nothing(), rows)
                keep_contents(connection, contents)
            if also is not None and written:
                also(connection)
        for attempt, count in written:
            attempt.confirm(count)

    def _claim_row(
        self, connection: sa.Connection, attempt: AttemptEvents, values: dict[str, Any], taken: list[dict[str, Any]]
    ) -> bool:
        """Set how a run stands, where this attempt is the one that moves it; return whether it is."""
        if taken:
            values["last_seq"] = taken[-1]["seq"]
        found = connection.execute(
            runs.update().where(runs.c.run_id == attempt.run_id, runs.c.attempt == attempt.attempt).values(values)
        )
        if found.rowcount == 0 and not attempt.is_refused:
            attempt.is_refused = True
            _logger.info("run %s was taken over: what this worker tells of it is refused", attempt.run_id)
        if found.rowcount == 0:
            self.drop(attempt)
        return found.rowcount > 0
