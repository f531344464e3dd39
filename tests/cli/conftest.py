"""The command line as a program sees it: its exit code, and what it writes."""

import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolkit.cli.application import run_command_line

TOOLS = '''
from typing import Literal

from toolkit import ToolContext, ToolError, tool, tool_with_ctx

print("printed by the module")


@tool(tags={"read"})
async def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius", days: int = 1) -> str:
    """Get the current weather.

    Args:
        city: Such as Paris.
        unit: The unit.
        days: How many.
    """
    print("printed by the tool")
    if city == "Nowhere":
        raise ToolError("No such city.")
    return f"Sunny in {city}, {days} days, 21 degrees {unit}."


@tool
def tag(names: list[str], weights: list[int] | None = None, note: str | None = None, is_final: bool = False) -> str:
    """Put tags on something."""
    return repr((names, weights, note, is_final))


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool
def shout() -> str:
    """Say what a terminal would obey."""
    return "\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07a\\u202eb\\x9b2J [bold]c[/]\\x07"


@tool_with_ctx
def who(app: int) -> str:
    """Tell who the user is."""
    return str(app)


@tool_with_ctx
def work(context: ToolContext[object]) -> str:
    """Work, and say how far it is."""
    context.report_progress("1 of 2")
    return "done"


def plain(count: int) -> int:
    """Double a number."""
    return 2 * count
'''


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A file of tools, in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    path = tmp_path / "some_tools.py"
    path.write_text(TOOLS, encoding="utf-8")
    yield path
    for name in set(sys.modules) - before:
        if name in ("some_tools", "pack") or name.startswith(("_tools_in_", "pack.")):
            del sys.modules[name]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command line in this process."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run_command_line("toolkit", arguments)
        written = capsys.readouterr()
        return Ran(int(code), written.out, written.err)

    return run
