"""``python -m toolkit``: the command `toolkit`."""

from __future__ import annotations

import sys

__all__ = ["start"]


def start(program: str) -> int:
    """Run the command line of this process and return the exit code; only the demo runs without the extra ``cli``."""
    try:
        if sys.argv[1:] == ["demo"]:
            from toolkit.demo import run_demo  # noqa: PLC0415 - it imports the edges

            return run_demo()
        from toolkit.cli.application import run_command_line  # noqa: PLC0415 - an extra

        return run_command_line(program)
    except KeyboardInterrupt:  # before a command handles signals
        return 130
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print("toolkit: the command line needs Click and Rich: `pip install 'toolkit-sdk[cli]'`", file=sys.stderr)  # noqa: T201 - this is a command
        return 2


if __name__ == "__main__":
    sys.exit(start("python -m toolkit"))
