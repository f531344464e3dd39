"""The limits of a run: stop conditions, repeated calls, usage and depth.

Conditions and loop detection only read responses, calls and results. Limits are shared with the loops inside of tools.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, TypeGuard, TypeVar, cast, runtime_checkable

from toolkit.chat import ChatResponse, ToolResult, Usage
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, LoopError, LoopUsageError, MaxDepthExceededError
from toolkit.loop.outcome import LoopDetected, LoopDetectionAction, UsageLimit
from toolkit.redaction import Scrubber
from toolkit.settings import (
    FUNCTION,
    NonNegativeFloat,
    NonNegativeInt,
    Settings,
    check_fields,
    check_setting,
    describe_value,
)

if TYPE_CHECKING:
    from toolkit.calls.policy import Caller
    from toolkit.chat import Usage
    from toolkit.loop.journaling import NestedJournals
    from toolkit.loop.middleware import Middleware


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue."""

    _: KW_ONLY
    kind: Literal["continue"] = field(default="continue", repr=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop without running the calls of this response."""

    reason: str | None = None
    _: KW_ONLY
    kind: Literal["stop"] = field(default="stop", repr=False)


StopDecision: TypeAlias = Continue | Stop
"""The answers of a stop condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContext:
    """The facts for a stop condition, after each response.

    Args:
        iteration: The turn, from 1.
        response: The last response of the model, with its calls as they would run: names are repaired, and arguments
            are the canonical JSON of those that the tool would get.
        usage: The sum over all requests so far.
        tool_calls_executed: How many calls were answered in earlier turns, refused and failed ones included.
        last_tool_results: The results of the last turn; empty in the first.
    """

    iteration: int
    response: ChatResponse
    usage: Usage
    tool_calls_executed: int
    last_tool_results: Sequence[ToolResult]


StopWhen: TypeAlias = Callable[[StopContext], StopDecision]
"""Decides after each response; must be fast and have no side effects."""

_CONTINUE = Continue()


def stop_after(*, steps: int) -> StopWhen:
    """Stop with the response of turn number `steps`.

    ::

        config = ToolLoopConfig(stop_when=or_(stop_after(steps=8), when_called("finish")))
    """
    check_setting("stop_after(steps=...)", steps, int, least=1)

    def decide(context: StopContext) -> StopDecision:
        return Stop(f"{steps} steps were made") if context.iteration >= steps else _CONTINUE

    return decide


def when_called(name: str) -> StopWhen:
    """Stop when the model calls this tool, also by a name that would be repaired to it; the call is not run."""
    check_setting("the name for when_called", name, str)

    def decide(context: StopContext) -> StopDecision:
        is_called = any(call.name == name for call in context.response.tool_calls)
        return Stop(f"{name} was called") if is_called else _CONTINUE

    return decide


def token_budget(tokens: int) -> StopWhen:
    """Stop once this many tokens, input and output together, have been used."""
    check_setting("token_budget", tokens, int, least=1)

    def decide(context: StopContext) -> StopDecision:
        used = context.usage.total_tokens
        return Stop(f"{used} of {tokens} tokens are used") if used >= tokens else _CONTINUE

    return decide


def or_(*conditions: StopWhen) -> StopWhen:
    """Stop when any of these conditions does, for the reason of the first."""
    for condition in conditions:
        check_setting("each condition of or_", condition, FUNCTION)

    def decide(context: StopContext) -> StopDecision:
        for condition in conditions:
            decision = condition(context)
            if isinstance(decision, Stop):
                return decision
        return _CONTINUE

    return decide


def and_(*conditions: StopWhen) -> StopWhen:
    """Stop when all of these conditions do, for all their reasons."""
    if not conditions:
        raise ConfigurationError("and_() needs at least one condition: with none it would stop at once")
    for condition in conditions:
        check_setting("each condition of and_", condition, FUNCTION)

    def decide(context: StopContext) -> StopDecision:
        decisions = [condition(context) for condition in conditions]
        stops = [decision for decision in decisions if isinstance(decision, Stop)]
        if len(stops) < len(decisions):
            return _CONTINUE
        return Stop("; ".join(stop.reason for stop in stops if stop.reason) or None)

    return decide


def ask_stop_when(stop_when: StopWhen, context: StopContext) -> StopDecision:
    """Return the decision of a stop condition.

    Raises:
        LoopError: It raised an error.
        LoopUsageError: It returned something else.
    """
    try:
        decision = stop_when(context)
    except Exception as error:
        raise LoopError(f"stop_when raised {type(error).__name__}: {error}") from error
    try:
        check_setting("what stop_when gives", decision, Continue, Stop)
    except ConfigurationError as error:
        raise LoopUsageError(str(error)) from None
    return decision


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetectionConfig(Settings):
    """When a model counts as stuck, and what is done then.

    Two calls are the same if they would run the same tool with the same arguments: repaired names and arguments count
    as repaired, an omitted argument equals its default, the order of keys and the call ids don't matter, and ``1`` and
    ``1.0`` differ.

    Args:
        threshold: How many times make a loop; at least 2.
        action: ``warn`` emits an event, at each repeat from the threshold on; ``inject_warning`` also warns the model,
            after the results, at every `threshold` repeats; ``skip`` answers the repeated calls without running
            them; ``stop`` ends the loop.
        mode: ``batch`` compares all calls of a turn with all of the last one; ``call`` counts each call separately, and
            detects also calls that are repeated side by side, and two that alternate.
        ignore_order: True if the same calls in another order are the same batch.
        exempt: The tools whose calls may be repeated, such as one that polls.
        include_results: True if repeats count only while their results are the same, too, also in a `window`.
        window: The number of turns, or of calls, among which repeats are counted, so that a, b, a, b is detected; None
            counts those in a row.
    """

    threshold: int = 3
    action: LoopDetectionAction = "warn"
    mode: Literal["batch", "call"] = "batch"
    ignore_order: bool = False
    exempt: Collection[str] = ()
    include_results: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.threshold < 2:
            raise ConfigurationError(
                f"loop detection needs a threshold of 2 or more, not {self.threshold}: one call is no loop"
            )
        if self.window is not None and self.window < self.threshold:
            raise ConfigurationError(
                f"a window of {self.window} can't hold {self.threshold} repeats: make it at least the threshold"
            )


Written: TypeAlias = tuple[str, str]
"""A call as it would run: the name of its tool, and its arguments as canonical JSON."""


@dataclass(slots=True)
class Repetition:
    """A repetition in a turn: its event, the places of the repeated calls, and whether the action is due."""

    fact: LoopDetected
    places: frozenset[int]
    is_due: bool


_Item: TypeAlias = tuple[str, list[str], Sequence[int]]
"""The unit of comparison, a call or in mode ``batch`` all calls of a turn: its signature, its tools, its places.

Signatures are equal where the calls are the same.
"""

_signature_of = itemgetter(0)


@dataclass(slots=True)
class Streak:
    """The repeats of one item, without a window.

    Args:
        count: How often it was called.
        turn: The turn in which it was called last.
        names: Its tools.
        is_in_row: True if nothing else was called in between.
        between: The signatures of the calls that it alternates with; empty if it was called in each turn.
        result: Its last result, if results count.
    """

    count: int
    turn: int
    names: list[str]
    is_in_row: bool = True
    between: Sequence[str] = ()
    result: str | None = None


@dataclass(slots=True)
class Seen:
    """One item in the window: its signature, its tools, whether exempt calls were beside it, and its result."""

    signature: str
    names: list[str]
    has_others: bool
    result: str | None = None


class LoopDetector:
    """Counts repeats over the turns of one loop, in memory that does not grow with them.

    Attributes:
        compares_results: True if `saw_results` has to be called for each turn.
    """

    __slots__ = ("_config", "_has_others", "_items", "_recent", "_streaks", "_turn", "compares_results")

    def __init__(self, config: LoopDetectionConfig) -> None:
        self._config = config
        self.compares_results: bool = config.include_results
        self._turn = 0
        # By signature, of the last turn and of those before it that count: one, or two where calls may alternate.
        self._streaks = deque[dict[str, Streak]]([{}, {}, {}], 3 if config.mode == "call" else 2)
        self._recent: deque[Seen] = deque(maxlen=config.window)
        self._items: list[_Item] = []
        self._has_others = False  # since the last turn that was counted

    def saw_calls(self, calls: Sequence[Written]) -> Repetition | None:
        """Count the calls of a turn, and return their repetition, if there is one."""
        config = self._config
        items: list[_Item] = []
        for place, (name, arguments) in enumerate(calls):
            if name not in config.exempt:
                items.append((f"{name} {arguments}", [name], (place,)))
        self._items = items
        has_others = len(items) < len(calls)
        self._has_others = self._has_others or has_others
        if not items:
            return None
        if len(items) > 1 and config.mode == "batch":
            self._items = items = [_make_batch_item(items, config)]
        if config.window is None:
            self._turn += 1
            self._streaks.appendleft({})
        repeated: list[tuple[_Item, Streak]] = []
        for item in items:
            streak = self._count_in_turns(item) if config.window is None else self._count_in_window(item)
            if streak.count >= config.threshold:
                repeated.append((item, streak))
        self._has_others = has_others
        return self._write_repetition(repeated) if repeated else None

    def _is_loop(self, streak: Streak) -> bool:
        """Return whether the calls in between are repeated, too: else they may be progress."""
        known = self._known_streaks
        return not streak.between or any(known[other].count >= self._fewest_of_other for other in streak.between)

    @property
    def _known_streaks(self) -> dict[str, Streak]:
        """The last streak of each signature."""
        return {signature: streak for streaks in reversed(self._streaks) for signature, streak in streaks.items()}

    @property
    def _fewest_of_other(self) -> int:
        """How often the other of two alternating calls was made when the first reaches the threshold."""
        return max(2, self._config.threshold - 1)

    def saw_results(self, results: Sequence[ToolResult]) -> None:
        """Compare the results of a turn, in call order: with `include_results`, another result restarts the count."""
        if not self.compares_results:
            return
        for index, (signature, _, places) in enumerate(self._items):
            result = "\n".join([results[place].text for place in places])
            if self._config.window is not None:
                back = index - len(self._items)
                if -back <= len(self._recent):
                    self._recent[back].result = result
            else:
                streak = self._streaks[0][signature]
                if streak.result is not None and streak.result != result:
                    streak.count, streak.is_in_row, streak.between = 1, True, ()
                streak.result = result

    def _count_in_window(self, item: _Item) -> Streak:
        """Count an item in the window, except with another result than the last one."""
        signature, names, _ = item
        self._recent.append(Seen(signature, names, self._has_others))
        results = [seen.result for seen in self._recent if seen.signature == signature]
        known = [result for result in results if result is not None]
        count = len([result for result in results if result is None or result == known[-1]])
        stretch = list(self._recent)[-count:]
        is_in_row = not any(seen.has_others or seen.signature != signature for seen in stretch)
        return Streak(count, self._turn, names, is_in_row)

    def _count_in_turns(self, item: _Item) -> Streak:
        """Count an item of a turn."""
        signature, names, _ = item
        this_turn = self._streaks[0]
        streak = this_turn.get(signature)
        if streak is not None:
            streak.count += 1
            return streak
        for streaks in self._streaks:
            if signature in streaks:
                last = list(self._streaks[1])
                is_same = not self._has_others and set(last) == set(map(_signature_of, self._items))
                streak = self._go_on(streaks[signature], last, is_in_row=is_same)
                break
        else:
            streak = Streak(1, self._turn, names)
        this_turn[signature] = streak
        return streak

    def _go_on(self, known: Streak, last: Sequence[str], *, is_in_row: bool) -> Streak:
        """Count a streak that continues after one turn, or after two if it alternates with other calls."""
        turn, names, result = self._turn, known.names, known.result
        if known.turn == turn - 1:
            if known.between:  # it alternated until now
                return Streak(2, turn, names, is_in_row, result=result)
            return Streak(known.count + 1, turn, names, known.is_in_row and is_in_row, result=result)
        # For example a, b, a, b, a: the third a is the third of a streak only if b stood in both gaps.
        both = [signature for signature in last if signature in known.between]
        if both:
            return Streak(known.count + 1, turn, names, False, both, result)
        return Streak(2, turn, names, False, list(last), result)

    def _write_repetition(self, repeated: Sequence[tuple[_Item, Streak]]) -> Repetition | None:
        """Return one event that names all items that were repeated too often; None if they may be progress."""
        found = [(item, streak) for item, streak in repeated if self._is_loop(streak)]
        if not found:
            return None
        config = self._config
        counts = [streak.count for _, streak in found]
        names = [name for (_, own, _), _ in found for name in own]
        names += [name for other in self._find_tools_beside(found) for name in other]
        is_all = len(found) == len(self._items) and len(set(counts)) == 1
        fact = LoopDetected(
            tool_name="+".join(dict.fromkeys(names)),
            count=max(counts),
            action=config.action,
            is_in_row=is_all and all(streak.is_in_row for _, streak in found),
        )
        is_due = config.action != "inject_warning" or any(count % config.threshold == 0 for count in counts)
        return Repetition(fact, frozenset(place for (_, _, places), _ in found for place in places), is_due)

    def _find_tools_beside(self, found: Sequence[tuple[_Item, Streak]]) -> list[list[str]]:
        """Return the tools of other calls that are repeated as often, or would be by their next call."""
        if self._config.mode == "batch":
            return []
        if self._config.window is not None:
            counts = Counter([seen.signature for seen in self._recent])
            return [seen.names for seen in self._recent if counts[seen.signature] >= self._fewest_of_other]
        between = {signature for _, streak in found for signature in streak.between}
        return [
            streak.names
            for signature, streak in self._known_streaks.items()
            if signature in between and streak.count >= self._fewest_of_other
        ]

    def state(self) -> dict[str, Any]:
        """Return the counts as plain JSON."""
        streaks = {
            signature: [streak.count, streak.turn, streak.names, streak.is_in_row, list(streak.between), streak.result]
            for signature, streak in self._known_streaks.items()
        }
        recent = [[seen.signature, seen.names, seen.has_others, seen.result] for seen in self._recent]
        return {"turn": self._turn, "runs": streaks, "recent": recent, "has_others": self._has_others}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the counts that `state` returned."""
        self._turn, self._has_others = state["turn"], state["has_others"]
        for signature, fields in state["runs"].items():
            streak = Streak(*fields)
            if self._turn - streak.turn < len(self._streaks):
                self._streaks[self._turn - streak.turn][signature] = streak
        self._recent.extend([Seen(*fields) for fields in state["recent"]])


def _make_batch_item(items: Sequence[_Item], config: LoopDetectionConfig) -> _Item:
    signatures = list(map(_signature_of, items))
    signature = "\n".join(sorted(signatures) if config.ignore_order else signatures)
    names = [name for _, own, _ in items for name in own]
    return signature, names, [place for _, _, places in items for place in places]


def warning_text(fact: LoopDetected) -> str:
    """Return the warning for a model that made the same calls `fact.count` times."""
    if fact.is_in_row:
        seen = f"You have called {fact.tool_name} {fact.count} times in a row with the same arguments."
    elif "+" in fact.tool_name:
        seen = f"You have called {fact.tool_name} up to {fact.count} times with the same arguments."
    else:
        seen = f"You have called {fact.tool_name} {fact.count} times with the same arguments."
    return f"{seen} Use other arguments or another tool, or answer with what you have."


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
        cost: In the currency of the provider; a provider that reports none (`reports_cost` is False) is refused, and a
            reply without its cost is the last one. `toolkit.providers.PricedProvider` adds the cost for models whose
            prices are known.
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
    """The usage under `limits`; the budget of an inner loop also spends from that of the outer one."""

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
        """All booked usage so far."""
        cost = None if self._has_unknown_cost else self._cost or None
        return Usage(input_tokens=self._input_tokens, output_tokens=self._output_tokens, cost=cost)

    def reserve_request(self, max_tokens: int | None) -> UsageLimit | None:
        """Reserve one request, or return the limit that forbids it."""
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
        """Book the usage of a reserved request; None if it failed."""
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
        """Reserve one tool call, or return the limit that forbids it."""
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
        """Add the usage of another process, to the outer budgets, too."""
        requests, tool_calls, input_tokens, output_tokens, cost, has_unknown_cost = spent
        for budget in self._all:
            budget.requests += requests
            budget.tool_calls += tool_calls
            budget._input_tokens += input_tokens
            budget._output_tokens += output_tokens
            budget._cost += cost
            budget._has_unknown_cost |= has_unknown_cost

    def nest_in(self, parent: RunBudget | None) -> None:
        """Also spend from the budget of the outer loop from now on."""
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
    """A context that contains the depth of loops, for code without access to the context variables of the caller."""

    @property
    def loop_depth(self) -> int:
        """The number of enclosing loops."""
        ...

    def with_depth(self, depth: int) -> Self:
        """Return the same context at another depth."""
        ...


@dataclass(slots=True)  # not frozen: each loop makes one
class LoopFrame:
    """The limits that the tools of a loop, and so the loops inside them, inherit.

    Args:
        depth: The depth of a loop started here.
        limit: The smallest ``max_depth`` of the enclosing loops; None if none has one.
        loop_id: The id of the loop whose tools inherit this.
        run_id: The id of the outermost loop.
        parent_loop_id: The id of the loop that encloses that one; None without one.
        budget: The budgets of the enclosing loops.
        spend: Adds the usage of a loop started here to that of the enclosing loop.
        stop: Ends the loop before its next request, given a reason.
        inherited: The middleware that the loops started here inherit, outermost first.
        journals: The logs of the loops started here; None if these are not durable.
        metadata: The metadata of the loop and of the enclosing ones; None without any.
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


current_call: ContextVar[tuple[LoopFrame, str] | None] = ContextVar("toolkit_call", default=None)
"""The call in which the current code runs: the frame of its loop, and its id."""


def find_frame() -> LoopFrame | None:
    """Return the frame of the loop in whose call the current code runs; None outside of any."""
    call = current_call.get()
    return None if call is None else call[0]


def describe_for_log(frame: LoopFrame) -> dict[str, object]:
    """Return the attributes of a run for log records: its ids and its metadata, without secrets."""
    metadata = Scrubber()({"metadata": dict(frame.metadata or {})})["metadata"]
    return {"run_id": frame.run_id, "loop_id": frame.loop_id, "run_metadata": metadata}


class RunFacts(logging.Filter):
    """Adds the current run and call to log records: ``run_id``, ``loop_id``, ``call_id``, ``run_metadata``.

    ::

        handler = logging.StreamHandler()
        handler.addFilter(RunFacts())  # for the records of your tools, too

    The loggers ``toolkit.loop`` and ``toolkit.calls`` have one. Records outside of any call are unchanged.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes that the record lacks."""
        call = current_call.get()
        if call is not None:
            for name, value in {**describe_for_log(call[0]), "call_id": call[1]}.items():
                record.__dict__.setdefault(name, value)
        return True


for _name in ("toolkit.calls", "toolkit.loop", "toolkit.agents"):
    logging.getLogger(_name).addFilter(RunFacts())


@dataclass(slots=True)
class SubAgentSeat:
    """The caller of a loop that runs as a part of another loop's call.

    Args:
        agent: The name of the sub-agent.
        caller: The caller, whose guards are asked about its calls; None if there are none.
        can_wait: True if it may await a later decision.
    """

    agent: str
    caller: Caller | None
    can_wait: bool = False


sub_agent_seat: ContextVar[SubAgentSeat | None] = ContextVar("toolkit_sub_agent_seat", default=None)
"""Set only while the loop of a sub-agent is created: loops inside its tools have other callers."""


def new_loop_id() -> str:
    """Return a new, unique id."""
    return os.urandom(16).hex()


def enter_depth(ctx: object, max_depth: int | None, loop_id: str = "") -> LoopFrame:
    """Return the frame for the tools of a loop that starts now, with the budget of the enclosing loop.

    Raises:
        MaxDepthExceededError: The loop is nested too deep.
    """
    outer = find_frame()
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
    """Return the depth that a context contains, as a property or as a method."""
    read = cast("Any", ctx).loop_depth
    depth: object = read() if callable(read) else read
    if not isinstance(depth, int):
        raise ConfigurationError(
            f"loop_depth of the context must be a number, or a method that returns one, not {describe_value(depth)}"
        )
    return depth


def _carries_depth(ctx: object) -> TypeGuard[LoopDepth]:
    # Checked first, because the check of a protocol takes 10 us.
    return ctx is not None and hasattr(ctx, "loop_depth") and isinstance(ctx, LoopDepth)


def _find_smaller(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
