"""A worker: a process that moves the runs of its loops, beside any number of others on the same database."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import anyio
from anyio import to_thread
from dbos import DBOS, DBOSConfig

from toolkit.durable.encryption import Encryption
from toolkit.durable.entry_log import EntryLog
from toolkit.durable.event_writer import EventWriter
from toolkit.durable.inbox_watch import InboxWatch
from toolkit.durable.leases import LeaseKeeper
from toolkit.durable.loops import DurableLoop, StartRate
from toolkit.durable.run_rows import SEGMENT_WORKFLOW, queue_name
from toolkit.durable.segments import SegmentRunner
from toolkit.durable.storage import ENGINE_NAME, ENGINE_VERSION, Storage
from toolkit.errors import ConfigurationError, LoopUsageError
from toolkit.runtime.backend import is_on_asyncio
from toolkit.settings import check_setting

__all__ = ["DurableWorker"]

_logger = logging.getLogger("toolkit.durable")

_POLL_SECONDS = 0.1
_STOP_SECONDS = 10.0
_one_worker = threading.Lock()
_serving: list[SegmentRunner] = []  # the engine knows one workflow a process, and so one worker


class DurableWorker:
    """Moves the runs of some loops, in this process, while it is entered.

    ::

        async with DurableWorker([support], "postgresql://db/app", concurrency=100):
            await anyio.sleep_forever()

    The command ``toolkit worker`` does the same, and ends well when it is told to. Runs of a worker that dies are taken
    up by another one within about one and a half leases. Works on asyncio; a process has one worker.

    Args:
        loops: The loops; runs of others are left to other workers.
        url: The database: ``sqlite:///runs.db`` for the processes of one machine, ``postgresql://...`` for many.
        concurrency: How many runs of each loop move here at once. The last worker that starts sets it for all.
        lease: Seconds without a sign after which a worker is taken for dead.
        grace: Seconds that runs have to come to rest when this is left; another worker goes on with the others.
        encryption: How what is stored is encrypted; all workers and clients of a database have the same.
        keep_seconds: Seconds after which runs that are done, failed or cancelled are deleted; None keeps them.

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
            self._storage = await to_thread.run_sync(Storage, self._url, self._encryption)
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
        self._log = EntryLog(self._storage)
        self._writer = EventWriter(self._storage)
        self._runner = SegmentRunner(self._storage, self.executor, self._log, self._writer, self._loops)
        self._keeper = LeaseKeeper(self._storage, self.executor, self._lease, self._loops)
        self._watch = InboxWatch(self._storage, self._runner, self._keep_seconds)
        with self._storage.telling_failures():
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
        }
        DBOS(config=config)
        DBOS.listen_queues([queue_name(name) for name in self._loops])
        self._log.start()
        DBOS.launch()
        self._writer.start()
        self._watch.start()
        _logger.info("worker %s serves %s on %s", self.executor, ", ".join(self._loops), self._storage.url)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more runs, let those that move come to rest, and hand the others over."""
        with anyio.CancelScope(shield=True):
            await self._shut_down()

    async def _shut_down(self) -> None:
        try:
            # The queues end at once, the steps of what still moves can be kept until it has ended.
            grace = max(1, round(self._grace)) if self._runner.active else 0
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_late)
                await to_thread.run_sync(lambda: DBOS.destroy(workflow_completion_timeout_sec=grace))
                tasks.cancel_scope.cancel()
            self._runner.stop_all()
            with anyio.move_on_after(_STOP_SECONDS):
                await self._runner.wait_until_idle()
            await to_thread.run_sync(self._watch.stop)
            await to_thread.run_sync(self._log.stop)
            await to_thread.run_sync(self._writer.stop)
            await to_thread.run_sync(self._keeper.stop)
        finally:
            _serving.clear()
            _one_worker.release()
            await to_thread.run_sync(self._storage.close)

    async def _stop_late(self) -> None:
        """Stop what has not come to rest when its time is over, while the engine can still let go of it."""
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
