"""The tools that a run offers with its next request, and what the calls of the reply may mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, Literal

from toolkit.calls.handler import Ctx, Registration
from toolkit.calls.output import READER, ResultStore, RunMemory
from toolkit.calls.prepare import Scope
from toolkit.chat import ToolDefinition
from toolkit.loop.config import ANSWER_TOOL
from toolkit.tool_names import is_legal_name
from toolkit.tools.registry import ToolRegistry

__all__ = ["Offer"]


class Offer(Generic[Ctx]):
    """Knows what is offered: the tools of the registry or of the caller's request, narrowed by middleware.

    Args:
        registry: The tools.
        fixed_tools: The definitions that the caller wants offered; None offers those of the registry.
        answer: The tool by which the model gives its answer; None where there is none.
        loop_id: The loop, where what it stores is its own.
        store: Where the whole texts of results that were cut are stored; None for the run itself, False for nowhere.

    Attributes:
        chosen_tools: The ones that middleware chose for the next request; None where none chooses.
        shown_tools: The tools that the last request offered; None before the first.
        memory: The state that the run keeps between its calls.
    """

    __slots__ = (
        "_answer",
        "_reader",
        "_registry",
        "_scope",
        "_with_reader",
        "chosen_tools",
        "fixed_tools",
        "memory",
        "shown_tools",
    )

    def __init__(
        self,
        registry: ToolRegistry[Ctx],
        fixed_tools: Sequence[ToolDefinition] | None,
        answer: Registration[Ctx] | None,
        loop_id: str,
        store: ResultStore | Literal[False] | None,
    ) -> None:
        self._registry = registry
        self._answer = answer
        self._reader: Registration[object] | None = None
        self._scope: tuple[object, Scope[Ctx]] | None = None
        self._with_reader: tuple[object, tuple[ToolDefinition, ...]] | None = None
        self.fixed_tools: Sequence[ToolDefinition] | None = fixed_tools
        self.chosen_tools: Sequence[ToolDefinition] | None = None
        self.shown_tools: Sequence[ToolDefinition] | None = None
        self.memory: RunMemory = RunMemory(loop_id, store, self._find_reader)

    def known_tools(self) -> Sequence[ToolDefinition]:
        """Return all tools that may be offered."""
        return self._registry.definitions() if self.fixed_tools is None else self.fixed_tools

    def own_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools of the next request, without those that the loop adds."""
        return self.known_tools() if self.chosen_tools is None else self.chosen_tools

    def next_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools of the next request, except that of the answer; the same object until anything changes."""
        if self.memory.count:
            return self._with_reading_tool()
        if self.chosen_tools is not None:
            return self.chosen_tools
        return self._registry.definitions() if self.fixed_tools is None else self.fixed_tools

    def _with_reading_tool(self) -> Sequence[ToolDefinition]:
        """Return the tools of a run in which a text was cut.

        The tool that reads it is the last one, unless the registry has one.
        """
        from toolkit.tools.read_result import read_result_tool  # noqa: PLC0415 - it loads what few runs need

        tools = self.own_tools()
        if not tools:
            return tools
        name = self._find_reader()
        if name in self._registry:
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
        from toolkit.tools.read_result import is_reader  # noqa: PLC0415 - as in `_with_reading_tool`

        registry = self._registry
        for name, registration in registry.registrations.items():
            if is_reader(registration.options):
                return name
        for name in (f"{registry.prefix}{READER}", READER, f"{READER}_of_run"):
            if name not in registry and name != ANSWER_TOOL and is_legal_name(name):
                return name
        return READER

    def find_scope(self) -> Scope[Ctx]:
        """Return the tools that were offered, and the names of others: what was not offered does not run."""
        registry, shown, known = self._registry, self.shown_tools, self._scope
        current = registry.definitions() if self.fixed_tools is None else self.fixed_tools
        if known is not None and known[0] is current is shown and known[1].permissions is registry.permissions:
            return known[1]
        if self.memory.count:
            current = self._with_reading_tool()
        is_all = self.chosen_tools is None and self.fixed_tools is None and shown is current
        scope = self._make_scope(None if is_all else current if shown is None else shown)
        # It stays what it is while all tools of the registry are offered, and nothing else.
        self._scope = (current, scope) if is_all and not self.memory.count else None
        return scope

    def _make_scope(self, offered: Sequence[ToolDefinition] | None) -> Scope[Ctx]:
        """Return the scope of what was offered, and of the loop's own tools; None stands for all of the registry."""
        registry, shown = self._registry, self.shown_tools
        registrations, hidden = registry.registrations, registry.hidden_names
        if offered is not None:
            names = {definition.name for definition in offered}
            hidden = frozenset({*hidden, *registrations} - names)
            registrations = {name: registrations[name] for name in registrations if name in names}
        if self._reader is not None and shown is not None and shown[-1:] == (self._reader.definition,):
            registrations = {**registrations, self._reader.name: self._reader}
        if self._answer is not None:
            registrations = {**registrations, ANSWER_TOOL: self._answer}
        return Scope(registrations, permissions=registry.permissions, hidden_names=hidden)
