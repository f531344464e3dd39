"""What can be counted exactly: it must not grow, whatever machine this runs on."""

import subprocess
import sys

import pytest

from tests.bench.ours import calls_a_turn

MOST_CALLS = 75
"""Python function calls that a turn may take; lower it whenever fewer are reached."""

MOST_MODULES = 300
"""Modules that importing toolkit may load, the standard library's among them."""

HEAVY = ("pydantic.main", "pydantic.json_schema", "tenacity", "docstring_parser", "json_repair", "jsonschema", "openai")


def test_a_turn_takes_few_calls_and_no_more_late_than_early() -> None:
    early, late = calls_a_turn(50), calls_a_turn(200)
    assert early <= MOST_CALLS
    assert late <= early * 1.01


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
