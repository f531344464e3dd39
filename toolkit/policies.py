"""The rules and settings of a run: approval, permissions, limits, stop conditions, caches, compaction, middleware.

Defined here is the middleware that decides on a model's replies: `ToolOrder` and `SteeredRetries`. It performs no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from toolkit.calls.approval import Abort, Approval, ApprovalHook, ApprovalRequest, Approve, Defer, Deny, Modify
from toolkit.calls.caching import Cache, MemoryCache, SqliteCache
from toolkit.calls.output import ResultStore
from toolkit.calls.permissions import (
    Decision,
    Permissions,
    Rule,
    allow,
    ask,
    ask_when_tainted,
    deny,
    deny_when_tainted,
    require_known_destinations,
)
from toolkit.calls.policy import CallConfig, OutputLimits, Timeouts
from toolkit.calls.provenance import Origin
from toolkit.calls.registration import Effect, Registration, ToolRetryConfig
from toolkit.chat import ToolCall, ToolResult
from toolkit.chat.provider import Delta
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.budgets import (
    Budget,
    BudgetStore,
    MemoryBudgets,
    RateLimit,
    Reservation,
    RunLimit,
    Spending,
)
from toolkit.loop.compaction import keep_last, mask_old_results, summarize
from toolkit.loop.config import (
    AnswerFormat,
    Batched,
    Compaction,
    Decisions,
    Execution,
    Instructions,
    LoopLimits,
    Parallel,
    ProviderRetryConfig,
    Sequential,
    Steering,
    SystemPrompt,
    ToolSearch,
    prompt_template,
)
from toolkit.loop.feeds import InjectMessages
from toolkit.loop.limits import (
    Continue,
    LoopDepth,
    LoopDetectionConfig,
    RunFacts,
    Stop,
    StopContext,
    StopDecision,
    StopWhen,
    UsageLimits,
    and_,
    or_,
    stop_after,
    token_budget,
    when_called,
)
from toolkit.loop.middleware import (
    ANY_TOOL,
    AfterToolExecution,
    AfterToolExecutionUpdate,
    BeforeToolExecution,
    BeforeToolExecutionUpdate,
    CallInfo,
    CallProceed,
    DeltaHook,
    Middleware,
    Refusal,
    ReplyPolicy,
    RequestInfo,
    RequestProceed,
    RunInfo,
    RunProceed,
    ToolExecutionHooks,
    guard_input,
    guard_output,
)
from toolkit.loop.outcome import MissingSteps
from toolkit.loop.quarantine import frame_untrusted, quarantine, strike_secrets
from toolkit.settings import NonNegativeInt, PositiveInt, Settings, check_fields, check_setting
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.registry import Finding

__all__ = [
    "Abort",
    "AfterToolExecution",
    "AfterToolExecutionUpdate",
    "AnswerFormat",
    "Approval",
    "ApprovalHook",
    "ApprovalRequest",
    "Approve",
    "Batched",
    "BeforeToolExecution",
    "BeforeToolExecutionUpdate",
    "Budget",
    "BudgetStore",
    "Cache",
    "CallConfig",
    "CallInfo",
    "CallProceed",
    "Compaction",
    "Continue",
    "Decision",
    "Decisions",
    "Defer",
    "Delta",
    "DeltaHook",
    "Deny",
    "Effect",
    "Execution",
    "Finding",
    "InjectMessages",
    "Instructions",
    "LoopDepth",
    "LoopDetectionConfig",
    "LoopLimits",
    "MemoryBudgets",
    "MemoryCache",
    "Middleware",
    "Modify",
    "Origin",
    "OutputLimits",
    "Parallel",
    "PendingApproval",
    "Permissions",
    "ProviderRetryConfig",
    "RateLimit",
    "Refusal",
    "Registration",
    "ReplyPolicy",
    "RequestInfo",
    "RequestProceed",
    "Reservation",
    "ResultStore",
    "Rule",
    "RunFacts",
    "RunInfo",
    "RunLimit",
    "RunProceed",
    "Sequential",
    "Spending",
    "SqliteCache",
    "SteeredRetries",
    "Steering",
    "Stop",
    "StopContext",
    "StopDecision",
    "StopWhen",
    "SystemPrompt",
    "Timeouts",
    "ToolExecutionHooks",
    "ToolOrder",
    "ToolSearch",
    "ToolRetryConfig",
    "UsageLimits",
    "allow",
    "and_",
    "ask",
    "ask_when_tainted",
    "deny",
    "deny_when_tainted",
    "frame_untrusted",
    "guard_input",
    "guard_output",
    "keep_last",
    "mask_old_results",
    "or_",
    "prompt_template",
    "quarantine",
    "require_known_destinations",
    "stop_after",
    "strike_secrets",
    "summarize",
    "token_budget",
    "when_called",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOrder(Settings, Middleware[Any]):
    """Requires tools to be called before others, or before the answer.

    ::

        order = ToolOrder(required_steps=("search",), after={"refund": "lookup"})
        config = ToolLoopConfig(middleware=(order,))

    A tool counts as used after a successful call in this run. A failed or refused call does not count, nor does a call
    in the same reply, because the model has not read its result yet.

    A premature call is not run; its result names the tools to call first. A premature answer is sent back with the same
    text, whether it is text, a call of the answer's tool, or the output of a tool with ``result_as_answer``.

    Args:
        required_steps: Tools that must be used before the answer.
        after: For each tool, the tools that must be used before it.
        max_retries: How often a premature answer is sent back; the next one ends the run with `MissingSteps`.

    Raises:
        ConfigurationError: The order has a cycle. An unknown name is reported when a run is created.
    """

    name = "tool_order"
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

    def reply_policy(self, tool_names: Collection[str]) -> ReplyPolicy:
        """Return the progress of a run in this order.

        Raises:
            ConfigurationError: A tool does not exist; the message suggests similar names.
        """
        named = {"required_steps": list(self.required_steps), "after": list(self.after)}
        for name in self.after:
            named["after"] += self.list_needs(name)
        for setting, tools in named.items():
            for name in tools:
                if name not in tool_names:
                    unknown = _describe_unknown_tool(name, tool_names)
                    raise ConfigurationError(f"order.{setting} names '{name}', {unknown}")
        return _OrderProgress(self)

    def list_needs(self, name: str) -> tuple[str, ...]:
        """Return the tools that must come directly before a tool."""
        before = self.after.get(name, ())
        return (before,) if isinstance(before, str) else tuple(before)

    def _list_before(self, name: str) -> list[str]:
        """Return all direct and indirect predecessors of a tool, in call order."""
        found: dict[str, None] = {}
        waiting = list(self.list_needs(name))
        while waiting:
            other = waiting.pop(0)
            if other not in found:
                found[other] = None
                waiting += self.list_needs(other)
        return list(reversed(found))


def _describe_unknown_tool(name: str, names: Collection[str]) -> str:
    hint = ask_whether_meant(find_similar(name, names)) or f"there are: {', '.join(names) or 'none'}"
    return f"and no tool of that name is offered; {hint}"


class _OrderProgress(ReplyPolicy):
    """The progress of a run in its order."""

    __slots__ = ("_order", "_retries_left", "_used")

    def __init__(self, order: ToolOrder) -> None:
        self._order = order
        self._used: dict[str, None] = {}
        self._retries_left = order.max_retries

    def refuse_call(self, call: ToolCall, called: Collection[str], *, is_answer: bool) -> Refusal | None:
        missing = self._find_missing(call.name, is_answer=is_answer)
        if not missing:
            return None
        if all(name in called for name in missing):
            needed = _join_steps(missing)
            return Refusal(
                text=f"Not run: {call.name} needs the result of {needed}, which you asked for in the same reply. "
                f"Read that result, then call {call.name} again."
            )
        return Refusal(
            text=f"Not run: call {_join_steps(missing)} first, and {call.name} once you have read what that gives.",
            next_tool=missing[0],
            ending=self._count_early_answer(missing) if is_answer else None,
        )

    def refuse_answer(self) -> Refusal | None:
        missing = self._sort_missing(self._order.required_steps)
        if not missing:
            return None
        return Refusal(
            text=f"Not yet: call {_join_steps(missing)} before you answer.",
            next_tool=missing[0],
            ending=self._count_early_answer(missing),
        )

    def _count_early_answer(self, missing: tuple[str, ...]) -> MissingSteps | None:
        if self._retries_left == 0:
            return MissingSteps(missing)
        self._retries_left -= 1
        return None

    def is_too_early(self, tool_name: str, *, is_answer: bool) -> bool:
        return bool(self._find_missing(tool_name, is_answer=is_answer))

    def _find_missing(self, name: str, *, is_answer: bool) -> tuple[str, ...]:
        """Return the unused tools that must come before a tool, in call order."""
        if is_answer:
            return self._sort_missing(self._order.required_steps)
        return self._sort_missing(self._order.list_needs(name)) if name in self._order.after else ()

    def _sort_missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the unused tools of `names` and their predecessors, in call order."""
        sorted_names: dict[str, None] = {}

        def add(name: str) -> None:
            if name not in self._used and name not in sorted_names:
                for other in self._order.list_needs(name):
                    add(other)
                sorted_names[name] = None

        for name in names:
            add(name)
        return tuple(sorted_names)

    def take_results(self, results: Iterable[ToolResult]) -> None:
        for result in results:
            if not result.is_error:
                self._used[result.tool_name] = None

    def save(self) -> dict[str, Any]:
        return {"used": list(self._used), "retries_left": self._retries_left}

    def load(self, state: Mapping[str, Any]) -> None:
        self._used = dict.fromkeys(state["used"])
        self._retries_left = min(self._retries_left, state["retries_left"])  # never more than the order allows now


