"""The output of a command: text for people or JSON for programs, and never a character that a terminal would obey."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from typing import Any, Literal, TextIO, TypeAlias

import click

__all__ = ["OutputFormat", "Screen", "Style"]

OutputFormat: TypeAlias = Literal["text", "json"]
Style: TypeAlias = Literal["plain", "strong", "faint", "good", "bad", "call"]

_STYLE_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strong": {"bold": True},
    "faint": {"dim": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "call": {"fg": "cyan"},
}
_NARROWEST = 20


class Screen:
    """Standard output for what was asked for, standard error for all else.

    Whatever is written passes `strip_hidden`: texts of models, tools and servers can move no cursor and set no title.

    Args:
        output: The form of standard output: text or JSON.

    Attributes:
        is_json: True where standard output takes JSON.
        is_terminal: True where standard output is a terminal, for which text is wrapped.
    """

    def __init__(self, output: OutputFormat = "text") -> None:
        # Kept, since tools that print are sent to standard error.
        self._out: TextIO = sys.stdout
        self.is_json: bool = output == "json"
        self.is_terminal: bool = self._out.isatty()
        self._colour: bool | None = False if os.environ.get("NO_COLOR") else None
        self._is_at_start = True

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return max(shutil.get_terminal_size().columns, _NARROWEST)

    def say(self, text: str = "", style: Style = "plain") -> None:
        """Write a line to standard output; not in JSON mode, where `document` does."""
        if not self.is_json:
            self._write_text(f"{text}\n", style)

    def stream(self, text: str, style: Style = "plain") -> None:
        """Write a piece of a line at once."""
        if not self.is_json and text:
            self._write_text(text, style)

    def end_line(self) -> None:
        """Begin a new line, where something stands on this one."""
        if not self._is_at_start:
            self.say()

    def paragraph(self, text: str, *, indent: int = 0, style: Style = "plain") -> None:
        """Write text in lines that fit the terminal; elsewhere the lines are as they are."""
        from toolkit.visible_text import strip_hidden  # noqa: PLC0415 - as in all of this package

        before = " " * indent
        for line in strip_hidden(text).split("\n"):
            if self.is_terminal and len(line) + indent > self.width:
                line = textwrap.fill(line, self.width, initial_indent=before, subsequent_indent=before)  # noqa: PLW2901
                self.say(line, style)
            else:
                self.say(f"{before}{line}".rstrip(), style)

    def document(self, value: Any, *, is_line: bool = False) -> None:
        """Write a JSON document to standard output, or a line of JSON."""
        from toolkit.visible_text import escape_in_json  # noqa: PLC0415 - as in all of this package

        text = json.dumps(value, ensure_ascii=False, indent=None if is_line else 2, default=str)
        click.echo("\n".join(map(escape_in_json, text.split("\n"))), file=self._out)
        self._out.flush()

    def note(self, text: str, style: Style = "faint") -> None:
        """Write a line to standard error."""
        from toolkit.visible_text import strip_hidden  # noqa: PLC0415 - as in all of this package

        if not self.is_json:
            self.end_line()
        click.echo(_paint_text(strip_hidden(text), style), err=True, color=self._colour)

    def _write_text(self, text: str, style: Style) -> None:
        from toolkit.visible_text import strip_hidden  # noqa: PLC0415 - as in all of this package

        plain = strip_hidden(text)
        if plain:
            self._is_at_start = plain.endswith("\n")
            click.echo(_paint_text(plain, style), file=self._out, nl=False, color=self._colour)
            self._out.flush()


def _paint_text(text: str, style: Style) -> str:
    return click.style(text, **_STYLE_OPTIONS[style]) if _STYLE_OPTIONS[style] else text
