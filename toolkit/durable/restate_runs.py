"""Runs in Restate: a durable loop as a virtual object, and the journal that stores a run in an invocation.

Each run is an object whose handlers execute it from rest to rest. An entry of its log is a run block of the invocation:
the engine assigns its position when it is requested, and returns stored entries in that order; the same is true of the
logs of loops inside calls (`_InnerLogs`). The engine must never retry an entry by itself: any exception is an outcome.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import anyio
from restate import (
    Context,
    ObjectContext,
    ObjectSharedContext,
    RestateDurableFuture,
    RunOptions,
    TerminalError,
    VirtualObject,
    wait_completed,
)
from restate.exceptions import SuspendedException
from restate.serde import BytesSerde, JsonSerde

from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.durable.journals import ReplayJournal, StoredEntry, is_inside
from toolkit.durable.loops import DurableLoop, LoopQueue, RunPlace
from toolkit.durable.rests import (
    InboxItem,
    Rest,
    RunSegment,
    read_messages,
    read_rest,
    write_message,
    write_prompt,
)
from toolkit.errors import ConfigurationError, JournalError, LoopUsageError, ToolkitError
from toolkit.json_text import write_json
from toolkit.logs import get_logger
from toolkit.loop.journal import CutError, Journal, JournalEntry, JournalValue
from toolkit.settings import check_setting

_logger = get_logger("toolkit.durable")
_LONGEST_STEP = timedelta(days=7)
"""A longer step is suspended by the engine, and its calls are answered as interrupted."""

_DECISIONS = frozenset({"approve", "deny", "modify", "abort"})
_PLAIN: JsonSerde[Any] = JsonSerde()
_REFUSED = "$refused"
"""The key of the class and the text of the error in a value whose work was refused."""
_REFUSALS: dict[str, type[ToolkitError]] = {
    each.__name__: each for each in (ConfigurationError, JournalError, LoopUsageError)
}
_SUSPENDED_AT_ONCE: set[str] = set()
"""The invocations that were suspended during their first entry, which takes no time."""
_INNER = "logs inside"
"""The name of the engine's run blocks that store the logs of loops inside calls."""
_OPTIONS = RunOptions(serde=BytesSerde(), max_attempts=1)


def restate_service(loop: DurableLoop[Any, Any]) -> VirtualObject:
    """Return a durable loop as a virtual object, for `restate.app`; the key of an object is the id of a run.

    ::

        app = restate.app([restate_service(support)], protocol="bidi")  # hypercorn --bind 0.0.0.0:9080 shop:app

    Its handlers take and return JSON objects. They execute the run, and return its rest (``state``, ``ending``,
    ``error``, ``messages``, ``result``, ``snapshot``), which the object stores.

    - ``start``: ``{"prompt": ..., "tenant": ..., "metadata": ...}`` starts the run; a repetition returns its rest.
    - ``decide``: ``{"call_id": ..., "binding": ..., "decision": {"kind": "approve"}}`` decides on a pending call, and
      resumes the run; or ``{"kind": "deny", "reason": ...}``, ``{"kind": "modify", "arguments": ...}``, and
      ``{"kind": "abort", "reason": ...}``. A second decider gets error 409.
    - ``say``: ``{"message": ...}``, a text or a message as JSON, adds a message: the run continues with it from its
      end, and after the decisions that it awaits.
    - ``status``: the ``state``, and the ``pending`` calls.
    - ``result``: its last rest.
    - ``cancel``: running calls are cancelled, and the transcript is closed.
    - ``forget``: delete the state of the object.

    Args:
        loop: The loop, without a `queue`, since Restate distributes the work itself.

    Raises:
        ConfigurationError: A part of it is not supported on Restate.
    """
    check_setting("the loop of a service", loop, DurableLoop)
    if loop.queue != LoopQueue():
        raise ConfigurationError(
            f"the loop '{loop.name}' has a queue, which Restate would ignore: set limits in its own configuration"
        )
    service = VirtualObject(loop.name, inactivity_timeout=_LONGEST_STEP)
    handlers = _RunHandlers(loop)
    service.handler("start")(handlers.start)
    service.handler("decide")(handlers.decide)
    service.handler("say")(handlers.say)
    service.handler("forget")(handlers.forget)
    service.handler("status", kind="shared")(handlers.status)
    service.handler("result", kind="shared")(handlers.result)
    service.handler("cancel", kind="shared")(handlers.cancel)
    service.handler("close", ingress_private=True)(handlers.close)
    service.handler("expire", ingress_private=True)(handlers.expire)
    return service


