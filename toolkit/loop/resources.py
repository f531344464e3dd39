"""What the parts of one running loop share: its machine, its tools, and what it may spend."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from toolkit.chat import ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.loop.answer import ExpectedAnswer
from toolkit.loop.budget import Budget
from toolkit.loop.config import ANSWER_TOOL, ToolLoopConfig
from toolkit.loop.depth import LoopFrame
from toolkit.loop.state import LoopState
from toolkit.tools.handler import Ctx
from toolkit.tools.policy import Caller, ExecutionPolicy
from toolkit.tools.prepare import Scope
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolkit.loop.listener import Listener

__all__ = ["LoopResources", "SubAgentSeat", "sub_agent_seat"]


@dataclass(slots=True)
class SubAgentSeat:
    """Under whom a loop runs that is made as a part of somebody's call.

    Args:
        agent: The sub-agent's name.
        caller: Who is asked about its calls; None where nobody else is.
    """

    agent: str
    caller: Caller | None


sub_agent_seat: ContextVar[SubAgentSeat | None] = ContextVar("toolkit_sub_agent_seat", default=None)
"""Set while the loop of a sub-agent is made, and only then: loops inside its tools are not its own."""


@dataclass(slots=True, kw_only=True)
class LoopResources(Generic[Ctx]):
    """What a loop works with.

    Args:
        state: The machine.
        config: The settings.
        registry: The tools.
        ctx: What the tools get as their context.
        frame: What loops inside its tools inherit.
        budget: What may be spent; None without limits.
        answer: The typed answer, where one is asked for.
        policy: What holds for every call.
        fixed_tools: What the caller has the model offered; None offers what the registry holds.
        shown_tools: What the last request offered; None before the first.
        listener: Takes the events; None where nobody does.
    """

    state: LoopState
    config: ToolLoopConfig[Any]
    registry: ToolRegistry[Ctx]
    ctx: Ctx
    frame: LoopFrame
    budget: Budget | None
    answer: ExpectedAnswer[Any] | None
    policy: ExecutionPolicy
    fixed_tools: Sequence[ToolDefinition] | None
    shown_tools: Sequence[ToolDefinition] | None = None
    listener: Listener | None = None

    def listen(self, listener: Listener | None) -> None:
        """Tell all events to `listener` from now on."""
        self.listener = listener
        if listener is not self.policy.observer:
            self.policy = replace(self.policy, observer=listener)

    @property
    def offered(self) -> Scope[Ctx]:
        """The tools that were offered, and the names of others: what was not offered does not run."""
        registry, shown = self.registry, self.shown_tools
        registrations, hidden = registry.registrations, registry.hidden_names
        current = registry.definitions() if self.fixed_tools is None else self.fixed_tools
        if self.fixed_tools is not None or shown is not current:
            names = {definition.name for definition in (current if shown is None else shown)}
            hidden = {*hidden, *registrations} - names
            registrations = {name: registrations[name] for name in registrations if name in names}
        if self.answer is not None and self.config.asks_by_tool:
            registrations = {**registrations, ANSWER_TOOL: self.answer.registration}
        return Scope(registrations, permissions=registry.permissions, hidden_names=hidden)
