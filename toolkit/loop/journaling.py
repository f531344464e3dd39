"""The log of a durable run: each piece of work goes through it, and its outcome is read from it, or done and recorded.

A log has the feeds of the machine (`toolkit.loop.state`), and not the actions of the application's code: replaying it
calls no tool, hook, guard or provider. These are its entries, in the order of a run::

    begin       the version of this format, the prompt, the salt of the run's digests, and the trace context
    compact N   the transcript as it was shortened before turn N
    turn N      the reply, and the decisions on its calls if nobody has to be asked
    decide N    the decisions on them if somebody is asked
    unit N.K    only before the second unit of a turn, or one after a deferred decision: its calls are about to start
    call ID     the result of a call
    decided K   a decision that was awaited

An entry before a unit is the mark that its calls may have started, by the process that it names: a process that finds
the mark of another one, and no result of a call, answers that the call may have taken effect. The mark also names the
calls whose loops have logs of their own.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.calls.approval import put_off_asked
from toolkit.calls.prepare import Ready, Refused
from toolkit.calls.registration import Ctx
from toolkit.calls.run import CallReturned, run as run_call
from toolkit.chat import ToolResult
from toolkit.chat.messages import messages_to_plain
from toolkit.chat.provider import provider_error_from_plain, provider_error_to_plain
from toolkit.errors import (
    ConfigurationError,
    JournalError,
    LaterReleaseError,
    LoopError,
    LoopUsageError,
    ProviderError,
    ToolCrashedError,
)
from toolkit.json_text import digest_json, sign_json, write_json
from toolkit.loop.approvals import dump_modified
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.feeds import (
    LOST,
    CallsPrepared,
    CallStarted,
    Feed,
    FeedJson,
    OpenCall,
    RunEnded,
    UsageSpent,
    dump_feed,
    load_feed,
)
from toolkit.loop.journal import CutError, Journal, JournalEntry, JournalValue, storable_id
from toolkit.loop.limits import (
    Continue,
    RunBudget,
    Spent,
    Stop,
    StopContext,
    StopDecision,
    UsageLimits,
    ask_stop_when,
)
from toolkit.loop.outcome import AwaitingApproval, Cancelled, ResultAsAnswer, Timeout, TypedAnswer
from toolkit.redaction import without_keys
from toolkit.runtime.backend import run_in_own_context
from toolkit.trace_context import inject_trace_context, link_trace_context

if TYPE_CHECKING:
    from toolkit.loop.middleware import Middleware
    from toolkit.loop.run import Run

_FORMAT = 1
_SEAL, _STATES_SEAL = "seal", "states_seal"
_CHANGED = (AttributeError, LookupError, TypeError, ValueError)
"""The errors of reading an entry that was changed."""
_UNSEALED = frozenset({_SEAL, "trace"})
"""The parts of an entry that its seal is not about; a journal may give another trace context for the first one."""

_NO_MAPPING: Mapping[str, str] = {}
_NO_PLACES: AbstractAsyncContextManager[None] = nullcontext()


class RunJournal(Generic[Ctx]):
    """The log of one run.

    Args:
        journal: Stores it.
        run: The run.
        outer: The logs of the call that this run is part of; their key also seals this log.

    Attributes:
        config: The settings for the machine, whose questions to the application are recorded.
    """

    def __init__(self, journal: Journal, run: Run[Ctx, Any], outer: NestedJournals | None = None) -> None:
        config = run.config
        self._journal = journal
        self._run = run
        self._signing_key = config.signing_key or (None if outer is None else outer.signing_key)
        self._seals = _Seals(self._signing_key, journal.run_id)
        self._side = _SideState(run, None if outer is None else outer.side, self._seals)
        self._stop_when = config.stop_when
        asked = config.stop_when is not None
        self.config: ToolLoopConfig[Any] = replace(config, stop_when=self._ask_stop_when) if asked else config
        self._time = time.time()
        self._stops: list[StopAnswer] | None = None  # while entries are replayed
        self._prompt: JournalValue = {}
        self._has_begun = self._has_emitted_start = self._has_replayed = False
        self._token = os.urandom(8).hex()  # of this attempt at the run
        self._marked_by: str | None = None  # the token of the process that has marked the next unit
        self._logged: Collection[str] = ()  # the calls of that unit whose loops have logs
        self._unit = self._decided = 0
        self._arguments: dict[str, str] = {}
        self._bindings: dict[str, str] = {}
        self._works: set[_Work] = set()  # that are being done
        self._unit_works: list[_Work] = []
        self._is_ahead = True  # knows what the loops inside the unit's calls did in other processes
        self._ahead = anyio.Lock()
        self._is_cut = False  # all work is to end, because the run was cancelled
        self._is_failing = False  # the same, because the run has failed

    def refuse_steps(self) -> None:
        """Refuse to be stepped by hand.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            "a loop with a journal is not stepped by hand, since what is done between two turns is not in its log: "
            "run() or stream() it, with stop_when, steering or middleware for what is to happen there"
        )

    def read_prompt(self) -> None:
        """Note what the run starts from, before any decision on it is taken."""
        messages = messages_to_plain(self._run.state.messages)
        self._prompt = {"restored": digest_json(messages)} if self._run.is_restored else {"messages": messages}

    def read_time(self) -> float:
        """Return the time of what the machine writes itself, in seconds since 1970: that of the entry it follows."""
        return self._time

    def feed(self, feed: Feed) -> None:
        """Feed the machine, and record the feed in the entry of the current piece of work.

        Raises:
            LoopUsageError: It does not fit.
            JournalError: It can't be stored.
        """
        state, work = self._run.state, _current_work.get()
        while work is not None and work.log is not self:
            work = work.outer
        if work is None:
            state.feed(feed)
            return
        recorded = feed
        if isinstance(feed, CallsPrepared) and not state.reads_calls:
            recorded = replace(feed, calls=None)  # the answers of `stop_when` are recorded by themselves
        elif isinstance(feed, CallReturned) and feed.result.time is None:
            feed = recorded = replace(feed, result=replace(feed.result, time=time.time()))
        try:
            plain = dump_feed(recorded, state.messages)
        except ValueError as error:
            raise JournalError(f"{type(feed).__name__} can't be stored in the log of the run: {error}") from error
        state.feed(feed)
        if plain is not None:
            work.feeds.append(plain)

    # the run

    async def drive(self, work: Callable[[], Awaitable[None]]) -> None:
        """Drive the run to its end or rest; a cancellation reaches its work, and not the log."""
        failure: BaseException | None = None
        self._has_emitted_start = self._is_failing = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_cancellation)
                with anyio.CancelScope(shield=True):
                    try:
                        await self._begin_log()
                        await work()
                        await self._settle_rest()
                    except CutError as cut:
                        failure = cut.__cause__
                    except BaseException as error:  # noqa: BLE001 - raised below, not in a group
                        failure = error
                    await self._emit_start()
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            if failure is None:
                raise
        finally:
            self._is_cut = False
        if failure is not None:
            raise failure
        await checkpoint_if_cancelled()  # a cancellation that has cut the works was not raised yet

    async def _watch_cancellation(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._is_cut = True
            self._cut_works()

    def _cut_works(self) -> None:
        for work in self._works:
            if work.failure is None:
                work.scope.cancel()

    async def _begin_log(self) -> None:
        """Read or write the first entry."""
        if self._has_begun:
            return
        self._has_begun = True
        self._side.begin()
        run, approvals, prompt = self._run, self._run.approvals, self._prompt

        async def begin() -> JournalValue:
            value = {"format": _FORMAT, "run": run.loop_id, "prompt": prompt, "salt": approvals.salt}
            if run.prompt_function is not None:
                value["system"] = await run.find_system_prompt()
            trace: dict[str, str] = {}
            inject_trace_context(trace)
            return {**value, "trace": trace} if trace else value

        value = await self._do_once("begin", begin)
        form: object = value.get("format")
        if form != _FORMAT:
            kind = LaterReleaseError if isinstance(form, int) and form > _FORMAT else JournalError
            raise kind(
                f"the log is of format {form!r}, and this library reads format {_FORMAT}: "
                "go on with the library that wrote it"
            )
        for part, mine in (("run", run.loop_id), ("prompt", prompt)):
            if value.get(part) != mine:
                raise JournalError(
                    f"the log was written by another run: its {part} is {_shorten_repr(value.get(part))}, "
                    f"and this one's is {_shorten_repr(mine)}"
                )
        approvals.salt = value["salt"]
        if "system" in value:
            run.take_system_prompt(value["system"])
        link_trace_context(value.get("trace", _NO_MAPPING))

    async def _settle_rest(self) -> None:
        """Restore the parts of a result and a snapshot that were replayed."""
        run = self._run
        self._side.restore()
        if isinstance(run.state.reason, AwaitingApproval):
            for entry in run.state.open_calls:
                ready = await self._find_ready(entry)
                if isinstance(ready, Refused):
                    raise LoopUsageError(f"the call '{entry.call.id}' can't be restored: {ready.result.text}")
                self._check_binding(entry, ready)
        run.restore_answer()
        await self._journal.finish()

    async def _emit_start(self) -> None:
        """Notify observers, once, that the run begins or goes on."""
        if not self._has_emitted_start:
            self._has_emitted_start = True
            await self._run.emit_start(is_resumed=self._has_replayed)

    # the steps of a turn

    async def take_turn(self) -> None:
        """Begin a turn: compact the transcript, or ask the model."""
        run, state = self._run, self._run.state
        compacts = run.config.compaction is not None and state.is_at_boundary
        self._unit = 0

        async def take() -> None:
            await run.take_turn()
            if state.phase == "deciding" and not self._is_guarded():
                await run.approvals.ask()

        await self._do_marked(f"{'compact' if compacts else 'turn'} {state.iterations + 1}", take, self._write_mark)

    async def decide_calls(self) -> None:
        """Ask guards and approvers about the calls of a reply, which may take long."""
        run = self._run

        async def decide() -> None:
            undecided = run.state.turn.with_status("undecided")
            if any(entry.prepared is None for entry in undecided):
                await run.approvals.prepare_turn(undecided)
            await run.approvals.ask()

        await self._do_marked(f"decide {run.state.iterations}", decide, self._write_mark)

    async def run_unit(self, calls: Sequence[OpenCall]) -> None:
        """Run the calls of a unit; each result is an entry."""
        run, state = self._run, self._run.state
        self._unit += 1
        if self._marked_by is None:
            await self._do_marked(f"unit {state.iterations}.{self._unit}", _do_nothing, self._write_token)
            if state.phase != "running" or state.next_calls() != calls:
                return
        in_doubt, self._marked_by = self._marked_by != self._token, None
        self._is_ahead = not in_doubt
        limit = self.config.execution.limit
        places = None if limit is None else anyio.Semaphore(limit)
        works = [
            _Work(self, f"call {storable_id(entry.call.id)}", partial(self._do_call, entry, places, in_doubt))
            for entry in calls
        ]
        entries = [
            self._make_entry(work, is_nested=entry.call.id in self._logged)
            for work, entry in zip(works, calls, strict=True)
        ]
        self._unit_works = works
        values: list[JournalValue] = []

        async def run_all() -> None:
            values.extend(await self._journal.all(entries))

        await run.run_beside_pump(run_all)
        self._take_entries(works, values)

    async def take_late(self) -> None:
        """Continue with messages that were sent while a tool was producing the answer."""
        if not isinstance(self._run.state.reason, (TypedAnswer, ResultAsAnswer)):
            return

        async def take() -> JournalValue:
            await self._run.take_late()
            return {}

        await self._do_once(f"late {self._run.state.iterations}", take)

    async def _do_call(self, entry: OpenCall, places: anyio.Semaphore | None, in_doubt: bool) -> JournalValue:
        run, call = self._run, entry.call
        await self._read_ahead()
        async with places if places is not None else _NO_PLACES:
            ready, is_logged = await self._find_ready(entry), call.id in self._logged
            crash = "tell" if isinstance(ready, Refused) else ready.registration.options.after_crash
            if in_doubt and (crash == "tell" or (crash == "resume" and not is_logged)):
                run.feed(CallStarted(call.id))
                lost = ToolResult(call.id, LOST, tool_name=call.name, is_error=True)
                run.feed(CallReturned(call.id, lost))
                run.state.turn.closed.append((call, lost, True))
                return {}
            if isinstance(ready, Refused):
                run.feed(CallStarted(call.id))
                run.feed(CallReturned(call.id, ready.result))
                return {}
            self._check_binding(entry, ready)
            if entry.status == "deferred":  # it has changed since the decision
                return {}
            ledger = RunBudget(UsageLimits(), run.budget)
            log_name = storable_id(call.id)
            if entry.child is not None:
                run.approvals.hand_over(entry, entry.child)
                log_name = f"{log_name}.u{self._unit}"  # its loop goes on from a snapshot, in another log
            nested = NestedJournals(self._journal, log_name, self._signing_key, self._side) if is_logged else None
            budget = None if run.budget is None else ledger
            frame = replace(run.frame, budget=budget, journals=nested)
            await run_in_own_context(run_call, ready, run.host_under(frame))
            return {} if budget is None else {"spent": ledger.spent}

    def _knows_ahead(self) -> bool:
        return self._is_ahead or not self._side.has_middleware

    async def _read_ahead(self) -> None:
        """Restore the state of middleware as loops in the unit's calls left it in another process, before any runs."""
        if self._knows_ahead():
            return  # without the lock, which lets the event loop take a turn: a tenth of a durable turn
        async with self._ahead:
            if self._knows_ahead():
                return
            for work in self._unit_works:
                if not work.is_noted:
                    self._side.note_nested(await self._journal.read_nested(work.name.removeprefix("call ")))
            self._side.restore_states()
            self._is_ahead = True

    async def _find_ready(self, entry: OpenCall) -> Ready[Ctx] | Refused:
        """Return an approved call, prepared again if another process has decided on it."""
        prepared: Ready[Ctx] | Refused | None = entry.prepared
        if isinstance(prepared, Ready):
            return prepared
        return await self._run.approvals.prepare_again(entry, self._arguments.get(entry.call.id))

    def _check_binding(self, entry: OpenCall, ready: Ready[Ctx]) -> None:
        """Ask again about a call that has changed since another process decided on it."""
        binding = self._bindings.get(entry.call.id)
        if binding is not None:
            self._run.approvals.ask_again_if_changed(entry, ready, binding)

    def _is_guarded(self) -> bool:
        """Return whether decisions on calls may take long, since a guard or an approver is asked."""
        policy = self._run.policy
        while not policy.guards and policy.config.on_tool_call in (None, put_off_asked):
            if policy.caller is None:
                return False
            policy = policy.caller.policy
        return True

    def _take_steered(self) -> None:
        """Skip the calls that are about to start if a message has arrived."""
        steering = self._run.config.steering
        if steering is not None and self._run.state.phase == "running":
            self._run.steer(steering.take_steered())

    # marks

    async def _do_marked(self, name: str, do: Callable[[], Awaitable[None]], write: Callable[[], JournalValue]) -> None:
        """Do the work of an entry that ends with the mark before a unit."""

        async def do_and_mark() -> JournalValue:
            await do()
            self._take_steered()
            return write()

        value = await self._do_once(name, do_and_mark)
        self._marked_by, self._logged = value.get("by"), value.get("logs", ())
        if self._run.policy.trust is not None:
            self._run.policy.trust.load(value.get("trust", {}))

    def _write_mark(self) -> JournalValue:
        """Return the mark of the process that is about to start calls: its token, and how the calls were approved."""
        decided = self._run.state.turn.with_status("approved", "alone", "deferred")
        prepared: list[Ready[Ctx] | Refused | None] = [entry.prepared for entry in decided]
        ready = [each for each in prepared if isinstance(each, Ready)]
        mark, modified = self._write_token(), dump_modified(ready)
        if modified:
            mark["arguments"] = modified
        if self._run.policy.trust is not None:
            mark["trust"] = self._run.policy.trust.save()
        bound = ready
        if not self._is_guarded():
            bound = [entry.prepared for entry in decided if entry.status == "deferred"]
        if bound:
            mark["bindings"] = {each.call.id: self._run.approvals.bind(each) for each in bound}
        return mark

    def _write_token(self) -> JournalValue:
        """Return the token of the process, and the calls whose loops have logs, for which a journal may make room."""
        known = self._run.registry.registrations
        registered = [(entry.call.id, known.get(entry.call.name)) for entry in self._run.state.open_calls]
        logged = [call for call, each in registered if each is not None and each.options.after_crash == "resume"]
        return {"by": self._token, "logs": logged} if logged else {"by": self._token}

    # decisions that come later

    async def store_decision(self, decide: Callable[[], OpenCall]) -> None:
        """Apply an awaited decision, which returns its call, and store it at once.

        Raises:
            LoopUsageError: It does not fit; nothing is stored.
        """

        async def take_decision() -> JournalValue:
            try:
                entry = decide()
            except Exception as error:
                raise CutError from error
            ready: Ready[Ctx] = entry.prepared
            self._bindings[entry.call.id] = binding = self._run.approvals.bind(ready)
            mark = {**self._write_token(), "by": None, "bindings": {entry.call.id: binding}}
            modified = dump_modified([ready])
            return {**mark, "arguments": modified} if modified else mark

        self._decided += 1
        try:
            with anyio.CancelScope(shield=True):
                await self._do_once(f"decided {self._decided}", take_decision)
        except CutError as cut:
            self._decided -= 1
            raise (cut.__cause__ or cut) from None
        self._marked_by = None

    async def recall_decisions(self) -> bool:
        """Apply the decisions of the log, if some are awaited; return whether there were any."""
        state, has_any = self._run.state, False
        awaited = isinstance(state.reason, AwaitingApproval)
        while awaited:
            name = f"decided {self._decided + 1}"
            value = await self._journal.recall(name)
            if value is None:
                break
            self._decided += 1
            self._seals.take([(name, value)])
            self._replay_entry(name, value)
            self._marked_by, has_any = None, True
        return has_any

    # entries

    async def _do_once(self, name: str, do: Callable[[], Awaitable[JournalValue]]) -> JournalValue:
        """Return the stored value of an entry, or do its work and store the value."""
        work = _Work(self, name, partial(self._do_counted, do))
        self._time = time.time()
        [value] = await self._journal.all([self._make_entry(work)])
        self._take_entries([work], [value])
        return value

    async def _do_counted(self, do: Callable[[], Awaitable[JournalValue]]) -> JournalValue:
        before = self._side.read_spent()
        return {**await do(), **self._side.count_spent(before)}

    def _make_entry(self, work: _Work, *, is_nested: bool = False) -> JournalEntry:
        def note(value: JournalValue) -> None:
            self._seals.check(work.name, value)  # before other work of the same request begins
            try:
                self._side.note(value)
            except _CHANGED as error:
                raise JournalError(f"the entry '{work.name}' of the log was changed: {error}") from error
            work.is_noted = True

        return JournalEntry(work.name, partial(self._do_work, work), is_nested=is_nested, on_replay=note)

    async def _do_work(self, work: _Work) -> JournalValue:
        """Do a piece of work, and return its entry: all that it fed the machine, and the state beside the machine."""
        work.outer = _current_work.get()
        self._works.add(work)
        token = _current_work.set(work)
        value: JournalValue = {}
        try:
            if self._is_cut or self._is_failing:
                work.scope.cancel()
            with work.scope:
                value |= await self._do_live(work)
            if work.scope.cancelled_caught:
                value["stopped"] = self._describe_cut()
                if value["stopped"] is None:
                    raise CutError
            value |= {"at": self._time, **self._side.write(), "feeds": work.feeds}
            if work.stops:
                value["stops"] = work.stops
            taken = [] if self._run.config.steering is None else self._run.config.steering.take_unlogged()
            if taken:
                value["took"] = taken
            value = self._seals.seal(work.name, value)
        finally:
            _current_work.reset(token)
            self._works.discard(work)
        work.is_done = True
        return value

    async def _do_live(self, work: _Work) -> JournalValue:
        try:
            self._side.restore()
            await self._emit_start()
            return await work.do()
        except (ConfigurationError, JournalError) as error:  # corrected by the application, not by the run
            raise CutError from error
        except Exception as error:  # noqa: BLE001 - it is the outcome of the run
            work.failure = error
            self._is_failing = True
            self._cut_works()
            return {"failed": _dump_failure(error)}

    def _describe_cut(self) -> JournalValue | None:
        """Return why work was cut, if that ends the run; None for a cancellation of tasks."""
        clock = self._run.memory.run_clock
        if self._is_failing:
            return {"kind": "failed"}
        if clock is None or not clock.cancel_called:
            return None
        if self._run.wish is not None:
            return {"kind": "cancelled", "reason": self._run.wish[0]}
        return {"kind": "timeout", "limit": self._run.timeout}

    def _take_entries(self, works: Sequence[_Work], values: Sequence[JournalValue]) -> None:
        """Replay the entries of other processes; then raise the error that ended the run, or end it as they say."""
        self._seals.take([(work.name, value) for work, value in zip(works, values, strict=True)])
        failures: list[Exception] = []
        for work, value in zip(works, values, strict=True):
            if not work.is_done:
                self._replay_entry(work.name, value, is_noted=work.is_noted)
            failure = work.failure or _load_failure(value)
            if failure is not None:
                failures.append(failure)
        if failures:
            raise failures[0]
        for value in values:
            match value.get("stopped"):
                case {"kind": "cancelled", "reason": reason}:
                    self._run.state.feed(RunEnded(Cancelled(reason)))
                case {"kind": "timeout", "limit": limit}:
                    self._run.state.feed(RunEnded(Timeout(limit)))
                case _:
                    pass

    def _replay_entry(self, name: str, value: JournalValue, *, is_noted: bool = False) -> None:
        """Feed the machine the feeds of an entry."""
        state = self._run.state
        self._has_replayed = True
        already = len(state.turn.closed)  # by works that were done beside this entry
        try:
            if not name.startswith("call "):  # which run at the same time, and so at none
                self._time = value["at"]
            self._stops = list(value.get("stops", ()))
            for feed in value.get("feeds", ()):
                state.feed(load_feed(feed, state.messages))
            self._take_arguments(value.get("arguments", _NO_MAPPING))
            self._bindings |= value.get("bindings", {})
            if not is_noted:
                self._side.note(value)
        except (*_CHANGED, LoopUsageError) as error:
            raise JournalError(
                f"the entry '{name}' of the log does not fit the run, or was changed: {error}"
            ) from error
        finally:
            self._stops = None
        del state.turn.closed[already:]

    def _take_arguments(self, arguments: Mapping[str, str]) -> None:
        """Run calls with the arguments that were decided on, even if they were prepared with their own."""
        self._arguments |= arguments
        for call_id in arguments:
            entry = self._run.state.turn.by_id.get(call_id)
            if entry is not None:
                entry.prepared = None

    # the machine's questions to the application

    def _ask_stop_when(self, context: StopContext) -> StopDecision:
        if self._stops is not None:
            if not self._stops:
                raise JournalError("the log has no answer of stop_when where it is asked: it was written without one")
            stored = self._stops.pop(0)
            return Continue() if stored is None else Stop(stored["reason"])
        assert self._stop_when is not None
        decision = ask_stop_when(self._stop_when, context)
        work = _current_work.get()
        if work is not None:
            work.stops.append({"reason": decision.reason} if isinstance(decision, Stop) else None)
        return decision


class NestedJournals:
    """Gives each loop that a call starts a log of its own, in the order in which they are made.

    Args:
        journal: The journal of the loop that makes the call.
        call_id: The call.
        signing_key: Seals the logs of loops without a key.
        side: The state of that loop.
    """

    __slots__ = ("_call_id", "_count", "_journal", "side", "signing_key")

    def __init__(self, journal: Journal, call_id: str, signing_key: str | bytes | None, side: _SideState) -> None:
        self._journal = journal
        self._call_id = call_id
        self.signing_key: str | bytes | None = signing_key
        self.side: _SideState = side
        self._count = 0

    def open_next(self) -> Journal:
        """Return the log of the next loop."""
        self._count += 1
        return self._journal.nested(self._call_id if self._count == 1 else f"{self._call_id}.{self._count}")


class _Seals:
    """Seals the entries of one log with a key, each together with all before it; without a key, does nothing.

    Concurrent entries are sealed together with all entries before them. The id of the log is sealed, too.
    """

    def __init__(self, key: str | bytes | None, log_id: str) -> None:
        self._key = key.encode() if isinstance(key, str) else key
        self._log_id = self._before = log_id

    def seal(self, name: str, value: JournalValue) -> JournalValue:
        """Return the value of an entry with its seal."""
        if self._key is None:
            return value
        try:
            plain: JournalValue = json.loads(write_json(value, allow_nan=False))  # as it will be read
        except (TypeError, ValueError, RecursionError):
            return value  # it can't be stored either
        return {**value, _SEAL: self._sign_entry(name, plain)}

    def take(self, entries: Sequence[tuple[str, JournalValue]]) -> None:
        """Check the seals of entries, in order, of which some may be new; those of later entries depend on them.

        Raises:
            JournalError: As for `check`.
        """
        for name, value in entries:
            self.check(name, value)
        if self._key is not None:
            self._before = sign_json([self._before, *(value[_SEAL] for _, value in entries)], self._key)

    def check(self, name: str, value: JournalValue) -> None:
        """Check the seal of one of the next entries.

        Raises:
            JournalError: It is missing or wrong, or there is one and no key.
        """
        if self._key is None and _SEAL in value:
            raise JournalError(
                f"the entry '{name}' of the log is sealed with a key: give its signing_key to the configuration"
            )
        seal: object = value.get(_SEAL)
        if self._key is not None and not _is_same(seal, self._sign_entry(name, value)):
            what = "has no seal" if seal is None else "was changed or moved, or sealed with another key"
            raise JournalError(f"the entry '{name}' of the log {what}, and the configuration has a signing_key")

    def seal_states(self, value: JournalValue) -> JournalValue:
        """Return the seal of the states of middleware in an entry of any log of the run.

        The loops around a call read them before the loop in the call checks its log.
        """
        if self._key is None:
            return {}
        states = json.loads(write_json(value.get("states", {}), allow_nan=False))
        return {_STATES_SEAL: sign_json(["toolkit states", self._log_id, value["n"], states], self._key)}

    def check_states(self, value: JournalValue) -> None:
        """Check the seal of the states in an entry of a log inside a call.

        Raises:
            JournalError: It is missing or wrong.
        """
        if self._key is not None and not _is_same(value.get(_STATES_SEAL), self.seal_states(value)[_STATES_SEAL]):
            raise JournalError(
                "the states of middleware in the log of a loop inside a call were changed, or written without the "
                "signing_key of the configuration"
            )

    def _sign_entry(self, name: str, value: JournalValue) -> str:
        assert self._key is not None
        content = {part: inner for part, inner in value.items() if part not in _UNSEALED}
        return sign_json(["toolkit journal", self._before, name, content], self._key)


def _is_same(seal: object, right: str) -> bool:
    return isinstance(seal, str) and hmac.compare_digest(seal.encode("utf-8", "replace"), right.encode())


StopAnswer: TypeAlias = dict[str, str | None] | None
"""An answer of ``stop_when``: None to continue, else the reason to stop."""


class _Work:
    """The work of one entry; it is done once, and the entry has all that it fed the machine.

    Attributes:
        outer: The work that this is a part of, that of a loop around this one.
        feeds: The feeds that it gave the machine.
        stops: The answers of ``stop_when``.
        failure: The error that ended it.
        is_done: True once it was done in this process.
        is_noted: True if the log had the entry, whose state was noted.
    """

    __slots__ = ("do", "failure", "feeds", "is_done", "is_noted", "log", "name", "outer", "scope", "stops")

    def __init__(self, log: RunJournal[Any], name: str, do: Callable[[], Awaitable[JournalValue]]) -> None:
        self.log = log
        self.name = name
        self.do = do
        self.outer: _Work | None = None
        self.feeds: list[FeedJson] = []
        self.stops: list[StopAnswer] = []
        self.scope = anyio.CancelScope()
        self.failure: Exception | None = None
        self.is_done = self.is_noted = False


_current_work: ContextVar[_Work | None] = ContextVar("toolkit_journaled_work", default=None)


def _dump_failure(error: Exception) -> JournalValue:
    """Return the error that ended a run as JSON."""
    if isinstance(error, ProviderError):
        plain: JournalValue = provider_error_to_plain(error)
        plain["message"] = without_keys(plain["message"])
        return {"provider": plain, "usage": None if error.usage is None else dump_feed(UsageSpent(error.usage))}
    if isinstance(error, ToolCrashedError):
        text = str(error).removeprefix(str(ToolCrashedError(error.tool, error.call_id, "")))
        return {"crash": [error.tool, error.call_id, without_keys(text)]}
    text = without_keys(str(error))
    return {"error": text if isinstance(error, LoopError) else f"{type(error).__name__}: {text}"}


def _load_failure(value: JournalValue) -> Exception | None:
    """Return the error that an entry says has ended the run; None where it says of none.

    Raises:
        JournalError: It can't be read.
    """
    try:
        match value.get("failed"):
            case None:
                return None
            case {"provider": plain, "usage": usage}:
                error = provider_error_from_plain(plain)
                spent = None if usage is None else load_feed(usage)
                error.usage = spent.usage if isinstance(spent, UsageSpent) else None
                return error
            case {"crash": [str(tool), str(call_id), str(reason)]}:
                return ToolCrashedError(tool, call_id, reason)
            case {"error": str(message)}:
                return LoopError(message)
            case unknown:
                return JournalError(f"the log says that the run has failed, but not how: {unknown!r}")
    except (LookupError, TypeError, ValueError) as error:
        raise JournalError(f"the error that ended the run can't be read from the log: {error}") from error


class _SideState:
    """The state of a run beside its machine, written with each entry: its time, its budget, its texts, its middleware.

    A loop inside a call may change the state of the middleware of the loops around it. So each entry has the states of
    its own loop and of those, as far as they have changed. The newest of the replayed entries is restored.
    """

    def __init__(self, run: Run[Any, Any], outer: _SideState | None, seals: _Seals) -> None:
        self._run = run
        self._seals = seals
        self._lineage: list[_SideState] = [self, *([] if outer is None else outer._lineage)]
        self._count = 0  # of the entries of all logs, by which they are ordered; counted by the outermost
        self._newest = self._newest_states = -1
        self._side: dict[str, Any] = {}
        self._states: dict[str, Any] = {}
        self._states_text = ""
        self._written: dict[str, str] = {}  # the states of each loop as this log has them
        self._texts: dict[str, str] = {}  # which other processes have saved, until they are restored
        self._trusted_texts = set[str]()
        self._saved_chars: dict[str, int] = {}  # of each text that is in an entry
        self._is_restored = self._has_restored_states = True
        self._has_adopted = False

    def begin(self) -> None:
        """Count the spending of this loop apart from that of others with the same budget."""
        outer = self._run.budget
        if outer is not None:
            self._run.budget = own = RunBudget(UsageLimits(), outer)
            own.requests, own.tool_calls = outer.requests, outer.tool_calls

    def read_spent(self) -> Spent | None:
        """Return the spending so far; None without limits."""
        budget = self._run.find_budget()
        return None if budget is None else budget.spent

    def count_spent(self, before: Spent | None) -> JournalValue:
        """Return the spending since then, for an entry."""
        after = self.read_spent()
        if before is None or after is None or before == after:
            return {}
        return {"spent": [*[new - old for new, old in zip(after[:5], before[:5], strict=True)], after[5]]}

    @property
    def has_middleware(self) -> bool:
        """True if a middleware of these loops saves a state."""
        return any(each._find_members() for each in self._lineage)

    def _find_members(self) -> dict[str, Middleware[Any]]:
        """Return the middleware that saves a state, by name, except for the inherited ones."""
        chain = self._run.middleware
        if chain is None or not chain.savers:
            return {}
        outer = [each._run.middleware for each in self._lineage[1:]]
        shared = [one for each in outer if each is not None for one in each.savers.values()]
        return {name: each for name, each in chain.savers.items() if not any(each is one for one in shared)}

    def write(self) -> JournalValue:
        """Return the current state, for an entry."""
        run, clock, side = self._run, self._run.memory.run_clock, dict[str, Any]()
        if clock is not None and clock.end < math.inf:
            side["left"] = max(0.0, clock.end - anyio.current_time())
        if run.answer is not None:
            side["retries"] = run.answer.retries_left
        uses = run.count_uses()
        if uses:
            side["uses"] = uses
        if run.offer.chosen_tools is not None:
            side["offered"] = [tool.name for tool in run.offer.chosen_tools]
        value, states = self._count_entry(), self._write_states()
        if states:
            value["states"] = states
            value |= self._lineage[-1]._seals.seal_states(value)
        if side:
            value["side"] = side
        if run.memory.names:
            left = run.config.output.saved_chars - sum(self._saved_chars.values())
            texts = run.memory.save_texts(left, known=self._saved_chars)
            if texts:
                self._saved_chars |= {name: len(text) for name, text in texts.items()}
                value |= {"texts": texts, "trusted": run.memory.list_trusted(texts)}
        return value

    def _count_entry(self) -> JournalValue:
        root = self._lineage[-1]
        root._count += 1
        return {"n": root._count}

    def _write_states(self) -> dict[str, Any]:
        """Return the changed states of middleware, by loop."""
        states: dict[str, Any] = {}
        for each in self._lineage:
            loop_id, saved = each._run.loop_id, {name: one.save() for name, one in each._find_members().items()}
            before, each._states_text = each._states_text, _write_states(saved)
            # All states that this log lacks are written: the log of a call is not read anymore when the call has ended.
            if not before == each._states_text == self._written.get(loop_id, ""):
                self._written[loop_id], states[loop_id] = each._states_text, saved
        return states

    def note(self, value: JournalValue) -> None:
        """Note the state of a replayed entry."""
        budget = self._run.find_budget() if "spent" in value else None
        if budget is not None:
            budget.book(value["spent"])
        self._is_restored = False
        for name, text in value.get("texts", {}).items():
            self._texts[name], self._saved_chars[name] = text, len(text)
        self._trusted_texts.update(value.get("trusted", ()))
        self.note_states(value)
        # Of concurrent calls, the one that ended last has the newest state.
        if value.get("n", 0) > self._newest:
            self._newest = value.get("n", 0)
            self._side |= value.get("side", {})

    def note_nested(self, values: Sequence[JournalValue]) -> None:
        """Note the states of middleware in the logs inside a call.

        Raises:
            JournalError: They were changed.
        """
        try:
            for value in values:
                if "states" in value:
                    self._lineage[-1]._seals.check_states(value)
                    self.note_states(value)
        except _CHANGED as error:
            raise JournalError(f"the log of a loop inside a call was changed: {error}") from error

    def note_states(self, value: JournalValue) -> None:
        """Note the states of middleware in a stored entry, of this log or of one inside it."""
        number, states, root = value.get("n", 0), value.get("states", _NO_MAPPING), self._lineage[-1]
        root._count = max(root._count, number)
        for each in self._lineage:
            saved = states.get(each._run.loop_id)
            if saved is not None and number > each._newest_states:
                each._newest_states, each._states, each._has_restored_states = number, saved, False

    def restore_states(self) -> None:
        """Restore the newest states of middleware."""
        for each in self._lineage:
            members = {} if each._has_restored_states else each._find_members()
            each._has_restored_states |= bool(members)
            for name, state in each._states.items():
                if name in members:
                    members[name].load(state)

    def restore(self) -> None:
        """Restore the newest state, and start the time, which stands while entries are replayed."""
        run, side, clock = self._run, self._side, self._run.memory.run_clock
        left = None if self._is_restored else side.get("left")
        if clock is not None and clock.end == math.inf and not (left is None and run.seconds_left is None):
            clock.end = run.start_time(anyio.current_time(), left)
        if self._texts or not self._has_adopted:  # not before: the log knows the run by the prompt it was given
            self._has_adopted = True
            run.adopt_texts(self._texts, self._trusted_texts)
            self._texts = {}
        self.restore_states()
        if self._is_restored:
            return
        self._is_restored = True
        if run.answer is not None and "retries" in side:
            run.answer.retries_left = side["retries"]
        run.restore_uses(side.get("uses", {}))
        if "offered" in side:
            known = {tool.name: tool for tool in run.offer.known_tools()}
            run.offer.chosen_tools = tuple([known[name] for name in side["offered"] if name in known])
        run.requests.offer_again()


def _write_states(states: dict[str, Any]) -> str:
    """Return the state of middleware as text.

    Raises:
        JournalError: It can't be stored.
    """
    try:
        return write_json(states, allow_nan=False) if states else ""
    except (TypeError, ValueError, RecursionError) as error:
        raise JournalError(f"the state of middleware can't be stored in the log of the run: {error}") from error


async def _do_nothing() -> None: ...


def _shorten_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
