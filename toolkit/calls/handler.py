"""The protocol of a tool, and what a registry works out about one once, so that no call has to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from threading import Lock
from typing import Any, Generic, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from typing_extensions import TypeVar

from toolkit.calls.context import ToolContext
from toolkit.calls.options import ToolOptions
from toolkit.chat import ToolDefinition
from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, ToolUsageLimitExceededError
from toolkit.schema import ArgumentsParser, raw_arguments

Ctx = TypeVar("Ctx", default=object)
Ctx_contra = TypeVar("Ctx_contra", contravariant=True, default=object)

_DEFAULT_OPTIONS = ToolOptions()


@runtime_checkable
class Tool(Protocol[Ctx_contra]):
    """A tool: something to show to a model and something to run.

    A tool that needs less fits where more is given: a ``Tool[object]`` is a ``Tool[App]``.

    `FunctionTool` is the usual one. One written by hand may also have ``options`` (`ToolOptions`) and ``arguments``
    (an `ArgumentsParser`); without the latter, arguments are checked against ``definition.parameters``.
    """

    @property
    def definition(self) -> ToolDefinition:
        """The definition that the model sees."""
        ...

    def execute(self, arguments: dict[str, Any], context: ToolContext[Ctx_contra]) -> Awaitable[ToolOutput]:
        """Run with validated arguments; usually an ``async def``.

        Raise `ToolError` to choose the text that the model reads; any other exception becomes ``Type: message``. Let
        cancellation pass.
        """
        ...


class Registration(Generic[Ctx_contra]):
    """A tool in a registry under a name, with everything about it that does not depend on the call."""

    __slots__ = (
        "_source",
        "_takes_secrets",
        "arguments",
        "cache_identity",
        "can_change",
        "counter",
        "definition",
        "execute",
        "former_names",
        "is_guarded",
        "is_offered_by_loop",
        "max_output_chars",
        "may_report",
        "name",
        "needs_context",
        "options",
        "parse_json",
        "tool",
    )

    def __init__(self, tool: Tool[Ctx_contra], definition: ToolDefinition | None = None) -> None:
        self.tool: Tool[Ctx_contra] = tool
        self._source: ToolDefinition = tool.definition
        self.definition: ToolDefinition = definition or self._source
        self.name: str = self.definition.name
        parser: ArgumentsParser | None = getattr(tool, "arguments", None)
        self.arguments: ArgumentsParser = parser or raw_arguments(self.definition.parameters, subject=self.name)
        self.parse_json: Callable[[str], dict[str, Any]] = self.arguments.parse_json
        # What `execute` would look up on each call, where the tool has it ready.
        self.execute: Callable[[dict[str, Any], ToolContext[Ctx_contra]], Awaitable[ToolOutput]] = getattr(
            tool, "runner", tool.execute
        )
        # The type of the context that the tool can't do without.
        self.needs_context: str | None = getattr(self.execute, "needs_context", None)
        # Whether a run may make reports, which have to be delivered beside it.
        self.may_report: bool = getattr(self.execute, "may_report", True)
        # Whether the tool may change its definition: `renew` is due before each use.
        self.can_change: bool = getattr(tool, "can_change", False)
        # Its names in the registries that this is a scope of, each with the rules that applied there.
        self.former_names: tuple[tuple[str, object], ...] = ()
        self.cache_identity: str | None = None
        # Whether a loop offers it by itself, such as its answer tool: no rule has to allow that, but one may deny it.
        self.is_offered_by_loop: bool = False
        self._takes_secrets: bool | None = None
        self._set_options(getattr(tool, "options", _DEFAULT_OPTIONS))
        counter: UsageCounter | None = getattr(tool, "counter", None)
        self.counter: UsageCounter = counter or UsageCounter(self.options.max_usage_count, self.options.usage_scope)

    @property
    def takes_secrets(self) -> bool:
        """True where an argument may be a secret, by its schema."""
        if self._takes_secrets is None:
            nodes = self.arguments.nodes
            self._takes_secrets = nodes.is_secret(nodes.root)
        return self._takes_secrets

    @property
    def identity(self) -> tuple[int, int]:
        """Numbers that identify the tool while it lives; equal for what was bound twice from one method."""
        counter = getattr(self.tool, "counter", None)  # which tools bound from one method share
        shared = counter if isinstance(counter, UsageCounter) else self.tool
        return id(shared), id(getattr(self.tool, "receiver", None))

    def renew(self) -> None:
        """Take over the tool's present definition and parser, under the same name."""
        source = self.tool.definition
        if source is not self._source:
            fresh = Registration(self.tool, replace(source, name=self.name))
            self._source, self.definition = source, fresh.definition
            self._takes_secrets = None
            self.arguments, self.parse_json = fresh.arguments, fresh.parse_json

    def under(self, definition: ToolDefinition, rules: object = None) -> Registration[Ctx_contra]:
        """Return the same tool, with its counter, shown to the model in another way.

        Args:
            definition: The definition that the model sees from here on.
            rules: The permissions under which the tool has had its name so far.
        """
        other = self._make_changed(definition, self.options, self.counter)
        other.former_names = ((self.name, rules), *self.former_names)
        return other

    def is_same_tool(self, other: Registration[Any]) -> bool:
        """Return whether both are one tool, whatever their names: the same object, or a method of the same object."""
        return self.tool is other.tool or _find_function(self.tool) == _find_function(other.tool)

    def configured(self, options: ToolOptions) -> Registration[Ctx_contra]:
        """Return the same tool with other options; with another usage limit it has a counter of its own."""
        new, old = options, self.options
        is_same_limit = (new.max_usage_count, new.usage_scope) == (old.max_usage_count, old.usage_scope)
        counter = self.counter if is_same_limit else UsageCounter(new.max_usage_count, new.usage_scope)
        return self._make_changed(self.definition, options, counter)

    def _make_changed(
        self, definition: ToolDefinition, options: ToolOptions, counter: UsageCounter
    ) -> Registration[Ctx_contra]:
        other = Registration(self.tool, definition)
        other.arguments, other.parse_json = self.arguments, self.parse_json
        other.counter, other.former_names = counter, self.former_names
        other._set_options(options)
        return other

    def _set_options(self, options: ToolOptions) -> None:
        self.options: ToolOptions = options
        self.max_output_chars: int | None = options.max_output_chars
        guards = (options.retry, options.concurrency, options.lock, options.max_usage_count)
        # Whether a run needs more than awaiting the tool for a time.
        self.is_guarded: bool = any(guard is not None for guard in guards)


