"""Tools by name: the definitions for a model, the execution of calls, and the findings of `lint`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeAlias, TypedDict, cast, overload

from typing_extensions import TypeVar, Unpack

from toolkit.calls.approval import ApprovalHook, Approve, authorize, write_refusal
from toolkit.calls.events import Observer, ToolCallRefused, emit_and_wait
from toolkit.calls.output import redact_refusal
from toolkit.calls.permissions import Permissions
from toolkit.calls.policy import CallConfig, ExecutionPolicy, NameRepair
from toolkit.calls.prepare import Ready, Refused, Scope, prepare_beside, prepare_here
from toolkit.calls.registration import ChangeableOptionKeywords, Ctx, Registration, Tool, changed_options
from toolkit.calls.run import CallHost, run
from toolkit.chat import ToolCall, ToolDefinition, ToolResult
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, DuplicateToolError
from toolkit.foreign_text import has_mixed_scripts, is_hidden
from toolkit.runtime.backend import gather, run_in_own_context
from toolkit.settings import FUNCTION, check_setting, describe_value
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tool_names import check_known_names, check_name
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool, find_thread_bound

P = ParamSpec("P")
R = TypeVar("R")
Other = TypeVar("Other")

_DEFAULT_POLICY = ExecutionPolicy()
_LONGEST_DESCRIPTION = 1024
_LONGEST_SCHEMA = 8000
_ALIKE = 0.9
_TOOLS_OF_LOOPS = ("final_answer", "read_result")


class PlainFunction(Protocol):
    """A plain function; a tool, which is also callable, is none."""

    @property
    def __globals__(self) -> dict[str, Any]:
        """The names of its module."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        ...


class ExecutionKeywords(TypedDict, total=False):
    """The keywords of `ToolRegistry.execute` and `ToolRegistry.execute_all`."""

    approve: ApprovalHook | None
    observer: Observer | None
    name_repair: NameRepair


def _make_policy(
    approve: ApprovalHook | None = None, observer: Observer | None = None, name_repair: NameRepair = True
) -> ExecutionPolicy:
    return ExecutionPolicy(config=CallConfig(on_tool_call=approve, name_repair=name_repair), observer=observer)


Registrable: TypeAlias = Tool[Ctx] | PlainFunction
"""The values that can be registered: a tool whose context fits, or a plain function."""


@dataclass(slots=True, kw_only=True)
class RegistryFindings:
    """The facts about the tools of a registry that each run asks for.

    Args:
        names_to_approve: The tools of which somebody has to approve some call, by their options or by the rules.
        has_time_limits: True if a tool has its own time limit.
        unmatched: The rules and tags that match no tool.
    """

    names_to_approve: Sequence[str]
    has_time_limits: bool
    unmatched: Sequence[Finding]


