"""When to stop although the model would go on: small predicates that combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, field
from typing import Literal, TypeAlias

from toolkit.chat import ChatResponse, ToolResult, Usage
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, LoopError, LoopUsageError
from toolkit.settings import FUNCTION, check_setting


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
