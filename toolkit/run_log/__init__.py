"""Runs that are written down as they happen, and read again: by programs, by a person, as a test."""

from toolkit.run_log.cleaning import ContentPolicy
from toolkit.run_log.details import Section, describe_step
from toolkit.run_log.entries import LogEntry
from toolkit.run_log.exports import export_lines, export_markdown, export_test
from toolkit.run_log.log import RunLog
from toolkit.run_log.questions import answer_question, ask_on_page
from toolkit.run_log.summary import RunState, RunSummary
from toolkit.run_log.timeline import RunStep, Timeline

__all__ = [
    "ContentPolicy",
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
    "export_test",
]