def _find_function(tool: object) -> object:
    """Return what identifies a tool: two that are bound to one object from one method are the same."""
    function, receiver = getattr(tool, "function", None), getattr(tool, "receiver", None)
    return id(tool) if function is None or receiver is None else (id(function), id(receiver))


class UsageCounter:
    """Counts the uses of one tool, for each run or for the whole process; safe between threads.

    Args:
        maximum: How many uses there are; None sets no limit.
        scope: ``run`` counts in each run, and once more outside of any; ``process`` counts in the whole process.

    Raises:
        ConfigurationError: `maximum` is negative.
    """

    __slots__ = ("_by_run", "_current", "_lock", "_outside", "maximum", "scope")

    def __init__(self, maximum: int | None = None, scope: Literal["run", "process"] = "run") -> None:
        if maximum is not None and maximum < 0:
            raise ConfigurationError(f"a tool can't be used {maximum} times: give a number from 0 on, or None")
        self.maximum: int | None = maximum
        self.scope: Literal["run", "process"] = scope
        self._current = self._outside = 0
        self._by_run: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._lock = Lock()

    @property
    def current(self) -> int:
        """How many uses were claimed in all, in every run and outside of runs."""
        return self._current

    @property
    def is_exhausted(self) -> bool:
        """True where none is left outside of runs."""
        return self._is_used_up(self._outside)

    def used_in(self, run: object) -> int:
        """Return how many uses a run has claimed."""
        return self._by_run.get(run, 0)

    def restore(self, run: object, used: int) -> None:
        """Restore how many uses a saved run had claimed."""
        with self._lock:
            self._by_run[run] = used

    def claim(self, run: object = None) -> bool:
        """Take one use, if one is left for this run, or outside of runs; checking and taking are one step."""
        with self._lock:
            if self.maximum is None and run is not None:  # uses per run are only read where there is a limit
                self._current += 1
                return True
            used = self._outside if run is None else self._by_run.get(run, 0)
            if self._is_used_up(used):
                return False
            self._current += 1
            if run is None:
                self._outside += 1
            else:
                self._by_run[run] = used + 1
            return True

    def require(self, tool: str) -> None:
        """Take one use outside of runs.

        Raises:
            ToolUsageLimitExceededError: None is left.
        """
        if not self.claim():
            raise ToolUsageLimitExceededError(tool, self.maximum or 0)

    def reset(self) -> None:
        """Forget all uses, those of the runs that go on too."""
        with self._lock:
            self._current = self._outside = 0
            self._by_run.clear()

    def _is_used_up(self, used: int) -> bool:
        return self.maximum is not None and (self._current if self.scope == "process" else used) >= self.maximum
