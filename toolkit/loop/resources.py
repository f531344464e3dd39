"""What the parts of one running loop share: its machine, its tools, and what it may spend."""

from __future__ import annotations

from collections.abc import Sequence
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
from toolkit.tools.policy import ExecutionPolicy
from toolkit.tools.prepare import Scope
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolkit.loop.listener import Listener

__all__ = ["LoopResources"]


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
        self.policy = self.config.policy if listener is None else replace(self.config.policy, observer=listener)

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