def _join_steps(names: Sequence[str]) -> str:
    """Return tools in call order, as in ``a, then b``."""
    return ", then ".join(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredRetries(Settings, Middleware[Any]):
    """Constrains the retry after a model's mistake so that the mistake can't be repeated.

    ::

        config = ToolLoopConfig(middleware=(SteeredRetries(),))

    The next request forces a call: of the tool whose arguments were wrong, or of the tool that a `ToolOrder` requires
    first; of any tool after an unknown tool, or after a text answer where an `AnswerFormat` requires a call. To force
    it, the request offers that single tool with ``tool_choice="required"``, which vendors and servers enforce; a
    provider that guides a model constrains the reply by the schema of the tool.

    This helps models that don't recover from reading an error. It is off by default, because it prevents a strong model
    from reacting to its mistake in another way.

    Args:
        max_held: The maximum number of forced requests in a row; further ones are free until a call succeeds. 0 forces
            none.
        max_failures: How often the same call, with the same arguments, may fail or be refused. After that it is not
            run again, and its result tells the model so. A successful call resets the count, because it may have
            changed the conditions. None sets no limit.
    """

    name = "steered_retries"
    max_held: NonNegativeInt = 2
    max_failures: PositiveInt | None = 1

    def __post_init__(self) -> None:
        check_fields(self, "steered_retries.{}")

    def reply_policy(self, tool_names: Collection[str]) -> ReplyPolicy:
        """Return the history of the calls of one run."""
        del tool_names
        return _CallHistory(self)


_LONGEST_FAILURE = 300


class _CallHistory(ReplyPolicy):
    """Records the failed calls of a run, and the tool that the next request forces."""

    __slots__ = ("_config", "_failed", "_forced", "_next", "_signatures")

    def __init__(self, config: SteeredRetries) -> None:
        self._config = config
        self._failed: dict[str, tuple[int, str]] = {}
        self._signatures: dict[str, str] = {}
        self._next: dict[str, None] = {}
        self._forced: int = 0

    def take_calls(self, calls: Sequence[ToolCall], mistakes: Mapping[str, Literal["name", "arguments"]]) -> None:
        self._signatures = {call.id: f"{call.name} {call.arguments}" for call in calls}
        for call in calls:
            mistake = mistakes.get(call.id)
            if mistake is not None:
                self.expect_call(call.name if mistake == "arguments" else ANY_TOOL)

    def refuse_call(self, call: ToolCall, called: Collection[str], *, is_answer: bool) -> Refusal | None:
        del called, is_answer
        most = self._config.max_failures
        count, failure = self._failed.get(self._signatures[call.id], (0, ""))
        if most is None or count < most:
            return None
        shortened = failure if len(failure) <= _LONGEST_FAILURE else f"{failure[:_LONGEST_FAILURE]}..."
        return Refusal(
            text=f"Not run: you have made this call already, with the same arguments, and it failed: {shortened}\n"
            "Use other arguments or another tool, or answer with what you have."
        )

    def take_results(self, results: Iterable[ToolResult]) -> None:
        given = list(results)
        if any(not result.is_error for result in given):
            self._failed.clear()
            self._forced = 0
        for result in given:
            signature = self._signatures.get(result.call_id)
            if result.is_error and signature is not None:
                count, _ = self._failed.get(signature, (0, ""))
                self._failed[signature] = (count + 1, result.text)
        self._signatures = {}

    def expect_call(self, tool_name: str) -> None:
        self._next[tool_name] = None

    def take_hold(self) -> str:
        wishes, self._next = self._next, {}
        if not wishes or self._forced >= self._config.max_held:
            return ""
        self._forced += 1
        return next(iter(wishes)) if len(wishes) == 1 else ANY_TOOL

    def save(self) -> dict[str, Any]:
        failed = {signature: list(failure) for signature, failure in self._failed.items()}
        return {"failed": failed, "signatures": self._signatures, "next": list(self._next), "held": self._forced}

    def load(self, state: Mapping[str, Any]) -> None:
        self._failed = {signature: (count, text) for signature, (count, text) in state["failed"].items()}
        self._signatures = dict(state["signatures"])
        self._next, self._forced = dict.fromkeys(state["next"]), state["held"]
