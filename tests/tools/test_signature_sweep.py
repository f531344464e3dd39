"""The public functions of installed packages become tools, or are refused with a reason that helps their author."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from toolkit import tool_from_function
from toolkit.errors import SchemaError

PACKAGES = [
    "annotated_types", "anthropic", "anyio", "attr", "cffi", "click", "cryptography", "docstring_parser", "fastapi",
    "h11", "httpcore", "httpx", "hypothesis", "jsonpatch", "jsonschema", "langchain_core", "langsmith", "markdown_it",
    "mcp", "msgspec", "numpy", "openai", "packaging", "pandas", "pathspec", "pydantic", "pydantic_ai", "pygments",
    "regex", "requests", "rich", "starlette", "tenacity", "trio", "typing_inspection", "urllib3", "uvicorn",
    "websockets", "yaml",
]  # fmt: skip
SAMPLE = ["click", "httpx", "jsonpatch", "packaging", "requests", "yaml"]

# What may be in the way of a function: anything else would be our fault.
REASONS = {
    "written in C": "its signature can't be read",
    "JSON has no words for a type": "JSON can't carry its type",
    "a name for type checkers only": "which does not exist when the program runs",
    "a default against its hint": "is against its own hint",
    "a hint that can't be evaluated": "can't be evaluated",
    "a type that Pydantic refuses": "can't be used",
    "a name that models can't use": "a tool can't be called",
}


def modules_of(name: str) -> Iterator[Any]:
    package = importlib.import_module(name)
    yield package
    for found in pkgutil.iter_modules(getattr(package, "__path__", [])):
        if not found.name.startswith("_"):
            try:
                yield importlib.import_module(f"{name}.{found.name}")
            except (Exception, SystemExit) as error:  # noqa: BLE001 - an optional dependency of theirs
                print(f"{name}.{found.name} can't be imported: {type(error).__name__}")


def functions_of(name: str) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for module in modules_of(name):
        for attribute in sorted(dir(module)):
            value = None if attribute.startswith("_") else getattr(module, attribute, None)
            if inspect.isroutine(value) and str(getattr(value, "__module__", "")).partition(".")[0] == name:
                found.setdefault(f"{value.__module__}.{getattr(value, '__qualname__', attribute)}", value)
    return found


def reason_of(error: SchemaError) -> str:
    return next((reason for reason, words in REASONS.items() if words in str(error)), f"unknown: {error}")


def sweep(functions: dict[str, Callable[..., Any]]) -> Counter[str]:
    results: Counter[str] = Counter()
    for path, function in functions.items():
        try:
            made = tool_from_function(function)
        except SchemaError as error:
            reason = reason_of(error)
            results[reason] += 1
            print(f"{path}: {error}")
            continue
        results["taken"] += 1
        definition = made.definition
        json.dumps(definition.parameters, allow_nan=False)
        jsonschema.Draft202012Validator.check_schema(definition.parameters)
        unsaid = [warning for warning in made.schema.warnings if "left out" in warning or "offered without" in warning]
        results["taken, without a parameter or a choice, which lint says"] += len(unsaid) > 0
        offered = json.dumps(definition.parameters)
        for parameter in inspect.signature(function).parameters.values():
            told = f"'{parameter.name}'" in str(made.schema.warnings) or json.dumps(parameter.name) in offered
            is_collected = parameter.kind is parameter.VAR_KEYWORD
            assert told or is_collected, f"{path}: {parameter.name} is gone without a word"
    return results


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.full) for name in PACKAGES]
)
def test_the_public_functions_of_a_package_become_tools_or_are_refused_with_a_reason(name: str) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed: it comes with the extra dev")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # docstrings of theirs, and what they deprecate
        functions = functions_of(name)
        if name in SAMPLE and len(functions) > 60:
            functions = {path: functions[path] for path in random.Random(3).sample(sorted(functions), 60)}
        results = sweep(functions)
    print(f"{name}: {dict(results)}")
    assert not [reason for reason in results if reason.startswith("unknown")]
