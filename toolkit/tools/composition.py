"""How a tool's function is called: composed once, when the tool is finished, so that no call asks again.

Sync or async, with a context or not, a generator, on which thread or in which process: each has its own short function.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, cast, get_args, get_origin

import anyio

from toolkit.calls.context import ToolContext
from toolkit.calls.options import ToolOptions
from toolkit.chat.output import ToolOutput, to_output
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolFailedError
from toolkit.runtime.workers import run_in_worker
from toolkit.schema import FunctionSchema

__all__ = ["ComposedFunction", "Execute", "compose_function", "describe_function"]

_Arguments: TypeAlias = dict[str, Any]
Execute: TypeAlias = Callable[[_Arguments, ToolContext[Any]], Awaitable[ToolOutput]]
_CallFunction: TypeAlias = Callable[[_Arguments, ToolContext[Any]], Any]
_Convert: TypeAlias = Callable[[Any], ToolOutput]

_THREAD = "a worker thread"


@dataclass(slots=True)
class ComposedFunction:
    """A function that has been read, and what calls it.

    Args:
        schema: The schema that was read.
        call: Calls the function and returns what it returns.
        execute: Runs it to its end and returns an output for the model.
        execute_raw: Runs it to its end and returns an output that holds the value as it is, in `details`.
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
        options: How it is run.
        original: The decorated function; another process imports that.
        has_context: True where it takes a context first.
        is_raw: True where its schema was given, so that it takes its arguments as they come.
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
    """Return the words for a function in an error message."""
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
    """Return a function that calls the tool's, with its context in front: None takes none."""
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


def _name_needed_context(schema: FunctionSchema) -> str | None:
    """Return the type of the context that a function can't do without; None where None will do, or is unknown."""
    hint = schema.context_hint
    if isinstance(hint, str):  # of a name that is there for checkers only
        hint = hint.partition("[")[2].removesuffix("]").strip() if _wants_envelope(schema) else hint
        return hint if hint.replace(".", "").isidentifier() and hint not in ("object", "None", "Any") else None
    if _wants_envelope(schema):
        hint = next(iter(get_args(hint)), object)
    return getattr(get_origin(hint) or hint, "__qualname__", str(hint)) if _refuses_none(hint) else None


def _refuses_none(hint: Any) -> bool:
    """Return whether None is surely no value of a type."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return all(_refuses_none(choice) for choice in get_args(hint))
    return isinstance(kind, type) and kind not in (object, NoneType)


def _compose_state(function: Callable[..., Any], schema: FunctionSchema) -> Callable[[ToolContext[Any]], Any]:
    """Return a function that gives the application's object, and raises where a needed one was left out."""
    needed = _name_needed_context(schema)

    def state(context: ToolContext[Any]) -> Any:
        if needed is not None and context.state is None:
            raise ConfigurationError(f"{describe_function(function)} needs a context of type {needed}: pass it as ctx")
        return context.state

    return state


def _hold_value(value: Any) -> ToolOutput:
    """Return an output that holds a value as it is, for the application itself."""
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
    """Return a function that runs the tool's to its end, by its kind, and makes an output of the value."""
    if options.isolation is not None:
        return _compose_isolated(original, schema, is_raw=is_raw, convert=convert)
    match schema.kind:
        case "coroutine":
            takes_names = schema.bind is None and not has_context
            return _compose_plain(function, convert) if takes_names else _compose_awaited(call, convert)
        case "async_generator":
            return _compose_async_streamed(call)
        case "generator":
            return (_compose_threaded if options.run_in_thread else _compose_inline)(_compose_drained(call), convert)
        case _:
            return (_compose_threaded if options.run_in_thread else _compose_inline)(call, convert)


def _compose_plain(function: Callable[..., Any], convert: _Convert) -> Execute:
    async def execute(arguments: _Arguments, _: ToolContext[Any]) -> ToolOutput:
        return convert(await function(**arguments))

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
            waiting=partial(context.waiting_for, _THREAD),
        )
        return convert(await value if inspect.isawaitable(value) else value)

    return execute


def _compose_inline(call: _CallFunction, convert: _Convert) -> Execute:
    async def execute(arguments: _Arguments, context: ToolContext[Any]) -> ToolOutput:
        value = call(arguments, context)
        return convert(await value if inspect.isawaitable(value) else value)

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
                context.report_update(last)
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
    """Return the value of a function in another process, read from its JSON by the type of its return hint."""
    if output.is_error:
        raise ToolFailedError(output.text)
    if hint is str or hint is ToolOutput or not isinstance(output.content, str):
        return output if hint is ToolOutput else output.content
    if hint is NoneType or output.is_nothing:
        return None
    from pydantic import TypeAdapter  # noqa: PLC0415 - as slow to import as it is rarely needed here

    try:
        return TypeAdapter(hint or Any).validate_json(output.content)
    except ValueError:
        return output.content
