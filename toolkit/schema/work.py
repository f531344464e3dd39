"""The bound of a check: steps of work, which are the same on every machine, and not seconds."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Literal

__all__ = ["MAX_DEPTH", "SHARED_BUDGET", "TooMuchWorkError", "WorkBudget", "is_trial", "open_budget"]

MAX_DEPTH = 100
"""How deeply arguments may be nested: what reads them, here and elsewhere, goes down by recursion."""
_STEPS_OF_CHECK = 500_000
_STEPS_OF_TRIAL = 20_000


class TooMuchWorkError(Exception):
    """A check was given up: it would have taken more steps than it may."""


class WorkBudget:
    """Steps that may still be taken; a step is about a microsecond.

    Args:
        steps: How many.
        is_trial: True where `TooMuchWorkError` tells the giver of the budget to check elsewhere; else it is a refusal.
    """

    __slots__ = ("is_trial", "left")

    def __init__(self, steps: int = _STEPS_OF_CHECK, *, is_trial: bool = False) -> None:
        self.left = steps
        self.is_trial = is_trial

    def spend(self, steps: int) -> None:
        """Take that many steps.

        Raises:
            TooMuchWorkError: There are not so many left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooMuchWorkError


SHARED_BUDGET: ContextVar[WorkBudget | Literal["trial"] | None] = ContextVar("shared_budget", default=None)
"""The budget that all checks of one call take their steps from; ``trial`` becomes a small one when it is opened."""


def open_budget() -> WorkBudget:
    """Return the budget that checks take their steps from here, or one for a check by itself."""
    shared = SHARED_BUDGET.get()
    if shared == "trial":
        shared = WorkBudget(_STEPS_OF_TRIAL, is_trial=True)
        SHARED_BUDGET.set(shared)
    return shared or WorkBudget()


def is_trial() -> bool:
    """Return whether whoever gave the budget checks again elsewhere what takes more."""
    return open_budget().is_trial
