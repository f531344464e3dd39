"""Under which key an output is kept: everything that it may depend on, or no key at all.

A key has the tool, its definition, the canonical arguments and, for a tool that takes a context, what its author says
that it depends on of that. What can't be told apart in this way is not kept: a cache that answers one user with what
was another's is worse than none.
"""

from __future__ import annotations

import logging
import sys
import uuid
import weakref
from collections.abc import Callable
from functools import reduce
from typing import Any

from toolkit.calls.handler import Registration
from toolkit.calls.options import ToolOptions
from toolkit.chat import ToolDefinition
from toolkit.json_text import canonical_json, digest_json

__all__ = ["find_cache_key", "is_cached"]

_logger = logging.getLogger("toolkit.calls")


def is_cached(options: ToolOptions, *, by_default: bool) -> bool:
    """Return whether a tool's outputs may be kept at all."""
    if options.cache is False or options.should_cache is False:
        return False
    return options.cache is True or options.should_cache is not None or by_default


def find_cache_key(registration: Registration[Any], arguments: dict[str, Any], state: object) -> str | None:
    """Return the key of a call, or None where its output must not be kept.

    Args:
        registration: The tool; its name in the registry makes no difference.
        arguments: Validated.
        state: The application's context.
    """
    tool: Any = registration.tool
    identity = registration.cache_identity
    if identity is None:
        identity = registration.cache_identity = _make_identity(tool)
    if not identity:
        return None
    context = ""
    if getattr(tool, "takes_context", True):
        context = _read_context(registration.options.cache_key, state, registration.name)
        if not context:
            return None
    return f"tool:{identity}|input:{registration.arguments.dump_json(arguments)}|context:{context}"


def _read_context(cache_key: Callable[[Any], object] | None, state: object, name: str) -> str:
    """Return what an output depends on of a context, or "" where that is not known."""
    if cache_key is None:
        return ""

    try:
        key = cache_key(state)
        return "" if key is None else canonical_json(key)
    except Exception:
        _logger.exception("the cache_key of %s failed; its output is not kept", name)
        return ""


def _make_identity(tool: Any) -> str:
    """Return what tells a tool from all others, or "" where nothing does.

    What can be found by module and qualified name is known by these, in each process; all else, such as closures and
    the objects of bound methods, by a token of its own, for as long as it lives.
    """
    function, receiver = getattr(tool, "function", None), getattr(tool, "receiver", None)
    parts = [_name_or_token(tool if function is None else getattr(function, "__func__", function), tool)]
    if receiver is not None:
        parts.append(_name_or_token(receiver, receiver))
    return "" if "" in parts else ":".join([*parts, _digest_definition(tool.definition)])


def _name_or_token(thing: Any, tool: object) -> str:
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and _is_found(thing, module, name):
        file = getattr(sys.modules[module], "__file__", "") if module == "__main__" else ""
        return f"{module}{file and f'({file})'}.{name}"
    return _token_of(tool if thing is None else thing)


def _is_found(thing: object, module: str, name: str) -> bool:
    """Return whether a name leads to this very thing, or to the tool that was made of it."""
    try:
        found: Any = reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return False
    function = getattr(found, "function", None)
    return found is thing or function is thing or getattr(function, "__func__", None) is thing


_tokens: dict[int, tuple[weakref.ref[Any], str]] = {}


def _token_of(thing: Any) -> str:
    """Return what no other object has, also when this one is gone and its place is taken; "" where that can't be."""
    known = _tokens.get(id(thing))
    if known is not None and known[0]() is thing:
        return known[1]
    number = id(thing)
    try:
        reference = weakref.ref(thing, lambda _: _tokens.pop(number, None))
    except TypeError:
        return ""
    _tokens[number] = reference, uuid.uuid4().hex
    return _tokens[number][1]


def _digest_definition(definition: ToolDefinition) -> str:
    told = [definition.name, definition.description, definition.parameters, definition.output_schema]
    return digest_json(told)[:32]
