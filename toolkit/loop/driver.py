"""Does what the machine asks for, one step at a time: the only place of a loop that waits.

Whatever happens, the transcript is closed before anything passes out of here: an error carries it, a cancellation goes
on after it.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, assert_never

import anyio

from toolkit.chat import (
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ResponseDone,
    StreamEvent,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UserMessage,
    repair_transcript,
    text_of,
    validate_transcript,
)
from toolkit.errors import (
    BadResponseError,
    ConfigurationError,
    LoopError,
    LoopUsageError,
    ProviderError,
    TranscriptError,
)
from toolkit.loop.answer import ANSWER_TOOL, TypedAnswer
from toolkit.loop.approval import PendingApproval, pending_approval
from toolkit.loop.budget import Budget
from toolkit.loop.config import DEFAULT_CONFIG, ToolLoopConfig
from toolkit.loop.depth import current_frame, enter_depth, nested_context
from toolkit.loop.dispatch import run_unit
from toolkit.loop.events import (
    Compacted,
    Done,
    IterationStart,
    LoopDetected,
    LoopEvent,
    ProviderRetried,
    ResponseReceived,
)
from toolkit.loop.listener import HookListener, Listener
from toolkit.loop.outcome import AwaitingApproval, Complete, Out, ResultAsAnswer, Snapshot, ToolLoopResult
from toolkit.loop.state import (
    AskApproval,
    CallModel,
    Compact,
    EndRun,
    Finished,
    LoopState,
    Postpone,
    Refuse,
    RunCall,
    RunTools,
)
from toolkit.tools.authorize import Aborted, Deferred, Verdict, authorize, decided
from toolkit.tools.events import ToolCallRefused, ToolExecutionEnd
from toolkit.tools.handler import Ctx, Registration
from toolkit.tools.prepare import Ready, Refused, canonical_call, error_result, prepare
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.run import run
from toolkit.tools.settings import check_setting, shown

__all__ = ["Driver", "Prompt", "check_parts", "transcript_of"]

if TYPE_CHECKING:
    from toolkit.loop.snapshot import SavedLoop

_logger = logging.getLogger("toolkit.loop")

Prompt: TypeAlias = str | Sequence[Message] | ChatRequest
"""What a loop starts from: a question, a transcript, or a request with its settings."""

_RUN, _RUN_ALONE = RunCall(), RunCall(alone=True)


def check_parts(provider: object, registry: object, prompt: object, config: object) -> None:
    """Check that what a loop is made of is of the right kind.

    Raises:
        ConfigurationError: Says which part is not, and what would fit.
    """
    is_name = isinstance(provider, (str, type))
    if is_name or not (hasattr(provider, "generate") and hasattr(provider, "stream")):
        raise ConfigurationError(
            "the provider of a loop must be an object with 'generate' and 'stream', such as OpenAIProvider('gpt-5') or "
            f"provider_for('openai:gpt-5'), not {shown(provider)}"
        )
    check_setting("the registry of a loop", registry, ToolRegistry)
    check_setting("what a loop starts from", prompt, str, Sequence, ChatRequest)
    check_setting("the config of a loop", config, ToolLoopConfig, None)


class Driver(Generic[Ctx, Out]):
    """Drives one machine against one provider and one registry.

    Raises:
        MaxDepthExceededError: The loop would be nested too deep.
    """

    __slots__ = (
        "_answer",
        "_answer_retries",
        "_budget",
        "_config",
        "_ctx",
        "_frame",
        "_listener",
        "_policy",
        "_prepared",
        "_provider",
        "_ready",
        "_registry",
        "_request",
        "_shown",
        "_streams",
        "_tools",
        "deadline",
        "state",
    )

    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        prompt: Prompt,
        ctx: Ctx,
        config: ToolLoopConfig[Out] | None,
        *,
        listener: Listener | None = None,
        saved: SavedLoop | None = None,
    ) -> None:
        if config is None:
            config = DEFAULT_CONFIG
        check_parts(provider, registry, prompt, config)
        frame = enter_depth(ctx, config.max_depth)
        self.deadline: float = math.inf
        self._provider = provider
        self._registry = registry
        self._config = config
        if listener is None:
            listener = HookListener.of(config)
        self._listener = listener
        self._streams = config.stream if config.stream is not None else listener is not None
        compacts = config.compaction is not None
        if saved is None:
            self.state: LoopState = LoopState(transcript_of(prompt), config, compacts=compacts)
        else:
            self.state = LoopState.thaw(saved.state, config, compacts=compacts)
        # What the caller fixed stays; otherwise each turn shows what the registry holds then.
        self._tools: Sequence[ToolDefinition] | None = None
        self._shown: Sequence[ToolDefinition] | None = None
        if isinstance(prompt, ChatRequest):
            self._request = replace(prompt, messages=self.state.messages)
            self._tools = prompt.tools
        elif config.output_type is not None:
            self._request = ChatRequest(messages=self.state.messages)
        else:
            self._shown = registry.definitions()  # in the request at once: to make another takes 4 us
            self._request = ChatRequest(messages=self.state.messages, tools=self._shown)
        if config.usage_limits is not None:
            frame.budget = Budget(config.usage_limits, frame.budget)
        self._frame = frame
        frame.spend = self.state.spent
        self._ctx = nested_context(ctx, frame)
        self._budget = frame.budget
        if saved is not None and config.usage_limits is not None and self._budget is not None:
            self._budget.restore(saved.requests, saved.tool_calls, saved.state.usage)
        self._policy = config.policy if listener is None else replace(config.policy, observer=listener)
        self._answer = None if config.output_type is None else TypedAnswer(config.output_type)
        self._answer_retries = config.max_output_retries
        self._prepared: dict[str, Ready[Ctx] | Refused] = {}
        self._ready: dict[str, Ready[Ctx]] = {}
        if saved is not None:
            self._take_up(saved)

    async def run(self) -> ToolLoopResult[Out]:
        """Drive the loop to its end and return what it leaves."""
        state, timeout = self.state, self._config.timeout
        try:
            if timeout is None:
                await self._turns()
            else:
                with anyio.move_on_after(timeout):
                    await self._turns()
                state.timed_out(timeout)
        except Exception as error:
            self.fail(error)
            raise
        finally:
            # Reached unfinished only when cancelled, or when something no `Exception` passes through.
            state.cancelled()
            if self._listener is not None:
                await self.tell_end()
        return self.result()

    async def _turns(self) -> None:
        while not self.state.is_finished:
            await self.turn()

    async def turn(self) -> None:
        """Drive the loop to the next boundary between turns, or to its end."""
        state = self.state
        self.take_steering()
        while True:
            step = state.next_step()
            if isinstance(step, CallModel):
                await self._call_model(step)
            elif isinstance(step, AskApproval):
                await self._decide([self._prepared[call.id] for call in step.calls])
            elif isinstance(step, RunTools):
                await self._run_tools(step)
            elif isinstance(step, Finished):
                return
            else:
                await self._compact(step)
            if state.is_at_boundary:
                return

    def take_steering(self) -> None:
        """Feed what others have steered since the last turn."""
        if self._config.steering is not None:
            self.state.steered(self._config.steering.take_steered())

    async def carry_out(self, step: AskApproval | RunTools | Compact) -> None:
        """Do one step that is not a request."""
        match step:
            case AskApproval():
                await self._decide([self._prepared[call.id] for call in step.calls])
            case RunTools():
                await self._run_tools(step)
            case Compact():
                await self._compact(step)
            case _:
                assert_never(step)

    def fail(self, error: Exception) -> None:
        """Close the transcript, and hang it on the error where that can carry one."""
        self.state.failed()
        if isinstance(error, (LoopError, ProviderError)):
            error.messages = tuple(self.state.messages)

    def start_clock(self) -> None:
        """Let the loop's time run from now on, for a view that has no scope round all of it."""
        if self._config.timeout is not None:
            self.deadline = anyio.current_time() + self._config.timeout

    def seconds_left(self) -> float | None:
        """Return what is left of the loop's time, where a view has started the clock; else all of it."""
        if self._config.timeout is None or self.deadline == math.inf:
            return self._config.timeout
        return max(0.0, self.deadline - anyio.current_time())

    def time_out(self) -> None:
        """End the loop: its time is up."""
        self.state.timed_out(self._config.timeout or 0.0)

    async def tell_end(self, listener: Listener | None = None) -> None:
        """Tell of the calls that the end answered, then that the loop is done; a cancellation does not stop it."""
        state, listener = self.state, listener or self._listener
        if listener is None:
            return
        with anyio.CancelScope(shield=True):
            for event in self.closing_events():
                await listener.emit(event)
            if state.reason is not None:
                await listener.emit(Done(self.result()))

    def closing_events(self) -> list[LoopEvent]:
        """Return, once, what is to be told of the calls that the machine answered itself."""
        closed = self.state.closed
        events = [_closing_event(result, has_started=has_started) for result, has_started in closed]
        closed.clear()
        return events

    def result(self) -> ToolLoopResult[Out]:
        """Return what the loop leaves."""
        state = self.state
        if state.reason is None:
            raise LoopUsageError("the loop has not ended yet")
        text = "" if state.response is None else text_of(state.response.message.content)
        if isinstance(state.reason, ResultAsAnswer):
            answer = state.reason.call_id
            text = next(result.text for result in state.last_results if result.call_id == answer)
        return ToolLoopResult(  # without its parameter, which would take 2 us at run time
            text=text,
            output=None if self._answer is None else self._answer.value,
            response=state.response,
            messages=state.messages,
            usage=state.usage,
            iterations=state.iterations,
            tool_rounds=state.tool_rounds,
            reason=state.reason,
            snapshot=self.save(self.seconds_left()) if isinstance(state.reason, AwaitingApproval) else None,
        )

    # approvals that come later, and saving

    def pending(self) -> list[PendingApproval]:
        """Return what awaits a decision, in call order."""
        return [pending_approval(self._ready[call_id]) for call_id in self.state.deferred_ids]

    async def decide(self, call_id: str, answer: object, binding: str) -> None:
        """Take a decision on a call that awaits one.

        Raises:
            LoopUsageError: No decision is awaited on it, or the decision was made on something else.
        """
        if call_id not in self.state.deferred_ids:
            raise LoopUsageError(f"no decision is awaited on call '{call_id}'")
        ready = self._ready[call_id]
        if pending_approval(ready).binding != binding:
            raise LoopUsageError(
                f"the decision on call '{call_id}' was made on another tool, other arguments or another schema: "
                "ask again with what is pending now"
            )
        await self._apply(decided(ready, answer, self._registry.permissions))

    def _take_up(self, saved: SavedLoop) -> None:
        """Prepare the open calls of a saved loop again; what was decided or awaited then must still be the same."""
        for call in self.state.open_calls:
            self._prepare([call])
            prepared = self._prepared[call.id]
            if isinstance(prepared, Refused):
                raise LoopUsageError(f"the saved call '{call.id}' can't be taken up: {prepared.result.text}")
            binding = saved.bindings.get(call.id)
            if binding is not None and pending_approval(prepared).binding != binding:
                raise LoopUsageError(
                    f"the saved call '{call.id}' of '{call.name}' awaits a decision, and the tool has changed since: "
                    "restore it with the tools it was saved with"
                )
            if call.id in saved.arguments:
                prepared.arguments = prepared.registration.parse_json(saved.arguments[call.id])
                prepared.is_modified = True
            self._ready[call.id] = prepared

    def save(self, seconds_left: float | None) -> Snapshot:
        """Return the loop as plain JSON; see `ToolLoopHandle.snapshot`."""
        from toolkit.loop.snapshot import SavedLoop, SavedRequest, dump_snapshot  # noqa: PLC0415 - few loops are saved

        request, budget = self._request, self._budget
        pending = self.pending()
        saved = SavedLoop(
            state=self.state.freeze(),
            request=SavedRequest(
                tools=None if self._tools is None else tuple(self._tools),
                tool_choice=request.tool_choice,
                parallel_tool_calls=request.parallel_tool_calls,
                temperature=request.temperature,
                max_tokens=request.max_tokens,
                seed=request.seed,
                stop=request.stop,
                response_format=request.response_format,
                reasoning_effort=request.reasoning_effort,
                timeout=request.timeout,
                options=dict(request.options),
            ),
            bindings={approval.call_id: approval.binding for approval in pending},
            arguments={
                call.id: _canonical(self._ready[call.id])
                for call in self.state.open_calls
                if self._ready[call.id].is_modified
            },
            seconds_left=seconds_left,
            requests=0 if budget is None else budget.requests,
            tool_calls=0 if budget is None else budget.tool_calls,
        )
        return dump_snapshot(saved, [asdict(approval) for approval in pending])

    # steps

    async def _call_model(self, step: CallModel) -> None:
        listener = self._listener
        if listener is not None or self._streams:
            async with aclosing(self.model_events(step)) as events:
                async for event in events:
                    if listener is not None:
                        await listener.emit(event)
            return
        response = await self._answered(self._request_for(step))
        if response is not None:
            self._take_reply(response)

    async def _answered(self, request: ChatRequest) -> ChatResponse | None:
        """Make a request, as often as it may be, and return the answer; None where a limit has ended the loop."""
        attempt = 0
        while True:
            if not self._reserve(request):
                return None
            response: ChatResponse | None = None
            try:
                response = await self._provider.generate(request)
                return response
            except ProviderError as error:
                delay = self._retry_delay(error, attempt)
            finally:
                self._settle(request, response)
            await anyio.sleep(delay)
            attempt += 1

    async def model_events(self, step: CallModel) -> AsyncGenerator[LoopEvent]:
        """Ask the model, telling all that happens; the machine is fed when this ends."""
        yield IterationStart(iteration=step.iteration, message_count=len(self.state.messages))
        request, attempt = self._request_for(step), 0
        while self._reserve(request):
            response: ChatResponse | None = None
            try:
                if self._streams:
                    stream = self._provider.stream(request)
                    try:
                        async for event in self._timely(stream):
                            if isinstance(event, ResponseDone):
                                response = event.response
                            else:
                                yield event
                    finally:
                        if response is None:  # else it has come to its end, and to look again takes 8 us
                            await _close(stream)
                else:
                    response = await self._answer_in_time(request)
                if self.state.is_finished:
                    return
                if response is None:
                    raise BadResponseError(
                        type(self._provider).__name__, "the stream ended without its last event", is_retryable=True
                    )
            except ProviderError as error:
                retried = ProviderRetried(attempt=attempt + 1, delay=self._retry_delay(error, attempt), error=error)
            else:
                detected = self._take_reply(response)
                # As the machine took it: ids of calls may have been mended.
                yield ResponseReceived(iteration=step.iteration, response=self.state.response or response)
                if detected is not None:
                    yield detected
                return
            finally:
                self._settle(request, response)
            yield retried
            attempt += 1
            with anyio.CancelScope(deadline=self.deadline) as scope:
                await anyio.sleep(retried.delay)
            if scope.cancelled_caught:
                self.time_out()
                return

    async def _answer_in_time(self, request: ChatRequest) -> ChatResponse | None:
        with anyio.CancelScope(deadline=self.deadline):
            return await self._provider.generate(request)
        self.time_out()
        return None

    def _timely(self, events: AsyncIterator[StreamEvent]) -> AsyncIterator[StreamEvent]:
        return events if self.deadline == math.inf else self._until_deadline(events)

    async def _until_deadline(self, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[StreamEvent]:
        """Pass events on until the loop's time is up; the scope is never open while a reader thinks."""
        while True:
            event: StreamEvent | None = None
            with anyio.CancelScope(deadline=self.deadline):
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
            if event is None:
                self.time_out()
                return
            yield event

    def _request_for(self, step: CallModel) -> ChatRequest:
        if not step.has_tools:
            return replace(self._request, tools=(), tool_choice="auto")
        tools = self._registry.definitions() if self._tools is None else self._tools
        if self._shown is not tools:
            self._shown = tools
            self._request = replace(self._request, tools=tools)
            if self._answer is not None:
                self._ask_for_type(self._answer, tools)
        return self._request

    def _ask_for_type(self, answer: TypedAnswer[Out], tools: Sequence[ToolDefinition]) -> None:
        if self._config.output_mode == "native":
            self._request = replace(self._request, response_format=answer.format)
        else:
            answer.beside(self._registry)
            self._request = replace(self._request, tools=(*tools, answer.registration.definition))

    def _take_reply(self, response: ChatResponse) -> LoopDetected | None:
        state = self.state
        calls = state.model_replied(response)
        detected = state.calls_prepared(self._prepare(calls)) if calls else None
        if self._answer is not None and isinstance(state.reason, Complete):
            self._check_answer(self._answer, response)
        steering = self._config.steering
        if steering is not None and isinstance(state.reason, Complete):
            state.steered(steering.take_steered() or steering.take_follow_up())
        return detected

    def _check_answer(self, answer: TypedAnswer[Out], response: ChatResponse) -> None:
        """See whether a reply without calls is the answer; else ask again, as often as allowed."""
        if self._config.output_mode == "native":
            problem = answer.read(response.text)
            if problem is None:
                return
            wish = f"That answer can't be used. {problem}"
        else:
            wish = f"Give your answer by calling the tool {ANSWER_TOOL}."
        if self._answer_retries > 0:
            self._answer_retries -= 1
            self.state.steered([UserMessage(wish)])

    def _offered(self) -> tuple[Mapping[str, Registration[Ctx]], Collection[str]]:
        """Return the tools that were offered, by name, and the names of others: what was not offered does not run."""
        registry = self._registry
        registrations, hidden = registry.registrations, registry.hidden_names
        shown = registry.definitions() if self._tools is None else self._tools
        if self._tools is not None or self._shown is not shown:
            offered = {definition.name for definition in (shown if self._shown is None else self._shown)}
            hidden = {*hidden, *registrations} - offered
            registrations = {name: registrations[name] for name in registrations if name in offered}
        if self._answer is not None and self._config.output_mode == "tool":
            registrations = {**registrations, ANSWER_TOOL: self._answer.registration}
        return registrations, hidden

    def _reserve(self, request: ChatRequest) -> bool:
        """Take a request out of the budget, or end the loop where nothing is left."""
        limit = None if self._budget is None else self._budget.reserve_request(request.max_tokens)
        if limit is None:
            return True
        self.state.limit_reached(limit)
        return False

    def _settle(self, request: ChatRequest, response: ChatResponse | None) -> None:
        if self._budget is not None:
            self._budget.settle_request(request.max_tokens, None if response is None else response.usage)

    def _retry_delay(self, error: ProviderError, attempt: int) -> float:
        """Return the seconds to wait before the request is made again, or raise `error` where it is not."""
        import random  # noqa: PLC0415 - with its hash functions it takes a thirtieth of the import

        retry = self._config.provider_retry
        asked = error.retry_after or 0.0
        if not error.is_retryable or attempt >= retry.max_retries or asked > retry.max_backoff:
            raise error
        return max(retry.pause(attempt, random.random()), asked)  # noqa: S311 - jitter is no secret

    def _prepare(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Prepare all calls of the turn, before anybody is asked about any and any runs; return them as they would run.

        They are made canonical only for what looks at them.
        """
        policy, permissions = self._policy, self._registry.permissions
        registrations, hidden = self._offered()
        prepared: dict[str, Ready[Ctx] | Refused] = {}
        self._prepared = prepared
        for call in calls:
            prepared[call.id] = prepare(call, registrations, policy, permissions, hidden_names=hidden)
        if self._config.stop_when is None and self._config.loop_detection is None:
            return calls
        return [canonical_call(each) for each in prepared.values()]

    async def _decide(self, calls: Sequence[Ready[Ctx] | Refused]) -> None:
        """Ask the guards about each call, in call order."""
        policy, state, permissions = self._policy, self.state, self._registry.permissions
        self._ready = {}
        for prepared in calls:
            if self._listener is not None:
                for repair in prepared.repairs:
                    await self._listener.emit(repair)
            verdict: Verdict[Ctx] = prepared
            is_guarded = policy.before is not None or policy.approve is not None
            if isinstance(prepared, Ready) and (is_guarded or prepared.asks is not None):
                verdict = await authorize(prepared, policy, permissions)
            if isinstance(verdict, Ready) and self._budget is None:
                self._admit(verdict)
            else:
                await self._apply(verdict)
                if state.is_finished:
                    return

    async def _apply(self, verdict: Verdict[Ctx]) -> None:
        """Feed the machine what was decided on a call."""
        match verdict:
            case Ready():
                limit = None if self._budget is None else self._budget.reserve_tool_call()
                if limit is None:
                    self._admit(verdict)
                    return
                self.state.wind_up(limit)
                why = f"Not started: the run may make {limit.maximum:g} tool calls, and they are used up."
                await self._refuse(Refused(verdict.call, error_result(verdict.call, why)))
            case Refused():
                await self._refuse(verdict)
            case Deferred(ready):
                self._ready[ready.call.id] = ready
                self.state.approval_decided(ready.call.id, Postpone())
            case Aborted(call, reason):
                self.state.approval_decided(call.id, EndRun(reason))

    def _admit(self, ready: Ready[Ctx]) -> None:
        call_id = ready.call.id
        self._ready[call_id] = ready
        self.state.approval_decided(call_id, _RUN_ALONE if ready.registration.options.sequential else _RUN)

    async def _refuse(self, refused: Refused) -> None:
        call_id = refused.call.id
        self.state.approval_decided(call_id, Refuse(refused.result))
        if self._listener is not None:
            await self._listener.emit(
                ToolCallRefused(call_id=call_id, tool_name=refused.call.name, result=refused.result)
            )

    async def _run_tools(self, step: RunTools) -> None:
        if self._config.steering is not None:
            steered = self._config.steering.take_steered()
            if steered:
                self.state.steered(steered)
                return
        ready = self._ready
        token = current_frame.set(self._frame)  # which loops inside the calls inherit
        try:
            await run_unit(self._run_call, [ready[call.id] for call in step.calls], step.limit, self._listener)
        finally:
            current_frame.reset(token)

    async def _run_call(self, ready: Ready[Ctx]) -> None:
        """Run one call, telling the machine that it started and ended."""
        state = self.state
        state.tool_started(ready.call.id)
        await run(ready, self._ctx, self._policy, depth=self._frame.depth, keep=state.tool_returned, cut=state.tool_cut)

    async def _compact(self, step: Compact) -> None:
        compaction = self._config.compaction
        assert compaction is not None
        before = len(step.messages)
        shorter = compaction(step.messages)
        given = await shorter if inspect.isawaitable(shorter) else shorter
        check_setting("what the compaction gives", given, Sequence)
        messages = list(given)
        if before and not messages:
            raise LoopUsageError("the compaction left nothing of the transcript: keep at least the newest message")
        try:
            validate_transcript(messages)
        except TranscriptError as error:
            raise LoopUsageError(f"the compaction gave a transcript that is not valid: {error}") from error
        self.state.compacted(messages)
        if self._listener is not None and len(messages) != before:
            await self._listener.emit(Compacted(before=before, after=len(messages)))


_CLOSE_TIMEOUT = 5.0


async def _close(events: AsyncIterator[StreamEvent]) -> None:
    """Close a provider's stream, also when cancelled, but don't wait for ever."""
    close = getattr(events, "aclose", None)
    if close is not None:
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await close()


def transcript_of(prompt: Prompt) -> list[Message]:
    """Return a list of the loop's own: the caller's is never changed."""
    if isinstance(prompt, str):
        return [UserMessage(prompt)]
    messages = list(prompt.messages if isinstance(prompt, ChatRequest) else prompt)
    try:
        validate_transcript(messages)
    except TranscriptError as error:
        repaired = repair_transcript(messages)
        _logger.warning("the transcript handed in is not valid and was repaired: %s", error)
        return repaired
    return messages


def _canonical(ready: Ready[Any]) -> str:
    return ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True)


def _closing_event(result: ToolResult, *, has_started: bool) -> LoopEvent:
    if has_started:
        return ToolExecutionEnd(call_id=result.call_id, tool_name=result.tool_name, result=result, duration=0.0)
    return ToolCallRefused(call_id=result.call_id, tool_name=result.tool_name, result=result)
