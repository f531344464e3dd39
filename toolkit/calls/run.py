"""The last stages of a call: run it, then finish it: its output becomes the result that the model reads.

Whatever a tool raises becomes an error result here and nowhere else, `SystemExit` too; only the cancellation of the
caller, and what else is no `Exception`, pass out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Any, Generic, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.calls.cache_keys import find_cache_key, is_cached
from toolkit.calls.caching import Cache
from toolkit.calls.context import ToolContext
from toolkit.calls.events import Observer, ToolExecutionEnd, ToolExecutionStart
from toolkit.calls.handler import Ctx, Registration
from toolkit.calls.policy import ExecutionPolicy
from toolkit.calls.prepare import Ready, copy_values
from toolkit.calls.reporting import Reporter
from toolkit.calls.retry import may_run_on, run_in_time, run_with_retry
from toolkit.calls.run_memory import RunMemory
from toolkit.calls.shaping import shape_result
from toolkit.chat import ToolCall, ToolResult
from toolkit.chat.output import ToolOutput, copy_result, describe_error, dump_output, load_output, to_output
from toolkit.dataclass import dataclass, maker_of
from toolkit.errors import ToolCrashedError, ToolError, ToolUsageLimitExceededError
from toolkit.runtime.backend import (
    AsyncioCancelledError,
    CancellationMark,
    cancellation_mark,
    is_own_cancellation,
)
from toolkit.runtime.call_clock import CallClock, Deadlines
from toolkit.runtime.gates import enter_gate, lock_key
from toolkit.runtime.workers import AbandonedThreads
from toolkit.settings import describe_value

__all__ = ["CallHost", "CutCall", "run", "run_directly"]

_logger = logging.getLogger("toolkit.calls")


@dataclass(slots=True)
class CutCall:
    """How far a call came that ended without a result.

    Args:
        waited_for: The thing that it waited for where its body never began; None where that ran.
        may_run_on: True where something of it may still run.
        left_by_child: The id of a loop that ran inside, and what it left.
    """

    waited_for: str | None
    _: KW_ONLY
    may_run_on: bool
    left_by_child: tuple[str | None, object] = (None, None)


@dataclass(slots=True)
class CallHost(Generic[Ctx]):
    """The things that the calls of one run share.

    Args:
        ctx: The application's context.
        policy: The settings for every call.
        depth: For `ToolContext.depth`.
        memory: The state that the run keeps between its calls; None outside of a run.
        keep: Given a call's id and its result the moment that is there: telling of it waits for others, and a
            cancellation that comes meanwhile must not undo what has been done.
        cut: Given a call's id and how far it came when it ends without a result, before what ends it passes out.
        deadlines: The timer of the calls that run at once; None where each has its own.
    """

    ctx: Ctx
    policy: ExecutionPolicy
    _: KW_ONLY
    depth: int = 0
    memory: RunMemory | None = None
    keep: Callable[[str, ToolResult], None] | None = None
    cut: Callable[[str, CutCall], None] | None = None
    deadlines: Deadlines | None = None


async def run(ready: Ready[Ctx], host: CallHost[Ctx], clock: CallClock | None = None) -> ToolResult:
    """Run a call that may run, and give its result; all that a tool raises becomes an error result.

    Args:
        ready: The call.
        host: The things that the calls of the run share.
        clock: Counts the time of this run; None makes one.
    """
    # For example, a tool that may take 2 s takes 3: observers are told its start, `run_in_time` raises, `_read_end`
    # makes an error result of that, and observers are told its end.
    call, registration, policy = ready.call, ready.registration, host.policy
    observer, config = policy.observer, policy.config
    context = ToolContext(
        host.ctx,
        call_id=call.id,
        tool_name=call.name,
        reporter=None if observer is None or not registration.may_report else _make_call_reporter(ready, observer),
    )
    # Not as arguments, which Python gives to a class in a dictionary.
    context.depth, context.memory, context.policy = host.depth, host.memory, policy
    context.scope, context.mark, context.clock = ready.scope, cancellation_mark(), clock
    began = 0.0
    is_cached = is_over = False
    crash: BaseException | None = None
    try:
        if observer is not None:
            began = time.perf_counter()
            await observer.emit(_make_start(ready))
        try:
            timeout = registration.options.timeout or config.timeouts.tool
            if registration.is_guarded or policy.around is not None or config.cache is not None:
                run_it = _run_guarded if policy.around is None else _run_around
                output, is_cached = await run_it(ready, context, policy)
            elif timeout is not None:
                output = await run_in_time(registration, ready.arguments, context, timeout, host.deadlines)
            else:
                context.waits_for = None  # what waits first says so itself
                output = await registration.execute(ready.arguments, context)
        except BaseException as error:  # noqa: BLE001 - what is not the tool's own is raised again
            output, crash = await _read_end(call, error, context.mark)
        is_over = True
    finally:
        if not is_over:
            context.abandon()
            if host.cut is not None:
                host.cut(call.id, _describe_cut(registration, context))
    context.close()
    unsaid, whole, limited = shape_result(ready, output, policy, context)
    if host.keep is not None:
        host.keep(call.id, limited)
    if observer is not None:
        duration = time.perf_counter() - began
        await observer.emit(_make_end(ready, whole, duration, is_cached=is_cached, crash=crash, unsaid=unsaid))
    if crash is not None and config.on_tool_exception == "raise":
        raise ToolCrashedError(call.name, call.id, describe_error(crash)) from crash
    return limited


def _is_failure(error: BaseException) -> bool:
    """Return whether an error is a tool's own: groups come from the task groups of its own."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_failure, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, (Exception, SystemExit))


