"""Runs that survive the end of their process: their logs, and the workers that resume them.

`DurableRuns` and `DurableWorker` need the extra ``durable``, `RestateJournal` and `restate_service` the extra
``restate``; they are imported when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolkit.durable.journals import JournaledRun, SqliteJournal
from toolkit.durable.loops import DurableLoop, LoopQueue, RunPlace, StartRate, durable_loop
from toolkit.errors import (
    DatabaseUnavailableError,
    DecisionRefusedError,
    DurableError,
    DurableRunNotFoundError,
    UnstorableValueError,
    WorkersLostError,
    naming_extra,
)
from toolkit.loop.journal import EntryWork, Journal, JournalEntry, JournalValue
from toolkit.stored_text import Encryption

if TYPE_CHECKING:
    from toolkit.durable.client import DurablePending, DurableRun, DurableRuns, DurableStatus
    from toolkit.durable.event_reader import DurableEvent
    from toolkit.durable.operations import RunFilters
    from toolkit.durable.restate_runs import RestateJournal, restate_service
    from toolkit.durable.rows import RunSchedule
    from toolkit.durable.worker import DurableWorker

__all__ = [
    "DatabaseUnavailableError",
    "DecisionRefusedError",
    "DurableError",
    "DurableRunNotFoundError",
    "DurableEvent",
    "DurableLoop",
    "DurablePending",
    "DurableRun",
    "DurableRuns",
    "DurableStatus",
    "DurableWorker",
    "Encryption",
    "EntryWork",
    "Journal",
    "JournalEntry",
    "JournalValue",
    "JournaledRun",
    "LoopQueue",
    "RestateJournal",
    "RunFilters",
    "RunPlace",
    "RunSchedule",
    "SqliteJournal",
    "StartRate",
    "UnstorableValueError",
    "WorkersLostError",
    "durable_loop",
    "restate_service",
]

_ON_ENGINE = {
    "DurableEvent": "event_reader",
    "DurablePending": "client",
    "DurableRun": "client",
    "DurableRuns": "client",
    "DurableStatus": "client",
    "DurableWorker": "worker",
    "RestateJournal": "restate_runs",
    "RunFilters": "operations",
    "RunSchedule": "rows",
    "restate_service": "restate_runs",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_ENGINE:
        raise AttributeError(f"module 'toolkit.durable' has no attribute {name!r}")
    with naming_extra("restate" if _ON_ENGINE[name] == "restate_runs" else "durable"):
        return getattr(import_module(f"toolkit.durable.{_ON_ENGINE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
