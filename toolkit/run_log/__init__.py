"""Runs that are written down as they happen, and read again: by programs, by a person, as a test."""

from toolkit.run_log.entries import ContentPolicy, LogEntry, RunState, RunSummary
from toolkit.run_log.log import RunLog, answer_question, ask_on_page
from toolkit.run_log.timeline import (
    ExportForm,
    RunStep,
    Section,
    Timeline,
    describe_step,
    export_lines,
    export_markdown,
    export_run,
    export_test,
)

__all__ = [
    "ContentPolicy",
    "ExportForm",
    "LogEntry",
    "RunLog",
    "RunState",
    "RunSummary",
    "Section",
    "RunStep",
    "Timeline",
    "answer_question",
    "ask_on_page",
    "describe_step",
    "export_lines",
    "export_markdown",
    "export_run",
    "export_test",
]