async def _read_end(
    call: ToolCall, error: BaseException, mark: CancellationMark
) -> tuple[ToolOutput, BaseException | None]:
    """Do what `_read_failure` does for what ended a tool's run; raise again what is not the tool's own."""
    if isinstance(error, AsyncioCancelledError):
        if not is_own_cancellation(mark):
            # A scope that was cancelled a moment ago must get its own cancellation, else it would not know it again.
            await checkpoint_if_cancelled()
            raise error
    elif not _is_failure(error):
        raise error
    return _read_failure(call, error)


def _read_failure(call: ToolCall, error: BaseException) -> tuple[ToolOutput, BaseException | None]:
    """Return what the model reads of an error, and the error itself where the tool did not mean to raise it."""
    output = ToolOutput.error(error)
    if isinstance(error, ToolError):
        return output, None
    _logger.error("tool %s crashed in call %s", call.name, call.id, exc_info=error)
    return output, error


def _make_call_reporter(ready: Ready[Any], observer: Observer) -> Reporter:
    call, options = ready.call, ready.registration.options
    return Reporter(observer, call.id, call.name, label=options.label, tags=options.tags)


def _make_start(ready: Ready[Any]) -> ToolExecutionStart:
    """Return the event that tells of a run, with arguments of its own: whoever takes it may spoil them."""
    call, options = ready.call, ready.registration.options
    arguments, written = ready.show_arguments()
    return maker_of(ToolExecutionStart)(
        call_id=call.id,
        tool_name=call.name,
        label=options.label,
        tags=options.tags,
        arguments=arguments,
        arguments_json=written,
    )


def _make_end(
    ready: Ready[Any],
    result: ToolResult,
    duration: float,
    *,
    is_cached: bool,
    crash: BaseException | None,
    unsaid: tuple[str, ...],
) -> ToolExecutionEnd:
    call, options = ready.call, ready.registration.options
    return maker_of(ToolExecutionEnd)(
        call_id=call.id,
        tool_name=call.name,
        label=options.label,
        tags=options.tags,
        result=result if result.details is None else copy_result(result),
        duration=duration,
        is_cached=is_cached,
        error=crash,
        unsaid=unsaid,
    )


def _describe_cut(registration: Registration[Any], context: ToolContext[Any]) -> CutCall:
    may_go_on = may_run_on(registration, context)
    return CutCall(context.waits_for, may_run_on=may_go_on, left_by_child=context.left_by_child)


