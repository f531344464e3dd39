"""The events of one attempt at a segment of a run, as the rows in which other processes read it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from toolkit.calls.events import ApprovalRequested, ToolExecutionEnd
from toolkit.chat import ArgumentsDelta, ReasoningDelta, TextDelta
from toolkit.dataclass import dataclass
from toolkit.loop.event_json import dump_event
from toolkit.loop.events import Done, Failed, IterationStart, ProviderRetried, ResponseReceived
from toolkit.run_log.cleaning import EntryCleaner
from toolkit.run_log.entries import make_header, write_line
from toolkit.run_log.lines import LogRecord, Told, write_plain
from toolkit.run_log.replies import ReplyText

__all__ = ["AttemptEvents", "EventRow", "name_entry"]

EventRow: TypeAlias = dict[str, Any]
"""The columns of an event."""

_MOST_WAITING = 20_000
_DELTAS = (TextDelta, ReasoningDelta)


@dataclass(frozen=True, slots=True)
class _Taken:
    told: Told
    turn: int


def name_entry(told: Told, loop_id: str) -> str | None:
    """Return the name of the log's entry that says what an event of the run's own loop tells; None for others."""
    match told:
        case ResponseReceived(iteration=iteration) if told.loop_id == loop_id:
            return f"turn {iteration}"
        case ToolExecutionEnd(call_id=call_id) if told.loop_id == loop_id:
            return f"call {call_id}"
        case _:
            return None


class AttemptEvents:
    """The events of one attempt, from what tells them to what writes them.

    Args:
        run_id: The run.
        segment: The segment.
        attempt: The token of the attempt.
        last_seq: The number of the last event of the run that is written.
        told: The entries that the attempts before have told of.
        seal: Returns a text as it is stored.
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
        seal: Callable[[str], str],
        wake: Callable[[], None],
    ) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.loop_id = run_id
        """The run's own loop, whose turns are counted."""
        self.is_refused = False
        self._segment = segment
        self._last_seq = last_seq
        self._told = told
        self._seal = seal
        self._wake = wake
        self._waiting: deque[_Taken] = deque()
        self._rows: list[EventRow] = []
        self._turn = 0
        self._end: _Taken | None = None
        self._cleaner = EntryCleaner("all")
        self._replies: dict[tuple[str, type], ReplyText] = {}
        self._lock = threading.Lock()

    def put(self, told: Told) -> None:
        """Take an event or a record, from any thread."""
        if isinstance(told, IterationStart) and told.loop_id == self.loop_id:
            self._turn = told.iteration
        if isinstance(told, ApprovalRequested) and not told.reason:
            return  # an approver that is asked about every call lets it pass
        if isinstance(told, ArgumentsDelta) or (isinstance(told, _DELTAS) and len(self._waiting) > _MOST_WAITING):
            return  # they come whole with the reply
        if isinstance(told, (Done, Failed)) and told.loop_id == self.loop_id:
            self._end = _Taken(told, self._turn)
            return
        self._waiting.append(_Taken(told, self._turn))
        self._wake()

    def release_end(self) -> None:
        """Have the end of the run be written, together with how it stands: who reads the one finds the other."""
        if self._end is not None:
            self._waiting.append(self._end)
            self._end = None

    def tell_again(self, told: Told) -> None:
        """Take what a kept entry says, where the attempt that made the entry ended before it told of it."""
        if name_entry(told, self.loop_id) not in self._told:
            self.put(told)

    @property
    def is_waiting(self) -> bool:
        """True where there is something to write."""
        return bool(self._waiting or self._rows or self._replies)

    def take_rows(self) -> list[EventRow]:
        """Return what is to be written now; what is not confirmed by `confirm` is returned again."""
        with self._lock:
            for _ in range(len(self._waiting)):
                self._read_taken(self._waiting.popleft())
            for (loop_id, kind), reply in self._replies.items():
                piece = reply.take(time.monotonic(), self._cleaner.longest_secret)
                if piece:
                    self._add_delta(kind, piece, loop_id)
            return list(self._rows)

    def confirm(self, count: int) -> None:
        """Forget the first rows: they are written."""
        with self._lock:
            del self._rows[:count]

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
        self._add_row(self._cleaner.clean(write_plain(told, self._cleaner)), taken.turn, name_entry(told, self.loop_id))

    def _end_replies(self, told: Told) -> None:
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
        self._rows.append(
            {
                "run_id": self.run_id,
                "seq": self._last_seq,
                "segment": self._segment,
                "turn": turn,
                "attempt": self.attempt,
                "entry": entry,
                "line": self._seal(write_line(plain).decode().rstrip("\n")),
            }
        )
