"""The log of one segment of a run and of the loops inside its calls, as rows of the database.

`SegmentJournal` replays the entries that were read at the start of the attempt, and stores new ones through the
`EntryWriter`, a thread that writes concurrent entries of all runs of a worker in one transaction. An entry is stored
only while its attempt owns the run: the run's row is locked for that, so that an attempt which takes over the run
either finds the entry, or the entry is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import anyio
import sqlalchemy as sa
from dbos import error as dbos_error
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.durable.contents import ContentRow, write_value
from toolkit.durable.event_writer import AttemptEvents, AttemptPlace
from toolkit.durable.journals import ReplayJournal, StoredEntry, check_readable, is_inside
from toolkit.durable.rests import InboxItem, read_message
from toolkit.durable.storage import DatabaseThread, Storage, entries, is_away, restore_values, runs, store_contents
from toolkit.errors import DurableError, JournalError
from toolkit.logs import get_logger
from toolkit.loop.config import Steering
from toolkit.loop.journal import Journal, JournalEntry, JournalValue
from toolkit.runtime.backend import loop_waker
from toolkit.schema.nodes import is_object

_TAKEN, _VALUE = "$took", "$value"
"""The keys of an entry of earlier releases: the items of the inbox that were taken before it was stored, and its value.

An entry has the keys of these items in itself now, under its seal.
"""

_LOGGED_EVENTS = ("turn ", "call ")
"""How the keys of events begin that are written after an entry of the same name."""
_OWN_EVENTS = (*_LOGGED_EVENTS, "refused ", "end ")
"""How those of the run's own loop begin; those of loops inside calls have the loop's id in front."""
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_KEY = ("run_id", "segment", "path", "position")
_logger = get_logger("toolkit.durable")

StoredEntries: TypeAlias = Mapping[str, Mapping[int, StoredEntry]]
"""The stored entries by the path of their log, and by position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLog:
    """The logs of one attempt at a segment: the run's own, and those of the loops inside its calls."""

    writer: EntryWriter
    place: AttemptPlace
    stored: StoredEntries  # by earlier attempts
    events: AttemptEvents
    origin: str  # the id of the segment that began the log; segments that retry it continue that log

    def name_loop(self, path: str) -> str:
        """Return the id of a loop inside calls, which is the same in each attempt."""
        return f"{self.origin}/{path}"

    def read_inside(self, call: str) -> list[JournalValue]:
        """Return the values of the logs inside a call, given its path."""
        inner = [entries for path, entries in self.stored.items() if is_inside(path, call)]
        return [check_readable(*entry) for entries in inner for entry in entries.values()]

    def replay_inside(self, call_id: str) -> None:
        """Emit the events of the logs inside a call whose end is stored."""
        for path, inner in self.stored.items():
            if is_inside(path, call_id):
                values = [(name, check_readable(name, stored)) for _, (name, stored) in sorted(inner.items())]
                loop_id = next((value["run"] for name, value in values if name == "begin"), self.name_loop(path))
                self.events.open_log(loop_id)
                for name, value in values:
                    self.events.replay_entry(name, value, loop_id)


