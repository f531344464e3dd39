"""``python -m toolkit``: the command `toolkit`."""

from __future__ import annotations

import sys

from toolkit.cli.entry import start

if __name__ == "__main__":
    sys.exit(start("python -m toolkit"))