class _RunHandlers:
    """The handlers of the runs of one loop.

    The state of an object is ``run``, the request that started it; ``segment``, the number of its segments; ``moving``,
    the invocation that executes it; ``rest``; and ``said``, the messages that no model has read.
    """

    def __init__(self, loop: DurableLoop[Any, Any]) -> None:
        self._loop = loop

    async def start(self, ctx: ObjectContext, request: dict[str, Any]) -> dict[str, Any]:
        """Start a run; return its rest."""
        run = await _read_state(ctx, "run")
        asked = self._read_start(request)
        if run is None:
            ctx.set("run", asked, _PLAIN)
            return await self._begin_segment(ctx, asked, None, [])
        if run != asked:
            raise TerminalError(f"run '{ctx.key()}' was begun with something else: give another id", 409)
        return await _read_last_rest(ctx)

    async def decide(self, ctx: ObjectContext, request: dict[str, Any]) -> dict[str, Any]:
        """Decide on a pending call; return the run's next rest."""
        rest = read_rest(await _read_last_rest(ctx))
        decision: Any = request.get("decision")
        if not isinstance(decision, dict) or cast("dict[str, Any]", decision).get("kind") not in _DECISIONS:
            raise TerminalError(f"a decision has a 'kind', which is one of {', '.join(sorted(_DECISIONS))}", 400)
        asked = (request.get("call_id"), request.get("binding"))
        if asked not in [(pending.call_id, pending.binding) for pending in rest.pending]:
            raise TerminalError(
                f"the decision on call {asked[0]!r} of run '{ctx.key()}' was not taken: somebody has decided, or it is "
                "on something else; 'status' tells what is pending",
                409,
            )
        item = _make_item(1, *asked, cast("dict[str, Any]", decision))
        return await self._begin_segment(ctx, await _read_state(ctx, "run"), rest, [item])

    async def say(self, ctx: ObjectContext, request: dict[str, Any]) -> dict[str, Any]:
        """Add a message; return the run's next rest. The engine calls this while the run is at rest."""
        left = await _read_last_rest(ctx)
        ctx.set("said", [*(await _read_state(ctx, "said") or ()), _read_message(request)], _PLAIN)
        return left if left["state"] == "waiting" else await self._pass_said(ctx, left)

    async def _pass_said(self, ctx: ObjectContext, left: dict[str, Any]) -> dict[str, Any]:
        """Resume the run with all messages that no model has read; return the next rest."""
        said = await _read_state(ctx, "said")
        ctx.clear("said")
        items = [InboxItem(id=number, kind="say", body={"message": each}) for number, each in enumerate(said, 1)]
        return await self._begin_segment(ctx, await _read_state(ctx, "run"), read_rest(left), items)

    async def status(self, ctx: ObjectSharedContext) -> dict[str, Any]:
        """Return the state of the run."""
        if await _read_state(ctx, "moving") is not None:
            return {"run_id": ctx.key(), "state": "running", "ending": "", "error": "", "pending": []}
        rest = await _read_last_rest(ctx)
        pending: list[Any] = rest["snapshot"]["pending_approvals"] if rest["state"] == "waiting" else []
        facts = {name: rest[name] for name in ("state", "ending", "error")}
        return {"run_id": ctx.key(), **facts, "pending": pending}

    async def result(self, ctx: ObjectSharedContext) -> dict[str, Any]:
        """Return the last rest of the run."""
        return await _read_last_rest(ctx)

    async def cancel(self, ctx: ObjectSharedContext) -> None:
        """Cancel the run, also at rest."""
        moving = await _read_state(ctx, "moving")
        if moving is None:
            ctx.generic_send(self._loop.name, "close", b"", key=ctx.key())
        else:
            ctx.cancel_invocation(moving)

    async def forget(self, ctx: ObjectContext) -> None:
        """Delete the state of the run."""
        ctx.clear_all()

    async def close(self, ctx: ObjectContext) -> None:
        """Close a run that awaits a decision."""
        await self._close_waiting(ctx, None)

    async def expire(self, ctx: ObjectContext, segment: int) -> None:
        """Deny the calls that have awaited a decision since a segment."""
        if await _read_state(ctx, "segment") == segment:
            await self._close_waiting(ctx, {"kind": "deny", "reason": "Tool call denied: nobody decided in time."})

    async def _close_waiting(self, ctx: ObjectContext, decision: Mapping[str, Any] | None) -> None:
        plain = await _read_state(ctx, "rest")
        if plain is None or plain["state"] != "waiting":
            return
        rest = read_rest(plain)
        items = [InboxItem(id=1, kind="cancel", body={})]
        if decision is not None:
            pending = enumerate(rest.pending, 1)
            items = [_make_item(number, each.call_id, each.binding, decision) for number, each in pending]
        await self._begin_segment(ctx, await _read_state(ctx, "run"), rest, items)

    def _read_start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request that started a run, as it is stored."""
        prompt: Any = request.get("prompt")
        tenant: Any = request.get("tenant", "")
        metadata: Any = request.get("metadata") or {}
        if not isinstance(tenant, str) or not isinstance(metadata, dict):
            raise TerminalError("a run's tenant is a text, and its metadata an object", 400)
        try:
            begin = prompt if isinstance(prompt, str) else read_messages(prompt or [])
            messages = write_prompt(begin, self._loop.system_prompt)
        except (ToolkitError, ValueError) as error:
            raise TerminalError(f"the run can't be begun: {error}", 400) from error
        return {"prompt": messages, "tenant": tenant, "metadata": metadata}

    async def _begin_segment(
        self, ctx: ObjectContext, run: Mapping[str, Any], rest: Rest | None, items: Sequence[InboxItem]
    ) -> dict[str, Any]:
        """Execute the run until its next rest, and store that."""
        segment = (await _read_state(ctx, "segment") or 0) + 1
        ctx.set("segment", segment, _PLAIN)
        ctx.set("moving", ctx.request().id, _PLAIN)
        place = RunPlace(run_id=ctx.key(), loop=self._loop.name, tenant=run["tenant"], metadata=run["metadata"])
        next_rest = await _move_to_rest(self._loop, place, ctx, rest or read_messages(run["prompt"]), items)
        ctx.set("rest", next_rest, _PLAIN)
        ctx.clear("moving")
        if next_rest["state"] == "waiting" and self._loop.approval_expiry is not None:
            delay, body = timedelta(seconds=self._loop.approval_expiry), json.dumps(segment).encode()
            ctx.generic_send(self._loop.name, "expire", body, key=ctx.key(), send_delay=delay)
        if next_rest["state"] in ("done", "failed") and await _read_state(ctx, "said"):
            return await self._pass_said(ctx, next_rest)
        return next_rest


async def _move_to_rest(
    loop: DurableLoop[Any, Any],
    place: RunPlace,
    ctx: ObjectContext,
    begin: Rest | Sequence[Message],
    items: Sequence[InboxItem],
) -> dict[str, Any]:
    """Execute a run until its next rest, and return that."""
    run_id = hashlib.sha256(f"{place.loop}/{place.run_id}".encode()).hexdigest()[:32]
    segment = RunSegment(loop, place, begin)
    journal = RestateJournal(ctx, run_id, on_cancel=segment.cancel)
    if isinstance(begin, Rest):
        journal.trace = begin.trace
    try:
        rest = segment.leave_result(await segment.move(journal, items), journal.trace).write()
        write_json(rest)
        return rest
    except Exception as error:  # noqa: BLE001 - it becomes the rest of the run
        if journal.failure is not None:
            raise journal.failure from None
        return segment.leave_error(error, journal.trace, is_resumable=False, is_read=True).write()


def _make_item(number: int, call_id: Any, binding: Any, decision: Mapping[str, Any]) -> InboxItem:
    return InboxItem(
        id=number, kind="decide", body={"call_id": call_id, "binding": binding, "decision": dict(decision)}
    )


def _read_message(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message of a request, as it is stored."""
    message: Any = request.get("message")
    try:
        return write_message(message if isinstance(message, str) else read_messages([message])[0])
    except (ToolkitError, ValueError, TypeError) as error:
        raise TerminalError(f"the message can't be read: {error}", 400) from error


