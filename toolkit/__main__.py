"""``python -m toolkit demo``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command that was asked for; return the exit code."""
    if sys.argv[1:] != ["demo"]:
        print("usage: python -m toolkit demo", file=sys.stderr)  # noqa: T201 - this is a command
        return 2
    from toolkit.demo import main as demonstrate  # noqa: PLC0415 - it brings the edges with it

    try:
        return demonstrate()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
