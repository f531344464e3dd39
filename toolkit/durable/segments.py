"""One segment of a run: made from what the client or the last rest left, moved, and left as plain JSON."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import sqlalchemy as sa
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.durable.attempt_events import AttemptEvents, EventWriter
from toolkit.durable.contents import has_contents, keep_contents, split_value
from toolkit.durable.entry_log import EntryLog, LogPlace
from toolkit.durable.errors import DurableError, WorkersLostError
from toolkit.durable.loops import DurableLoop, RunPlace
from toolkit.durable.messages_in import InboxSteering
from toolkit.durable.rests import InboxItem, Rest, leave_error, leave_result, read_messages
from toolkit.durable.run_handles import configure_run, make_handle, read_said, write_traceback
from toolkit.durable.run_rows import AttemptFacts, RunRows, describe_under_way, spare_attempt
from toolkit.durable.segment_journal import SegmentJournal, count_taken
from toolkit.durable.storage import Storage, segment_id
from toolkit.durable.tables import database_now, inbox
from toolkit.loop.handle import ToolLoopHandle
from toolkit.loop.middleware import Middleware, RunInfo
from toolkit.run_log.writer import RunRecorder
from toolkit.trace_context import enter_trace_context

__all__ = ["SegmentRunner"]

_logger = logging.getLogger("toolkit.durable")


class _EventTeller(Middleware[object]):
    """Writes what the loops of one attempt tell."""

    is_inherited = True

    def __init__(self, events: AttemptEvents) -> None:
        self._events = events

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        if run.parent_loop_id is None:
            self._events.loop_id = run.loop_id
        return RunRecorder(self._events, run)


@dataclass(slots=True)
class _ActiveRun:
    """An attempt that is moving a run in this process."""

    steering: InboxSteering
    scope: anyio.CancelScope
    handle: ToolLoopHandle[Any, Any] | None = None
    cancel_item: InboxItem | None = None


class SegmentRunner:
    """Moves the segments that the engine gives to this process.

    Args:
        storage: The database.
        executor: The name of this worker.
        log: Writes entries.
        writer: Writes events.
        loops: The loops that are served, by name.
    """

    def __init__(
        self,
        storage: Storage,
        executor: str,
        log: EntryLog,
        writer: EventWriter,
        loops: Mapping[str, DurableLoop[Any, Any]],
    ) -> None:
        self._storage = storage
        self._executor = executor
        self._log = log
        self._rows = RunRows(storage)
        self._writer = writer
        self._loops = loops
        self._active: dict[str, _ActiveRun] = {}
        self._idle = anyio.Event()

    @property
    def active(self) -> list[str]:
        """The runs that move here."""
        return list(self._active)

    def deliver(self, run_id: str, items: Sequence[InboxItem]) -> bool:
        """Give items of the inbox to a run that moves here, from any thread; return whether it does."""
        active = self._active.get(run_id)
        if active is None:
            return False
        for item in items:
            _deliver_item(active, item)
        return True

    async def wait_until_idle(self) -> None:
        """Return when nothing moves here. Call it in the event loop."""
        while self._active:
            self._idle = anyio.Event()
            await self._idle.wait()

    def stop_all(self) -> None:
        """Stop what moves, as a crash would: another worker takes it over. Call it in the event loop."""
        for active in list(self._active.values()):
            active.scope.cancel()

    async def run(self, loop_name: str, run_id: str, segment: int, begin: Mapping[str, Any]) -> dict[str, Any]:
        """Move a segment to its rest, and return what it leaves."""
        attempt, logs = uuid.uuid4().hex, [*begin.get("logs", ()), segment]
        begin_attempt = partial(self._rows.begin_attempt, run_id, logs, attempt, self._executor)
        facts = await self._storage.insist(begin_attempt)
        events = AttemptEvents(
            run_id,
            segment,
            attempt,
            last_seq=facts.row.last_seq,
            told=facts.told,
            stored=self._storage.text,
            wake=self._writer.wake,
        )
        self._writer.open(events)
        active = _ActiveRun(InboxSteering(), anyio.CancelScope())
        self._active[run_id] = active
        is_untold = True
        try:
            with active.scope:
                mover = _SegmentMover(self._storage, self._log, self._loops[loop_name], facts, events, active, begin)
                left = await mover.move()
                output = await self._storage.insist(lambda: self._finish_attempt(mover, left))
                is_untold = events.is_refused
                return output
        except (KeyboardInterrupt, SystemExit):
            is_untold = False  # what the run does may have raised it
            raise
        finally:
            if is_untold:
                await self._spare_attempt(run_id, segment)
            if self._active.get(run_id) is active:
                del self._active[run_id]
            if not self._active:
                self._idle.set()
            self._writer.drop(events)
        raise anyio.get_cancelled_exc_class()  # stopped: the engine must not think that it has ended

    async def _spare_attempt(self, run_id: str, segment: int) -> None:
        """Have an attempt not count as lost: it was stopped, or the run was taken over, and this worker lives."""

        def spare() -> None:
            with self._storage.engine.begin() as connection:
                spare_attempt(connection, run_id, segment)

        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(spare)
            except SQLAlchemyError as error:
                _logger.info("that run %s was let go of could not be told, and counts as lost: %s", run_id, error)

    def _finish_attempt(self, mover: _SegmentMover, left: dict[str, Any]) -> dict[str, Any]:
        """Write the last events, what was taken of the inbox, and how the run stands; return what the engine keeps."""
        values: dict[str, Any] = {"state": left["state"], "lost": 0}
        if left["state"] == "waiting" and mover.loop.approval_expiry is not None:
            values["due"] = database_now(self._storage.engine) + mover.loop.approval_expiry

        small, beside = split_value(self._storage.text, mover.run_id, left)
        outputs = [left]  # whole where another attempt moves the run by now, and nothing is written

        def write_beside(connection: sa.Connection) -> None:
            keep_contents(connection, beside)
            outputs.append(small)
            for ids, taker in ((mover.taken, mover.segment), (mover.given_back, None)):
                if ids:
                    connection.execute(inbox.update().where(inbox.c.id.in_(ids)).values(segment=taker))

        self._writer.finish(mover.events, values, write_beside)
        if left["state"] != "failed":
            self._rows.delete_segments(mover.run_id, mover.oldest_needed)
        return outputs[-1]


def _deliver_item(active: _ActiveRun, item: InboxItem) -> None:
    match item.kind:
        case "steer" | "say":
            active.steering.feed(item.id, item.kind, read_said(item))
        case "cancel":
            active.cancel_item = item
            if active.handle is not None:
                active.handle.cancel(item.body.get("reason"))
        case _:
            pass  # for a run at rest


class _SegmentMover:
    """One attempt at one segment."""

    def __init__(
        self,
        storage: Storage,
        log: EntryLog,
        loop: DurableLoop[Any, Any],
        facts: AttemptFacts,
        events: AttemptEvents,
        active: _ActiveRun,
        begin: Mapping[str, Any],
    ) -> None:
        self.loop = loop
        self.run_id = facts.row.run_id
        self.events = events
        self.segment = facts.row.segment
        self._storage = storage
        self._facts = facts
        self._active = active
        self._begin = begin
        self._is_begun = False  # has read all that it begins with
        self._journal = SegmentJournal(
            self.run_id,
            log,
            LogPlace(self.run_id, self.segment, events.attempt),
            facts.kept,
            events,
            steering=active.steering,
            origin=segment_id(self.run_id, min([self.segment, *begin.get("logs", ())])),
            trace=begin.get("origin", {}),
            on_read=self._read_entry,
        )

    @property
    def taken(self) -> list[int]:
        """The items of the inbox that this segment took while it moved."""
        cancel = self._active.cancel_item
        return [*self._active.steering.taken, *([] if cancel is None else [cancel.id])]

    @property
    def given_back(self) -> list[int]:
        """The items of the inbox that a segment before this one took and then failed, and that were not taken again."""
        return sorted({item.id for item in self._find_said()}.difference(self._active.steering.taken))

    @property
    def oldest_needed(self) -> int:
        """The oldest segment that this one is taken up from, until the engine has kept what it leaves."""
        origins: list[int] = [self._begin.get("from", self.segment), *self._begin.get("logs", ())]
        return min(self.segment, *origins)

    async def move(self) -> dict[str, Any]:
        """Move the run to its rest; return what it leaves."""
        rest: Rest | None = None
        handle: ToolLoopHandle[Any, Any] | None = None
        try:
            self._read_inbox()
            await self._restore_begin()
            rest = await self._read_last_rest()
            self._is_begun = True
            self._check_lost()
            with enter_trace_context(self._begin.get("trace") or {}):
                handle = await self._make_handle(rest)
                self._active.handle = handle
                if self._active.cancel_item is not None:
                    handle.cancel(self._active.cancel_item.body.get("reason"))
                result = await handle.run()
        except Exception as error:  # noqa: BLE001 - it is what the run leaves, and is logged there
            return self._leave_failure(error, rest, handle)
        snapshot = handle.snapshot() if result.reason.kind == "awaiting_approval" else None
        return leave_result(result, snapshot, trace=self._journal.trace)

    def _leave_failure(
        self, error: Exception, rest: Rest | None, handle: ToolLoopHandle[Any, Any] | None
    ) -> dict[str, Any]:
        _logger.warning("durable run %s failed: %s", self.run_id, write_traceback(error))
        snapshot = None
        if handle is not None:
            messages: Sequence[Message] = handle.messages
        elif rest is not None:
            messages, snapshot = rest.load_messages(), rest.snapshot
        else:
            messages = read_messages(self._begin.get("prompt", ())) if self._is_begun else []
        journal = self._journal
        return leave_error(
            error,
            messages,
            snapshot,
            is_resumable=not journal.has_kept_failure,
            is_read=self._is_begun and journal.is_read,
            trace=journal.trace,
        )

    def _check_lost(self) -> None:
        """Refuse to move a run that may be what ends its workers.

        Raises:
            WorkersLostError: As many as may be ended.
        """
        most, before = self.loop.max_lost, self._facts.lost - 1
        if most is not None and before >= most:
            raise WorkersLostError(self.run_id, before, describe_under_way(self._facts.kept))

    def _read_inbox(self) -> None:
        said = self._find_said()
        self._active.steering.expect([(item.id, read_said(item)) for item in said], count_taken(self._facts.kept))
        for item in [*said, *(each for each in self._facts.items if each.kind == "cancel")]:
            _deliver_item(self._active, item)

    def _find_said(self) -> list[InboxItem]:
        """Return the messages that came while segments of this run moved, and not those that this one began with."""
        known = {item["id"] for item in self._begin.get("items", ())}
        return [item for item in self._facts.items if item.kind in ("say", "steer") and item.id not in known]

    async def _restore_begin(self) -> None:
        """Put back the large contents of what the segment begins with."""
        begin, rows = self._begin, RunRows(self._storage)

        def restore(value: Any) -> Any:
            return rows.restore(self.run_id, value) if has_contents(value) else value

        def restore_all() -> dict[str, Any]:
            items = [{**item, "body": restore(item["body"])} for item in begin.get("items", ())]
            return {**begin, "prompt": restore(begin.get("prompt", ())), "items": items}

        parts = [begin.get("prompt", ()), *(item["body"] for item in begin.get("items", ()))]
        if any(has_contents(part) for part in parts):
            self._begin = await self._storage.insist(restore_all)

    async def _read_last_rest(self) -> Rest | None:
        if "from" not in self._begin:
            return None
        rows, row = RunRows(self._storage), self._facts.row
        rest = await self._storage.insist(lambda: rows.read_segment(row.run_id, self._begin["from"]))
        if rest is None:
            raise DurableError(f"segment {self._begin['from']} of run '{row.run_id}' is not at rest")
        return rest

    async def _make_handle(self, rest: Rest | None) -> ToolLoopHandle[Any, Any]:
        row = self._facts.row
        place = RunPlace(run_id=row.run_id, loop=row.loop, tenant=row.tenant, metadata=row.metadata)
        config = configure_run(self.loop, place, self._journal)
        config = replace(
            config,
            stream=True if config.stream is None else config.stream,
            steering=self._active.steering,
            middleware=(_EventTeller(self.events), *config.middleware),
        )
        begin = read_messages(self._begin["prompt"]) if rest is None else rest
        items = [InboxItem(**item) for item in self._begin.get("items", ())]
        return await make_handle(self.loop, place, config, begin, items)

    def _read_entry(self, name: str, value: Mapping[str, Any]) -> None:
        if name.startswith("call "):
            self._journal.tell_inner(name.removeprefix("call "))
        self.events.read_entry(name, value, registrations=self.loop.registry.registrations)
