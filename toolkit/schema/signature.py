"""Signatures of partials, bound methods, callable objects, wrappers and functions, with resolved hints.

This module is independent of JSON: parameters are in signature order, each with its evaluated hint.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

import typing_extensions

from toolkit.dataclass import dataclass
from toolkit.errors import SchemaError

CallableKind: TypeAlias = Literal["sync", "coroutine", "generator", "async_generator"]

NOTHING = inspect.Parameter.empty

_BUILTINS = frozenset(vars(builtins))
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter; a missing `hint` or `default` is `NOTHING`."""

    name: str
    kind: Any  # one of the kinds of `inspect.Parameter`
    hint: Any
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters for a model, and facts about the callable.

    Args:
        subject: The callable, for errors.
        parameters: The parameters for a model.
        context_hint: The type of the context; its text if it exists only for type checkers, None without a context.
        return_hint: The return hint; `NOTHING` if it is missing or can't be resolved.
        kind: How the callable runs.
        hidden: The parameters that no model sees: receiver, context, and those that a partial has bound.
        is_called_by_position: True for a wrapper that can't be called by name, although its function can.
        docstring: The docstring, own or inherited.
        namespace: The names for hints.
    """

    subject: str
    parameters: tuple[Parameter, ...]
    context_hint: Any
    return_hint: Any
    kind: CallableKind
    hidden: frozenset[str]
    is_called_by_position: bool
    docstring: str | None = field(repr=False)
    namespace: Mapping[str, Any] = field(repr=False)


def read_signature(
    function: Callable[..., Any],
    *,
    context: bool,
    receiver: bool,
    localns: Mapping[str, Any] | None,
    owner: Any = None,
) -> Signature:
    """Return the signature of a callable.

    `owner` is the object or class that a method is taken from, if the callable does not know it. Keywords of a partial
    are no parameters.

    Raises:
        SchemaError: It is not callable, its signature can't be read, a hint can't be resolved, or the context parameter
            is missing, in the wrong place or without a type.
    """
    subject = _describe_subject(function)
    if not callable(function):
        raise SchemaError(subject, "it can't be called: give a function, a method or an object with __call__")
    found = _read_raw_parameters(function, subject)
    source, bound, found_receiver = _find_source(function)
    owner = found_receiver if owner is None else owner
    parameters = [parameter for parameter in found if parameter.name not in bound]
    if receiver:
        _take_first(parameters, subject, "the receiver (self or cls)")
    context_parameter = _take_first(parameters, subject, "the context") if context else None
    namespace = _collect_namespace(source, localns, class_of(owner))
    definition = _find_definition(source)
    globalns: dict[str, Any] = getattr(definition, "__globals__", None) or _find_module_globals(definition)

    context_hint: Any = None
    if context_parameter is not None:
        context_hint = _resolve_context(context_parameter, globalns, namespace, subject)
    hints = _resolve_hints(parameters, globalns, namespace, subject)
    return_hint = _resolve_return(source, globalns, namespace)
    receiver_class = class_of(owner)
    if receiver_class is not None:
        arguments = type_arguments(owner, definition)
        hints = {name: specialize_hint(hint, receiver_class, arguments) for name, hint in hints.items()}
        return_hint = specialize_hint(return_hint, receiver_class, arguments)
    return Signature(
        subject=subject,
        parameters=tuple(
            Parameter(name=p.name, kind=p.kind, hint=hints.get(p.name, NOTHING), default=p.default) for p in parameters
        ),
        context_hint=context_hint,
        return_hint=return_hint,
        kind=kind_of(function),
        hidden=(bound | {p.name for p in found}) - {p.name for p in parameters},
        is_called_by_position=_needs_positions(function),
        docstring=_find_docstring(source, receiver_class),
        namespace={**globalns, **namespace},
    )


def _describe_subject(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{name.replace('<locals>.', '')}()"


def _find_docstring(source: Any, owner: type | None) -> str | None:
    """Return the docstring of a callable, own or inherited from an overridden method."""
    if inspect.isclass(source):
        # The generated docstring of a dataclass is its signature.
        text = "" if (source.__doc__ or "").startswith(f"{source.__name__}(") else source.__doc__ or ""
        return f"{inspect.cleandoc(text)}\n\n{inspect.cleandoc(_read_own_docstring(source.__init__))}".strip()
    text = _read_own_docstring(source)
    if text:
        return text
    name = getattr(source, "__name__", "")
    if owner is not None:
        return inherited_docstring(owner, name) or (owner.__doc__ if name == "__call__" else None)
    return inspect.getdoc(source) if inspect.isroutine(source) else None


def _read_own_docstring(function: Any) -> str:
    return (getattr(function, "__doc__", None) or "") if inspect.isfunction(inspect.unwrap(function)) else ""


def _find_source(function: Any) -> tuple[Any, frozenset[str], Any]:
    """Return the innermost function, the names that partials have bound, and the receiver."""
    bound: set[str] = set()
    receiver: Any = None
    for _ in range(100):
        if isinstance(function, functools.partial):
            bound.update(function.keywords)
            bound.update(list(_read_raw_signature(function.func).parameters)[: len(function.args)])
            function = function.func
        elif isinstance(function, types.MethodType):
            receiver, function = function.__self__, function.__func__
        elif (wrapped := getattr(function, "__wrapped__", None)) is not None and _forwards_arguments(function):
            function = wrapped
        else:
            break
    if not inspect.isroutine(function) and not inspect.isclass(function):
        call = type(function).__call__
        if inspect.isfunction(call):
            return call, frozenset(bound), function
    return function, frozenset(bound), receiver


def _forwards_arguments(wrapper: Any) -> bool:
    """Return whether a wrapper forwards its arguments, so that the wrapped function determines them."""
    if getattr(wrapper, "__signature__", None) is not None:
        return False
    code = getattr(wrapper, "__code__", None)
    return code is None or bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))


def _needs_positions(function: Any) -> bool:
    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    code = getattr(function, "__code__", None)
    if code is None or getattr(function, "__wrapped__", None) is None or not _forwards_arguments(function):
        return False
    return not code.co_flags & inspect.CO_VARKEYWORDS or hasattr(function, "dispatch")  # of `functools.singledispatch`


def _read_raw_parameters(function: Any, subject: str) -> list[inspect.Parameter]:
    try:
        return list(_read_raw_signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise SchemaError(
            subject,
            "its signature can't be read (it may be written in C): wrap it in a function with hints",
        ) from error


def _read_raw_signature(function: Any) -> inspect.Signature:
    """Do what `inspect.signature` does, but respect a wrapper that names its own parameters."""
    if isinstance(function, functools.partial):
        return inspect.signature(functools.partial(_make_stand_in(function.func), *function.args, **function.keywords))
    if isinstance(function, types.MethodType):
        return inspect.signature(types.MethodType(_make_stand_in(function.__func__), function.__self__))
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None and _forwards_arguments(function):
        return _read_raw_signature(wrapped)
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415 - new in 3.14

        return inspect.signature(function, follow_wrapped=False, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function, follow_wrapped=False)


def _make_stand_in(function: Any) -> Callable[..., Any]:
    def stand_in() -> None: ...

    vars(stand_in)["__signature__"] = _read_raw_signature(function)
    return stand_in


def _take_first(parameters: list[inspect.Parameter], subject: str, what: str) -> inspect.Parameter:
    if not parameters:
        raise SchemaError(subject, f"there is no parameter for {what}: add it as the first one")
    first = parameters[0]
    if first.kind is inspect.Parameter.VAR_POSITIONAL:
        return first
    if first.kind not in _POSITIONAL:
        raise SchemaError(
            subject, f"{what} is passed by position: make it the first positional parameter", parameter=first.name
        )
    return parameters.pop(0)


def _find_definition(source: Any) -> Any:
    return source.__init__ if inspect.isclass(source) else inspect.unwrap(source)


def _find_module_globals(owner: Any) -> dict[str, Any]:
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    return vars(module) if module is not None else {}


def _collect_namespace(source: Any, localns: Mapping[str, Any] | None, receiver: type | None) -> dict[str, Any]:
    """Return the names for hints beside the globals: type parameters, and those of enclosing scopes."""
    owner = _find_definition(source)
    globalns: Mapping[str, Any] = getattr(owner, "__globals__", {})
    is_local = "<locals>" in getattr(owner, "__qualname__", "")
    localns = {**(localns or {}), **find_local_names(owner)}
    # The locals of a decorating function must not hide the globals of another module.
    names = {name: value for name, value in localns.items() if is_local or name not in globalns}
    local = [cls for cls in reversed(receiver.__mro__[:-1]) if "<locals>" in cls.__qualname__] if receiver else []
    names.update({cls.__name__: cls for cls in local})
    for cls in (*local, *_find_enclosing_classes(owner, {**globalns, **names})):
        # A method with the name of a builtin must not hide it.
        names.update({name: item for name, item in vars(cls).items() if name not in globalns and name not in _BUILTINS})
        names.update({parameter.__name__: parameter for parameter in getattr(cls, "__type_params__", ())})
    names.update(_read_closure(owner))
    names.update({parameter.__name__: parameter for parameter in getattr(owner, "__type_params__", ())})
    return names


def _read_closure(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of enclosing functions that a function uses, and their values."""
    code = getattr(owner, "__code__", None)
    cells = getattr(owner, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code is not None else (), cells, strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _find_enclosing_classes(owner: Any, namespace: Mapping[str, Any]) -> Iterator[type]:
    """Yield the classes that a function's qualified name shows, outermost first."""
    *path, _ = getattr(owner, "__qualname__", "").rpartition("<locals>.")[2].split(".")
    found: Any = None
    for name in path:
        found = namespace.get(name) if found is None else getattr(found, name, None)
        if not isinstance(found, type):
            return
        yield found


class _AnnotationHolder:
    """Something with annotations, for `get_type_hints`."""

    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations


def _evaluate_hints(
    annotations: dict[str, Any], globalns: dict[str, Any], localns: Mapping[str, Any]
) -> dict[str, Any]:
    return typing_extensions.get_type_hints(
        _AnnotationHolder(annotations), globalns=globalns, localns=dict(localns), include_extras=True
    )


def _resolve_hint(
    hint: Any, globalns: dict[str, Any], localns: Mapping[str, Any], *, subject: str, parameter: str
) -> Any:
    if hint is NOTHING:
        return hint
    try:
        return _evaluate_hints({parameter: hint}, globalns, localns)[parameter]
    except NameError as error:
        raise SchemaError(
            subject,
            f"its hint {_write_hint(hint)} uses the name '{error.name}', which does not exist when the program runs: "
            f"import or define '{error.name}' outside of `if TYPE_CHECKING:` and before the function",
            parameter=parameter,
        ) from error
    except Exception as error:
        raise SchemaError(
            subject,
            f"its hint {_write_hint(hint)} can't be evaluated ({type(error).__name__}: {error}): write a hint that is "
            "legal when the program runs",
            parameter=parameter,
        ) from error


def _resolve_hints(
    parameters: list[inspect.Parameter], globalns: dict[str, Any], localns: Mapping[str, Any], subject: str
) -> dict[str, Any]:
    """Return the hints of parameters by name, evaluated one by one if an error has to name a parameter."""
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    try:
        return _evaluate_hints(
            {name: hint for name, hint in annotations.items() if hint is not NOTHING}, globalns, localns
        )
    except Exception:  # noqa: BLE001 - the second pass names the parameter
        return {
            name: _resolve_hint(hint, globalns, localns, subject=subject, parameter=name)
            for name, hint in annotations.items()
        }


def _resolve_context(
    parameter: inspect.Parameter, globalns: dict[str, Any], localns: Mapping[str, Any], subject: str
) -> Any:
    """Return the hint of the context; its text if it exists only for type checkers, since nothing is validated."""
    try:
        hint = _resolve_hint(parameter.annotation, globalns, localns, subject=subject, parameter=parameter.name)
    except SchemaError as error:
        if not isinstance(error.__cause__, NameError):
            raise
        return _write_hint(parameter.annotation).strip("'\"")
    if hint is NOTHING or hint is Any:
        raise SchemaError(
            subject,
            "the context has no type: annotate it with the type of your context object, or with ToolContext[...] "
            "for the envelope",
            parameter=parameter.name,
        )
    return hint


def _write_hint(hint: Any) -> str:
    return repr(hint.__forward_arg__ if hasattr(hint, "__forward_arg__") else hint)


def _resolve_return(source: Any, globalns: dict[str, Any], localns: Mapping[str, Any]) -> Any:
    try:
        annotations = source.__annotations__ if inspect.isroutine(source) else {}
        if "return" not in annotations:
            return NOTHING
        return _evaluate_hints({"return": annotations["return"]}, globalns, localns)["return"]
    except Exception:  # noqa: BLE001 - without a return hint there is no output schema
        return NOTHING


def kind_of(function: Any) -> CallableKind:
    """Return how the function inside partials, methods and callable objects runs."""
    for _ in range(100):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        else:
            break
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    if inspect.iscoroutinefunction(function):
        return "coroutine"
    if inspect.isasyncgenfunction(function):
        return "async_generator"
    if inspect.isgeneratorfunction(function):
        return "generator"
    return "sync"


UNIONS = (typing.Union, types.UnionType)
_SELF: tuple[Any, ...] = (cast("Any", typing).Self, cast("Any", typing_extensions).Self)


def rebuild_hint(hint: Any, change: Callable[[Any], Any]) -> Any:
    """Return the hint with each of its parts changed; the same object if none changes."""
    origin: Any = get_origin(hint)
    parts = get_args(hint)
    if origin in (None, Literal, Callable) or not parts:  # JSON has no functions
        return hint
    if origin is Annotated:
        changed = change(parts[0])
        return hint if changed is parts[0] else Annotated[(changed, *parts[1:])]
    inside = tuple([change(part) for part in parts])
    if all(new is old for new, old in zip(inside, parts, strict=True)):
        return hint
    if origin in UNIONS:
        return typing.Union[inside]  # noqa: UP007 - as many as there are
    if getattr(hint, "__unpacked__", False):
        return next(iter(types.GenericAlias(origin, inside)))
    return hint.copy_with(inside) if hasattr(hint, "copy_with") else origin[inside]


def class_of(receiver: Any) -> type | None:
    """Return the class of a receiver, or the receiver if it is a class; None without one."""
    if receiver is None:
        return None
    return receiver if isinstance(receiver, type) else type(receiver)


def specialize_hint(hint: Any, owner: type, arguments: Mapping[Any, Any]) -> Any:
    """Return the hint with the class for ``Self``, and with the type arguments of the class."""
    if hint in _SELF:
        return owner
    if isinstance(hint, TypeVar):
        return arguments.get(hint, hint)
    return rebuild_hint(hint, lambda part: specialize_hint(part, owner, arguments))


def type_arguments(receiver: Any, function: Any) -> dict[Any, Any]:
    """Return the type arguments for the hints of a method, by type parameter, for a receiver.

    ``T`` of ``Repo(Generic[T])`` is ``Item`` in ``class Items(Repo[Item])``, and in ``Repo[Item]()``.
    """
    owner = class_of(receiver)
    if owner is None:
        return {}
    qualified = getattr(function, "__qualname__", "")
    for cls, arguments in collect_type_arguments(getattr(receiver, "__orig_class__", owner)).items():
        if qualified.rpartition(".")[0] == cls.__qualname__ and function.__module__ == cls.__module__:
            return arguments
    return {}


def collect_type_arguments(alias: Any) -> dict[type, dict[Any, Any]]:
    """Return the type arguments of a class and of its bases, by type parameter."""
    found: dict[type, dict[Any, Any]] = {}
    waiting: list[tuple[Any, Mapping[Any, Any]]] = [(alias, {})]
    while waiting:
        alias, known = waiting.pop(0)
        generic: dict[str, Any] = getattr(alias, "__pydantic_generic_metadata__", None) or {}
        cls: Any = get_origin(alias) or generic.get("origin") or alias
        given: tuple[Any, ...] = get_args(alias) or generic.get("args") or ()
        if not isinstance(cls, type) or cls in found:
            continue
        of_model: dict[str, Any] = getattr(cls, "__pydantic_generic_metadata__", {})
        parameters: Any = of_model.get("parameters", ()) or getattr(cls, "__parameters__", ())
        pairs = zip(parameters, given, strict=False)
        found[cls] = arguments = {parameter: specialize_hint(argument, cls, known) for parameter, argument in pairs}
        if alias is not cls and isinstance(alias, type):
            found[alias] = arguments
        waiting += [(base, arguments) for base in vars(cls).get("__orig_bases__", cls.__bases__)]
    return found


def inherited_docstring(owner: type, name: str) -> str | None:
    """Return the docstring of a method in the nearest class that has one, or None."""
    for cls in owner.__mro__[:-1]:  # the last one is `object`
        text = getattr(vars(cls)[name], "__doc__", None) if name in vars(cls) else None
        if text:
            return cast("str", text)
    return None


_LOCALS = ".<locals>."


def find_local_names(function: Any) -> dict[str, Any]:
    """Return the local names of the running functions that enclose a function's definition.

    They are found on the stack by their qualified names.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    parts = getattr(function, "__qualname__", "").split(_LOCALS)[:-1]
    around = {_LOCALS.join(parts[: index + 1]) for index in range(len(parts))}
    names: dict[str, Any] = {}
    frame = inspect.currentframe() if around else None
    while frame is not None and around:
        if frame.f_code.co_qualname in around and frame.f_globals is getattr(function, "__globals__", None):
            around.discard(frame.f_code.co_qualname)
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names
