"""Measure ways of asking a small model: ``python -m bench.models [--model path.gguf] [--ways native held]``.

The tasks are those of `office.yaml` or `home.yaml`, the tools those of the module of the same name. With ``--results``
outcomes are stored in a file, so that an interrupted run continues, and ways measured on different days are compared
task by task.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from bench.models import home, office
from toolkit.chat import Provider
from toolkit.cli.screen import Steps
from toolkit.evaluation import (
    ALL_KINDS,
    Candidate,
    EvaluationSummary,
    TrialFile,
    TrialSettings,
    load_tasks,
    run_candidates,
    summarize_trials,
)
from toolkit.guided import AnswerFromResults, ChooseTool, FillArguments, GuidedProvider, GuidedTurn, StepVerdict
from toolkit.parsing import TextToolProvider
from toolkit.providers.local import LocalProvider

TOOLS = {"office": office.registry, "home": home.registry}
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
    """Give the model with replies that are held to schemas, and nothing else of what guides it."""
    async with LocalProvider(model, calling="native", context_size=8192) as local:
        yield GuidedProvider(local, steps=HELD_STEPS, answer=AnswerFromResults(is_quoting=True))


@asynccontextmanager
async def open_guided(model: str | None) -> AsyncGenerator[Provider]:
    """Give the model as it is guided unless told otherwise."""
    async with LocalProvider(model, calling="guided", context_size=8192) as local:
        yield local


@dataclass(frozen=True)
class AnswerAfterResults:
    """A step: after a result nothing more is called."""

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Return whether there is a result."""
        return "answer" if turn.past_calls and not turn.must_call else "next"


HELD_STEPS = (
    AnswerAfterResults(),
    ChooseTool(description_words=1000, most_repeated=0),
    FillArguments(most_calls=1),
)
WAYS: dict[str, Opener] = {"native": open_native, "text": open_text, "held": open_held, "guided": open_guided}


def write_tables(summary: EvaluationSummary) -> str:
    """Return the tables of the documentation, as Markdown."""
    head = ["tasks", *(each.way for each in summary.candidates)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * len(summary.candidates)]
    for kind in (*summary.kinds, ALL_KINDS):
        scores = [each.scores[kind] for each in summary.candidates]
        cells = [f"{100 * s.solved / s.tasks:.0f} ({s.interval})" if s.tasks else "-" for s in scores]
        lines.append(f"| {kind} ({max(score.tasks for score in scores)}) | {' | '.join(cells)} |")
    lines.append(f"| tokens a task | {' | '.join(f'{each.tokens:.0f}' for each in summary.candidates)} |")
    lines.append(f"| seconds a task | {' | '.join(f'{each.seconds:.1f}' for each in summary.candidates)} |")
    for each in summary.candidates:
        lines += ["", f"{each.label}: " + ", ".join(f"{reason} {count}" for reason, count in each.reasons.items())]
        lines += [f"given up: {each.problem}"] if each.problem else []
    return "\n".join(lines)


async def measure_ways(arguments: argparse.Namespace) -> None:
    """Run what is missing, and print the table."""
    registry = TOOLS[arguments.tools]
    tasks = load_tasks(Path(__file__).with_name(f"{arguments.tools}.yaml"))
    if arguments.classes:
        tasks = replace(tasks, tasks=tuple(task for task in tasks.tasks if task.kind in arguments.classes))
    tasks = tasks.sample(arguments.per_class) if arguments.per_class else tasks
    name = Path(arguments.model).stem if arguments.model else "SmolLM2-135M"
    candidates = [Candidate(model=name, way=way, open=partial(WAYS[way], arguments.model)) for way in arguments.ways]
    stored = TrialFile(Path(arguments.results)) if arguments.results else None
    with Steps() as steps:

        def show_progress(candidate: Candidate, done: int, total: int) -> None:
            steps.begin(candidate.label, total=total)
            steps.advance(done, total)

        outcomes = await run_candidates(candidates, tasks, registry, SETTINGS, stored=stored, on_progress=show_progress)
    summary = summarize_trials(outcomes, tasks.kinds)
    print(write_tables(summary))


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__)
    parser.add_argument("--model", help="a GGUF file; the built-in model without")
    parser.add_argument("--tools", choices=list(TOOLS), default="office", help="which tools and tasks")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--classes", nargs="+", default=[], help="only tasks of these classes")
    parser.add_argument("--per-class", type=int, default=0, help="how many tasks of each class; 0 for all")
    parser.add_argument("--results", default="", help="where outcomes are stored")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(measure_ways, read_arguments())
