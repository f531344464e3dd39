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
from toolkit.cli.screen import ExitCode, OutputFormat, Screen, Steps
from toolkit.cli.sources import OpenedTools, SourceSettings, leave_out_unusable, open_model, read_model, run_with_tools
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
from toolkit.providers.catalogue import ask_in_way


def evaluate_tools(
    sources: Sequence[str],
    tasks: Path,
    models: Sequence[str],
    url: str,
    *,
    ways: Sequence[str],
    against: str,
    per_class: int | None,
    results: Path | None,
    trial: dict[str, Any],
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Run what is missing and write the figures, after Ctrl-C those so far; return 1 if a model was given up."""
    screen = Screen(output)
    loaded = load_tasks(tasks)
    loaded = loaded.sample(per_class) if per_class else loaded
    shown, outcomes = Steps(), list[CandidateTrials]()
    candidates = _make_candidates(models, ways, url, SourceSettings(**settings).timeout, shown)
    base = find_candidate(candidates, against)
    stored = TrialFile(results)
    how = TrialSettings(**trial)

    def show_progress(candidate: Candidate, done: int, total: int) -> None:
        shown.begin(candidate.label, total=total)
        shown.advance(done, total)

    async def run_tasks(tools: OpenedTools) -> int:
        registry = leave_out_unusable(tools, screen.note)
        with shown:
            await run_candidates(
                candidates,
                loaded,
                registry,
                how,
                stored=stored,
                outcomes=outcomes,
                on_progress=show_progress,
                ctx=tools.ctx,
            )
        return ExitCode.FAILED if any(outcome.problem for outcome in outcomes) else ExitCode.DONE

    try:
        with redirect_stdout(sys.stderr):  # by tools that print
            code = run_with_tools(sources, settings, run_tasks)
    except Exception:
        if not screen.is_json:  # there the error is the one document
            _write_figures(screen, outcomes, base, loaded.kinds)
        raise
    _write_figures(screen, outcomes, base, loaded.kinds)
    return code


def _make_candidates(
    models: Sequence[str], ways: Sequence[str], url: str, timeout: float, steps: Steps
) -> list[Candidate]:
    """Return each model in each way; Python modules that hold models are imported here."""
    candidates: list[Candidate] = []
    for model in dict.fromkeys(models):
        # A local model has guided steps of its own.
        is_local = model.partition(":")[0].strip().lower() == "local"
        native = read_model(model, url, timeout, **({"calling": "native"} if is_local and ways else {}))
        for way in dict.fromkeys(ways or ("",)):
            is_guided = is_local and way == "guided"
            provider = read_model(model, url, timeout, calling="guided") if is_guided else native
            candidates.append(
                Candidate(model=_shorten_model(model), way=way, open=partial(_open_way, provider, way, steps))
            )
    return candidates


@asynccontextmanager
async def _open_way(provider: Provider, way: str, steps: Steps) -> AsyncGenerator[Provider]:
    async with open_model(provider, steps) as opened:
        yield ask_in_way(opened, way, str(getattr(opened, "model", ""))) if way else opened


def _shorten_model(name: str) -> str:
    """Return a name without the folders of a file, which would fill each table."""
    prefix, colon, rest = name.partition(":")
    return f"{prefix}{colon}{Path(rest).stem}" if rest.endswith(".gguf") else name


def _write_figures(screen: Screen, outcomes: Sequence[CandidateTrials], base: Candidate, kinds: Sequence[str]) -> None:
    """Write the figures of the candidates that were begun, if there are any."""
    done = [outcome for outcome in outcomes if outcome.trials or outcome.problem]
    if not done:
        return
    against = base.label if any(outcome.candidate is base for outcome in done) else ""
    summary = summarize_trials(done, kinds, against=against)
    if screen.is_json:
        trials = [
            {"model": outcome.candidate.model, "way": outcome.candidate.way, **asdict(trial)}
            for outcome in done
            for trial in outcome.trials.values()
        ]
        screen.document({**asdict(summary), "trials": trials})
        return
    _write_scores(screen, summary)
    _write_costs(screen, summary)


def _write_scores(screen: Screen, summary: EvaluationSummary) -> None:
    kinds = (*summary.kinds, ALL_KINDS)
    rows = [["solved, in % (interval)", *(each.label for each in summary.candidates)]]
    for kind in kinds:
        scores = [each.scores[kind] for each in summary.candidates]
        cells = [f"{100 * s.solved / s.tasks:.0f} ({s.interval})" if s.tasks else "-" for s in scores]
        rows.append([f"{kind} ({max(score.tasks for score in scores)})", *cells])
    _write_rows(screen, rows)
    if summary.comparisons:
        screen.say()
        rows = [[f"points more than {summary.comparisons[0].against}", *(each.label for each in summary.comparisons)]]
        for kind in kinds:
            pairs = [each.differences[kind] for each in summary.comparisons]
            cells = [
                f"{100 * pair.difference:+.0f} ({pair.interval}){' *' if pair.is_clear else ''}" if pair.tasks else "-"
                for pair in pairs
            ]
            rows.append([kind, *cells])
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
