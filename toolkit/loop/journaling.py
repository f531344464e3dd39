"""Does the steps of a run that is kept in a log: what is in there is taken from it, the rest is done and written down.

A log is the feeds of the machine (`toolkit.loop.state`), not what the application's code does: replaying it calls no
tool, hook, guard or provider. These are its entries, in the order of a run::

    begin       the version of this form, the prompt, what makes the run's digests its own, and the trace context
    compact N   the transcript as it was shortened before turn N
    turn N      the reply, and what was decided on its calls where nobody has to be asked
    decide N    what was decided on them where somebody is asked
    unit N.K    only before the second unit of a turn, or one after a late decision: its calls are about to start
    call ID     the result of a call
    decided K   a decision that was awaited

Each names the process that wrote it. An entry before a unit is the mark that its calls may have started: a process that
finds the mark of another one, and no result of a call, tells the model that the call may have taken effect. The mark
also names the calls whose loops have logs of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.calls.approval import put_off_asked
from toolkit.calls.handler import Ctx
from toolkit.calls.prepare import Ready, Refused
from toolkit.chat import ToolCall
from toolkit.errors import ConfigurationError, JournalError, LoopUsageError
from toolkit.loop.approvals import dump_modified
from toolkit.loop.budget import Budget, UsageLimits
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.dispatch import run_beside_pump, run_call
from toolkit.loop.entry_work import CutError, LiveWork
from toolkit.loop.feeds import TURN_BEGUN, CallReturned, CallStarted
from toolkit.loop.journal import Journal, JournalEntry, JournalValue, storable_id
from toolkit.loop.journaled_entries import JournaledEntries
from toolkit.loop.nested_journals import NestedJournals
from toolkit.loop.outcome import AwaitingApproval
from toolkit.loop.steps import AskApproval, CallModel, Compact, Finished, RunTools
from toolkit.loop.turn import OpenCall, write_lost
from toolkit.runtime.backend import run_in_own_context
from toolkit.trace_context import inject_trace_context, link_trace_context

__all__ = ["JournaledSteps"]

_FORMAT = 1


class JournaledSteps(JournaledEntries[Ctx]):
    """Drives one machine by its log.

    Args:
        journal: The log.
        config: The settings as the application gave them.
    """

    def __init__(self, journal: Journal, config: ToolLoopConfig[Any]) -> None:
        super().__init__(journal, config)
        self._token = os.urandom(8).hex()  # of this attempt at the run
        self._marked_by: str | None = None  # whose mark stands before the unit that is next
        self._logged: Collection[str] = ()  # the calls of that whose loops have logs
        self._unit = self._decided = 0
        self._has_begun = False

    def refuse_steps(self) -> None:
        """Refuse to be stepped by hand.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            "a loop with a journal is not stepped by hand, since what is done between two turns is not in its log: "
            "run() or stream() it, with stop_when, steering or middleware for what is to happen there"
        )

    # the run

    async def run_turns(self) -> None:
        """Drive the loop to its end, or to where it rests; a cancellation reaches what it does, and not its log."""
        failure: BaseException | None = None
        self._has_told = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_cancellation)
                with anyio.CancelScope(shield=True):
                    try:
                        await self._drive_steps()
                    except CutError as cut:
                        failure = cut.__cause__
                    except BaseException as error:  # noqa: BLE001 - it is raised where no group can take it
                        failure = error
                    await self.tell_start()
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            if failure is None:
                raise
        finally:
            self.is_cut = False
        if failure is not None:
            raise failure
        await checkpoint_if_cancelled()  # what has cut the works has not come out of anything yet

    async def _watch_cancellation(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self.is_cut = True
            self._cut_works()

    async def _drive_steps(self) -> None:
        self.is_cut = self.is_failing = False
        if not self._has_begun:
            self._side.begin()
            await self._begin_log()
        while True:
            if self._state.phase in ("ready", "compacted"):
                await self._take_turn()
                continue
            step = self._state.next_step()
            if isinstance(step, AskApproval):
                await self._decide_calls(step)
            elif isinstance(step, RunTools):
                await self._run_unit(step)
            elif isinstance(step, Finished) and not await self._recall_decisions(step):
                break
        await self._settle_rest()

    async def _settle_rest(self) -> None:
        """Have all that a result and a snapshot tell, also where it was replayed."""
        self._side.restore()
        if isinstance(self._state.reason, AwaitingApproval):
            for entry in self._state.open_calls:
                ready = await self._find_ready(entry)
                if isinstance(ready, Refused):
                    raise LoopUsageError(f"the call '{entry.call.id}' can't be taken up: {ready.result.text}")
        self._requests.restore_answer()
        await self._journal.finish()

    # the parts of a turn

    async def _begin_log(self) -> None:
        self._has_begun = True
        binder, prompt = self._driver.approvals.binder, self._prompt

        async def begin() -> JournalValue:
            value = {"format": _FORMAT, "run": self._driver.loop_id, "prompt": prompt, "salt": binder.salt}
            trace: dict[str, str] = {}
            inject_trace_context(trace)
            return {**value, "trace": trace} if trace else value

        value = await self._keep_entry("begin", begin)
        if value.get("format") != _FORMAT:
            raise JournalError(
                f"the log is of format {value.get('format')!r}, and this library reads format {_FORMAT}: "
                "go on with the library that wrote it"
            )
        for what, mine in (("run", self._driver.loop_id), ("prompt", prompt)):
            if value.get(what) != mine:
                raise JournalError(
                    f"the log was written by another run: its {what} is {_shorten_repr(value.get(what))}, "
                    f"and this one's is {_shorten_repr(mine)}"
                )
        binder.salt = value["salt"]
        link_trace_context(value.get("trace", _NO_TRACE))

    async def _take_turn(self) -> None:
        """Do what lies between two turns, and then ask the model."""
        state, resources = self._state, self._resources
        compacts = self.config.compaction is not None and state.is_at_boundary
        self._unit = 0

        async def take_turn() -> JournalValue:
            steering = resources.config.steering
            if steering is not None and state.is_at_boundary:
                resources.steer(steering.take_steered())
            self.feed(TURN_BEGUN)
            step = state.next_step()
            if isinstance(step, Compact):
                await self._driver.compact_transcript(step)
            elif isinstance(step, CallModel):
                await self._requests.ask(step)
                await self._decide_at_once()
            return self._write_mark()

        name = "compact" if compacts else "turn"
        value = await self._keep_entry(f"{name} {state.iterations + 1}", take_turn)
        self._take_mark(value)

    def _take_mark(self, value: JournalValue) -> None:
        self._marked_by, self._logged = value.get("by"), value.get("logs", ())

    def _write_mark(self) -> JournalValue:
        """Return what says whose process is about to start calls, and what they were approved with."""
        approvals, decided = self._driver.approvals, self._state.turn.with_status("approved", "alone", "deferred")
        ready: list[Ready[Ctx]] = [entry.prepared for entry in decided if isinstance(entry.prepared, Ready)]
        mark = self._write_token()
        modified = dump_modified(ready)
        if modified:
            mark["arguments"] = modified
        if ready and self._is_guarded():
            mark["bindings"] = {each.call.id: approvals.binder.bind(each) for each in ready}
        return mark

    def _write_token(self) -> JournalValue:
        """Return what says whose process it is, and which calls have loops with logs: a journal may place them so."""
        logged = [entry.call.id for entry in self._state.open_calls if self._has_log(entry.call)]
        return {"by": self._token, "logs": logged} if logged else {"by": self._token}

    def _is_guarded(self) -> bool:
        """Return whether deciding on a call may take long, since somebody else is asked."""
        policy = self._resources.policy
        while not policy.guards and policy.config.on_tool_call in (None, put_off_asked):
            if policy.caller is None:
                return False
            policy = policy.caller.policy
        return True

    async def _decide_at_once(self) -> None:
        """Decide on the calls of a reply where nobody is asked, which may take long."""
        if self._state.phase == "deciding" and not self._is_guarded():
            step = self._state.next_step()
            if isinstance(step, AskApproval):
                await self._driver.approvals.ask(step)
        self._take_steered()

    def _take_steered(self) -> None:
        """Have a message that has come skip the calls that are about to start."""
        steering = self._resources.config.steering
        if steering is not None and self._state.phase == "running":
            self._resources.steer(steering.take_steered())

    async def _decide_calls(self, step: AskApproval) -> None:
        async def decide() -> JournalValue:
            if any(entry.prepared is None for entry in step.calls):
                await self._driver.approvals.prepare_turn(step.calls)
            await self._driver.approvals.ask(step)
            self._take_steered()
            return self._write_mark()

        self._take_mark(await self._keep_entry(f"decide {self._state.iterations}", decide))

    async def _run_unit(self, step: RunTools) -> None:
        self._unit += 1
        if self._marked_by is None:

            async def mark() -> JournalValue:
                self._take_steered()
                return self._write_token()

            self._take_mark(await self._keep_entry(f"unit {self._state.iterations}.{self._unit}", mark))
            if self._state.phase != "running" or self._state.next_step() != step:
                return
        in_doubt, self._marked_by = self._marked_by != self._token, None
        places = None if step.limit is None else anyio.Semaphore(step.limit)
        works: list[LiveWork] = []
        entries: list[JournalEntry] = []
        for entry in step.calls:
            do = partial(self._do_call, entry, places, in_doubt=in_doubt)
            works.append(LiveWork(self, f"call {storable_id(entry.call.id)}", do))
            entries.append(JournalEntry(works[-1].name, works[-1], is_nested=entry.call.id in self._logged))
        values: list[JournalValue] = []

        async def run_all() -> None:
            values.extend(await self._journal.all(entries))

        listener = self._resources.listener
        await (run_all() if listener is None or not listener.needs_pump else run_beside_pump(listener, run_all))
        await self._take_unit(works, values)

    async def _take_unit(self, works: list[LiveWork], values: list[JournalValue]) -> None:
        failures: list[Exception] = []
        for work, value in zip(works, values, strict=True):
            try:
                await self._take_entry(work, {**value, "stopped": None})
            except JournalError:
                raise
            except Exception as error:  # noqa: BLE001 - the others are taken, too
                failures.append(error)
        if failures:
            raise failures[0]
        for value in values:
            self._end_as_kept(value)

    def _has_log(self, call: ToolCall) -> bool:
        registration = self._resources.registry.registrations.get(call.name)
        return registration is not None and registration.options.after_crash == "resume"

    async def _do_call(self, entry: OpenCall, places: anyio.Semaphore | None, *, in_doubt: bool) -> JournalValue:
        call = entry.call
        async with places if places is not None else _NO_PLACES:
            ready = await self._find_ready(entry)
            if isinstance(ready, Refused):
                self.feed(CallStarted(call.id))
                self.feed(CallReturned(call.id, ready.result))
                return {}
            crash = ready.registration.options.after_crash
            is_logged = call.id in self._logged
            if in_doubt and (crash == "tell" or (crash == "resume" and not is_logged)):
                self.feed(CallStarted(call.id))
                lost = write_lost(call)
                self.feed(CallReturned(call.id, lost))
                self._state.turn.closed.append((lost, True))
                return {}
            ledger = Budget(UsageLimits(), self._resources.budget)
            nested = NestedJournals(self._journal, storable_id(call.id)) if is_logged else None
            budget = None if self._resources.budget is None else ledger
            frame = replace(self._resources.frame, budget=budget, journals=nested)
            await run_in_own_context(partial(run_call, ready, self._resources, None, frame))
            return {} if budget is None else {"spent": ledger.spent}

    async def _find_ready(self, entry: OpenCall) -> Ready[Ctx] | Refused:
        """Return a call that may run as it was decided on, perhaps in another process."""
        if isinstance(entry.prepared, Ready):
            return entry.prepared
        arguments, binding = self._arguments.get(entry.call.id), self._bindings.get(entry.call.id)
        return await self._driver.approvals.prepare_again(entry, arguments, binding)

    # decisions that come later

    async def keep_decision(self, decide: Callable[[], None]) -> None:
        """Take a decision that was awaited, and keep it at once.

        Raises:
            LoopUsageError: It does not fit; nothing is kept.
        """

        async def take_decision() -> JournalValue:
            try:
                decide()
            except Exception as error:
                raise CutError from error
            return {**self._write_mark(), "by": None}

        self._decided += 1
        try:
            with anyio.CancelScope(shield=True):
                await self._keep_entry(f"decided {self._decided}", take_decision)
        except CutError as cut:
            self._decided -= 1
            raise (cut.__cause__ or cut) from None
        self._marked_by = None

    async def _recall_decisions(self, step: Finished) -> bool:
        """Take the decisions that the log has, where some are awaited; return whether there were any."""
        has_any = False
        while isinstance(step.reason, AwaitingApproval):
            name = f"decided {self._decided + 1}"
            value = await self._journal.recall(name)
            if value is None:
                break
            self._decided += 1
            self._replay_entry(name, value)
            self._marked_by, has_any = None, True
        return has_any


_NO_TRACE: Mapping[str, str] = {}
_NO_PLACES: AbstractAsyncContextManager[None] = nullcontext()


def _shorten_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
