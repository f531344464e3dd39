"""One run of a loop: executes the steps of the machine, one at a time, within the time limit and until `cancel`.

This is the part that waits. However a run ends, its transcript is closed before an exception or a cancellation leaves
this module, an error carries the transcript, and observers are notified of the end exactly once. `requests` asks the
model, `approvals` decides on calls, and `snapshot` saves the run. In a durable run each step goes through `journaling`,
its log.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic

import anyio

from toolkit.calls.output import RunMemory
from toolkit.calls.policy import ExecutionPolicy
from toolkit.calls.prepare import Ready
from toolkit.calls.provenance import RunTrust, find_trust
from toolkit.calls.registration import Ctx
from toolkit.calls.run import CallHost, run
from toolkit.chat import ChatRequest, ChatResponse, Message, Provider, ToolCall, ToolResult, Usage, text_of
from toolkit.chat.output import copy_result
from toolkit.dataclass import maker_of
from toolkit.errors import ConfigurationError, ContextTooLongError, LoopError, LoopUsageError, ProviderError
from toolkit.logs import get_logger
from toolkit.loop.approvals import Approvals, describe_call_end, describe_refusal
from toolkit.loop.compaction import ask_compaction
from toolkit.loop.config import (
    AnswerFormat,
    ToolLoopConfig,
    put_system_prompt,
    transcript_of,
    warn_of_unmatched_names,
)
from toolkit.loop.events import LOOP_EVENTS, Compacted, Done, Failed, LoopEvent, ResponseReceived, RunStart
from toolkit.loop.feeds import (
    TURN_BEGUN,
    CallStarted,
    Feed,
    MessagesSteered,
    ModelReplied,
    OpenCall,
    RunClosed,
    RunEnded,
    RunResumed,
    RunWoundUp,
    TranscriptCompacted,
    TranscriptEdited,
    UsageSpent,
)
from toolkit.loop.journal import Journal
from toolkit.loop.limits import (
    LoopFrame,
    RunBudget,
    SubAgentSeat,
    current_call,
    describe_for_log,
    enter_depth,
    find_frame,
    nested_context,
    new_loop_id,
    sub_agent_seat,
)
from toolkit.loop.listener import EventFeed, Listener
from toolkit.loop.middleware import MiddlewareChain, ReplyPolicy, RunInfo, check_states, find_policies, join_middleware
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    Completed,
    Out,
    ResultAsAnswer,
    Snapshot,
    Timeout,
    ToolLoopResult,
    TypedAnswer,
)
from toolkit.loop.requests import ModelRequests, Offer
from toolkit.loop.state import LoopState
from toolkit.runtime.backend import (
    CallClock,
    CancellationMark,
    cancellation_mark,
    find_loop,
    gather,
    read_loop_time,
    run_in_own_context,
    wake_loop,
)
from toolkit.settings import check_setting
from toolkit.tools.function_tool import read_value
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolkit.loop.answers import ExpectedAnswer
    from toolkit.loop.journaling import RunJournal
    from toolkit.loop.snapshot import SavedLoop

_logger = get_logger("toolkit.loop")
_make_reply, _make_result = maker_of(ResponseReceived), maker_of(ToolLoopResult)
_NOTE = "The run ended with this; `messages` of this exception is its transcript, and `usage` what it used."
_NO_USAGE = Usage()
_BETWEEN_TURNS = ("ready", "compacted")
_NO_POLICIES: Mapping[str, ReplyPolicy] = {}


class Run(Generic[Ctx, Out]):
    """One run: a machine, and everything that its steps need. Creating one starts nothing.

    Args:
        provider: Talks to the model.
        registry: The tools.
        prompt: The start; of a saved loop, the settings of its requests.
        ctx: The application's context.
        config: The settings.
        counts_pauses: True where the time between two turns counts, too.
        saved: The saved loop to restore; None for a new one.
        messages: The messages with which a saved loop that has ended is continued.

    Attributes:
        state: The machine.
        feed: Feeds the machine; in a durable run, the feed is also written to the log.
        log: The log of a durable run; None without one.
        loop_id: The id that the run's events carry.
        ctx: The context of the tools.
        policy: The settings for every call.
        prompt_function: Returns the system prompt when the run begins; None if the prompt is a text, or known by now.
        frame: The place of the run, and the limits that loops inside its tools inherit; set when the run begins.
        budget: The budget; None without limits.
        answer: The typed answer, where one is asked for.
        offer: The tools that the next request offers.
        memory: The state that the run keeps between its calls.
        listener: Receives the events; None if nobody does.
        middleware: The chain of middleware; None without middleware.
        seconds_left: The seconds that were left when the last part ended; None without a time limit.
        wish: The argument of `cancel`; None if it was not called.
        outcome: How the run ended; None while it goes on.
        is_over: True once observers were notified of the end.
        is_running: True while a part of the run is executed.
        is_restored: True if the loop was restored from a snapshot.
        turn: The number of parts that were executed: of turns, if they are stepped.
    """

    __slots__ = (
        "_counted",
        "_counts_pauses",
        "_deadline",
        "_feed_of_events",
        "_has_begun",
        "_has_new_reader",
        "_host",
        "_idle",
        "_is_logged",
        "_is_notifying",
        "_reach",
        "_saved_states",
        "_user_ctx",
        "answer",
        "approvals",
        "budget",
        "config",
        "ctx",
        "feed",
        "frame",
        "is_over",
        "is_restored",
        "is_running",
        "listener",
        "log",
        "loop_id",
        "memory",
        "middleware",
        "offer",
        "outcome",
        "policy",
        "prompt_function",
        "registry",
        "requests",
        "seconds_left",
        "state",
        "turn",
        "wish",
    )

    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        prompt: str | Sequence[Message] | ChatRequest,
        ctx: Ctx,
        config: ToolLoopConfig[Out],
        *,
        counts_pauses: bool = False,
        saved: SavedLoop | None = None,
        messages: Sequence[Message] | None = None,
    ) -> None:
        registry = _fit_context(registry, ctx)
        fixed_tools = prompt.tools if isinstance(prompt, ChatRequest) else None
        self.config: ToolLoopConfig[Out] = config
        self.registry: ToolRegistry[Ctx] = registry
        self.memory: RunMemory = RunMemory(config.output.store)
        self._open_machine(prompt, saved)
        self.seconds_left: float | None = config.timeout
        if messages is not None:
            self._resume_with(messages)
        elif saved is not None:
            self.seconds_left = saved.seconds_left
        self._deadline: float | None = None  # while the time runs
        self._counts_pauses = counts_pauses
        self._user_ctx = self.ctx = ctx
        seat = sub_agent_seat.get()
        self.policy: ExecutionPolicy = self._find_policy(seat, saved)
        self.frame: LoopFrame
        self.budget: RunBudget | None = None if config.limits.usage is None else RunBudget(config.limits.usage)
        self.answer: ExpectedAnswer[Any] | None = None if config.answer is None else _expect_answer(config.answer)
        answer_tools: Mapping[str, Any] = {} if self.answer is None else self.answer.list_tools(ctx)
        self.offer: Offer[Ctx] = Offer(self, provider, fixed_tools, answer_tools)
        if seat is None or seat.can_wait:
            self.memory.children = {}
        self.listener: Listener | None = None
        self.middleware: MiddlewareChain | None = None
        self._saved_states: dict[str, Any] = {}
        self._counted = _NO_USAGE
        self._feed_of_events: EventFeed | None = None
        self.is_restored: bool = saved is not None
        self._has_begun = self._has_new_reader = self._is_logged = self._is_notifying = False
        self.is_over: bool = False
        self.is_running: bool = False
        self.turn: int = 0
        self._idle: anyio.Event | None = None  # what `close` waits for
        # Set before `wish` is read, and read after `wish` is set: one of both threads sees what the other has done.
        self._reach: tuple[object, CallClock | anyio.CancelScope] | None = None
        self.wish: tuple[str | None] | None = None
        self.outcome: Completed[Out] | Failed | None = None
        self.approvals: Approvals[Ctx] = Approvals(self)
        self.requests: ModelRequests = ModelRequests(self, provider, prompt)
        if saved is not None:
            self._restore_saved(saved, is_resumed=messages is not None)
        elif self.log is None and len(self.state.messages) > 1:
            self.adopt_texts({}, ())
        if self.log is not None:
            self.log.read_prompt()

    def _find_policy(self, seat: SubAgentSeat | None, saved: SavedLoop | None) -> ExecutionPolicy:
        """Return the policy for the calls of the run: the one of the configuration, unless the run needs its own."""
        policy, rules = self.config.policy, self.registry.permissions
        if seat is not None:
            policy = replace(policy, agent=seat.agent, loop_id=self.loop_id, caller=seat.caller)
        if find_trust() is None and (rules is None or not rules.asks_about_trust):
            return policy
        trust = RunTrust(lambda: self.state.messages, self.registry.registrations.values())
        if saved is not None:
            trust.load(saved.trust)
        return replace(policy, trust=trust)

    def _open_machine(self, prompt: str | Sequence[Message] | ChatRequest, saved: SavedLoop | None) -> None:
        """Create or thaw the machine, and open the log of a durable run."""
        self.prompt_function: Callable[[Ctx], str | Awaitable[str]] | None = None
        config, journal = self.config, _find_journal(self.config)
        self.log: RunJournal[Ctx] | None = None if journal is None else _open_log(journal, self)
        decides, now = (config, time.time) if self.log is None else (self.log.config, self.log.read_time)
        compacts, policies = config.compaction is not None, _NO_POLICIES
        if config.middleware:
            fixed = prompt.tools if isinstance(prompt, ChatRequest) else None
            names = self.registry.names if fixed is None else [tool.name for tool in fixed]
            policies = find_policies(config.middleware, names)
        if saved is None:
            messages = transcript_of(prompt)
            self.state: LoopState = LoopState(messages, decides, compacts=compacts, policies=policies, now=now)
            self.loop_id: str = new_loop_id() if journal is None else journal.run_id
        else:
            self.state = LoopState.thaw(saved.state, decides, compacts=compacts, policies=policies, now=now)
            self.loop_id = saved.loop_id
        self.feed: Callable[[Feed], None] = self.state.feed if self.log is None else self.log.feed

    def _resume_with(self, messages: Sequence[Message]) -> None:
        """Continue after the end with more messages.

        Raises:
            LoopUsageError: The loop awaits decisions.
            TranscriptError: The messages leave a call without its result, or repeat a call's id.
        """
        if self.state.phase not in ("finished", "ready"):
            raise LoopUsageError(
                "the loop awaits decisions, and goes on with those: messages are for one that has ended"
            )
        self.state.feed(RunResumed(messages))

    def _restore_saved(self, saved: SavedLoop, *, is_resumed: bool) -> None:
        """Restore the parts of a saved loop other than its machine."""
        self._saved_states, self._counted = saved.middleware, saved.state.usage
        if saved.middleware:
            frame = find_frame()
            check_states(saved.middleware, (*(() if frame is None else frame.inherited), *self.config.middleware))
        self.approvals.salt = saved.salt
        if self.budget is not None:
            self.budget.restore(saved.requests, saved.tool_calls, saved.state.usage)
        self.approvals.restore(saved)
        if self.answer is not None and not is_resumed:
            self.answer.retries_left = min(self.answer.retries_left, saved.answer_retries)
        self.restore_answer()
        self.restore_uses(saved.uses)
        if self.log is None:
            self.adopt_texts(saved.texts, saved.trusted_texts)
        if self.state.is_finished:
            self.outcome = Completed(self.result())

    def restore_answer(self) -> None:
        """Rebuild the answer object of a loop that ended with one in another process."""
        state, answer, answers = self.state, self.answer, self.memory.answers
        if state.response is None or not isinstance(state.reason, (TypedAnswer, ResultAsAnswer)):
            return
        result = self._find_answer_result()
        if result is None:
            if answer is not None and answer.value is None:
                answer.restore_words(state.response.text, state.checked_answer)
        elif result.call_id not in answers and answer is None:
            registration = self.registry.registrations.get(result.tool_name)
            schema = None if registration is None else getattr(registration.tool, "schema", None)
            answers[result.call_id] = read_value(result.content, getattr(schema, "return_hint", None))
        elif result.call_id not in answers and isinstance(state.reason, TypedAnswer) and answer is not None:
            for ready in self._prepare_answer(result):
                answers[result.call_id] = answer.restore_call(ready, result)

    def _prepare_answer(self, result: ToolResult) -> list[Ready[Ctx]]:
        """Return the call that gave the answer, prepared again; empty if it can't be."""
        calls = () if self.state.response is None else self.state.response.tool_calls
        prepared = self.approvals.prepare([call for call in calls if call.id == result.call_id])
        return [each for each in prepared if isinstance(each, Ready)]

    def _find_answer_result(self) -> ToolResult | None:
        """Return the tool result that is the answer; None if the answer is a text."""
        state = self.state
        if state.response is None or not state.response.tool_calls:
            return None
        answers = [result for result in state.results if result.result_as_answer and not result.is_error]
        return answers[0] if answers else None

    def count_uses(self) -> dict[str, int]:
        """Return how often this run has used each tool with a usage limit."""
        registrations = self.registry.registrations.items()
        uses = {name: each.counter.used_in(self.memory) for name, each in registrations}
        return {name: used for name, used in uses.items() if used}

    def adopt_texts(self, texts: Mapping[str, str], trusted: Container[str]) -> None:
        """Make texts readable that were cut before this run, or in another process that saved them."""
        state = self.state
        self.memory.restore_texts(texts, trusted)
        if len(state.messages) > 1:
            self.memory.adopt_notices(state.messages)
        for entry in state.turn.by_id.values():
            if entry.result is not None:
                entry.result = self.memory.adopt_result(entry.result)

    def restore_uses(self, uses: dict[str, int]) -> None:
        """Restore the uses that another process had counted."""
        for name, used in uses.items():
            if name in self.registry:
                self.registry.registrations[name].counter.restore(self.memory, used)

    # the views: run a part, cancel, close

    async def advance(
        self, *, to_end: bool, feed: EventFeed | None = None, is_edited: bool = False, may_be_cancelled: bool = True
    ) -> None:
        """Run one turn, or all; close the transcript and report the end, however it ends.

        Args:
            to_end: True to run to the end.
            feed: Receives the events besides the hooks.
            is_edited: True if the caller may have changed the transcript.
            may_be_cancelled: False if nobody can call `cancel`, so that no scope is needed for it.

        Raises:
            LoopUsageError: It is running already.
            TranscriptError: The transcript was edited, and is not valid anymore.
        """
        if self.is_running:
            raise LoopUsageError("the loop is running already: a handle runs in one way, and one turn at a time")
        if is_edited:
            self.feed(TranscriptEdited())
        self.is_running, self.is_over = True, False
        self.turn += 1
        frame = find_frame()
        try:
            may_be_cancelled = may_be_cancelled or self.log is not None or self._has_time_limits
            work = partial(self._run_in_time if may_be_cancelled else self._run_steps, feed, to_end)
            if self.middleware is not None or self.config.middleware or (frame is not None and frame.inherited):
                await self._run_part(work)
            else:
                await self._settle_part(work)
        finally:
            self.is_running = False
            if frame is not None and frame.spend is not None:
                self._count_for_caller(frame.spend)
            if self._idle is not None:
                self._idle.set()
                self._idle = None

    def _count_for_caller(self, spend: Callable[[Usage], None]) -> None:
        """Add the usage since the last part to the loop in whose tool this one runs."""
        before, self._counted = self._counted, self.state.usage
        if self._counted != before:
            spend(self._counted - before)

    def cancel(self, reason: str | None = None) -> None:
        """End the run as `Cancelled`; callable from any thread or task, and does not wait."""
        self.wish = self.wish or (reason,)
        reach = self._reach
        if self._feed_of_events is not None:
            self._feed_of_events.is_stopped = True
        if reach is not None:
            loop, scope = reach
            wake_loop(loop, scope.cancel)

    async def close(self) -> None:
        """End the run now, answer open calls, and return when nothing of it runs anymore."""
        if self.is_running:
            self.cancel()
            self._idle = self._idle or anyio.Event()
            await self._idle.wait()
        is_waiting = bool(self.state.open_calls)
        if self.outcome is not None and not is_waiting:
            return
        self.feed(RunClosed())
        self.is_over = False
        with anyio.CancelScope(shield=True):
            if is_waiting:
                await self._run_part(self._begin_to_end)
            elif self._has_begun:
                await self._run_part(_do_nothing)
            else:
                await self._finish_run(None)

    async def _begin_to_end(self) -> None:
        """Begin a part in which the run only ends, so that observers are notified of the end."""
        self._begin_part(None)
        await self._announce_part(waits=False)

    def reset_outcome(self) -> None:
        """Reopen the run after a decision, new or from the log."""
        self.is_over = False
        self.outcome = Completed(self.result()) if self.state.reason is not None else None

    # how a part of the run ends

    async def _run_part(self, work: Callable[[], Awaitable[None]]) -> None:
        """Execute a part of the run, wrapped by the middleware."""
        try:
            if not self._has_begun:
                self._take_place()
        except Exception as error:  # noqa: BLE001 - it is handed to the caller as an outcome
            await self._finish_run(error)
            return
        if self.middleware is not None and self.middleware.has_around_run:
            await self._run_around(self.middleware, work)
        else:
            await self._settle_part(work)

    async def _settle_part(self, work: Callable[[], Awaitable[None]]) -> None:
        """Execute a part of the run, and finish the run if it ends with it, for whatever reason."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - it is handed to the caller as an outcome
            await self._finish_run(error)
        except BaseException:  # a cancellation, or what no `Exception` passes through
            await self._finish_run(None)
            raise
        else:
            if self.state.is_finished:
                await self._finish_run(None)

    async def _run_around(self, chain: MiddlewareChain, work: Callable[[], Awaitable[None]]) -> None:
        """Wrap a part of the run in its middleware, which can't change how the run itself ended."""
        scope, is_reached = anyio.CancelScope(), False

        async def proceed() -> ToolLoopResult[Out] | None:
            nonlocal is_reached
            is_reached = True
            try:
                # A run that was cancelled before this has only its end to report.
                with anyio.CancelScope(shield=self.wish is not None):
                    await self._settle_part(work)
            finally:
                self._expect_cancel(scope, cancellation_mark())
            if isinstance(self.outcome, Failed):
                raise self.outcome.error
            return None if self.outcome is None else self.outcome.result

        try:
            with scope:
                if not self._expect_cancel(scope, cancellation_mark()):
                    scope.cancel()
                await chain.run_around(proceed)
                _require_reached(is_reached=is_reached)
            if self.wish is not None:
                await self._finish_run(None)
        except Exception as error:
            # An error that was raised after the end is the caller's, except for the failure of the run itself.
            if self.is_over and not (isinstance(self.outcome, Failed) and error is self.outcome.error):
                raise
            await self._finish_run(error)
        except BaseException:
            await self._finish_run(None)
            raise
        finally:
            self._reach = None

    async def _finish_run(self, error: Exception | None) -> None:
        """End the run, once: close the transcript, store the outcome, and notify observers, shielded."""
        if self.is_over:
            return
        self.is_over = True
        if self.state.reason is None:
            self.feed(RunEnded(Cancelled(*(self.wish or ())) if error is None else None))
        steering = self.config.steering
        if steering is not None:  # what reached no model stays in the queue
            steering.put_back(self.state.take_undelivered())
        self.outcome = outcome = Completed(self.result()) if error is None else self._make_failure(error)
        self._log_end(outcome)
        last, closed = self.approvals.pending_events, self.state.turn.closed
        if self.listener is not None and self._is_notifying:
            self._is_notifying = False
            while closed:
                last.append(self._describe_closed(*closed.pop(0)))
            if isinstance(outcome, Failed):
                last.append(outcome)
            elif Done in self.listener.kinds:  # the list of messages is the caller's, and not the observers'
                last.append(Done(_copy_result(outcome.result)))
            await self.listener.emit_last(last)
        last.clear()

    def _make_failure(self, error: Exception) -> Failed:
        """Return the end of a failed run; the error carries the transcript."""
        state = self.state
        if isinstance(error, (LoopError, ProviderError)):
            if error.usage is not None and not error.messages:  # of the request itself, as its provider reported
                self.feed(UsageSpent(error.usage))
            error.usage = state.usage
            error.messages = tuple(state.messages)
        else:  # an exception of the application keeps its type, and carries the same
            vars(error).update(messages=tuple(state.messages), usage=state.usage)
            if _NOTE not in getattr(error, "__notes__", ()):
                error.add_note(_NOTE)
        return Failed(error=error, iterations=state.iterations, usage=state.usage, messages=tuple(state.messages))

    def _log_end(self, outcome: Completed[Out] | Failed) -> None:
        """Log the end of a run whose beginning was logged."""
        is_logged, self._is_logged = self._is_logged, False
        if not is_logged or not _logger.isEnabledFor(logging.INFO):
            return
        state = self.state
        ending = outcome.result.ending if isinstance(outcome, Completed) else type(outcome.error).__name__
        text = "run %s ended as %s: loop %s, %d requests, %d tokens"
        run_id, tokens, facts = self.frame.run_id, state.usage.total_tokens, describe_for_log(self.frame)
        if state.response is not None:  # of a fallback, the one that answered
            name = state.response.provider or _name_provider(self.requests.provider)
            facts |= {"provider": name, "model": state.response.model}
        _logger.info(text, run_id, ending, self.loop_id, state.iterations, tokens, extra=facts)

    def result(self) -> ToolLoopResult[Out]:
        """Return the result of the loop."""
        state = self.state
        if state.reason is None:
            raise LoopUsageError("the loop has not ended yet")
        text = "" if state.response is None else text_of(state.response.message.content)
        output: Any = None
        problems: tuple[str, ...] = ()
        if isinstance(state.reason, (ResultAsAnswer, TypedAnswer)):
            given = self._find_answer_result()
            text = text if given is None else given.text
            output, problems = self._find_output(given), self._find_answer_problems(given)
        return _make_result(
            text=text,
            output=output,
            answer_problems=problems,
            response=state.response,
            messages=state.settled_messages(),
            usage=state.usage,
            iterations=state.iterations,
            tool_rounds=state.tool_rounds,
            reason=state.reason,
            snapshot=self.save() if isinstance(state.reason, AwaitingApproval) else None,
        )

    def _find_output(self, given: ToolResult | None) -> Any:
        """Return the answer object: of the type that was asked for, or returned by a tool."""
        if self.answer is not None and not isinstance(self.state.reason, TypedAnswer):
            return None
        if given is not None:
            return self.memory.answers.get(given.call_id)
        return None if self.answer is None else self.answer.value

    def _find_answer_problems(self, given: ToolResult | None) -> tuple[str, ...]:
        """Return the problems of the items that were left out of the answer."""
        wanted, answer = self.config.answer, self.answer
        if wanted is None or answer is None or not wanted.keep_valid or not isinstance(self.state.reason, TypedAnswer):
            return ()
        if given is None:
            return answer.problems
        return tuple([each for ready in self._prepare_answer(given) for each in answer.list_problems(ready.arguments)])

    def save(self) -> Snapshot:
        """Return the loop as plain JSON; see `ToolLoopHandle.snapshot`.

        Raises:
            LoopUsageError: Its system prompt is not known yet.
        """
        if self.prompt_function is not None:
            raise LoopUsageError("system_prompt is a function, which is called when the run begins: save it after that")
        from toolkit.loop.snapshot import SavedLoop, dump_snapshot, save_request  # noqa: PLC0415 - few loops are saved

        chain, budget, approvals = self.middleware, self.budget, self.approvals
        texts = self.memory.save_texts(self.config.output.saved_chars)
        saved = SavedLoop(
            loop_id=self.loop_id,
            salt=approvals.salt,
            state=self.state.freeze(),
            request=save_request(self.requests.request, self.offer.fixed_tools),
            bindings=approvals.list_bindings(),
            arguments=approvals.dump_modified(),
            seconds_left=self.seconds_left,
            requests=0 if budget is None else budget.requests,
            tool_calls=0 if budget is None else budget.tool_calls,
            answer_retries=0 if self.answer is None else self.answer.retries_left,
            uses=self.count_uses(),
            texts=texts,
            trusted_texts=self.memory.list_trusted(texts),
            middleware=self._saved_states if chain is None else chain.save_states(),
            trust={} if self.policy.trust is None else self.policy.trust.save(),
        )
        return dump_snapshot(saved, [asdict(each) for each in approvals.list_pending()], self.config.signing_key)

    # the beginning

    @property
    def _has_time_limits(self) -> bool:
        """True where the loop, or a tool, has a time limit."""
        if self.seconds_left is not None or self.config.timeouts.tool is not None:
            return True
        return self.registry.findings.has_time_limits

    async def _run_steps(self, feed: EventFeed | None, to_end: bool) -> None:
        """Run without a time limit, where nobody can call `cancel`."""
        self._begin_part(feed)
        if self._must_announce:
            await self._announce_part(waits=True)
        await self._drive_steps(to_end=to_end)

    async def _run_in_time(self, feed: EventFeed | None, to_end: bool) -> None:
        """Run within the loop's time limit, and until `cancel`; one timer serves all tools with a limit."""
        log, mark, is_late = self.log, cancellation_mark(), False
        has_limit, end = self.seconds_left is not None, math.inf
        if has_limit and log is None:  # a log is read whatever the time: it says how much of that is left
            end = self.start_time(read_loop_time(mark))
        clock = CallClock(end=end)
        try:
            with clock:
                clock.open(mark)
                is_wanted = self._expect_cancel(clock, mark)
                self._begin_part(feed, clock)
                if self._must_announce:
                    await self._announce_part(waits=is_wanted)
                is_late = has_limit and read_loop_time(mark) >= end
                if log is not None:
                    if not is_wanted:
                        clock.cancel()  # after the log was read
                    await log.drive(partial(self._drive_steps, to_end=True))
                elif is_wanted and not is_late:
                    await self._drive_steps(to_end=to_end)
        finally:
            if has_limit or log is not None:
                self._stop_time(read_loop_time(mark))
            self._reach = None
        if self.wish is not None:
            self.feed(RunEnded(Cancelled(*self.wish)))
        elif is_late or clock.cancelled_caught:
            self.feed(RunEnded(Timeout(self.timeout)))

    def start_time(self, now: float, left: float | None = None) -> float:
        """Start the time of the loop, with `left` seconds if another process has counted them; return its end."""
        if left is not None:
            self.seconds_left, self._deadline = left, None
        if self._deadline is None and self.seconds_left is not None:
            self._deadline = now + self.seconds_left
        return math.inf if self._deadline is None else self._deadline

    def _stop_time(self, now: float) -> None:
        if self._deadline is not None:
            self.seconds_left = self._deadline - now if self._deadline > now else 0.0
            if not self._counts_pauses:
                self._deadline = None

    @property
    def timeout(self) -> float:
        """The time limit of the loop, in seconds; 0 without one."""
        return self.config.timeout or 0.0

    def _expect_cancel(self, scope: CallClock | anyio.CancelScope, mark: CancellationMark) -> bool:
        """Have `cancel` cancel this scope from now on; return False if it was called already."""
        self._reach = (find_loop(mark), scope)
        return self.wish is None

    def _begin_part(self, feed: EventFeed | None, clock: CallClock | None = None) -> None:
        """Set up a part of the run: its place among nested loops, its listener, the host of its calls."""
        self.memory.run_clock, self.memory.loop_id = clock, self.loop_id
        if not self._has_begun:
            self._take_place()
        self._has_new_reader = feed is not self._feed_of_events
        if self.listener is None or self._has_new_reader:
            self._set_listener(feed)
        self._host = host = CallHost(self.ctx, self.policy)
        host.depth, host.memory = self.frame.depth, self.memory
        host.deadlines = None if clock is None else clock.deadlines
        host.report = self.feed if self.answer is None else self.requests.report_call
        host.begin = self._begin_call
        if not self._is_logged:
            self._is_logged = True
            frame = self.frame
            if _logger.isEnabledFor(logging.INFO):
                text, facts = "run %s begins: loop %s at depth %d", describe_for_log(frame)
                _logger.info(text, frame.run_id, self.loop_id, frame.depth - 1, extra=facts)
            findings = self.registry.findings
            if findings.names_to_approve and self.config.on_tool_call is None:
                self.approvals.warn_if_nobody_is_asked()
            detection = self.config.loop_detection
            if findings.unmatched or (detection is not None and detection.exempt):
                warn_of_unmatched_names(self.registry, self.config, frame.run_id)

    @property
    def _must_announce(self) -> bool:
        """True if something has to be awaited before the first step of a part."""
        if self.listener is not None or self.prompt_function is not None or self.config.steering is not None:
            return True
        return bool(self.approvals.pending_events)

    async def _announce_part(self, *, waits: bool) -> None:
        """Call the function of the system prompt, if it is one, and notify observers that the run begins or goes on.

        It waits for the reader of the feed, unless the run was cancelled already and so has none.
        """
        if self.prompt_function is not None and self.log is None:
            self.take_system_prompt(await self.find_system_prompt())
        if self.listener is not None:
            await self._emit_beginning(self.listener, waits=waits)
        if waits and self.log is None:
            await self._resume_run()

    async def _emit_beginning(self, listener: Listener, *, waits: bool) -> None:
        """Emit the start of the run, once, and to each new reader."""
        if self._is_notifying:
            if self._has_new_reader and waits:  # of a loop that was stepped before
                await listener.emit_to_reader(self._make_start())
            return
        self._is_notifying = True
        if not waits:
            await listener.emit_last([self._make_start()])
        elif self.log is None and RunStart in listener.kinds:  # else it is emitted when the log was read
            left = listener.emit(self._make_start())
            if left is not None:
                await left

    async def emit_start(self, *, is_resumed: bool) -> None:
        """Notify observers that the run begins, or goes on from its log."""
        if self.listener is not None and self._is_notifying:
            await self.listener.emit_all([replace(self._make_start(), is_resumed=is_resumed)])

    def _make_start(self) -> RunStart:
        frame = self.frame
        return RunStart(
            depth=frame.depth - 1, parent_loop_id=frame.parent_loop_id, message_count=len(self.state.messages)
        )

    async def find_system_prompt(self) -> str:
        """Return the system prompt that the application's function returns."""
        assert self.prompt_function is not None
        given = self.prompt_function(self._user_ctx)
        text = await given if isawaitable(given) else given
        check_setting("what the function of system_prompt returns", text, str)
        return text

    def take_system_prompt(self, text: str) -> None:
        """Put a system prompt before the transcript; an empty one is left out."""
        self.prompt_function = None
        if text:
            put_system_prompt(self.state.messages, text)

    def _take_place(self) -> None:
        """Enter the nesting of loops, and inherit the limits and middleware of the outer ones.

        Raises:
            MaxDepthExceededError: The loop is nested too deep.
        """
        frame = enter_depth(self._user_ctx, self.config.max_depth, self.loop_id)
        frame.spend, frame.stop = self._count_usage, self._stop_run
        if self.config.metadata:
            frame.metadata = {**(frame.metadata or {}), **self.config.metadata}
        if self.budget is None:
            self.budget = frame.budget
        else:
            self.budget.nest_in(frame.budget)
            frame.budget = self.budget
        self.frame = frame
        if self._user_ctx is not None:
            self.ctx = nested_context(self._user_ctx, frame)
        if self.config.middleware or frame.inherited:
            self._gather_middleware(frame)
        self._has_begun = True

    def find_budget(self) -> RunBudget | None:
        """Return the budget that calls are reserved from; a decision may need it before the run begins."""
        frame = None if self._has_begun else find_frame()
        if frame is None:
            return self.budget
        if self.budget is None:
            return frame.budget
        self.budget.nest_in(frame.budget)
        return self.budget

    def _gather_middleware(self, frame: LoopFrame) -> None:
        """Create the chain of the run's own and inherited middleware."""
        outer = frame.inherited
        members = join_middleware(outer, self.config.middleware)
        frame.inherited = tuple([each for each in members if each.is_inherited])
        chain = self.middleware = MiddlewareChain(self._describe_run(), members, self._saved_states, outer)
        if chain.has_around_call or chain.guards:
            around = chain.call_around if chain.has_around_call else None
            self.policy = replace(self.policy, around=around, guards=chain.guards)

    def _describe_run(self) -> RunInfo[Ctx]:
        """Return the description of the run for middleware."""
        frame, call, provider = self.frame, current_call.get(), self.requests.provider
        return RunInfo(
            run_id=frame.run_id,
            loop_id=self.loop_id,
            parent_loop_id=frame.parent_loop_id,
            parent_call_id=None if frame.parent_loop_id is None or call is None else call[1],
            depth=frame.depth - 1,
            agent=self.policy.agent,
            provider=_name_provider(provider),
            model=str(getattr(provider, "model", "")),
            tool_names=self.registry.names,
            metadata=frame.metadata or {},
            ctx=self.ctx,
            is_restored=self.is_restored,
        )

    def _set_listener(self, feed: EventFeed | None) -> None:
        """Deliver all events to the hooks and to `feed` from now on."""
        chain, config = self.middleware, self.config
        hooks, guards = ((), ()) if chain is None else (chain.event_hooks, chain.update_guards)
        self._feed_of_events = feed
        if feed is None and config.on_event is None and not hooks and not guards:
            self.listener = None
        else:
            self.listener = Listener(
                config.on_event,
                hooks,
                guards,
                timeout=config.timeouts.hook,
                on_event_may_wait=config.on_event_may_wait,
                run_id=self.frame.run_id,
                loop_id=self.loop_id,
                feed=feed,
            )
        if self.listener is not self.policy.observer:
            kinds = LOOP_EVENTS if self.listener is None else self.listener.kinds
            self.policy = self.policy.observed_by(self.listener, kinds)

    def _stop_run(self, reason: str) -> None:
        if not self.state.is_finished:
            self.feed(RunWoundUp(Aborted(reason)))

    def _count_usage(self, usage: Usage) -> None:
        self.feed(UsageSpent(usage))

    # the steps

    async def _drive_steps(self, *, to_end: bool) -> None:
        """Drive the loop to its end, or to the next boundary between turns."""
        # For example, a question that takes one approved call: a turn begins and asks the model, an approver is asked,
        # the call runs; the next turn begins and asks the model, and then the machine is finished.
        state, log = self.state, self.log
        steps, decide = (self, self.approvals.ask) if log is None else (log, log.decide_calls)
        while True:
            phase = state.phase
            if phase in _BETWEEN_TURNS:
                await steps.take_turn()
            elif phase == "deciding":
                await decide()
            elif phase == "running" and (calls := state.next_calls()):
                await steps.run_unit(calls)
                if state.phase == "finished" and self.config.steering is not None:
                    await steps.take_late()
            elif log is None or not await log.recall_decisions():
                return
            if state.turn.closed:
                await self.emit_refusals()
            if state.phase == "ready" and not to_end:
                return

    async def _resume_run(self) -> None:
        """Emit the events of deferred decisions, and read messages that were steered while nothing ran."""
        state, pending, steering = self.state, self.approvals.pending_events, self.config.steering
        while pending and not state.is_finished:
            await self.emit_all([pending.pop(0)])
        if steering is not None and state.phase == "running":
            self.steer(steering.take_steered())

    async def take_turn(self) -> None:
        """Begin a turn: read steered messages, then compact the transcript, or ask the model and take its reply."""
        state, steering = self.state, self.config.steering
        if steering is not None and state.phase == "ready":
            self.steer(steering.take_steered())
        self.feed(TURN_BEGUN)
        if state.phase == "compacting":
            await self._compact_transcript()
        if state.phase != "asking" or (response := await self.requests.ask()) is None:
            return
        self.feed(ModelReplied(response))
        if self.policy.trust is not None:
            self.policy.trust.take_metadata(response.metadata)
        has_calls = self.state.phase == "preparing"
        if has_calls:
            calls = state.calls_to_prepare
            prepared = self.approvals.prepare_lone(calls)
            self.feed(prepared or await self.approvals.prepare_turn(calls, is_long=len(calls) == 1))
        if self.answer is not None or steering is not None:
            await self.requests.judge_reply(response, has_calls=has_calls)
        left = None if self.listener is None else self._emit_reply(self.listener, response)
        if left is not None:
            await left
        if state.detected is not None:
            await self.emit_all([state.detected])

    def _emit_reply(self, listener: Listener, response: ChatResponse) -> Awaitable[None] | None:
        """Emit the reply as the machine took it: ids of calls may have been repaired."""
        if ResponseReceived not in listener.kinds:
            return None
        return listener.emit(_make_reply(iteration=self.state.iterations, response=self.state.response or response))

    async def take_late(self) -> None:
        """Continue with messages that were sent while a tool was producing the answer."""
        steering = self.config.steering
        if steering is not None and isinstance(self.state.reason, (TypedAnswer, ResultAsAnswer)):
            self.steer(steering.take_steered() or steering.take_follow_up())

    async def shorten_refused(self, error: ContextTooLongError) -> bool:
        """Compact a transcript that the model refused as too long; return whether it has become shorter."""
        if self.config.compaction is None:
            return False
        before = list(self.state.messages)
        await self._compact_transcript(is_too_long=True)
        if before == self.state.messages:
            return False
        if error.usage is not None:
            self.feed(UsageSpent(error.usage))
        return True

    async def _compact_transcript(self, *, is_too_long: bool = False) -> None:
        """Ask the compaction for a shorter transcript."""
        compaction, messages = self.config.compaction, self.state.messages
        assert compaction is not None
        before = len(messages)
        shorter = await ask_compaction(compaction, messages, is_too_long=is_too_long)
        if before and not shorter:
            raise LoopUsageError("the compaction left nothing of the transcript: keep at least the newest message")
        if is_too_long or len(shorter) != before:
            self.requests.forget_earlier_tools()
        self.feed(TranscriptCompacted(shorter))
        if len(shorter) != before:
            await self.emit_all([Compacted(before=before, after=len(shorter))])

    def steer(self, messages: Sequence[Message]) -> None:
        """Feed messages from outside to the machine, if there are any."""
        if messages:
            self.feed(MessagesSteered(messages))

    async def emit_refusals(self) -> None:
        """Emit the events of the calls that the machine answered itself."""
        closed = self.state.turn.closed
        while closed:
            await self.emit_all([self._describe_closed(*closed.pop(0))])

    async def emit_all(self, events: Iterable[LoopEvent]) -> None:
        """Emit events, if somebody receives them, and wait until each is delivered."""
        if self.listener is not None:
            await self.listener.emit_all(events)

    def _describe_closed(self, call: ToolCall, result: ToolResult, has_started: bool) -> LoopEvent:
        registrations = self.registry.registrations
        if has_started and self.listener is not None:
            has_started = result.call_id not in self.listener.unemitted_starts
        describe = describe_call_end if has_started else describe_refusal
        return describe(result, registrations, call.program)

    def run_unit(self, calls: Sequence[OpenCall]) -> Awaitable[None]:
        """Run calls to their results, as many at once as may; a message that was steered meanwhile skips them.

        Each call has a copy of the context variables to itself.
        """
        steering = self.config.steering
        if steering is not None:
            steered = steering.take_steered()
            if steered:
                self.steer(steered)
                return _do_nothing()
        listener = self.listener
        ready: Ready[Ctx] = calls[0].prepared
        has_pump = listener is not None and listener.needs_pump
        if len(calls) == 1 and not (has_pump and ready.registration.may_report):
            # Middleware around a call may have a scope open when the call ends, inside of which no scope may be left.
            clock = None if self.policy.around is not None else self.memory.run_clock
            return run_in_own_context(run, ready, self._host, clock)
        if len(calls) == 1:
            return self.run_beside_pump(lambda: run_in_own_context(run, ready, self._host))
        run_calls = partial(
            gather, [partial(run, each.prepared, self._host) for each in calls], self.config.execution.limit
        )
        may_report = any(each.prepared.registration.may_report for each in calls)
        return self.run_beside_pump(run_calls) if may_report else run_calls()

    def host_under(self, frame: LoopFrame) -> CallHost[Ctx]:
        """Return a host for calls in which nested loops inherit another frame than the run's."""
        return replace(self._host, begin=partial(self._begin_call, frame=frame))

    def _begin_call(self, call_id: str, frame: LoopFrame | None = None) -> None:
        """Feed the start of a call, in its context."""
        current_call.set((frame or self.frame, call_id))  # nobody else has this context
        if self.policy.trust is not None:
            self.policy.trust.enter_call()
        self.feed(CallStarted(call_id))

    async def run_beside_pump(self, run_calls: Callable[[], Awaitable[object]]) -> None:
        """Run calls while another task delivers their reports, if a hook may wait."""
        if self.listener is None or not self.listener.needs_pump:
            await run_calls()
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.listener.pump)
                await run_calls()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # A `BaseException` is raised as itself; beside it there can only be cancellations.
            cancelled = anyio.get_cancelled_exc_class()
            raise next(error for error in group.exceptions if not isinstance(error, cancelled)) from None


