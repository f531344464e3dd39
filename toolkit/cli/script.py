"""The console script, installed beside the package: it runs `toolkit.__main__` from its file.

So the script does not import the library, and ``toolkit --help`` does not wait for that.
"""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path


def run_script() -> int:
    """Run the command line of this process and return the exit code."""
    package = find_spec("toolkit")
    assert package is not None
    assert package.origin is not None
    spec = spec_from_file_location("toolkit_start", Path(package.origin).with_name("__main__.py"))
    assert spec is not None
    assert spec.loader is not None
    start = module_from_spec(spec)
    spec.loader.exec_module(start)
    code: int = start.main()
    return code
