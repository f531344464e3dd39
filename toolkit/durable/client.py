"""The client of durable runs: it starts and finds runs, and sends messages and decisions. Workers run the loops."""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

import anyio
from anyio import to_thread

from toolkit.calls.approval import Approval
from toolkit.calls.argument_repair import list_readings
from toolkit.calls.registration import find_schemas
from toolkit.chat import AssistantMessage, Message, UserMessage
from toolkit.chat.messages import messages_to_plain
from toolkit.dataclass import dataclass
from toolkit.durable.contents import check_json, check_number, check_storable_text
from toolkit.durable.event_reader import DurableEvent, EventWatch, RunFollower, read_lines
from toolkit.durable.loops import DurableLoop
from toolkit.durable.operations import RunFilters, RunSearch, to_epoch_seconds
from toolkit.durable.rests import (
    ENDED,
    RESTING,
    DurableState,
    Rest,
    read_answer,
    seal_begin,
    seal_item,
    write_decision,
    write_message,
    write_prompt,
)
from toolkit.durable.rows import RunRow, RunRows, RunSchedule, decision_key
from toolkit.durable.storage import Storage
from toolkit.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    DecisionRefusedError,
    DurableError,
    LoopUsageError,
)
from toolkit.logs import get_logger
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.outcome import Out, ToolLoopResult
from toolkit.redaction import Scrubber
from toolkit.run_log.entries import read_line
from toolkit.settings import check_setting
from toolkit.stored_text import Encryption
from toolkit.trace_context import inject_trace_context

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}")
_MOST_PRIORITY = 2**31 - 1
_Returned = TypeVar("_Returned")
_logger = get_logger("toolkit.durable")
_FAST_SECONDS = 0.015
_SLOW_SECONDS = 0.25
_SLOWER = 1.3
_PATIENCE = 70
_UNSEEN_SECONDS = 10.0
_ROW_FACTS = ("run_id", "loop", "tenant", "created", "updated", "attempts", "last_seq", "metadata", "begins")
_SCHEDULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class DurableRuns:
    """The durable runs in a database.

    ::

        async with DurableRuns("postgresql://db/app") as runs:
            run = await runs.start(support, "Where is order 17?", run_id="ticket-17")
            result = await run.result()

    Workers execute the runs (`DurableWorker`, ``toolkit worker``). Any number of processes may have a client, also
    while no worker is running. It works on asyncio and trio.

    Args:
        url: The database: ``sqlite:///runs.db`` for the processes of one machine, ``postgresql://...`` for many.
        encryption: Encrypts all stored values; the same for all workers and clients.
        signing_key: That of the loops' configurations, for runs whose loop `get` is not given, and for forks.

    Raises:
        ConfigurationError: The key is empty.
    """

    def __init__(
        self, url: str, *, encryption: Encryption | None = None, signing_key: str | bytes | None = None
    ) -> None:
        if signing_key is not None and not signing_key:
            raise ConfigurationError("signing_key is empty: give that of the loops' configurations, or None")
        self._url = url
        self._signing_key = signing_key
        self._encryption = encryption
        self._opened: Storage | None = None

    async def __aenter__(self) -> DurableRuns:
        """Open the database, and create its tables if there are none.

        Raises:
            ConfigurationError: The URL is not that of a supported database.
            DatabaseUnavailableError: The database can't be reached.
        """
        self._opened = await to_thread.run_sync(Storage, self._url, self._encryption)
        self._rows = RunRows(self._opened)
        self._search = RunSearch(self._opened)
        self._watch = EventWatch(self._opened)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database."""
        storage, self._opened = self._opened, None
        if storage is not None:
            await to_thread.run_sync(self._watch.stop)
            await to_thread.run_sync(storage.close)

    async def start(
        self,
        loop: DurableLoop[Any, Out],
        prompt: str | Sequence[Message],
        *,
        run_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        metadata: Mapping[str, Any] | None = None,
        at: datetime | None = None,
    ) -> DurableRun[Out]:
        """Start a run, or return the one that has the id already, whatever its prompt.

        Args:
            loop: The loop; workers find theirs by its name.
            prompt: A question, or a transcript to continue.
            run_id: The id, such as the application's ``ticket-17``; None generates one.
            tenant: The customer or team; runs of different tenants take turns.
            priority: Among the runs of a tenant those with lower numbers start first; 0 is the lowest.
            metadata: JSON, from which the worker makes the context.
            at: The time of the start, with a time zone; None starts at once. The run is ``queued`` until then.

        Raises:
            DurableError: The id is that of a run of another loop, or the prompt is no transcript.
            UnstorableValueError: The tenant or the metadata can't be stored; the message names the part.
            ConfigurationError: The prompt is empty, or the id can't be one.
        """
        check_setting("the loop of a durable run", loop, DurableLoop)
        check_setting("at", at, datetime, None)
        row = _describe_start(loop, tenant, priority, metadata)
        known = _check_run_id(uuid.uuid4().hex if run_id is None else run_id)
        trace: dict[str, str] = {}
        inject_trace_context(trace)
        run = RunRow(run_id=known, begins=None if at is None else to_epoch_seconds(at), **row)
        begin: dict[str, Any] = {"prompt": write_prompt(prompt, loop.system_prompt), "trace": trace}
        begin = seal_begin(loop.config.signing_key, run.place, begin)
        found = await self._ask_database(lambda: self._rows.start(run, begin))
        if found.loop != loop.name:
            raise DurableError(f"run '{known}' is one of loop '{found.loop}', not of '{loop.name}': give another id")
        return self._open_run(known, loop)

    async def schedule(
        self,
        loop: DurableLoop[Any, Any],
        prompt: str | Sequence[Message],
        *,
        name: str,
        cron: str,
        timezone: str = "UTC",
        catches_up: bool = False,
        tenant: str = "",
        priority: int = 0,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a run each time that a schedule is due, at any worker; a schedule of this name is replaced.

        The id of a run has the name and the time, as in ``nightly-20261123T030000Z``, and the run starts once. Workers
        look for new schedules twice a minute, and start runs up to ten seconds late so that not all start at once.

        Args:
            loop: The loop.
            prompt: As for `start`.
            name: The name of the schedule: letters, digits, ``_``, ``.`` and ``-``.
            cron: The times, as in ``0 3 * * *``; a sixth field in front has the seconds.
            timezone: The time zone of the times, as in ``Europe/Berlin``.
            catches_up: True also starts the runs that were due while no worker was running.
            tenant: As for `start`.
            priority: As for `start`.
            metadata: As for `start`.

        Raises:
            ConfigurationError: The name, the times or the time zone can't be used.
            DurableError: The prompt is no transcript.
        """
        check_setting("the loop of a schedule", loop, DurableLoop)
        if not _SCHEDULE_NAME.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} is no name of a schedule: give 1 to 100 letters, digits, '_', '.' or '-'"
            )
        row = _describe_start(loop, tenant, priority, metadata)
        check_json("metadata", row["metadata"])
        begin: dict[str, Any] = {"prompt": write_prompt(prompt, loop.system_prompt), "trace": {}, "schedule": name}
        begin = seal_begin(loop.config.signing_key, RunRow(run_id=name, **row).place, begin)
        await self._ask_database(
            lambda: self._rows.put_schedule(name, cron, timezone, {"row": row, "begin": begin}, catches_up=catches_up)
        )

    async def list_schedules(self) -> list[RunSchedule]:
        """Return the schedules, by name."""
        return await self._ask_database(self._rows.list_schedules)

    async def unschedule(self, name: str) -> None:
        """Delete a schedule; its runs stay. Nothing is done where there is none of this name."""
        await self._ask_database(lambda: self._rows.delete_schedule(name))

    @overload
    async def get(self, run_id: str) -> DurableRun[Any]: ...
    @overload
    async def get(self, run_id: str, loop: DurableLoop[Any, Out]) -> DurableRun[Out]: ...
    async def get(self, run_id: str, loop: DurableLoop[Any, Any] | None = None) -> DurableRun[Any]:
        """Return a run.

        Args:
            run_id: Its id.
            loop: Its loop, which gives its answer a type; without one an answer is what `json.loads` returns.

        Raises:
            DurableRunNotFoundError: There is none of this id.
            DurableError: It is a run of another loop.
        """
        found = await self._ask_database(lambda: self._rows.read(run_id))
        if loop is not None and found.loop != loop.name:
            raise DurableError(f"run '{run_id}' is one of loop '{found.loop}', not of '{loop.name}'")
        return self._open_run(run_id, loop)

    async def list(
        self, *, limit: int = 100, after: str | None = None, **filters: Unpack[RunFilters]
    ) -> list[DurableStatus]:
        """Return the states of runs, the newest first.

        Args:
            limit: The maximum number.
            after: The id of the last run of the previous page.
            filters: Select runs; see `RunFilters`.

        Raises:
            ConfigurationError: A filter can't be applied.
            DurableRunNotFoundError: There is no run `after`.
        """
        check_setting("limit", limit, int, least=1)
        check_number("the limit of a list", limit)
        found = await self._ask_database(lambda: self._search.find(limit=limit, after=after, **filters))
        return [DurableStatus.of_row(row) for row in found]

    async def count(self, **filters: Unpack[RunFilters]) -> dict[DurableState, int]:
        """Return the number of runs in each state.

        Args:
            filters: Select runs; without filters all are counted.

        Raises:
            ConfigurationError: A filter can't be applied.
        """
        return await self._ask_database(lambda: self._search.count(**filters))

    async def retry_all(self, **filters: Unpack[RunFilters]) -> int:
        """Resume all runs that failed, as `DurableRun.retry` does; with ``state="cancelled"`` those that were.

        Args:
            filters: Select runs; at least one is required.

        Returns:
            The number of runs that this call resumes.

        Raises:
            ConfigurationError: There is no filter, or one can't be applied.
        """
        _check_meant(filters)
        state = filters.get("state") or "failed"
        if state not in ("failed", "cancelled"):
            raise ConfigurationError(f"a run that is {state} can't be tried again: state is 'failed' or 'cancelled'")
        return await self._change_all({**filters, "state": state}, [state], DurableRun.retry)

    async def cancel_all(self, reason: str | None = None, **filters: Unpack[RunFilters]) -> int:
        """Cancel all runs that have not ended, as `DurableRun.cancel` does.

        Args:
            reason: The reason, for their transcripts.
            filters: Select runs; at least one is required.

        Returns:
            The number of runs that are being cancelled.

        Raises:
            ConfigurationError: There is no filter, or one can't be applied.
        """
        _check_meant(filters)
        return await self._change_all(filters, ["queued", "running", "waiting"], lambda run: run.cancel(reason))

    async def delete_all(self, **filters: Unpack[RunFilters]) -> int:
        """Delete all runs that have ended, as `delete` does; with ``state="waiting"`` those that await decisions.

        They are deleted in slices of 500: if this is interrupted, each run is there whole or not at all.

        Args:
            filters: Select runs; at least one is required.

        Returns:
            The number of deleted runs.

        Raises:
            ConfigurationError: There is no filter, or one can't be applied.
        """
        _check_meant(filters)
        states = ["waiting"] if filters.get("state") == "waiting" else sorted(ENDED)
        total, count = 0, 1
        while count:
            count = await self._ask_database(lambda: self._search.delete_slice(states, **filters))
            total += count
        return total

    async def _change_all(
        self, filters: RunFilters, states: Sequence[str], change: Callable[[DurableRun[Any]], Awaitable[None]]
    ) -> int:
        """Change each of some runs that is in one of these states; return how many were."""
        count, last = 0, ""
        while ids := await self._ask_database(partial(self._search.find_ids, states, last, **filters)):
            for run_id in ids:
                try:
                    await change(self._open_run(run_id))
                except DatabaseUnavailableError:
                    raise
                except DurableError as error:  # somebody else has changed it meanwhile
                    _logger.info("run %s is left as it is: %s", run_id, error)
                else:
                    count += 1
            last = ids[-1]
        return count

    async def fork(
        self, run_id: str, *, turn: int, prompt: str | Sequence[Message] = (), new_run_id: str | None = None
    ) -> DurableRun[Any]:
        """Begin a run from the transcript of another one as it was after a turn.

        Args:
            run_id: The run, which is at rest; it stays as it is.
            turn: The turn of the model, from 1, after whose results the transcript is cut.
            prompt: A question or messages to append.
            new_run_id: The id of the new run; None generates one.

        Raises:
            DurableError: The run has not come to rest, or has no such turn, or the new id is taken.
            ConfigurationError: Its loop has a `signing_key`, and `DurableRuns` has none.
        """
        row = await self._ask_database(lambda: self._rows.read(run_id))
        rest = await self._ask_database(lambda: self._rows.read_rest(row, self._signing_key))
        if rest is None:
            raise DurableError(f"run '{run_id}' is {row.state}: it can be forked when it is at rest")
        _check_key(self._signing_key, rest, run_id)
        begin = _cut_after_turn(rest.load_messages(), turn, run_id)
        begin += [UserMessage(prompt)] if isinstance(prompt, str) else list(prompt)
        forked = replace(row, run_id=_check_run_id(new_run_id or uuid.uuid4().hex))
        plain: dict[str, Any] = {"prompt": messages_to_plain(begin), "trace": {}}
        plain = seal_begin(self._signing_key, forked.place, {**plain, "forked": {"run_id": run_id, "turn": turn}})
        await self._ask_database(lambda: self._rows.start(forked, plain, is_new=True))
        return self._open_run(forked.run_id)

    async def delete(self, run_id: str) -> None:
        """Delete a run at rest, with all its stored values.

        Raises:
            DurableError: It is executed, or waits for a worker.
        """
        await self._ask_database(lambda: self._rows.delete(run_id))

    @property
    def _open_storage(self) -> Storage:
        if self._opened is None:
            raise LoopUsageError("durable runs are not open: use 'async with DurableRuns(url) as runs:'")
        return self._opened

    def _open_run(self, run_id: str, loop: DurableLoop[Any, Out] | None = None) -> DurableRun[Out]:
        return DurableRun(self._open_storage, self._watch, run_id, loop, self._signing_key)

    async def _ask_database(self, work: Callable[[], _Returned]) -> _Returned:
        return await self._open_storage.ask(work)


