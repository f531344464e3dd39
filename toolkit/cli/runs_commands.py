"""The group ``runs``: what was written down by ``--log``, or by a `RunLog` of an application's own."""

from __future__ import annotations

from typing import Any

import click

from toolkit.cli.options import output_option, traceback_option
from toolkit.cli.screen import OutputFormat

__all__ = ["runs_group"]

_log_option = click.option(
    "--log",
    default="runs",
    show_default=True,
    metavar="PLACE",
    help="Where the runs are: a folder, an SQLite file, or the URL of a database of durable runs.",
)
_run_argument = click.argument("run", default="", metavar="[RUN]")


@click.group("runs")
def runs_group() -> None:
    """List, show, view and export runs that were written down.

    RUN is the beginning of the id of a run; without it, the newest is meant.
    """


@runs_group.command("list")
@_log_option
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, the newest first.")
@output_option
@traceback_option
def list_runs_command(log: str, limit: int, output: OutputFormat) -> int:
    """List the runs, the newest first."""
    from toolkit.cli.run_reading import list_runs  # noqa: PLC0415 - see the docstring of `commands`

    return list_runs(log, limit, output)


@runs_group.command("show")
@_run_argument
@_log_option
@output_option
@traceback_option
def show_run_command(run: str, log: str, output: OutputFormat) -> int:
    """Show what happened in a run, step by step."""
    from toolkit.cli.run_reading import show_run  # noqa: PLC0415 - see the docstring of `commands`

    return show_run(log, run, output)


@runs_group.command("export")
@_run_argument
@_log_option
@click.option(
    "--as",
    "form",
    type=click.Choice(["lines", "markdown", "test"]),
    default="lines",
    show_default=True,
    help="JSON lines, a page to read, or a test that plays the run again.",
)
@output_option
@traceback_option
def export_run_command(run: str, log: str, form: Any, output: OutputFormat) -> int:
    """Write a run to standard output, for other programs, people or pytest."""
    from toolkit.cli.run_reading import export_run  # noqa: PLC0415 - see the docstring of `commands`

    return export_run(log, run, form, output)


@runs_group.command("view")
@_log_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where to listen on loopback; 0 takes a free one."
)
@output_option
@traceback_option
def view_runs_command(log: str, port: int, output: OutputFormat) -> int:
    """Show the runs on a page in the browser, also while they go on; nothing leaves this machine."""
    from toolkit.cli.run_reading import view_runs  # noqa: PLC0415 - see the docstring of `commands`

    return view_runs(log, port, output)
