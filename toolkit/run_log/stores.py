"""Where the lines of runs are kept: what a folder of files and a database have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from toolkit.dataclass import dataclass

__all__ = ["RunStore", "StoredLine", "StoredRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as a store knows it, its lines unread.

    Args:
        id: The run.
        where: Where it is, for people.
        seen: When its writer was last there, in seconds since 1970.
        size: How much there is of it; it grows with each line.
    """

    id: str
    where: str
    seen: float
    size: int


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A whole line of a run: where it stands, where the next one does, and its bytes."""

    position: int
    next_position: int
    line: bytes


class RunStore(Protocol):
    """Keeps runs as lines, each appended whole and never changed."""

    def append(self, run_id: str, lines: bytes) -> None:
        """Write lines at the end of a run; the first ones make it.

        Raises:
            OSError: They can't be written; none of them is there.
        """
        ...

    def touch(self, run_ids: Iterable[str]) -> None:
        """Say that the writer of these runs is there."""
        ...

    def close_run(self, run_id: str) -> None:
        """Let go of a run for now."""
        ...

    def list_runs(self) -> list[StoredRun]:
        """Return the runs, newest first."""
        ...

    def find_run(self, run_id: str) -> StoredRun | None:
        """Return one run as it is now."""
        ...

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        """Yield the whole lines from a position on, as they are read."""
        ...

    def read_last(self, run_id: str) -> bytes:
        """Return the last whole line; empty where there is none."""
        ...

    def add_answer(self, run_id: str, line: bytes) -> None:
        """Keep an answer to a question of a run, beside the run."""
        ...

    def read_answers(self, run_id: str) -> list[bytes]:
        """Return the answers to the questions of a run, oldest first."""
        ...
