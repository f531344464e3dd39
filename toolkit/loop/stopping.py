"""When to stop although the model would go on: conditions that combine, and the detection of repeated calls.

All of it is pure: it sees responses, calls and results, and counts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, field
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from toolkit.chat import ChatResponse, ToolCall, ToolResult, Usage
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, LoopError, LoopUsageError
from toolkit.loop.outcome import LoopDetected, LoopDetectionAction
from toolkit.settings import FUNCTION, Settings, check_fields, check_setting


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on."""

    _: KW_ONLY
    kind: Literal["continue"] = field(default="continue", repr=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop; the calls of this response are not run."""

    reason: str | None = None
    _: KW_ONLY
    kind: Literal["stop"] = field(default="stop", repr=False)


StopDecision: TypeAlias = Continue | Stop
"""The answers of a stop condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContext:
    """The facts that a stop condition is given, after each response.

    Args:
        iteration: The turn, from 1.
        response: The last response of the model, its calls as they would run: names repaired, arguments as canonical
            JSON of what the tool would be given.
        usage: The sum over all requests so far.
        tool_calls_executed: How many calls have been answered in the turns before, refused and failed ones included.
        last_tool_results: The results of the turn before; empty on the first.
    """

    iteration: int
    response: ChatResponse
    usage: Usage
    tool_calls_executed: int
    last_tool_results: Sequence[ToolResult]


StopWhen: TypeAlias = Callable[[StopContext], StopDecision]
"""Decides after each response; must be quick and change nothing."""

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
    """Stop when the model asks for this tool, also by a name that would be repaired to it; the call is not run."""
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
    """Stop when any of these conditions does, for the reason of the first that does."""
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
        LoopUsageError: It answered something else.
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
    """When a model counts as stuck, and what is done about it.

    Two calls are the same when the tools that they would run and the arguments that they would run with are: a name or
    arguments that were repaired count as what they were repaired to, a default that was left out is the same as one
    that was given, the order of keys and call ids don't matter, ``1`` and ``1.0`` differ.

    Args:
        threshold: How many times make a loop; at least 2.
        action: ``warn`` emits an event, at each repeat from the threshold on; ``inject_warning`` also warns the model,
            after the results, at every `threshold` repeats; ``skip`` answers the repeated calls without running
            them; ``stop`` ends the loop.
        mode: ``batch`` compares all calls of a turn with all of the turn before; ``call`` follows each call by itself,
            and sees also calls that are repeated side by side and two that alternate.
        ignore_order: True where the same calls in another order count as the same batch.
        exempt: Tools that may repeat themselves, such as one that polls.
        include_results: True where a repeat counts only while the results are the same too, also in a `window`.
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
        check_fields(self)
        if self.threshold < 2:
            raise ConfigurationError(
                f"loop detection needs a threshold of 2 or more, not {self.threshold}: one call is no loop"
            )
        if self.window is not None and self.window < self.threshold:
            raise ConfigurationError(
                f"a window of {self.window} can't hold {self.threshold} repeats: make it at least the threshold"
            )


@dataclass(slots=True)
class Repetition:
    """A repetition that was seen: its event, and the calls that it is about."""

    fact: LoopDetected
    call_ids: frozenset[str]
    is_due: bool


@dataclass(slots=True)
class _Item:
    """The unit of comparison: a call, or in mode ``batch`` all calls of a turn.

    Args:
        calls: The calls.
        signature: Equal where they are the same.
        names: The tools of the calls.
    """

    calls: Sequence[ToolCall]
    signature: str
    names: list[str]


_signature_of = attrgetter("signature")


@dataclass(slots=True)
class Streak:
    """How often one thing was repeated, without a window.

    Args:
        count: The times so far.
        turn: When it was seen last.
        names: Its tools.
        is_in_row: True where nothing else was called in between.
        between: The calls that it alternates with, by signature; empty where it came in each turn.
        result: Its last result, where results count.
    """

    count: int
    turn: int
    names: list[str]
    is_in_row: bool = True
    between: Sequence[str] = ()
    result: str | None = None


@dataclass(slots=True)
class Seen:
    """One thing in the window: what it was, its tools, whether an exempt call stood beside it, and its result."""

    signature: str
    names: list[str]
    has_others: bool
    result: str | None = None


_ALTERNATING = 2
"""So many turns lie between one call and the same again where two alternate."""


class LoopDetector:
    """Counts repeats over the turns of one loop, in memory that does not grow with them.

    Attributes:
        compares_results: True where `saw_results` has to be called for each turn.
    """

    __slots__ = ("_config", "_has_others", "_items", "_recent", "_streaks", "_turn", "compares_results")

    def __init__(self, config: LoopDetectionConfig) -> None:
        self._config = config
        self.compares_results: bool = config.include_results
        self._turn = 0
        self._streaks: dict[str, Streak] = {}
        self._recent: deque[Seen] = deque(maxlen=config.window)
        self._items: list[_Item] = []
        self._has_others = False  # since the last turn that was counted

    def saw_calls(self, calls: Sequence[ToolCall]) -> Repetition | None:
        """Count the calls of a turn, as they would run, and return their repetition, if there is one."""
        config = self._config
        counted = [call for call in calls if call.name not in config.exempt] if config.exempt else calls
        has_others = len(counted) < len(calls)
        self._has_others = self._has_others or has_others
        items = [_Item([call], f"{call.name} {call.arguments}", [call.name]) for call in counted]
        self._items = items if len(items) < 2 or config.mode == "call" else [_make_batch_item(items, config)]
        if not counted:
            return None
        if config.window is not None:
            streaks = [self._count_in_window(item) for item in self._items]
        else:
            streaks = self._count_in_turns()
        self._has_others = has_others
        repeated: list[tuple[_Item, Streak]] = []
        for item, streak in zip(self._items, streaks, strict=True):
            if streak.count >= config.threshold and self._is_loop(streak):
                repeated.append((item, streak))
        return self._write_repetition(repeated) if repeated else None

    def _is_loop(self, streak: Streak) -> bool:
        """Return True if the calls between are repeated, too: else they may be progress."""
        return not streak.between or any(
            self._streaks[other].count >= self._fewest_of_other for other in streak.between
        )

    @property
    def _fewest_of_other(self) -> int:
        """How often the other of two that alternate was called when the first reaches the threshold."""
        return max(2, self._config.threshold - 1)

    def saw_results(self, results: Sequence[ToolResult]) -> None:
        """Compare the results: with `include_results` another one means progress, and the count restarts."""
        if not self.compares_results or not self._items:
            return
        by_id = {result.call_id: result.text for result in results}
        for place, item in enumerate(self._items):
            result = "\n".join([by_id.get(call.id, "") for call in item.calls])
            if self._config.window is not None:
                back = place - len(self._items)
                if -back <= len(self._recent):
                    self._recent[back].result = result
            else:
                streak = self._streaks[item.signature]
                if streak.result is not None and streak.result != result:
                    streak.count, streak.is_in_row, streak.between = 1, True, ()
                streak.result = result

    def _count_in_window(self, item: _Item) -> Streak:
        """Count an item among the last ones, those with another result than its last one left out."""
        self._recent.append(Seen(item.signature, item.names, self._has_others))
        results = [seen.result for seen in self._recent if seen.signature == item.signature]
        known = [result for result in results if result is not None]
        count = len([result for result in results if result is None or result == known[-1]])
        stretch = list(self._recent)[-count:]
        is_in_row = not any(seen.has_others or seen.signature != item.signature for seen in stretch)
        return Streak(count, self._turn, item.names, is_in_row)

    def _count_in_turns(self) -> list[Streak]:
        """Count the items of a turn after those of the turns before."""
        self._turn = turn = self._turn + 1
        oldest = turn - (_ALTERNATING if self._config.mode == "call" else 1)
        earlier, self._streaks = self._streaks, {}
        for signature, streak in earlier.items():
            if streak.turn >= oldest:
                self._streaks[signature] = streak
        streaks = self._streaks
        found: list[Streak] = []
        for item in self._items:
            known = streaks.get(item.signature)
            if known is None:
                streak = Streak(1, turn, item.names)
            elif known.turn == turn:
                streak = known
                streak.count += 1
            else:
                last = [signature for signature, streak in earlier.items() if streak.turn == turn - 1]
                is_same = not self._has_others and set(last) == set(map(_signature_of, self._items))
                streak = self._go_on(known, last, is_in_row=is_same)
            streaks[item.signature] = streak
            found.append(streak)
        return found

    def _go_on(self, known: Streak, last: Sequence[str], *, is_in_row: bool) -> Streak:
        """Count one more turn of a streak: the next one, or the one after where it alternates with something."""
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

    def _write_repetition(self, found: Sequence[tuple[_Item, Streak]]) -> Repetition:
        """Return one event that names all items that were repeated too often."""
        config = self._config
        counts = [streak.count for _, streak in found]
        names = [name for item, _ in found for name in item.names]
        names += [name for other in self._find_tools_beside(found) for name in other]
        is_all = len(found) == len(self._items) and len(set(counts)) == 1
        fact = LoopDetected(
            tool_name="+".join(dict.fromkeys(names)),
            count=max(counts),
            action=config.action,
            is_in_row=is_all and all(streak.is_in_row for _, streak in found),
        )
        is_due = config.action != "inject_warning" or any(count % config.threshold == 0 for count in counts)
        return Repetition(fact, frozenset(call.id for item, _ in found for call in item.calls), is_due)

    def _find_tools_beside(self, found: Sequence[tuple[_Item, Streak]]) -> list[list[str]]:
        """Return the tools of other calls that are repeated as often, or will be with their next one."""
        if self._config.mode == "batch":
            return []
        if self._config.window is not None:
            counts = Counter([seen.signature for seen in self._recent])
            return [seen.names for seen in self._recent if counts[seen.signature] >= self._fewest_of_other]
        between = {signature for _, streak in found for signature in streak.between}
        return [
            streak.names
            for signature, streak in self._streaks.items()
            if signature in between and streak.count >= self._fewest_of_other
        ]

    def state(self) -> dict[str, Any]:
        """Return the counts as plain JSON."""
        streaks = {
            signature: [streak.count, streak.turn, streak.names, streak.is_in_row, list(streak.between), streak.result]
            for signature, streak in self._streaks.items()
        }
        recent = [[seen.signature, seen.names, seen.has_others, seen.result] for seen in self._recent]
        return {"turn": self._turn, "runs": streaks, "recent": recent, "has_others": self._has_others}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the counts that `state` returned."""
        self._turn, self._has_others = state["turn"], state["has_others"]
        self._streaks = {signature: Streak(*fields) for signature, fields in state["runs"].items()}
        self._recent.extend([Seen(*fields) for fields in state["recent"]])


def _make_batch_item(items: Sequence[_Item], config: LoopDetectionConfig) -> _Item:
    signatures = list(map(_signature_of, items))
    signature = "\n".join(sorted(signatures) if config.ignore_order else signatures)
    calls = [call for item in items for call in item.calls]
    return _Item(calls, signature, [call.name for call in calls])


def warning_text(fact: LoopDetected) -> str:
    """Return the warning for a model that asked for the same `fact.count` times."""
    if fact.is_in_row:
        seen = f"You have called {fact.tool_name} {fact.count} times in a row with the same arguments."
    elif "+" in fact.tool_name:
        seen = f"You have called {fact.tool_name} up to {fact.count} times with the same arguments."
    else:
        seen = f"You have called {fact.tool_name} {fact.count} times with the same arguments."
    return f"{seen} Use other arguments or another tool, or answer with what you have."
