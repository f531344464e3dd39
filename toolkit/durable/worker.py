"""A worker: a process that executes the runs of its loops, beside any number of others on the same database.

The engine assigns it segments, each from a prompt or the last rest to the next rest.

Each worker increments a counter in a row of its own; another worker takes over its runs once the counter stops. No two
clocks are compared: a worker is dead if its counter has not changed for one lease by the clock of the observer, which
could read the database all that time. If that is wrong nothing is lost: the engine refuses the writes of a worker whose
runs were taken over.
"""

from __future__ import annotations

import math
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import sqlalchemy as sa
from anyio import to_thread
from dbos import DBOS, DBOSConfig, WorkflowStatus
from sqlalchemy.exc import SQLAlchemyError

from toolkit.calls.approval import Deny
from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.durable.contents import has_contents, split_value
from toolkit.durable.event_writer import AttemptEvents, AttemptPlace, EventWriter
from toolkit.durable.loops import DurableLoop, StartRate
from toolkit.durable.operations import Figures, RunSearch, forget_worker, watch_worker
from toolkit.durable.rests import (
    ENDED,
    MESSAGES,
    InboxItem,
    Rest,
    RunSegment,
    check_begin,
    is_forged,
    read_messages,
    seal_item,
    write_decision,
)
from toolkit.durable.rows import (
    ENDED_WORKFLOW,
    SCHEDULED_WORKFLOW,
    SEGMENT_WORKFLOW,
    AttemptFacts,
    RunRows,
    delete_void_items,
    describe_under_way,
    queue_name,
    spare_attempt,
    write_ending,
)
from toolkit.durable.segment_journal import (
    EntryWriter,
    InboxSteering,
    SegmentJournal,
    SegmentLog,
    check_whole,
    read_taken_items,
)
from toolkit.durable.storage import (
    ENGINE_NAME,
    ENGINE_VERSION,
    DatabaseThread,
    Storage,
    inbox,
    runs,
    segment_id,
    store_contents,
    workers,
)
from toolkit.errors import (
    ConfigurationError,
    DurableError,
    LaterReleaseError,
    LoopUsageError,
    ToolkitError,
    WorkersLostError,
)
from toolkit.json_text import write_json
from toolkit.logs import get_logger
from toolkit.loop.middleware import Middleware, RunInfo
from toolkit.run_log.log import RunRecorder
from toolkit.runtime.backend import is_on_asyncio
from toolkit.settings import check_setting
from toolkit.sql_database import database_now
from toolkit.stored_text import Encryption
from toolkit.trace_context import enter_trace_context

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


_logger = get_logger("toolkit.durable")
_FIRST_LEAVE = 0.5
_LONGEST_LEAVE = 60.0
"""The seconds until a run is tried again that a later release has written."""

_POLL_SECONDS = 0.1
_INTERNAL_QUEUE = "_dbos_internal_queue"  # of the engine, which schedules begin their runs in
_STOP_SECONDS = 10.0
_BEATS_A_LEASE = 5
_FORGET_SECONDS = 86_400.0
_LOOK_SECONDS = 0.15
_IDLE_LOOK_SECONDS = 0.5
"""The pace of an idle worker: a client resumes a run itself, and this is for clients that ended before they did."""
_DUE_SECONDS = 1.0
_AGAIN_SECONDS = 1.0
"""The time after which resuming a run is tried again: its rest may not have been stored yet."""
_SEARCH_SECONDS = 30.0
_MOST = 1_000
_SILENT_SECONDS = 60.0
_one_worker = threading.Lock()
_serving: list[SegmentRunner] = []  # the engine knows one workflow a process, and so one worker


class _EventMiddleware(Middleware[object]):
    """Writes the events of an attempt's loops."""

    is_inherited = True

    def __init__(self, events: AttemptEvents) -> None:
        self._events = events

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        if run.parent_loop_id is None:
            self._events.loop_id = run.loop_id
        return RunRecorder(self._events.put, run)


@dataclass(slots=True)
class _LeftSegment:
    segment: str
    queue: str
    pause: float
    due: float


