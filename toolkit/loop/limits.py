"""The limits that a loop shares with the loops inside its tools: what they may spend, and how deep they may nest."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeGuard, TypeVar, cast, runtime_checkable

from toolkit.chat import Usage
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, MaxDepthExceededError
from toolkit.loop.outcome import UsageLimit
from toolkit.settings import NonNegativeFloat, NonNegativeInt, Settings, check_fields, describe_value

if TYPE_CHECKING:
    from toolkit.calls.policy import Caller
    from toolkit.chat import Usage
    from toolkit.loop.journaling import NestedJournals
    from toolkit.loop.middleware import Middleware


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


class RunBudget:
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

    def __init__(self, limits: UsageLimits, parent: RunBudget | None = None) -> None:
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

    def nest_in(self, parent: RunBudget | None) -> None:
        """Spend from the budget of the loop round this one as well, from now on."""
        self._all: tuple[RunBudget, ...] = (self,) if parent is None else (self, *parent._all)

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


Context = TypeVar("Context")


@runtime_checkable
class LoopDepth(Protocol):
    """A context that carries the depth itself, so that it holds also where context variables don't reach."""

    @property
    def loop_depth(self) -> int:
        """How many loops are running round this one."""
        ...

    def with_depth(self, depth: int) -> Self:
        """Return the same context at another depth."""
        ...


@dataclass(slots=True)  # not frozen: each loop makes one
class LoopFrame:
    """The limits that the tools of a loop, and so the loops inside them, inherit.

    Args:
        depth: The depth of a loop started here.
        limit: The smallest ``max_depth`` of the loops round here; None where none has one.
        loop_id: The id of the loop whose tools run under this.
        run_id: The id of the outermost loop.
        parent_loop_id: The id of the loop round that one, where there is one.
        budget: The budgets of the outer loops.
        spend: Counts what a loop started here used towards the loop round it; code that starts one as a part of its own
            work, as a sub-agent, calls it.
        stop: Ends the loop whose tools run under this before its next request, given a reason.
        inherited: The middleware that also serves the loops started here, outermost first.
        journals: The logs of the loops started here; None where those are not durable.
        metadata: That of the loop and of those round it; None where there is none.
    """

    depth: int
    limit: int | None
    loop_id: str = field(default="", compare=False)
    run_id: str = field(default="", compare=False)
    parent_loop_id: str | None = field(default=None, compare=False)
    budget: RunBudget | None = None
    spend: Callable[[Usage], None] | None = field(default=None, compare=False)
    stop: Callable[[str], None] | None = field(default=None, compare=False)
    inherited: tuple[Middleware[Any], ...] = field(default=(), compare=False)
    journals: NestedJournals | None = field(default=None, compare=False)
    metadata: Mapping[str, Any] | None = field(default=None, compare=False)


current_frame: ContextVar[LoopFrame | None] = ContextVar("toolkit_loop_frame", default=None)

current_call_id: ContextVar[str | None] = ContextVar("toolkit_call_id", default=None)
"""The call, of the loop whose frame that is, in which the current code runs."""


def describe_for_log(frame: LoopFrame) -> dict[str, object]:
    """Return the attributes that log records have of a run: its ids, and its metadata."""
    return {"run_id": frame.run_id, "loop_id": frame.loop_id, "run_metadata": dict(frame.metadata or {})}


class RunFacts(logging.Filter):
    """Gives log records the run in whose call they are made: ``run_id``, ``loop_id``, ``call_id``, ``run_metadata``.

    ::

        handler = logging.StreamHandler()
        handler.addFilter(RunFacts())  # so that the records of your tools have them, too

    The loggers ``toolkit.loop`` and ``toolkit.calls`` have one. A record from outside of any call stays as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes that the record does not have."""
        frame = current_frame.get()
        if frame is not None:
            for name, value in {**describe_for_log(frame), "call_id": current_call_id.get()}.items():
                record.__dict__.setdefault(name, value)
        return True


for _name in ("toolkit.calls", "toolkit.loop"):
    logging.getLogger(_name).addFilter(RunFacts())


@dataclass(slots=True)
class SubAgentSeat:
    """Under whom a loop runs that is made as a part of somebody's call.

    Args:
        agent: The sub-agent's name.
        caller: The guards of the caller, which are asked about its calls; None where nobody else is.
        can_wait: True where it may await a decision that comes later.
    """

    agent: str
    caller: Caller | None
    can_wait: bool = False


sub_agent_seat: ContextVar[SubAgentSeat | None] = ContextVar("toolkit_sub_agent_seat", default=None)
"""Set while the loop of a sub-agent is made, and only then: loops inside its tools are not its own."""


def new_loop_id() -> str:
    """Return an id that no other loop has."""
    return os.urandom(16).hex()


def enter_depth(ctx: object, max_depth: int | None, loop_id: str = "") -> LoopFrame:
    """Return the frame for the tools of a loop that starts now, with the budget of the loop round it.

    Raises:
        MaxDepthExceededError: It would be too deep.
    """
    outer = current_frame.get()
    depth, limit, run_id = 0, max_depth, loop_id
    if outer is not None:
        depth, limit, run_id = outer.depth, _find_smaller(max_depth, outer.limit), outer.run_id
    if ctx is not None and _carries_depth(ctx):
        depth = max(depth, _read_depth(ctx))
    if limit is not None and depth >= limit:
        raise MaxDepthExceededError(depth, limit)
    if outer is None:
        return LoopFrame(depth + 1, limit, loop_id, run_id)
    return LoopFrame(
        depth + 1,
        limit,
        loop_id,
        run_id,
        parent_loop_id=outer.loop_id,
        budget=outer.budget,
        inherited=outer.inherited,
        metadata=outer.metadata,
    )


def nested_context(ctx: Context, frame: LoopFrame) -> Context:
    """Return the context for the tools that run under `frame`."""
    if _carries_depth(ctx):
        return cast("Context", ctx.with_depth(frame.depth))
    return ctx


def _read_depth(ctx: LoopDepth) -> int:
    """Return the depth that a context carries, as a property or, as some write it, as a method."""
    read = cast("Any", ctx).loop_depth
    depth: object = read() if callable(read) else read
    if not isinstance(depth, int):
        raise ConfigurationError(
            f"loop_depth of the context must be a number, or a method that returns one, not {describe_value(depth)}"
        )
    return depth


def _carries_depth(ctx: object) -> TypeGuard[LoopDepth]:
    # Asked first, since the check of a protocol takes 10 us and a run without tools not much more.
    return ctx is not None and hasattr(ctx, "loop_depth") and isinstance(ctx, LoopDepth)


def _find_smaller(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
