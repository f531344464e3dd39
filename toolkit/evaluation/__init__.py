"""How well models call tools: tasks in YAML, run in several ways, compared with confidence intervals.

The command line has this as ``toolkit eval`` and ``toolkit tune``; `docs/evaluation.md` is the guide.
"""

from toolkit.evaluation.judging import FailureReason
from toolkit.evaluation.report import write_report
from toolkit.evaluation.runs import Candidate, CandidateTrials, run_candidates
from toolkit.evaluation.statistics import Interval, PairedDifference, compare_pairs, find_share_interval
from toolkit.evaluation.summary import CandidateSummary, Comparison, EvaluationSummary, Score, summarize_trials
from toolkit.evaluation.tasks import EvaluationTask, TaskCall, TaskSet, load_tasks
from toolkit.evaluation.tool_words import ToolWords, load_tool_words
from toolkit.evaluation.trial_files import TrialFile
from toolkit.evaluation.trials import Trial, TrialSettings, run_trial
from toolkit.evaluation.tuning import TriedWording, TuningResult, WordingSource, split_tasks, tune_words
from toolkit.evaluation.wordings import ToolWording, propose_wordings, vary_words

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
    "ToolWording",
    "ToolWords",
    "Trial",
    "TrialFile",
    "TrialSettings",
    "TriedWording",
    "TuningResult",
    "WordingSource",
    "compare_pairs",
    "find_share_interval",
    "load_tasks",
    "load_tool_words",
    "propose_wordings",
    "run_candidates",
    "run_trial",
    "split_tasks",
    "summarize_trials",
    "tune_words",
    "vary_words",
    "write_report",
]
