"""Moves the segments that the engine gives to a worker, each from a prompt or the last rest to the next rest."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import sqlalchemy as sa
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from toolkit.chat import Message
from toolkit.durable.contents import has_contents, split_value
from toolkit.durable.errors import DurableError, WorkersLostError
from toolkit.durable.event_writer import AttemptEvents, EventWriter
from toolkit.durable.loops import DurableLoop, RunPlace
from toolkit.durable.rests import InboxItem, Rest, RunSegment, is_forged, read_message, read_messages
from toolkit.durable.rows import AttemptFacts, RunRows, describe_under_way, spare_attempt, write_ending
from toolkit.durable.segment_journal import (
    EntryWriter,
    InboxSteering,
    LogPlace,
    SegmentJournal,
    SegmentLog,
    read_taken_items,
)
from toolkit.durable.storage import Storage, database_now, segment_id, store_contents
from toolkit.durable.tables import inbox
from toolkit.loop.middleware import Middleware, RunInfo
from toolkit.run_log.writer import RunRecorder
from toolkit.trace_context import enter_trace_context

_logger = logging.getLogger("toolkit.durable")


class _EventMiddleware(Middleware[object]):
    """Writes the events of an attempt's loops."""

    is_inherited = True

    def __init__(self, events: AttemptEvents) -> None:
        self._events = events

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        if run.parent_loop_id is None:
            self._events.loop_id = run.loop_id
        return RunRecorder(self._events.put, run)


class SegmentRunner:
    """Moves the segments that the engine gives to this process.

    Args:
        storage: The database.
        executor: The name of this worker.
        entries: Writes the entries of logs.
        events: Writes events.
        loops: The loops that are served, by name.
    """

    def __init__(
        self,
        storage: Storage,
        executor: str,
        entries: EntryWriter,
        events: EventWriter,
        loops: Mapping[str, DurableLoop[Any, Any]],
    ) -> None:
        self._storage = storage
        self._executor = executor
        self._entries = entries
        self._rows = RunRows(storage)
        self._events = events
        self._loops = loops
        self._active: dict[str, _Attempt] = {}
        self._idle = anyio.Event()

    @property
    def active(self) -> list[str]:
        """The runs that move here."""
        return list(self._active)

    def deliver(self, run_id: str, items: Sequence[InboxItem]) -> None:
        """Deliver items of the inbox to a run, if it moves here; from any thread."""
        attempt = self._active.get(run_id)
        if attempt is not None:
            for item in items:
                attempt.deliver(item)

    async def wait_until_idle(self) -> None:
        """Return when nothing moves here. Call it in the event loop."""
        while self._active:
            self._idle = anyio.Event()
            await self._idle.wait()

    def stop_all(self) -> None:
        """Stop the active runs as a crash would: another worker takes them over. Call it in the event loop."""
        for attempt in list(self._active.values()):
            attempt.scope.cancel()

    async def run(self, loop_name: str, run_id: str, segment: int, begin: Mapping[str, Any]) -> dict[str, Any]:
        """Move a segment to its rest, and return that."""
        token, logs = uuid.uuid4().hex, [*begin.get("logs", ()), segment]
        begin_attempt = partial(self._rows.begin_attempt, run_id, logs, token, self._executor)
        facts = await self._storage.insist(begin_attempt)
        events = AttemptEvents(
            run_id,
            segment,
            token,
            last_seq=facts.row.last_seq,
            emitted=facts.emitted,
            only_ends=self._loops[loop_name].events == "ends",
            text=self._storage.text,
            wake=self._events.thread.wake,
        )
        log = SegmentLog(
            writer=self._entries,
            place=LogPlace(run_id, segment, token),
            stored=facts.stored,
            events=events,
            origin=segment_id(run_id, min(logs)),
        )
        self._events.open(events)
        attempt = self._active[run_id] = _Attempt(self._storage, log, self._loops[loop_name], facts, begin)
        is_spared = True
        try:
            with attempt.scope:
                rest = await attempt.move()
                output = await self._storage.insist(lambda: self._finish_attempt(attempt, rest))
                is_spared = events.is_refused
                return output
        except (KeyboardInterrupt, SystemExit):
            is_spared = False  # the run itself may have raised it
            raise
        finally:
            if is_spared:
                await self._spare_attempt(run_id, segment)
            if self._active.get(run_id) is attempt:
                del self._active[run_id]
            if not self._active:
                self._idle.set()
            self._events.drop(events)
        raise anyio.get_cancelled_exc_class()  # stopped: the engine must not think that it has ended

    async def start_scheduled(self, at: str, context: Mapping[str, Any]) -> str:
        """Begin the run of a schedule; return its id."""
        return await self._storage.insist(lambda: self._rows.start_scheduled(at, context))

    async def _spare_attempt(self, run_id: str, segment: int) -> None:
        """Don't count an attempt as lost that was stopped, or whose run was taken over: this worker lives."""

        def spare() -> None:
            with self._storage.engine.begin() as connection:
                spare_attempt(connection, run_id, segment)

        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(spare)
            except SQLAlchemyError as error:
                _logger.info("an attempt at run %s that was stopped counts as lost: %s", run_id, error)

    def _finish_attempt(self, attempt: _Attempt, rest: dict[str, Any]) -> dict[str, Any]:
        """Write the last events, the taken items of the inbox, and the state; return what the engine stores."""
        values: dict[str, Any] = {"state": rest["state"], "lost": 0}
        values |= write_ending(self._storage.text, attempt.segment, rest["ending"], rest["error"])
        if rest["state"] == "waiting" and attempt.loop.approval_expiry is not None:
            values["due"] = database_now(self._storage.engine) + attempt.loop.approval_expiry

        small, contents = split_value(self._storage.text, attempt.run_id, rest)
        outputs = [rest]  # whole where another attempt moves the run by now, and nothing is written

        def write_more(connection: sa.Connection) -> None:
            store_contents(connection, contents)
            outputs.append(small)
            for ids, segment in ((attempt.taken, attempt.segment), (attempt.given_back, None)):
                if ids:
                    connection.execute(inbox.update().where(inbox.c.id.in_(ids)).values(segment=segment))

        self._events.finish(attempt.events, values, write_more)
        if rest["state"] != "failed":
            self._rows.delete_segments(attempt.run_id, attempt.oldest_needed)
        return outputs[-1]


