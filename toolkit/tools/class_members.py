"""Functions that stand in the body of a class: which are, and from where they can be taken as tools."""

from __future__ import annotations

import inspect
from typing import Any

from toolkit.errors import SchemaError
from toolkit.tools.composition import describe_function

__all__ = ["check_taken", "is_in_class_body"]


def check_taken(function: Any, *, is_bound: bool, is_method: bool, is_read: bool) -> None:
    """Refuse what stands in a class and was not taken from where it can be called."""
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


def is_in_class_body(function: Any) -> bool:
    """Return whether a function was written inside of a class."""
    if isinstance(function, (staticmethod, classmethod)):
        return True
    if not inspect.isfunction(function):
        return False
    outer, _, _ = function.__qualname__.rpartition(".")
    return outer != "" and not outer.endswith("<locals>")


def _is_class_method(function: Any) -> bool:
    """Return whether a function in a class body asks for the class first: a static method would type its parameter."""
    if not is_in_class_body(function):
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.name == "cls" and first.annotation is inspect.Parameter.empty
