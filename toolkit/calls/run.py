"""The last stages of a call: run the tool, then make its output the result that the model reads.

An exception of a tool becomes an error result here and nowhere else, `SystemExit` included; only the cancellation of
the caller and other `BaseException` propagate.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, cast

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.backoff import run_again
from toolkit.calls.approval import ChildWaitsError, WaitingChild
from toolkit.calls.caching import Cache, find_cache_key, is_cached
from toolkit.calls.context import WAITS_FOR_TURN, Reporter, ToolContext
from toolkit.calls.events import (
    Observer,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.calls.output import RedactingObserver, RunMemory, append_note, redact_error, shape_result
from toolkit.calls.policy import ExecutionPolicy
from toolkit.calls.prepare import LONG_TEXT, NO_SECRETS, Ready, copy_values
from toolkit.calls.registration import Ctx, Registration
from toolkit.chat import ToolCall, ToolResult
from toolkit.chat.output import ToolOutput, copy_result, describe_error, dump_output, load_output, to_output
from toolkit.dataclass import dataclass, maker_of
from toolkit.errors import (
    InvalidArgumentsError,
    ToolCancelledError,
    ToolCrashedError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
    ToolNotFoundError,
    ToolTimeoutError,
    ToolUsageLimitExceededError,
)
from toolkit.logs import get_logger, use_secrets
from toolkit.redaction import without_secrets
from toolkit.runtime.backend import (
    AsyncioCancelledError,
    CallClock,
    CancellationMark,
    Deadlines,
    cancellation_mark,
    has_busy_threads,
    is_own_cancellation,
)
from toolkit.runtime.workers import AbandonedThreads, abandoned_count, enter_gate, lock_key
from toolkit.settings import describe_value

if TYPE_CHECKING:
    from toolkit.calls.registration import ToolRetryConfig

_logger = get_logger("toolkit.calls")
_REPORTS = (ToolExecutionUpdate, ToolProgress)
_make_start, _make_end = maker_of(ToolExecutionStart), maker_of(ToolExecutionEnd)


@dataclass(slots=True)
class CutCall:
    """How far a call came that ended without a result.

    Args:
        waited_for: The thing that it was waiting for if its body never began; None if the body ran.
        may_run_on: True if something of it may still run.
        left_by_child: The id of a loop that ran inside, and the details of that.
    """

    waited_for: str | None
    _: KW_ONLY
    may_run_on: bool
    left_by_child: tuple[str | None, object] = (None, None)


# Reports to the host are not frozen: each turn creates some, and only the loop's machine has them.


@dataclass(slots=True)
class CallReturned:
    """The result of a call.

    It is reported before the end of the call is emitted, which may have to wait: a cancellation that comes meanwhile
    must not lose the result.
    """

    call_id: str
    result: ToolResult


@dataclass(slots=True)
class CallCut:
    """How far a call came that ends without a result; reported before the exception that ends it propagates.

    It is ignored for a call that has been answered meanwhile.
    """

    call_id: str
    cut: CutCall


@dataclass(slots=True)
class CallSuspended:
    """The sub-agent that a call runs awaits decisions, and the call with it."""

    call: ToolCall
    child: WaitingChild


def write_waiting(call: ToolCall, child: WaitingChild) -> ToolResult:
    """Return a placeholder for the result of a call whose sub-agent awaits decisions."""
    names = ", ".join(dict.fromkeys([each.name for each in child.calls]))
    text = f"Not finished: sub-agent '{child.agent}' awaits approval of {names}. What it has done before stands."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True, child_loop_id=child.loop_id)


@dataclass(slots=True)
class CallHost(Generic[Ctx]):
    """The parts that the calls of one run share.

    Args:
        ctx: The application's context.
        policy: The settings for every call.
        depth: For `ToolContext.depth`.
        memory: The state that the calls of the run share; None outside of a run.
        begin: Called with the id of each call as it begins, in the context of the call; None for a call without a loop.
        report: Called with each report on a call, at once; None for a call without a loop.
        deadlines: The timer of concurrent calls; None if each has its own.
    """

    ctx: Ctx
    policy: ExecutionPolicy
    _: KW_ONLY
    depth: int = 0
    memory: RunMemory | None = None
    begin: Callable[[str], None] | None = None
    report: Callable[[CallReturned | CallCut | CallSuspended], None] | None = None
    deadlines: Deadlines | None = None


async def run(ready: Ready[Ctx], host: CallHost[Ctx], clock: CallClock | None = None) -> ToolResult:
    """Run a call, and return its result; an exception of the tool becomes an error result.

    Raises:
        ToolCrashedError: The tool raised something other than a `ToolError`, and the configuration ends the run then.
    """
    # For example, a tool that may take 2 s takes 3: its start is emitted, `_run_in_time` raises, `_read_failure` makes
    # an error output of that, and its end is emitted with the result.
    call, registration, secrets = ready.call, ready.registration, NO_SECRETS
    if host.begin is not None:
        host.begin(call.id)
    if registration.takes_secrets is not False:
        secrets, host = _hide_secrets(ready, host)
    policy, mark = host.policy, cancellation_mark()
    observer = policy.observer
    began = time.perf_counter()
    is_plain = not registration.is_guarded and policy.config.cache is None and policy.around is None
    context: ToolContext[Ctx] | None = None
    has_begun = is_over = False
    crash: BaseException | None = None
    try:
        left = None if observer is None else _emit_start(ready, observer, policy.observed)
        if left is not None:
            await left
        if not is_plain or not registration.is_bare:  # a function that does not see its context gets none
            context = _make_context(ready, host, mark, clock, has_begun=is_plain)
        has_begun = True
        try:
            output = await _start_running(ready, context, host, clock, mark, is_plain=is_plain)
        except ChildWaitsError as waiting:
            is_over = True
            return await _suspend_call(ready, context, host, waiting.child, began)
        except BaseException as error:  # noqa: BLE001 - raised again unless it is the tool's own
            output, crash = await _read_failure(call, error, context, mark, secrets)
        is_over = True
    finally:
        if not is_over:
            _give_up(ready, context, host, has_begun=has_begun)
    output = output if context is None else _leave_context(context, output)
    unserializable, whole, limited = shape_result(ready, output, policy, host.memory)
    if host.report is not None:
        host.report(CallReturned(call.id, limited))
    left = None if observer is None else _emit_end(ready, whole, began, policy, context, crash, unserializable)
    if left is not None:
        await left
    if crash is not None:
        _raise_crash(call, crash, policy, secrets)
    return limited


def _hide_secrets(ready: Ready[Any], host: CallHost[Ctx]) -> tuple[frozenset[str], CallHost[Ctx]]:
    """Return the secret arguments of a call, and the host with an observer that receives events without them."""
    policy, secrets = host.policy, ready.find_secrets() if ready.registration.may_take_secrets else NO_SECRETS
    if secrets:
        use_secrets(lambda: secrets)  # nobody else has this context
    if not secrets or policy.observer is None:
        return secrets, host
    observer = RedactingObserver(policy.observer, secrets)
    return secrets, replace(host, policy=policy.observed_by(observer, policy.observed))


def _raise_crash(call: ToolCall, crash: BaseException, policy: ExecutionPolicy, secrets: frozenset[str]) -> None:
    if policy.config.on_tool_exception == "raise":
        error = ToolCrashedError(call.name, call.id, without_secrets(describe_error(crash), secrets))
        error.struck_secrets = secrets
        raise error from crash


def _start_running(
    ready: Ready[Ctx],
    context: ToolContext[Ctx] | None,
    host: CallHost[Ctx],
    clock: CallClock | None,
    mark: CancellationMark,
    *,
    is_plain: bool,
) -> Awaitable[ToolOutput]:
    """Return an awaitable that runs the tool; a plain one has at most a time limit."""
    registration, policy = ready.registration, host.policy
    if context is not None and not is_plain:
        return (_run_guarded if policy.around is None else _run_around)(ready, context, policy)
    timeout = registration.options.timeout or policy.config.timeouts.tool
    if timeout is not None:
        return _run_in_time(registration, ready.arguments, context, timeout, clock, mark, host.deadlines)
    seen: Any = context
    return registration.execute(ready.arguments, seen)


def _make_context(
    ready: Ready[Any], host: CallHost[Ctx], mark: CancellationMark, clock: CallClock | None, *, has_begun: bool
) -> ToolContext[Ctx]:
    """Return the context of a call; `has_begun` if it counts as begun until the tool waits for something first."""
    context, policy = ToolContext(host.ctx), host.policy
    context.call_id, context.tool_name = ready.call.id, ready.call.name
    context.reporter = _make_reporter(ready, policy) if ready.registration.may_report else None
    context.depth, context.memory, context.policy = host.depth, host.memory, policy
    context.scope, context.mark, context.clock = ready.scope, mark, clock
    context.waits_for = None if has_begun else context.waits_for
    return context


def _leave_context(context: ToolContext[Any], output: ToolOutput) -> ToolOutput:
    """Close the context of a call; return its output, an error with the loop that ran inside."""
    context.close()
    child_loop_id, details = context.left_by_child
    if child_loop_id is None or type(output) is not ToolOutput:
        return output
    if not output.is_error or output.child_loop_id is not None:
        return output
    return replace(output, child_loop_id=child_loop_id, details=details)


def _make_reporter(ready: Ready[Any], policy: ExecutionPolicy) -> Reporter | None:
    if policy.observer is None or policy.observed.isdisjoint(_REPORTS):
        return None
    call, options = ready.call, ready.registration.options
    facts = {"call_id": call.id, "tool_name": call.name, "label": options.label, "tags": options.tags}
    return Reporter(policy.observer, {**facts, "program": call.program})


async def _suspend_call(
    ready: Ready[Any], context: ToolContext[Any] | None, host: CallHost[Any], child: WaitingChild, began: float
) -> ToolResult:
    """Report that the sub-agent of a call awaits decisions, and emit the end of the call."""
    if context is not None:
        context.close()
    result = write_waiting(ready.call, child)
    if host.report is not None:
        host.report(CallSuspended(ready.call, child))
    left = _emit_end(ready, result, began, host.policy)
    if left is not None:
        await left
    return result


def _emit_start(ready: Ready[Any], observer: Observer, observed: frozenset[type]) -> Awaitable[None] | None:
    """Emit the start of a call if the observer receives it; return an awaitable until that is done, or None."""
    if ToolExecutionStart not in observed:
        return None
    call, options = ready.call, ready.registration.options
    arguments, written = ready.show_arguments()  # a copy, as an observer may change it
    start = _make_start(  # most calls have no `extra`, and the property costs a function call
        call_id=call.id,
        tool_name=call.name,
        label=options.label,
        tags=options.tags,
        program=call.program if call.extra else "",
        arguments=arguments,
        arguments_json=written,
    )
    return observer.emit(start)


def _emit_end(
    ready: Ready[Any],
    result: ToolResult,
    began: float,
    policy: ExecutionPolicy,
    context: ToolContext[Any] | None = None,
    error: BaseException | None = None,
    unserializable: tuple[str, ...] = (),
) -> Awaitable[None] | None:
    """Emit the end of a call if the observer receives it; return an awaitable until that is done, or None."""
    if policy.observer is None or ToolExecutionEnd not in policy.observed:
        return None
    call, options = ready.call, ready.registration.options
    end = _make_end(
        call_id=call.id,
        tool_name=call.name,
        label=options.label,
        tags=options.tags,
        program=call.program if call.extra else "",
        result=result if result.details is None else copy_result(result),
        duration=time.perf_counter() - began,
        is_cached=context is not None and context.is_from_cache,
        error=error,
        unserializable=unserializable,
    )
    return policy.observer.emit(end)


async def run_directly(
    registration: Registration[Ctx],
    arguments: dict[str, Any],
    context: ToolContext[Ctx],
    outputs: list[ToolOutput],
) -> None:
    """Run a tool for the application itself: with the tool's own limits, without cache, permissions or approval.

    The output is appended to `outputs`; exceptions of the tool propagate.
    """
    registration.counter.require(registration.name)
    is_over = False
    try:
        outputs.append(await _run_limited(registration, arguments, context, registration.options.timeout))
        is_over = True
    finally:
        if is_over:
            context.close()
        else:
            context.abandon()


def _give_up(ready: Ready[Any], context: ToolContext[Any] | None, host: CallHost[Any], *, has_begun: bool) -> None:
    """Close a call that was ended from outside, and report how far it came."""
    if context is not None:
        context.abandon()
    if host.report is not None:
        cut = CutCall(None if has_begun else WAITS_FOR_TURN, may_run_on=_may_run_on(ready.registration, context))
        if context is not None:
            cut.waited_for, cut.left_by_child = context.waits_for, context.left_by_child
        host.report(CallCut(ready.call.id, cut))


async def _read_failure(
    call: ToolCall,
    error: BaseException,
    context: ToolContext[Any] | None,
    mark: CancellationMark,
    secrets: frozenset[str],
) -> tuple[ToolOutput, BaseException | None]:
    """Return an error as output for the model, and the error itself if it is not a `ToolError`.

    An error that is not the tool's own is raised again.
    """
    if isinstance(error, AsyncioCancelledError):
        if not is_own_cancellation(mark):
            # A scope that was cancelled a moment ago must get its own cancellation, else it would not know it again.
            await checkpoint_if_cancelled()
            raise error
    elif not _is_failure(error):
        raise error
    output = _note_wait(ToolOutput.error(error), context)
    if isinstance(error, ToolError):
        return output, None
    facts = {"call_id": call.id, "tool": call.name}
    shown = redact_error(error, partial(without_secrets, secrets=secrets)) if secrets else error
    _logger.error("tool %s crashed in call %s", call.name, call.id, exc_info=shown, extra=facts)
    return output, error


def _note_wait(output: ToolOutput, context: ToolContext[Any] | None) -> ToolOutput:
    """Return the output of a failed call, with a note if an earlier attempt ran but the last one never began."""
    if context is None or context.waited_in_vain is None:
        return output
    note = "It has run and may have taken effect. It was to be run again, and waited for "
    return append_note(output, f"{note}{context.waited_in_vain} in vain.")


def _is_failure(error: BaseException) -> bool:
    """Return whether an error is a tool's own: groups come from the task groups of its own."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_failure, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, (Exception, SystemExit))