class SegmentRunner:
    """Executes the segments that the engine assigns to this process, of some loops by name."""

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
        self._left: dict[str, _LeftSegment] = {}
        self._idle = anyio.Event()

    @property
    def active(self) -> list[str]:
        """The runs that this process executes."""
        return list(self._active)

    def deliver(self, run_id: str, items: Sequence[InboxItem]) -> None:
        """Deliver items of the inbox to a run, if this process executes it; from any thread."""
        attempt = self._active.get(run_id)
        if attempt is not None:
            for item in items:
                attempt.deliver(item)

    async def wait_until_idle(self) -> None:
        """Return when this process executes no run. Call it in the event loop."""
        while self._active:
            self._idle = anyio.Event()
            await self._idle.wait()

    def stop_all(self) -> None:
        """Stop the active runs as a crash would, for another worker to take over. Call it in the event loop."""
        for attempt in list(self._active.values()):
            attempt.scope.cancel()

    async def run(self, loop_name: str, run_id: str, segment: int, begin: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a segment, and return its rest."""
        token, logs = uuid.uuid4().hex, [*begin.get("logs", ()), segment]
        begin_attempt = partial(self._rows.begin_attempt, run_id, logs, token, self._executor)
        facts = await self._storage.insist(begin_attempt)
        place, loop = AttemptPlace(run_id, segment, token), self._loops[loop_name]
        events = AttemptEvents(
            place,
            last_seq=facts.row.last_seq,
            emitted=facts.emitted,
            only_ends=loop.events == "ends",
            text=self._storage.text,
            wake=self._events.thread.wake,
        )
        origin = segment_id(run_id, min(logs))
        log = SegmentLog(writer=self._entries, place=place, stored=facts.stored, events=events, origin=origin)
        self._events.open(events)
        attempt = self._active[run_id] = _Attempt(self._storage, log, loop, facts, begin)
        is_spared = True
        try:
            with attempt.scope:
                rest = await attempt.move()
                output = await self._storage.insist(lambda: self._finish_attempt(attempt, rest))
                is_spared = events.is_refused
                self._left.pop(run_id, None)
                return output
        except LaterReleaseError as error:
            self._leave_segment(loop_name, run_id, segment, error)
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
        raise anyio.get_cancelled_exc_class()  # stopped: the engine must not store an end

    def _leave_segment(self, loop_name: str, run_id: str, segment: int, error: Exception) -> None:
        """Leave a segment of a later release to its workers; this one tries again after growing pauses."""
        before = self._left.get(run_id)
        if before is None:
            _logger.warning("run %s is left to a worker of a later release: %s", run_id, error)
        pause = _FIRST_LEAVE if before is None else min(_LONGEST_LEAVE, 2 * before.pause)
        identity = segment_id(run_id, segment)
        self._left[run_id] = _LeftSegment(identity, queue_name(loop_name), pause, time.monotonic() + pause)

    def give_back(self) -> None:
        """Put segments that were left back into their queues after their pause; blocks."""
        now = time.monotonic()
        for left in [each for each in list(self._left.values()) if each.due <= now]:
            left.due = math.inf
            self._storage.client.resume_workflows([left.segment], queue_name=left.queue)

    async def start_scheduled(self, at: str, context: Mapping[str, Any]) -> str:
        """Begin the run of a schedule; return its id."""
        return await self._storage.insist(lambda: self._rows.start_scheduled(at, context))

    async def _spare_attempt(self, run_id: str, segment: int) -> None:
        """Don't count an attempt as lost that was stopped, or whose run was taken over: this worker is alive."""

        def spare() -> None:
            with self._storage.engine.begin() as connection:
                spare_attempt(connection, run_id, segment)

        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(spare)
            except SQLAlchemyError as error:
                _logger.info("an attempt at run %s that was stopped counts as lost: %s", run_id, error)

    def _finish_attempt(self, attempt: _Attempt, rest: Rest) -> dict[str, Any]:
        """Write the last events, the taken items of the inbox, and the state; return what the engine stores."""
        values: dict[str, Any] = {"state": rest.state, "lost": 0}
        values |= write_ending(self._storage.text, attempt.segment, rest.ending, rest.error)
        if rest.state == "waiting" and attempt.loop.approval_expiry is not None:
            values["due"] = database_now(self._storage.engine) + attempt.loop.approval_expiry
        plain = rest.write()
        small, contents = split_value(self._storage.text, attempt.run_id, plain)
        outputs = [plain]  # whole if another attempt has taken the run over, and nothing is written

        def write_more(connection: sa.Connection) -> None:
            store_contents(connection, contents)
            outputs.append(small)
            for ids, segment in ((attempt.taken, attempt.segment), (attempt.given_back, None)):
                if ids:
                    connection.execute(inbox.update().where(inbox.c.id.in_(ids)).values(segment=segment))
            if rest.state in ENDED:
                delete_void_items(connection, attempt.run_id, rest.state)

        self._events.finish(attempt.events, values, write_more)
        if rest.state != "failed":
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
        self._row = row = replace(facts.row, loop=loop.name)
        self.loop = loop
        self.run_id = row.run_id
        self.segment = row.segment
        self.events = log.events
        self.scope = anyio.CancelScope()
        self._storage = storage
        self._log = log
        self._facts = facts
        self._begin = begin
        self._has_inbox = False  # the items that its log, or an earlier segment, has taken are known
        self._has_begun = False  # the prompt or the last rest was read
        self._forged: set[int] = set()
        self._cancel_item: InboxItem | None = None
        self._steering = InboxSteering()
        self._journal = SegmentJournal(log, trace=begin.get("origin", {}), on_replay=self._replay_entry)
        self._run = RunSegment(loop, row.place, segment=row.segment)

    @property
    def taken(self) -> list[int]:
        """The items of the inbox that this segment has taken."""
        return [item.id for item in self._taken_items]

    @property
    def _taken_items(self) -> list[InboxItem]:
        return [*self._steering.taken, *([] if self._cancel_item is None else [self._cancel_item])]

    @property
    def given_back(self) -> list[int]:
        """The items of the inbox that only an earlier, failed segment has taken."""
        return sorted({item.id for item in self._find_messages()}.difference(self.taken))

    @property
    def oldest_needed(self) -> int:
        """The oldest segment that this one depends on until the engine has stored its rest."""
        origins: list[int] = [self._begin.get("from", self.segment), *self._begin.get("logs", ())]
        return min(self.segment, *origins)

    def deliver(self, item: InboxItem) -> None:
        """Deliver a message or a cancellation; decisions are for runs at rest.

        Items that arrive before the attempt has read its inbox are ignored, since its log may have taken them already;
        the others are delivered at the next look.
        """
        if not self._has_inbox or self._refuse_forged(item):
            return
        if item.kind in MESSAGES:
            self._steering.deliver(item)
        elif item.kind == "cancel":
            self._cancel_item = item
            self._run.cancel(item.body.get("reason"))

    async def move(self) -> Rest:
        """Execute the run until its rest, and return that."""
        run, journal = self._run, self._journal
        try:
            self._read_inbox()
            await self._restore_begin()
            run.begin = await self._read_start()
            self._has_begun = True
            self._deliver_inbox()
            check_whole(self.run_id, self._facts.stored, self._facts.emitted)
            self._check_lost()
            stream, config = self.loop.config.stream, self.loop.config
            sent = self._list_items()
            items = [item for item in sent if not self._refuse_forged(item)]
            if sent and not items:  # all were sent without the key
                assert isinstance(run.begin, Rest)
                return run.leave_again(run.begin)
            with enter_trace_context(self._begin.get("trace") or {}):
                result = await run.move(
                    journal,
                    items,
                    stream=True if stream is None else stream,
                    steering=self._steering,
                    middleware=(_EventMiddleware(self.events), *config.middleware),
                )
            run.taken = self._list_taken()
            return run.leave_result(result, journal.trace)
        except LaterReleaseError:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes the rest of the run, and is logged there
            run.taken = self._list_taken()
            is_read = self._has_begun and journal.is_read
            return run.leave_error(error, journal.trace, is_resumable=not journal.has_stored_failure, is_read=is_read)

    def _list_items(self) -> list[InboxItem]:
        """Return the items that resumed the run."""
        return [InboxItem(**item) for item in self._begin.get("items", ())]

    def _list_taken(self) -> list[str]:
        """Return the keys of the items that are in the transcript, or have cancelled the run."""
        begun_with = [] if self._run.handle is None else self._list_items()
        return [item.key for item in [*begun_with, *self._taken_items]]

    def _refuse_forged(self, item: InboxItem) -> bool:
        """Return whether an item was made without the key and is ignored: its call still awaits a decision."""
        reason = ""
        if is_forged(self.loop.config.signing_key, self.run_id, item):
            reason = "was sent without the loop's signing_key"
        elif isinstance(self._run.begin, Rest) and item.key in self._run.begin.taken:
            reason = "was taken before"
        if reason and item.id not in self._forged:  # each look finds it again
            self._forged.add(item.id)
            _logger.warning("run %s: '%s' %s, and is not taken", self.run_id, item.kind, reason)
        return bool(reason)

    def _check_lost(self) -> None:
        """Refuse to execute a run that may be what ends its workers."""
        most, before = self.loop.max_lost, self._facts.lost - 1
        if most is not None and before >= most:
            raise WorkersLostError(self.run_id, before, describe_under_way(self._facts.stored))

    def _read_inbox(self) -> None:
        messages = self._find_messages()
        taken = read_taken_items(self._facts.stored)
        self._steering.restore(messages, taken)

    def _deliver_inbox(self) -> None:
        self._has_inbox = True
        for item in [*self._find_messages(), *(each for each in self._facts.items if each.kind == "cancel")]:
            self.deliver(item)

    def _find_messages(self) -> list[InboxItem]:
        """Return the messages that arrived while segments were executed, without those that this one began with."""
        known = {item["id"] for item in self._begin.get("items", ())}
        said = [item for item in self._facts.items if item.kind in MESSAGES and item.id not in known]
        return [item for item in said if not self._refuse_forged(item)]

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
        key = self.loop.config.signing_key
        if "from" not in self._begin:
            check_begin(key, self._row.place, self._begin)
            return read_messages(self._begin["prompt"])
        last = self._begin["from"]
        rest = await self._storage.insist(lambda: RunRows(self._storage).read_segment(self._row, last, key))
        if rest is None:
            raise DurableError(f"segment {last} of run '{self.run_id}' is not at rest")
        return rest

    def _replay_entry(self, name: str, value: Mapping[str, Any]) -> None:
        if name.startswith("call "):
            self._log.replay_inside(name.removeprefix("call "))
        self.events.replay_entry(name, value, registrations=self.loop.registry.registrations)


class DurableWorker:
    """Executes the runs of some loops in this process while it is entered.

    ::

        async with DurableWorker([support], "postgresql://db/app", concurrency=100):
            await anyio.sleep_forever()

    The command ``toolkit worker`` does the same, and shuts down on a signal. Another worker resumes the runs of a dead
    one within about one and a half leases. It works on asyncio; a process has one worker.

    Args:
        loops: The loops; runs of other loops are left to other workers.
        url: The database: ``sqlite:///runs.db`` for the processes of one machine, ``postgresql://...`` for many.
        concurrency: The maximum of runs of each loop that this executes at once. The last worker to start sets it for
            all.
        lease: Seconds without a sign of life after which a worker counts as dead.
        grace: Seconds that runs have to come to rest when this is left; another worker resumes the others.
        encryption: Encrypts all stored values; the same for all workers and clients of a database.
        keep_seconds: Seconds after which runs that are done, failed or cancelled are deleted; None never deletes them.
        meter_provider: Makes the gauges (extra ``otel``); None takes the global one.

    Raises:
        ConfigurationError: Two loops have one name, or a setting is wrong.
    """

    def __init__(
        self,
        loops: Sequence[DurableLoop[Any, Any]],
        url: str,
        *,
        concurrency: int = 100,
        lease: float = 10.0,
        grace: float = 10.0,
        encryption: Encryption | None = None,
        keep_seconds: float | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        check_setting("concurrency", concurrency, int, least=1)
        check_setting("lease", lease, int, float, least=0.1)
        check_setting("grace", grace, int, float, least=0)
        check_setting("keep_seconds", keep_seconds, int, float, None, least=0)
        self._loops = _name_loops(loops)
        self._url = url
        self._concurrency = concurrency
        self._lease = float(lease)
        self._grace = float(grace)
        self._encryption = encryption
        self._keep_seconds = keep_seconds
        self._meter_provider = meter_provider
        self._threads: list[DatabaseThread] = []
        self.executor: str = uuid.uuid4().hex
        """The name of this worker among the others."""

    async def __aenter__(self) -> DurableWorker:
        """Begin to execute runs.

        Raises:
            LoopUsageError: The backend is not asyncio, or this process has a worker already.
            DatabaseUnavailableError: The database can't be reached.
        """
        if not is_on_asyncio():
            raise LoopUsageError("a worker runs on asyncio: the engine does; clients of durable runs run on trio too")
        if not _one_worker.acquire(blocking=False):
            raise LoopUsageError("there is a worker in this process already: give one worker all loops")
        try:
            self._storage = await to_thread.run_sync(partial(Storage, self._url, self._encryption, may_migrate=True))
            try:
                await self._launch_engine()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop_threads()
                    await to_thread.run_sync(self._storage.close)
                raise
        except BaseException:
            _one_worker.release()
            raise
        return self

    async def _launch_engine(self) -> None:
        self._log = EntryWriter(self._storage)
        self._writer = EventWriter(self._storage)
        self._runner = SegmentRunner(self._storage, self.executor, self._log, self._writer, self._loops)
        self._keeper = _LeaseKeeper(self._storage, self.executor, self._lease, self._loops)
        self._watch = _InboxWatch(self._storage, self._runner, self._loops, self._keep_seconds)
        with self._storage.raising_failures():
            await to_thread.run_sync(self._register_queues)
        _serving.append(self._runner)
        config: DBOSConfig = {
            "name": ENGINE_NAME,
            "system_database_engine": self._storage.engine_of_dbos,
            "executor_id": self.executor,
            "application_version": ENGINE_VERSION,
            "serializer": self._storage.serializer,
            "log_level": "WARNING",
            "use_listen_notify": False,
            "notification_listener_polling_interval_sec": _POLL_SECONDS,  # its thread is waited for at the end
        }
        DBOS(config=config)
        DBOS.listen_queues([queue_name(name) for name in self._loops])
        self._threads = [each.thread for each in (self._keeper, self._writer, self._log, self._watch)]
        for thread in self._threads:
            thread.start()
        DBOS.launch()
        watch_worker(self._storage, self._read_figures, self._meter_provider)
        _logger.info("worker %s serves %s on %s", self.executor, ", ".join(self._loops), self._storage.url)

    def _read_figures(self) -> tuple[Figures, bool]:
        figures = {
            "worker.runs": len(self._runner.active),
            "worker.event_lag": self._writer.lag,
            "worker.take_overs": self._keeper.handed_over,
        }
        return {name: {"": value} for name, value in figures.items()}, self._keeper.is_first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Accept no more runs, wait until the active ones come to rest, and hand over the others."""
        with anyio.CancelScope(shield=True):
            await self._shut_down()

    async def _shut_down(self) -> None:
        forget_worker()
        try:
            # The queues stop at once; active runs can store entries until they have ended.
            grace = max(1, round(self._grace)) if self._runner.active else 0
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_late)
                await to_thread.run_sync(lambda: DBOS.destroy(workflow_completion_timeout_sec=grace))
                tasks.cancel_scope.cancel()
            self._runner.stop_all()
            with anyio.move_on_after(_STOP_SECONDS):
                await self._runner.wait_until_idle()
            await self._stop_threads()
        finally:
            _serving.clear()
            _one_worker.release()
            await to_thread.run_sync(self._storage.close)

    async def _stop_threads(self) -> None:
        for thread in reversed(self._threads):
            await to_thread.run_sync(thread.stop)

    async def _stop_late(self) -> None:
        """Stop the runs that do not come to rest in time, while the engine can still release them."""
        await anyio.sleep(max(0.0, self._grace - 0.5))
        self._runner.stop_all()

    def _register_queues(self) -> None:
        for name, loop in self._loops.items():
            queue = loop.queue
            each = self._concurrency if queue.concurrency is None else min(self._concurrency, queue.concurrency)
            tenant = each if queue.tenant_concurrency is None else min(each, queue.tenant_concurrency)
            self._storage.client.register_queue(
                queue_name(name),
                worker_concurrency=each,
                global_concurrency=queue.concurrency,
                limiter=_to_limiter(queue.rate),
                partition_concurrency=queue.tenant_concurrency,
                partition_worker_concurrency=tenant,
                partition_limiter=_to_limiter(queue.tenant_rate),
                polling_interval_sec=_POLL_SECONDS,
                application_name=ENGINE_NAME,
            )


def _to_limiter(rate: StartRate | None) -> Any:
    return None if rate is None else {"limit": rate.limit, "period": rate.seconds}


def _name_loops(loops: Sequence[DurableLoop[Any, Any]]) -> Mapping[str, DurableLoop[Any, Any]]:
    named: dict[str, DurableLoop[Any, Any]] = {}
    for loop in loops:
        check_setting("a loop of a worker", loop, DurableLoop)
        if named.setdefault(loop.name, loop) is not loop:
            raise ConfigurationError(
                f"two durable loops are named {loop.name!r}: their runs could not be distinguished"
            )
    if not named:
        raise ConfigurationError("a worker without a loop would do nothing: give it what durable_loop returned")
    return named


@DBOS.workflow(name=SEGMENT_WORKFLOW, max_recovery_attempts=None)
async def _move_segment(loop: str, run_id: str, segment: int, begin: dict[str, Any]) -> dict[str, Any]:
    return await _serving[0].run(loop, run_id, segment, begin)


@DBOS.workflow(name=SCHEDULED_WORKFLOW, max_recovery_attempts=None)
async def _start_scheduled(at: str, context: dict[str, Any]) -> str:
    return await _serving[0].start_scheduled(at, context)


@dataclass(slots=True)
class _Seen:
    beats: int
    since: float  # by our own clock


class _LeaseKeeper:
    """Renews this worker's lease, and hands over the runs of dead workers of its loops.

    Attributes:
        is_first: True if this is the one worker that hands over runs.
        handed_over: The number of runs that it has handed over.
        thread: Renews the lease; when it is stopped, it ends the lease: unfinished runs are handed over at once.
    """

    def __init__(self, storage: Storage, executor: str, lease: float, loops: Iterable[str]) -> None:
        self._storage = storage
        self._executor = executor
        self._lease = lease
        self._names = write_json(sorted(loops))
        self._queues = {_INTERNAL_QUEUE, *(queue_name(name) for name in loops)}
        self._seen: dict[str, _Seen] = {}
        self.is_first = False
        self.handed_over = 0
        self._last_look: float | None = None
        self._last_search = 0.0
        self.thread: DatabaseThread = DatabaseThread("lease", self._renew_lease, again=lease / _BEATS_A_LEASE)

    def _renew_lease(self) -> float:
        if self.thread.is_ending:
            with self._storage.engine.begin() as connection:
                connection.execute(workers.update().where(workers.c.executor == self._executor).values(beats=-1))
            return 0.0
        try:
            self._beat_once()
            self._hand_over(self._find_dead())
        except Exception:
            self._last_look = None
            raise
        return self._lease / _BEATS_A_LEASE

    def _beat_once(self) -> None:
        mine = workers.c.executor == self._executor
        now = database_now(self._storage.engine)
        with self._storage.engine.begin() as connection:
            found = connection.execute(workers.update().where(mine).values(beats=workers.c.beats + 1, seen=now))
            if found.rowcount == 0:
                row = {"executor": self._executor, "beats": 1, "lease": self._lease, "loops": self._names}
                connection.execute(workers.insert().values(**row, host=socket.gethostname(), seen=now))

    def _find_dead(self) -> set[str]:
        """Read the counters; return the dead workers if this is the worker that hands over."""
        now = time.monotonic()
        with self._storage.engine.begin() as connection:
            rows = connection.execute(sa.select(workers.c.executor, workers.c.beats, workers.c.lease)).all()
            connection.execute(
                workers.delete().where(workers.c.seen < database_now(self._storage.engine) - _FORGET_SECONDS)
            )
        if self._last_look is None or now - self._last_look > self._lease:
            self._seen.clear()  # the database was unavailable, or this process stopped: all get another lease
        self._last_look = now
        leases = {executor: lease for executor, _, lease in rows}
        for executor, beats, _ in rows:
            seen = self._seen.get(executor)
            if seen is None or seen.beats != beats:
                self._seen[executor] = _Seen(beats, now)
        dead = {
            executor
            for executor, seen in self._seen.items()
            if seen.beats < 0 or now - seen.since > leases.get(executor, self._lease)
        }
        alive = [executor for executor in leases if executor not in dead]
        self.is_first = bool(alive) and min(alive) == self._executor
        if not self.is_first:
            return set()
        if now - self._last_search > self._lease / 2:  # the one query here that grows with what moves
            self._last_search = now
            dead |= self._find_unknown(set(leases), now)
        return dead

    def _find_unknown(self, known: set[str], now: float) -> set[str]:
        """Return the workers with runs and without a row for one lease."""
        pending = [each.executor_id for each in self._list_pending(None)]
        unknown = {executor for executor in pending if executor is not None} - known
        for executor in [each for each in self._seen if each not in known and each not in unknown]:
            del self._seen[executor]
        for executor in unknown:
            self._seen.setdefault(executor, _Seen(0, now))
        return {each for each in unknown if now - self._seen[each].since > self._lease}

    def _list_pending(self, executors: list[str] | None) -> list[WorkflowStatus]:
        return self._storage.client.list_workflows(
            status="PENDING",
            name=[SEGMENT_WORKFLOW, SCHEDULED_WORKFLOW],
            executor_id=executors,
            queue_name=sorted(self._queues),
            application_name=ENGINE_NAME,
            load_input=False,
            load_output=False,
        )

    def _hand_over(self, dead: set[str]) -> None:
        if not dead:
            return
        by_queue: dict[str, list[str]] = defaultdict(list)
        for each in self._list_pending(sorted(dead)):
            if each.queue_name is not None:
                by_queue[each.queue_name].append(each.workflow_id)
        for queue, ids in by_queue.items():
            self._storage.client.resume_workflows(ids, queue_name=queue)
            self.handed_over += len(ids)
            _logger.warning("%d durable runs of workers that are gone are handed over", len(ids))


class _InboxWatch:
    """Delivers items of the inbox to active runs, resumes runs at rest, and deletes old ones."""

    def __init__(
        self,
        storage: Storage,
        runner: SegmentRunner,
        loops: Mapping[str, DurableLoop[Any, Any]],
        keep_seconds: float | None,
    ) -> None:
        self._keep_seconds = keep_seconds
        self._loops = loops
        self._storage = storage
        self._rows = RunRows(storage)
        self._search = RunSearch(storage)
        self._runner = runner
        self._tried: dict[str, tuple[int, float]] = {}  # the newest item that a run was to go on with, and when
        self._searched = ""
        self._next_due = self._next_search = 0.0
        self.thread: DatabaseThread = DatabaseThread("inbox", self._look_into_inbox, again=1.0)

    def _look_into_inbox(self) -> float:
        self._deliver_items()
        if time.monotonic() >= self._next_due:
            self._next_due = time.monotonic() + _DUE_SECONDS
            self._runner.give_back()
            self._tidy_up()
        return _LOOK_SECONDS if self._runner.active else _IDLE_LOOK_SECONDS

    def _tidy_up(self) -> None:
        for run_id in self._rows.find_due(_MOST):
            self._try_run(run_id, partial(_deny_expired, self._rows, self._loops, run_id))
        if time.monotonic() >= self._next_search:
            self._searched = _fail_abandoned_runs(self._storage, self._searched)
            self._next_search = time.monotonic() + _SEARCH_SECONDS
            self._rows.delete_fired()
        self._search.describe_slice()
        if self._keep_seconds is not None:
            for run_id in self._rows.find_ended(self._keep_seconds, _MOST):
                self._try_run(run_id, partial(self._rows.delete_ended, run_id, self._keep_seconds))

    def _deliver_items(self) -> None:
        active = self._runner.active
        if active:
            for run_id, items in self._rows.find_waiting(active).items():
                self._try_run(run_id, partial(self._runner.deliver, run_id, items))
        now = time.monotonic()
        for run_id, newest in self._rows.find_called(_MOST).items():
            tried = self._tried.get(run_id)
            if tried is None or tried[0] != newest or now - tried[1] > _AGAIN_SECONDS:
                self._tried[run_id] = (newest, now)
                self._try_run(run_id, partial(self._rows.begin_next, run_id))

    def _try_run(self, run_id: str, work: Callable[[], object]) -> None:
        """Do work for a run, and log its error, so that the other runs are not affected."""
        try:
            work()
        except (ToolkitError, ValueError, LookupError) as error:
            _logger.warning("run %s can't be resumed: %s", run_id, error)


def _deny_expired(rows: RunRows, loops: Mapping[str, DurableLoop[Any, Any]], run_id: str) -> None:
    """Deny the calls of a run whose decisions have expired; a run with a key waits for a worker that has it."""
    row = rows.read(run_id)
    key = loops[row.loop].config.signing_key if row.loop in loops else None
    rest = rows.read_rest(row, key)
    if key is None and rest is not None and rest.is_keyed:
        return
    denied = write_decision(Deny("Tool call denied: nobody decided in time."))
    for pending in [] if rest is None else rest.pending:
        body = {"call_id": pending.call_id, "binding": pending.binding, "decision": denied}
        rows.put_decision(run_id, row.segment, seal_item(key, run_id, "decide", "", body))
    rows.begin_next(run_id)


def _fail_abandoned_runs(storage: Storage, after: str) -> str:
    """Fail runs whose work is not in the engine and which were not written to for a minute; blocks.

    A slice of the runs with ids greater than `after` is checked; returns the last checked id, empty after the last run.
    `status` has the reason, and `retry` resumes a run whose work was cancelled.
    """
    silent = database_now(storage.engine) - _SILENT_SECONDS
    query = sa.select(runs.c.run_id, runs.c.segment).where(
        runs.c.state.in_(("queued", "running")), runs.c.updated < silent, runs.c.run_id > after
    )
    rows = storage.fetch(query.order_by(runs.c.run_id).limit(_MOST))
    ids = [segment_id(run_id, segment) for run_id, segment in rows]
    found = storage.client.list_workflows(workflow_ids=ids, load_input=False, load_output=False) if ids else []
    moving = {each.workflow_id for each in found if each.status not in ENDED_WORKFLOW}
    for run_id, segment in rows:
        if segment_id(run_id, segment) in moving:
            continue
        mine = runs.update().where(runs.c.run_id == run_id, runs.c.segment == segment, runs.c.updated < silent)
        with storage.engine.begin() as connection:
            if connection.execute(mine.values(state="failed", attempt=None)).rowcount:
                _logger.warning("run %s has failed: its work is not in the engine anymore", run_id)
    return str(rows[-1][0]) if len(rows) == _MOST else ""