def _fit_context(registry: ToolRegistry[Ctx], ctx: Ctx) -> ToolRegistry[Ctx]:
    """Return the tools that are available in a context.

    Raises:
        ConfigurationError: A tool needs a context, and there is none.
    """
    need = registry.find_context_need() if ctx is None else None
    if need is not None:
        raise ConfigurationError(f"{need}: pass it as ctx")
    return registry.for_context(ctx) if registry.depends_on_context else registry


def _name_provider(provider: Provider) -> str:
    return str(getattr(provider, "name", "") or type(provider).__name__)


def _find_journal(config: ToolLoopConfig[Any]) -> Journal | None:
    """Return the journal of a new loop: its own, or one nested in that of the outer loop."""
    frame = find_frame()
    if config.journal is not None or frame is None or frame.journals is None:
        return config.journal
    return frame.journals.open_next()


def _open_log(journal: Journal, run: Run[Any, Any]) -> RunJournal[Any]:
    from toolkit.loop.journaling import RunJournal  # noqa: PLC0415 - it is slow to import, and few runs are durable

    frame = find_frame()
    return RunJournal(journal, run, None if frame is None else frame.journals)


def _expect_answer(wanted: AnswerFormat[Any]) -> ExpectedAnswer[Any]:
    from toolkit.loop.answers import ExpectedAnswer  # noqa: PLC0415 - it needs Pydantic, which is slow to import

    return ExpectedAnswer(wanted)


def _copy_result(result: ToolLoopResult[Out]) -> ToolLoopResult[Out]:
    """Return a copy of a result whose list of messages, and their details, may be changed."""
    messages = result.messages.copy()
    for index, each in enumerate(messages):
        if type(each) is ToolResult and each.details is not None:
            messages[index] = copy_result(each)
    copied = object.__new__(type(result))
    copied.__dict__.update(result.__dict__)
    copied.__dict__["messages"] = messages
    return copied


async def _do_nothing() -> None: ...


def _require_reached(*, is_reached: bool) -> None:
    if not is_reached:
        raise LoopUsageError("the loop did not run: around_run of a middleware hid the error of an inner one")
