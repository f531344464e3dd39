"""The state of a durable run beside its machine, written with each entry: its time, its budget, its middleware."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import anyio

from toolkit.errors import JournalError
from toolkit.json_text import write_json
from toolkit.loop.budget import Budget, Spent, UsageLimits
from toolkit.loop.journal import JournalValue

if TYPE_CHECKING:
    from toolkit.loop.clock import LoopClock
    from toolkit.loop.requests import ModelRequests
    from toolkit.loop.resources import LoopResources

__all__ = ["SideState"]


class SideState:
    """Writes it, and restores it as the newest of the entries that were replayed says.

    Args:
        resources: The resources of the loop.
        requests: Makes its requests.

    Attributes:
        clock: Counts its time; None before it runs.
    """

    def __init__(self, resources: LoopResources[Any], requests: ModelRequests) -> None:
        self._resources = resources
        self._requests = requests
        self.clock: LoopClock | None = None
        self._count = 0
        self._newest = -1
        self._side: dict[str, Any] = {}
        self._states = ""
        self._is_restored = True

    def begin(self) -> None:
        """Count what this loop spends apart from what others spend of the same budget."""
        outer = self._resources.budget
        if outer is not None:
            self._resources.budget = own = Budget(UsageLimits(), outer)
            own.requests, own.tool_calls = outer.requests, outer.tool_calls

    def read_spent(self) -> Spent | None:
        """Return what was spent so far; None without limits."""
        return None if self._resources.budget is None else self._resources.budget.spent

    def count_spent(self, before: Spent | None) -> JournalValue:
        """Return what was spent since, for an entry."""
        after = self.read_spent()
        if before is None or after is None or before == after:
            return {}
        return {"spent": [*[new - old for new, old in zip(after[:5], before[:5], strict=True)], after[5]]}

    def write(self) -> JournalValue:
        """Return what is known now, for an entry."""
        resources, config = self._resources, self._resources.config
        self._count += 1
        side: dict[str, Any] = {}
        scope = resources.memory.run_scope
        if scope is not None and scope.deadline < math.inf:
            side["left"] = max(0.0, scope.deadline - anyio.current_time())
        if config.answer is not None:
            side["retries"] = self._requests.answer_retries
        uses = resources.count_uses()
        if uses:
            side["uses"] = uses
        if resources.memory.count:
            side["cut_texts"] = resources.memory.count
        if resources.chosen_tools is not None:
            side["offered"] = [tool.name for tool in resources.chosen_tools]
        if resources.middleware is not None:
            states = resources.middleware.save_states()
            text = _write_states(states)
            if text != self._states:
                self._states, side["middleware"] = text, states
        return {"n": self._count, "side": side} if side else {"n": self._count}

    def note(self, value: JournalValue) -> None:
        """Take what an entry says that was replayed."""
        if "spent" in value and self._resources.budget is not None:
            self._resources.budget.book(value["spent"])
        self._is_restored = False
        # Of calls that ran at the same time, the one that ended last knows most.
        if value.get("n", 0) > self._newest:
            self._newest = self._count = value.get("n", 0)
            self._side |= value.get("side", {})

    def restore(self) -> None:
        """Go on with what the replayed entries say, and let the time run, which stands while they are read."""
        resources, side, scope = self._resources, self._side, self._resources.memory.run_scope
        if self.clock is not None and scope is not None and scope.deadline == math.inf:
            is_new = not self._is_restored and "left" in side
            scope.deadline = self.clock.limit(side["left"]) if is_new else self.clock.start()
        if self._is_restored:
            return
        self._is_restored = True
        if "retries" in side:
            self._requests.answer_retries = side["retries"]
        resources.resume(side.get("uses", {}), side.get("cut_texts", 0))
        if "offered" in side:
            known = {tool.name: tool for tool in resources.list_known_tools()}
            resources.chosen_tools = tuple([known[name] for name in side["offered"] if name in known])
        if "middleware" in side and resources.middleware is not None:
            resources.middleware.load_states(side["middleware"])
        self._requests.offer_again()


def _write_states(states: dict[str, Any]) -> str:
    """Return what middleware keeps as text.

    Raises:
        JournalError: It can't be kept.
    """
    try:
        return write_json(states, allow_nan=False) if states else ""
    except (TypeError, ValueError, RecursionError) as error:
        raise JournalError(f"what middleware saves can't be kept in the log of the run: {error}") from error
