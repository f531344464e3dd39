"""How deep loops are nested, and what an inner loop inherits from the outer ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeGuard, TypeVar, cast, runtime_checkable

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, MaxDepthExceededError
from toolkit.settings import describe_value

if TYPE_CHECKING:
    from toolkit.calls.policy import Caller
    from toolkit.chat import Usage
    from toolkit.loop.budget import Budget
    from toolkit.loop.journaling import NestedJournals
    from toolkit.loop.middleware import Middleware

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
    """

    depth: int
    limit: int | None
    loop_id: str = field(default="", compare=False)
    run_id: str = field(default="", compare=False)
    parent_loop_id: str | None = field(default=None, compare=False)
    budget: Budget | None = None
    spend: Callable[[Usage], None] | None = field(default=None, compare=False)
    stop: Callable[[str], None] | None = field(default=None, compare=False)
    inherited: tuple[Middleware[Any], ...] = field(default=(), compare=False)
    journals: NestedJournals | None = field(default=None, compare=False)


current_frame: ContextVar[LoopFrame | None] = ContextVar("toolkit_loop_frame", default=None)

current_call_id: ContextVar[str | None] = ContextVar("toolkit_call_id", default=None)
"""The call, of the loop whose frame that is, in which the current code runs."""


@dataclass(slots=True)
class SubAgentSeat:
    """Under whom a loop runs that is made as a part of somebody's call.

    Args:
        agent: The sub-agent's name.
        caller: The guards of the caller, which are asked about its calls; None where nobody else is.
    """

    agent: str
    caller: Caller | None


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
    if _carries_depth(ctx):
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
