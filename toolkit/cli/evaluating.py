"""The command ``eval``: tasks by models by ways, with intervals, as a table or JSON."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.chat import Provider
from toolkit.cli.endings import ExitCode
from toolkit.cli.models import open_model, read_model
from toolkit.cli.progress import Steps
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, leave_out_unusable, open_sources, read_source
from toolkit.cli.terminal import Terminal
from toolkit.dataclass import dataclass
from toolkit.evaluation import (
    ALL_KINDS,
    Candidate,
    CandidateTrials,
    EvaluationSummary,
    TrialFile,
    TrialSettings,
    find_candidate,
    load_tasks,
    run_candidates,
    summarize_trials,
)

__all__ = ["EvaluationSettings", "evaluate_tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """The options of ``eval``.

    Args:
        tasks: The file of tasks.
        models: The names of models.
        url: The address of a compatible server; empty for the vendors' own.
        ways: How each model is asked; empty for the way that `provider_for` chooses.
        trial: How each task is run.
        per_class: How many tasks of each class; 0 for all.
        against: The candidate that the others are compared with; empty for the first.
        results: Where outcomes are stored; None stores none.
        output: The form of standard output: text or JSON.
    """

    tasks: Path
    models: Sequence[str]
    url: str = ""
    ways: Sequence[str] = ()
    trial: TrialSettings
    per_class: int = 0
    against: str = ""
    results: Path | None = None
    output: OutputFormat = "text"


def evaluate_tools(places: Sequence[str], evaluation: EvaluationSettings, settings: dict[str, Any]) -> int:
    """Run what is missing and write the figures, after Ctrl-C those of what was done.

    Returns 1 if a model was given up.
    """
    screen, terminal, read = Screen(evaluation.output), Terminal(), SourceSettings(**settings)
    tasks = load_tasks(evaluation.tasks)
    tasks = tasks.sample(evaluation.per_class) if evaluation.per_class else tasks
    sources = [read_source(place, read) for place in places]
    steps = Steps()
    candidates = _make_candidates(evaluation, read.timeout, steps)
    base = find_candidate(candidates, evaluation.against)
    stored = TrialFile(evaluation.results)
    outcomes: list[CandidateTrials] = []

    def show_progress(candidate: Candidate, done: int, total: int) -> None:
        steps.begin(candidate.label, total=total)
        steps.advance(done, total)

    async def main() -> int:
        with steps:
            async with open_sources(sources, steps) as tools:
                registry = leave_out_unusable(tools.registry, screen.note)
                await run_candidates(
                    candidates,
                    tasks,
                    registry,
                    evaluation.trial,
                    stored=stored,
                    outcomes=outcomes,
                    on_progress=show_progress,
                )
        return ExitCode.FAILED if any(outcome.problem for outcome in outcomes) else ExitCode.DONE

    def write_done() -> None:
        done = [outcome for outcome in outcomes if outcome.trials or outcome.problem]
        if done:
            against = base.label if any(outcome.candidate is base for outcome in done) else ""
            _write_figures(screen, summarize_trials(done, tasks.kinds, against=against), done)

    try:
        with redirect_stdout(sys.stderr):  # by tools that print
            code = terminal.run(main)
    except Exception:
        if not screen.is_json:  # there the error is the one document
            write_done()
        raise
    write_done()
    return code


def _make_candidates(evaluation: EvaluationSettings, timeout: float, steps: Steps) -> list[Candidate]:
    """Return each model in each way; Python modules that hold models are imported here."""
    candidates: list[Candidate] = []
    for model in dict.fromkeys(evaluation.models):
        if not evaluation.ways:
            provider = read_model(model, evaluation.url, timeout)
            candidates.append(Candidate(model=_shorten_model(model), way="", open=partial(open_model, provider, steps)))
            continue
        native = read_model(model, evaluation.url, timeout, local_calling="native")
        is_local = model.partition(":")[0].strip().lower() == "local"
        for way in dict.fromkeys(evaluation.ways):
            # A local model has guided steps of its own.
            guided = is_local and way == "guided"
            provider = read_model(model, evaluation.url, timeout, local_calling="guided") if guided else native
            candidates.append(
                Candidate(model=_shorten_model(model), way=way, open=partial(_open_way, provider, way, steps))
            )
    return candidates


@asynccontextmanager
async def _open_way(provider: Provider, way: str, steps: Steps) -> AsyncGenerator[Provider]:
    from toolkit.providers.catalogue import ask_in_way  # noqa: PLC0415 - few models are evaluated

    async with open_model(provider, steps) as opened:
        yield ask_in_way(opened, way, str(getattr(opened, "model", "")))


def _shorten_model(name: str) -> str:
    """Return a name without the folders of a file, which would fill each table."""
    prefix, colon, rest = name.partition(":")
    return f"{prefix}{colon}{Path(rest).stem}" if rest.endswith(".gguf") else name


def _write_figures(screen: Screen, summary: EvaluationSummary, outcomes: Sequence[CandidateTrials]) -> None:
    if screen.is_json:
        trials = [
            {"model": outcome.candidate.model, "way": outcome.candidate.way, **asdict(trial)}
            for outcome in outcomes
            for trial in outcome.trials.values()
        ]
        screen.document({**asdict(summary), "trials": trials})
        return
    _write_scores(screen, summary)
    _write_differences(screen, summary)
    _write_costs(screen, summary)


def _write_scores(screen: Screen, summary: EvaluationSummary) -> None:
    rows = [["solved, in % (interval)", *(each.label for each in summary.candidates)]]
    for kind in (*summary.kinds, ALL_KINDS):
        scores = [each.scores[kind] for each in summary.candidates]
        rows.append(
            [
                f"{kind} ({max(score.tasks for score in scores)})",
                *(f"{100 * s.solved / s.tasks:.0f} ({s.interval})" if s.tasks else "-" for s in scores),
            ]
        )
    _write_rows(screen, rows)


def _write_differences(screen: Screen, summary: EvaluationSummary) -> None:
    if not summary.comparisons:
        return
    screen.say()
    rows = [[f"points more than {summary.comparisons[0].against}", *(each.label for each in summary.comparisons)]]
    for kind in (*summary.kinds, ALL_KINDS):
        cells = [each.differences[kind] for each in summary.comparisons]
        rows.append(
            [
                kind,
                *(
                    f"{100 * cell.difference:+.0f} ({cell.interval}){' *' if cell.is_clear else ''}"
                    if cell.tasks
                    else "-"
                    for cell in cells
                ),
            ]
        )
    _write_rows(screen, rows)
    screen.note("* the interval does not contain zero")


def _write_costs(screen: Screen, summary: EvaluationSummary) -> None:
    screen.say()
    for each in summary.candidates:
        reasons = ", ".join(f"{reason} {count}" for reason, count in each.reasons.items()) or "nothing failed"
        screen.say(f"{each.label}: {each.tokens:.0f} tokens and {each.seconds:.2f} s for a task; {reasons}")
        if each.error:
            screen.note(f"{each.label}, a request that failed: {each.error}", "bad")
        if each.problem:
            screen.note(f"{each.label} was given up: {each.problem}", "bad")


def _write_rows(screen: Screen, rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        screen.say("  ".join([row[0].ljust(widths[0]), *cells]))
