"""A function as a tool: its definition for the model, its execution, and direct calls of the function.

How the function is called (sync or async, with a context or not, on which thread) is decided once, when the tool is
composed, and not in each call.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from types import MethodType, NoneType, UnionType
from typing import (
    Any,
    Concatenate,
    Generic,
    Protocol,
    Self,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import anyio
from typing_extensions import ParamSpec, TypeVar

from toolkit.calls.context import ToolContext
from toolkit.calls.registration import Ctx_contra, Registration, ToolOptions, UsageCounter, refuse_timeout
from toolkit.calls.run import run_directly
from toolkit.chat import Freeform, ToolDefinition
from toolkit.chat.output import ToolOutput, is_content, is_nothing, to_output
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, InvalidArgumentsError, SchemaError, ToolFailedError
from toolkit.redaction import without_secret_values
from toolkit.runtime.backend import is_in_event_loop, run_in_own_context
from toolkit.runtime.workers import run_in_worker
from toolkit.schema import ArgumentsParser, FunctionSchema, function_schema
from toolkit.settings import check_setting
from toolkit.tool_names import check_name

P = ParamSpec("P", default=...)
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True, default=Any)
Other_contra = TypeVar("Other_contra", contravariant=True)
Receiver = TypeVar("Receiver")
Receiver_contra = TypeVar("Receiver_contra", contravariant=True)
V = TypeVar("V")

_NOT_BOUND: Any = object()


class _Method(Protocol[Receiver_contra, Q, R_co]):
    """The call of a method without a context through its class."""

    def __call__(self, receiver: Receiver_contra, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...

    def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> Awaitable[ToolOutput]: ...


class _ClassMethod(Protocol[Receiver_contra, Q, R_co]):
    """The call of a class method, given its class."""

    def __call__(self, receiver: type[Receiver_contra], /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...

    def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> Awaitable[ToolOutput]: ...


class _MethodWithContext(Protocol[Receiver_contra, Other_contra, Q, R_co]):
    """The call of a method with a context through its class: mypy infers types of a call, not of two prefixes."""

    def __call__(
        self, receiver: Receiver_contra, context: Other_contra, /, *args: Q.args, **kwargs: Q.kwargs
    ) -> R_co: ...


class FunctionTool(Generic[Ctx_contra, P, R_co]):
    """A function that a model can call, and that is still callable itself.

    Created by `tool`, `tool_with_ctx` and `tool_from_function`. It has the function's ``__name__``, ``__doc__`` and
    signature (``__wrapped__``). The tool of a method is composed at its first use, when the class is complete; taken
    from an instance it is bound to it.

    Attributes:
        function: The decorated function.
        options: The options of its execution.
        counter: The number of its uses, shared by tools that are bound from one method.
        can_change: True if `renew` may be called, which registries check at each use.
    """

    __name__: str
    __wrapped__: Callable[P, R_co]

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        context: bool = False,
        name: str | None = None,
        description: str | None = None,
        options: ToolOptions,
        localns: Mapping[str, Any] | None = None,
        receiver: object = _NOT_BOUND,
        counter: UsageCounter | None = None,
        schema: FunctionSchema | None = None,
    ) -> None:
        self.function = function
        self.options = options
        self.counter: UsageCounter = counter or UsageCounter(options.max_usage_count, options.usage_scope)
        self._takes_context = context
        self._name = name
        self._description = description
        self._localns = localns
        self._receiver = receiver
        self._is_method = receiver is not _NOT_BOUND
        self._schema = schema
        self.inner_registries: tuple[Any, ...] = ()
        self.can_change: bool = False
        self._finished: ComposedFunction | None = None
        self._definition: ToolDefinition | None = None
        self._direct: Registration[Any] | None = None
        wrapped: Any = function if receiver is _NOT_BOUND else MethodType(function, receiver)
        update_wrapper(cast("Any", self), wrapped)
        if name is not None:
            check_name(name)
        if options.isolation is not None:
            from toolkit.runtime.isolation import check_isolated  # noqa: PLC0415 - it takes subprocesses and sockets

            check_isolated(function)
            if context:
                raise ConfigurationError(
                    f"{describe_function(function)}: isolation='process' and a context don't go together: "
                    "the context lives in this process. Leave one of them out."
                )
        if schema is not None or (receiver is _NOT_BOUND and not _is_in_class_body(function)):
            self._compose_now()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function as written."""
        if self._receiver is not _NOT_BOUND:
            return cast("R_co", cast("Any", self.function)(self._receiver, *args, **kwargs))
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name or self.__name__}>"

    def __set_name__(self, owner: type, name: str) -> None:
        # Called for plain methods only; static and class methods hide the tool from the class.
        self._is_method = True

    # The first parameter shows whether a tool is taken from its class, an instance, or neither.
    @overload
    def __get__(
        self: _ClassMethod[Receiver, Q, R_co], instance: None, owner: type[Receiver]
    ) -> FunctionTool[object, Q, R_co]: ...
    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: _ClassMethod[Receiver, Q, R_co], instance: Receiver, owner: type | None = None
    ) -> FunctionTool[object, Q, R_co]: ...
    @overload
    def __get__(
        self: _Method[Receiver, Q, R_co], instance: Receiver, owner: type | None = None
    ) -> FunctionTool[object, Q, R_co]: ...
    @overload
    def __get__(
        self: _MethodWithContext[Receiver, Other_contra, Q, R_co], instance: Receiver, owner: type | None = None
    ) -> FunctionTool[Other_contra, Concatenate[Other_contra, Q], R_co]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Self: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        function: Any = self.function
        if isinstance(function, staticmethod):
            return self._bound_to(_NOT_BOUND, function.__func__)
        if isinstance(function, classmethod):
            return self._bound_to(owner or type(instance), cast("Any", function).__func__)
        return self if instance is None else self._bound_to(instance, function)

    def _bound_to(self, receiver: object, function: Callable[..., Any]) -> FunctionTool[Any, ..., Any]:
        tool = FunctionTool[Any, ..., Any](
            function,
            context=self._takes_context,
            name=self._name,
            description=self._description,
            options=self.options,
            localns=self._localns,
            receiver=receiver,
            counter=self.counter,
        )
        if receiver is _NOT_BOUND:
            tool._compose_now()
        return tool

    @property
    def takes_context(self) -> bool:
        """True if the function takes the application's context, or its envelope."""
        return self._takes_context

    @property
    def receiver(self) -> object:
        """The object that a method is bound to; None for functions and unbound methods."""
        return None if self._receiver is _NOT_BOUND else self._receiver

    @property
    def definition(self) -> ToolDefinition:
        """The definition for the model, created at its first use, since the schema of the output takes time."""
        if self._definition is None:
            schema = self._composed_function.schema
            definition = ToolDefinition(
                name=schema.name,
                description=schema.description,
                parameters=without_secret_values(schema.parameters),
                output_schema=None if is_content(schema.return_hint) else schema.output_schema,
                strict=self.options.strict,
                freeform=_find_freeform(schema, self.options.freeform),
            )
            self._definition = self.options.add_hints(definition)
        return self._definition

    @property
    def schema(self) -> FunctionSchema:
        """The schema of the function."""
        return self._composed_function.schema

    @property
    def arguments(self) -> ArgumentsParser:
        """The parser of the arguments."""
        return self._composed_function.schema.arguments

    @property
    def runner(self) -> Execute:
        """The function that `execute` calls."""
        return self._composed_function.execute

    @property
    def answering_runner(self) -> Execute:
        """The same for a tool whose output ends a run, which also stores the object that the function returned."""
        return _compose_answering(self._composed_function)

    def execute(self, arguments: dict[str, Any], context: ToolContext[Ctx_contra]) -> Awaitable[ToolOutput]:
        """Run the function with validated arguments, and return its value as a `ToolOutput`."""
        return self._composed_function.execute(arguments, context)

    def renew(self, other: FunctionTool[Ctx_contra, ..., Any]) -> None:
        """Take the definition and function of another tool of the same name, in every registry.

        For sources that may redefine a tool, which set `can_change` before it is registered. Running calls are not
        affected.
        """
        self.function = cast("Any", other.function)
        self._schema, self._finished, self._definition = other.schema, other._composed_function, other.definition

    @property
    def max_usage_count(self) -> int | None:
        """The most calls that may run; None for no limit."""
        return self.counter.maximum

    @property
    def current_usage_count(self) -> int:
        """The number of calls that have been started, inside and outside of runs.

        A loop does not count the calls of a tool without a limit.
        """
        return self.counter.current

    @property
    def has_reached_max_usage_count(self) -> bool:
        """True if no further call outside of a run is allowed."""
        return self.counter.is_exhausted

    def reset_usage_count(self) -> None:
        """Set the number of calls to 0."""
        self.counter.reset()

    def parse_args(self, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated arguments of the function, from JSON text or from decoded JSON.

        Raises:
            InvalidArgumentsError: They don't fit; the message lists every problem.
            ConfigurationError: They are neither.
        """
        if isinstance(arguments, str):
            return self.arguments.parse_json(arguments)
        check_setting(f"what {describe_function(self.function)} is called with", arguments, Mapping, str)
        return self.arguments.parse(dict(arguments))

    @overload
    def invoke(
        self: FunctionTool[Other_contra, P, Awaitable[V]],
        arguments: str | Mapping[str, Any],
        ctx: Other_contra | None = None,
    ) -> V: ...
    @overload
    def invoke(self, arguments: str | Mapping[str, Any], ctx: Ctx_contra | None = None) -> R_co: ...
    def invoke(self, arguments: str | Mapping[str, Any], ctx: Any = None) -> Any:
        """Validate `arguments`, run the function and return its value; the call counts towards the limit.

        The tool's timeout, retry, lock, concurrency and isolation apply. Approval, rules and caches do not, because the
        application itself calls. Exceptions of the function are raised. A generator is returned before it has started,
        without any limits.

        An async function, and one with any of these limits, runs in its own event loop: in async code, use `ainvoke`.

        Raises:
            ConfigurationError: An event loop is running here already, and the tool needs its own.
            InvalidArgumentsError: The arguments don't fit.
            ToolTimeoutError: It took longer than its `timeout`.
            ToolUsageLimitExceededError: The tool has been used as often as it may be.
        """
        kind = self._composed_function.schema.kind
        if kind == "coroutine" or (kind == "sync" and self._has_limits):
            if is_in_event_loop():
                why = "is async" if kind == "coroutine" else "has limits that hold in an event loop"
                raise ConfigurationError(f"{describe_function(self.function)} {why}: in async code, await ainvoke(...)")

            async def run() -> Any:
                return await self._run_directly(arguments, ctx)

            return anyio.run(run)
        value: Any = self._call_function(arguments, ctx)
        if inspect.isawaitable(value):

            async def wait() -> Any:
                return await value

            return anyio.run(wait)
        return value

    @overload
    async def ainvoke(
        self: FunctionTool[Other_contra, P, Awaitable[V]],
        arguments: str | Mapping[str, Any],
        ctx: Other_contra | None = None,
    ) -> V: ...
    @overload
    async def ainvoke(self, arguments: str | Mapping[str, Any], ctx: Ctx_contra | None = None) -> R_co: ...
    async def ainvoke(self, arguments: str | Mapping[str, Any], ctx: Any = None) -> Any:
        """Do what `invoke` does, in this event loop; a function that is not async runs in a worker thread."""
        if self._composed_function.schema.kind in ("generator", "async_generator"):
            return self._call_function(arguments, ctx)
        return await self._run_directly(arguments, ctx)

    @property
    def _has_limits(self) -> bool:
        options = self.options
        limits = (options.timeout, options.retry, options.lock, options.concurrency, options.isolation)
        return any(limit is not None for limit in limits)

    async def _run_directly(self, arguments: str | Mapping[str, Any], ctx: object) -> Any:
        parsed = self.parse_args(arguments)
        if self._direct is None:
            # Its locks and limits are those of the tool, which registries share.
            direct = self._direct = Registration[Any](self)
            direct.execute = self._composed_function.execute_raw
        context, outputs = ToolContext(ctx, tool_name=self._direct.name), list[ToolOutput]()
        await run_in_own_context(run_directly, self._direct, parsed, context, outputs)
        return outputs[0].details

    def _call_function(self, arguments: str | Mapping[str, Any], ctx: object) -> Any:
        parsed = self.parse_args(arguments)
        self.counter.require(self.definition.name)
        context = ToolContext(ctx, tool_name=self.definition.name)
        return self._composed_function.call(parsed, context)

    @property
    def _composed_function(self) -> ComposedFunction:
        return self._finished or self._compose_now()

    def _compose_now(self) -> ComposedFunction:
        function: Any = self.function
        is_bound = self._receiver is not _NOT_BOUND
        _check_taken(function, is_bound=is_bound, is_method=self._is_method, is_read=self._schema is not None)
        schema = self._schema or function_schema(
            function,
            context=self._takes_context,
            receiver=is_bound,
            name=self._name,
            description=self._description,
            strict=bool(self.options.strict),
            localns=self._localns,
            owner=self._receiver if is_bound else None,
        )
        check_name(schema.name)
        for problem in schema.docstring_errors:
            _warn_of_problem(function, problem)
        bound = MethodType(function, self._receiver) if is_bound else function
        self._finished = compose_function(
            bound,
            schema,
            self.options,
            original=function,
            has_context=self._takes_context,
            is_raw=self._schema is not None,
        )
        self._localns = None
        _find_freeform(schema, self.options.freeform)
        for example in self.options.examples:
            try:
                schema.arguments.parse(dict(example))
            except InvalidArgumentsError as error:
                raise SchemaError(
                    describe_function(function), f"the example {dict(example)} doesn't fit: {error}"
                ) from error
        return self._finished


def _find_freeform(schema: FunctionSchema, freeform: bool | Freeform) -> Freeform | None:
    """Return the freeform settings with the name of the tool's only parameter; None for tools with JSON arguments.

    Raises:
        SchemaError: The tool has other parameters.
    """
    if not freeform:
        return None
    properties: Mapping[str, Any] = schema.parameters.get("properties", {})
    name = next(iter(properties), "")
    if len(properties) != 1 or properties[name].get("type") != "string":
        raise SchemaError(f"tool '{schema.name}'", "a freeform tool takes one parameter, of type str")
    return replace(Freeform() if freeform is True else freeform, parameter=name)


def _warn_of_problem(function: Any, problem: str) -> None:
    """Warn with the place of the function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = ("<unknown>", 0) if code is None else (code.co_filename, code.co_firstlineno)
    warnings.warn_explicit(f"{describe_function(function)}: {problem}", UserWarning, *place)


def _check_taken(function: Any, *, is_bound: bool, is_method: bool, is_read: bool) -> None:
    """Refuse a function of a class that was not taken from an instance or the class."""
    if isinstance(function, (staticmethod, classmethod)):
        problem = "it is decorated inside a class and has to be taken from the class or an instance"
    elif is_method and not is_bound:
        problem = "it is a method: take it from an instance, or use tools_of(instance)"
    elif not is_bound and not is_read and _is_class_method(function):
        problem = (
            "it is a class method, and @classmethod over @tool hands on no class from Python 3.13 on: "
            "put @tool over @classmethod, or use tools_of(instance)"
        )
    else:
        return
    raise SchemaError(describe_function(function), problem)


def _is_in_class_body(function: Any) -> bool:
    """Return whether a function is defined in a class."""
    if isinstance(function, (staticmethod, classmethod)):
        return True
    if not inspect.isfunction(function):
        return False
    outer, _, _ = function.__qualname__.rpartition(".")
    return outer != "" and not outer.endswith("<locals>")


def _is_class_method(function: Any) -> bool:
    """Return whether the first parameter of a function in a class body is an untyped ``cls``."""
    if not _is_in_class_body(function):
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.name == "cls" and first.annotation is inspect.Parameter.empty


_Arguments: TypeAlias = dict[str, Any]
Execute: TypeAlias = Callable[[_Arguments, ToolContext[Any]], Awaitable[ToolOutput]]
_CallFunction: TypeAlias = Callable[[_Arguments, ToolContext[Any]], Any]
_Convert: TypeAlias = Callable[[Any], ToolOutput]

_THREAD = "a worker thread"


@dataclass(slots=True)
class ComposedFunction:
    """A function with its schema and the functions that call it.

    Args:
        schema: The schema of the function.
        call: Calls the function and returns its value.
        execute: Runs it to its end and returns an output for the model.
        execute_raw: Runs it to its end and returns an output with the unchanged value in `details`.
    """

    schema: FunctionSchema
    call: _CallFunction
    execute: Execute
    execute_raw: Execute


def compose_function(
    function: Callable[..., Any],
    schema: FunctionSchema,
    options: ToolOptions,
    *,
    original: Any,
    has_context: bool,
    is_raw: bool,
) -> ComposedFunction:
    """Return the functions that call a tool's function.

    Args:
        function: The function, bound to its receiver if it is a method.
        schema: The schema that was read from it.
        options: The options of its execution.
        original: The decorated function, which another process imports.
        has_context: True if its first parameter is a context.
        is_raw: True if its schema was given, so that its arguments are one dictionary.
    """
    takes_envelope = _wants_envelope(schema) if has_context else None
    call = _compose_call(function, schema, takes_envelope=takes_envelope)
    compose = partial(_compose_execute, function, call, schema, options, original)
    execute = compose(has_context=has_context, is_raw=is_raw)
    vars(execute)["needs_context"] = _name_needed_context(schema) if has_context else None
    vars(execute)["may_report"] = bool(takes_envelope) or schema.kind in ("generator", "async_generator")
    raw = compose(has_context=has_context, is_raw=is_raw, convert=_hold_value)
    return ComposedFunction(schema, call, execute, raw)


def describe_function(function: Any) -> str:
    """Return the name of a function for an error message."""
    while isinstance(function, partial):
        function = cast("Any", function.func)
    inner = getattr(function, "__func__", function)
    return f"function '{getattr(inner, '__qualname__', type(inner).__qualname__)}'"


def _wants_envelope(schema: FunctionSchema) -> bool:
    hint = schema.context_hint
    if isinstance(hint, str):  # of a type that exists for type checkers only
        return hint.partition("[")[0].strip().rpartition(".")[2] == ToolContext.__name__
    return (get_origin(hint) or hint) is ToolContext


def _compose_call(
    function: Callable[..., Any], schema: FunctionSchema, *, takes_envelope: bool | None
) -> _CallFunction:
    """Return a function that calls the tool's function, with a context unless `takes_envelope` is None."""
    bind = schema.bind
    first = _give_envelope if takes_envelope else _compose_state(function, schema)
    if bind is None:
        if takes_envelope is None:
            return lambda arguments, _: function(**arguments)
        return lambda arguments, context: function(first(context), **arguments)

    def call(arguments: _Arguments, context: ToolContext[Any]) -> Any:
        positional, named = bind(arguments)
        if takes_envelope is None:
            return function(*positional, **named)
        return function(first(context), *positional, **named)

    return call


def _give_envelope(context: ToolContext[Any]) -> ToolContext[Any]:
    return context


def find_thread_bound(tool: FunctionTool[Any, ..., Any]) -> str:
    """Return the type of a thread-bound object in the context of a tool that runs in a thread, or an empty text.

    The context and its annotated attributes are searched.
    """
    schema, options = tool.schema, tool.options
    if schema.kind not in ("sync", "generator") or not options.run_in_thread or isinstance(schema.context_hint, str):
        return ""
    hint = next(iter(get_args(schema.context_hint)), None) if _wants_envelope(schema) else schema.context_hint
    try:
        hints = [hint, *get_type_hints(hint).values()] if isinstance(hint, type) else [hint]
    except (NameError, TypeError, AttributeError):  # names that only exist for type checkers
        hints = [hint]
    kinds = [kind for each in hints for kind in (each, *get_args(each)) if isinstance(kind, type)]
    bound = [base for kind in kinds for base in kind.__mro__ if base.__module__ == "sqlite3"]
    return f"sqlite3.{bound[0].__name__}" if bound else ""


def _name_needed_context(schema: FunctionSchema) -> str | None:
    """Return the type of the context that a function needs; None if it accepts None, or the type is unknown."""
    hint = schema.context_hint
    if isinstance(hint, str):  # of a name that is there for checkers only
        hint = hint.partition("[")[2].removesuffix("]").strip() if _wants_envelope(schema) else hint
        return hint if hint.replace(".", "").isidentifier() and hint not in ("object", "None", "Any") else None
    if _wants_envelope(schema):
        hint = next(iter(get_args(hint)), object)
    return getattr(get_origin(hint) or hint, "__qualname__", str(hint)) if _refuses_none(hint) else None


def _refuses_none(hint: Any) -> bool:
    """Return whether a type surely excludes None."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return all(_refuses_none(choice) for choice in get_args(hint))
    return isinstance(kind, type) and kind not in (object, NoneType)


def _compose_state(function: Callable[..., Any], schema: FunctionSchema) -> Callable[[ToolContext[Any]], Any]:
    """Return a function that returns the application's object, and raises if it is missing."""
    needed = _name_needed_context(schema)

    def state(context: ToolContext[Any]) -> Any:
        if needed is not None and context.state is None:
            raise ConfigurationError(f"{describe_function(function)} needs a context of type {needed}: pass it as ctx")
        return context.state

    return state


def _hold_value(value: Any) -> ToolOutput:
    """Return an output with an unchanged value, for the application."""
    if isinstance(value, ToolOutput):
        return ToolOutput(value.content, details=value, is_error=value.is_error)
    return ToolOutput("", details=value)


def _compose_execute(
    function: Callable[..., Any],
    call: _CallFunction,
    schema: FunctionSchema,
    options: ToolOptions,
    original: Callable[..., Any],
    *,
    has_context: bool,
    is_raw: bool,
    convert: _Convert = to_output,
) -> Execute:
    """Return a function that runs the tool's function to its end, by its kind, and returns an output."""
    if options.isolation is not None:
        return _compose_isolated(original, schema, is_raw=is_raw, convert=convert)
    match schema.kind:
        case "coroutine":
            takes_names = schema.bind is None and not has_context
            return _compose_plain(function, convert) if takes_names else _compose_awaited(call, convert)
        case "async_generator":
            return _compose_async_streamed(call)
        case kind:
            if kind == "generator":
                call = _compose_drained(call)
            if options.run_in_thread:
                return _compose_threaded(call, convert)
            if options.timeout is not None:
                refuse_timeout(describe_function(function))
            return _compose_inline(call, convert)


def _compose_answering(composed: ComposedFunction) -> Execute:
    """Return a function that runs the tool's function to its end, and stores the value in the run."""
    if composed.schema.kind in ("generator", "async_generator"):
        return composed.execute  # its value is read from its output

    async def execute(arguments: _Arguments, context: ToolContext[Any]) -> ToolOutput:
        value = (await composed.execute_raw(arguments, context)).details
        output = to_output(value)
        if context.memory is not None and not output.is_error:
            context.memory.answers[context.call_id] = value
        return output

    vars(execute).update(vars(composed.execute), is_bare=False)
    return execute


def _compose_plain(function: Callable[..., Any], convert: _Convert) -> Execute:
    async def execute(arguments: _Arguments, _: ToolContext[Any]) -> ToolOutput:
        return convert(await function(**arguments))

    vars(execute)["is_bare"] = True
    return execute


def _compose_awaited(call: _CallFunction, convert: _Convert) -> Execute:
    async def execute(arguments: _Arguments, context: ToolContext[Any]) -> ToolOutput:
        return convert(await call(arguments, context))

    return execute


def _compose_threaded(call: _CallFunction, convert: _Convert) -> Execute:
    def begin(arguments: _Arguments, context: ToolContext[Any]) -> Any:
        context.begin()
        return call(arguments, context)

    async def execute(arguments: _Arguments, context: ToolContext[Any]) -> ToolOutput:
        context.waits_for = _THREAD
        value = await run_in_worker(
            partial(begin, arguments, context),
            on_abandoned=context.leave_running,
            workers=context.sync_workers,
            owner=call,
            waiting=partial(context.waiting_for, _THREAD),
        )
        return convert(await value if inspect.isawaitable(value) else value)

    return execute


def _compose_inline(call: _CallFunction, convert: _Convert) -> Execute:
    async def execute(arguments: _Arguments, context: ToolContext[Any]) -> ToolOutput:
        value = call(arguments, context)
        return convert(await value if inspect.isawaitable(value) else value)

    vars(execute)["holds_event_loop"] = True
    return execute


def _compose_drained(call: _CallFunction) -> _CallFunction:
    """Run a generator to its end: each value is an update, the last one the output, a return value wins."""

    def drain(arguments: _Arguments, context: ToolContext[Any]) -> Any:
        generator = call(arguments, context)
        last: Any = None
        try:
            while not context.cancelled:
                last = to_output(next(generator))
                context.report_update(last)
        except StopIteration as end:
            return last if end.value is None else end.value
        finally:
            generator.close()
        return last

    return drain


def _compose_async_streamed(call: _CallFunction) -> Execute:
    async def execute(arguments: _Arguments, context: ToolContext[Any]) -> ToolOutput:
        generator = call(arguments, context)
        last: ToolOutput | None = None
        try:
            async for value in generator:
                last = to_output(value)
                await context.deliver_update(last)
        finally:
            with anyio.CancelScope(shield=True):
                await generator.aclose()
        return to_output(None) if last is None else last

    return execute


def _compose_isolated(
    function: Callable[..., Any], schema: FunctionSchema, *, is_raw: bool, convert: _Convert
) -> Execute:
    from toolkit.runtime.isolation import run_isolated  # noqa: PLC0415

    async def execute(arguments: _Arguments, context: ToolContext[Any]) -> ToolOutput:
        text = schema.arguments.dump_json(arguments, reveal_secrets=True)
        output = await run_isolated(function, text, is_raw=is_raw, waiting=partial(context.waiting_for, "a process"))
        return output if convert is to_output else convert(_read_output(output, schema.return_hint))

    return execute


def _read_output(output: ToolOutput, hint: Any) -> Any:
    """Return the value of a function in another process, parsed by the type of its return hint."""
    if output.is_error:
        raise ToolFailedError(output.text)
    return output if hint is ToolOutput else read_value(output.content, hint)


def read_value(content: str | Sequence[Any], hint: Any) -> Any:
    """Return the value of a function, parsed from its output by the type of its return hint.

    Text of another type is returned unchanged.
    """
    if hint is ToolOutput:
        return to_output(content)
    if hint is str or not isinstance(content, str):
        return content
    if hint is NoneType or is_nothing(content):
        return None
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow to import, and rarely needed

    try:
        return TypeAdapter(Any if hint in (None, inspect.Parameter.empty) else hint).validate_json(content)
    except (ValueError, TypeError):  # of another type
        return content