async def _read_state(ctx: ObjectContext | ObjectSharedContext, name: str) -> Any:
    return await ctx.get(name, _PLAIN)


async def _read_last_rest(ctx: ObjectContext | ObjectSharedContext) -> dict[str, Any]:
    """Return the last rest of an object's run."""
    rest: dict[str, Any] | None = await _read_state(ctx, "rest")
    if rest is None:
        raise TerminalError(f"run '{ctx.key()}' was not started, or has not come to rest yet", 404)
    return rest


class RestateJournal:
    """Stores a run in the journal of a Restate invocation, for a handler of your own; `restate_service` has one.

    ::

        @service.handler(inactivity_timeout=timedelta(days=1))
        async def ask(ctx: restate.Context, question: str) -> str:
            config = ToolLoopConfig[None](journal=RestateJournal(ctx))
            return (await tool_loop(provider, registry, question, config=config)).text

    Serve it like a `restate_service`. No step may take longer than the ``inactivity_timeout``: an invocation that is
    suspended during a call answers it as interrupted. Errors of the engine, and a `restate.TerminalError` by which it
    cancels the invocation, are raised by the loop unchanged.

    Args:
        ctx: The context of the invocation.
        run_id: As in `Journal.run_id`; derived from the id of the invocation by default.
        on_cancel: Called when the invocation is cancelled, instead of raising; such as `ToolLoopHandle.cancel`.
    """

    def __init__(
        self, ctx: Context, run_id: str | None = None, *, on_cancel: Callable[[], object] | None = None
    ) -> None:
        self._ctx = ctx
        self._run_id = hashlib.sha256(ctx.request().id.encode()).hexdigest()[:32] if run_id is None else run_id
        self._on_cancel = on_cancel
        self._has_begun = False
        self._begun: set[str] = set()  # the entries whose work began in this attempt
        self._inner: _InnerLogs | None = None  # of the active calls
        self.trace: Mapping[str, str] = {}
        """The trace context of the first segment of the run, once the log has begun; empty without tracing."""
        self.failure: BaseException | None = None
        """The error that ended this attempt; the handler must raise it unchanged."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Return the stored values of entries, or do their work and store the values; see `Journal`."""
        cut = anyio.CancelScope(shield=True)
        calls = [entry.name for entry in entries if entry.is_nested]
        logs = self._inner = _InnerLogs(self._run_id, calls) if calls else None
        try:
            self._check_first_entry()
            futures = {entry.name: self._begin_entry(entry, cut) for entry in entries}
            with cut:
                await self._wait_for(futures, logs, {entry.name: entry for entry in entries})
            texts = [] if cut.cancel_called else [await future for future in futures.values()]
        except BaseException as error:
            self.failure = error
            if isinstance(error, SuspendedException) and self._begun:
                self._note_suspension()
            raise
        finally:
            self._inner = None
        self._has_begun = True
        if cut.cancel_called:
            raise CutError
        values = [_read_value(text) for text in texts]
        if entries[0].name == "begin":
            self.trace = self.trace or values[0].get("trace", {})
            return [{**values[0], "trace": self.trace}]
        return values

    async def recall(self, name: str) -> JournalValue | None:  # noqa: ARG002 - a decision begins the next segment
        """Return None: the next segment begins with a decision, so the log that awaits it has none."""
        return None

    async def finish(self) -> None:
        """Do nothing: the engine compares all that a handler asks for with its log."""

    def nested(self, name: str) -> Journal:
        """Return the log of a loop inside of a call; see `Journal`.

        Raises:
            ConfigurationError: The call has ended.
        """
        if self._inner is None:
            raise ConfigurationError(f"a loop begins inside of call '{name}', which has ended: await it in its tool")
        return self._inner.open_log(name)

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        """Return the stored values of the logs inside of a call; see `Journal`."""
        return [] if self._inner is None else self._inner.read_inside(name)

    def _check_first_entry(self) -> None:
        if not self._has_begun and self._ctx.request().id in _SUSPENDED_AT_ONCE:
            raise ConfigurationError(
                "Restate suspends each run here after one entry, since it can't be answered while it calls: serve "
                "restate.app([...], protocol='bidi') over HTTP/2, as hypercorn does, and register it again"
            )

    def _note_suspension(self) -> None:
        """Record that the engine did not wait for work, which the next attempt finds interrupted."""
        if not self._has_begun:
            _SUSPENDED_AT_ONCE.add(self._ctx.request().id)
            return
        _logger.warning(
            "Restate suspended run %s while it worked, and its calls will be answered as interrupted: set its "
            "inactivity_timeout above what a request or a call may take",
            self._run_id,
        )

    def _begin_entry(self, entry: JournalEntry, cut: anyio.CancelScope) -> RestateDurableFuture[bytes]:
        logs = self._inner if entry.is_nested else None

        async def do_work() -> bytes:
            self._begun.add(entry.name)
            try:
                if logs is not None:
                    await logs.is_live.wait()
                return write_json(await entry.work()).encode()
            except CutError as error:
                if error.__cause__ is None:  # the task of the run was cancelled: nothing is stored
                    cut.cancel()
                    raise anyio.get_cancelled_exc_class() from None
                return _write_refusal(error.__cause__)
            except Exception as error:  # noqa: BLE001 - the engine would try it again
                return _write_refusal(JournalError(f"entry '{entry.name}' can't be stored: {error}"))
            finally:
                if logs is not None:
                    logs.end_call(entry.name)

        return self._ctx.run_typed(entry.name, do_work, _OPTIONS)

    async def _wait_for(
        self,
        futures: Mapping[str, RestateDurableFuture[bytes]],
        logs: _InnerLogs | None,
        entries: Mapping[str, JournalEntry],
    ) -> None:
        """Wait until all have a value, and store the entries of loops inside calls meanwhile."""
        waiting, has_more = list(futures.values()), logs is not None
        while logs is not None and has_more:
            batch = self._ctx.run_typed(_INNER, logs.collect, _OPTIONS)
            waiting.append(batch)
            while batch in waiting:
                done, waiting = await self._wait_for_some(waiting)
                await self._hand_over(done, futures, entries)
                for name in [name for name, future in futures.items() if future in done]:
                    logs.end_call(name)
            has_more = logs.take(await batch)
        while waiting:
            done, waiting = await self._wait_for_some(waiting)
            await self._hand_over(done, futures, entries)

    async def _hand_over(
        self,
        done: Sequence[RestateDurableFuture[bytes]],
        futures: Mapping[str, RestateDurableFuture[bytes]],
        entries: Mapping[str, JournalEntry],
    ) -> None:
        """Pass stored values to their entries; the engine returns them before it begins any work."""
        for name, future in futures.items():
            on_replay = entries[name].on_replay
            if future in done and on_replay is not None and name not in self._begun:
                value: JournalValue = json.loads(await future)
                if _REFUSED not in value:
                    on_replay(value)

    async def _wait_for_some(
        self, futures: list[RestateDurableFuture[bytes]]
    ) -> tuple[list[RestateDurableFuture[bytes]], list[RestateDurableFuture[bytes]]]:
        """Return those that have a value, at least one, and the others; also after a cancellation."""
        while True:
            try:
                return await wait_completed(*futures)
            except TerminalError:
                if self._on_cancel is None:
                    raise
                self._on_cancel()


