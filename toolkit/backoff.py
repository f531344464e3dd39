"""How long to wait before something that failed is tried again: the one formula, for whoever tries again."""

from __future__ import annotations

import math

__all__ = ["backoff_pause"]


def backoff_pause(retry: int, *, initial: float, longest: float, multiplier: float = 2.0, factor: float = 1.0) -> float:
    """Return the seconds before `retry`: ``min(initial * multiplier**retry, longest) * factor``, however late it is.

    Args:
        retry: From 0; it may be any number.
        initial: Seconds before the first retry.
        longest: The cap, in seconds.
        multiplier: How much longer each pause is than the one before.
        factor: What jitter makes of the pause; it is applied after the cap.
    """
    if initial <= 0:
        return 0.0
    try:
        # As floats: the power of two whole numbers has no end, and that of floats says so.
        pause = min(initial * math.pow(multiplier, retry), longest)
    except OverflowError:
        pause = longest
    return pause * factor
