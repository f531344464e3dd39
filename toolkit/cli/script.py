"""The console script, installed beside the package: it runs `toolkit.__main__` from its file.

So the script does not import the library, and ``toolkit --help`` does not wait for that.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from runpy import run_path


def run_script() -> int:
    """Run the command line of this process and return the exit code."""
    package = find_spec("toolkit")
    assert package is not None
    assert package.origin is not None
    start = run_path(str(Path(package.origin).with_name("__main__.py")), run_name="toolkit_start")
    code: int = start["main"]()
    return code
