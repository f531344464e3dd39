"""The public functions of real libraries: each becomes a schema or is refused with a reason, and nothing crashes."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from toolkit.errors import SchemaError
from toolkit.schema import function_schema

LIBRARIES = [
    "anyio",
    "base64",
    "bisect",
    "calendar",
    "colorsys",
    "difflib",
    "docstring_parser",
    "fnmatch",
    "heapq",
    "hypothesis",
    "inspect",
    "json",
    "jsonschema",
    "math",
    "os",
    "os.path",
    "pathlib",
    "pydantic",
    "random",
    "shutil",
    "statistics",
    "string",
    "tempfile",
    "textwrap",
    "typing_extensions",
    "urllib.parse",
    "urllib.request",
    "uuid",
    "xml.etree.ElementTree",
    "zipfile",
]

# What may be in the way of a function: anything else would be our fault.
REASONS = (
    "its signature can't be read",
    "JSON can't carry its type",
    "which does not exist when the program runs",
    "is against its own hint",
    "can't be used",
)


def functions_of(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    module = importlib.import_module(name)
    for attribute in dir(module):
        if not attribute.startswith("_"):
            found = getattr(module, attribute)
            if inspect.isroutine(found):
                yield f"{name}.{attribute}", found


def report(name: str) -> tuple[int, dict[str, str]]:
    accepted, refused = 0, dict[str, str]()
    for path, function in functions_of(name):
        try:
            schema = function_schema(function)
        except SchemaError as error:
            refused[path] = str(error)
            continue
        accepted += 1
        json.dumps(schema.parameters, allow_nan=False)
        jsonschema.Draft202012Validator.check_schema(schema.parameters)
    return accepted, refused


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_functions_of_a_library_are_taken_or_refused_with_a_reason(name: str) -> None:
    accepted, refused = report(name)
    assert accepted + len(refused) > 0 or name == "pathlib"
    for path, reason in refused.items():
        print(f"{path}: {reason}")
        assert any(words in reason for words in REASONS), reason


def test_functions_of_plain_values_are_all_taken() -> None:
    for name in ("textwrap", "fnmatch", "statistics", "colorsys", "calendar", "difflib"):
        refused = report(name)[1]
        assert [reason for reason in refused.values() if "written in C" not in reason] == []