def _may_run_on(registration: Registration[Any], context: ToolContext[Any] | None) -> bool:
    """Return whether something of a cancelled call may still run.

    Its own process was ended. An async function has ended, too, but may have handed work to a thread: if threads of
    this event loop are busy, nobody knows for which call.
    """
    if registration.options.isolation is not None:
        return False
    is_left_running = context is not None and context.is_left_running
    return is_left_running or abandoned_count() > 0 or has_busy_threads()


async def _run_around(ready: Ready[Ctx], context: ToolContext[Ctx], policy: ExecutionPolicy) -> ToolOutput:
    """Run inside of the middleware around calls."""
    assert policy.around is not None

    async def proceed() -> ToolOutput:
        is_over = False
        try:
            output = await _run_guarded(ready, context, policy)
            is_over = True
        except (Exception, SystemExit):
            is_over = True
            raise
        finally:
            if not is_over:  # also if the middleware cancels it, and goes on
                context.abandon()
        return output if type(output) is ToolOutput else to_output(output)

    return await policy.around(ready, proceed)


async def _run_guarded(ready: Ready[Ctx], context: ToolContext[Ctx], policy: ExecutionPolicy) -> ToolOutput:
    """Run under cache, usage limit, locks, retries and a timeout."""
    registration, arguments = ready.registration, ready.arguments
    options, cache, key = registration.options, policy.config.cache, None
    if cache is not None and is_cached(options, by_default=policy.caches_by_default):
        is_long = len(ready.call.arguments) > LONG_TEXT
        dump = partial(registration.arguments.dump_json, arguments)
        written = await to_thread.run_sync(dump, abandon_on_cancel=True) if is_long else None
        key = find_cache_key(registration, arguments, context.state, written=written)
        stored = None if key is None else await _read_cache(cache, key)
        context.is_from_cache = stored is not None
        if stored is not None:
            return stored
    children = None if context.memory is None else context.memory.children
    goes_on = children is not None and context.call_id in children
    if registration.counter.maximum is not None and not goes_on and not registration.counter.claim(context.memory):
        raise ToolUsageLimitExceededError(registration.name, registration.counter.maximum or 0)
    output = await _run_limited(registration, arguments, context, options.timeout or policy.config.timeouts.tool)
    if cache is not None and key is not None:
        await _store_output(ready, output, cache, key, policy.config.timeouts.hook)
    return output


