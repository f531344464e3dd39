"""One run of a tool within its time, and the runs that follow one that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from toolkit.errors import (
    InvalidArgumentsError,
    ToolCancelledError,
    ToolDeniedError,
    ToolFailedError,
    ToolNotFoundError,
    ToolTimeoutError,
    ToolUsageLimitExceededError,
)
from toolkit.tools.context import ToolContext
from toolkit.tools.handler import Ctx, Registration
from toolkit.tools.output import ToolOutput

if TYPE_CHECKING:
    from toolkit.tools.options import ToolRetryConfig

__all__ = ["run_with_retry"]


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


async def run_with_retry(
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
