"""Long work, told on standard error: a bar on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Steps"]


class Steps:
    """The steps of a long piece of work; leave the block to take the bar away.

    ::

        with Steps() as steps:
            steps.begin("reading the document")
            steps.begin("making tools", total=1000)
            steps.advance(10, 1000)

    Args:
        is_shown: False shows nothing.
    """

    def __init__(self, *, is_shown: bool = True) -> None:
        self._is_shown = is_shown
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def begin(self, text: str, *, total: int | None = None) -> None:
        """Begin a step, in the place of the one before.

        Args:
            text: The step, in words of this program: nothing that a server or a model has said.
            total: How many pieces it has; None where nobody knows.
        """
        if not self._is_shown or text == self._text:
            return
        self._text = text
        if not sys.stderr.isatty():
            click.echo(text if total is None else f"{text} ({total:,})", err=True)
            return
        bar = self._bar = self._bar or _start_bar()
        if self._task is not None:
            bar.remove_task(self._task)
        self._task = bar.add_task(text, total=total)

    def advance(self, done: int, total: int | None = None) -> None:
        """Show how many pieces of the step are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None


def _start_bar() -> Progress:
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn  # noqa: PLC0415

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        console=Console(stderr=True, highlight=False),
        transient=True,
    )
    bar.start()
    return bar