async def _read_cache(cache: Cache, key: str) -> ToolOutput | None:
    try:
        stored = await cache.get(key)
        return None if stored is None else load_output(stored)
    except Exception:
        _logger.exception("a cache failed, which counts as a miss")
        return None


async def _store_output(ready: Ready[Any], output: ToolOutput, cache: Cache, key: str, seconds: float) -> None:
    if output.is_error or not output.content or output.is_nothing:
        return
    should_cache = ready.registration.options.should_cache
    try:
        if not callable(should_cache) or should_cache(ready.copy_arguments(), replace(output)):
            # A cancellation here must not lose the output; a cache that hangs is not waited for.
            with anyio.move_on_after(seconds, shield=True):
                await cache.set(key, dump_output(output))
    except Exception:
        _logger.exception("the output of %s could not be cached; it stands", ready.registration.name)


async def _run_limited(
    registration: Registration[Ctx], arguments: dict[str, Any], context: ToolContext[Ctx], timeout: float | None
) -> ToolOutput:
    """Run while holding the lock and the place of the tool, until its work is over."""
    options = registration.options
    if options.lock is None and options.concurrency is None:
        return await _run_as_often(registration, arguments, context, timeout)
    abandoned = AbandonedThreads()
    entered: list[Callable[[], None]] = []

    def leave() -> None:
        _ = registration  # its place among the gates is known by the tool's identity, which must be nobody else's
        while entered:
            entered.pop()()

    try:
        lock = options.lock(copy_values(registration, arguments)) if callable(options.lock) else options.lock
        if lock is not None:
            waiting = partial(context.waiting_for, f"the lock {describe_value(lock)}")
            entered.append(await enter_gate(lock_key(lock), waiting=waiting))
        if options.concurrency is not None:
            places = options.concurrency
            waiting = partial(context.waiting_for, f"one of its {places} places")
            entered.append(await enter_gate(("places", *registration.identity, places), places, waiting=waiting))
        with abandoned.watched():
            return await _run_as_often(registration, arguments, context, timeout)
    finally:
        abandoned.when_over(leave)


