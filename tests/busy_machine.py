"""Times that must run out, but not before something has begun, which takes any time where the machine is busy."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["with_time_enough"]

T = TypeVar("T")


async def with_time_enough(run: Callable[[float], Awaitable[T]], came_far_enough: Callable[[T], object]) -> T:
    """Run with so many seconds, and once more with more where they were too few to come as far as it must.

    What goes wrong with any time is in the last result, for the test to see.
    """
    for seconds in (0.05, 0.5):
        result = await run(seconds)
        if came_far_enough(result):
            return result
    return await run(5)