class ToolRegistry(Generic[Ctx]):
    """Tools by name, in the order of their registration.

    ::

        registry = ToolRegistry[App]([search, orders])
        reader = registry.only(["search"])

    A registry accepts tools whose context fits `Ctx`: a tool without a context fits everywhere. The scoping methods
    return new registries by value: a tool that is added later to one is not in the other. They share the tools with
    their usage counters.

    Args:
        tools: Tools, or plain functions; None for none yet.
        permissions: The rules on calls; they apply in every scope of this registry.

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
        self._can_change = False
        self.depends_on_context: bool = False  # True if a tool is offered in some contexts only
        self.has_deferred: bool = False  # True if the last `definitions` had tools that the model has to search for
        self._watchers: tuple[Callable[[], object], ...] = ()
        # The names of tools in parent registries, which no repair replaces by other names.
        self.hidden_names: frozenset[str] = frozenset()
        self.unmatched_tags: frozenset[str] = frozenset()  # the tags of this scope that no tool has
        self._findings: tuple[object, object, RegistryFindings] | None = None
        self._scope: tuple[object, Scope[Ctx]] | None = None
        self.prefix: str = ""
        self.permissions = permissions
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
        """Add a tool, replace one of the same name, and return the tool."""
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
        self._can_change |= registration.can_change
        self.depends_on_context |= registration.options.available is not None
        self._note_change()
        return tool

    def unregister(self, name: str) -> None:
        """Remove a tool.

        Raises:
            UnknownToolNameError: It is not there.
        """
        check_known_names([name], self._registrations)
        del self._registrations[name]
        self.hidden_names |= {name}
        self._note_change()

    @contextmanager
    def watching(self, on_change: Callable[[], object]) -> Generator[None]:
        """Call a function after each registration and removal inside the block, in the same thread."""
        self._watchers = (*self._watchers, on_change)
        try:
            yield
        finally:
            self._watchers = tuple(each for each in self._watchers if each is not on_change)

    def _note_change(self) -> None:
        self._definitions = self._context_needs = None
        for watcher in self._watchers:
            watcher()

    def get(self, name: str) -> Registration[Ctx] | None:
        """Return the registration of a tool with its options and ``tags``, or None."""
        return self._registrations.get(name)

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
        if self._can_change:
            self._renew_changed()
        return self._registrations

    @property
    def scope(self) -> Scope[Ctx]:
        """The current tools and rules for calls."""
        shown, rules, hidden, known = self.definitions(), self.permissions, self.hidden_names, self._scope
        if known is None or known[0] is not shown or known[1].permissions is not rules:
            known = self._scope = (shown, Scope(self._registrations, permissions=rules, hidden_names=hidden))
        return known[1]

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions for a model, in order; the same object until the registry changes."""
        if self._can_change:
            self._renew_changed()
        if self._definitions is None:
            self._definitions = tuple(registration.definition for registration in self._registrations.values())
            self.has_deferred = any(definition.is_deferred for definition in self._definitions)
        return self._definitions

    @property
    def findings(self) -> RegistryFindings:
        """The facts about all tools for the beginning of a run; the same until the registry or its rules change."""
        shown, rules, known = self.definitions(), self.permissions, self._findings
        if known is None or known[0] is not shown or known[1] is not rules:
            registrations = self._registrations.items()
            found = RegistryFindings(
                names_to_approve=[
                    name
                    for name, each in registrations
                    if each.options.requires_approval is True or (rules is not None and rules.may_ask(name))
                ],
                has_time_limits=any(each.options.timeout is not None for _, each in registrations),
                unmatched=self.list_unmatched(),
            )
            known = self._findings = (shown, rules, found)
        return known[2]

    def _renew_changed(self) -> None:
        """Renew the definitions of tools that may change them."""
        for registration in self._registrations.values():
            if registration.can_change:
                registration.renew()
        # Another registry may have renewed the same registrations.
        shown = self._definitions or ()
        if any(one is not each.definition for one, each in zip(shown, self._registrations.values(), strict=False)):
            self._definitions = None

    def lint(self) -> list[Finding]:
        """Return findings about legal definitions that make models fail.

        These are missing descriptions, docstrings of parameters that don't exist, parameters without a type, large
        schemas, names that are easily confused, hidden characters and mixed scripts in descriptions, descriptions of
        MCP tools that name the tools of others, and rules and tags that match no tool.
        """
        return [*lint(self._registrations.values()), *self.list_unmatched()]

    def list_unmatched(self) -> list[Finding]:
        """Return the rules and tags of this scope that match no tool, which are often misspelled.

        A rule may be about a tool outside of a scope, or of a sub-agent.
        """
        if self.permissions is None and not self.unmatched_tags:
            return []
        names = [name for each in self._list_nested() for name in (*each.hidden_names, *each.registrations)]
        return lint_names(self.permissions, self.unmatched_tags, names)

    def may_ask(self) -> bool:
        """Return whether a call may require approval, also one of a sub-agent."""
        nested = self._list_nested()
        if any(each.permissions is not None for each in nested):
            return True
        return any(one.options.requires_approval is not False for each in nested for one in each.registrations.values())

    def _list_nested(self) -> list[ToolRegistry[Any]]:
        """Return this registry and those of its sub-agents at all levels, each once."""
        found: list[ToolRegistry[Any]] = [self]
        for registry in found:  # which grows
            for registration in registry.registrations.values():
                inner: Iterable[ToolRegistry[Any]] = getattr(registration.tool, "inner_registries", ())
                found += [each for each in inner if not any(each is known for known in found)]
        return found

    def find_context_need(self, _seen: frozenset[int] = frozenset()) -> str | None:
        """Return a description of the first tool that needs a context, also of a sub-agent, or None."""
        if self._context_needs is None:
            self._context_needs = [
                each
                for each in self._registrations.values()
                if each.needs_context is not None or bool(getattr(each.tool, "inner_registries", ()))
            ]
        for registration in self._context_needs:
            if registration.needs_context is not None:
                return f"tool '{registration.name}' needs a context of type {registration.needs_context}"
            inner: Iterable[ToolRegistry[Any]] = getattr(registration.tool, "inner_registries", ())
            seen = _seen | {id(self)}  # a sub-agent may be among its own tools
            for registry in inner:
                need = None if id(registry) in seen else registry.find_context_need(seen)
                if need is not None:
                    return f"{need}, inside tool '{registration.name}'"
        return None

    @overload
    async def execute(
        self: ToolRegistry[object],
        call: ToolCall,
        ctx: object = None,
        **options: Unpack[ExecutionKeywords],
    ) -> ToolResult: ...
    @overload
    async def execute(
        self,
        call: ToolCall,
        ctx: Ctx,
        **options: Unpack[ExecutionKeywords],
    ) -> ToolResult: ...
    async def execute(
        self,
        call: ToolCall,
        ctx: Any = None,
        **options: Unpack[ExecutionKeywords],
    ) -> ToolResult:
        """Run one call and return its result; mistakes of the model are in the result, never raised.

        The rules of a loop apply: repair, validation, permissions, limits. Calls that require approval are denied
        unless `approve` is given, which is then asked about every call. `observer` receives the events, including those
        of repairs, and `name_repair` is that of `ToolLoopConfig`.
        """
        policy = _make_policy(**options) if options else _DEFAULT_POLICY
        return await _execute_call(call, self.scope, ctx, policy)

    @overload
    async def execute_all(
        self: ToolRegistry[object],
        calls: Sequence[ToolCall],
        ctx: object = None,
        *,
        limit: int | None = None,
        **options: Unpack[ExecutionKeywords],
    ) -> list[ToolResult]: ...
    @overload
    async def execute_all(
        self,
        calls: Sequence[ToolCall],
        ctx: Ctx,
        *,
        limit: int | None = None,
        **options: Unpack[ExecutionKeywords],
    ) -> list[ToolResult]: ...
    async def execute_all(
        self,
        calls: Sequence[ToolCall],
        ctx: Any = None,
        *,
        limit: int | None = None,
        **options: Unpack[ExecutionKeywords],
    ) -> list[ToolResult]:
        """Run several calls at once and return their results in the order of the calls.

        Args:
            calls: The calls.
            ctx: The application's context.
            limit: The most calls that run at once; None runs all of them, 1 runs them in turn.
            options: As for `execute`.
        """
        policy = _make_policy(**options)
        scope = self.scope
        results: dict[int, ToolResult] = {}

        async def execute(position: int, call: ToolCall) -> None:
            results[position] = await _execute_call(call, scope, ctx, policy)

        await gather([partial(execute, position, call) for position, call in enumerate(calls)], limit)
        return [results[position] for position in range(len(calls))]

    def only(self, names: Iterable[str], *, missing_ok: bool = False) -> Self:
        """Return a registry of these tools, in this registry's order.

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
        """Return a registry of the tools that satisfy a predicate on their registration."""
        check_setting("the predicate of where()", predicate, FUNCTION)
        return self._make_scope(each for each in self._registrations.values() if predicate(each))

    def for_context(self, ctx: Ctx) -> Self:
        """Return a registry of the tools that are available in a context, with their definitions there.

        Loops and served registries do this themselves: a loop once, when it is created, so that it does not see tools
        that are registered later if some tool is only `available` in some contexts.

        Raises:
            ConfigurationError: A tool's `available` returns neither a bool nor a `ToolDefinition`.
        """
        if not self.depends_on_context:
            return self
        shown: list[Registration[Ctx]] = []
        for name, registration in self.registrations.items():
            available = registration.options.available
            given: object = True if available is None else available(ctx)
            check_setting(f"what available of tool '{name}' returns", given, bool, ToolDefinition)
            if given:
                shown.append(registration.shown_as(given) if isinstance(given, ToolDefinition) else registration)
        return self._make_scope(shown)

    def tagged(self, *tags: str) -> Self:
        """Return a registry of the tools that have all of these tags."""
        for tag in tags:
            check_setting("each tag", tag, str)
        wanted = frozenset(tags)
        scope = self.where(lambda registration: wanted <= registration.options.tags)
        scope.unmatched_tags |= wanted.difference(*[each.options.tags for each in self._registrations.values()])
        return scope

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
        return self._make_changed({old: self._define_anew(old, check_name(new)) for old, new in names.items()})

    def configured(self, *names: str, **options: Unpack[ChangeableOptionKeywords]) -> Self:
        """Return a registry in which these tools, or all without names, have other options.

        ::

            tools.configured("bash", timeout=5, requires_approval=True)

        Other options are unchanged. `strict`, `freeform`, `isolation`, `run_in_thread` and `env_vars` are fixed when a
        tool is created.

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
        joined.unmatched_tags |= other.unmatched_tags
        joined.prefix = self.prefix if self.prefix == other.prefix else ""
        if other.permissions is not None and other.permissions is not self.permissions:
            if self.permissions is not None:
                raise ConfigurationError("both registries have permissions: set those of the union yourself")
            joined.permissions = other.permissions
        return joined

    def widened(self: ToolRegistry[Any], context: type[Other]) -> ToolRegistry[Other]:  # noqa: ARG002 - for the types
        """Return the same tools as a registry for another context, by value.

        Use it if the type checker can't see that every tool fits.
        """
        return cast("ToolRegistry[Other]", self._make_scope(self._registrations.values()))

    def _define_anew(self, tool_name: str, name: str) -> Registration[Ctx]:
        registration = self._registrations[tool_name]
        return registration.under(replace(registration.definition, name=name), self.permissions)

    def _make_changed(self, changed: Mapping[str, Registration[Ctx]]) -> Self:
        return self._make_scope(changed.get(name, each) for name, each in self._registrations.items())

    def _make_scope(self, registrations: Iterable[Registration[Ctx]]) -> Self:
        scope = type(self)(permissions=self.permissions)
        scope.hidden_names = self.hidden_names | self._registrations.keys()
        scope.prefix = self.prefix
        scope.unmatched_tags = self.unmatched_tags
        for registration in registrations:
            if registration.name in scope._registrations:
                raise DuplicateToolError(registration.name)
            scope._registrations[registration.name] = registration
            scope._can_change |= registration.can_change
            scope.depends_on_context |= registration.options.available is not None
        return scope


