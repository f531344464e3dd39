"""The start of the command line, by ``python -m toolkit`` and by the console script."""

from __future__ import annotations

import sys


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