def _describe_start(
    loop: DurableLoop[Any, Any], tenant: str, priority: int, metadata: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the columns that a run starts with."""
    check_setting("tenant", tenant, str)
    check_setting("priority", priority, int, least=0, most=_MOST_PRIORITY)
    check_setting("metadata", metadata, Mapping, None)
    check_storable_text("the tenant", tenant)
    return {"loop": loop.name, "tenant": tenant, "priority": priority, "metadata": dict(metadata or {})}


def _check_run_id(run_id: str) -> str:
    check_setting("run_id", run_id, str)
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigurationError(
            f"{run_id!r} is no id of a durable run: give 1 to 200 letters, digits, '_', '.', ':', '@' or '-', "
            "such as 'ticket-17'"
        )
    return run_id


def _check_meant(filters: RunFilters) -> None:
    """Check that a change of many runs says which."""
    if all(value is None for value in filters.values()):
        raise ConfigurationError("this would change all runs: give a filter, as in state='failed'")


def _check_key(key: str | bytes | None, rest: Rest | None, run_id: str) -> None:
    """Check that there is a key where the loop of a run has one."""
    if key is None and rest is not None and rest.is_keyed:
        raise ConfigurationError(
            f"the loop of run '{run_id}' has a signing_key, without which nothing that is sent to it is taken: "
            "give the loop to get(), or DurableRuns(signing_key=...)"
        )


def _cut_after_turn(messages: Sequence[Message], turn: int, run_id: str) -> list[Message]:
    """Return a transcript up to the end of a turn."""
    check_setting("turn", turn, int, least=1)
    starts = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    if turn > len(starts):
        raise DurableError(f"run '{run_id}' has {len(starts)} turns in its transcript: it can't be forked at {turn}")
    end = starts[turn - 1] + 1
    calls = messages[end - 1]
    assert isinstance(calls, AssistantMessage)
    return list(messages[: end + len(calls.tool_calls)])


@dataclass(frozen=True, slots=True)
class DurablePending(PendingApproval):
    """A call of a durable run that awaits a decision, or whose decision is stored and not applied yet.

    Args:
        decided: ``approve``, ``deny``, ``modify`` or ``abort`` where a decision is stored; else empty.
    """

    decided: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableStatus:
    """The state of a durable run.

    Args:
        run_id: The run.
        loop: The name of its loop.
        tenant: The customer or team that it is for.
        state: ``queued`` waits for a worker, ``running`` is executed, ``waiting`` awaits decisions; others are ends.
        created: The time of its start, in seconds since 1970.
        updated: The time of the last write.
        attempts: The number of workers that have executed its last segment; more than 1 if one of them crashed.
        last_seq: The number of its last event.
        ending: The `ending` of its result, or the class of its error; empty until its rest.
        error: The message of that error; in lists its first 1,000 characters.
        pending: The calls that await decisions, and those decided since the last rest, marked; empty in lists.
        metadata: The metadata that it was started with.
        begins: The time at which it begins, if it was started for later; in seconds since 1970.
    """

    run_id: str
    loop: str
    tenant: str
    state: DurableState
    created: float
    updated: float
    attempts: int
    last_seq: int
    ending: str = ""
    error: str = ""
    pending: Sequence[DurablePending] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    begins: float | None = None

    @classmethod
    def of_row(cls, row: RunRow, rest: Rest | None = None, pending: Sequence[DurablePending] = ()) -> DurableStatus:
        """Return the status of a row and a rest."""
        facts = {name: getattr(row, name) for name in _ROW_FACTS}
        last: Any = row if rest is None else rest
        return cls(**facts, state=last.state, ending=last.ending, error=last.error, pending=pending)

    @property
    def is_at_rest(self) -> bool:
        """True if the run is neither executed nor queued."""
        return self.state in RESTING


class DurableRun(Generic[Out]):
    """A durable run; `DurableRuns.start` and `DurableRuns.get` return it.

    Args:
        storage: The database.
        watch: Finds new events.
        run_id: The run.
        loop: Its loop; None if the caller did not give it.
        signing_key: Signs decisions and messages if the loop is not known.
    """

    def __init__(
        self,
        storage: Storage,
        watch: EventWatch,
        run_id: str,
        loop: DurableLoop[Any, Out] | None = None,
        signing_key: str | bytes | None = None,
    ) -> None:
        self.id: str = run_id
        self._signing_key = signing_key if loop is None else loop.config.signing_key
        self._loop = loop
        self._storage = storage
        self._watch = watch
        self._rows = RunRows(storage)

    async def status(self) -> DurableStatus:
        """Return its state, with the calls that await decisions."""
        return await self._storage.ask(self._read_status)

    def _read_status(self) -> DurableStatus:
        row, rest = self._read_run()
        if rest is None and row.state in RESTING:  # its worker ended just before the engine stored the rest
            row = replace(row, state="running")
        decided = self._rows.read_decided(row, is_at_rest=rest is not None)
        awaited: Sequence[PendingApproval] = [] if rest is None else rest.pending
        if rest is None and decided:
            awaited = self._rows.read_awaited(row, self._signing_key)
        pending = [
            DurablePending(**asdict(each), decided=decided.get(decision_key(each.call_id, each.binding), ""))
            for each in awaited
        ]
        return DurableStatus.of_row(row, rest, pending)

    async def result(self, timeout: float | None = None) -> ToolLoopResult[Out]:
        """Wait until the run is at rest, and return the loop's result, also if it awaits decisions.

        An unavailable database is waited for.

        Args:
            timeout: The maximum wait in seconds; None sets no limit.

        Raises:
            DurableError: The run failed, as the message explains; or its answer is not of its loop's type.
            TimeoutError: It is not at rest in time; the message tells whether a worker is running.
        """
        try:
            with anyio.fail_after(timeout):
                result = (await self._wait_for_rest()).load_result()
        except TimeoutError:
            raise TimeoutError(await self._storage.ask(self._explain_wait)) from None
        return result if self._loop is None else replace(result, output=read_answer(self._loop, result))

    async def _wait_for_rest(self) -> Rest:
        pause, says_at = _FAST_SECONDS, anyio.current_time() + _UNSEEN_SECONDS
        while True:
            try:
                if anyio.current_time() >= says_at:
                    says_at = math.inf
                    if not await self._storage.ask(lambda: self._rows.has_worker(self.id)):
                        _logger.warning("%s", await self._storage.ask(self._explain_wait))
                _, rest = await self._storage.ask(self._read_run)
            except DatabaseUnavailableError:
                rest = None
            if rest is not None:
                return rest
            await anyio.sleep(pause)
            pause = min(_SLOW_SECONDS, pause * _SLOWER)

    def _explain_wait(self) -> str:
        """Return why the run is not at rest yet."""
        row = self._rows.read(self.id)
        if row.begins is not None and row.state == "queued" and row.begins > time.time():
            return f"durable run {self.id} begins at {datetime.fromtimestamp(row.begins, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if self._rows.has_worker(self.id):
            return f"durable run {self.id} is {row.state}"
        return (
            f"durable run {self.id} is {row.state}, and no worker of loop {row.loop} is in sight: start one by "
            f"`toolkit worker MODULE:LOOP --database {self._storage.url}`"
        )

    def events(self, after: int = 0, *, until: Literal["rest", "end"] = "rest") -> AsyncIterator[DurableEvent]:
        """Return the events after a number, then each new one; in any process, any number of times.

        ::

            async for each in run.events(after=last_seen):
                last_seen = each.seq

        You may stop reading at any time; another iterator that is given the number of the last event has each later
        event once. Text arrives in pieces of some 50 ms. An unavailable database is waited for.

        Args:
            after: The number of the last known event; 0 begins with the first.
            until: ``rest`` ends with the last event of a run at rest; ``end`` continues while it awaits decisions.
        """
        check_setting("after", after, int, least=0)
        check_number("the number to read events after", after)
        check_setting("until", until, "rest", "end")
        return RunFollower(self._storage, self._watch, self.id, after, until)

    async def decide(self, call_id: str, decision: Approval | bool | str, *, binding: str) -> None:
        """Decide on a call that awaits a decision; a worker resumes the run.

        While the run continues after a decision on one call, a decision on another one is stored for the next rest.

        Args:
            call_id: The call.
            decision: As an approval hook would return it.
            binding: The `PendingApproval.binding` of the call: the decision is valid for exactly those arguments.

        Raises:
            DecisionRefusedError: There is a decision already, none is awaited, or the call has changed.
            ConfigurationError: The run's loop has a `signing_key`, and neither the loop nor the key is known here.
        """
        plain = write_decision(decision)
        await self._storage.ask(lambda: self._put_decision(call_id, plain, binding))

    def _put_decision(self, call_id: str, plain: Mapping[str, Any], binding: str) -> None:
        row, rest = self._read_run()
        awaited = self._rows.read_awaited(row, self._signing_key) if rest is None else rest.pending
        found = next((each for each in awaited if each.call_id == call_id), None)
        if found is None:
            is_late = self._rows.has_item(self.id, decision_key(call_id, binding))
            why_not = "somebody has decided on it already" if is_late else self._explain_refusal(row, rest, call_id)
            raise DecisionRefusedError(self.id, call_id, why_not)
        if found.binding != binding:
            raise DecisionRefusedError(
                self.id, call_id, "the call, its arguments or its tool are not what was decided on: look at it again"
            )
        if self._rows.is_cancelled(self.id, row.segment if rest is None else None):
            raise DecisionRefusedError(self.id, call_id, "the run is being cancelled")
        segment = self._rows.read_origin(row) if rest is None else row.segment
        body = self._seal_item(rest, "decide", "", {"call_id": call_id, "binding": binding, "decision": plain})
        if not self._rows.put_decision(self.id, segment, body):
            raise DecisionRefusedError(self.id, call_id, "somebody has decided on it already")
        self._rows.begin_next(self.id)

    def _explain_refusal(self, row: RunRow, rest: Rest | None, call_id: str) -> str:
        """Return the reason why a run awaits no decision on a call, and what to do."""
        if rest is None:
            state = "moves" if row.state not in RESTING else "is about to rest"
            return (
                f"the run {state}, and it is not known yet on what it awaits decisions: `status()` says it at its rest"
            )
        if rest.state == "failed":
            before = [*rest.awaited, *self._rows.read_awaited(row)]
            if any(each.call_id == call_id for each in before):
                return "the run has failed: `retry()` it, and decide when it waits again"
        return f"the run is {rest.state}, and awaits no decision on this call"

    async def steer(self, message: str | Message) -> None:
        """Interrupt the run: the model reads the message before any further call runs; a run that has ended is resumed.

        A run that awaits decisions reads it after them, and then skips the calls that were decided on.

        Raises:
            TranscriptError: It is no message of its own, such as a result without its call.
            ConfigurationError: It is empty; or as for `decide`.
        """
        await self._put_message("steer", message)

    async def say(self, message: str | Message) -> None:
        """Add a message: the model reads it before the run would end; a run that has ended is resumed.

        A run that awaits decisions reads it after them.

        Raises:
            TranscriptError: As for `steer`.
            ConfigurationError: As for `steer`.
        """
        await self._put_message("say", message)

    async def _put_message(self, kind: str, message: str | Message) -> None:
        body = {"message": write_message(message)}
        await self._storage.ask(lambda: self._put_item(kind, body))

    async def cancel(self, reason: str | None = None) -> None:
        """Cancel the run: running calls are cancelled within a second, and the transcript is closed.

        A run that has ended is not changed. Without a worker it is cancelled when one starts. Messages that were sent
        before do not resume it; the model reads them if a later message, or `retry`, does.

        Raises:
            ConfigurationError: As for `decide`.
        """
        check_setting("reason", reason, str, None)
        await self._storage.ask(lambda: self._put_item("cancel", {"reason": reason}))

    async def retry(self) -> None:
        """Resume a run that failed or was cancelled where it ended.

        Raises:
            DurableError: It neither failed nor was cancelled.
        """
        await self._storage.ask(self._put_retry)

    def _put_retry(self) -> None:
        row, rest = self._read_run()
        state = row.state if rest is None else rest.state  # without a rest, since its worker has just ended, the row's
        if state not in ("failed", "cancelled"):
            raise DurableError(f"run '{self.id}' is {state}: only one that failed or was cancelled can be tried again")
        if not self._rows.put_item(self.id, "retry", f"retry/{row.segment}", {}):
            raise DurableError(f"run '{self.id}' is being tried again already: somebody else has asked for it")
        self._rows.begin_next(self.id)

    def _put_item(self, kind: str, body: Mapping[str, Any]) -> None:
        row, key = self._rows.read(self.id), f"{kind}/{uuid.uuid4().hex}"
        rest = self._rows.read_rest(row) if self._signing_key is None and row.state in RESTING else None
        self._rows.put_item(self.id, kind, key, self._seal_item(rest, kind, key, body))
        if kind == "cancel" and row.begins is not None:
            self._rows.begin_now(row)
        self._rows.begin_next(self.id)

    def _seal_item(self, rest: Rest | None, kind: str, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        _check_key(self._signing_key, rest, self.id)
        return seal_item(self._signing_key, self.id, kind, key, body)

    async def export(self) -> dict[str, Any]:
        """Return the run as plain JSON for people: its state, its transcript and its events.

        Secrets are removed as in a run log. `result` has the exact transcript.
        """
        return await self._storage.ask(self._export_run)

    def _export_run(self) -> dict[str, Any]:
        row, rest = self._read_run()
        strike = Scrubber(find_schemas=find_schemas, list_readings=list_readings)
        return {
            "run_id": row.run_id,
            "loop": row.loop,
            "tenant": row.tenant,
            "metadata": strike({"metadata": dict(row.metadata)})["metadata"],
            "state": row.state if rest is None else rest.state,
            "ending": "" if rest is None else rest.ending,
            "error": "" if rest is None else rest.error,
            "created": row.created,
            "updated": row.updated,
            "messages": [] if rest is None else strike.clean_whole(rest.messages),
            "events": [read_line(line.text.encode()) for line in read_lines(self._storage, self.id, 0)],
        }

    def _read_run(self) -> tuple[RunRow, Rest | None]:
        """Return the run and its rest, which the engine stores some milliseconds after the last event."""
        patience = _PATIENCE
        while True:
            row = self._rows.read(self.id)
            rest = self._rows.read_rest(row, self._signing_key) if row.state in RESTING else None
            if rest is not None or row.state not in RESTING or patience == 0:
                return row, rest
            patience -= 1
            time.sleep(_FAST_SECONDS)
