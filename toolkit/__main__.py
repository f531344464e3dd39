"""The start of the command line, by ``python -m toolkit`` and by the console script (`toolkit.cli.script`).

Nothing of the library is imported before a command needs it, so that ``--help`` does not wait for that.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def main(program: str = "toolkit") -> int:
    """Run the command line of this process and return the exit code; only the demo runs without the extra ``cli``."""
    try:
        if sys.argv[1:] == ["demo"]:
            from toolkit.cli.demo import run_demo  # noqa: PLC0415 - it imports the library

            return run_demo()
        code: int = _load_application().run_command_line(program)
    except KeyboardInterrupt:  # before a command handles signals
        return 130
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print("toolkit: the command line needs Click and Rich: `pip install 'toolkit-sdk[cli]'`", file=sys.stderr)  # noqa: T201 - this is a command
        return 2
    return code


def _load_application() -> ModuleType:
    """Return the module `toolkit.cli.application`, from its file: to import it by name would import the library."""
    spec = spec_from_file_location("toolkit_application", Path(__file__).parent / "cli" / "application.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main("python -m toolkit"))