class SegmentJournal(ReplayJournal):
    """The run's own log, which also has the messages that were taken from the inbox.

    Attributes:
        trace: The trace context of the run's first segment, once the log has begun.
        has_stored_failure: True if the log ends with an error with which every replay ends.
    """

    def __init__(
        self,
        log: SegmentLog,
        *,
        trace: Mapping[str, str],
        on_replay: Callable[[str, JournalValue], None],
    ) -> None:
        super().__init__(log.place.run_id, log.place.run_id, log.stored.get("", {}))
        self.has_stored_failure: bool = False
        self.trace: Mapping[str, str] = trace
        self._log = log
        self._on_replay = on_replay

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Return the values of entries; the first one links the trace of the first segment."""
        values = await super().all(entries)
        if entries[0].name == "begin":
            self.trace = self.trace or values[0].get("trace", {})
            return [{**values[0], "trace": self.trace}]
        return values

    def nested(self, name: str) -> Journal:
        """Return the log of a loop inside of a call."""
        return _InnerJournal(self._log, name)

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        """Return the stored values of the logs inside of a call; see `Journal`."""
        return self._log.read_inside(name)

    async def _store_value(self, position: int, name: str, value: JournalValue) -> None:
        if "failed" in value:
            if not name.startswith("call "):  # which must not run twice; all others are asked for again
                return
            self.has_stored_failure = True
        await self._log.writer.store(self._log.place, "", position, name, value)
        self._log.events.note_stored(name)

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:
        value = unwrap_value(stored)
        self.has_stored_failure |= "failed" in value
        self._on_replay(name, value)
        return value


class _InnerJournal(ReplayJournal):
    """The log of a loop inside of a call."""

    def __init__(self, log: SegmentLog, path: str) -> None:
        super().__init__(log.name_loop(path), f"{log.place.run_id}/{path}", log.stored.get(path, {}))
        self._log = log
        self._path = path
        self._loop_id = ""  # of the loop, which has another where it goes on from a snapshot

    def nested(self, name: str) -> Journal:
        return _InnerJournal(self._log, f"{self._path}/{name}")

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        return self._log.read_inside(f"{self._path}/{name}")

    async def _store_value(self, position: int, name: str, value: JournalValue) -> None:
        self._open_events(name, value)
        await self._log.writer.store(self._log.place, self._path, position, name, value)
        self._log.events.note_stored(name, self._loop_id)

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:
        self._open_events(name, stored)
        self._log.events.replay_entry(name, stored, self._loop_id)
        return stored

    def _open_events(self, name: str, value: JournalValue) -> None:
        if name == "begin":
            self._loop_id = value["run"]
            self._log.events.open_log(self._loop_id)


def unwrap_value(stored: JournalValue) -> JournalValue:
    """Return the value of an entry of a run's own log, also of one of an earlier release."""
    value: JournalValue = stored[_VALUE] if _TAKEN in stored else stored
    return value


def read_taken_items(stored: StoredEntries) -> set[object]:
    """Return the keys of the items of the inbox that were taken according to a run's own log, or their ids."""
    values = [value for _, value in stored.get("", {}).values() if is_object(value)]
    return {item for value in values for item in value.get("took", value.get(_TAKEN, ()))}


def check_whole(run_id: str, stored: StoredEntries, emitted: Collection[str]) -> None:
    """Check that the entries are there whose events were written, which come after them.

    Raises:
        JournalError: One is missing: the log was cut.
    """
    names = {name for name, _ in stored.get("", {}).values()}
    for path, inner in stored.items():
        begin = next((value for name, value in inner.values() if name == "begin"), None)
        if path and not is_object(begin):
            return  # the replay raises for it
        names.update(f"{begin['run']}: {name}" for name, _ in inner.values() if path and is_object(begin))
    for key in sorted(emitted):
        name = key if key.startswith(_OWN_EVENTS) else key.partition(": ")[2]
        if name.startswith(_LOGGED_EVENTS) and key not in names:
            raise JournalError(
                f"the log of the run '{run_id}' was cut: the database has the event of '{name}', and not the entry"
            )


def read_stored_entries(
    connection: sa.Connection, storage: Storage, run_id: str, segments: Sequence[int]
) -> dict[str, dict[int, StoredEntry]]:
    """Return the entries of some segments of a run; the later ones go on where the earlier ones end."""
    query = sa.select(entries.c.path, entries.c.position, entries.c.name, entries.c.value)
    query = query.where(entries.c.run_id == run_id, entries.c.segment.in_(segments)).order_by(entries.c.segment)
    rows = connection.execute(query).all()
    values = restore_values(connection, storage.text, run_id, [_read_text(storage, row.value) for row in rows])
    stored: dict[str, dict[int, StoredEntry]] = {}
    for row, value in zip(rows, values, strict=True):
        stored.setdefault(row.path, {})[row.position] = (row.name, value)
    return stored


def _read_text(storage: Storage, text: str) -> Any:
    try:
        return storage.text.read(text)
    except DurableError:
        return text  # `check_readable` refuses it


