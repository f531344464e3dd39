"""Measure the ways of asking a small model: ``python -m evals.measure [--model path.gguf] [--ways native held]``.

The tasks are those of `office.yaml`, the tools those of `office.py`. Outcomes are kept in a file, so that a run that
was stopped goes on, and ways that were measured on different days are compared task by task.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from evals.office import registry
from toolkit.chat import Provider
from toolkit.cli.progress import Steps
from toolkit.evaluation import TrialSettings, load_tasks
from toolkit.evaluation.runs import Candidate, CandidateTrials, run_candidates
from toolkit.evaluation.trial_files import TrialFile
from toolkit.parsing import TextToolProvider
from toolkit.providers.local import LocalProvider

TASKS = Path(__file__).with_name("office.yaml")
SETTINGS = TrialSettings(max_tokens=128, runs_tools=True)
Opener = Callable[[str | None], AbstractAsyncContextManager[Provider]]


@asynccontextmanager
async def open_native(model: str | None) -> AsyncGenerator[Provider]:
    """Give the model with its own way of calling tools."""
    async with LocalProvider(model, calling="native", context_size=8192) as local:
        yield local


@asynccontextmanager
async def open_text(model: str | None) -> AsyncGenerator[Provider]:
    """Give the model with calls written as text."""
    async with LocalProvider(model, calling="native", context_size=8192) as local:
        yield TextToolProvider(local)


@asynccontextmanager
async def open_held(model: str | None) -> AsyncGenerator[Provider]:
    """Give the model with replies that are held to schemas."""
    async with LocalProvider(model, calling="constrained", context_size=8192) as local:
        yield local


WAYS: dict[str, Opener] = {"native": open_native, "text": open_text, "held": open_held}


def write_counts(outcomes: Sequence[CandidateTrials], kinds: Sequence[str]) -> None:
    """Print how many tasks of each class are solved, and why the others are not."""
    print("| |", " | ".join(outcome.candidate.label for outcome in outcomes), "|")
    for kind in kinds:
        cells = [[trial for trial in each.trials.values() if trial.kind == kind] for each in outcomes]
        print(f"| {kind} |", " | ".join(f"{sum(t.is_solved for t in cell)}/{len(cell)}" for cell in cells), "|")
    for outcome in outcomes:
        trials = outcome.trials.values()
        reasons = Counter(trial.reason for trial in trials if trial.reason).most_common()
        print(
            f"{outcome.candidate.label}: {sum(trial.is_solved for trial in trials)} of {len(trials)}, "
            f"{sum(trial.seconds for trial in trials) / max(len(trials), 1):.2f} s and "
            f"{sum(trial.input_tokens + trial.output_tokens for trial in trials) / max(len(trials), 1):.0f} tokens; "
            + ", ".join(f"{reason} {count}" for reason, count in reasons),
            outcome.problem,
        )


async def main(arguments: argparse.Namespace) -> None:
    """Run what is missing, and print the table."""
    tasks = load_tasks(TASKS)
    tasks = tasks.sample(arguments.per_class) if arguments.per_class else tasks
    name = Path(arguments.model).stem if arguments.model else "SmolLM2-135M"
    candidates = [Candidate(model=name, way=way, open=partial(WAYS[way], arguments.model)) for way in arguments.ways]
    kept = TrialFile(Path(arguments.results)) if arguments.results else None
    with Steps() as steps:

        def show_progress(candidate: Candidate, done: int, total: int) -> None:
            steps.begin(candidate.label, total=total)
            steps.advance(done, total)

        outcomes = await run_candidates(candidates, tasks, registry, SETTINGS, kept=kept, on_progress=show_progress)
    write_counts(outcomes, tasks.kinds)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m evals.measure", description=__doc__)
    parser.add_argument("--model", help="a GGUF file; the built-in model without")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--per-class", type=int, default=0, help="how many tasks of each class; 0 for all")
    parser.add_argument("--results", default="", help="where outcomes are kept")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, read_arguments())
