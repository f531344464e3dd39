"""Runs as the page follows them: read once, however many pages look, and told as what has changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, TypeAlias

from toolkit.dataclass import dataclass
from toolkit.run_log import LogEntry, RunLog, RunStep, Section, Timeline, describe_step

__all__ = ["Changes", "LiveRun", "LiveRuns", "StepRow", "dump_section"]

StepRow: TypeAlias = list[Any]
"""A step as the page has it: id, parent, kind, title, status, start, end, note, tokens, cost, question."""

_CHUNK = 5_000
_MOST_KEPT = 20
_LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of a run.

    Args:
        rows: The steps that have changed, as they are now.
        count: How many changes the page has been told of with these.
        has_more: True where there is more to read at once.
    """

    rows: list[StepRow]
    count: int
    has_more: bool


class LiveRun:
    """One run, read as far as it goes.

    Attributes:
        mark: Tells the numbers of changes that this object gave from those of another.
    """

    def __init__(self, log: RunLog, run_id: str) -> None:
        self._log = log
        self._run_id = run_id
        self._timeline = Timeline()
        self._lock = threading.Lock()
        self.mark: str = os.urandom(4).hex()

    def read_on(self, known: int) -> Changes:
        """Read the next entries, some thousands at most, and return the steps that have changed.

        Args:
            known: How many changes the page has been told of.
        """
        with self._lock:
            entries = self._log.read_chunk(self._run_id, self._timeline.next_position, _CHUNK)
            for entry in entries:
                self._timeline.add(entry)
            changes, steps = self._timeline.changes, self._timeline.steps
            # Not all at once: a page that comes to a run that was read already gets it in parts, too.
            upto = min(len(changes), known + _CHUNK)
            rows = [_to_row(steps[number]) for number in sorted(set(changes[known:upto]))]
            return Changes(rows=rows, count=upto, has_more=bool(entries) or upto < len(changes))

    def describe(self, number: int) -> list[Section]:
        """Return what a step was about; nothing where there is no such step."""
        with self._lock:
            known = 0 <= number < len(self._timeline.steps)
            positions = list(self._timeline.steps[number].positions) if known else []
        return describe_step(self._read_at(positions))

    def find_steps(self, text: str) -> list[int]:
        """Return the steps in whose entries a text stands."""
        positions = self._log.find_lines(self._run_id, text)
        with self._lock:
            found = {self._timeline.step_at[each] for each in positions if each in self._timeline.step_at}
        return sorted(found)

    def _read_at(self, positions: list[int]) -> list[LogEntry]:
        return [entry for position in positions for entry in self._log.read_chunk(self._run_id, position, 1)]


class LiveRuns:
    """The runs that pages look at, the latest of them.

    Args:
        log: Where they are.
    """

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._runs: dict[str, LiveRun] = {}
        self._lock = threading.Lock()

    def get(self, run_id: str) -> LiveRun:
        """Return a run; read so far as somebody has looked at it."""
        with self._lock:
            run = self._runs.pop(run_id, None) or LiveRun(self._log, run_id)
            self._runs[run_id] = run
            if len(self._runs) > _MOST_KEPT:
                del self._runs[next(iter(self._runs))]
            return run


def dump_section(section: Section) -> Mapping[str, Any]:
    """Return a section as JSON values."""
    return {"title": section.title, "kind": section.kind, "text": section.text, "facts": dict(section.facts)}


def _to_row(step: RunStep) -> StepRow:
    title = step.title if len(step.title) <= _LONGEST_TITLE else f"{step.title[:_LONGEST_TITLE]}..."
    facts = [step.id, step.parent, step.kind, title, step.status, round(step.start, 4)]
    end = None if step.end is None else round(step.end, 4)
    return [*facts, end, step.note, step.tokens, step.cost, step.question]