async def _run_as_often(
    registration: Registration[Ctx], arguments: dict[str, Any], context: ToolContext[Ctx], timeout: float | None
) -> ToolOutput:
    """Run, with retries if the tool has them; return the last output, or raise the last error."""
    retry = registration.options.retry
    if retry is None:
        return await _run_in_time(registration, arguments, context, timeout, context.clock, context.mark)
    return await _Attempts(registration, context, timeout, retry).run(arguments)


class _FailedOutputError(ToolFailedError):
    """A run returned an error output, which is the output of the call unless a retry succeeds."""

    def __init__(self, output: ToolOutput) -> None:
        super().__init__(output.text)
        self.output = output


class _TimeUpError(ToolTimeoutError):
    """The time of a run was up, which may be retried, unlike an error that the tool raised on purpose."""


class _Attempts(Generic[Ctx]):
    """The attempts at one call of a tool with retries."""

    def __init__(
        self, registration: Registration[Ctx], context: ToolContext[Ctx], timeout: float | None, retry: ToolRetryConfig
    ) -> None:
        self._registration = registration
        self._context = context
        self._timeout = timeout
        self._retry = retry
        self._abandoned = AbandonedThreads()
        self._last: Exception | SystemExit | None = None  # the failure of the last attempt that ran

    async def run(self, arguments: dict[str, Any]) -> ToolOutput:
        """Run once, and again if the run failed and may be repeated."""
        original = copy_values(self._registration, arguments)  # a run may change what it is given
        try:
            try:
                return await self._run_once(arguments, self._context)
            except (Exception, SystemExit) as error:
                self._last = error if self._context.waits_for is None else None
                if not self._may_repeat(error):
                    raise
                failure = error
            return await self._run_again(failure, original)
        except _FailedOutputError as failed:
            return _note_wait(failed.output, self._context)

    async def _run_once(self, arguments: dict[str, Any], context: ToolContext[Ctx]) -> ToolOutput:
        with self._abandoned.watched():
            output = await _run_in_time(
                self._registration, arguments, context, self._timeout, context.clock, context.mark
            )
        if output.is_error:
            raise _FailedOutputError(output)
        return output

    def _may_repeat(self, error: BaseException) -> bool:
        return not self._abandoned.is_left_running and _is_worth_it(self._retry, self._registration.name, error)

    async def _run_again(self, failure: Exception | SystemExit, original: dict[str, Any]) -> ToolOutput:
        """Retry after a first run that failed."""
        import random  # noqa: PLC0415 - slow to import

        context, name = self._context, self._registration.name

        async def log_retry(attempt: int, error: BaseException, delay: float) -> None:
            words = f"{type(error).__name__}: {error}"
            text = "attempt %d of call %s of %s is repeated in %.1f s: %s"
            facts = {"call_id": context.call_id, "tool": name}
            _logger.warning(text, attempt, context.call_id, name, delay, words, extra=facts)

        def is_worth_it(error: BaseException) -> bool:
            # The first failure was judged before; it is raised again where the next attempt waits in vain.
            return context.waited_in_vain is None and (error is failure or self._may_repeat(error))

        return await run_again(
            lambda number: self._run_attempt(number, copy_values(self._registration, original)),
            failure,
            retries=self._retry.max_retries,
            is_worth_it=is_worth_it,
            pause=lambda number, _: self._retry.pause(number, random.random()),  # noqa: S311 - jitter is no secret
            before_pause=log_retry,
        )

    async def _run_attempt(self, number: int, arguments: dict[str, Any]) -> ToolOutput:
        """Make another attempt; if it waits in vain, raise the failure of the last one that ran."""
        context = self._context
        again, is_over = context.another(number), False
        try:
            output = await self._run_once(arguments, again)
            is_over = True
            return output
        except (Exception, SystemExit) as error:
            is_over = isinstance(error, _FailedOutputError)
            if again.waits_for is None:
                self._last = error
            elif self._last is not None:
                context.waited_in_vain = again.waits_for
                raise self._last from error
            raise
        finally:
            if again.waits_for is None:
                context.waits_for = None
            context.is_left_running |= again.is_left_running
            context.left_by_child = again.left_by_child
            if is_over:
                again.close()
            else:
                again.abandon()


