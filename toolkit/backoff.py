"""Retries: the formula of the pause before each, what a server asks for (``Retry-After``), and what runs them.

These are retries of requests and calls, a finite number of times. Starting an ended process or a lost connection with
the next call, going on with a paused turn, and waiting for a lock are other things.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")


def backoff_pause(retry: int, *, initial: float, longest: float, multiplier: float = 2.0, factor: float = 1.0) -> float:
    """Return the seconds before `retry`: ``min(initial * multiplier**retry, longest) * factor``, however late it is.

    Args:
        retry: From 0; it may be any number.
        initial: Seconds before the first retry.
        longest: The cap, in seconds.
        multiplier: How much longer each pause is than the one before.
        factor: A random number by which the pause is multiplied; it is applied after the cap.
    """
    if initial <= 0:
        return 0.0
    try:
        # As floats: a power of integers grows without bound, that of floats overflows.
        pause = min(initial * math.pow(multiplier, retry), longest)
    except OverflowError:
        pause = longest
    return pause * factor


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait, from milliseconds, seconds or a date; None if it does not.

    Args:
        headers: The headers of its response, with names in lower case.
    """
    for header, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        seconds = read_seconds(headers.get(header, ""))
        if seconds is not None:
            return seconds / unit
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow to import, and few servers send a date

    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def read_seconds(text: str) -> float | None:
    """Return the number that a server has written, or zero for a negative one; None if it is no finite number."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


async def run_again(
    run: Callable[[int], Awaitable[T]],
    failure: BaseException,
    *,
    retries: int,
    is_worth_it: Callable[[BaseException], bool],
    pause: Callable[[int, BaseException], float],
    before_pause: Callable[[int, BaseException, float], Awaitable[None]] | None = None,
) -> T:
    """Run a failed call again while that is worthwhile; return its result, or raise its last failure.

    The first run is the caller's: where nothing fails, nothing here is paid for.

    Args:
        run: Makes one attempt; receives its number, 2 for the first one here.
        failure: The exception that the first run raised.
        retries: The most runs after the first.
        is_worth_it: Returns whether a run that raised this is repeated; asked of each failure, the first one too.
        pause: Returns the seconds to wait, from the number of the retry (from 0) and the exception.
        before_pause: Called with the number of the attempt that failed (from 1), its exception, and the seconds.
    """
    import tenacity  # noqa: PLC0415 - slow to import, and only needed where something has failed

    attempts = 0

    async def attempt() -> T:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise failure  # tenacity gets the first failure as if it had run the attempt
        return await run(attempts)

    def find_pause(state: RetryCallState) -> float:
        return pause(state.attempt_number - 1, _failure_of(state))

    async def tell_pause(state: RetryCallState) -> None:
        if before_pause is not None:
            await before_pause(state.attempt_number, _failure_of(state), state.upcoming_sleep)

    again = tenacity.AsyncRetrying(
        sleep=anyio.sleep,
        stop=tenacity.stop_after_attempt(retries + 1),
        wait=find_pause,
        retry=tenacity.retry_if_exception(is_worth_it),
        before_sleep=tell_pause,
        reraise=True,
    )
    return await again(attempt)


def _failure_of(state: RetryCallState) -> BaseException:
    failure = None if state.outcome is None else state.outcome.exception()
    assert failure is not None  # a run that gave something is not repeated
    return failure
