"""Importing toolkit loads what every program needs, and nothing that few do."""

import subprocess
import sys

import pytest

MOST_MODULES = 300
"""Modules that importing toolkit may load, the standard library's among them."""

HEAVY = (
    "pydantic.main",
    "pydantic.json_schema",
    "pydantic_core",
    "tenacity",
    "docstring_parser",
    "json_repair",
    "jsonschema",
    "openai",
)


@pytest.fixture(scope="module")
def loaded() -> frozenset[str]:
    code = "import sys, toolkit; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("module", HEAVY)
def test_what_few_need_is_imported_by_those(loaded: frozenset[str], module: str) -> None:
    assert module not in loaded


def test_importing_toolkit_loads_few_modules(loaded: frozenset[str]) -> None:
    assert len(loaded) <= MOST_MODULES


RUN = """
import sys
from toolkit import ToolCall, ToolRegistry, tool, tool_loop_sync
from toolkit.testing import ScriptedProvider

@tool
def add(a: int, b: int) -> int:
    return a + b

result = tool_loop_sync(ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "3"]), ToolRegistry([add]), "go")
print(result.text, [name for name in sys.modules if name.startswith(("opentelemetry", "toolkit.tracing"))])
"""


def test_a_run_that_is_not_traced_loads_nothing_of_opentelemetry() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split(maxsplit=1) == ["3", "[]\n"]
