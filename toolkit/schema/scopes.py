"""The names that were local where a function was defined."""

from __future__ import annotations

import functools
import inspect
from typing import Any

__all__ = ["find_local_names"]

_LOCALS = ".<locals>."


def find_local_names(function: Any) -> dict[str, Any]:
    """Return the local names of the functions around a function's definition, as far as they are running now.

    They are found on the stack by their qualified names, however many calls lie between them and this one.
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
