"""One call, in three stages: prepare, run, finish.

`prepare` and `authorize` decide whether a call may run and with what; they give `Ready`, or a value that says why not.
`run` runs it. Whatever a tool raises becomes an error result here and nowhere else; only the cancellation of the
caller, and what is no `Exception`, pass out.
"""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.chat import ContentBlock, TextBlock, ToolCall, ToolResult
from toolkit.dataclass import dataclass
from toolkit.errors import (
    InvalidArgumentsError,
    ToolCancelledError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
    ToolNotFoundError,
    ToolTimeoutError,
    ToolUsageLimitExceededError,
)
from toolkit.schema import MalformedJsonError, decode_strings
from toolkit.tools.approval import (
    Abort,
    ApprovalHook,
    ApprovalRequest,
    Approve,
    Defer,
    Deny,
    Modify,
    to_approval,
)
from toolkit.tools.backend import (
    AsyncioCancelledError,
    CancellationMark,
    cancellation_mark,
    is_own_cancellation,
)
from toolkit.tools.caching import Cache, cache_key
from toolkit.tools.context import ToolContext
from toolkit.tools.events import (
    Observer,
    ToolCallRepaired,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from toolkit.tools.gates import keyed_lock, limiter
from toolkit.tools.handler import Ctx, Registration
from toolkit.tools.limits import limit_text
from toolkit.tools.output import ToolOutput, dump_output, encodable, load_output, plain_text, to_output, words_of
from toolkit.tools.results import ResultStore

if TYPE_CHECKING:
    from toolkit.tools.options import ToolRetryConfig
    from toolkit.tools.permissions import Permissions

__all__ = [
    "Aborted",
    "AfterToolExecution",
    "BeforeToolExecution",
    "Deferred",
    "ExecutionPolicy",
    "Ready",
    "Refused",
    "Verdict",
    "authorize",
    "decided",
    "describe_error",
    "error_result",
    "prepare",
    "run",
]

_logger = logging.getLogger("toolkit.tools")

BeforeToolExecution: TypeAlias = Callable[[str, str, Mapping[str, Any]], bool | Awaitable[bool]]
"""Given tool name, call id and arguments; False skips the call. Raising skips it too."""

AfterToolExecution: TypeAlias = Callable[[str, str, bool], Awaitable[None] | None]
"""Given tool name, call id and whether it failed. Raising changes nothing."""


@dataclass(slots=True, kw_only=True)
class ExecutionPolicy:
    """What the caller wants for every call; made once per run.

    Args:
        tool_timeout: Seconds for one run of a tool that has no timeout of its own.
        max_output_chars: The longest text that the model reads.
        name_repair: Whether a near miss of a tool's name is taken as that name.
        argument_repair: Whether malformed arguments are mended.
        keep_output: Which part of a longer text that is.
        results: Where the whole of a longer text is kept, for `read_result`.
        cache: Where outputs are kept; None keeps none.
        before: Asked before each call.
        after: Told after each call.
        approve: Asked about each call, after `before`.
        hook_timeout: Seconds that an async hook may take.
        observer: Takes the events.
        metadata: For `ToolContext.metadata`.
        sync_workers: How many worker threads may run at once.

    Attributes:
        runs_bare: Whether nothing of this comes between the loop and the tool that it awaits.
    """

    tool_timeout: float | None = None
    max_output_chars: int | None = 32_000
    name_repair: bool = True
    argument_repair: bool = True
    keep_output: Literal["head", "tail", "both"] = "both"
    results: ResultStore | None = None
    cache: Cache | None = None
    before: BeforeToolExecution | None = None
    after: AfterToolExecution | None = None
    approve: ApprovalHook | None = None
    hook_timeout: float = 60.0
    observer: Observer | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sync_workers: int = 40
    runs_bare: bool = field(init=False)

    def __post_init__(self) -> None:
        self.runs_bare = (
            self.cache is None and self.tool_timeout is None and self.observer is None and self.after is None
        )


@dataclass(slots=True)
class Ready(Generic[Ctx]):
    """A call that may run.

    Args:
        call: As it is taken, its name repaired.
        registration: The tool.
        arguments: Validated.
        original: As the model wrote it.
        asks: Why somebody must agree first; None when nobody must.
        repairs: What was mended.
        is_modified: Whether an approver has given other arguments.
    """

    call: ToolCall
    registration: Registration[Ctx]
    arguments: dict[str, Any]
    original: ToolCall
    asks: str | None = None
    repairs: tuple[ToolCallRepaired, ...] = ()
    is_modified: bool = False


@dataclass(slots=True)
class Refused:
    """A call that will not run, with the result that says why."""

    call: ToolCall
    result: ToolResult
    repairs: tuple[ToolCallRepaired, ...] = ()


@dataclass(slots=True)
class Deferred(Generic[Ctx]):
    """A call whose approval comes later."""

    ready: Ready[Ctx]


@dataclass(slots=True)
class Aborted:
    """A call whose approver ended the run."""

    call: ToolCall
    reason: str


Verdict: TypeAlias = Ready[Ctx] | Refused | Deferred[Ctx] | Aborted


def error_result(call: ToolCall, message: str) -> ToolResult:
    """Return the error result of `call`."""
    return ToolResult(call.id, encodable(message), tool_name=call.name, is_error=True)


def describe_error(error: BaseException) -> str:
    """Return what a model reads of an error: a `ToolError` as written, another as ``Type: message``; never empty."""
    if isinstance(error, ToolError):
        return encodable(error.message)
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return f"{name}: " + "; ".join(describe_error(inner) for inner in group.exceptions)
    text = words_of(error)
    return f"{name}: {text}" if text and text != name else f"{name} (it gave no message)"


# prepare


def prepare(
    call: ToolCall,
    registrations: Mapping[str, Registration[Ctx]],
    policy: ExecutionPolicy,
    permissions: Permissions | None = None,
) -> Ready[Ctx] | Refused:
    """Find the tool, read the arguments and apply the rules; nobody is asked and nothing runs."""
    registration = registrations.get(call.name)
    repairs: tuple[ToolCallRepaired, ...] = ()
    original = call
    if registration is None:
        from toolkit.tools.repair import nearest_names, repair_name  # noqa: PLC0415 - as in `_mend`

        name = repair_name(call.name, registrations) if policy.name_repair else None
        if name is None:
            unknown = ToolNotFoundError(call.name, tuple(registrations), nearest_names(call.name, registrations))
            return Refused(call, error_result(call, unknown.message))
        repairs = (ToolCallRepaired(call_id=call.id, tool_name=name, kind="name", before=call.name, after=name),)
        registration = registrations[name]
        call = ToolCall(call.id, name, call.arguments, extra=call.extra)
    try:
        arguments = registration.parse_json(call.arguments)
    except InvalidArgumentsError as error:
        allowed = registration.options.argument_repair
        if not (policy.argument_repair if allowed is None else allowed):
            return Refused(call, error_result(call, error.message), repairs)
        try:
            arguments, more = _mend(call, registration, error)
        except InvalidArgumentsError as final:
            return Refused(call, error_result(call, final.message), repairs)
        repairs += more
    ready = Ready(call, registration, arguments, original, repairs=repairs)
    if registration.options.requires_approval:
        ready.asks = f"Tool '{call.name}' needs approval."
    return ready if permissions is None else _permit(ready, permissions)


def _mend(
    call: ToolCall, registration: Registration[Any], error: InvalidArgumentsError
) -> tuple[dict[str, Any], tuple[ToolCallRepaired, ...]]:
    """Read arguments that were refused once, or raise what the model should be told."""
    from toolkit.tools.repair import repair_arguments  # noqa: PLC0415 - a twentieth of the import, and rarely needed

    text = call.arguments
    repairs: tuple[ToolCallRepaired, ...] = ()
    if isinstance(error, MalformedJsonError):
        mended = repair_arguments(text)
        if mended is None:
            raise error
        repairs = (ToolCallRepaired(call_id=call.id, tool_name=call.name, kind="text", before=text, after=mended),)
        text = mended
        try:
            return registration.parse_json(text), repairs
        except MalformedJsonError:
            raise error from None
        except InvalidArgumentsError as still_wrong:
            error = still_wrong
    decoded = decode_strings(registration.arguments, json.loads(text or "{}"))
    if decoded is None:
        raise error
    after = json.dumps(decoded, ensure_ascii=False)
    repair = ToolCallRepaired(call_id=call.id, tool_name=call.name, kind="values", before=text, after=after)
    return registration.arguments.parse(decoded), (*repairs, repair)


def _permit(ready: Ready[Ctx], permissions: Permissions) -> Ready[Ctx] | Refused:
    plain: dict[str, Any] = json.loads(ready.registration.arguments.dump_json(ready.arguments))
    decision = permissions.decide(ready.call.name, plain)
    if decision.action == "deny":
        return Refused(ready.call, error_result(ready.call, ToolDeniedError(decision.reason).message), ready.repairs)
    if decision.action == "ask":
        ready.asks = decision.reason
    return ready


async def authorize(ready: Ready[Ctx], policy: ExecutionPolicy, permissions: Permissions | None = None) -> Verdict[Ctx]:
    """Ask the guards: the hook before execution, then the approval. A guard that raises denies."""
    call = ready.call
    if policy.before is not None:
        try:
            goes_on = await _answer(policy.before(call.name, call.id, ready.arguments), policy.hook_timeout)
        except Exception:
            _logger.exception("before_tool_execution raised for %s; the call is skipped", call.name)
            goes_on = False
        if goes_on is not True:
            return Refused(call, error_result(call, "Tool execution skipped by before_tool_execution hook."))
    if policy.approve is None:
        if ready.asks is None:
            return ready
        return Refused(call, error_result(call, f"{ready.asks} Nobody is there to approve it, so it was not run."))
    return decided(ready, await _approval(ready, policy.approve, policy.hook_timeout), permissions)


async def _approval(ready: Ready[Any], approve: ApprovalHook, timeout: float) -> object:
    call = ready.call
    request = ApprovalRequest(
        call.id,
        call.name,
        ready.arguments,
        original=ready.original,
        definition=ready.registration.definition,
        tags=ready.registration.options.tags,
        reason=ready.asks or "",
    )
    try:
        return await _answer(approve(request), timeout)
    except Exception:
        _logger.exception("the approval hook raised for %s; the call is denied", call.name)
        return Deny("Tool call denied: the approval hook failed.")


def decided(ready: Ready[Ctx], answer: object, permissions: Permissions | None) -> Verdict[Ctx]:
    """Apply the answer of an approver to a call."""
    call = ready.call
    match to_approval(answer):
        case Approve():
            return ready
        case Deny(reason):
            return Refused(call, error_result(call, ToolDeniedError(reason).message))
        case Abort(reason):
            return Aborted(call, reason)
        case Defer():
            return Deferred(ready)
        case Modify(arguments):
            try:
                ready.arguments = ready.registration.arguments.parse(dict(arguments))
                ready.is_modified = True
            except InvalidArgumentsError as error:
                return Refused(call, error_result(call, f"The approver changed the arguments wrongly. {error.message}"))
            judged = ready if permissions is None else _permit(ready, permissions)
            return judged if isinstance(judged, Refused) else ready


async def _answer(value: Any, timeout: float) -> Any:
    if not inspect.isawaitable(value):
        return value
    with anyio.fail_after(timeout):
        return await value


# run and finish


async def run(
    ready: Ready[Ctx],
    state: Ctx,
    policy: ExecutionPolicy,
    *,
    depth: int = 0,
    keep: Callable[[str, ToolResult], None] | None = None,
) -> ToolResult:
    """Run a call that may run, and give its result; all that a tool raises becomes an error result.

    `keep` is given the call's id and its result the moment that is there: telling of it waits for others, and a
    cancellation that comes meanwhile must not undo what has been done.
    """
    registration = ready.registration
    bare = registration.bare if policy.runs_bare else None
    if bare is None:
        return await _run_in_context(ready, state, policy, depth, keep)
    call = ready.call
    mark = cancellation_mark()
    try:
        value = await bare(**ready.arguments)
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is told to the model
        output = _failure(call.name, error)
    except AsyncioCancelledError as error:
        output = await _cancelled(call.name, error, mark)
    else:
        text = plain_text(value)
        most = registration.max_output_chars or policy.max_output_chars
        if text is not None and (most is None or len(text) <= most):
            result = ToolResult(
                call.id, text, tool_name=call.name, result_as_answer=registration.options.result_as_answer
            )
            if keep is not None:
                keep(call.id, result)
            return result
        output = to_output(value)
    _, result = _results(ready, output, policy)
    if keep is not None:
        keep(call.id, result)
    return result


async def _run_in_context(
    ready: Ready[Ctx],
    state: Ctx,
    policy: ExecutionPolicy,
    depth: int,
    keep: Callable[[str, ToolResult], None] | None,
) -> ToolResult:
    """Run a call whose tool has a context, or in which somebody else takes part."""
    call, registration, observer = ready.call, ready.registration, policy.observer
    context = ToolContext(
        state,
        call_id=call.id,
        tool_name=call.name,
        depth=depth,
        metadata=policy.metadata,
        sync_workers=policy.sync_workers,
        observer=observer,
    )
    began = 0.0
    if observer is not None:
        began = time.perf_counter()
        await observer.emit(ToolExecutionStart(call_id=call.id, tool_name=call.name, arguments=ready.arguments))
    mark = cancellation_mark()
    is_cached = False
    try:
        if registration.is_guarded or policy.cache is not None or policy.tool_timeout is not None:
            output, is_cached = await _guarded(ready, context, policy)
        else:
            output = await registration.execute(ready.arguments, context)
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is told to the model
        output = _failure(call.name, error)
    except AsyncioCancelledError as error:
        output = await _cancelled(call.name, error, mark, context)
    context.close()
    whole, limited = _results(ready, output, policy)
    if keep is not None:
        keep(call.id, limited)
    if observer is not None or policy.after is not None:
        await _tell_end(call, whole, policy, began=began, is_cached=is_cached)
    return limited


async def _cancelled(
    name: str, error: AsyncioCancelledError, mark: CancellationMark, context: ToolContext[Any] | None = None
) -> ToolOutput:
    """Tell a cancellation that the tool raised by itself from one that the caller was given, which goes on."""
    if is_own_cancellation(mark):
        return _failure(name, error)
    if context is not None:
        context.abandon()
    # A scope that was cancelled a moment ago must get its own cancellation, else it would not know it again.
    await checkpoint_if_cancelled()
    raise error


def _results(ready: Ready[Any], output: ToolOutput, policy: ExecutionPolicy) -> tuple[ToolResult, ToolResult]:
    """Return the result of a call: the whole of it, and as far as the model may read it."""
    call, registration = ready.call, ready.registration
    if type(output) is not ToolOutput or output.is_error:
        output = _with_reason(to_output(output))
    result = ToolResult(
        call.id,
        output.content,
        tool_name=call.name,
        is_error=output.is_error,
        result_as_answer=(output.result_as_answer or registration.options.result_as_answer) and not output.is_error,
        child_loop_id=output.child_loop_id,
        details=output.details,
    )
    return result, _limited(result, registration, policy)


def _with_reason(output: ToolOutput) -> ToolOutput:
    """Return an output that, if it is an error, says something."""
    if not output.is_error or output.text.strip():
        return output
    reason = "The tool failed and gave no reason."
    blocks = () if isinstance(output.content, str) else output.content
    return replace(output, content=(TextBlock(reason), *blocks) if blocks else reason)


def _failure(name: str, error: BaseException) -> ToolOutput:
    if not isinstance(error, ToolError):
        _logger.debug("tool %s raised", name, exc_info=error)
    return ToolOutput.error(describe_error(error))


async def _tell_end(
    call: ToolCall, result: ToolResult, policy: ExecutionPolicy, *, began: float, is_cached: bool
) -> None:
    if policy.observer is not None:
        await policy.observer.emit(
            ToolExecutionEnd(
                call_id=call.id,
                tool_name=call.name,
                result=result,
                duration=time.perf_counter() - began,
                is_cached=is_cached,
            )
        )
    if policy.after is None:
        return
    try:
        await _answer(policy.after(call.name, call.id, result.is_error), policy.hook_timeout)
    except Exception:
        _logger.exception("after_tool_execution raised for %s; the result stands", call.name)


def _limited(result: ToolResult, registration: Registration[Any], policy: ExecutionPolicy) -> ToolResult:
    """Return the result with its text cut to what the model may read."""
    most = registration.max_output_chars or policy.max_output_chars
    if most is None or (len(result.content) <= most and isinstance(result.content, str)):
        return result
    keep = registration.options.keep_output or policy.keep_output
    if isinstance(result.content, str):
        return replace(result, content=_cut(result.content, most, keep, policy))
    if len(result.text) <= most:
        return result
    blocks: list[ContentBlock] = []
    for block in result.content:
        if isinstance(block, TextBlock):
            # What is left goes to the texts in their order; the last ones may keep a single character.
            left = max(1, most)
            most -= len(block.text)
            blocks.append(TextBlock(_cut(block.text, left, keep, policy)) if len(block.text) > left else block)
        else:
            blocks.append(block)
    return replace(result, content=tuple(blocks))


def _cut(text: str, most: int, keep: Literal["head", "tail", "both"], policy: ExecutionPolicy) -> str:
    reference = None if policy.results is None else policy.results.put(text)
    return limit_text(text, most, keep, reference=reference)


# what only some tools ask for


async def _guarded(ready: Ready[Ctx], context: ToolContext[Ctx], policy: ExecutionPolicy) -> tuple[ToolOutput, bool]:
    """Run under cache, usage limit, locks, retry and timeout; say whether the output came from the cache."""
    registration, arguments = ready.registration, ready.arguments
    options = registration.options
    key = None
    if policy.cache is not None and options.should_cache is not False:
        key = cache_key(registration.name, registration.arguments.dump_json(arguments))
        kept = await _kept(policy.cache, key)
        if kept is not None:
            return kept, True
    if not registration.counter.claim():
        raise ToolUsageLimitExceededError(registration.name, registration.counter.maximum or 0)
    timeout = options.timeout or policy.tool_timeout
    if options.lock is None and options.concurrency is None:
        output = await _tried(registration, arguments, context, timeout)
    else:
        async with AsyncExitStack() as gates:
            if options.lock is not None:
                await gates.enter_async_context(keyed_lock(registration.tool, options.lock(arguments)))
            if options.concurrency is not None:
                await gates.enter_async_context(limiter(registration.tool, options.concurrency))
            output = await _tried(registration, arguments, context, timeout)
    if key is not None and policy.cache is not None:
        try:
            if _is_cacheable(output, arguments, options.should_cache):
                # A cancellation here must not undo what has been done; a cache that hangs is not waited for.
                with anyio.move_on_after(policy.hook_timeout, shield=True):
                    await policy.cache.set(key, dump_output(output))
        except Exception:
            _logger.exception("the output of %s could not be cached; it stands", registration.name)
    return output, False


async def _kept(cache: Cache, key: str) -> ToolOutput | None:
    try:
        kept = await cache.get(key)
        return None if kept is None else load_output(kept)
    except Exception:
        _logger.exception("a cache failed, which counts as a miss")
        return None


def _is_cacheable(output: ToolOutput, arguments: dict[str, Any], should_cache: Any) -> bool:
    if output.is_error or not output.content or output.is_nothing:
        return False
    return bool(should_cache(arguments, output)) if callable(should_cache) else True


async def _timed(
    registration: Registration[Ctx], arguments: dict[str, Any], context: ToolContext[Ctx], timeout: float | None
) -> ToolOutput:
    if timeout is None:
        return await registration.execute(arguments, context)
    output: ToolOutput | None = None
    with anyio.move_on_after(timeout):
        output = await registration.execute(arguments, context)
    if output is None:
        raise ToolTimeoutError(registration.name, timeout, still_running=context.cancelled)
    return output


_FINAL_ERRORS = (
    InvalidArgumentsError,
    ToolNotFoundError,
    ToolDeniedError,
    ToolCancelledError,
    ToolUsageLimitExceededError,
)


async def _tried(
    registration: Registration[Ctx], arguments: dict[str, Any], context: ToolContext[Ctx], timeout: float | None
) -> ToolOutput:
    """Run once; what fails and may be retried is."""
    retry = registration.options.retry
    if retry is None:
        return await _timed(registration, arguments, context, timeout)
    output: ToolOutput | None = None
    try:
        output = await _timed(registration, arguments, context, timeout)
        if not output.is_error:
            return output
        failure: Exception = ToolFailedError(output.text)
    except Exception as error:  # noqa: BLE001 - raised again below, unless a retry helps
        failure = error
    return await _retried(registration, arguments, context, timeout, retry, failure, output)


async def _retried(
    registration: Registration[Ctx],
    arguments: dict[str, Any],
    context: ToolContext[Ctx],
    timeout: float | None,
    retry: ToolRetryConfig,
    failure: Exception | None,
    output: ToolOutput | None,
) -> ToolOutput:
    """Go on from a first run that failed: tenacity is told of it as if it had seen it."""
    import random  # noqa: PLC0415 - slow to import, as what follows

    import tenacity  # noqa: PLC0415 - it takes 30 us to begin, so it is only asked about what has failed

    def is_worth_it(error: BaseException) -> bool:
        if not isinstance(error, Exception) or isinstance(error, _FINAL_ERRORS):
            return False
        if isinstance(error, ToolTimeoutError) and error.still_running:
            return False
        return retry.retry_if is None or retry.retry_if(error)

    def pause(state: tenacity.RetryCallState) -> float:
        return retry.pause(state.attempt_number - 1, random.random())  # noqa: S311 - jitter is no secret

    try:
        async for attempt in tenacity.AsyncRetrying(
            sleep=anyio.sleep,
            stop=tenacity.stop_after_attempt(retry.max_retries + 1),
            wait=pause,
            retry=tenacity.retry_if_exception(is_worth_it),
            reraise=True,
        ):
            with attempt:
                if failure is not None:
                    first, failure = failure, None
                    raise first
                context.attempt = attempt.retry_state.attempt_number
                output = None
                output = await _timed(registration, arguments, context, timeout)
                if output.is_error:
                    raise ToolFailedError(output.text)  # noqa: TRY301 - how tenacity learns of a failure
    except ToolFailedError:
        # A failure that the tool returned stays as it returned it, with its details.
        if output is None or not output.is_error:
            raise
    assert output is not None
    return output