class _WaitingEntry:
    """An entry to be stored, and a callback for its run."""

    def __init__(self, row: Mapping[str, Any], contents: Sequence[ContentRow], on_end: Callable[[], object]) -> None:
        self.row = row
        self.contents = contents
        self.error: BaseException | None = None
        self._on_end = on_end

    def end(self, error: BaseException | None) -> None:
        """Report success, or an error."""
        self.error = error
        self._on_end()


def _refuse_entries(refused: Sequence[_WaitingEntry]) -> None:
    for entry in refused:
        entry.end(dbos_error.DBOSWorkflowConflictIDError(entry.row["run_id"]))


class EntryWriter:
    """Writes entries over one connection. It waits for an unavailable database, and so do the runs.

    Attributes:
        thread: Writes; when it is stopped, it writes the waiting entries, or refuses them without a database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._insert = _make_insert(storage)
        self._waiting: list[_WaitingEntry] = []
        self._lock = threading.Lock()
        self._connection: sa.Connection | None = None
        self.thread: DatabaseThread = DatabaseThread("log", self._write_round)

    async def store(self, place: AttemptPlace, path: str, position: int, name: str, value: JournalValue) -> None:
        """Store an entry of the log with this path; when this returns, no crash undoes it."""
        try:
            text, contents = write_value(self._storage.text, place.run_id, value)
        except (TypeError, ValueError, RecursionError) as error:
            raise JournalError(f"entry '{name}' of run '{place.run_id}' can't be stored: {error}") from error
        row: dict[str, Any] = {"run_id": place.run_id, "segment": place.segment, "path": path}
        row |= {"position": position, "name": name, "value": text, "attempt": place.attempt}
        wake, done = loop_waker(), anyio.Event()
        entry = _WaitingEntry(row, contents, lambda: wake(done.set))
        with self._lock:
            self._waiting.append(entry)
        self.thread.wake()
        with anyio.CancelScope(shield=True):
            await done.wait()
        if entry.error is not None:
            raise entry.error

    def _write_round(self) -> None:
        waiting = self._take_waiting()
        if waiting:
            self._write_patiently(waiting)
        if self.thread.is_ending:
            self._close_connection()
            _refuse_entries(self._take_waiting())

    def _take_waiting(self) -> list[_WaitingEntry]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            return waiting

    def _write_patiently(self, waiting: Sequence[_WaitingEntry]) -> None:
        """Write entries, repeatedly while the database is unavailable."""
        pause = _FIRST_PAUSE
        while True:
            try:
                refused = self._write_together(waiting)
            except Exception as error:  # noqa: BLE001 - the error of one entry does not affect the others
                if not is_away(error):
                    self._write_one_by_one(waiting, error)
                    return
                self._close_connection()
                _logger.warning("the log of durable runs can't be written yet, and the runs wait: %s", error)
                if self.thread.ends_within(pause):
                    _refuse_entries(waiting)
                    return
                pause = min(_LONGEST_PAUSE, pause * 2)
            else:
                _refuse_entries(refused)
                for entry in waiting:
                    if entry not in refused:
                        entry.end(None)
                return

    def _write_one_by_one(self, waiting: Sequence[_WaitingEntry], error: Exception) -> None:
        """Write entries one by one where the database refuses them together, and fail the refused one."""
        self._close_connection()
        if len(waiting) == 1:
            cause = error.orig if isinstance(error, DBAPIError) else error
            row = waiting[0].row
            waiting[0].end(JournalError(f"entry '{row['name']}' of run '{row['run_id']}' can't be stored: {cause}"))
            return
        for entry in waiting:
            self._write_patiently([entry])

    def _write_together(self, waiting: Sequence[_WaitingEntry]) -> list[_WaitingEntry]:
        """Write entries in one transaction; return the refused ones."""
        connection = self._connection
        if connection is None:
            connection = self._connection = self._storage.engine.connect()
        refused: list[_WaitingEntry] = []
        contents: list[ContentRow] = []
        with connection.begin():
            # Locked in one order by all workers.
            for entry in sorted(waiting, key=lambda each: str(each.row["run_id"])):
                found = connection.execute(self._insert, entry.row)
                if found.rowcount == 0 and not _is_stored(connection, entry.row):
                    refused.append(entry)
                else:
                    contents += entry.contents
            store_contents(connection, contents)
        return refused

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except DBAPIError as error:
                _logger.debug("a connection could not be closed: %s", error)


def _make_insert(storage: Storage) -> sa.Insert:
    """Return the statement that stores an entry only if its attempt owns the run."""
    columns = [column.name for column in entries.c]
    values = [sa.bindparam(column.name, type_=column.type) for column in entries.c]
    mine = sa.select(*values).where(
        runs.c.run_id == sa.bindparam("run_id"), runs.c.attempt == sa.bindparam("attempt", type_=sa.Text())
    )
    insert = postgresql.insert(entries) if storage.is_postgres else sqlite.insert(entries)
    owner = mine.select_from(runs).with_for_update(read=True, key_share=True, of=runs)
    insert = insert.from_select(columns, owner).on_conflict_do_nothing()
    return insert.execution_options(preserve_rowcount=True)  # 0 for a refused one


def _is_stored(connection: sa.Connection, row: Mapping[str, Any]) -> bool:
    """Return whether an entry was stored by a transaction whose reply was lost."""
    found = sa.select(entries.c.name, entries.c.value).where(*(entries.c[name] == row[name] for name in _KEY))
    stored = connection.execute(found).one_or_none()
    return stored is not None and (stored.name, stored.value) == (row["name"], row["value"])


@dataclass(slots=True)
class _InboxMessage:
    item: InboxItem
    message: Message
    state: Literal["new", "waiting", "taken", "returned"] = "new"


class InboxSteering(Steering):
    """The steering queue of a run's loop, which records the items of the inbox that the loop has taken.

    Items that the log has are not delivered again.
    """

    __slots__ = ("_items", "_lock", "_unlogged")

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[str, _InboxMessage] = {}
        self._unlogged: list[str] = []
        self._lock = threading.Lock()

    def deliver(self, item: InboxItem) -> None:
        """Queue a message once, unless the log has it."""
        with self._lock:
            found = self._items.setdefault(item.key, _InboxMessage(item, read_message(item)))
            if found.state != "new":
                return
            found.state = "waiting"
        if item.kind == "steer":
            self.steer(found.message)
        else:
            self.follow_up(found.message)

    def restore(self, items: Sequence[InboxItem], taken: Collection[object]) -> None:
        """Load the messages of the inbox at the start of an attempt; the log has those with these keys or ids."""
        for item in items:
            is_taken = item.key in taken or item.id in taken
            self._items[item.key] = _InboxMessage(item, read_message(item), "taken" if is_taken else "new")

    def take_steered(self) -> list[Message]:
        """Return all steered messages and remove them."""
        return self._note_taken(super().take_steered())

    def take_follow_up(self) -> list[Message]:
        """Return the next follow-up, as a list of at most one, and remove it."""
        return self._note_taken(super().take_follow_up())

    def put_back(self, messages: Sequence[Message]) -> None:
        """Leave messages that no model has read to the next segment."""
        with self._lock:
            for message in messages:
                self._change_state(message, "taken", "returned")

    def take_unlogged(self) -> list[str]:
        """Return, once, the keys of the items that were taken since the last call."""
        with self._lock:
            unlogged, self._unlogged = self._unlogged, []
            return unlogged

    @property
    def taken(self) -> list[InboxItem]:
        """The items that are in the transcript."""
        return [each.item for each in self._items.values() if each.state == "taken"]

    def _note_taken(self, messages: list[Message]) -> list[Message]:
        if messages:
            with self._lock:
                for message in messages:
                    self._unlogged += self._change_state(message, "waiting", "taken")
        return messages

    def _change_state(self, message: Message, before: str, after: Literal["taken", "returned"]) -> list[str]:
        """Change the state of a message; return the key of its item, in a list of at most one."""
        for each in self._items.values():
            if each.state == before and each.message == message:
                each.state = after
                return [each.item.key]
        return []
