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
    "toolkit.secrets",
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
