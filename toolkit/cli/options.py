"""The options that several commands have, and the words that they complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from toolkit.cli.completion import complete_source, complete_tool

__all__ = [
    "log_option",
    "output_option",
    "source_argument",
    "source_options",
    "sources_argument",
    "tool_argument",
    "traceback_option",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

output_option = click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    help="What standard output takes: text for people, or JSON for programs.",
)
log_option = click.option(
    "--log",
    type=click.Path(path_type=Path),
    metavar="PLACE",
    help="Write the run down there, for `toolkit runs`: a folder, or an SQLite file.",
)
traceback_option = click.option(
    "--traceback", is_flag=True, expose_value=False, help="Show the traceback of an error, too."
)
source_argument = click.argument("source", shell_complete=complete_source)
sources_argument = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_source
)
tool_argument = click.argument("name", shell_complete=complete_tool)

_SOURCE_OPTIONS = (
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a source may take to open, and an OpenAPI server to answer.",
    ),
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME",
        help="Give a program this variable of the environment; may be repeated.",
    ),
    click.option(
        "--token-env",
        "token_variable",
        default="",
        metavar="NAME",
        help="The variable that holds the token for a server at a URL.",
    ),
    click.option(
        "--base-url", default="", metavar="URL", help="Where the operations of an OpenAPI document are, if elsewhere."
    ),
)


def source_options(function: _Function) -> _Function:
    """Give a command the options with which sources are opened."""
    for option in reversed(_SOURCE_OPTIONS):
        function = option(function)
    return traceback_option(function)
