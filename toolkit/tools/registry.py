"""Many tools under their names: what a model is offered, and the one way to run a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, cast, overload

from typing_extensions import TypeVar, Unpack

from toolkit.chat import ToolCall, ToolDefinition, ToolResult
from toolkit.errors import ConfigurationError, DuplicateToolError
from toolkit.settings import FUNCTION, check_setting, describe_value
from toolkit.tool_names import check_known_names, check_name
from toolkit.tools.context_needs import describe_need, may_need_context
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.handler import Ctx, Registration, Tool
from toolkit.tools.linting import Finding, lint
from toolkit.tools.options import ChangeableOptionKeywords, changed_options
from toolkit.tools.registrable import PlainFunction, Registrable, as_tool

if TYPE_CHECKING:
    from toolkit.calls.approval import ApprovalHook
    from toolkit.calls.events import Observer
    from toolkit.calls.permissions import Permissions
    from toolkit.calls.policy import NameRepair

__all__ = ["ToolRegistry"]

P = ParamSpec("P")
R = TypeVar("R")
Other = TypeVar("Other")


class ToolRegistry(Generic[Ctx]):
    """Tools by name, in the order of their registration.

    ::

        registry = ToolRegistry[App]([search, orders])
        reader = registry.only(["search"])

    A registry takes the tools whose context fits `Ctx`: one that needs nothing fits everywhere. The scoping methods
    return new registries by value: a tool added later to one is not in the other. They share the tools, and so their
    usage counters.

    Args:
        tools: Tools, or plain functions; None for none yet.
        permissions: Rules on what may be called; kept by every scope made from this registry.

    Raises:
        DuplicateToolError: Two tools have one name.
        MissingEnvError: A tool needs an environment variable that is not set.
    """

    def __init__(
        self, tools: Iterable[Registrable[Ctx]] | None = None, *, permissions: Permissions | None = None
    ) -> None:
        self._registrations: dict[str, Registration[Ctx]] = {}
        self._definitions: tuple[ToolDefinition, ...] | None = None
        self._context_needs: list[Registration[Ctx]] | None = None  # with those that have tools inside
        self._renewals = Registration.renewals
        # Names that tools had here or in what this is a scope of: where none has them, no repair takes them.
        self.hidden_names: frozenset[str] = frozenset()
        self.prefix: str = ""
        self.permissions = permissions
        if permissions is not None:
            from toolkit.calls.permissions import Permissions  # noqa: PLC0415 - few registries have rules

            check_setting("the permissions of a registry", permissions, Permissions, None)
        if tools is not None and not isinstance(cast("object", tools), Iterable):
            raise ConfigurationError(
                f"a registry takes a list of tools, not {describe_value(tools)}: write ToolRegistry([...])"
            )
        for tool in tools or ():
            self.register(cast("Tool[Ctx]", tool))

    @overload
    def register(self, tool: FunctionTool[Ctx, P, R]) -> FunctionTool[Ctx, P, R]: ...
    @overload
    def register(self, tool: Tool[Ctx]) -> Tool[Ctx]: ...
    @overload
    def register(self, tool: PlainFunction) -> FunctionTool[object, ..., Any]: ...
    def register(self, tool: Any) -> Any:
        """Add a tool, or a function as one, and return the tool.

        Raises:
            DuplicateToolError: Its name is taken.
            MissingEnvError: It needs an environment variable that is not set.
        """
        return self._add_tool(tool, replacing=False)

    @overload
    def register_or_replace(self, tool: FunctionTool[Ctx, P, R]) -> FunctionTool[Ctx, P, R]: ...
    @overload
    def register_or_replace(self, tool: Tool[Ctx]) -> Tool[Ctx]: ...
    @overload
    def register_or_replace(self, tool: PlainFunction) -> FunctionTool[object, ..., Any]: ...
    def register_or_replace(self, tool: Any) -> Any:
        """Add a tool, in the place of the one that has its name, if any, and return the tool."""
        return self._add_tool(tool, replacing=True)

    def _add_tool(self, value: Any, *, replacing: bool) -> Any:
        tool = as_tool(value)
        registration = Registration[Ctx](tool)
        name = check_name(registration.name)
        if not replacing and name in self._registrations:
            raise DuplicateToolError(name)
        for variable in registration.options.env_vars:
            variable.read(name)
        self._registrations[name] = registration
        self._definitions = self._context_needs = None
        return tool

    def unregister(self, name: str) -> None:
        """Take a tool out.

        Raises:
            UnknownToolNameError: It is not there.
        """
        check_known_names([name], self._registrations)
        del self._registrations[name]
        self._definitions = self._context_needs = None
        self.hidden_names |= {name}

    def get(self, name: str) -> Tool[Ctx] | None:
        """Return the tool of that name, or None."""
        registration = self._registrations.get(name)
        return None if registration is None else registration.tool

    def __contains__(self, name: object) -> bool:
        return name in self._registrations

    def __len__(self) -> int:
        return len(self._registrations)

    def __iter__(self) -> Iterator[Tool[Ctx]]:
        return iter([registration.tool for registration in self._registrations.values()])

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self._registrations) or 'empty'}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._registrations)

    @property
    def registrations(self) -> Mapping[str, Registration[Ctx]]:
        """The facts about each tool, by name; changes with the registry."""
        if self._renewals != Registration.renewals:
            self._renew_all()
        return self._registrations

    def _renew_all(self) -> None:
        """Show what the tools show now: one of them has changed since."""
        self._renewals, self._definitions = Registration.renewals, None
        for registration in self._registrations.values():
            registration.renew()

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return what a model is told, in order; the same object until the registry changes."""
        if self._renewals != Registration.renewals:
            self._renew_all()
        if self._definitions is None:
            self._definitions = tuple(registration.definition for registration in self._registrations.values())
        return self._definitions

    def lint(self) -> list[Finding]:
        """Return what makes models fail although it is legal.

        Missing descriptions, docstrings that name parameters which don't exist, parameters without a type, schemas too
        large, names that are easily confused.
        """
        return lint(self._registrations.values())

    def find_context_need(self, _seen: frozenset[int] = frozenset()) -> str | None:
        """Return what a tool of this registry needs where no context is given, in words, or None where none does.

        The tools of sub-agents count, too: they get the context of their caller.
        """
        if self._context_needs is None:
            self._context_needs = [each for each in self._registrations.values() if may_need_context(each)]
        return describe_need(self._context_needs, _seen | {id(self)}) if self._context_needs else None

    @overload
    async def execute(
        self: ToolRegistry[object],
        call: ToolCall,
        ctx: object = None,
        *,
        approve: ApprovalHook | None = None,
        observer: Observer | None = None,
        name_repair: NameRepair = True,
    ) -> ToolResult: ...
    @overload
    async def execute(
        self,
        call: ToolCall,
        ctx: Ctx,
        *,
        approve: ApprovalHook | None = None,
        observer: Observer | None = None,
        name_repair: NameRepair = True,
    ) -> ToolResult: ...
    async def execute(
        self,
        call: ToolCall,
        ctx: Any = None,
        *,
        approve: ApprovalHook | None = None,
        observer: Observer | None = None,
        name_repair: NameRepair = True,
    ) -> ToolResult:
        """Run one call and return its result; whatever the model did wrong is in the result, never raised.

        The same rules hold as in a loop: repair, validation, permissions, limits. What asks for approval is denied
        unless `approve` is given, which is then asked about every call. `observer` takes its events, those of repairs
        included, and `name_repair` is that of `ToolLoopConfig`.
        """
        from toolkit.calls.lone_calls import execute_alone  # noqa: PLC0415 - what a call goes through is a level above

        return await execute_alone(call, self, ctx, approve=approve, observer=observer, name_repair=name_repair)

    @overload
    async def execute_all(
        self: ToolRegistry[object],
        calls: Sequence[ToolCall],
        ctx: object = None,
        *,
        limit: int | None = None,
        approve: ApprovalHook | None = None,
        name_repair: NameRepair = True,
    ) -> list[ToolResult]: ...
    @overload
    async def execute_all(
        self,
        calls: Sequence[ToolCall],
        ctx: Ctx,
        *,
        limit: int | None = None,
        approve: ApprovalHook | None = None,
        name_repair: NameRepair = True,
    ) -> list[ToolResult]: ...
    async def execute_all(
        self,
        calls: Sequence[ToolCall],
        ctx: Any = None,
        *,
        limit: int | None = None,
        approve: ApprovalHook | None = None,
        name_repair: NameRepair = True,
    ) -> list[ToolResult]:
        """Run several calls at once and return their results in the order of the calls.

        Args:
            calls: The calls.
            ctx: The application's context.
            limit: How many run at once; None runs all, 1 runs them in turn.
            approve: As for `execute`.
            name_repair: As for `execute`.
        """
        from toolkit.calls.lone_calls import execute_together  # noqa: PLC0415 - as in `execute`

        return await execute_together(calls, self, ctx, limit=limit, approve=approve, name_repair=name_repair)

    def only(self, names: Iterable[str], *, missing_ok: bool = False) -> Self:
        """Return a registry of just these tools, in this registry's order.

        Raises:
            UnknownToolNameError: A name is not there, unless `missing_ok`.
        """
        wanted = check_known_names(names, self._registrations, missing_ok=missing_ok)
        return self.where(lambda registration: registration.name in wanted)

    def without(self, names: Iterable[str], *, missing_ok: bool = False) -> Self:
        """Return a registry of all tools but these.

        Raises:
            UnknownToolNameError: A name is not there, unless `missing_ok`: a typo must not widen a scope.
        """
        unwanted = check_known_names(names, self._registrations, missing_ok=missing_ok)
        return self.where(lambda registration: registration.name not in unwanted)

    def where(self, predicate: Callable[[Registration[Ctx]], bool]) -> Self:
        """Return a registry of the tools for which `predicate` says True; it is given name, options and definition."""
        check_setting("the predicate of where()", predicate, FUNCTION)
        return self._make_scope(each for each in self._registrations.values() if predicate(each))

    def tagged(self, *tags: str) -> Self:
        """Return a registry of the tools that have all of these tags."""
        for tag in tags:
            check_setting("each tag", tag, str)
        wanted = frozenset(tags)
        return self.where(lambda registration: wanted <= registration.options.tags)

    def prefixed(self, namespace: str, *, separator: str = "__") -> Self:
        """Return a registry with every name changed to ``namespace__name``.

        Raises:
            ConfigurationError: A name becomes too long or is not allowed.
        """
        scope = self.renamed({name: f"{namespace}{separator}{name}" for name in self._registrations})
        scope.prefix = f"{namespace}{separator}{self.prefix}"
        scope.hidden_names |= {f"{namespace}{separator}{name}" for name in self.hidden_names}
        return scope

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return a registry in which each old name of `names` is replaced by its new one; the others stay.

        Raises:
            UnknownToolNameError: An old name is not there.
            DuplicateToolError: Two tools end up with one name.
        """
        check_setting("what renamed() is given", names, Mapping)
        check_known_names(names, self._registrations)
        return self._make_changed({old: self._define_anew(old, name=check_name(new)) for old, new in names.items()})

    def described(self, descriptions: Mapping[str, str]) -> Self:
        """Return a registry in which models are told other descriptions of these tools, by name; the others stay.

        A tool that itself changes what it shows, as an MCP server's may, is shown as it is from then on.

        Raises:
            UnknownToolNameError: A name is not there.
            ConfigurationError: A description is no text.
        """
        check_setting("what described() is given", descriptions, Mapping)
        for name, text in descriptions.items():
            check_setting(f"the description of '{name}'", text, str)
        check_known_names(descriptions, self._registrations)
        return self._make_changed(
            {name: self._define_anew(name, description=text) for name, text in descriptions.items()}
        )

    def configured(self, *names: str, **options: Unpack[ChangeableOptionKeywords]) -> Self:
        """Return a registry in which these tools, or all where none is named, run with other options.

        ::

            tools.configured("bash", timeout=5, requires_approval=True)

        What is not given stays as the tool has it. What a tool is made with can't be changed here: `strict`,
        `isolation`, `run_in_thread` and `env_vars`.

        Raises:
            UnknownToolNameError: A name is not there.
            ConfigurationError: An option that can't be, or can't be changed.
        """
        wanted = check_known_names(names or self._registrations, self._registrations)
        chosen = [registration for name, registration in self._registrations.items() if name in wanted]
        return self._make_changed(
            {each.name: each.configured(changed_options(options, each.options)) for each in chosen}
        )

    def __or__(self, other: ToolRegistry[Ctx]) -> Self:
        """Return a registry of the tools of both, this one's first.

        Raises:
            DuplicateToolError: A name is in both, for different tools.
            ConfigurationError: Both have permissions, and they differ.
        """
        if not isinstance(cast("object", other), ToolRegistry):
            return NotImplemented
        mine = self._registrations
        theirs = other.registrations.items()
        new = [each for name, each in theirs if name not in mine or mine[name].tool is not each.tool]
        joined = self._make_scope([*mine.values(), *new])
        joined.hidden_names |= other.hidden_names
        joined.prefix = self.prefix if self.prefix == other.prefix else ""
        if other.permissions is not None and other.permissions is not self.permissions:
            if self.permissions is not None:
                raise ConfigurationError("both registries have permissions: set those of the union yourself")
            joined.permissions = other.permissions
        return joined

    def widened(self: ToolRegistry[Any], context: type[Other]) -> ToolRegistry[Other]:  # noqa: ARG002 - for the types
        """Return the same tools as a registry for another context, by value.

        The caller vouches that every tool fits: use it where the type checker can't see it.
        """
        return cast("ToolRegistry[Other]", self._make_scope(self._registrations.values()))

    def _define_anew(self, tool_name: str, /, **changes: Any) -> Registration[Ctx]:
        registration = self._registrations[tool_name]
        return registration.under(replace(registration.definition, **changes), self.permissions)

    def _make_changed(self, changed: Mapping[str, Registration[Ctx]]) -> Self:
        return self._make_scope(changed.get(name, each) for name, each in self._registrations.items())

    def _make_scope(self, registrations: Iterable[Registration[Ctx]]) -> Self:
        scope = type(self)(permissions=self.permissions)
        scope.hidden_names = self.hidden_names | self._registrations.keys()
        scope.prefix = self.prefix
        for registration in registrations:
            if registration.name in scope._registrations:
                raise DuplicateToolError(registration.name)
            scope._registrations[registration.name] = registration
        return scope
