"""Evaluation of tool calls: tasks in YAML, run with several models and ways, with confidence intervals.

The command is ``toolkit eval``; `docs/evaluation.md` is the guide.
"""

from toolkit.evaluation.tasks import EvaluationTask, FailureReason, TaskCall, TaskSet, load_tasks
from toolkit.evaluation.trials import (
    ALL_KINDS,
    Candidate,
    CandidateSummary,
    CandidateTrials,
    EvaluationSummary,
    Interval,
    Score,
    Trial,
    TrialFile,
    TrialSettings,
    find_share_interval,
    run_candidates,
    run_trial,
    summarize_trials,
)

__all__ = [
    "ALL_KINDS",
    "Candidate",
    "CandidateSummary",
    "CandidateTrials",
    "EvaluationSummary",
    "EvaluationTask",
    "FailureReason",
    "Interval",
    "Score",
    "TaskCall",
    "TaskSet",
    "Trial",
    "TrialFile",
    "TrialSettings",
    "find_share_interval",
    "load_tasks",
    "run_candidates",
    "run_trial",
    "summarize_trials",
]
