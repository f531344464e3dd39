"""One durable run, as any process sees it: how it stands, what it tells, and what is said to it."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import anyio
import sqlalchemy as sa

from toolkit.calls.approval import Approval
from toolkit.chat import Message, UserMessage, validate_transcript
from toolkit.chat.messages import messages_to_plain
from toolkit.dataclass import dataclass
from toolkit.durable.contents import check_number, restore_lines
from toolkit.durable.errors import DatabaseUnavailableError, DecisionRefusedError, DurableError
from toolkit.durable.inbox_rows import InboxRows, decision_key, write_decision
from toolkit.durable.rests import RESTING, DurableState, Rest
from toolkit.durable.run_rows import RunRow, RunRows
from toolkit.durable.storage import Storage
from toolkit.durable.tables import events
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.event_json import load_event
from toolkit.loop.events import LoopEvent
from toolkit.loop.outcome import ToolLoopResult
from toolkit.run_log.entries import RECORDS, read_line
from toolkit.secrets import Scrubber
from toolkit.settings import check_setting

__all__ = ["DurableEvent", "DurableRun", "DurableStatus"]

_FAST_SECONDS = 0.015
_SLOW_SECONDS = 0.25
_SLOWER = 1.3
_CHUNK = 500
_PATIENCE = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableStatus:
    """How a durable run stands.

    Args:
        run_id: The run.
        loop: The name of its loop.
        tenant: The customer or team that it is for.
        state: ``queued`` waits for a worker, ``running`` moves, ``waiting`` awaits decisions; the others are ends.
        created: When it was begun, in seconds since 1970.
        updated: When something of it was written last.
        attempts: How often its last segment was taken up; more than 1 where a worker ended before it did.
        last_seq: The number of its last event.
        ending: The `kind` of its ending, or the class of the error that it failed with; empty in lists.
        error: The message of that error; empty in lists.
        pending: The calls that await decisions; empty in lists.
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
    pending: Sequence[PendingApproval] = ()

    @classmethod
    def of_row(cls, row: RunRow, rest: Rest | None = None) -> DurableStatus:
        """Return the status that a row and a rest say."""
        state: Any = row.state if rest is None else rest.state
        return cls(
            run_id=row.run_id,
            loop=row.loop,
            tenant=row.tenant,
            state=state,
            created=row.created,
            updated=row.updated,
            attempts=row.attempts,
            last_seq=row.last_seq,
            ending="" if rest is None else rest.ending,
            error="" if rest is None else rest.error,
            pending=() if rest is None else tuple(rest.pending),
        )

    @property
    def is_at_rest(self) -> bool:
        """True where nothing of the run moves or is queued."""
        return self.state in RESTING


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableEvent:
    """An event of a durable run.

    Args:
        seq: Its number in the run, from 1, with no event twice; some numbers are those of records that are no events.
        turn: The turn of the run's own loop in which it was told; 0 before the first.
        attempt: The process that told it. Where that changes in the middle of a turn, the text of the turn's reply so
            far does not count: it is asked for again.
        event: The event.
    """

    seq: int
    turn: int
    attempt: str
    event: LoopEvent


