"""The commands ``eval`` and ``tune``: how well models call these tools, and which words of the tools do better."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit.cli.options import output_option, source_options, sources_argument
from toolkit.cli.screen import OutputFormat

if TYPE_CHECKING:
    from toolkit.evaluation import TrialSettings

__all__ = ["eval_command", "tune_command"]

_FILE = click.Path(dir_okay=False, path_type=Path)

_TRIAL_OPTIONS = (
    click.option("--tasks", type=_FILE, required=True, metavar="FILE.yaml", help="The tasks."),
    click.option("--per-class", type=click.IntRange(1), help="Only so many tasks of each class, the first ones."),
    click.option("--model-url", "url", default="", metavar="URL", help="Where a server that is compatible is."),
    click.option(
        "--results", type=_FILE, metavar="FILE.jsonl", help="Keep outcomes there, and run only what is not there yet."
    ),
    click.option(
        "--run-tools",
        "runs_tools",
        is_flag=True,
        help="Run the tools for real; otherwise each call is answered by what the task says it returns.",
    ),
    click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True, help="The most of a reply."),
    click.option("--max-turns", type=click.IntRange(1), default=5, show_default=True, help="The most turns of a task."),
    click.option(
        "--task-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=120.0,
        show_default=True,
        metavar="SECONDS",
        help="The longest a task may take.",
    ),
    click.option(
        "--own-temperature", is_flag=True, help="Leave temperature and seed to the model, as some take no others."
    ),
)


way_choice = click.Choice(["native", "text", "guided"])


def trial_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options by which tasks are run; it takes some of them together, as `trial`."""

    @wraps(function)
    def take_options(
        *,
        runs_tools: bool,
        max_tokens: int,
        max_turns: int,
        task_timeout: float,
        own_temperature: bool,
        **others: Any,
    ) -> int:
        from toolkit.evaluation import TrialSettings  # noqa: PLC0415 - see the docstring of `commands`

        trial = TrialSettings(
            temperature=None if own_temperature else 0,
            seed=None if own_temperature else 1,
            max_tokens=max_tokens,
            max_turns=max_turns,
            timeout=task_timeout,
            runs_tools=runs_tools,
        )
        return function(trial=trial, **others)

    command: Callable[..., int] = take_options
    for option in reversed(_TRIAL_OPTIONS):
        command = option(command)
    return command


@click.command("eval")
@sources_argument
@click.option("--model", "-m", "models", multiple=True, required=True, help="The model; may be repeated.")
@click.option(
    "--way",
    "ways",
    multiple=True,
    type=way_choice,
    default=["native"],
    show_default=True,
    help="How it is asked: by its own tool calls, by calls written as text, or led by small steps; may be repeated.",
)
@click.option("--words", type=_FILE, metavar="FILE.yaml", help="Words in the place of the tools' own; see `tune`.")
@click.option("--against", default="", metavar="NAME", help="The model or way that others are compared with.")
@click.option("--report", type=_FILE, metavar="FILE.html", help="Write a page of it there.")
@trial_options
@source_options
@output_option
def eval_command(
    sources: tuple[str, ...],
    tasks: Path,
    models: tuple[str, ...],
    url: str,
    ways: tuple[str, ...],
    per_class: int | None,
    words: Path | None,
    against: str,
    results: Path | None,
    report: Path | None,
    trial: TrialSettings,
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Measure how well models call the tools of each SOURCE.

    Each task is run with each model in each way. The figures have intervals, and differences are paired by task. With
    --results a run that was stopped goes on where it was.
    """
    from toolkit.cli.evaluating import EvaluationSettings, evaluate_tools  # noqa: PLC0415 - as above

    evaluation = EvaluationSettings(
        tasks=tasks,
        models=models,
        url=url,
        ways=ways,
        trial=trial,
        per_class=per_class or 0,
        words=words,
        against=against,
        results=results,
        report=report,
        output=output,
    )
    return evaluate_tools(sources, evaluation, settings)


@click.command("tune")
@sources_argument
@click.option("--model", "-m", required=True, help="The model.")
@click.option("--way", type=way_choice, default="native", show_default=True, help="How it is asked, as for `eval`.")
@click.option("--tries", type=click.IntRange(1), default=20, show_default=True, help="The most wordings to try.")
@click.option("--propose-with", "proposer", default="", metavar="MODEL", help="Ask this model for wordings, too.")
@click.option(
    "--words",
    type=_FILE,
    default=Path("words.yaml"),
    show_default=True,
    metavar="FILE.yaml",
    help="Where the words are written, if they win.",
)
@trial_options
@source_options
@output_option
def tune_command(
    sources: tuple[str, ...],
    tasks: Path,
    model: str,
    url: str,
    way: str,
    per_class: int | None,
    tries: int,
    proposer: str,
    words: Path,
    results: Path | None,
    trial: TrialSettings,
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Find words with which a model calls the tools of each SOURCE better.

    Names and descriptions are tried on one half of the tasks, and kept in a file only where they win on the other half
    by more than the interval. The sources of the tools are never changed.
    """
    from toolkit.cli.word_tuning import WordTuningSettings, tune_tools  # noqa: PLC0415 - as above

    tuning = WordTuningSettings(
        tasks=tasks,
        model=model,
        url=url,
        way=way,
        trial=trial,
        per_class=per_class or 0,
        tries=tries,
        proposer=proposer,
        words=words,
        results=results,
        output=output,
    )
    return tune_tools(sources, tuning, settings)
