"""A model, played by a script, mends a package: it finds the bug, edits it away, and runs the package's own tests."""

import json
import sys
from pathlib import Path

import pytest

from toolkit import AssistantMessage, ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool_loop
from toolkit.builtin import BashOptions, CodingPreset, coding_tools
from toolkit.chat import validate_transcript
from toolkit.testing import ScriptedProvider

pytestmark = [pytest.mark.anyio, pytest.mark.real]


BROKEN = '''"""What a tool may be called."""

import re

from spelling.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,6}")


def check_name(name: str) -> str:
    """Return a name that providers accept."""
    if _NAME.fullmatch(name):
        return name
    raise ConfigurationError(f"'{name}' can't be the name of a tool")
'''


def plant(root: Path) -> None:
    """Make a project of a small package, with a bug in it and the tests that show it."""
    (root / "spelling").mkdir()
    (root / "spelling" / "naming.py").write_text(BROKEN)
    (root / "spelling" / "__init__.py").write_text('"""Names of tools."""\n')
    (root / "spelling" / "errors.py").write_text("class ConfigurationError(Exception):\n    pass\n")
    (root / ".gitignore").write_text("__pycache__/\n")
    (root / "test_naming.py").write_text(
        "import unittest\n\nfrom spelling.naming import check_name\n\n\n"
        "class Names(unittest.TestCase):\n"
        "    def test_a_long_name_may_be(self):\n        check_name('x' * 64)\n\n"
        "    def test_a_longer_one_may_not(self):\n"
        "        with self.assertRaises(Exception):\n            check_name('x' * 65)\n"
    )


def steps() -> list[tuple[str, dict[str, object]]]:
    run_tests = f"{sys.executable} -B -m unittest -q"
    return [
        ("bash", {"command": run_tests}),
        ("search", {"pattern": r"def check_name|re\.compile|fullmatch|\{1,6\}", "include": "*.py", "path": "spelling"}),
        ("read_file", {"path": "spelling/naming.py"}),
        ("edit_file", {"path": "spelling/naming.py", "old_text": '_-]{1,6}")', "new_text": '_-]{1,64}")'}),
        ("bash", {"command": run_tests}),
    ]


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def run(root: Path, preset: CodingPreset) -> list[ToolResult]:
    replies = [
        AssistantMessage([ToolCall(f"call_{number}", name, json.dumps(arguments))])
        for number, (name, arguments) in enumerate(steps())
    ]
    provider = ScriptedProvider([*replies, "Mended."])
    tools = ToolRegistry(coding_tools(root, preset, bash=BashOptions(timeout=60, confirm=lambda _: True)))
    result = await tool_loop(provider, tools, "The tests fail. Mend it.", config=ToolLoopConfig(timeout=120))
    assert result.text == "Mended."
    validate_transcript(result.messages)
    return [message for message in result.messages if isinstance(message, ToolResult)]


async def test_a_bug_is_found_and_mended_and_the_tests_pass(tmp_path: Path) -> None:
    plant(tmp_path)
    failing, found, read, edited, passing = await run(tmp_path, "all")
    assert "FAILED (errors=1)" in failing.text
    assert failing.text.endswith("Exit code: 1")
    assert "spelling/naming.py:" in found.text
    assert "{1,6}" in read.text
    assert edited.text == "Replaced 1 line with 1 line in spelling/naming.py"
    assert "{1,64}" in edited.details["diff"]
    assert "OK" in passing.text
    assert passing.details == {"exit_code": 0, "success": True}


async def test_the_readonly_tools_find_it_and_can_change_nothing(tmp_path: Path) -> None:
    plant(tmp_path)
    before = contents(tmp_path)
    first_run, found, read, edit, second_run = await run(tmp_path, "readonly")
    assert not found.is_error
    assert not read.is_error
    for refused, name in ((first_run, "bash"), (edit, "edit_file"), (second_run, "bash")):
        assert refused.is_error
        assert refused.text.startswith(f"Unknown tool: {name}.")
    assert contents(tmp_path) == before
