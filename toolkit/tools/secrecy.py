"""What must not be seen: values whose names tell of secrets, struck out of whatever a program or a server says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from toolkit.chat import TextBlock
from toolkit.schema.nodes import is_array, is_object
from toolkit.tools.output import ToolOutput

__all__ = [
    "Redact",
    "program_name",
    "redacted",
    "secrets_in_arguments",
    "secrets_of",
    "without_credentials",
    "without_secrets",
]

Redact = Callable[[str], str]
"""Returns a text without secrets."""

_TELLS = re.compile(r"auth|key|token|secret|cookie|session|password|credential", re.IGNORECASE)
_SETTINGS = frozenset({"true", "false", "none", "null", "default", "auto", "basic", "bearer", "disabled", "enabled"})
_PROGRAM = re.compile(r"[\w@./][\w@./-]*")
_RUNNER = re.compile(
    r"(npx|uvx|uv|pipx|node|deno|bun|bunx|python[0-9.]*|ruby|perl|php|java|bash|sh|zsh|pwsh)(\.exe)?", re.IGNORECASE
)
_OF_RUNNERS = ("-y", "--yes", "-m", "-u", "-jar", "run", "tool")


def secrets_of(values: Mapping[str, str]) -> list[str]:
    """Return the values whose names tell of secrets, such as headers or variables, also without a ``Bearer`` before.

    One that only says how something is set, such as ``true``, is none: struck out, it would spoil other words.
    """
    secrets = [value for name, value in values.items() if _TELLS.search(name) and value.lower() not in _SETTINGS]
    return [*secrets, *(value.rpartition(" ")[2] for value in secrets)]


def secrets_in_arguments(arguments: Sequence[str]) -> list[str]:
    """Return what a command line says after an option such as ``--api-key``, or as ``--api-key=...``."""
    found: list[str] = []
    for option, value in pairwise([*arguments, ""]):
        name, equals, joined = option.partition("=")
        if name.startswith("-"):
            found += secrets_of({name: joined if equals else value})
    return found


def without_secrets(text: str, secrets: Iterable[str], *, shown: str = "***", shortest: int = 4) -> str:
    """Return a text with each secret struck out.

    Args:
        text: It may hold secrets.
        secrets: What to strike out.
        shown: What stands in their place.
        shortest: Shorter ones than that many characters would be found in everything, and are left.
    """
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= shortest:
            text = text.replace(secret, shown)
    return text


def without_credentials(url: str) -> str:
    """Return a URL as errors may show it: no user, password, query or fragment."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def redacted(output: ToolOutput, redact: Redact) -> ToolOutput:
    """Strike secrets out of an output's text and details, and return it."""
    if isinstance(output.content, str):
        output.content = redact(output.content)
    else:
        output.content = tuple(
            TextBlock(redact(block.text)) if isinstance(block, TextBlock) else block for block in output.content
        )
    output.details = _redacted(output.details, redact)
    return output


def _redacted(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if is_object(value):
        return {name: _redacted(inner, redact) for name, inner in value.items()}
    if is_array(value):
        return [_redacted(inner, redact) for inner in value]
    return value


def program_name(command: str, arguments: Sequence[str]) -> str:
    """Return a name that can hold no secret: of the arguments only that which a runner of programs runs."""
    program = PurePath(command).name
    if _RUNNER.fullmatch(program):
        first = next((argument for argument in arguments if argument not in _OF_RUNNERS), "")
        if _PROGRAM.fullmatch(first):
            return PurePath(first).name
    return program
