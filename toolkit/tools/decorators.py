"""Creates tools: `tool`, `tool_with_ctx`, `tool_from_function`, `tool_from_schema` and `tools_of`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, cast, overload

from typing_extensions import TypeVar, Unpack

from toolkit.calls.context import ToolContext
from toolkit.calls.registration import ToolOptionKeywords, made_options
from toolkit.errors import ConfigurationError, SchemaError
from toolkit.schema import FunctionSchema, find_local_names, kind_of, raw_arguments
from toolkit.settings import check_setting, describe_value
from toolkit.tool_names import check_name
from toolkit.tools.function_tool import FunctionTool

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class _ToolDecorator(Protocol):
    def __call__(self, function: Callable[P, R], /) -> FunctionTool[object, P, R]: ...


class _ToolWithCtxDecorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[C], P], R], /
    ) -> FunctionTool[C, Concatenate[ToolContext[C], P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[C, P], R], /) -> FunctionTool[C, Concatenate[C, P], R]: ...


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[object, P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptionKeywords]
) -> _ToolDecorator: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptionKeywords],
) -> Any:
    """Make a function a tool; the model reads its hints and its docstring.

    Works with and without options; the function remains callable as before.

    ::

        @tool
        def add(a: int, b: int = 0) -> int:
            '''Add two numbers.'''
            return a + b

        add(1, 2)                    # 3
        add.invoke('{"a": 1}')       # 1
        add.definition.parameters    # the JSON Schema

    Args:
        function: Any callable; omitted when options are given.
        name: The name that the model sees; None takes the function's name.
        description: The description that the model sees; None takes the docstring without its sections.
        options: See `ToolOptions`.

    A docstring that describes a missing parameter causes a `UserWarning`; `ToolRegistry.lint` also reports it.

    Raises:
        SchemaError: The function can't be a tool; the message names the function, the parameter and the reason. For a
            method it is raised at the first use, when the class is complete.
        ConfigurationError: An option or a name is invalid.
    """
    return _make_tool(function, name=name, description=description, context=False, options=options)


@overload
def tool_with_ctx(
    function: Callable[Concatenate[ToolContext[C], P], R], /
) -> FunctionTool[C, Concatenate[ToolContext[C], P], R]: ...
@overload
def tool_with_ctx(function: Callable[Concatenate[C, P], R], /) -> FunctionTool[C, Concatenate[C, P], R]: ...
@overload
def tool_with_ctx(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptionKeywords]
) -> _ToolWithCtxDecorator: ...
def tool_with_ctx(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptionKeywords],
) -> Any:
    """Make a function a tool whose first parameter is the application's context, which no model sees.

    Annotated with the application's type, it receives that object; annotated ``ToolContext[App]``, it receives the
    object together with the call's id, progress reports and more. A registry accepts only tools whose context fits.

    ::

        @tool_with_ctx
        async def orders(app: App, limit: int = 10) -> list[Order]:
            '''List the user's newest orders.'''
            return await app.database.orders(app.user, limit)

    Arguments and errors are those of `tool`; a context without a type, or ``Any``, is also a `SchemaError`.
    """
    return _make_tool(function, name=name, description=description, context=True, options=options)


def tool_from_function(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptionKeywords],
) -> FunctionTool[object, P, R]:
    """Return the tool that ``tool(...)(function)`` returns, for a function that you can't decorate.

    ::

        sqrt = tool_from_function(math.sqrt, description="Compute a square root.", timeout=1)
    """
    made: FunctionTool[object, P, R] = _make_tool(
        function, name=name, description=description, context=False, options=options
    )
    return made


def tool_from_schema(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    handler: Callable[[dict[str, Any]], R],
    *,
    formats: bool = False,
    fills_defaults: bool = True,
    **options: Unpack[ToolOptionKeywords],
) -> FunctionTool[object, [dict[str, Any]], R]:
    """Return a tool for an existing JSON Schema; the handler receives the arguments as one dict.

    ::

        weather = tool_from_schema("weather", "Get the weather.", schema, lambda arguments: ask(arguments["city"]))

    Args:
        name: The name that the model sees.
        description: The description that the model sees.
        parameters: A JSON Schema of type object, of draft 2020-12 or, as its ``$schema`` says, 2019-09, 7, 6 or 4.
            Arguments are checked against it.
        handler: Sync, async or a generator, like a decorated function.
        formats: True to check ``format``, too; otherwise it is only a hint to the model. All formats of the drafts are
            known except ``idn-email`` and ``idn-hostname``.
        fills_defaults: True to fill in omitted arguments from the defaults of the schema. Pass False if the handler
            passes the arguments on to another program, which has its own defaults; an approver then sees what is sent.
        options: See `ToolOptions`.

    Raises:
        SchemaError: The schema can't be used; the message has the reason.
        ConfigurationError: An option or a name is invalid.
    """
    made: FunctionTool[object, [dict[str, Any]], R] = _from_schema(
        name,
        description,
        parameters,
        handler,
        context=False,
        formats=formats,
        fills_defaults=fills_defaults,
        options=options,
    )
    return made


def tool_from_schema_with_ctx(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    handler: Callable[[ToolContext[C], dict[str, Any]], R],
    *,
    formats: bool = False,
    fills_defaults: bool = True,
    **options: Unpack[ToolOptionKeywords],
) -> FunctionTool[C, [ToolContext[C], dict[str, Any]], R]:
    """Do what `tool_from_schema` does, for a handler that takes the `ToolContext` first.

    ::

        async def run(context: ToolContext[App], arguments: dict[str, Any]) -> str: ...

        look_up = tool_from_schema_with_ctx("look_up", "Look a word up.", schema, run)
    """
    made: FunctionTool[C, [ToolContext[C], dict[str, Any]], R] = _from_schema(
        name,
        description,
        parameters,
        handler,
        context=True,
        formats=formats,
        fills_defaults=fills_defaults,
        options=options,
    )
    return made


def _from_schema(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    handler: Callable[..., Any],
    *,
    context: bool,
    formats: bool,
    fills_defaults: bool,
    options: ToolOptionKeywords,
) -> Any:
    settings = made_options(options)
    check_name(name)
    check_setting("formats", formats, bool)
    check_setting("fills_defaults", fills_defaults, bool)
    check_setting(f"the description of tool '{name}'", description, str)
    if not callable(handler):
        raise SchemaError(f"tool '{name}'", f"its handler must be a function, not {describe_value(handler)}")
    if not isinstance(cast("object", parameters), Mapping):
        kind = type(parameters).__qualname__
        raise SchemaError(f"tool '{name}'", f"its parameters must be a JSON Schema, not {kind}")
    schema = FunctionSchema(
        name=name,
        description=description,
        parameters=dict(parameters),
        arguments=raw_arguments(parameters, subject=f"tool '{name}'", formats=formats, fills_defaults=fills_defaults),
        context_hint=ToolContext,
        return_hint=None,
        kind=kind_of(handler),
        bind=lambda arguments: ((arguments,), {}),
        warnings=(),
        make_output_schema=lambda: None,
    )
    return FunctionTool[Any, ..., Any](handler, context=context, name=name, options=settings, schema=schema)


def tools_of(instance: object) -> list[FunctionTool[Any, ..., Any]]:
    """Return the decorated methods of an object as tools bound to it.

    ::

        class Shop:
            @tool
            def count(self, item: str) -> int:
                '''Count an item.'''
                return self.stock[item]

        registry = ToolRegistry(tools_of(Shop()))

    Methods of base classes come first, in the order of definition; an overridden one keeps its position. Properties are
    not evaluated.

    Raises:
        SchemaError: A method can't be a tool.
        ConfigurationError: It is a class.
    """
    if isinstance(instance, type):
        name = instance.__qualname__
        raise ConfigurationError(f"tools_of takes an object, and {name} is a class: write tools_of({name}(...))")
    names = dict.fromkeys(name for base in reversed(type(instance).__mro__) for name in vars(base))
    tools: list[FunctionTool[Any, ..., Any]] = []
    for name in names:
        found: Any = inspect.getattr_static(type(instance), name)
        if isinstance(getattr(found, "__func__", found), FunctionTool) or isinstance(found, FunctionTool):
            bound: Any = getattr(instance, name)
            method = getattr(bound, "__func__", None)
            if isinstance(method, FunctionTool):
                # The result of a class method over a tool, from Python 3.13 on.
                bound = cast("Any", method).__get__(bound.__self__, type(bound.__self__))
            _ = bound.definition
            tools.append(bound)
    return tools


def _make_tool(
    function: Callable[..., Any] | None,
    *,
    name: str | None,
    description: str | None,
    context: bool,
    options: ToolOptionKeywords,
) -> Any:
    settings = made_options(options)
    check_setting("the name of a tool", name, str, None)
    check_setting("the description of a tool", description, str, None)
    # Hints may name local classes of the enclosing function, whose frame exists only now.
    frame = inspect.currentframe()
    caller = frame and frame.f_back and frame.f_back.f_back
    localns = dict(caller.f_locals) if caller is not None and caller.f_code.co_name != "<module>" else None

    def decorate(function: Callable[..., Any]) -> FunctionTool[Any, ..., Any]:
        # The schema of a method is made when its class is complete; the enclosing frame may be gone by then.
        names = {**(localns or {}), **find_local_names(function)}
        return FunctionTool[Any, ..., Any](
            function, context=context, name=name, description=description, options=settings, localns=names
        )

    return decorate if function is None else decorate(function)