_FINAL_ERRORS = (
    InvalidArgumentsError,
    ToolNotFoundError,
    ToolDeniedError,
    ToolCancelledError,
    ToolUsageLimitExceededError,
)


def _is_worth_it(retry: ToolRetryConfig, tool: str, error: BaseException) -> bool:
    """Return whether a run that failed with this error is retried: as `retry_if` decides, else if it is unexpected.

    A `ToolError` or an error output is raised on purpose, and so not retried by default.
    """
    if not isinstance(error, (Exception, SystemExit)) or isinstance(error, _FINAL_ERRORS):
        return False
    if retry.retry_if is None:
        return isinstance(error, _TimeUpError) or not isinstance(error, ToolError)
    try:
        return bool(retry.retry_if(error))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except Exception:
        _logger.exception("retry_if of %s raised; the tool's own error stands", tool)
        return False


async def _run_in_time(
    registration: Registration[Ctx],
    arguments: dict[str, Any],
    context: ToolContext[Ctx] | None,
    timeout: float | None,
    clock: CallClock | None,
    mark: CancellationMark,
    deadlines: Deadlines | None = None,
) -> ToolOutput:
    """Run once, and for at most `timeout` seconds; `clock` limits the time, and is created if it is None."""
    seen: Any = context
    if context is not None:
        context.waits_for = None  # unless the function sets it: what waits first says so itself
    if timeout is None:
        return await registration.execute(arguments, seen)
    if clock is None:
        with CallClock(deadlines) as own:
            return await _run_in_time(registration, arguments, context, timeout, own, mark)
    if context is not None:
        context.clock = clock
    clock.start(timeout, mark)
    try:
        output = await registration.execute(arguments, seen)
    except BaseException as error:
        if not clock.has_caused(error):
            raise
    else:
        clock.stop()
        return output
    if context is not None:
        context.abandon()
        if context.waits_for is not None:
            raise _TimeUpError(registration.name, timeout, waited_for=context.waits_for)
    raise _TimeUpError(registration.name, timeout, still_running=_may_run_on(registration, context))
