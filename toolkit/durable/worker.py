"""A worker: a process that moves the runs of its loops, beside any number of others on the same database.

Each worker counts in a row of its own as a sign of life, and the runs of one whose count stops are handed over.
No two clocks are compared. A worker is dead when its count has not changed for one lease, by the clock of the one that
looks, and while the database could be read all that time. However wrong that is, nothing is lost: the engine refuses
the writes of a worker whose run was handed over.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import sqlalchemy as sa
from anyio import to_thread
from dbos import DBOS, DBOSConfig, WorkflowStatus
from sqlalchemy.exc import SQLAlchemyError

from toolkit.calls.approval import Deny
from toolkit.dataclass import dataclass
from toolkit.durable.contents import Encryption
from toolkit.durable.event_writer import EventWriter
from toolkit.durable.loops import DurableLoop, StartRate
from toolkit.durable.operations import RunSearch, WatchedWorker, forget_worker, watch_worker
from toolkit.durable.rests import seal_decision, write_decision
from toolkit.durable.rows import ENDED_WORKFLOW, SCHEDULED_WORKFLOW, SEGMENT_WORKFLOW, RunRows, queue_name
from toolkit.durable.segment_journal import EntryWriter
from toolkit.durable.segments import SegmentRunner
from toolkit.durable.storage import ENGINE_NAME, ENGINE_VERSION, DatabaseThread, Storage, database_now, segment_id
from toolkit.durable.tables import runs, workers
from toolkit.errors import ConfigurationError, LoopUsageError, ToolkitError
from toolkit.json_text import write_json
from toolkit.redaction import without_keys
from toolkit.runtime.backend import is_on_asyncio
from toolkit.settings import check_setting

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

_logger = logging.getLogger("toolkit.durable")
_POLL_SECONDS = 0.1
_INTERNAL_QUEUE = "_dbos_internal_queue"  # of the engine, which schedules begin their runs in
_STOP_SECONDS = 10.0
_one_worker = threading.Lock()
_serving: list[SegmentRunner] = []  # the engine knows one workflow a process, and so one worker
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


class DurableWorker:
    """Moves the runs of some loops, in this process, while it is entered.

    ::

        async with DurableWorker([support], "postgresql://db/app", concurrency=100):
            await anyio.sleep_forever()

    The command ``toolkit worker`` does the same, and shuts down on a signal. Runs of a worker that dies are resumed
    by another one within about one and a half leases. Works on asyncio; a process has one worker.

    Args:
        loops: The loops; runs of others are left to other workers.
        url: The database: ``sqlite:///runs.db`` for the processes of one machine, ``postgresql://...`` for many.
        concurrency: How many runs of each loop move here at once. The last worker that starts sets it for all.
        lease: Seconds without a sign after which a worker is taken for dead.
        grace: Seconds that runs have to come to rest when this is left; another worker goes on with the others.
        encryption: Encrypts all stored values; the same for all workers and clients of a database.
        keep_seconds: Seconds after which runs that are done, failed or cancelled are deleted; None never deletes them.
        meter_provider: Makes the gauges (extra ``otel``); None takes the global one.

    Raises:
        ConfigurationError: Two loops of one name, or settings that are wrong.
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
        self.executor: str = uuid.uuid4().hex
        """The name of this worker among the others."""

    async def __aenter__(self) -> DurableWorker:
        """Begin to move runs.

        Raises:
            LoopUsageError: It is not entered on asyncio, or there is a worker in this process.
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
            await to_thread.run_sync(self._keeper.start)
        _serving.append(self._runner)
        config: DBOSConfig = {
            "name": ENGINE_NAME,
            "system_database_engine": self._storage.engine,
            "executor_id": self.executor,
            "application_version": ENGINE_VERSION,
            "serializer": self._storage.serializer,
            "log_level": "WARNING",
            "use_listen_notify": False,
            "notification_listener_polling_interval_sec": _POLL_SECONDS,  # its thread is waited for at the end
        }
        DBOS(config=config)
        DBOS.listen_queues([queue_name(name) for name in self._loops])
        self._log.thread.start()
        DBOS.launch()
        self._writer.thread.start()
        self._watch.thread.start()
        watch_worker(
            WatchedWorker(
                storage=self._storage,
                is_first=lambda: self._keeper.is_first,
                lag=lambda: self._writer.lag,
                moving=lambda: len(self._runner.active),
                taken_over=lambda: self._keeper.handed_over,
            ),
            self._meter_provider,
        )
        _logger.info("worker %s serves %s on %s", self.executor, ", ".join(self._loops), self._storage.url)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more runs, let those that move come to rest, and hand the others over."""
        with anyio.CancelScope(shield=True):
            await self._shut_down()

    async def _shut_down(self) -> None:
        forget_worker()
        try:
            # The queues end at once; active runs can store entries until they have ended.
            grace = max(1, round(self._grace)) if self._runner.active else 0
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_late)
                await to_thread.run_sync(lambda: DBOS.destroy(workflow_completion_timeout_sec=grace))
                tasks.cancel_scope.cancel()
            self._runner.stop_all()
            with anyio.move_on_after(_STOP_SECONDS):
                await self._runner.wait_until_idle()
            for stop in (self._watch.thread.stop, self._log.thread.stop, self._writer.thread.stop, self._keeper.stop):
                await to_thread.run_sync(stop)
        finally:
            _serving.clear()
            _one_worker.release()
            await to_thread.run_sync(self._storage.close)

    async def _stop_late(self) -> None:
        """Stop the runs that are not at rest in time, while the engine can still release them."""
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
            raise ConfigurationError(f"two durable loops are named {loop.name!r}: their runs could not be told apart")
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
    """Renews this worker's lease, and hands over the runs of workers whose lease is over.

    Args:
        storage: The database.
        executor: The name of this worker.
        lease: Seconds without a renewal after which a worker is dead.
        loops: The loops that this worker serves: it hands over their runs.

    Attributes:
        is_first: True where this worker is the one of all that hands over.
        handed_over: The number of runs that it has handed over.
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
        self._thread = DatabaseThread("lease", self._renew_lease, again=lease / _BEATS_A_LEASE)

    def start(self) -> None:
        """Begin the lease, and renew it in a thread."""
        self._beat_once()
        self._thread.start()

    def stop(self) -> None:
        """End the lease: unfinished runs are handed over at once."""
        self._thread.stop()
        try:
            with self._storage.engine.begin() as connection:
                connection.execute(workers.update().where(workers.c.executor == self._executor).values(beats=-1))
        except SQLAlchemyError as error:
            _logger.info("the lease of worker %s could not be ended: %s", self._executor, error)

    def _renew_lease(self) -> float:
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
        """Look at the counts; return the workers that are dead where this worker is the one that hands over."""
        now = time.monotonic()
        with self._storage.engine.begin() as connection:
            rows = connection.execute(sa.select(workers.c.executor, workers.c.beats, workers.c.lease)).all()
            connection.execute(
                workers.delete().where(workers.c.seen < database_now(self._storage.engine) - _FORGET_SECONDS)
            )
        if self._last_look is None or now - self._last_look > self._lease:
            self._seen.clear()  # the database was away, or this process frozen: all are given another lease
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
        """Return the workers that have runs, and have had no row for one lease."""
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
    """Looks into the inbox.

    Args:
        storage: The database.
        runner: Moves runs here.
        loops: The loops of those runs, by name.
        keep_seconds: After which runs that have ended are deleted; None never deletes them.

    Attributes:
        thread: Looks.
    """

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
        """Do some work for a run; an error of one run does not stop the others."""
        try:
            work()
        except (ToolkitError, ValueError, LookupError) as error:
            _logger.warning("run %s can't be resumed: %s", run_id, without_keys(str(error)))


def _deny_expired(rows: RunRows, loops: Mapping[str, DurableLoop[Any, Any]], run_id: str) -> None:
    """Deny each call of a run that awaits a decision for too long; a run with a key waits for a worker that has it."""
    row = rows.read(run_id)
    rest = rows.read_rest(row)
    key = loops[row.loop].config.signing_key if row.loop in loops else None
    if key is None and rest is not None and rest.is_keyed:
        return
    denied = write_decision(Deny("Tool call denied: nobody decided in time."))
    for pending in [] if rest is None else rest.pending:
        rows.put_decision(run_id, row.segment, seal_decision(key, run_id, pending.call_id, pending.binding, denied))
    rows.begin_next(run_id)


def _fail_abandoned_runs(storage: Storage, after: str) -> str:
    """Fail the runs whose work is not in the engine and that nothing was written of for a minute; blocks.

    They are failed then: `status` has the reason, and `retry` resumes one whose work was cancelled.

    Args:
        storage: The database.
        after: Only runs of ids behind this one are looked at.

    Returns:
        The id to go on behind; empty where all were looked at.
    """
    silent = database_now(storage.engine) - _SILENT_SECONDS
    query = sa.select(runs.c.run_id, runs.c.segment).where(
        runs.c.state.in_(("queued", "running")), runs.c.updated < silent, runs.c.run_id > after
    )
    with storage.engine.connect() as connection:
        rows = connection.execute(query.order_by(runs.c.run_id).limit(_MOST)).all()
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