def _write_refusal(error: BaseException) -> bytes:
    name = next((name for name, kind in _REFUSALS.items() if type(error) is kind), JournalError.__name__)
    return write_json({_REFUSED: [name, str(error)]}).encode()


def _read_value(text: bytes) -> JournalValue:
    """Return the value of an entry."""
    value: JournalValue = json.loads(text)
    if _REFUSED in value:
        name, text = value[_REFUSED]
        raise CutError from _REFUSALS[name](text)
    return value


@dataclass(frozen=True, slots=True)
class _BatchedEntry:
    """An entry to be stored, as JSON with its place, and an event for its loop."""

    text: str
    is_stored: anyio.Event


class _InnerLogs:
    """The entries of the loops inside concurrent calls, given the names of the entries of the calls.

    The engine compares the requests of a handler with its log in one order, and concurrent loops have none. So all
    their entries are one sequence of batches, each of which waits until there is something to store. A later attempt
    reads the sequence to its end, and then sets `is_live`, before any of the calls runs.
    """

    def __init__(self, run_id: str, calls: Iterable[str]) -> None:
        self._run_id = run_id
        self._stored: dict[str, dict[int, StoredEntry]] = {}
        self._running = set(calls)
        self._waiting: list[_BatchedEntry] = []
        self._written: list[_BatchedEntry] = []
        self._news = anyio.Event()
        self._is_over = False
        self.is_live: anyio.Event = anyio.Event()

    def end_call(self, name: str) -> None:
        """Record that a call has ended; repetitions are ignored."""
        self._running.discard(name)
        self._news.set()

    async def collect(self) -> bytes:
        """Return the next batch when there is something to store; an empty one when no call is running."""
        self.is_live.set()
        while self._running and not self._waiting:
            await self._news.wait()
            self._news = anyio.Event()
        self._written, self._waiting = self._waiting, []
        self._is_over = not self._written
        return f"[{','.join(each.text for each in self._written)}]".encode()

    def take(self, batch: bytes) -> bool:
        """Load a stored batch; return whether another one follows."""
        entries: list[tuple[str, int, str, JournalValue]] = json.loads(batch)
        for path, position, name, value in entries:
            self._stored.setdefault(path, {})[position] = (name, value)
        written, self._written = self._written, []
        for entry in written:
            entry.is_stored.set()
        return bool(entries)

    async def store(self, path: str, position: int, name: str, value: JournalValue) -> None:
        """Store an entry durably."""
        try:
            text = write_json([path, position, name, value])
        except (TypeError, ValueError, RecursionError) as error:
            raise JournalError(f"entry '{name}' of run '{self._run_id}/{path}' can't be stored: {error}") from error
        if self._is_over:
            raise JournalError(f"entry '{name}' of run '{self._run_id}/{path}' comes after the end of its call")
        entry = _BatchedEntry(text, anyio.Event())
        self._waiting.append(entry)
        self._news.set()
        with anyio.CancelScope(shield=True):
            await entry.is_stored.wait()

    def read_inside(self, call: str) -> list[JournalValue]:
        """Return the stored values of the logs inside a call, given its path."""
        inner = [entries for path, entries in self._stored.items() if is_inside(path, call)]
        return [value for entries in inner for _, value in entries.values()]

    def open_log(self, path: str) -> Journal:
        """Return the log of a loop inside calls, given their path."""
        if self._is_over:
            raise ConfigurationError(f"a loop begins inside of call '{path}', which has ended: await it in its tool")
        run_id = hashlib.sha256(f"{self._run_id}/{path}".encode()).hexdigest()[:32]
        return _BatchedJournal(self, run_id, path, self._stored.get(path, {}))


class _BatchedJournal(ReplayJournal):
    """The log of one loop inside a call."""

    def __init__(self, logs: _InnerLogs, run_id: str, path: str, stored: Mapping[int, StoredEntry]) -> None:
        super().__init__(run_id, run_id, stored)
        self._logs = logs
        self._path = path

    def nested(self, name: str) -> Journal:
        return self._logs.open_log(f"{self._path}/{name}")

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        return self._logs.read_inside(f"{self._path}/{name}")

    async def _store_value(self, position: int, name: str, value: JournalValue) -> None:
        await self._logs.store(self._path, position, name, value)
