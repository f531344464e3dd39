"""Whether a model repeats itself. Pure: it sees calls and results, and counts."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from toolkit.chat import ToolCall, ToolResult
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.loop.events import LoopDetected, LoopDetectionAction
from toolkit.tools.settings import Kind, check_settings

__all__ = ["LoopDetectionConfig", "LoopDetector", "warning_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetectionConfig:
    """When a model counts as stuck, and what is done about it.

    Two calls are the same when their tools and their arguments are, as JSON: the order of keys doesn't matter, call
    ids don't, ``1`` and ``1.0`` differ.

    Args:
        threshold: How many times in a row make a loop; at least 2.
        action: ``warn`` tells the application, at each repeat from the threshold on; ``inject_warning`` also tells the
            model, after the results, at every `threshold` repeats; ``skip`` answers the repeated calls without running
            them; ``stop`` ends the loop.
        mode: ``batch`` compares all calls of a turn with all of the turn before; ``call`` follows each call by itself.
        ignore_order: Whether the same calls in another order count as the same batch.
        exempt: Tools that may repeat themselves, such as one that polls.
        include_results: Whether a repeat counts only while the results are the same too.
        window: Count repeats among the last so many turns (or calls), not only in a row, so that a, b, a, b is seen;
            None counts those in a row.
    """

    threshold: int = 3
    action: LoopDetectionAction = "warn"
    mode: Literal["batch", "call"] = "batch"
    ignore_order: bool = False
    exempt: Collection[str] = ()
    include_results: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        check_settings(self, _KINDS)
        if isinstance(self.exempt, str):
            raise ConfigurationError(f"exempt must be several names, such as {{{self.exempt!r}}}, not one string")
        if self.threshold < 2:
            raise ConfigurationError(
                f"loop detection needs a threshold of 2 or more, not {self.threshold}: one call is no loop"
            )
        if self.window is not None and self.window < self.threshold:
            raise ConfigurationError(
                f"a window of {self.window} can't hold {self.threshold} repeats: make it at least the threshold"
            )


_KINDS: dict[str, tuple[Kind, ...]] = {
    "threshold": (int,),
    "action": ("warn", "stop", "inject_warning", "skip"),
    "mode": ("batch", "call"),
    "ignore_order": (bool,),
    "exempt": (Collection,),
    "include_results": (bool,),
    "window": (int, None),
}


def _canonical(call: ToolCall) -> str:
    try:
        value: Any = json.loads(call.arguments or "{}")
    except ValueError:
        return f"{call.name} {call.arguments}"
    return f"{call.name} {json.dumps(value, sort_keys=True, separators=(',', ':'))}"


@dataclass(slots=True)
class Repetition:
    """What was seen: the fact to tell, and the calls that it is about."""

    fact: LoopDetected
    call_ids: frozenset[str]
    is_due: bool


class LoopDetector:
    """Counts repeats over the turns of one loop, in memory that does not grow with them."""

    __slots__ = ("_config", "_last", "_pending", "_recent", "_runs")

    def __init__(self, config: LoopDetectionConfig) -> None:
        self._config = config
        self._runs: dict[str, int] = {}
        self._last: str | None = None
        self._recent: deque[str] = deque(maxlen=config.window)
        self._pending: list[ToolCall] = []

    def saw_calls(self, calls: Sequence[ToolCall]) -> Repetition | None:
        """Count the calls of a turn and return what they repeat, if anything."""
        config = self._config
        counted = [call for call in calls if call.name not in config.exempt]
        self._pending = counted
        if not counted:
            return None
        if config.mode == "batch":
            signature = self._batch_signature([_canonical(call) for call in counted])
            count = self._count(signature)
            return self._judged(counted, count)
        worst: Repetition | None = None
        for call in counted:
            found = self._judged([call], self._count(_canonical(call)))
            if found is not None:
                worst = found if worst is None else _joined(worst, found)
        return worst

    def saw_results(self, results: Sequence[ToolResult]) -> None:
        """Learn what the calls gave: with `include_results` another result means progress, and the count restarts."""
        if not self._config.include_results or not self._pending:
            return
        by_id = {result.call_id: result.text for result in results}
        seen = [f"{_canonical(call)} -> {by_id.get(call.id, '')}" for call in self._pending]
        key = self._batch_signature(seen)
        if self._last is not None and key != self._last:
            for signature in self._runs:
                self._runs[signature] = 1
        self._last = key

    def _batch_signature(self, parts: Iterable[str]) -> str:
        return "\n".join(sorted(parts) if self._config.ignore_order else parts)

    def _count(self, signature: str) -> int:
        if self._config.window is not None:
            self._recent.append(signature)
            return self._recent.count(signature)
        count = self._runs.get(signature, 0) + 1
        self._runs = {signature: count}
        return count

    def _judged(self, calls: Sequence[ToolCall], count: int) -> Repetition | None:
        config = self._config
        if count < config.threshold:
            return None
        is_due = config.action != "inject_warning" or count % config.threshold == 0
        fact = LoopDetected(
            tool_name="+".join(dict.fromkeys(call.name for call in calls)), count=count, action=config.action
        )
        return Repetition(fact, frozenset(call.id for call in calls), is_due)

    def state(self) -> dict[str, Any]:
        """Return what was counted, as plain JSON."""
        return {"runs": self._runs, "recent": list(self._recent), "last": self._last}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._runs = dict(state["runs"])
        self._recent.extend(state["recent"])
        self._last = state["last"]


def _joined(one: Repetition, other: Repetition) -> Repetition:
    """Two repeats of one turn: the longer one is told, both are acted on."""
    fact = one.fact if one.fact.count >= other.fact.count else other.fact
    return Repetition(fact, one.call_ids | other.call_ids, one.is_due or other.is_due)


def warning_text(fact: LoopDetected) -> str:
    """Return what the model is told after it asked for the same `fact.count` times."""
    return (
        f"You have called {fact.tool_name} {fact.count} times in a row with the same arguments. The result will not "
        "change. Use other arguments or another tool, or answer with what you have."
    )
