"""How well models call tools: tasks in YAML, run in several ways, compared with confidence intervals.

The command line has this as ``toolkit eval`` and ``toolkit tune``; `docs/evaluation.md` is the guide.
"""

from toolkit.evaluation.judging import FailureReason
from toolkit.evaluation.tasks import EvaluationTask, TaskCall, TaskSet, load_tasks
from toolkit.evaluation.trials import Trial, TrialSettings, run_trial

__all__ = [
    "EvaluationTask",
    "FailureReason",
    "TaskCall",
    "TaskSet",
    "Trial",
    "TrialSettings",
    "load_tasks",
    "run_trial",
]
