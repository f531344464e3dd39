"""What the tools need beside the library is loaded when it is used, and named when it is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from toolkit import ConfigurationError
from toolkit.builtin import bash_tool, coding_tools, list_files_tool, search_tool


def test_importing_the_tools_loads_no_package_of_an_extra() -> None:
    script = (
        "import sys, toolkit.builtin\n"
        "print(sorted({'pathspec', 'regex', 'tree_sitter', 'tree_sitter_bash'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("module", "tool", "make"),
    [
        ("pathspec", "list_files", list_files_tool),
        ("pathspec", "search", search_tool),
        ("regex", "search", search_tool),
        ("tree_sitter", "bash", bash_tool),
        ("tree_sitter_bash", "bash", coding_tools),
    ],
    ids=["list_files", "search and pathspec", "search and regex", "bash", "a preset"],
)
def test_a_missing_package_is_said_with_its_extra(
    module: str, tool: str, make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(make)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"the tool {tool} needs packages.*toolkit-sdk\[coding\]"):
        make(tmp_path)
