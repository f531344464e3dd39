"""The library's log while a command runs, as notes: a line each, and no traceback that was not asked for."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import click

__all__ = ["shown_logs"]

_SILENT = ("uvicorn", "asyncio")  # they tell of how they were ended


@contextmanager
def shown_logs(*, with_tracebacks: bool) -> Generator[None]:
    """Show warnings and errors of all loggers on standard error."""
    handler, root = _NoteHandler(with_tracebacks=with_tracebacks), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _NoteHandler(logging.Handler):
    def __init__(self, *, with_tracebacks: bool) -> None:
        super().__init__(logging.WARNING)
        self._with_tracebacks = with_tracebacks
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        # Of a tool that crashed, its result tells the same.
        if record.name.partition(".")[0] in _SILENT or (record.exc_info and not self._with_tracebacks):
            return
        from toolkit.visible_text import strip_hidden  # noqa: PLC0415 - as in all of this package

        text = strip_hidden(self.format(record))
        click.secho(text if self._with_tracebacks else " ".join(text.split()), err=True, dim=True)
