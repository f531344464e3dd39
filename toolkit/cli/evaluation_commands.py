"""The command ``eval``: how well models call these tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from toolkit.cli.options import output_option, source_options, sources_argument
from toolkit.cli.screen import OutputFormat

__all__ = ["eval_command"]

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("eval")
@sources_argument
@click.option("--tasks", type=_FILE, required=True, metavar="FILE.yaml", help="The tasks.")
@click.option("--model", "-m", "models", multiple=True, required=True, help="The model; may be repeated.")
@click.option("--model-url", "url", default="", metavar="URL", help="The address of a compatible server.")
@click.option(
    "--way",
    "ways",
    multiple=True,
    type=click.Choice(["native", "text", "guided"]),
    help="How it is asked: by its own tool calls, by calls written as text, or guided by small steps; may be repeated. "
    "Without it a model is asked as `toolkit chat` asks it.",
)
@click.option("--against", default="", metavar="NAME", help="The model or way that the others are compared with.")
@click.option("--per-class", type=click.IntRange(1), help="Only the first tasks of each class, that many.")
@click.option("--results", type=_FILE, metavar="FILE.jsonl", help="Store outcomes there, and run only what is missing.")
@click.option(
    "--run-tools",
    "runs_tools",
    is_flag=True,
    help="Run the tools; otherwise each call is answered with what the task says it returns.",
)
@click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True, help="The most of a reply.")
@click.option("--max-turns", type=click.IntRange(1), default=5, show_default=True, help="The most turns of a task.")
@click.option(
    "--task-timeout",
    "timeout_of_task",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="The longest that a task may take.",
)
@click.option("--own-temperature", is_flag=True, help="Leave temperature and seed to the model: some accept no others.")
@source_options
@output_option
def eval_command(
    sources: tuple[str, ...],
    tasks: Path,
    models: tuple[str, ...],
    url: str,
    ways: tuple[str, ...],
    against: str,
    per_class: int | None,
    results: Path | None,
    runs_tools: bool,
    max_tokens: int,
    max_turns: int,
    timeout_of_task: float,
    own_temperature: bool,
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Measure how well models call the tools of each SOURCE.

    Each task is run with each model in each way. The figures have intervals, and differences are paired by task. With
    --results an interrupted run continues where it stopped.
    """
    from toolkit.cli.evaluating import EvaluationSettings, evaluate_tools  # noqa: PLC0415 - see `commands`
    from toolkit.evaluation import TrialSettings  # noqa: PLC0415 - as above

    trial = TrialSettings(
        temperature=None if own_temperature else 0,
        seed=None if own_temperature else 1,
        max_tokens=max_tokens,
        max_turns=max_turns,
        timeout=timeout_of_task,
        runs_tools=runs_tools,
    )
    evaluation = EvaluationSettings(
        tasks=tasks,
        models=models,
        url=url,
        ways=ways,
        trial=trial,
        per_class=per_class or 0,
        against=against,
        results=results,
        output=output,
    )
    return evaluate_tools(sources, evaluation, settings)
