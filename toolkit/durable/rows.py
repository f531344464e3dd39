"""The rows of runs and of their inbox: runs are started, attempted, resumed and deleted, messages stored and taken.

Attempts that do not report their end are counted, so that a run which ends its workers is not retried endlessly.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import NoneType
from typing import Any

import sqlalchemy as sa
from dbos import EnqueueOptions, error as dbos_error
from sqlalchemy.exc import IntegrityError

from toolkit.calls.run import CallReturned
from toolkit.chat import ToolCall
from toolkit.dataclass import dataclass
from toolkit.durable.contents import check_json, check_storable_text, split_value, write_value
from toolkit.durable.loops import RunPlace
from toolkit.durable.rests import (
    ENDED,
    MESSAGES,
    RESTING,
    TAKEN_AT_REST,
    VOID_AT_REST,
    InboxItem,
    Rest,
    check_rest,
    read_rest,
)
from toolkit.durable.segment_journal import StoredEntries, read_stored_entries, unwrap_value
from toolkit.durable.storage import (
    ENGINE_NAME,
    ENGINE_VERSION,
    Storage,
    contents,
    delete_workflows,
    entries,
    events,
    find_executor,
    inbox,
    insert_missing,
    labels,
    restore_value,
    runs,
    segment_id,
    store_contents,
    workers,
)
from toolkit.errors import (
    ConfigurationError,
    DurableError,
    DurableRunNotFoundError,
    JournalError,
    UnstorableValueError,
)
from toolkit.json_text import write_json
from toolkit.logs import get_logger
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.feeds import LOST, Feed, ModelReplied, load_feed
from toolkit.loop.journal import storable_id
from toolkit.schema.nodes import is_object
from toolkit.sql_database import database_now
from toolkit.stored_text import StoredText

_logger = get_logger("toolkit.durable")
SEGMENT_WORKFLOW = "toolkit.segment"
"""The engine's name of the workflow that a segment is."""

SCHEDULED_WORKFLOW = "toolkit.scheduled"
"""The engine's name of the workflow that begins the run of a schedule."""

