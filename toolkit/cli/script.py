"""The start of the command line; the console script is installed outside of the package, so that help is quick."""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any


def main() -> int:
    """Run the command; the package itself is executed at the first use of something that it exports."""
    spec = find_spec("toolkit")
    assert spec is not None
    assert spec.loader is not None
    loader, package = spec.loader, module_from_spec(spec)

    def load(name: str) -> Any:
        if "__getattr__" in vars(package):
            del vars(package)["__getattr__"]
            loader.exec_module(package)
        return getattr(package, name)

    vars(package)["__getattr__"] = load  # how a module offers names that it has not yet
    sys.modules["toolkit"] = package
    return start("toolkit")


def start(program: str) -> int:
    """Run the command line of this process and return the exit code; only the demo runs without the extra ``cli``."""
    try:
        if sys.argv[1:] == ["demo"]:
            from toolkit.demo import run_demo  # it imports the edges

            return run_demo()
        from toolkit.cli.application import run_command_line  # an extra

        return run_command_line(program)
    except KeyboardInterrupt:  # before a command handles signals
        return 130
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print("toolkit: the command line needs Click and Rich: `pip install 'toolkit-sdk[cli]'`", file=sys.stderr)  # noqa: T201 - this is a command
        return 2
