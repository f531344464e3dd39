"""Functions stay short and simple, and names tell things apart; each exception is listed with its reason."""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.package_sources import PACKAGE, read_modules

LINES_OF_A_FUNCTION = 60
COMPLEXITY = 12

LONG_FUNCTIONS: dict[str, str] = {}
TANGLED_FUNCTIONS: dict[str, str] = {}
ONE_WORD_FUNCTIONS: dict[str, str] = {
    "interop/langchain.py:_arun": "a name of LangChain's protocol",
    "interop/langchain.py:_run": "a name of LangChain's protocol",
    "sources/mcp/login.py:_initialize": "a name of the MCP SDK's login",
}
"""What is over the budget, each with its reason."""


def assert_listed(found: set[str], listed: dict[str, str], advice: str) -> None:
    assert found - set(listed) == set(), advice
    assert set(listed) - found == set(), "these are within the budget now: take them off the list"
    assert all(listed.values()), "each exception has a reason"


def test_functions_are_short() -> None:
    found = {
        f"{module.name}:{node.name}"
        for module in read_modules()
        for node in module.nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or node.lineno) - node.lineno > LINES_OF_A_FUNCTION
    }
    assert_listed(found, LONG_FUNCTIONS, f"split what is over {LINES_OF_A_FUNCTION} lines")


def test_functions_are_simple() -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--output-format", "json"]
    options = ["--config", f"lint.mccabe.max-complexity={COMPLEXITY}", "--exit-zero", str(PACKAGE)]
    report = json.loads(subprocess.run([*ruff, *options], capture_output=True, check=True, timeout=60).stdout)
    found = {
        f"{Path(each['filename']).relative_to(PACKAGE).as_posix()}:{each['message'].split('`')[1]}" for each in report
    }
    assert_listed(found, TANGLED_FUNCTIONS, f"simplify what is of a complexity over {COMPLEXITY}")


def test_a_public_name_stands_in_one_module() -> None:
    homes: dict[str, set[str]] = defaultdict(set)
    for module in read_modules():
        for node in module.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                homes[node.name].add(module.name)
    found = {name: places for name, places in homes.items() if len(places) > 1 and not name.startswith("_")}
    assert found == {}, "one name, one thing: rename one of them"


def test_a_private_function_is_a_verb_and_its_object() -> None:
    found = {
        f"{module.name}:{node.name}"
        for module in read_modules()
        for node in module.nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("_")
        and not node.name.startswith("__")
        and "_" not in node.name.strip("_")
    }
    assert_listed(found, ONE_WORD_FUNCTIONS, "name it by its verb and its object")
