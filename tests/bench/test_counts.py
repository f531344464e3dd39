"""What can be counted exactly: it must not grow, whatever machine this runs on."""

import subprocess
import sys
from collections.abc import Collection

import pytest

from tests.bench.ours import PRODUCTION, calls_a_turn

MOST_CALLS = {"plain": 69, "production": 194}
"""Python function calls that a turn may take, with nothing configured and with `PRODUCTION`, on Python 3.11.

Lower a number whenever fewer are reached. Where being right must cost more, raise it by what that costs and no more,
and say in the commit's body what that buys. `python -m tests.bench --only turns_50 --only production_turn` says what a
turn costs in time.
"""

MOST_MODULES = 300
"""Modules that importing toolkit may load, the standard library's among them."""

HEAVY = ("pydantic.main", "pydantic.json_schema", "tenacity", "docstring_parser", "json_repair", "jsonschema", "openai")


@pytest.mark.parametrize(("configuration", "features"), [("plain", ()), ("production", PRODUCTION)])
def test_a_turn_takes_few_calls_and_no_more_late_than_early(configuration: str, features: Collection[str]) -> None:
    early, late = calls_a_turn(50, features), calls_a_turn(200, features)
    assert early <= MOST_CALLS[configuration]
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
