"""The command ``tune``: other words for tools, tried on one half of the tasks and judged by the other."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.chat import Provider, ToolDefinition
from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.evaluating import make_candidates
from toolkit.cli.models import open_model, read_model
from toolkit.cli.progress import Steps
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, leave_out_unusable, open_sources, read_source
from toolkit.cli.terminal import Terminal
from toolkit.dataclass import dataclass
from toolkit.evaluation import (
    PairedDifference,
    ToolWording,
    TrialFile,
    TrialSettings,
    TuningResult,
    WordingSource,
    load_tasks,
    propose_wordings,
    tune_words,
)

__all__ = ["WordTuningSettings", "tune_tools"]

_PROPOSED_WORDINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WordTuningSettings:
    """The options of ``tune``.

    Args:
        tasks: The file of tasks.
        model: The model.
        url: Where a server that is compatible with it is; empty for the vendor's own.
        way: How it is asked.
        trial: How each task is run.
        per_class: How many tasks of each class; 0 for all.
        tries: How many wordings are tried at most.
        proposer: A model that is asked for wordings, too; empty for none.
        words: Where the words are written.
        results: Where outcomes are kept; None keeps none.
        output: The form of standard output: text or JSON.
    """

    tasks: Path
    model: str
    url: str = ""
    way: str = "native"
    trial: TrialSettings
    per_class: int = 0
    tries: int = 20
    proposer: str = ""
    words: Path
    results: Path | None = None
    output: OutputFormat = "text"


def tune_tools(places: Sequence[str], tuning: WordTuningSettings, settings: dict[str, Any]) -> int:
    """Try words, and write those that win to a file; return 1 where the model was given up."""
    screen, terminal, read = Screen(tuning.output), Terminal(), SourceSettings(**settings)
    if tuning.words.exists():
        raise CommandError(f"{tuning.words} is there already, and is left as it is: name another by --words")
    tasks = load_tasks(tuning.tasks)
    tasks = tasks.sample(tuning.per_class) if tuning.per_class else tasks
    sources = [read_source(place, read) for place in places]
    steps = Steps()
    [candidate] = make_candidates([tuning.model], [tuning.way], tuning.url, read.timeout, steps)
    proposer = read_model(tuning.proposer, tuning.url, read.timeout) if tuning.proposer else None
    kept = TrialFile(tuning.results)

    def show_progress(text: str, done: int, most: int) -> None:
        steps.begin(text, total=most)
        steps.advance(done, most)

    async def main() -> int:
        with steps:
            async with open_sources(sources, steps) as tools, _open_source(proposer, steps) as source:
                registry = leave_out_unusable(tools.registry, screen.note)
                result = await tune_words(
                    candidate,
                    tasks,
                    registry,
                    tuning.trial,
                    most_tries=tuning.tries,
                    source=source,
                    kept=kept,
                    on_progress=show_progress,
                )
        _write_tuning(screen, result, tuning.words)
        return ExitCode.FAILED if result.problem else ExitCode.DONE

    with redirect_stdout(sys.stderr):  # by tools that print
        return terminal.run(main)


@asynccontextmanager
async def _open_source(proposer: Provider | None, steps: Steps) -> AsyncGenerator[WordingSource | None]:
    if proposer is None:
        yield None
        return
    async with open_model(proposer, steps) as provider:
        yield partial(_ask_for_wordings, provider)


async def _ask_for_wordings(
    provider: Provider, definition: ToolDefinition, prompts: Sequence[str]
) -> Sequence[ToolWording]:
    return await propose_wordings(provider, definition, prompts, _PROPOSED_WORDINGS)


def _write_tuning(screen: Screen, result: TuningResult, path: Path) -> None:
    if result.is_kept:
        try:
            path.write_text(result.words.dump(), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"the words can't be written: {error}") from error
    if screen.is_json:
        screen.document({"is_kept": result.is_kept, "file": str(path) if result.is_kept else None, **asdict(result)})
        return
    for tried in result.tried:
        screen.say(f"{tried.wording.tool}: {tried.wording.rule}: {_describe_difference(tried.difference)}")
    if result.problem:
        screen.note(f"the model was given up: {result.problem}", "bad")
    elif result.held_out is None:
        screen.say("no other words did better on the training half: the tools' own stay")
    else:
        screen.say(f"chosen, on the training half: {_describe_difference(result.training)}")
        screen.say(f"the same on the held-out half: {_describe_difference(result.held_out)}", "strong")
        if result.is_kept:
            screen.say(f"they win by more than the interval, and are in {path}")
        else:
            screen.say("they do not win by more than the interval: the tools' own words stay")


def _describe_difference(paired: PairedDifference) -> str:
    return f"{100 * paired.difference:+.0f} points ({paired.interval}), {paired.gained} gained, {paired.lost} lost"
