"""Does what the machine asks for, one step at a time: the only place of a loop that waits.

Whatever happens, the transcript is closed before anything passes out of here: an error carries it, a cancellation goes
on after it. What asks the model is in `requests`, what decides on calls in `approvals`, what runs them in `dispatch`,
what saves in `snapshot`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

import anyio

from toolkit.calls.handler import Ctx
from toolkit.chat import ChatRequest, Message, Provider, Usage, text_of
from toolkit.errors import ConfigurationError, LoopError, LoopUsageError, ProviderError
from toolkit.loop.answer import ExpectedAnswer
from toolkit.loop.approvals import Approvals, CallBinder
from toolkit.loop.budget import Budget
from toolkit.loop.closing_events import copy_outcome, take_closing_event
from toolkit.loop.compaction import ask_compaction
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.depth import LoopFrame, enter_depth, nested_context, new_loop_id
from toolkit.loop.dispatch import run_unit
from toolkit.loop.events import Compacted, Done, Failed, RunStart
from toolkit.loop.feeds import TURN_BEGUN, Feed, RunEnded, RunWoundUp, TranscriptCompacted, UsageSpent
from toolkit.loop.listener import EventFeed, Listener
from toolkit.loop.middleware import MiddlewareChain, check_states, join_middleware
from toolkit.loop.nested_journals import find_journal
from toolkit.loop.outcome import Aborted, AwaitingApproval, Out, ResultAsAnswer, Snapshot, ToolLoopResult, TypedAnswer
from toolkit.loop.prompt import transcript_of
from toolkit.loop.requests import ModelRequests
from toolkit.loop.resources import LoopResources, find_own_policy, sub_agent_seat
from toolkit.loop.state import LoopState
from toolkit.loop.steering import Steering
from toolkit.loop.steps import AskApproval, CallModel, Compact, RunTools
from toolkit.runtime.call_clock import CallClock
from toolkit.tools.registry import ToolRegistry

__all__ = ["Driver"]

if TYPE_CHECKING:
    from toolkit.loop.journal import Journal
    from toolkit.loop.journaling import JournaledSteps
    from toolkit.loop.snapshot import SavedLoop

_logger = logging.getLogger("toolkit.loop")


class Driver(Generic[Ctx, Out]):
    """Drives one machine against one provider and one registry. Made, it does nothing; `begin` comes first.

    Attributes:
        has_begun: True once the run has entered its place.
        journaled: Drives the machine in place of `run_turns` where the run is kept in a log.
        has_middleware: True where middleware serves the run; before it began, that of its own configuration.
    """

    __slots__ = (
        "_approvals",
        "_budget",
        "_feed",
        "_is_logged",
        "_is_restored",
        "_is_telling",
        "_requests",
        "_resources",
        "_saved_states",
        "_user_ctx",
        "feed",
        "has_begun",
        "has_middleware",
        "journaled",
        "loop_id",
        "state",
    )

    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        prompt: str | Sequence[Message] | ChatRequest,
        ctx: Ctx,
        config: ToolLoopConfig[Out],
        *,
        saved: SavedLoop | None = None,
    ) -> None:
        _check_context(registry, ctx)
        compacts = config.compaction is not None
        journal = find_journal(config)
        self.journaled: JournaledSteps[Ctx] | None = None if journal is None else _drive_by_journal(journal, config)
        decides, now = config, time.time
        if self.journaled is not None:
            decides, now = self.journaled.config, self.journaled.read_time
        if saved is None:
            self.state: LoopState = LoopState(transcript_of(prompt), decides, compacts=compacts, now=now)
        else:
            self.state = LoopState.thaw(saved.state, decides, compacts=compacts, now=now)
        self.feed: Callable[[Feed], None] = (
            self.state.feed if self.journaled is None else self.journaled.record_feeds(self.state)
        )
        self._budget = None if config.limits.usage is None else Budget(config.limits.usage)
        if saved is not None and self._budget is not None:
            self._budget.restore(saved.requests, saved.tool_calls, saved.state.usage)
        fixed_tools = prompt.tools if isinstance(prompt, ChatRequest) else None
        if config.order is not None:
            config.order.check_names(registry.names if fixed_tools is None else [tool.name for tool in fixed_tools])
        run_id = new_loop_id() if self.journaled is None else self.journaled.run_id
        self.loop_id: str = run_id if saved is None else saved.loop_id
        self._user_ctx = ctx
        self.has_begun: bool = False
        self.has_middleware: bool = bool(config.middleware)
        self._is_telling = self._is_logged = False
        self._is_restored = saved is not None
        self._saved_states: dict[str, Any] = {} if saved is None else saved.middleware
        check_states(self._saved_states, config.middleware)
        self._feed: EventFeed | None = None
        self._resources: LoopResources[Ctx] = LoopResources(
            state=self.state,
            feed=self.feed,
            config=config,
            registry=registry,
            ctx=ctx,
            frame=LoopFrame(1, config.max_depth),
            budget=self._budget,
            answer=None if config.answer is None else ExpectedAnswer(config.answer),
            policy=find_own_policy(config, sub_agent_seat.get(), self.loop_id),
            fixed_tools=fixed_tools,
        )
        salt = None if saved is None else saved.salt
        self._approvals = Approvals(self._resources, CallBinder(self.loop_id, config.signing_key, salt))
        self._requests = ModelRequests(
            self._resources, self._approvals, provider, prompt if isinstance(prompt, ChatRequest) else None
        )
        if saved is not None:
            self._approvals.restore(saved)
            self._requests.restore(saved)
            self._resources.resume(saved.uses, saved.cut_texts)
        if self.journaled is not None:
            self.journaled.serve(self, self._resources, self._requests, is_restored=saved is not None)

    async def begin(self, feed: EventFeed | None, scope: anyio.CancelScope | None = None, *, waits: bool) -> None:
        """Take a place under the loops round this one, and tell observers that the run begins or goes on.

        Args:
            feed: Takes the events besides the hooks.
            scope: Tells tools that the run is to end.
            waits: True to wait for the reader of the feed; a run that was cancelled already has none.

        Raises:
            MaxDepthExceededError: The loop is nested too deep.
        """
        resources = self._resources
        resources.memory.run_scope, resources.memory.loop_id = scope, self.loop_id
        if not self.has_begun:
            self._take_place()
        if resources.listener is None or feed is not self._feed:
            self._set_listener(feed)
        resources.prepare_host()
        listener, frame = resources.listener, resources.frame
        if not self._is_logged:
            self._is_logged = True
            _logger.info("run %s begins: loop %s at depth %d", frame.run_id, self.loop_id, frame.depth - 1)
            if resources.config.on_tool_call is None and len(resources.registry):
                self._approvals.warn_if_nobody_is_asked()
        if listener is None or self._is_telling:
            return
        self._is_telling = True
        if not waits:
            await listener.emit_last([self._make_start()])
        elif self.journaled is None:  # else it is told when the log was read
            await listener.emit(self._make_start())

    async def tell_start(self, *, is_resumed: bool) -> None:
        """Tell observers that the run begins, or that it goes on with what its log has."""
        if self._resources.listener is not None and self._is_telling:
            await self._resources.listener.emit(replace(self._make_start(), is_resumed=is_resumed))

    def _make_start(self) -> RunStart:
        frame = self._resources.frame
        return RunStart(
            depth=frame.depth - 1, parent_loop_id=frame.parent_loop_id, message_count=len(self.state.messages)
        )

    def find_middleware(self) -> MiddlewareChain | None:
        """Take a place under the loops round this one, where the run begins; return the middleware that serves it.

        Raises:
            MaxDepthExceededError: The loop is nested too deep.
        """
        if not self.has_begun:
            self._take_place()
        return self._resources.middleware

    def _take_place(self) -> None:
        resources = self._resources
        frame = enter_depth(self._user_ctx, resources.config.max_depth, self.loop_id)
        frame.spend, frame.stop = self._count_usage, self._stop_run
        if self._budget is None:
            resources.budget = frame.budget
        else:
            self._budget.nest_in(frame.budget)
            frame.budget = self._budget
        resources.frame, resources.ctx = frame, nested_context(self._user_ctx, frame)
        if resources.config.middleware or frame.inherited:
            self._gather_middleware(frame)
        self.has_begun = True

    def _gather_middleware(self, frame: LoopFrame) -> None:
        """Have this run served by its own middleware, and by what it inherits."""
        resources, policy = self._resources, self._resources.policy
        members = join_middleware(frame.inherited, resources.config.middleware)
        frame.inherited = tuple([each for each in members if each.is_inherited])
        run = resources.describe_run(self.loop_id, self._requests.provider, is_restored=self._is_restored)
        chain = MiddlewareChain(run, members, self._saved_states)
        resources.middleware = chain
        self.has_middleware = True
        if chain.has_around_call or chain.guards:
            around = chain.call_around if chain.has_around_call else None
            resources.policy = replace(policy, around=around, guards=chain.guards)

    def _stop_run(self, reason: str) -> None:
        if not self.state.is_finished:
            self.feed(RunWoundUp(Aborted(reason)))

    def _count_usage(self, usage: Usage) -> None:
        self.feed(UsageSpent(usage))

    def _set_listener(self, feed: EventFeed | None) -> None:
        resources, self._feed = self._resources, feed
        chain, config = resources.middleware, resources.config
        hooks, guards = ((), ()) if chain is None else (chain.event_hooks, chain.update_guards)
        if feed is None and config.on_event is None and not hooks and not guards:
            resources.listen(None)
            return
        resources.listen(
            Listener(
                config.on_event,
                hooks,
                guards,
                timeout=config.timeouts.hook,
                run_id=resources.frame.run_id,
                loop_id=self.loop_id,
                feed=feed,
            )
        )

    async def run_turns(self, *, to_end: bool) -> None:
        """Drive the loop to its end, or to the next boundary between turns."""
        # For example, a question that takes one approved call: `CallModel`, `AskApproval`, `RunTools`, then between the
        # turns what was steered, then `CallModel` and `Finished`.
        if self.journaled is not None:
            await self.journaled.run_turns()
            return
        state, steering = self.state, self._resources.config.steering
        with CallClock() as clock:
            self._resources.host.deadlines = clock.deadlines
            is_between_turns = not state.is_finished
            while True:
                if is_between_turns and (steering is not None or self._approvals.pending_events):
                    await self._go_on(steering)
                if state.phase == "ready" or state.phase == "compacted":
                    self.feed(TURN_BEGUN)
                step = state.next_step()
                if isinstance(step, CallModel):
                    await self._requests.ask(step)
                elif isinstance(step, AskApproval):
                    await self._approvals.ask(step)
                elif isinstance(step, RunTools):
                    await run_unit(step, self._resources, clock)
                elif isinstance(step, Compact):
                    await self.compact_transcript(step)
                else:
                    return
                if state.turn.closed:
                    await self.tell_refusals()
                is_between_turns = state.phase == "ready"
                if is_between_turns and not to_end:
                    return

    @property
    def timeout(self) -> float:
        """How long the loop may take, in seconds; 0 where it is not limited."""
        return self._resources.config.timeout or 0.0

    def fail(self, error: Exception) -> None:
        """Close the transcript, and hang it on the error where that can carry one."""
        self.feed(RunEnded(None))
        if isinstance(error, (LoopError, ProviderError)):
            if error.usage is not None and not error.messages:  # by the request itself, as its provider told
                self.feed(UsageSpent(error.usage))
            error.usage = self.state.usage
            error.messages = tuple(self.state.messages)

    def return_undelivered(self) -> None:
        """Give back to the queue what was steered and reached no model before the end."""
        steering = self._resources.config.steering
        if steering is not None:
            steering.put_back(self.state.take_undelivered())

    def failure(self, error: Exception) -> Failed:
        """Return what is told of an error that the loop can't go on after."""
        state = self.state
        return Failed(error=error, iterations=state.iterations, usage=state.usage, messages=tuple(state.messages))

    def _log_end(self, end: Done | Failed) -> None:
        run_id, state = self._resources.frame.run_id, self.state
        ending = end.result.reason.kind if isinstance(end, Done) else type(end.error).__name__
        said = "run %s ended as %s: loop %s, %d requests, %d tokens"
        _logger.info(said, run_id, ending, self.loop_id, state.iterations, state.usage.total_tokens)

    async def tell_end(self, end: Done | Failed) -> None:
        """Tell of the calls that the end answered, then how the run ended, once; a cancellation does not stop it."""
        listener, pending = self._resources.listener, self._approvals.pending_events
        if self._is_logged:
            self._is_logged = False
            self._log_end(end)
        if listener is not None and self._is_telling:
            self._is_telling = False
            if isinstance(end, Done):  # whose list of messages is the caller's, and not the observers'
                end = Done(copy_outcome(end.result))
            closed, registrations = self.state.turn.closed, self._resources.registry.registrations
            closing = [take_closing_event(closed, registrations) for _ in range(len(closed))]
            await listener.emit_last([*pending, *closing, end])
        pending.clear()

    async def _go_on(self, steering: Steering | None) -> None:
        """Emit the events of deferred decisions, and pass on what was steered."""
        if steering is not None:
            self._resources.steer(steering.take_steered())
        pending, listener = self._approvals.pending_events, self._resources.listener
        while pending:
            event = pending.pop(0)
            if listener is not None:
                await listener.emit(event)

    async def tell_refusals(self) -> None:
        """Tell of the calls that the machine answered itself."""
        closed, listener = self.state.turn.closed, self._resources.listener
        while closed:
            event = take_closing_event(closed, self._resources.registry.registrations)
            if listener is not None:
                await listener.emit(event)

    def result(self, seconds_left: float | None = None) -> ToolLoopResult[Out]:
        """Return what the loop leaves."""
        state, answer = self.state, self._resources.answer
        if state.reason is None:
            raise LoopUsageError("the loop has not ended yet")
        text = "" if state.response is None else text_of(state.response.message.content)
        if isinstance(state.reason, (ResultAsAnswer, TypedAnswer)):
            told = [result.text for result in state.results if result.result_as_answer and not result.is_error]
            text = told[0] if told and state.response is not None and state.response.tool_calls else text
        return ToolLoopResult(
            text=text,
            output=None if answer is None or not isinstance(state.reason, TypedAnswer) else answer.value,
            response=state.response,
            messages=state.settled_messages(),
            usage=state.usage,
            iterations=state.iterations,
            tool_rounds=state.tool_rounds,
            reason=state.reason,
            snapshot=self.save(seconds_left) if isinstance(state.reason, AwaitingApproval) else None,
        )

    # approvals that come later, and saving

    @property
    def approvals(self) -> Approvals[Ctx]:
        """The part that decides on calls."""
        return self._approvals

    def save(self, seconds_left: float | None) -> Snapshot:
        """Return the loop as plain JSON; see `ToolLoopHandle.snapshot`."""
        from toolkit.loop.snapshot import save_loop  # noqa: PLC0415 - few loops are saved

        chain = self._resources.middleware
        return save_loop(
            self.state,
            self._requests.request,
            loop_id=self.loop_id,
            tools=self._resources.fixed_tools,
            approvals=self._approvals,
            seconds_left=seconds_left,
            budget=self._resources.budget,
            answer_retries=self._requests.answer_retries,
            signing_key=self._resources.config.signing_key,
            uses=self._resources.count_uses(),
            cut_texts=self._resources.memory.count,
            middleware=self._saved_states if chain is None else chain.save_states(),
        )

    async def compact_transcript(self, step: Compact) -> None:
        """Ask the compaction for a shorter transcript."""
        compaction, listener = self._resources.config.compaction, self._resources.listener
        assert compaction is not None
        before = len(step.messages)
        messages = await ask_compaction(compaction, step.messages)
        if before and not messages:
            raise LoopUsageError("the compaction left nothing of the transcript: keep at least the newest message")
        self.feed(TranscriptCompacted(messages))
        if listener is not None and len(messages) != before:
            await listener.emit(Compacted(before=before, after=len(messages)))


def _drive_by_journal(journal: Journal, config: ToolLoopConfig[Any]) -> JournaledSteps[Any]:
    from toolkit.loop.journaling import JournaledSteps  # noqa: PLC0415 - few loops are kept in a log

    return JournaledSteps(journal, config)


def _check_context(registry: ToolRegistry[Any], ctx: object) -> None:
    need = registry.find_context_need() if ctx is None else None
    if need is not None:
        raise ConfigurationError(f"{need}: pass it as ctx")
