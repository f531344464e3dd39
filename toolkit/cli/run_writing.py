"""Where a command writes its run down."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolkit.loop.middleware import Middleware

__all__ = ["writing_runs"]


@contextmanager
def writing_runs(place: Path | None) -> Generator[tuple[Middleware[Any], ...]]:
    """Give what writes runs there, or nothing where no place is named; all is written when the block ends.

    Raises:
        ConfigurationError: It is a file that is no run log.
    """
    if place is None:
        yield ()
        return
    from toolkit.run_log import RunLog  # noqa: PLC0415 - few runs are written down

    log = RunLog(place)
    try:
        yield (log,)
    finally:
        log.flush()
