"""The things that the parts of one running loop share: its machine, its tools, and what it may spend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Generic

from toolkit.calls.handler import Ctx, Registration
from toolkit.calls.output import READER, ResultStore, RunMemory
from toolkit.calls.policy import Caller, ExecutionPolicy
from toolkit.calls.prepare import Scope
from toolkit.calls.run import CallHost, CutCall
from toolkit.chat import Message, Provider, ToolDefinition, ToolResult
from toolkit.dataclass import dataclass
from toolkit.loop.answer import ExpectedAnswer
from toolkit.loop.budget import Budget
from toolkit.loop.config import ANSWER_TOOL, ToolLoopConfig
from toolkit.loop.depth import LoopFrame, current_call_id
from toolkit.loop.feeds import CallCut, CallReturned, Feed, MessagesSteered
from toolkit.loop.middleware import RunInfo
from toolkit.loop.state import LoopState
from toolkit.tool_names import is_legal_name
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolkit.loop.listener import Listener
    from toolkit.loop.middleware import MiddlewareChain

__all__ = ["LoopResources", "SubAgentSeat", "find_own_policy", "sub_agent_seat"]


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


@dataclass(slots=True, kw_only=True)
class LoopResources(Generic[Ctx]):
    """The parts that a loop works with.

    Args:
        state: The machine.
        feed: Feeds it.
        config: The settings.
        registry: The tools.
        ctx: The context of the tools.
        frame: The limits that loops inside its tools inherit.
        budget: The budget; None without limits.
        answer: The typed answer, where one is asked for.
        policy: The settings for every call.
        fixed_tools: The definitions that the caller wants offered; None offers those of the registry.
        chosen_tools: The ones of those that middleware chose for the next request; None where none chooses.
        shown_tools: The tools that the last request offered; None before the first.
        listener: Takes the events; None where nobody does.
        middleware: The chain of middleware; None where there is none.

    Attributes:
        host: The things that the calls share; from `prepare_host` on.
        memory: The state that the run keeps between its calls.
    """

    state: LoopState
    feed: Callable[[Feed], None]
    config: ToolLoopConfig[Any]
    registry: ToolRegistry[Ctx]
    ctx: Ctx
    frame: LoopFrame
    budget: Budget | None
    answer: ExpectedAnswer[Any] | None
    policy: ExecutionPolicy
    fixed_tools: Sequence[ToolDefinition] | None
    chosen_tools: Sequence[ToolDefinition] | None = None
    shown_tools: Sequence[ToolDefinition] | None = None
    listener: Listener | None = None
    middleware: MiddlewareChain | None = None
    host: CallHost[Ctx] = field(init=False)
    memory: RunMemory = field(init=False)
    _reader: Registration[object] | None = field(default=None, init=False)
    _scope: tuple[object, Scope[Ctx]] | None = field(default=None, init=False)
    _with_reader: tuple[object, tuple[ToolDefinition, ...]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.memory = RunMemory(self.policy.loop_id, self.config.output.store, self._find_reader)

    def prepare_host(self) -> None:
        """Put together what all calls share, once the run has its place, its middleware and its listener."""
        self.host = CallHost(
            self.ctx,
            self.policy,
            depth=self.frame.depth,
            memory=self.memory,
            keep=self._store_result,
            cut=self._note_cut,
        )

    def _store_result(self, call_id: str, result: ToolResult) -> None:
        self.feed(CallReturned(call_id, result))

    def _note_cut(self, call_id: str, cut: CutCall) -> None:
        self.feed(CallCut(call_id, cut))

    def steer(self, messages: Sequence[Message]) -> None:
        """Feed the machine messages from outside, where there are any."""
        if messages:
            self.feed(MessagesSteered(messages))

    def count_uses(self) -> dict[str, int]:
        """Return how often this run has used each tool that has a limit."""
        registrations = self.registry.registrations.items()
        uses = {name: each.counter.used_in(self.memory) for name, each in registrations}
        return {name: used for name, used in uses.items() if used}

    def resume(self, uses: Mapping[str, int], cut_texts: int) -> None:
        """Go on with what a saved run had used and cut."""
        self.memory.resume(cut_texts)
        for name, used in uses.items():
            if name in self.registry:
                self.registry.registrations[name].counter.restore(self.memory, used)

    def list_known_tools(self) -> Sequence[ToolDefinition]:
        """Return what may be offered at all."""
        return self.registry.definitions() if self.fixed_tools is None else self.fixed_tools

    def list_own_tools(self) -> Sequence[ToolDefinition]:
        """Return what the next request offers, without what the loop adds to it."""
        if self.chosen_tools is not None:
            return self.chosen_tools
        return self.list_known_tools()

    def list_tools(self) -> Sequence[ToolDefinition]:
        """Return what the next request offers once a text was cut, the answer's tool apart.

        The tool that reads it is the last one, unless the registry has one; the same object until anything changes.
        """
        from toolkit.tools.read_result import read_result_tool  # noqa: PLC0415 - it loads what few runs need

        tools = self.list_own_tools()
        if not tools:
            return tools
        name = self._find_reader()
        if name in self.registry:
            return tools
        if self._with_reader is None or self._with_reader[0] is not tools:
            if self._reader is None or self._reader.name != name:
                reader = read_result_tool(ResultStore())
                self._reader = Registration(reader, replace(reader.definition, name=name))
                self._reader.is_offered_by_loop = True
            self._with_reader = (tools, (*tools, self._reader.definition))
        return self._with_reader[1]

    def _find_reader(self) -> str:
        """Return the name of the tool that reads what was cut: the registry's, else one of this scope's prefix."""
        from toolkit.tools.read_result import is_reader  # noqa: PLC0415 - as in `list_tools`

        for name, registration in self.registry.registrations.items():
            if is_reader(registration.options):
                return name
        for name in (f"{self.registry.prefix}{READER}", READER, f"{READER}_of_run"):
            if name not in self.registry and name != ANSWER_TOOL and is_legal_name(name):
                return name
        return READER

    def describe_run(self, loop_id: str, provider: Provider, *, is_restored: bool) -> RunInfo[Ctx]:
        """Return what middleware is told of the run."""
        frame = self.frame
        return RunInfo(
            run_id=frame.run_id,
            loop_id=loop_id,
            parent_loop_id=frame.parent_loop_id,
            parent_call_id=None if frame.parent_loop_id is None else current_call_id.get(),
            depth=frame.depth - 1,
            agent=self.policy.agent,
            provider=str(getattr(provider, "name", "") or type(provider).__name__),
            model=str(getattr(provider, "model", "")),
            tool_names=self.registry.names,
            metadata=self.config.metadata,
            ctx=self.ctx,
            is_restored=is_restored,
        )

    def listen(self, listener: Listener | None) -> None:
        """Tell all events to `listener` from now on."""
        self.listener = listener
        if listener is not self.policy.observer:
            self.policy = self.policy.observed_by(listener)

    def find_scope(self) -> Scope[Ctx]:
        """Return the tools that were offered, and the names of others: what was not offered does not run."""
        registry, shown = self.registry, self.shown_tools
        current = registry.definitions() if self.fixed_tools is None else self.fixed_tools
        known = self._scope
        if known is not None and known[0] is current is shown and known[1].permissions is registry.permissions:
            return known[1]
        if self.memory.count:
            current = self.list_tools()
        is_all = self.chosen_tools is None and self.fixed_tools is None and shown is current
        scope = self._make_scope(None if is_all else current if shown is None else shown)
        # It stays what it is while all tools of the registry are offered, and nothing else.
        self._scope = (current, scope) if is_all and not self.memory.count else None
        return scope

    def _make_scope(self, offered: Sequence[ToolDefinition] | None) -> Scope[Ctx]:
        """Return the scope of what was offered, and of the loop's own tools; None stands for all of the registry."""
        registry, shown = self.registry, self.shown_tools
        registrations, hidden = registry.registrations, registry.hidden_names
        if offered is not None:
            names = {definition.name for definition in offered}
            hidden = frozenset({*hidden, *registrations} - names)
            registrations = {name: registrations[name] for name in registrations if name in names}
        if self._reader is not None and shown is not None and shown[-1:] == (self._reader.definition,):
            registrations = {**registrations, self._reader.name: self._reader}
        if self.answer is not None and self.config.asks_by_tool:
            registrations = {**registrations, ANSWER_TOOL: self.answer.registration}
        return Scope(registrations, permissions=registry.permissions, hidden_names=hidden)


def find_own_policy(config: ToolLoopConfig[Any], seat: SubAgentSeat | None, loop_id: str) -> ExecutionPolicy:
    """Return the policy of one run, which is that of all where nothing of it is the run's own."""
    if seat is not None:
        return replace(config.policy, agent=seat.agent, loop_id=loop_id, caller=seat.caller)
    return config.policy if config.output.store is None else replace(config.policy, loop_id=loop_id)
