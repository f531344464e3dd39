"""The lines of a run log: what stands on one, and how a line is written and read.

Each run is a sequence of lines, each a JSON object with an ``event`` and a ``time``. The first is the header, which has
the version and the run. Most are events of the run as `dump_event` gives them; the others are records that only
a log has, each named in the past tense: what was asked of the model, who a loop belongs to, questions to a person and
their answers, and the summary at the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json
from toolkit.loop.event_json import EVENT_VERSION, load_event
from toolkit.loop.events import LoopEvent

__all__ = [
    "RUN_LOG_VERSION",
    "RECORDS",
    "LogEntry",
    "make_header",
    "make_record",
    "read_header",
    "read_line",
    "write_line",
]

RUN_LOG_VERSION = 1
"""The version of the lines; the first one of each run says it."""

RECORDS = frozenset(
    {"run_opened", "loop_opened", "request_made", "question_asked", "question_answered", "entries_dropped", "run_ended"}
)
"""The entries that are no events of a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One line of a run log.

    Attributes:
        position: Where it stands in its run.
        next_position: Where reading goes on after it.
        plain: Its content, as JSON values.
    """

    position: int
    next_position: int
    plain: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The tag of the event, such as ``tool_execution_end``, or one of `RECORDS`."""
        return str(self.plain["event"])

    @property
    def time(self) -> float:
        """Seconds since 1970."""
        time: float = self.plain.get("time") or 0.0
        return time

    @property
    def loop_id(self) -> str:
        """The loop that told it; empty where no single one did."""
        return str(self.plain.get("loop_id") or "")

    @property
    def event(self) -> LoopEvent | None:
        """The event of the loop; None for a record that only the log has.

        Raises:
            ValueError: The line is none that this library wrote.
        """
        return None if self.kind in RECORDS else load_event(self.plain)


def make_header(run_id: str, time: float, content: str) -> dict[str, Any]:
    """Return the first line of a run."""
    return {"toolkit_run": RUN_LOG_VERSION, "event": "run_opened", "run_id": run_id, "time": time, "content": content}


def make_record(kind: str, run_id: str, loop_id: str, time: float, **fields: Any) -> dict[str, Any]:
    """Return an entry that only a log has."""
    stamps = {"run_id": run_id, "loop_id": loop_id, "time": time}
    return {"v": EVENT_VERSION, "event": kind, **stamps, **fields}


def write_line(plain: Mapping[str, Any]) -> bytes:
    """Return an entry as a line."""
    return write_json(plain).encode() + b"\n"


def read_line(line: bytes) -> dict[str, Any] | None:
    """Return what a line says; None where it is cut off or was not written by a run log."""
    try:
        plain: object = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", plain) if isinstance(plain, dict) and "event" in plain else None


def read_object(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field that is an object; an empty one where it is not there or null."""
    found: Mapping[str, Any] = plain.get(name) or {}
    return found


def read_header(line: bytes, where: str) -> dict[str, Any]:
    """Return what the first line of a run says.

    Raises:
        ConfigurationError: It is not that of a run log, or of another version.
    """
    plain = read_line(line)
    version = None if plain is None else plain.get("toolkit_run")
    if plain is None or version is None:
        raise ConfigurationError(f"{where} is no run of a run log: its first line is not that of RunLog")
    if version != RUN_LOG_VERSION:
        raise ConfigurationError(
            f"{where} is of version {version!r}, and this library reads version {RUN_LOG_VERSION}: "
            "read it with the library that wrote it"
        )
    return plain