_MOST_DELETED = 20
ENDED_WORKFLOW = ("ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
"""The engine's states of a workflow that has ended without an output."""
COLUMNS = [column for column in runs.c if column.name not in ("attempt", "due", "lost", "ended")]
"""The columns that a `RunRow` is made of."""

_MOST_NAMED = 3
_MOST_ERROR = 1_000
_MOST_FIRED = 1_000
_FIRED_SECONDS = 86_400.0
_UNSEEN_SECONDS = 10.0


def queue_name(loop: str) -> str:
    """Return the engine's name of a loop's queue."""
    return f"toolkit.{loop}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """The row of a run; see the columns of `runs`."""

    run_id: str
    loop: str
    tenant: str
    priority: int
    metadata: Mapping[str, Any]
    state: str = "queued"
    segment: int = 1
    attempts: int = 0
    last_seq: int = 0
    created: float = 0.0
    updated: float = 0.0
    begins: float | None = None
    ending: str = ""
    error: str = ""
    described: int = 0

    @property
    def place(self) -> RunPlace:
        """The run, as its loop and its seals know it."""
        return RunPlace(run_id=self.run_id, loop=self.loop, tenant=self.tenant, metadata=self.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """A schedule of runs.

    Args:
        name: Its name.
        loop: The name of the loop of its runs.
        cron: The times at which they begin.
        timezone: The time zone of these.
        last: The time at which the last one was due, in ISO 8601; empty before the first.
    """

    name: str
    loop: str
    cron: str
    timezone: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """The state that an attempt at a segment starts from.

    Args:
        row: The run.
        emitted: The entries of its logs whose events are written.
        stored: The entries of earlier attempts.
        items: The messages to the run that are in no transcript yet, and those in a log that it continues.
        lost: The number of attempts in a row that have not reported an end, including this one.
    """

    row: RunRow
    emitted: frozenset[str]
    stored: StoredEntries
    items: Sequence[InboxItem]
    lost: int


class RunRows:
    """Reads and writes the rows of runs and of their inbox; blocks."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._unread: set[int] = set()  # the items that can't be read, which each look finds again

    def start(self, row: RunRow, begin: Mapping[str, Any], *, is_new: bool = False) -> RunRow:
        """Start a run, or return the one that has its id; with `is_new` raise `DurableError` if there is one."""
        now = time.time()
        check_json("metadata", row.metadata)
        try:
            metadata = self._storage.text.write(dict(row.metadata))
            prompt, beside = split_value(self._storage.text, row.run_id, begin["prompt"])
        except (TypeError, ValueError, RecursionError) as error:
            raise UnstorableValueError(f"what run '{row.run_id}' begins with", f"it is no JSON: {error}") from error
        values = {name: getattr(row, name) for name in ("run_id", "loop", "tenant", "priority", "begins")}
        values |= {"metadata": metadata, "state": "queued", "segment": 1, "attempts": 0, "last_seq": 0}
        values |= {"lost": 0, "ended": 0, "described": 0}
        try:
            with self._storage.engine.begin() as connection:
                connection.execute(runs.insert().values(**values, created=now, updated=now))
                insert_labels(connection, self._storage.text, row.run_id, row.metadata)
                store_contents(connection, beside)
                self._enqueue_segment(connection, row, 1, {**begin, "prompt": prompt})
        except IntegrityError:
            if is_new:
                raise DurableError(f"there is a run '{row.run_id}' already: give another id") from None
        return self.read(row.run_id)

    def read(self, run_id: str) -> RunRow:
        """Return one run."""
        check_storable_text("the id of a run", run_id)
        found = self._storage.fetch(sa.select(*COLUMNS).where(runs.c.run_id == run_id))
        if not found:
            raise DurableRunNotFoundError(run_id)
        return self.to_row(found[0])

    def read_rest(self, row: RunRow, key: str | bytes | None = None) -> Rest | None:
        """Return the rest of a run; None while it is executed or queued."""
        return self.read_segment(row, row.segment, key)

    def read_segment(self, row: RunRow, segment: int, key: str | bytes | None = None) -> Rest | None:
        """Return the rest of a segment, whose seal is checked with a key; None while it is executed or queued."""
        run_id = row.run_id
        found = self._storage.client.list_workflows(workflow_ids=[segment_id(run_id, segment)], load_input=False)
        if not found:
            raise DurableError(f"segment {segment} of run '{run_id}' is not in the database anymore")
        status = found[0]
        if status.status == "SUCCESS":
            # The engine returns what it can't read as it is stored.
            output = self._storage.text.read(status.output) if isinstance(status.output, str) else status.output
            rest = read_rest(self.restore(run_id, output))
            check_rest(key, row.place, rest, segment)
            return rest
        if status.status in ENDED_WORKFLOW:
            text = str(status.error) if status.error is not None else f"its workflow ended as {status.status}"
            return Rest(
                state="failed", ending="DurableError", error=text, messages=[], is_resumable=True, is_read=False
            )
        return None

    def restore(self, run_id: str, value: Any) -> Any:
        """Return a value of the engine with its large contents."""
        with self._storage.engine.connect() as connection:
            return restore_value(connection, self._storage.text, run_id, value)

    def begin_attempt(self, run_id: str, logs: Sequence[int], attempt: str, executor: str) -> AttemptFacts:
        """Make this attempt the owner of a run; the writes of others are refused from now on.

        It continues the logs of some segments, of which the engine has assigned the last one to a worker.
        """
        now = database_now(self._storage.engine)
        values = {"attempt": attempt, "attempts": runs.c.attempts + 1, "state": "running", "updated": now}
        segment = logs[-1]
        written = sa.select(events.c.entry).where(
            events.c.run_id == run_id, events.c.segment.in_(logs), events.c.entry.is_not(None)
        )
        with self._storage.engine.begin() as connection:
            mine = runs.update().where(runs.c.run_id == run_id, runs.c.segment == segment).values(values)
            if connection.execute(mine).rowcount == 0:
                raise DurableError(f"run '{run_id}' has no segment {segment} to execute: it was deleted meanwhile")
            # Read while the row is locked: a worker that was frozen until now must not take the run back.
            if find_executor(connection, segment_id(run_id, segment)) != executor:
                raise dbos_error.DBOSWorkflowConflictIDError(segment_id(run_id, segment))
            row = self.to_row(connection.execute(sa.select(*COLUMNS).where(runs.c.run_id == run_id)).one())
            is_first = row.attempts == 1 and len(logs) == 1
            emitted = frozenset[str]() if is_first else frozenset(connection.execute(written).scalars())
            earlier = logs[:-1] if row.attempts == 1 else logs
            stored = read_stored_entries(connection, self._storage, run_id, earlier) if earlier else {}
            items = self._read_items(connection, run_id, logs[:-1])
            lost = _count_attempt(connection, run_id, stored)
            return AttemptFacts(row=row, emitted=emitted, stored=stored, items=items, lost=lost)

    def read_awaited(self, row: RunRow, key: str | bytes | None = None) -> Sequence[PendingApproval]:
        """Return the calls that awaited decisions when the last segment of a run began."""
        origin = self.read_origin(row)
        rest = self.read_segment(row, origin, key) if origin else None
        return () if rest is None else rest.awaited

    def read_origin(self, row: RunRow) -> int:
        """Return the segment from whose rest the last one of a run began; 0 if that is the first."""
        return int(self._read_begin(row).get("from", 0))

    def begin_next(self, run_id: str) -> bool:
        """Resume a run at rest if its inbox has an item that does so; return whether it was resumed."""
        row = self.read(run_id)
        rest = self.read_rest(row) if row.state in RESTING else None
        if rest is None:
            return False
        last_begin = self._read_begin(row) if rest.is_resumable else {}
        with self._storage.engine.begin() as connection:
            # The first statement writes, so that concurrent deciders wait here.
            moved = runs.update().where(runs.c.run_id == run_id, runs.c.segment == row.segment)
            moved = moved.where(runs.c.state.in_(RESTING))
            if connection.execute(moved.values(updated=database_now(self._storage.engine))).rowcount == 0:
                return False
            wanted = self._choose_items(connection, run_id, rest)
            if not wanted:
                return False
            following = row.segment + 1
            values = {"segment": following, "state": "queued", "attempts": 0, "attempt": None, "due": None}
            values |= {"lost": 0, "ended": 0, "described": 0, "ending": None, "error": None}
            connection.execute(runs.update().where(runs.c.run_id == run_id).values(values))
            if rest.is_resumable and any(item.kind == "retry" for item in wanted):
                wanted = [item for item in wanted if item.kind == "retry"]  # the others are read on the way
                begin = {**last_begin, "logs": [*last_begin.get("logs", ()), row.segment]}
            else:
                begin = {"from": row.segment, "items": self._write_items(run_id, wanted), "origin": dict(rest.trace)}
            taken = [item.id for item in wanted]
            connection.execute(inbox.update().where(inbox.c.id.in_(taken)).values(segment=following))
            self._enqueue_segment(connection, row, following, begin)
        return True

    def _choose_items(self, connection: sa.Connection, run_id: str, rest: Rest) -> list[InboxItem]:
        """Return the items that resume a run, if there are any, and delete those that never will."""
        delete_void_items(connection, run_id, rest.state)
        items = [item for item in self._read_items(connection, run_id) if item.kind not in VOID_AT_REST[rest.state]]
        kinds = TAKEN_AT_REST[rest.state] if rest.is_read else {"retry"}
        wanted = [item for item in items if item.kind in kinds]
        cancels = sa.select(sa.func.max(inbox.c.id)).where(inbox.c.run_id == run_id, inbox.c.kind == "cancel")
        last_cancel = connection.scalar(cancels) or 0
        return [] if all(item.kind in MESSAGES and item.id < last_cancel for item in wanted) else wanted

    def _write_items(self, run_id: str, items: Sequence[InboxItem]) -> list[dict[str, Any]]:
        """Return items as the engine stores them; the rows of the inbox have their large contents."""
        bodies = [split_value(self._storage.text, run_id, dict(item.body))[0] for item in items]
        return [
            {"id": item.id, "kind": item.kind, "key": item.key, "body": body}
            for item, body in zip(items, bodies, strict=True)
        ]

    def find_due(self, limit: int) -> list[str]:
        """Return the runs whose decisions have expired."""
        query = sa.select(runs.c.run_id).where(runs.c.due < database_now(self._storage.engine))  # null without one
        return [run_id for (run_id,) in self._storage.fetch(query.limit(limit))]

    def find_ended(self, seconds: float, limit: int) -> list[str]:
        """Return runs that ended at least so many seconds ago."""
        query = sa.select(runs.c.run_id).where(self._ended_before(seconds))
        return [run_id for (run_id,) in self._storage.fetch(query.limit(limit))]

    def delete(self, run_id: str) -> None:
        """Delete a run at rest with all its rows."""
        row = self.read(run_id)
        if not self._delete_where(run_id, runs.c.state.in_(RESTING)):
            raise DurableError(f"run '{run_id}' is {row.state}: cancel it, and delete it when it is at rest")

    def delete_ended(self, run_id: str, seconds: float) -> None:
        """Delete a run that ended at least so many seconds ago, unless it was resumed."""
        self._delete_where(run_id, self._ended_before(seconds))

    def _ended_before(self, seconds: float) -> sa.ColumnElement[bool]:
        return runs.c.state.in_(ENDED) & (runs.c.updated < database_now(self._storage.engine) - seconds)

    def _delete_where(self, run_id: str, condition: sa.ColumnElement[bool]) -> bool:
        with self._storage.engine.begin() as connection:
            return delete_runs(connection, (runs.c.run_id == run_id) & condition) > 0

    def delete_segments(self, run_id: str, before: int) -> None:
        """Delete the segments before one: no run is resumed from them any more."""
        first = max(1, before - _MOST_DELETED)
        ids = [segment_id(run_id, each) for each in range(first, before)]
        if ids:
            with self._storage.engine.begin() as connection:
                connection.execute(entries.delete().where(entries.c.run_id == run_id, entries.c.segment < before))
                delete_workflows(connection, ids)

    def put_item(self, run_id: str, kind: str, key: str, body: Mapping[str, Any]) -> bool:
        """Store an item for a run; return False if its key exists."""
        for name, part in body.items():
            check_json(f"the {name}", part)
        try:
            text, beside = write_value(self._storage.text, run_id, dict(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise UnstorableValueError(f"the message to run '{run_id}'", f"it is no JSON: {error}") from error
        try:
            with self._storage.engine.begin() as connection:
                connection.execute(inbox.insert().values(run_id=run_id, key=key, kind=kind, body=text))
                store_contents(connection, beside)
        except IntegrityError:
            return False
        return True

    def put_decision(self, run_id: str, segment: int, body: Mapping[str, Any]) -> bool:
        """Store a decision on a call that a run awaited at the rest of a segment.

        Returns:
            False if another decision was made before.
        """
        key = decision_key(body["call_id"], body["binding"])
        if self.put_item(run_id, "decide", key, body):
            return True
        # A taken decision that left the call pending was invalid, since the tool had changed: it may be repeated.
        spent = inbox.update().where(inbox.c.run_id == run_id, inbox.c.key == key, inbox.c.segment <= segment)
        with self._storage.engine.begin() as connection:
            found = connection.execute(spent.values(key=inbox.c.key + "/" + sa.cast(inbox.c.id, sa.Text)))
        return found.rowcount > 0 and self.put_item(run_id, "decide", key, body)

    def read_decided(self, row: RunRow, *, is_at_rest: bool) -> dict[str, str]:
        """Return the kinds of the valid decisions on calls of a run that are in no rest yet, by their keys."""
        counts: sa.ColumnElement[bool] = inbox.c.segment.is_(None)
        if not is_at_rest:
            counts |= inbox.c.segment == row.segment
        query = sa.select(inbox.c.key, inbox.c.body).where(
            inbox.c.run_id == row.run_id, inbox.c.kind == "decide", counts
        )
        with self._storage.engine.connect() as connection:
            found = [
                (key, self._read_body(connection, row.run_id, body)) for key, body in connection.execute(query).all()
            ]
        return {key: body["decision"]["kind"] for key, body in found if is_object(body.get("decision"))}

    def has_worker(self, run_id: str) -> bool:
        """Return whether a worker of a run's loop is alive."""
        query = sa.select(workers.c.loops, runs.c.loop).join(runs, runs.c.run_id == run_id)
        query = query.where(
            workers.c.beats >= 0,
            workers.c.seen > database_now(self._storage.engine) - 2 * workers.c.lease - _UNSEEN_SECONDS,
        )
        return any(served is None or loop in json.loads(served) for served, loop in self._storage.fetch(query))

    def has_item(self, run_id: str, key: str) -> bool:
        """Return whether a run has an item of this key."""
        query = sa.select(inbox.c.id).where(inbox.c.run_id == run_id, inbox.c.key == key)
        return bool(self._storage.fetch(query.limit(1)))

    def is_cancelled(self, run_id: str, segment: int | None) -> bool:
        """Return whether a run has a cancellation for the current segment or the next one."""
        query = sa.select(inbox.c.id).where(inbox.c.run_id == run_id, inbox.c.kind == "cancel")
        query = query.where(inbox.c.segment.is_(None) | (inbox.c.segment == segment))
        return bool(self._storage.fetch(query.limit(1)))

    def find_waiting(self, run_ids: Sequence[str]) -> dict[str, list[InboxItem]]:
        """Return the pending items of runs, by run, the oldest first."""
        query = sa.select(inbox.c.run_id, inbox.c.id, inbox.c.kind, inbox.c.key, inbox.c.body).where(
            inbox.c.segment.is_(None), inbox.c.run_id.in_(run_ids)
        )
        found: dict[str, list[InboxItem]] = {}
        with self._storage.engine.connect() as connection:
            for run_id, *row in connection.execute(query.order_by(inbox.c.id)).all():
                try:
                    found.setdefault(run_id, []).append(self._read_item(connection, run_id, *row))
                except (DurableError, JournalError) as error:  # those of other runs are read
                    if row[0] not in self._unread:
                        self._unread.add(row[0])
                        _logger.warning("run %s: '%s' is not taken: %s", run_id, row[1], error)
        return found

    def find_called(self, limit: int) -> dict[str, int]:
        """Return the runs at rest that an item resumes, with the newest such item."""
        is_taken = sa.or_(
            *((runs.c.state == state) & inbox.c.kind.in_(kinds) for state, kinds in TAKEN_AT_REST.items())
        )
        later = inbox.alias()
        is_stopped = inbox.c.kind.in_(MESSAGES) & sa.exists().where(
            later.c.run_id == inbox.c.run_id, later.c.kind == "cancel", later.c.id > inbox.c.id
        )
        query = (
            sa.select(inbox.c.run_id, sa.func.max(inbox.c.id))
            .join(runs, runs.c.run_id == inbox.c.run_id)
            .where(inbox.c.segment.is_(None), is_taken, ~is_stopped)
            .group_by(inbox.c.run_id)
            .order_by(sa.func.max(inbox.c.id).desc())
        )
        return {found[0]: found[1] for found in self._storage.fetch(query.limit(limit))}

    def put_schedule(
        self, name: str, cron: str, timezone: str, context: Mapping[str, Any], *, catches_up: bool
    ) -> None:
        """Store a schedule, or replace the one of this name."""
        client = self._storage.client
        taken = client.get_schedule(name)
        if taken is not None and taken["workflow_name"] != SCHEDULED_WORKFLOW:
            raise ConfigurationError(f"the name {name!r} is that of a schedule of another program: give another one")
        client.delete_schedule(name)
        try:
            client.create_schedule(
                schedule_name=name,
                workflow_name=SCHEDULED_WORKFLOW,
                schedule=cron,
                cron_timezone=timezone,
                context={**context, "name": name},
                automatic_backfill=catches_up,
                application_name=ENGINE_NAME,
            )
        except dbos_error.DBOSException as error:
            raise ConfigurationError(f"the schedule {name!r} can't be used: {error}") from error

    def list_schedules(self) -> list[RunSchedule]:
        """Return the schedules, by name."""
        found = self._storage.client.list_schedules(workflow_name=SCHEDULED_WORKFLOW, application_name=ENGINE_NAME)
        return [
            RunSchedule(
                name=each["schedule_name"],
                loop=each["context"]["row"]["loop"],
                cron=each["schedule"],
                timezone=each["cron_timezone"] or "UTC",
                last=each["last_fired_at"] or "",
            )
            for each in sorted(found, key=lambda each: each["schedule_name"])
        ]

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule, if there is one of this name."""
        if any(each.name == name for each in self.list_schedules()):
            self._storage.client.delete_schedule(name)

    def start_scheduled(self, at: str, context: Mapping[str, Any]) -> str:
        """Start the run of a schedule for a time in ISO 8601, unless it exists; return its id."""
        due = datetime.fromisoformat(at).astimezone(UTC)
        run_id = f"{context['name']}-{due:%Y%m%dT%H%M%SZ}"
        self.start(RunRow(**context["row"], run_id=run_id), context["begin"])
        return run_id

    def delete_fired(self) -> None:
        """Delete the engine's records of times that were due a day ago."""
        before = datetime.fromtimestamp(time.time() - _FIRED_SECONDS, UTC).isoformat()
        found = self._storage.client.list_workflows(
            name=SCHEDULED_WORKFLOW,
            status="SUCCESS",
            end_time=before,
            limit=_MOST_FIRED,
            load_input=False,
            load_output=False,
            application_name=ENGINE_NAME,
        )
        if found:
            with self._storage.engine.begin() as connection:
                delete_workflows(connection, [each.workflow_id for each in found])

    def begin_now(self, row: RunRow) -> None:
        """Begin a run now that was started for later."""
        self._storage.client.set_workflow_delay(segment_id(row.run_id, row.segment), delay_seconds=0)

    def _read_items(self, connection: sa.Connection, run_id: str, logs: Sequence[int] = ()) -> list[InboxItem]:
        """Return the pending items, and the messages of failed segments whose logs are continued."""
        is_open: sa.ColumnElement[bool] = inbox.c.segment.is_(None)
        if logs:
            is_open |= inbox.c.segment.in_(logs) & inbox.c.kind.in_(MESSAGES)
        query = sa.select(inbox.c.id, inbox.c.kind, inbox.c.key, inbox.c.body).where(inbox.c.run_id == run_id, is_open)
        rows = connection.execute(query.order_by(inbox.c.id)).all()
        return [self._read_item(connection, run_id, *row) for row in rows]

    def _read_item(self, connection: sa.Connection, run_id: str, id_: int, kind: str, key: str, body: str) -> InboxItem:
        return InboxItem(id=id_, kind=kind, key=key, body=self._read_body(connection, run_id, body))

    def _read_body(self, connection: sa.Connection, run_id: str, body: str) -> dict[str, Any]:
        read = restore_value(connection, self._storage.text, run_id, self._storage.text.read(body))
        if not is_object(read):
            raise DurableError(f"what was sent to run '{run_id}' can't be read: it was changed")
        return dict(read)

    def _read_begin(self, row: RunRow) -> dict[str, Any]:
        found = self._storage.client.list_workflows(
            workflow_ids=[segment_id(row.run_id, row.segment)], load_output=False
        )
        given = found[0].input if found else None
        return {} if given is None else dict(given["args"][-1])

    def _enqueue_segment(self, connection: sa.Connection, row: RunRow, segment: int, begin: Mapping[str, Any]) -> None:
        options: EnqueueOptions = {
            "queue_name": queue_name(row.loop),
            "workflow_name": SEGMENT_WORKFLOW,
            "workflow_id": segment_id(row.run_id, segment),
            "app_version": ENGINE_VERSION,
            "application_name": ENGINE_NAME,
            "queue_partition_key": row.tenant or "-",
        }
        delay = 0.0 if row.begins is None or segment > 1 else row.begins - time.time()
        if delay > 0:
            options["delay_seconds"] = delay
        if row.priority:  # the engine puts items without one first
            options["priority"] = row.priority
        try:
            self._storage.client.enqueue_in_transaction(connection, options, row.loop, row.run_id, segment, dict(begin))
        except dbos_error.DBOSException as error:
            raise DurableError(f"the engine does not take run '{row.run_id}': {error}") from error

    def to_row(self, found: sa.Row[Any]) -> RunRow:
        """Return a row of `COLUMNS`."""
        values: dict[str, Any] = {column.name: value for column, value in zip(COLUMNS, found, strict=True)}
        edited = [column.name for column in COLUMNS if not _has_type(column, values[column.name])]
        metadata = None if edited else self._storage.text.read(values["metadata"])
        if not is_object(metadata):
            name = edited[0] if edited else "metadata"
            raise DurableError(f"the row of run '{values['run_id']}' was edited: its {name} can't be read")
        is_described = values["described"] == values["segment"]  # an earlier release may have moved the run on
        values["ending"] = (values["ending"] or "") if is_described else ""
        values["error"] = self._storage.text.open_error(values["error"] or "") if is_described else ""
        values["metadata"] = dict(metadata)
        return RunRow(**values)


def _has_type(column: sa.Column[Any], value: object) -> bool:
    """Return whether a value is of a column's type; in SQLite it may be of any."""
    kind: type = column.type.python_type
    return column.nullable is True if value is None else isinstance(value, (kind, int) if kind is float else kind)


def delete_runs(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> int:
    """Delete runs with all their rows; return how many."""
    gone = connection.execute(runs.delete().where(condition).returning(runs.c.run_id, runs.c.segment)).all()
    if gone:
        ids = [run_id for run_id, _ in gone]
        for table in (events, inbox, entries, contents, labels):
            connection.execute(table.delete().where(table.c.run_id.in_(ids)))
        delete_workflows(connection, [segment_id(run_id, each) for run_id, last in gone for each in range(1, last + 1)])
    return len(gone)


def write_ending(stored: StoredText, segment: int, ending: str, error: str) -> dict[str, Any]:
    """Return the columns of a run at rest that describe its ending."""
    return {"ending": ending, "error": stored.seal_error(error[:_MOST_ERROR]), "described": segment}


def delete_void_items(connection: sa.Connection, run_id: str, state: str) -> None:
    """Delete the pending items that a run at rest ignores; a cancellation stays that follows a pending message."""
    older = inbox.alias()
    has_message = sa.exists().where(
        older.c.run_id == run_id, older.c.segment.is_(None), older.c.kind.in_(MESSAGES), older.c.id < inbox.c.id
    )
    void = inbox.delete().where(inbox.c.run_id == run_id, inbox.c.segment.is_(None) | (inbox.c.segment == 0))
    void = void.where(inbox.c.kind.in_(VOID_AT_REST[state]), (inbox.c.kind != "cancel") | ~has_message)
    connection.execute(void)


def insert_labels(connection: sa.Connection, stored: StoredText, run_id: str, metadata: Mapping[str, Any]) -> None:
    """Store the parts of a run's metadata by which it is found."""
    rows = [
        {"run_id": run_id, "name": name, "value": write_json(value)}
        for name, value in metadata.items()
        if stored.is_searchable(name) and is_label(name, value)
    ]
    insert_missing(connection, labels, rows)


def is_label(name: object, value: object) -> bool:
    """Return whether runs can be found by a part of their metadata: a short text, a number, True, False or None."""
    if not isinstance(name, str) or not isinstance(value, (str, int, float, bool, NoneType)):
        return False
    try:
        for text in (name, write_json(value)):
            check_storable_text("metadata", text)
    except (UnstorableValueError, ValueError):
        return False
    return True


def _count_attempt(connection: sa.Connection, run_id: str, stored: StoredEntries) -> int:
    """Count a new attempt as lost until it reports its end; return the count.

    If a call has ended since the last attempt began, the count starts again: the run does not end its workers.
    """
    mine, ended = runs.c.run_id == run_id, _count_ended(stored)
    lost = sa.case((runs.c.ended < ended, 1), else_=runs.c.lost + 1)
    counted = runs.update().where(mine).values(lost=lost, ended=ended).returning(runs.c.lost)
    return int(connection.execute(counted).scalar_one())


def spare_attempt(connection: sa.Connection, run_id: str, segment: int) -> None:
    """Don't count an attempt as lost: its worker was stopped, or the run was taken over."""
    mine = (runs.c.run_id == run_id, runs.c.segment == segment, runs.c.lost > 0)
    connection.execute(runs.update().where(*mine).values(lost=runs.c.lost - 1))


def describe_under_way(stored: StoredEntries) -> str:
    """Return a description of the turn and the calls that were active when the last attempt ended."""
    turn, calls = 0, dict[str, ToolCall]()
    for name, feeds in _read_feeds(stored.get("", {})):
        kind, _, key = name.partition(" ")
        if kind == "turn":
            turn = int(key)
            replies = [each.response for each in feeds if isinstance(each, ModelReplied)]
            calls = {storable_id(call.id): call for reply in replies for call in reply.tool_calls}
        elif kind == "call":
            calls.pop(key, None)
    if not calls:
        return f"it had asked for the reply of turn {turn + 1}"
    named = [f"'{key}' of the tool '{call.name}'" for key, call in calls.items()][:_MOST_NAMED]
    more = f" and {len(calls) - _MOST_NAMED} more" if len(calls) > _MOST_NAMED else ""
    return f"turn {turn} was under way, with no result yet of the call {', '.join(named)}{more}"


def _count_ended(stored: StoredEntries) -> int:
    """Return how many calls have ended, including those of loops inside calls."""
    results = [
        each.result
        for entries in stored.values()
        for name, feeds in _read_feeds(entries)
        if name.startswith("call ")
        for each in feeds
        if isinstance(each, CallReturned)
    ]
    return sum(result.text != LOST for result in results)


def _read_feeds(entries: Any) -> Iterator[tuple[str, list[Feed]]]:
    """Yield the names and the feeds of readable entries, in order."""
    for _, (name, stored) in sorted(entries.items()):
        feeds: Any = unwrap_value(stored).get("feeds", ()) if is_object(stored) else ()
        try:
            yield name, [load_feed(feed) for feed in feeds if feed[0] in ("model_replied", "tool_returned")]
        except (LookupError, TypeError, ValueError):
            continue  # the replay raises for it


def decision_key(call_id: str, binding: str) -> str:
    """Return the key of the row of a call's decision, which is unique."""
    return f"decide/{storable_id(call_id)}/{storable_id(binding)}"