async def _run_around(ready: Ready[Ctx], context: ToolContext[Ctx], policy: ExecutionPolicy) -> tuple[ToolOutput, bool]:
    """Run inside of what stands around each call; say whether the output came from the cache."""
    assert policy.around is not None
    is_cached = False

    async def proceed() -> ToolOutput:
        nonlocal is_cached
        is_over = False
        try:
            output, is_cached = await _run_guarded(ready, context, policy)
            is_over = True
        except (Exception, SystemExit):
            is_over = True
            raise
        finally:
            if not is_over:  # also where what stands around ends it, and goes on
                context.abandon()
        return output if type(output) is ToolOutput else to_output(output)

    return await policy.around(ready, proceed), is_cached


async def _run_guarded(
    ready: Ready[Ctx], context: ToolContext[Ctx], policy: ExecutionPolicy
) -> tuple[ToolOutput, bool]:
    """Run under cache, usage limit, locks, retries and a timeout; say whether the output came from the cache."""
    registration, arguments = ready.registration, ready.arguments
    options = registration.options
    key = None
    if policy.config.cache is not None and is_cached(options, by_default=policy.caches_by_default):
        key = find_cache_key(registration, arguments, context.state)
        kept = None if key is None else await _read_cache(policy.config.cache, key)
        if kept is not None:
            return kept, True
    if registration.counter.maximum is not None and not registration.counter.claim(context.memory):
        raise ToolUsageLimitExceededError(registration.name, registration.counter.maximum or 0)
    timeout = options.timeout or policy.config.timeouts.tool
    if options.lock is not None or options.concurrency is not None:
        output = await _run_in_gates(registration, arguments, context, timeout)
    else:
        output = await run_with_retry(registration, arguments, context, timeout)
    if key is not None and policy.config.cache is not None:
        try:
            if _may_keep(ready, output):
                # A cancellation here must not undo what has been done; a cache that hangs is not waited for.
                with anyio.move_on_after(policy.config.timeouts.hook, shield=True):
                    await policy.config.cache.set(key, dump_output(output))
        except Exception:
            _logger.exception("the output of %s could not be cached; it stands", registration.name)
    return output, False


async def run_directly(
    registration: Registration[Ctx], arguments: dict[str, Any], context: ToolContext[Ctx]
) -> ToolOutput:
    """Run a tool for the application itself: under the tool's own limits, with no cache, and nobody is asked.

    What the tool raises is raised.
    """
    options = registration.options
    registration.counter.require(registration.name)
    is_over = False
    try:
        if options.lock is None and options.concurrency is None:
            output = await run_with_retry(registration, arguments, context, options.timeout)
        else:
            output = await _run_in_gates(registration, arguments, context, options.timeout)
        is_over = True
        return output
    finally:
        if is_over:
            context.close()
        else:
            context.abandon()


async def _run_in_gates(
    registration: Registration[Ctx], arguments: dict[str, Any], context: ToolContext[Ctx], timeout: float | None
) -> ToolOutput:
    """Run when nothing runs that must not run beside it, and hold that off until the work is over."""
    options, abandoned = registration.options, AbandonedThreads()
    held: list[Callable[[], None]] = []

    def leave() -> None:
        _ = registration  # its place among the gates is known by the tool's identity, which must be nobody else's
        while held:
            held.pop()()

    try:
        lock = options.lock(copy_values(registration, arguments)) if callable(options.lock) else options.lock
        if lock is not None:
            waiting = partial(context.waiting_for, f"the lock {describe_value(lock)}")
            held.append(await enter_gate(lock_key(lock), waiting=waiting))
        if options.concurrency is not None:
            places = options.concurrency
            waiting = partial(context.waiting_for, f"one of its {places} places")
            held.append(await enter_gate(("places", *registration.identity, places), places, waiting=waiting))
        with abandoned.watched():
            return await run_with_retry(registration, arguments, context, timeout)
    finally:
        abandoned.when_over(leave)


async def _read_cache(cache: Cache, key: str) -> ToolOutput | None:
    try:
        kept = await cache.get(key)
        return None if kept is None else load_output(kept)
    except Exception:
        _logger.exception("a cache failed, which counts as a miss")
        return None


def _may_keep(ready: Ready[Any], output: ToolOutput) -> bool:
    if output.is_error or not output.content or output.is_nothing:
        return False
    should_cache = ready.registration.options.should_cache
    return bool(should_cache(ready.copy_arguments(), replace(output))) if callable(should_cache) else True
