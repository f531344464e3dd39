"""Finds the log of a loop: its own, or one inside of the log of the loop round it."""

from __future__ import annotations

from typing import Any

from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.depth import current_frame
from toolkit.loop.journal import Journal

__all__ = ["NestedJournals", "find_journal"]


class NestedJournals:
    """Gives each loop that a call starts a log of its own, in the order in which they are made.

    Args:
        journal: That of the loop which makes the call.
        call_id: The call.
    """

    __slots__ = ("_call_id", "_count", "_journal")

    def __init__(self, journal: Journal, call_id: str) -> None:
        self._journal = journal
        self._call_id = call_id
        self._count = 0

    def open_next(self) -> Journal:
        """Return the log of the next loop."""
        self._count += 1
        return self._journal.nested(self._call_id if self._count == 1 else f"{self._call_id}.{self._count}")


def find_journal(config: ToolLoopConfig[Any]) -> Journal | None:
    """Return the log of a loop that is made here; None where it is not kept."""
    frame = current_frame.get()
    if config.journal is not None or frame is None or frame.journals is None:
        return config.journal
    return frame.journals.open_next()