def as_tool(value: Any) -> Tool[Any]:
    """Return `value` if it is a tool, else a tool of that function."""
    if isinstance(value, MethodType):
        method: Any = value.__func__
        if isinstance(method, FunctionTool):
            # A class method over a tool, from Python 3.13 on.
            return cast("Tool[Any]", value.__func__.__get__(value.__self__, type(value.__self__)))
    if isinstance(value, FunctionTool):
        return cast("Tool[Any]", value)
    if hasattr(value, "definition") and hasattr(value, "execute"):
        tool = cast("Tool[Any]", value)
        check_setting("the definition of a tool", tool.definition, ToolDefinition)
        check_setting(f"the parameters of tool '{tool.definition.name}'", tool.definition.parameters, Mapping)
        _check_execute(tool)
        return tool
    if callable(value):
        return cast("Tool[Any]", tool_from_function(value))
    raise ConfigurationError(
        f"{type(value).__qualname__} is neither a tool nor a function: register what @tool gives, a function, or an "
        "object with 'definition' and 'execute'"
    )


def _check_execute(tool: Tool[Any]) -> None:
    """Refuse a plain function as `execute`, unless its hint is an awaitable.

    Raises:
        ConfigurationError: It can't be awaited.
    """
    execute: Any = tool.execute
    if not inspect.isfunction(getattr(execute, "__func__", execute)) or inspect.iscoroutinefunction(execute):
        return
    returned = str(inspect.signature(execute).return_annotation)
    if not any(word in returned for word in ("Awaitable", "Coroutine", "Future", "Task", "Any")):
        raise ConfigurationError(
            f"execute of tool '{tool.definition.name}' is awaited: write 'async def execute', or, where it passes on "
            "what another returns, say so by its hint, such as '-> Awaitable[ToolOutput]'"
        )


