"""The limits that a loop has, shared with the loops inside its tools. Pure bookkeeping: nothing waits here."""

from __future__ import annotations

from typing import TypeAlias

from toolkit.chat import Usage
from toolkit.dataclass import dataclass
from toolkit.loop.outcome import UsageLimit
from toolkit.settings import NonNegativeFloat, NonNegativeInt, Settings, check_fields

Spent: TypeAlias = tuple[int, int, int, int, float, bool]
"""Requests, tool calls, input tokens, output tokens and cost, and whether there is further, unreported cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLimits(Settings):
    """The most that a loop and the loops inside its tools may use together; None sets no limit.

    Requests and tool calls are reserved before they are made, so these limits are never exceeded. Tokens and cost are
    only known afterwards: they are checked before each request, counting the `max_tokens` of requests under way; where
    requests have no `max_tokens`, the last response may go over.

    Args:
        requests: Requests to a model.
        input_tokens: Tokens read by the model.
        output_tokens: Tokens written by the model.
        total_tokens: Both.
        tool_calls: Calls that run.
        cost: In the currency in which the provider reports it; one that never does (`reports_cost` is False) is
            refused, and a reply without its cost is the last one. `toolkit.providers.PricedProvider` adds the cost for
            the models whose prices are known.
    """

    requests: NonNegativeInt | None = None
    input_tokens: NonNegativeInt | None = None
    output_tokens: NonNegativeInt | None = None
    total_tokens: NonNegativeInt | None = None
    tool_calls: NonNegativeInt | None = None
    cost: NonNegativeFloat | None = None

    def __post_init__(self) -> None:
        check_fields(self, "usage limit {}")


class Budget:
    """The usage under `limits`; an inner loop's budget spends from the outer one's as well."""

    __slots__ = (
        "_all",
        "_cost",
        "_has_unknown_cost",
        "_input_tokens",
        "_limits",
        "_output_tokens",
        "_reserved_tokens",
        "requests",
        "tool_calls",
    )

    def __init__(self, limits: UsageLimits, parent: Budget | None = None) -> None:
        self._limits = limits
        self._reserved_tokens = 0
        self._has_unknown_cost = False
        self._input_tokens = self._output_tokens = 0
        self._cost: float = 0
        self.requests: int = 0
        self.tool_calls: int = 0
        self.nest_in(parent)

    @property
    def usage(self) -> Usage:
        """The sum of all that was booked so far."""
        cost = None if self._has_unknown_cost else self._cost or None
        return Usage(input_tokens=self._input_tokens, output_tokens=self._output_tokens, cost=cost)

    def reserve_request(self, max_tokens: int | None) -> UsageLimit | None:
        """Take one request out of the budget, or return the limit that forbids it and take nothing."""
        tokens = max_tokens or 0
        for budget in self._all:
            forbidden = budget._forbids_request(tokens)
            if forbidden is not None:
                return forbidden
        for budget in self._all:
            budget.requests += 1
            budget._reserved_tokens += tokens
        return None

    def settle_request(self, max_tokens: int | None, usage: Usage | None) -> None:
        """Book the usage of a reserved request; None for one that failed."""
        for budget in self._all:
            if max_tokens:
                budget._reserved_tokens -= max_tokens
            if usage is not None:
                budget._input_tokens += usage.input_tokens
                budget._output_tokens += usage.output_tokens
                if usage.cost is not None:
                    budget._cost += usage.cost
                elif not budget._has_unknown_cost:
                    budget._has_unknown_cost = usage.has_unknown_cost

    def reserve_tool_call(self) -> UsageLimit | None:
        """Take one tool call out of the budget, or return the limit that forbids it and take nothing."""
        for budget in self._all:
            limit = budget._limits.tool_calls
            if limit is not None and budget.tool_calls >= limit:
                return UsageLimit("tool_calls", limit, budget.tool_calls)
        for budget in self._all:
            budget.tool_calls += 1
        return None

    def restore(self, requests: int, tool_calls: int, usage: Usage) -> None:
        """Restore the usage of a saved loop."""
        self.requests, self.tool_calls = requests, tool_calls
        self._input_tokens, self._output_tokens, self._cost = usage.input_tokens, usage.output_tokens, usage.cost or 0
        self._has_unknown_cost = usage.has_unknown_cost

    @property
    def spent(self) -> Spent:
        """The sum of all bookings so far."""
        counts = (self.requests, self.tool_calls, self._input_tokens, self._output_tokens)
        return (*counts, self._cost, self._has_unknown_cost)

    def book(self, spent: Spent) -> None:
        """Add the usage of another process, here and in the budgets round this one."""
        requests, tool_calls, input_tokens, output_tokens, cost, has_unknown_cost = spent
        for budget in self._all:
            budget.requests += requests
            budget.tool_calls += tool_calls
            budget._input_tokens += input_tokens
            budget._output_tokens += output_tokens
            budget._cost += cost
            budget._has_unknown_cost |= has_unknown_cost

    def nest_in(self, parent: Budget | None) -> None:
        """Spend from the budget of the loop round this one as well, from now on."""
        self._all: tuple[Budget, ...] = (self,) if parent is None else (self, *parent._all)

    def _forbids_request(self, tokens: int) -> UsageLimit | None:
        limits, waiting = self._limits, self._reserved_tokens
        if limits.requests is not None and self.requests >= limits.requests:
            return UsageLimit("requests", limits.requests, self.requests)
        if limits.input_tokens is not None and self._input_tokens >= limits.input_tokens:
            return UsageLimit("input_tokens", limits.input_tokens, self._input_tokens)
        spent = self._output_tokens + waiting
        if limits.output_tokens is not None and (
            spent >= limits.output_tokens or spent + tokens > limits.output_tokens
        ):
            return UsageLimit("output_tokens", limits.output_tokens, spent)
        spent += self._input_tokens
        if limits.total_tokens is not None and (spent >= limits.total_tokens or spent + tokens > limits.total_tokens):
            return UsageLimit("total_tokens", limits.total_tokens, spent)
        if limits.cost is not None and (self._has_unknown_cost or self._cost >= limits.cost):
            return UsageLimit("cost", limits.cost, self._cost)
        return None
