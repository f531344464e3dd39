"""One segment of a run: made from what the client or the last rest left, moved, and left as plain JSON."""

from __future__ import annotations

import inspect
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import sqlalchemy as sa
from anyio import to_thread

from toolkit.calls.approval import Approval, ApprovalHook, ApprovalRequest, Approve, Defer
from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.durable.attempt_events import AttemptEvents
from toolkit.durable.dbos_journal import DbosJournal, KeptSteps, count_taken
from toolkit.durable.decisions import read_decision
from toolkit.durable.errors import DurableError
from toolkit.durable.event_writer import EventWriter
from toolkit.durable.loops import DurableLoop, RunPlace
from toolkit.durable.messages_in import InboxSteering
from toolkit.durable.nested_journal import NestedJournal
from toolkit.durable.rests import InboxItem, Rest, leave_error, leave_result, read_messages
from toolkit.durable.run_rows import AttemptFacts, RunRows
from toolkit.durable.storage import Storage, segment_id
from toolkit.durable.tables import database_now, inbox
from toolkit.errors import LoopUsageError
from toolkit.loop.closing_events import describe_call_end
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.events import LoopEvent, ResponseReceived
from toolkit.loop.feeds import load_feed
from toolkit.loop.handle import ToolLoopHandle
from toolkit.loop.middleware import Middleware, RunInfo
from toolkit.run_log.recorder import RunRecorder
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
        writer: Writes events.
        loops: The loops that are served, by name.
    """

    def __init__(self, storage: Storage, writer: EventWriter, loops: Mapping[str, DurableLoop[Any, Any]]) -> None:
        self._storage = storage
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
        attempt = uuid.uuid4().hex
        facts = await to_thread.run_sync(self._rows.begin_attempt, run_id, segment, attempt)
        logs = [*begin.get("logs", ()), *([] if facts.row.attempts == 1 else [segment])]
        kept: dict[int, tuple[str, Any]] = {}
        for log in logs:
            kept |= await to_thread.run_sync(self._read_kept, run_id, log)
        events = AttemptEvents(
            run_id,
            segment,
            attempt,
            last_seq=facts.row.last_seq,
            told=facts.told,
            seal=self._storage.text.seal,
            wake=self._writer.wake,
        )
        self._writer.open(events)
        active = _ActiveRun(InboxSteering(), anyio.CancelScope())
        self._active[run_id] = active
        try:
            with active.scope:
                mover = _SegmentMover(self._storage, self._loops[loop_name], facts, events, active, kept, begin)
                left = await mover.move()
                await to_thread.run_sync(self._finish_attempt, mover, left)
                return left
        finally:
            if self._active.get(run_id) is active:
                del self._active[run_id]
            if not self._active:
                self._idle.set()
            self._writer.drop(events)
        raise anyio.get_cancelled_exc_class()  # stopped: the engine must not think that it has ended

    def _read_kept(self, run_id: str, segment: int) -> dict[int, tuple[str, Any]]:
        steps = self._storage.client.list_workflow_steps(segment_id(run_id, segment))
        return {step["function_id"]: (step["function_name"], step["output"]) for step in steps}

    def _finish_attempt(self, mover: _SegmentMover, left: Mapping[str, Any]) -> None:
        """Write the last events, what was taken of the inbox, and how the run stands."""
        values: dict[str, Any] = {"state": left["state"]}
        if left["state"] == "waiting" and mover.loop.approval_expiry is not None:
            values["due"] = database_now(self._storage.engine) + mover.loop.approval_expiry

        def mark_taken(connection: sa.Connection) -> None:
            if mover.taken:
                taken = inbox.update().where(inbox.c.id.in_(mover.taken), inbox.c.segment.is_(None))
                connection.execute(taken.values(segment=mover.segment))

        self._writer.finish(mover.events, values, mark_taken)
        if left["state"] != "failed":
            self._rows.delete_segments(mover.run_id, mover.oldest_needed)


def _deliver_item(active: _ActiveRun, item: InboxItem) -> None:
    match item.kind:
        case "steer" | "say":
            active.steering.feed(item.id, item.kind, _read_said(item))
        case "cancel":
            active.cancel_item = item
            if active.handle is not None:
                active.handle.cancel(item.body.get("reason"))
        case _:
            pass  # for a run at rest


def _read_said(item: InboxItem) -> Message:
    return read_messages([item.body["message"]])[0]


class _SegmentMover:
    """One attempt at one segment."""

    def __init__(
        self,
        storage: Storage,
        loop: DurableLoop[Any, Any],
        facts: AttemptFacts,
        events: AttemptEvents,
        active: _ActiveRun,
        kept: KeptSteps,
        begin: Mapping[str, Any],
    ) -> None:
        self.loop = loop
        self.run_id = facts.row.run_id
        self.events = events
        self.segment = facts.row.segment
        self._storage = storage
        self._facts = facts
        self._active = active
        self._kept = kept
        self._begin = begin
        self._journal = DbosJournal(
            facts.row.run_id, kept, active.steering, on_kept=self._tell_kept, nested=self._nest_journal
        )

    @property
    def taken(self) -> list[int]:
        """The items of the inbox that this segment took while it moved."""
        cancel = self._active.cancel_item
        return [*self._active.steering.taken, *([] if cancel is None else [cancel.id])]

    @property
    def oldest_needed(self) -> int:
        """The oldest segment that this one is taken up from, until the engine has kept what it leaves."""
        origins: list[int] = [self._begin.get("from", self.segment), *self._begin.get("logs", ())]
        return min(self.segment, *origins)

    async def move(self) -> dict[str, Any]:
        """Move the run to its rest; return what it leaves."""
        self._read_inbox()
        rest = await self._read_last_rest()
        handle: ToolLoopHandle[Any, Any] | None = None
        try:
            with enter_trace_context(self._begin.get("trace") or {}):
                handle = await self._make_handle(rest)
                self._active.handle = handle
                if self._active.cancel_item is not None:
                    handle.cancel(self._active.cancel_item.body.get("reason"))
                result = await handle.run()
        except Exception as error:
            if self._journal.failure is not None:
                raise self._journal.failure from error
            _logger.warning("durable run %s failed: %s", self._facts.row.run_id, error, exc_info=error)
            messages = [] if rest is None else rest.load_messages()
            if handle is not None:
                messages = handle.messages
            snapshot = None if handle is not None or rest is None else rest.snapshot
            return leave_error(error, messages, snapshot, is_resumable=self._journal.has_left_failure)
        return leave_result(result, handle.snapshot() if result.reason.kind == "awaiting_approval" else None)

    def _read_inbox(self) -> None:
        items, steering = self._facts.items, self._active.steering
        said = [(item.id, _read_said(item)) for item in items if item.kind in ("steer", "say")]
        steering.expect(said, count_taken(self._kept))
        for item in items:
            _deliver_item(self._active, item)

    async def _read_last_rest(self) -> Rest | None:
        if "from" not in self._begin:
            return None
        rows, row = RunRows(self._storage), self._facts.row
        rest = await to_thread.run_sync(rows.read_segment, row.run_id, self._begin["from"])
        if rest is None:
            raise DurableError(f"segment {self._begin['from']} of run '{row.run_id}' is not at rest")
        return rest

    async def _make_handle(self, rest: Rest | None) -> ToolLoopHandle[Any, Any]:
        loop, config = self.loop, self._make_config()
        ctx: Any = None
        if loop.make_context is not None:
            row = self._facts.row
            place = RunPlace(run_id=row.run_id, loop=row.loop, tenant=row.tenant, metadata=row.metadata)
            ctx = loop.make_context(place)
            if inspect.isawaitable(ctx):
                ctx = await ctx
        items = [InboxItem(**item) for item in self._begin.get("items", ())]
        if rest is not None and rest.snapshot is not None:
            handle: ToolLoopHandle[Any, Any] = ToolLoopHandle.restore(
                rest.snapshot, loop.provider, loop.registry, ctx=ctx, config=config
            )
            await _apply_items(handle, items)
            return handle
        messages = read_messages(self._begin["prompt"]) if rest is None else rest.load_messages()
        messages += [_read_said(item) for item in items if item.kind in ("say", "steer")]
        return ToolLoopHandle(loop.provider, loop.registry, messages, ctx=ctx, config=config)

    def _make_config(self) -> ToolLoopConfig[Any]:
        config, row = self.loop.config, self._facts.row
        metadata = {**config.metadata, "run_id": row.run_id, "loop": row.loop, "tenant": row.tenant}
        return replace(
            config,
            journal=self._journal,
            stream=True if config.stream is None else config.stream,
            on_tool_call=config.on_tool_call or self._find_approver(),
            steering=self._active.steering,
            metadata=metadata,
            middleware=(_EventTeller(self.events), *config.middleware),
        )

    def _find_approver(self) -> ApprovalHook | None:
        """Return what puts calls off that ask for a decision, where tools of the loop may ask."""
        registry = self.loop.registry
        asks = [each.options.requires_approval is not False for each in registry.registrations.values()]
        return _put_off if any(asks) or registry.permissions is not None else None

    def _nest_journal(self, name: str) -> NestedJournal:
        row = self._facts.row
        log = f"{segment_id(row.run_id, row.segment)}/{name}"
        return NestedJournal(self._storage, row.run_id, self.events.attempt, log)

    def _tell_kept(self, name: str, value: Mapping[str, Any]) -> None:
        """Tell of an entry that was kept before, where the attempt that kept it ended before it told."""
        kind, _, key = name.partition(" ")
        for feed in value.get("feeds", ()):
            told: LoopEvent | None = None
            if kind == "turn" and feed[0] == "model_replied":
                told = ResponseReceived(iteration=int(key), response=load_feed(feed)[1][0])
            elif kind == "call" and feed[0] == "tool_returned":
                told = describe_call_end(load_feed(feed)[1][1], self.loop.registry.registrations)
            if told is not None:
                stamps: dict[str, Any] = {"run_id": self.run_id, "loop_id": self.events.loop_id}
                self.events.tell_again(replace(told, **stamps, time=time.time()))


async def _put_off(request: ApprovalRequest) -> Approve | Defer:
    """Have a call that asks for a decision wait for one; the approver of a durable loop that has no other."""
    return Defer() if request.reason else Approve()


async def _apply_items(handle: ToolLoopHandle[Any, Any], items: Sequence[InboxItem]) -> None:
    """Decide what was decided, or close the run, where a run is taken up that awaits decisions."""
    for item in items:
        if item.kind == "cancel":
            handle.cancel(item.body.get("reason"))
            await handle.close()
            return
        if item.kind != "decide":
            continue
        decision: Approval | bool | str = read_decision(item.body["decision"])
        try:
            await handle.decide(item.body["call_id"], decision, binding=item.body["binding"])
        except LoopUsageError as error:
            # The tool is another one since: the run comes to rest again, with what is to be decided on now.
            _logger.warning("a decision on call %s does not hold anymore: %s", item.body["call_id"], error)
