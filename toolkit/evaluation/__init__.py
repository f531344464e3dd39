"""How well models call tools: tasks in YAML, run in several ways, compared with confidence intervals.

The command line has this as ``toolkit eval`` and ``toolkit tune``; `docs/evaluation.md` is the guide.
"""

from toolkit.evaluation.judging import FailureReason
from toolkit.evaluation.report import write_report
from toolkit.evaluation.runs import Candidate, CandidateTrials, run_candidates
from toolkit.evaluation.statistics import Interval, PairedDifference, compare_pairs, find_share_interval
from toolkit.evaluation.summary import CandidateSummary, Comparison, EvaluationSummary, Score, summarize_trials
from toolkit.evaluation.tasks import EvaluationTask, TaskCall, TaskSet, load_tasks
from toolkit.evaluation.trial_files import TrialFile
from toolkit.evaluation.trials import Trial, TrialSettings, run_trial

__all__ = [
    "Candidate",
    "CandidateSummary",
    "CandidateTrials",
    "Comparison",
    "EvaluationSummary",
    "EvaluationTask",
    "FailureReason",
    "Interval",
    "PairedDifference",
    "Score",
    "TaskCall",
    "TaskSet",
    "Trial",
    "TrialFile",
    "TrialSettings",
    "compare_pairs",
    "find_share_interval",
    "load_tasks",
    "run_candidates",
    "run_trial",
    "summarize_trials",
    "write_report",
]
