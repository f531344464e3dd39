"""The command ``worker``: it moves durable runs until it is told to end."""

from __future__ import annotations

import click

from toolkit.cli.options import output_option, traceback_option
from toolkit.cli.screen import OutputFormat

__all__ = ["worker_command"]

_SECONDS = click.FloatRange(min=0)


@click.command("worker")
@click.argument("loops", nargs=-1, required=True, metavar="LOOP...")
@click.option(
    "--database",
    required=True,
    envvar="TOOLKIT_DATABASE",
    metavar="URL",
    help="Where the runs are: sqlite:///runs.db, or postgresql://... for many machines. Also TOOLKIT_DATABASE.",
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=100, show_default=True, help="Runs of each loop that move at once."
)
@click.option(
    "--lease",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Seconds without a sign after which a worker is taken for dead.",
)
@click.option(
    "--grace", type=_SECONDS, default=10.0, show_default=True, help="Seconds that runs have to come to rest at the end."
)
@click.option("--keep-days", type=_SECONDS, default=None, help="Delete runs that ended so many days ago.")
@click.option("--encryption", metavar="NAME", default="", help="An `Encryption`, as in app:encryption.")
@output_option
@traceback_option
def worker_command(
    loops: tuple[str, ...],
    database: str,
    concurrency: int,
    lease: float,
    grace: float,
    keep_days: float | None,
    encryption: str,
    output: OutputFormat,
) -> int:
    """Move durable runs of each LOOP until SIGTERM or Ctrl-C.

    LOOP is what durable_loop returned, as in app:support or app.py:support; app alone means all in it.
    """
    from toolkit.cli.working import WorkerSettings, run_worker  # noqa: PLC0415 - see the docstring of `commands`

    settings = WorkerSettings(
        database=database,
        concurrency=concurrency,
        lease=lease,
        grace=grace,
        keep_days=keep_days,
        encryption=encryption,
        output=output,
    )
    return run_worker(loops, settings)
