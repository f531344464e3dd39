"""One run of a tool within its time, and the runs that follow one that failed by accident."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolkit.backoff import run_again
from toolkit.calls.context import ToolContext
from toolkit.calls.handler import Ctx, Registration
from toolkit.calls.prepare import copy_values
from toolkit.chat.output import ToolOutput
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
from toolkit.runtime.backend import has_busy_threads
from toolkit.runtime.call_clock import CallClock, Deadlines
from toolkit.runtime.workers import AbandonedThreads, abandoned_count

if TYPE_CHECKING:
    from toolkit.calls.options import ToolRetryConfig

__all__ = ["may_run_on", "run_in_time", "run_with_retry"]

_logger = logging.getLogger("toolkit.calls")


class _TimeUpError(ToolTimeoutError):
    """The time of a run was up: an accident, and not what the tool has decided to say."""


def may_run_on(registration: Registration[Any], context: ToolContext[Any]) -> bool:
    """Return whether something of a call that was given up may still run.

    A process of its own was ended. An async function has ended too, but it may have handed work to a thread: where
    threads of this event loop are busy nobody can tell for whom.
    """
    if registration.options.isolation is not None:
        return False
    return context.is_left_running or abandoned_count() > 0 or has_busy_threads()


async def run_in_time(
    registration: Registration[Ctx],
    arguments: dict[str, Any],
    context: ToolContext[Ctx],
    timeout: float | None,
    deadlines: Deadlines | None = None,
) -> ToolOutput:
    """Run once, and for at most `timeout` seconds; `deadlines` is the timer of the calls beside this one."""
    context.waits_for = None  # what waits first says so itself
    if timeout is None:
        return await registration.execute(arguments, context)
    clock = context.clock
    if clock is None:
        with CallClock(deadlines) as context.clock:
            return await run_in_time(registration, arguments, context, timeout)
    clock.start(timeout, context.mark)
    try:
        output = await registration.execute(arguments, context)
    except BaseException as error:
        if not clock.has_caused(error):
            raise
    else:
        clock.stop()
        return output
    context.abandon()
    if context.waits_for is not None:
        raise _TimeUpError(registration.name, timeout, waited_for=context.waits_for)
    raise _TimeUpError(registration.name, timeout, still_running=may_run_on(registration, context))


_FINAL_ERRORS = (
    InvalidArgumentsError,
    ToolNotFoundError,
    ToolDeniedError,
    ToolCancelledError,
    ToolUsageLimitExceededError,
)


async def run_with_retry(
    registration: Registration[Ctx], arguments: dict[str, Any], context: ToolContext[Ctx], timeout: float | None
) -> ToolOutput:
    """Run once, and again where the run failed and may be repeated; return the last output, or raise the last error."""
    retry = registration.options.retry
    if retry is None:
        return await run_in_time(registration, arguments, context, timeout)
    abandoned, output = AbandonedThreads(), None
    kept = copy_values(registration, arguments)  # a run may change what it is given
    try:
        with abandoned.watched():
            output = await run_in_time(registration, arguments, context, timeout)
        if not output.is_error:
            return output
        failure: Exception | SystemExit = ToolFailedError(output.text)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again below, unless a retry helps
        failure = error
    if abandoned.is_left_running or not _is_worth_it(retry, registration.name, failure):
        if output is None:
            raise failure
        return output  # a failure that the tool returned stays as it returned it, with its details
    return await _run_again(registration, kept, context, timeout, retry, failure, abandoned)


def _is_worth_it(retry: ToolRetryConfig, tool: str, error: BaseException) -> bool:
    """Return whether a run that failed with this is repeated: accidents are, and what `retry_if` wants.

    What a tool says on purpose, by a `ToolError` or an error output, is no accident.
    """
    if not isinstance(error, (Exception, SystemExit)) or isinstance(error, _FINAL_ERRORS):
        return False
    if retry.retry_if is None:
        return isinstance(error, _TimeUpError) or not isinstance(error, ToolError)
    try:
        return bool(retry.retry_if(error))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except Exception:
        _logger.exception("retry_if of %s raised; the tool's own error is told", tool)
        return False


async def _run_again(
    registration: Registration[Ctx],
    arguments: dict[str, Any],
    context: ToolContext[Ctx],
    timeout: float | None,
    retry: ToolRetryConfig,
    failure: Exception | SystemExit,
    abandoned: AbandonedThreads,
) -> ToolOutput:
    """Go on from a first run that failed and is worth another."""
    import random  # noqa: PLC0415 - slow to import

    output: ToolOutput | None = None

    async def run(attempt: int) -> ToolOutput:
        nonlocal output
        output = None
        with _another_attempt(context, attempt) as again, abandoned.watched():
            output = await run_in_time(registration, copy_values(registration, arguments), again, timeout)
        if output.is_error:
            raise ToolFailedError(output.text)
        return output

    def is_repeated(error: BaseException) -> bool:
        # Of the first run that is known already.
        return error is failure or (not abandoned.is_left_running and _is_worth_it(retry, registration.name, error))

    async def log_retry(attempt: int, error: BaseException, delay: float) -> None:
        from toolkit.secrets import without_keys  # noqa: PLC0415 - its patterns take milliseconds

        words, name = without_keys(f"{type(error).__name__}: {error}"), registration.name
        said = "attempt %d of call %s of %s is repeated in %.1f s: %s"
        _logger.warning(said, attempt, context.call_id, name, delay, words)

    try:
        return await run_again(
            run,
            failure,
            retries=retry.max_retries,
            is_worth_it=is_repeated,
            pause=lambda number, _: retry.pause(number, random.random()),  # noqa: S311 - jitter is no secret
            before_pause=log_retry,
        )
    except ToolFailedError:
        if output is None or not output.is_error:
            raise
        return output


@contextmanager
def _another_attempt(context: ToolContext[Ctx], attempt: int) -> Generator[ToolContext[Ctx]]:
    """Give an envelope of its own to one more attempt; where it ends without an output it was given up."""
    again, is_over = context.another(attempt), False
    try:
        yield again
        is_over = True
    finally:
        context.is_left_running |= again.is_left_running
        context.left_by_child = again.left_by_child
        if not is_over:
            again.abandon()
        again.close()