class _Attempt:
    """One attempt at one segment, in this process."""

    def __init__(
        self,
        storage: Storage,
        log: SegmentLog,
        loop: DurableLoop[Any, Any],
        facts: AttemptFacts,
        begin: Mapping[str, Any],
    ) -> None:
        row = facts.row
        self.loop = loop
        self.run_id = row.run_id
        self.segment = row.segment
        self.events = log.events
        self.scope = anyio.CancelScope()
        self._storage = storage
        self._log = log
        self._facts = facts
        self._begin = begin
        self._has_inbox = False  # knows which items its log has taken
        self._has_begun = False  # has read all that it begins with
        self._cancel_item: InboxItem | None = None
        self._steering = InboxSteering()
        self._journal = SegmentJournal(
            log, steering=self._steering, trace=begin.get("origin", {}), on_replay=self._replay_entry
        )
        place = RunPlace(run_id=row.run_id, loop=row.loop, tenant=row.tenant, metadata=row.metadata)
        self._run = RunSegment(loop, place)

    @property
    def taken(self) -> list[int]:
        """The items of the inbox that this segment took while it moved."""
        return [*self._steering.taken, *([] if self._cancel_item is None else [self._cancel_item.id])]

    @property
    def given_back(self) -> list[int]:
        """The items of the inbox that an earlier segment took and then failed, and that were not taken again."""
        return sorted({item.id for item in self._find_messages()}.difference(self._steering.taken))

    @property
    def oldest_needed(self) -> int:
        """The oldest segment that this one begins from, until the engine has stored its rest."""
        origins: list[int] = [self._begin.get("from", self.segment), *self._begin.get("logs", ())]
        return min(self.segment, *origins)

    def deliver(self, item: InboxItem) -> None:
        """Deliver a message or a cancellation; decisions are for runs at rest.

        Nothing is delivered before the attempt has read its inbox: it may have taken the item already. What it does
        not find there is delivered at the next look.
        """
        if not self._has_inbox:
            return
        if item.kind in ("steer", "say"):
            self._steering.deliver(item.id, item.kind, read_message(item))
        elif item.kind == "cancel":
            self._cancel_item = item
            self._run.cancel(item.body.get("reason"))

    async def move(self) -> dict[str, Any]:
        """Move the run to its rest; return that."""
        run, journal = self._run, self._journal
        try:
            self._read_inbox()
            await self._restore_begin()
            run.begin = await self._read_start()
            self._has_begun = True
            self._check_lost()
            stream, config = self.loop.config.stream, self.loop.config
            items = [item for item in self._list_items() if not self._refuse_forged(item)]
            with enter_trace_context(self._begin.get("trace") or {}):
                result = await run.move(
                    journal,
                    items,
                    stream=True if stream is None else stream,
                    steering=self._steering,
                    middleware=(_EventMiddleware(self.events), *config.middleware),
                )
            return run.leave_result(result, journal.trace)
        except Exception as error:  # noqa: BLE001 - it is the rest of the run, and is logged there
            is_read = self._has_begun and journal.is_read
            return run.leave_error(error, journal.trace, is_resumable=not journal.has_stored_failure, is_read=is_read)

    def _list_items(self) -> list[InboxItem]:
        """Return the items that the segment begins with."""
        return [InboxItem(**item) for item in self._begin.get("items", ())]

    def _refuse_forged(self, item: InboxItem) -> bool:
        """Return whether a decision is not taken, since it was made without the key: its call goes on awaiting one."""
        if not is_forged(self.loop.config.signing_key, self.run_id, item):
            return False
        _logger.warning(
            "run %s: a decision on call %s was made without the loop's signing_key, and is not taken",
            self.run_id,
            item.body.get("call_id"),
        )
        return True

    def _check_lost(self) -> None:
        """Refuse to move a run that may be what ends its workers.

        Raises:
            WorkersLostError: The loop's `max_lost` workers have ended.
        """
        most, before = self.loop.max_lost, self._facts.lost - 1
        if most is not None and before >= most:
            raise WorkersLostError(self.run_id, before, describe_under_way(self._facts.stored))

    def _read_inbox(self) -> None:
        messages = self._find_messages()
        taken = read_taken_items(self._facts.stored)
        self._steering.restore([(item.id, read_message(item)) for item in messages], taken)
        self._has_inbox = True
        for item in [*messages, *(each for each in self._facts.items if each.kind == "cancel")]:
            self.deliver(item)

    def _find_messages(self) -> list[InboxItem]:
        """Return the messages that came while segments of this run moved, without those that this one began with."""
        known = {item["id"] for item in self._begin.get("items", ())}
        return [item for item in self._facts.items if item.kind in ("say", "steer") and item.id not in known]

    async def _restore_begin(self) -> None:
        """Restore the large contents of the prompt and the items that the segment begins with."""
        begin, rows = self._begin, RunRows(self._storage)

        def restore_all() -> dict[str, Any]:
            items = [{**item, "body": rows.restore(self.run_id, item["body"])} for item in begin.get("items", ())]
            return {**begin, "prompt": rows.restore(self.run_id, begin.get("prompt", ())), "items": items}

        parts = [begin.get("prompt", ()), *(item["body"] for item in begin.get("items", ()))]
        if any(has_contents(part) for part in parts):
            self._begin = await self._storage.insist(restore_all)

    async def _read_start(self) -> Rest | Sequence[Message]:
        """Return the prompt, or the rest that the segment begins from."""
        if "from" not in self._begin:
            return read_messages(self._begin["prompt"])
        last = self._begin["from"]
        rest = await self._storage.insist(lambda: RunRows(self._storage).read_segment(self.run_id, last))
        if rest is None:
            raise DurableError(f"segment {last} of run '{self.run_id}' is not at rest")
        return rest

    def _replay_entry(self, name: str, value: Mapping[str, Any]) -> None:
        if name.startswith("call "):
            self._log.replay_inside(name.removeprefix("call "))
        self.events.replay_entry(name, value, registrations=self.loop.registry.registrations)
