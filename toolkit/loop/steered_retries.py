"""The consequences of calls that were refused or failed. Pure: it sees calls and results, and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from toolkit.chat import ToolCall, ToolResult
from toolkit.dataclass import dataclass
from toolkit.settings import NonNegativeInt, PositiveInt, Settings, check_fields

__all__ = ["ANY_TOOL", "CallHistory", "SteeredRetries"]

ANY_TOOL = "*"
"""Stands for a reply that is held to a call, of whichever tool; no tool can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredRetries(Settings):
    """Has a model that made a mistake try again in a way that can't repeat it, instead of asking it in words alone.

    The request that follows is held: the model must reply with a call. It is one of the tool whose arguments were
    wrong, or of the tool that comes first where a `ToolOrder` was not kept; after a tool that does not exist, and after
    an answer in words where an `AnswerFormat` wants a call, it is one of any tool. The reply is held by the provider,
    as one that offers a single tool with ``tool_choice="required"``: a vendor or server obeys that, and a provider that
    guides a model holds the reply to the schema of that tool.

    It helps models that don't recover from an error they read. It is off by default, since it takes from a strong model
    the choice to do something else about its mistake.

    Args:
        max_held: How many requests in a row are held; after those the model is asked in words again, until a call
            succeeds. 0 holds none.
        max_failures: How often the same call, with the same arguments, may fail or be refused: after that it is
            answered at once, without running, and told that it was tried already. A call that succeeds lets all be
            tried again, since it may have changed what they depend on. None lets calls fail as often as they are made.
    """

    max_held: NonNegativeInt = 2
    max_failures: PositiveInt | None = 1

    def __post_init__(self) -> None:
        check_fields(self, "steered_retries.{}")


class CallHistory:
    """Remembers the calls that failed, and to what the next request is held."""

    __slots__ = ("_config", "_failed", "_held", "_next", "_signatures")

    def __init__(self, config: SteeredRetries) -> None:
        self._config = config
        self._failed: dict[str, tuple[int, str]] = {}
        self._signatures: dict[str, str] = {}
        self._next: dict[str, None] = {}
        self._held: int = 0

    def saw_calls(self, calls: Sequence[ToolCall], mistakes: Mapping[str, Literal["name", "arguments"]]) -> None:
        """Take the calls of a reply as they would run, and what is wrong with each that can't, by its id."""
        self._signatures = {call.id: f"{call.name} {call.arguments}" for call in calls}
        for call in calls:
            mistake = mistakes.get(call.id)
            if mistake is not None:
                self.hold_next(call.name if mistake == "arguments" else ANY_TOOL)

    def find_failure(self, call: ToolCall) -> str | None:
        """Return what the same call was told when it failed last, where it may not be tried again."""
        most = self._config.max_failures
        count, text = self._failed.get(self._signatures[call.id], (0, ""))
        return text if most is not None and count >= most else None

    def saw_results(self, results: Iterable[ToolResult]) -> None:
        """Count what failed, of the results that are no refusals of the loop's own."""
        told = list(results)
        if any(not result.is_error for result in told):
            self._failed.clear()
            self._held = 0
        for result in told:
            signature = self._signatures.get(result.call_id)
            if result.is_error and signature is not None:
                count, _ = self._failed.get(signature, (0, ""))
                self._failed[signature] = (count + 1, result.text)
        self._signatures = {}

    def hold_next(self, tool_name: str) -> None:
        """Have the next reply be a call of a tool, or of `ANY_TOOL`; two different wishes make it any."""
        self._next[tool_name] = None

    def take_hold(self) -> str:
        """Return, once, to what the request that is made now is held; empty where it is free."""
        wishes, self._next = self._next, {}
        if not wishes or self._held >= self._config.max_held:
            return ""
        self._held += 1
        return next(iter(wishes)) if len(wishes) == 1 else ANY_TOOL

    def state(self) -> dict[str, Any]:
        """Return what is known, as plain JSON."""
        failed = {signature: list(failure) for signature, failure in self._failed.items()}
        return {"failed": failed, "signatures": self._signatures, "next": list(self._next), "held": self._held}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""
        self._failed = {signature: (count, text) for signature, (count, text) in state["failed"].items()}
        self._signatures = dict(state["signatures"])
        self._next, self._held = dict.fromkeys(state["next"]), state["held"]
