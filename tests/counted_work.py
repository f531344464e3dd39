"""Work in calls, which are the same on every machine and under any load, where seconds are not."""

import sys
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["count_calls", "grows_with_its_input"]

_COUNTED = frozenset({"call", "c_call"})


def count_calls(run: Callable[[], object]) -> int:
    """Return how many functions, of Python and of C, are called or resumed while something runs.

    Threads that it starts are counted too.
    """
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in _COUNTED

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    return count


def grows_with_its_input(run: Callable[[int], object], size: int) -> bool:
    """Return whether four times the input takes about four times the calls, and not sixteen times as many.

    Args:
        run: Does the work on an input of a size.
        size: The smaller one.
    """
    run(size)  # what is compiled and kept is no work of an input
    less, more = count_calls(lambda: run(size)), count_calls(lambda: run(4 * size))
    return more <= 5 * less + 2_000