async def _execute_call(call: ToolCall, scope: Scope[Ctx], ctx: Ctx, policy: ExecutionPolicy) -> ToolResult:
    """Prepare, authorize and run a call outside of a loop, by the rules of a loop."""
    prepared = prepare_here(call, scope, policy)
    if prepared is None:
        prepared = await prepare_beside(call, scope, policy)
    if policy.observer is not None:
        for repair in prepared.repairs:
            await emit_and_wait(policy.observer, repair)
    if isinstance(prepared, Refused):
        return await _report_refusal(prepared, prepared.result, scope, policy, prepared.crash)
    if policy.config.on_tool_call is not None or prepared.asks is not None:
        verdict = await authorize(prepared, policy)
        if not isinstance(verdict, Approve):
            return await _report_refusal(prepared, write_refusal(prepared, verdict), scope, policy)
    results: list[ToolResult] = []
    await run_in_own_context(_run_into, results, prepared, CallHost(ctx, policy))
    return results[0]


async def _run_into(results: list[ToolResult], ready: Ready[Ctx], host: CallHost[Ctx]) -> None:
    results.append(await run(ready, host))


async def _report_refusal(
    prepared: Ready[Ctx] | Refused,
    result: ToolResult,
    scope: Scope[Ctx],
    policy: ExecutionPolicy,
    crash: BaseException | None = None,
) -> ToolResult:
    call = prepared.call
    if policy.observer is not None:
        event = ToolCallRefused(
            call_id=call.id, tool_name=result.tool_name, program=call.program, result=result, error=crash
        )
        await emit_and_wait(policy.observer, redact_refusal(event, prepared, scope.registrations))
    return result


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Args:
        tool: The name of the tool; the pattern of a rule, or the tag, if no tool matches it.
        parameter: The parameter, if any.
        problem: The problem, and how to solve it.
    """

    tool: str
    parameter: str | None
    problem: str

    def __str__(self) -> str:
        where = self.tool if self.parameter is None else f"{self.tool}({self.parameter})"
        return f"{where}: {self.problem}"


def lint(registrations: Iterable[Registration[Any]]) -> list[Finding]:
    """Return the findings by tool, then those about several tools."""
    known = list(registrations)
    findings = [finding for registration in known for finding in _of_one(registration)]
    findings += _find_mentions(known)
    for one, other in _find_alike(sorted(registration.name for registration in known)):
        findings.append(Finding(one, None, f"its name is easily taken for '{other}': make them more different"))
    return findings


def lint_names(permissions: Permissions | None, tags: Iterable[str], names: Iterable[str]) -> list[Finding]:
    """Return the rules and tags that match no tool.

    Args:
        permissions: The rules.
        tags: The tags of scopes that no tool has.
        names: The names of all tools, except those that loops add.
    """
    known = list(names)
    rules = [] if permissions is None else permissions.list_unmatched([*known, *_TOOLS_OF_LOOPS])
    findings = [
        Finding(
            rule.tool_pattern,
            None,
            f"this rule to {rule.action} matches no tool{_suggest_name(rule.tool_pattern, known)}",
        )
        for rule in rules
    ]
    return [*findings, *[Finding(tag, None, "no tool has this tag, by which a scope was made") for tag in sorted(tags)]]


def _suggest_name(pattern: str, names: Iterable[str]) -> str:
    meant = ask_whether_meant(find_similar(pattern, names, most=1))
    return f": {meant}" if meant else ""


def _find_alike(names: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of names that are easily confused."""
    pairs: list[tuple[int, int]] = []
    from difflib import SequenceMatcher  # noqa: PLC0415 - slow to import, and registries are linted rarely

    matcher = SequenceMatcher[str](None)
    for second, other in enumerate(names):
        matcher.set_seq2(other.lower())  # it caches facts about the second text
        for first in range(second):
            matcher.set_seq1(names[first].lower())
            # A thousand names have half a million pairs: the bounds are fast, the ratio is not.
            if matcher.real_quick_ratio() > _ALIKE and matcher.quick_ratio() > _ALIKE and matcher.ratio() > _ALIKE:
                pairs.append((first, second))
    return [(names[first], names[second]) for first, second in sorted(pairs)]