class DurableRun:
    """A durable run; `DurableRuns.start` and `DurableRuns.get` return it.

    Args:
        storage: The database.
        run_id: The run.
    """

    def __init__(self, storage: Storage, run_id: str) -> None:
        self.id: str = run_id
        self._storage = storage
        self._rows = RunRows(storage)
        self._inbox = InboxRows(storage)

    async def status(self) -> DurableStatus:
        """Return how it stands, with the calls that await decisions."""
        row, rest = await self._storage.ask(self._read_run)
        if rest is None and row.state in RESTING:  # its worker ended just before the engine kept it
            row = replace(row, state="running")
        return DurableStatus.of_row(row, rest)

    async def result(self, timeout: float | None = None) -> ToolLoopResult[Any]:
        """Wait until the run is at rest, and return what its loop leaves; where it awaits decisions, that too.

        A database that goes away meanwhile is waited for.

        Args:
            timeout: Seconds to wait at most; None waits for ever.

        Raises:
            DurableError: The run failed; the message says why.
            TimeoutError: It is not at rest in time.
        """
        with anyio.fail_after(timeout):
            return (await self._wait_for_rest()).load_result()

    async def _wait_for_rest(self) -> Rest:
        pause = _FAST_SECONDS
        while True:
            try:
                _, rest = await self._storage.ask(self._read_run)
            except DatabaseUnavailableError:
                rest = None
            if rest is not None:
                return rest
            await anyio.sleep(pause)
            pause = min(_SLOW_SECONDS, pause * _SLOWER)

    def events(self, after: int = 0, *, until: Literal["rest", "end"] = "rest") -> AsyncIterator[DurableEvent]:
        """Return the events behind a number, then each new one; from any process, as often as wanted.

        ::

            async for told in run.events(after=last_seen):
                last_seen = told.seq

        The iterator may be left at any time; with the number of the last event that was seen the next one misses
        nothing and sees nothing twice. Text comes in pieces of some 50 ms. A database that goes away is waited for.

        Args:
            after: The number of the last event that is known; 0 begins with the first.
            until: ``rest`` ends when all was told of a run at rest; ``end`` goes on where it awaits decisions.
        """
        check_setting("after", after, int, least=0)
        check_number("the number to read events after", after)
        check_setting("until", until, "rest", "end")
        return _EventReader(self._storage, self.id, after, until)

    async def decide(self, call_id: str, decision: Approval | bool | str, *, binding: str) -> None:
        """Decide on a call that the run awaits a decision on; the run goes on at the next worker.

        While a run goes on with the decision on one call, that on another one is kept, and taken at the next rest.

        Args:
            call_id: The call.
            decision: As an approval hook would answer.
            binding: The `PendingApproval.binding` that was decided on: the decision holds for exactly those arguments.

        Raises:
            DecisionRefusedError: Somebody decided before, no decision is awaited, or the call is not what it was.
        """
        plain = write_decision(decision)
        await self._storage.ask(lambda: self._put_decision(call_id, plain, binding))

    def _put_decision(self, call_id: str, plain: Mapping[str, Any], binding: str) -> None:
        row, rest = self._read_run()
        awaited = self._rows.read_awaited(row) if rest is None else rest.pending
        found = next((each for each in awaited if each.call_id == call_id), None)
        if found is None:
            is_late = self._inbox.has_item(self.id, decision_key(call_id, binding))
            why_not = "somebody has decided on it already" if is_late else self._say_why_not(row, rest, call_id)
            raise DecisionRefusedError(self.id, call_id, why_not)
        if found.binding != binding:
            raise DecisionRefusedError(
                self.id, call_id, "the call, its arguments or its tool are not what was decided on: look at it again"
            )
        if self._inbox.is_cancelled(self.id, row.segment):
            raise DecisionRefusedError(self.id, call_id, "the run is being cancelled")
        segment = self._rows.read_origin(row) if rest is None else row.segment
        if not self._inbox.put_decision(self.id, segment, call_id, binding, plain):
            raise DecisionRefusedError(self.id, call_id, "somebody has decided on it already")
        self._rows.begin_next(self.id)

    def _say_why_not(self, row: RunRow, rest: Rest | None, call_id: str) -> str:
        """Return why a run awaits no decision on a call, and what to do."""
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
        """Interrupt: the model reads it before anything else is done; a run at rest goes on with it.

        Raises:
            TranscriptError: It can't stand alone, such as a result without its call.
        """
        await self._put_message("steer", message)

    async def say(self, message: str | Message) -> None:
        """Add something: the model reads it when it would end, or now where the run has ended.

        Where the run awaits decisions the model reads it after those.

        Raises:
            TranscriptError: It can't stand alone.
        """
        await self._put_message("say", message)

    async def _put_message(self, kind: str, message: str | Message) -> None:
        said = UserMessage(message) if isinstance(message, str) else message
        validate_transcript([said])
        body = {"message": messages_to_plain([said])[0]}
        await self._storage.ask(lambda: self._put_item(kind, body))

    async def cancel(self, reason: str | None = None) -> None:
        """Have the run end as cancelled: what runs is told within a second, and the transcript is closed.

        A run that has ended stays as it is. Where no worker is there it ends when one comes.
        """
        check_setting("reason", reason, str, None)
        await self._storage.ask(lambda: self._put_item("cancel", {"reason": reason}))

    async def retry(self) -> None:
        """Have a run that failed or was cancelled go on from where it came to.

        Raises:
            DurableError: It did neither.
        """
        await self._storage.ask(self._put_retry)

    def _put_retry(self) -> None:
        row, rest = self._read_run()
        state = row.state if rest is None else rest.state  # of one whose worker ended as it told, the row's
        if state not in ("failed", "cancelled"):
            raise DurableError(f"run '{self.id}' is {state}: only one that failed or was cancelled can be tried again")
        if not self._inbox.put_item(self.id, "retry", f"retry/{row.segment}", {}):
            raise DurableError(f"run '{self.id}' is being tried again already: somebody else has asked for it")
        self._rows.begin_next(self.id)

    def _put_item(self, kind: str, body: Mapping[str, Any]) -> None:
        self._rows.read(self.id)
        self._inbox.put_item(self.id, kind, f"{kind}/{uuid.uuid4().hex}", body)
        self._rows.begin_next(self.id)

    async def export(self) -> dict[str, Any]:
        """Return all that is kept of the run as plain JSON: how it stands, its transcript, and its events.

        It is for people: secrets are struck out of it, as out of a run log. What the run goes on from is in `result`.
        """
        return await self._storage.ask(self._export_run)

    def _export_run(self) -> dict[str, Any]:
        row, rest = self._read_run()
        lines = [line for _, _, _, line in _read_lines(self._storage, self.id, 0, -1)]
        strike = Scrubber()
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
            "messages": [] if rest is None else strike(rest.messages),
            "events": [read_line(line.encode()) for line in lines],
        }

    def _read_run(self) -> tuple[RunRow, Rest | None]:
        """Return the run, and how it came to rest, which the engine keeps some milliseconds after its last event."""
        patience = _PATIENCE
        while True:
            row = self._rows.read(self.id)
            rest = self._rows.read_rest(row) if row.state in RESTING else None
            if rest is not None or row.state not in RESTING or patience == 0:
                return row, rest
            patience -= 1
            time.sleep(_FAST_SECONDS)


