"""Run the tasks and print how many are solved, with our help and without.

``python -m evals [--model path.gguf] [--tasks N] [--ways text native guided] [--verbose]``. Without
`--model` it is the file that the variable TOOLKIT_MODEL names, else the built-in model. The same command gives the
same table on the same machine: temperature 0, a fixed seed.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio

from evals.conversation import conversation
from evals.tasks import TASKS, Task
from evals.trial import Trial, run_trial
from evals.ways import WAYS, Way, opened
from toolkit.cli.progress import Steps


async def trials(way: Way, tasks: Sequence[Task], model: str | None, *, helps: bool) -> list[Trial]:
    """Run the tasks one after the other."""
    before = await conversation() if way.is_text else []
    done: list[Trial] = []
    with Steps() as steps:
        steps.begin("loading the model")
        async with opened(way, model, helps=helps) as provider:
            steps.begin(f"{way.title}, {'with' if helps else 'without'} help", total=len(tasks))
            for task in tasks:
                done.append(await run_trial(task, provider, helps=helps, before=before))
                steps.advance(len(done), len(tasks))
    return done


def some(tasks: Sequence[Task], count: int) -> list[Task]:
    """Return that many tasks, of all kinds."""
    return [tasks[index * len(tasks) // count] for index in range(min(count, len(tasks)))]


def reasons(done: Sequence[Trial]) -> str:
    """Return why tasks are not solved, the most frequent reason first."""
    counted = Counter(trial.reason for trial in done if trial.reason).most_common()
    return ", ".join(f"{reason} {count}" for reason, count in counted) or "-"


def kinds(done: Sequence[Trial]) -> str:
    """Return the kinds of the tasks that are solved."""
    counted = Counter(trial.task.kind for trial in done if not trial.reason)
    return ", ".join(f"{kind} {count}" for kind, count in counted.items()) or "-"


async def main(arguments: argparse.Namespace) -> None:
    """Print the table, then why tasks failed."""
    model: str | None = arguments.model or os.environ.get("TOOLKIT_MODEL")
    tasks = some(TASKS, arguments.tasks)
    rows: list[str] = []
    details: list[str] = []
    for way in (way for way in WAYS if way.name in arguments.ways):
        scores: list[str] = []
        for helps in (False, True):
            done = await trials(way, tasks, model, helps=helps)
            scores.append(f"{sum(not trial.reason for trial in done)} of {len(done)}")
            mended = sum(len(trial.repairs) for trial in done)
            refused = sum(len(trial.refused) for trial in done)
            title = f"{way.title}, {'with' if helps else 'without'} help"
            details.append(
                f"- {title}: solved: {kinds(done)}; not: {reasons(done)}; {mended} mended, {refused} refused."
            )
            if arguments.verbose:
                details += [f"  - {trial}" for trial in done]
        rows.append(f"| {way.title} | {' | '.join(scores)} |")
    print(f"\n{Path(model).name if model else 'SmolLM2-135M-Instruct'}, {len(tasks)} tasks:\n")
    print("| | without | with repair and teaching |\n|---|--:|--:|")
    print("\n".join(rows))
    print()
    print("\n".join(details))


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parser.add_argument("--model", help="a GGUF file; the built-in model without")
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="how many of them")
    parser.add_argument("--ways", nargs="+", choices=[way.name for way in WAYS], default=[way.name for way in WAYS])
    parser.add_argument("--verbose", action="store_true", help="tell of each task")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parsed())
