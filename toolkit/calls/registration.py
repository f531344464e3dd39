"""The protocol of a tool, its options, and what a registry works out about one once, so that no call has to."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from inspect import iscoroutinefunction
from threading import Lock
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeAlias, cast, runtime_checkable
from weakref import WeakKeyDictionary, WeakSet

from typing_extensions import TypedDict, TypeVar

from toolkit.backoff import backoff_pause
from toolkit.calls.context import ToolContext
from toolkit.chat import Freeform, ToolDefinition, ToolHints, Trust, VendorTool
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, MissingEnvError, ToolUsageLimitExceededError
from toolkit.schema import ArgumentsParser, raw_arguments
from toolkit.schema.nodes import Nodes
from toolkit.settings import (
    Duration,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seconds,
    Settings,
    ZeroToOne,
    check_fields,
)
from toolkit.suggestions import ask_whether_meant, find_similar


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRetryConfig(Settings):
    """How often and how patiently a failed run is tried again.

    The pause before retry ``n`` (from 0) is ``min(initial_backoff * backoff_multiplier**n, max_backoff)``, times a
    random factor between ``1 - jitter`` and 1: jitter only shortens, so that the cap holds.

    Args:
        max_retries: Runs after the first: 3 means up to 4 runs.
        initial_backoff: Seconds before the first retry.
        max_backoff: The longest pause in seconds.
        backoff_multiplier: How much longer each pause is than the one before.
        jitter: From 0 (none) to 1.
        retry_if: A function of an error that says whether it is worth another try; None tries again after accidents:
            not after a `ToolError` or an error output, by which a tool says something on purpose. Never asked about bad
            arguments, a denial, a cancellation, a usage limit, or a timeout whose thread still runs: those stand.
            Where it raises, that is logged and the tool's own error stands.
    """

    max_retries: NonNegativeInt = 3
    initial_backoff: NonNegativeFloat = 0.1
    max_backoff: NonNegativeFloat = 5.0
    backoff_multiplier: NonNegativeFloat = 2.0
    jitter: ZeroToOne = 0.5
    retry_if: Callable[[Exception], bool] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def pause(self, retry: int, random: float) -> float:
        """Return the seconds before `retry` (from 0); `random` is a number between 0 and 1."""
        return backoff_pause(
            retry,
            initial=self.initial_backoff,
            longest=self.max_backoff,
            multiplier=self.backoff_multiplier,
            factor=1 - self.jitter * random,
        )


@dataclass(frozen=True, slots=True)
class EnvVar(Settings):
    """An environment variable that a tool reads; that it is there is checked when the tool is registered.

    ::

        KEY = EnvVar("SEARCH_KEY", "the key of the search service")

        @tool(env_vars=[KEY])
        def search(query: str) -> str:
            return ask(query, key=KEY.read())

    Args:
        name: The variable.
        description: Its purpose, for the error when it is missing.
        default: Its value when it is not set; None makes it required.
    """

    name: str
    description: str = ""
    default: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "the {} of an environment variable")

    def read(self, tool: str = "") -> str:
        """Return its value as it is now, or the default.

        Raises:
            MissingEnvError: It is not set and has no default; `tool` names who needs it, where that is known.
        """
        value = os.environ.get(self.name, self.default)
        if value is None:
            raise MissingEnvError(tool, self.name, self.description)
        return value


ApprovalNeed: TypeAlias = Callable[[Mapping[str, Any]], bool | str]
"""Decides by the validated arguments whether a call needs approval: True or a reason, else False or empty."""


Availability: TypeAlias = Callable[[Any], bool | ToolDefinition]
"""Decides by the context whether a tool is offered in a run, or as which definition."""


PreviewWriter: TypeAlias = Callable[[Mapping[str, Any]], str]
"""Writes the validated arguments of a call for the person who decides on it."""


Effect: TypeAlias = Literal["write", "send", "spend", "run"]
"""An effect of a call on the world: it changes something, gives data to others, spends money, or runs code."""


class ChangeableOptionKeywords(TypedDict, total=False):
    """The keywords of `ToolRegistry.configured`: the options of an existing tool that can be changed."""

    label: str
    available: Availability | None
    retry: ToolRetryConfig | None
    timeout: Duration | None
    argument_repair: bool | None
    requires_approval: bool | Literal["unsaid"] | ApprovalNeed
    preview: PreviewWriter | None
    sequential: bool
    concurrency: int | None
    lock: str | Callable[[Mapping[str, Any]], object] | None
    idempotent: bool
    on_crash: Literal["tell", "rerun", "resume"] | None
    result_as_answer: bool
    max_usage_count: int | None
    usage_scope: Literal["run", "process"]
    max_output_chars: int | None
    keep_output: Literal["head", "tail", "both"] | None
    cache: bool | None
    should_cache: Callable[[Mapping[str, Any], ToolOutput], bool] | bool | None
    cache_key: Callable[[Any], object] | None
    examples: Sequence[Mapping[str, Any]]
    callers: Sequence[Literal["model", "code"]]
    eager_arguments: bool
    cache_breakpoint: bool
    shows_output_schema: bool
    defer: bool
    group: str
    native_as: VendorTool | None
    tags: frozenset[str] | set[str] | list[str] | tuple[str, ...]
    metadata: Mapping[str, Any]
    trust: Trust
    effects: frozenset[Effect] | set[Effect] | list[Effect] | tuple[Effect, ...]
    destinations: tuple[str, ...] | list[str] | None


class ToolOptionKeywords(ChangeableOptionKeywords, total=False):
    """The keywords of `tool`, `tool_with_ctx` and `tool_from_function`; `ToolOptions` describes them."""

    strict: bool | None
    freeform: bool | Freeform
    isolation: Literal["process"] | None
    run_in_thread: bool
    env_vars: tuple[EnvVar, ...] | list[EnvVar]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions(Settings):
    """The options of a tool.

    Args:
        label: The name shown to people; empty shows the tool's name.
        available: A function of the application's context, called when a run begins. False leaves the tool out of the
            run; a `ToolDefinition` is offered to the model in place of the tool's own, and arguments are also checked
            against it. It must not be async. None offers the tool in every run.
        retry: When a failed run is retried; None never retries.
        timeout: Seconds for one run, from the start of its body; None applies the loop's `timeouts.tool`.
        strict: True to refuse ``"5"`` for an integer and to ask providers to enforce the schema. None leaves it to the
            provider: OpenAI's responses, for example, enforce schemas that allow it.
        freeform: True if the only parameter is a text that the model writes as is, without JSON; a `Freeform` adds a
            grammar. Providers without such tools send the text as JSON and describe the grammar in words.
        argument_repair: True to repair malformed arguments; None applies the loop's setting.
        requires_approval: True if every call needs approval; ``unsaid`` if only calls do whose arguments occur nowhere
            in the conversation (`ToolCall.unsaid`). A function decides by the validated arguments, and may return a
            reason in place of True. If it raises, the call needs approval.
        preview: A function of the validated arguments that returns the text an approver reads. With None, or if it
            raises, the approver reads the given arguments as JSON.
        sequential: True to run calls of this tool alone, never beside other tools of the turn.
        concurrency: The most runs at once in this process; None sets no limit.
        lock: The name of what a call needs exclusively, or a function of the arguments that returns it (None for
            nothing). Calls with equal names never overlap, across tools and event loops of this process, and while an
            abandoned thread of one still runs.
        isolation: ``process`` runs each call in a process that can be killed. The function must be at the top level of
            a module; arguments and value are passed as JSON, and there is no context.
        idempotent: True if a second run does no harm, so that a call whose answer was lost may be repeated.
        on_crash: The treatment of a call that was running when its durable process died. ``tell`` reports to the
            model that it may have taken effect; ``rerun`` runs it again, perhaps a second time; ``resume`` also runs it
            again, and the loops inside it continue from the log: for tools that do nothing else that must not be
            repeated. None is ``rerun`` for a tool that is `idempotent` or tagged ``read`` or ``idempotent``, else
            ``tell``. Unless it is ``tell``, sub-agents in the tool may wait for approvals: the call runs again with
            the decisions.
        result_as_answer: True to end the loop with this tool's output as the answer.
        max_usage_count: The most calls that may run; None sets no limit.
        usage_scope: ``run`` counts the calls of each run of a loop, ``process`` all calls in the life of the process.
            Calls that the application makes outside of a run share one count.
        max_output_chars: The most characters of output that the model reads; None applies the loop's setting.
        keep_output: The part of a longer output that the model reads; None applies the loop's setting.
        env_vars: The environment variables that the tool reads; checked at registration.
        cache: True to cache outputs by their arguments, if the loop has a cache; None leaves it to `should_cache`, and
            without that caches nothing.
        should_cache: A function of arguments and output that returns whether to cache the output; giving one enables
            caching. False caches nothing.
        cache_key: For tools with a context: a function of the application's object that returns what outputs depend
            on, such as a user's id. Without it, or if it returns None, nothing is cached.
        run_in_thread: True to run a function that is not async in a worker thread; False runs it on the event loop,
            which it blocks.
        examples: Valid arguments, shown to the model and checked when the tool is made.
        callers: Its callers: ``model``, and ``code`` that the model runs at the vendor. Empty leaves it to the vendor.
            Calls by code pass the same checks, approvals and limits.
        eager_arguments: True to stream arguments as they are written, with vendors that otherwise wait.
        cache_breakpoint: True to mark the prompt up to this tool for the vendor's cache.
        shows_output_schema: True to show the model the output's schema, with vendors that accept one.
        defer: True if the model has to search for the tool; for registries with many.
        group: The group of the tool, such as the server it is from, for vendors that search in groups.
        native_as: The kind of vendor tool that it implements, such as ``shell``. A vendor with such a tool offers that
            one in place of this definition, and its calls run this tool.
        tags: The tags for `ToolRegistry.tagged`.
        metadata: The application's own notes.
        trust: ``untrusted`` if outputs contain what others wrote: pages, mails, issues. Rules such as
            `ask_when_tainted` depend on it. It is the default for MCP servers, OpenAPI and plugins.
        effects: The effects of a call: ``write`` (changes or deletes), ``send`` (gives data to others), ``spend``
            (money) or ``run`` (code). Empty means that it only reads.
        destinations: The parameters that name where an effect goes, as paths: ``("to", "options.url")``. None means
            all parameters.
    """

    label: str = ""
    available: Availability | None = None
    retry: ToolRetryConfig | None = None
    timeout: Seconds | None = None
    strict: bool | None = False
    freeform: bool | Freeform = False
    argument_repair: bool | None = None
    requires_approval: bool | Literal["unsaid"] | ApprovalNeed = False
    preview: PreviewWriter | None = None
    sequential: bool = False
    concurrency: PositiveInt | None = None
    lock: str | Callable[[Mapping[str, Any]], object] | None = None
    isolation: Literal["process"] | None = None
    idempotent: bool = False
    on_crash: Literal["tell", "rerun", "resume"] | None = None
    result_as_answer: bool = False
    max_usage_count: PositiveInt | None = None
    usage_scope: Literal["run", "process"] = "run"
    max_output_chars: PositiveInt | None = None
    keep_output: Literal["head", "tail", "both"] | None = None
    env_vars: tuple[EnvVar, ...] = ()
    cache: bool | None = None
    should_cache: Callable[[Mapping[str, Any], ToolOutput], bool] | bool | None = None
    cache_key: Callable[[Any], object] | None = None
    run_in_thread: bool = True
    examples: tuple[Mapping[str, Any], ...] = ()
    callers: tuple[Literal["model", "code"], ...] = ()
    eager_arguments: bool = False
    cache_breakpoint: bool = False
    shows_output_schema: bool = False
    defer: bool = False
    group: str = ""
    native_as: VendorTool | None = None
    tags: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trust: Trust = "trusted"
    effects: frozenset[Effect] = frozenset()
    destinations: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if iscoroutinefunction(self.available):
            raise ConfigurationError("available must not be async: let what makes the context wait for what it needs")

    @property
    def hints(self) -> ToolHints | None:
        """The hints for a provider; None where there are none."""
        hints = ToolHints(
            examples=self.examples,
            callers=self.callers,
            eager_arguments=self.eager_arguments,
            cache_breakpoint=self.cache_breakpoint,
            shows_output_schema=self.shows_output_schema,
            deferred=self.defer,
            group=self.group,
            native_as=self.native_as,
        )
        return None if hints == _NO_HINTS else hints

    def add_hints(self, definition: ToolDefinition) -> ToolDefinition:
        """Return a definition with the hints of these options."""
        hints = None if self is _PLAIN else self.hints
        return definition if hints is None or hints == definition.hints else replace(definition, hints=hints)

    @property
    def after_crash(self) -> Literal["tell", "rerun", "resume"]:
        """The value of `on_crash`; its default depends on `idempotent` and the tags."""
        if self.on_crash is not None:
            return self.on_crash
        return "rerun" if self.idempotent or not self.tags.isdisjoint(("read", "idempotent")) else "tell"


_NO_HINTS = ToolHints()
_PLAIN = ToolOptions()
_NAMES = [field.name for field in fields(ToolOptions)]


def made_options(keywords: ChangeableOptionKeywords, base: ToolOptions = _PLAIN) -> ToolOptions:
    """Return `base` with what `keywords` say in its place.

    Raises:
        ConfigurationError: There is no such option, or it can't be that.
    """
    for name in keywords:
        if name not in _NAMES:
            near = find_similar(name, _NAMES, most=1, cutoff=0.6)
            hint = ask_whether_meant(near) or "see ToolOptions"
            raise ConfigurationError(f"there is no option '{name}' of a tool: {hint}")
    return replace(base, **cast("Any", keywords)) if keywords else base


def changed_options(keywords: ChangeableOptionKeywords, base: ToolOptions) -> ToolOptions:
    """Return the options of a tool that is made already with what `keywords` say in their place.

    Raises:
        ConfigurationError: There is no such option, it can't be that, or the tool was made with it.
    """
    fixed = sorted(keywords.keys() & {"strict", "freeform", "isolation", "run_in_thread", "env_vars"})
    if fixed:
        raise ConfigurationError(f"{', '.join(fixed)} can't be changed in a registry: say it where the tool is made")
    return made_options(keywords, base)


def refuse_timeout(subject: str) -> NoReturn:
    """Refuse a time limit of a function that holds the event loop while it runs, and with it every timer.

    Raises:
        ConfigurationError: Always.
    """
    raise ConfigurationError(
        f"{subject} can't have a timeout: it runs on the event loop (run_in_thread=False), where nothing can stop it. "
        "Leave one of them out, or make it an async def"
    )


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


BROWSER = "browser"
"""The tag of tools that run in an interface."""
_registered: WeakSet[Registration[Any]] = WeakSet()
_registering = Lock()


def find_schemas(tool: str) -> list[Nodes]:
    """Return the schemas of the tools of this name in this process; those of all that take secrets, if there is none.

    A call can so be shown without its secrets wherever it is met, under a name that will be repaired, too.
    """
    with _registering:
        known = list(_registered)
    named = [each.arguments.nodes for each in known if each.name == tool]
    return named or [each.arguments.nodes for each in known if each.arguments.nodes.takes_secrets]


def hides_arguments(tool: str) -> bool:
    """Return whether the arguments of a tool of this name are shown only when they are complete, without secrets.

    A name that is no tool's may be repaired to that of any. The arguments of a tool that runs in a browser are for the
    browser itself.
    """
    with _registering:
        named = [each for each in _registered if each.name == tool]
    if any(BROWSER in each.options.tags for each in named):
        return False
    return not named or any(each.may_take_secrets for each in named)


class Registration(Generic[Ctx_contra]):
    """A tool in a registry under a name, with everything about it that does not depend on the call."""

    __slots__ = (
        "__weakref__",
        "_source",
        "arguments",
        "cache_identity",
        "can_change",
        "counter",
        "definition",
        "execute",
        "former_names",
        "is_bare",
        "is_guarded",
        "is_offered_by_loop",
        "max_output_chars",
        "may_report",
        "name",
        "needs_context",
        "options",
        "parse_json",
        "takes_secrets",
        "tool",
    )

    def __init__(self, tool: Tool[Ctx_contra], definition: ToolDefinition | None = None) -> None:
        self.tool: Tool[Ctx_contra] = tool
        self._source: ToolDefinition = tool.definition
        self.definition: ToolDefinition = definition or self._source
        self.name: str = self.definition.name
        parser: ArgumentsParser | None = getattr(tool, "arguments", None)
        self.arguments: ArgumentsParser = parser or raw_arguments(
            self.definition.parameters, subject=self.name, fills_defaults=True
        )
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
        self.takes_secrets: bool | None = None  # unknown until `may_take_secrets` is read
        self._set_options(getattr(tool, "options", _DEFAULT_OPTIONS))
        with _registering:
            _registered.add(self)
        counter: UsageCounter | None = getattr(tool, "counter", None)
        self.counter: UsageCounter = counter or UsageCounter(self.options.max_usage_count, self.options.usage_scope)

    @property
    def tags(self) -> frozenset[str]:
        """The tags of the tool."""
        return self.options.tags

    @property
    def may_take_secrets(self) -> bool:
        """True where an argument may be a secret, by its schema or by a name."""
        if self.takes_secrets is None:
            self.takes_secrets = self.arguments.nodes.may_take_secrets
        return self.takes_secrets

    @property
    def identity(self) -> tuple[int, int, int]:
        """Numbers that identify the tool while it lives; equal for what was bound twice from one method."""
        counter = getattr(self.tool, "counter", None)  # which tools bound from one method share, and those of a server
        shared = counter if isinstance(counter, UsageCounter) else self.tool
        return id(shared), id(getattr(self.tool, "function", self.tool)), id(getattr(self.tool, "receiver", None))

    def renew(self) -> None:
        """Take over the tool's present definition and parser, under the same name."""
        source = self.tool.definition
        if source is not self._source:
            fresh = Registration(self.tool, replace(source, name=self.name))
            self._source, self.definition = source, self.options.add_hints(fresh.definition)
            self.takes_secrets = None
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

    def shown_as(self, definition: ToolDefinition) -> Registration[Ctx_contra]:
        """Return the same tool under its name, shown as another definition, which its arguments must fit too."""
        other = self._make_changed(replace(definition, name=self.name), self.options, self.counter)
        other.can_change = False
        if definition.parameters != self.definition.parameters:
            other.arguments = _NarrowedArguments(
                raw_arguments(definition.parameters, subject=self.name), self.arguments
            )
            other.parse_json = other.arguments.parse_json
        return other

    def is_same_tool(self, other: Registration[Any]) -> bool:
        """Return whether both are one tool, whatever their names: the same object, or a method of the same object."""
        return self.tool is other.tool or _find_function(self.tool) == _find_function(other.tool)

    def configured(self, options: ToolOptions) -> Registration[Ctx_contra]:
        """Return the same tool with other options; with another usage limit it has a counter of its own."""
        if options.timeout is not None and getattr(self.execute, "holds_event_loop", False):
            refuse_timeout(f"tool '{self.name}'")
        new, old = options, self.options
        is_same_limit = (new.max_usage_count, new.usage_scope) == (old.max_usage_count, old.usage_scope)
        counter = self.counter if is_same_limit else UsageCounter(new.max_usage_count, new.usage_scope)
        definition = self.definition if new.hints == old.hints else replace(self.definition, hints=None)
        return self._make_changed(definition, options, counter)

    def _make_changed(
        self, definition: ToolDefinition, options: ToolOptions, counter: UsageCounter
    ) -> Registration[Ctx_contra]:
        other = Registration(self.tool, definition)
        other.arguments, other.parse_json = self.arguments, self.parse_json
        other.counter, other.former_names = counter, self.former_names
        other._set_options(options)
        return other

    def _set_options(self, options: ToolOptions) -> None:
        if options.destinations:
            self._check_destinations(options.destinations)
        self.options: ToolOptions = options
        self.definition = options.add_hints(self.definition)
        if options.result_as_answer:
            self.execute = getattr(self.tool, "answering_runner", self.execute)
        # Whether `execute` never looks at the context that it is given.
        self.is_bare: bool = getattr(self.execute, "is_bare", False)
        self.max_output_chars: int | None = options.max_output_chars
        guards = (options.retry, options.concurrency, options.lock, options.max_usage_count)
        # Whether a run needs more than awaiting the tool for a time.
        self.is_guarded: bool = any(guard is not None for guard in guards)

    def _check_destinations(self, paths: Sequence[str]) -> None:
        """Refuse destinations that no parameter has: nothing would be checked."""
        schema = self.arguments.schema
        if schema.get("additionalProperties") is not False:
            return
        known = {*schema.get("properties", ()), *getattr(self.arguments, "aliases", ())}
        for path in paths:
            name = path.partition(".")[0]
            if path not in known and name not in known:
                hint = ask_whether_meant(find_similar(name, known)) or f"it has {', '.join(sorted(known))}"
                raise ConfigurationError(
                    f"the destinations of tool '{self.name}' name '{name}', which is no parameter of it: {hint}"
                )


class _NarrowedArguments:
    """Checks arguments against the schema that a model sees, and reads them as the tool takes them."""

    def __init__(self, shown: ArgumentsParser, own: ArgumentsParser) -> None:
        self._shown = shown
        self._own = own
        self.schema: Mapping[str, Any] = shown.schema
        self.nodes: Nodes = shown.nodes
        self.is_strict: bool = own.is_strict
        self.dump_json = own.dump_json
        self.is_strict_at = own.is_strict_at

    def parse_json(self, text: str) -> dict[str, Any]:
        """Return the arguments that fit both."""
        self._shown.parse_json(text)
        return self._own.parse_json(text)

    def parse(self, value: object, *, repair: bool = True) -> dict[str, Any]:
        """Do the same with JSON that is decoded already, or with values that are validated."""
        from toolkit.plain_values import read_plain  # noqa: PLC0415 - it takes milliseconds

        self._shown.parse(read_plain(value).value, repair=repair)
        return self._own.parse(value, repair=repair)


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