class _EventReader(AsyncIterator[DurableEvent]):
    """Waits for the events of one run; nothing is left to be closed."""

    def __init__(self, storage: Storage, run_id: str, after: int, until: Literal["rest", "end"]) -> None:
        self._storage = storage
        self._rows = RunRows(storage)
        self._run_id = run_id
        self._after = after
        self._until = until
        self._found: deque[DurableEvent] = deque()
        self._state = ""

    async def __anext__(self) -> DurableEvent:
        while not self._found:
            try:
                is_at_end = await self._storage.ask(self._read_on)
            except DatabaseUnavailableError:
                await anyio.sleep(_SLOW_SECONDS)
                continue
            if is_at_end:
                raise StopAsyncIteration
            if not self._found:
                await self._storage.watch.wait_for_news(self._run_id, self._after, self._state)
        return self._found.popleft()

    def _read_on(self) -> bool:
        """Read what is new; where nothing is, return whether the run is at rest and all of it was read."""
        self._read_new()
        if self._found:
            return False
        row = self._rows.read(self._run_id)
        self._state = row.state
        is_at_end = row.state in RESTING and (self._until == "rest" or row.state != "waiting")
        if is_at_end:
            self._read_new()  # what was written between the two
        return is_at_end and not self._found and self._after >= row.last_seq

    def _read_new(self) -> None:
        for seq, turn, attempt, line in _read_lines(self._storage, self._run_id, self._after, _CHUNK):
            self._after = seq
            plain = read_line(line.encode())
            if plain is not None and plain["event"] not in RECORDS:
                self._found.append(DurableEvent(seq=seq, turn=turn, attempt=attempt, event=load_event(plain)))


def _read_lines(storage: Storage, run_id: str, after: int, most: int) -> list[tuple[int, int, str, str]]:
    """Return the lines of a run behind a number: their numbers, turns, attempts and texts."""
    query = sa.select(events.c.seq, events.c.turn, events.c.attempt, events.c.line).where(
        events.c.run_id == run_id, events.c.seq > after
    )
    query = query.order_by(events.c.seq)
    if most >= 0:
        query = query.limit(most)
    with storage.engine.connect() as connection:
        rows = connection.execute(query).all()
        lines = restore_lines(connection, storage.text, run_id, [row.line for row in rows])
    return [(row.seq, row.turn, row.attempt, line) for row, line in zip(rows, lines, strict=True)]
