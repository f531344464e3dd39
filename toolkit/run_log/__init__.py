"""Runs that are written down as they happen, and read again: by programs, by a person, as a test."""

from toolkit.run_log.cleaning import ContentPolicy
from toolkit.run_log.entries import LogEntry, RunState, RunSummary
from toolkit.run_log.exports import ExportForm, export_lines, export_markdown, export_run, export_test
from toolkit.run_log.log import RunLog, answer_question, ask_on_page
from toolkit.run_log.timeline import RunStep, Section, Timeline, describe_step

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