def _find_mentions(registrations: Sequence[Registration[Any]]) -> Iterator[Finding]:
    """Yield the MCP tools whose descriptions name a tool of another origin, to steer calls of it."""
    for registration in registrations:
        server = registration.options.metadata.get("mcp_server")
        if server is None:
            continue
        words = frozenset(re.findall(r"[\w-]+", registration.definition.description))
        for other in registrations:
            # Single words occur in any text.
            if other.options.metadata.get("mcp_server") != server and other.name in words and not other.name.isalpha():
                problem = (
                    f"its description, from the server '{server}', names '{other.name}', which is not of that server"
                )
                yield Finding(registration.name, None, problem)


def _find_disguises(description: str) -> Iterator[str]:
    """Yield the invisible or misleading characters of a description."""
    if description.isascii() and description.isprintable():
        return
    if hidden := sorted({c for c in description if is_hidden(c) and c not in "\n\r\t\u200d"}):
        yield f"its description has hidden characters: {', '.join(map(ascii, hidden[:5]))}"
    for word in re.findall(r"\w+", description):
        if has_mixed_scripts(word):
            yield f"its description mixes scripts in the word {word!a}, whose letters look alike"
            return


def _of_one(registration: Registration[Any]) -> Iterable[Finding]:
    definition, name = registration.definition, registration.name
    for disguise in _find_disguises(definition.description):
        yield Finding(name, None, disguise)
    if not definition.description.strip():
        yield Finding(name, None, "it has no description: write a docstring that says when to use it and what it gives")
    elif len(definition.description) > _LONGEST_DESCRIPTION:
        yield Finding(
            name,
            None,
            f"its description has {len(definition.description)} characters, and some providers take "
            f"{_LONGEST_DESCRIPTION}: shorten it",
        )
    properties: Mapping[str, Any] = definition.parameters.get("properties", {})
    for parameter, schema in properties.items():
        if isinstance(schema, dict) and "description" not in schema:
            yield Finding(name, parameter, "it has no description: say in the docstring what to put there")
    size = len(json.dumps(definition.parameters))
    if size > _LONGEST_SCHEMA:
        yield Finding(
            name,
            None,
            f"its schema has {size} characters, which each request pays for: ask for less, or split the tool",
        )
    options, takes_context = registration.options, getattr(registration.tool, "takes_context", True)
    if (options.cache or options.should_cache) and takes_context and options.cache_key is None:
        yield Finding(name, None, "it takes a context, so nothing is cached without cache_key=lambda ctx: ...")
    tool: object = registration.tool
    if isinstance(tool, FunctionTool):
        owner = find_thread_bound(cast("FunctionTool[Any, ..., Any]", tool))
        if owner:
            yield Finding(
                name,
                None,
                f"its context has a {owner}, which only works in the thread that opened it, and the tool runs in "
                "another: open it with check_same_thread=False and a lock, or in the tool, or make that an async def",
            )
        for warning in cast("FunctionTool[Any, ..., Any]", tool).schema.warnings:
            yield Finding(name, None, warning)
