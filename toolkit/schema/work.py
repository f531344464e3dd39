"""The bound of a check: steps of work, which are the same on every machine, and not seconds."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["ALLOWED_STEPS", "MAX_DEPTH", "TooMuchWorkError", "WorkBudget", "is_limited"]

_MOST_STEPS = 1_000_000

MAX_DEPTH = 100
"""How deeply arguments may be nested: what reads them, here and elsewhere, goes down by recursion."""
ALLOWED_STEPS: ContextVar[int] = ContextVar("allowed_steps", default=_MOST_STEPS)
"""How many steps one check may take; whoever sets it to fewer gets `TooMuchWorkError`, and can check it elsewhere."""


class TooMuchWorkError(Exception):
    """A check was given up: it would have taken more steps than it may."""


class WorkBudget:
    """Steps that may still be taken; a step is about a microsecond."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take that many steps.

        Raises:
            TooMuchWorkError: There are not so many left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooMuchWorkError


def is_limited() -> bool:
    """Whether somebody allows fewer steps than usual, to take up the check elsewhere."""
    return ALLOWED_STEPS.get() < _MOST_STEPS
