"""The tools that a run must have used before others, and before its answer. Pure: it sees calls and results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from toolkit.chat import ToolResult
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.settings import NonNegativeInt, Settings, check_fields, check_setting
from toolkit.suggestions import ask_whether_meant, find_similar

__all__ = ["OrderProgress", "ToolOrder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOrder(Settings):
    """The tools that come before others, and before the answer.

    ::

        order = ToolOrder(required_steps=("search",), after={"refund": "lookup"})

    A tool has been used once a call of it in this run gave a result that is no error: a call that failed or was refused
    does not count, nor does one of the same reply, whose result the model has not read.

    A call that comes too early is not run; its result says what comes first. An answer before all required steps is
    sent back with the same words: one in text, one by the answer's tool, and the output of a tool that is the answer.

    Args:
        required_steps: Tools that must have been used before the answer.
        after: For a tool, the one or the several that must have been used before it is called.
        max_retries: How often an answer is sent back; the next one that comes too early ends the run as
            `MissingSteps`.

    Raises:
        ConfigurationError: A tool comes after itself, by a detour too. That a name is unknown is said when a run is
            made.
    """

    required_steps: tuple[str, ...] = ()
    after: Mapping[str, str | Sequence[str]] = field(default_factory=dict[str, "str | Sequence[str]"])
    max_retries: NonNegativeInt = 2

    def __post_init__(self) -> None:
        check_fields(self, "order.{}")
        for name, before in self.after.items():
            check_setting("each tool of order.after", name, str)
            for other in [before] if isinstance(before, str) else before:
                check_setting(f"what comes before '{name}' in order.after", other, str)
        for name in self.after:
            if name in self._list_before(name):
                raise ConfigurationError(f"order.after has '{name}' come after itself: neither could ever be called")

    def list_needs(self, name: str) -> tuple[str, ...]:
        """Return the tools that come right before a tool."""
        before = self.after.get(name, ())
        return (before,) if isinstance(before, str) else tuple(before)

    def _list_before(self, name: str) -> list[str]:
        """Return all tools that come before a tool, by a detour too; the first to be called stands first."""
        found: dict[str, None] = {}
        waiting = list(self.list_needs(name))
        while waiting:
            other = waiting.pop(0)
            if other not in found:
                found[other] = None
                waiting += self.list_needs(other)
        return list(reversed(found))

    def check_names(self, names: Collection[str]) -> None:
        """Check that each tool that is named is there.

        Raises:
            ConfigurationError: One is not; says which are near.
        """
        named = {"required_steps": list(self.required_steps), "after": list(self.after)}
        for name in self.after:
            named["after"] += self.list_needs(name)
        for setting, tools in named.items():
            for name in tools:
                if name not in names:
                    raise ConfigurationError(f"order.{setting} names '{name}', {_describe_unknown_tool(name, names)}")


def _describe_unknown_tool(name: str, names: Collection[str]) -> str:
    hint = ask_whether_meant(find_similar(name, names)) or f"there are: {', '.join(names) or 'none'}"
    return f"and no tool of that name is offered; {hint}"


class OrderProgress:
    """How far a run has come in its order.

    Attributes:
        retries_left: How often an answer may still be sent back.
    """

    __slots__ = ("_order", "_used", "retries_left")

    def __init__(self, order: ToolOrder) -> None:
        self._order = order
        self._used: dict[str, None] = {}
        self.retries_left: int = order.max_retries

    def find_missing(self, name: str) -> tuple[str, ...]:
        """Return the tools that must be used before `name` may be called; the one to begin with stands first."""
        return self._sort_missing(self._order.list_needs(name)) if name in self._order.after else ()

    def find_missing_steps(self) -> tuple[str, ...]:
        """Return the tools that must be used before the answer; the one to begin with stands first."""
        return self._sort_missing(self._order.required_steps)

    def _sort_missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that were not used, each after what must come before it."""
        sorted_names: dict[str, None] = {}

        def add(name: str) -> None:
            if name not in self._used and name not in sorted_names:
                for other in self._order.list_needs(name):
                    add(other)
                sorted_names[name] = None

        for name in names:
            add(name)
        return tuple(sorted_names)

    def saw_results(self, results: Iterable[ToolResult]) -> None:
        """Count the tools that were used in a turn."""
        for result in results:
            if not result.is_error:
                self._used[result.tool_name] = None

    def state(self) -> dict[str, Any]:
        """Return how far the run has come, as plain JSON."""
        return {"used": list(self._used), "retries_left": self.retries_left}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave; never more retries than the order allows now."""
        self._used = dict.fromkeys(state["used"])
        self.retries_left = min(self.retries_left, state["retries_left"])
