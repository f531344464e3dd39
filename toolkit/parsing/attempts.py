"""How much patience a model needs that writes its calls as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from toolkit.errors import ConfigurationError

__all__ = ["ParsingLimits"]

_LARGE_MODELS = frozenset({"gpt-4", "gpt-4o", "o1-preview", "o1-mini", "o1", "o3", "o3-mini"})
# What stands behind a model's name: the day of its release, or that it is the latest one.
_MODEL_VERSION = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)\Z")


@dataclass(frozen=True, slots=True)
class ParsingLimits:
    """How often a call may be unreadable, and how often the model is told again how to write one.

    Args:
        max_parsing_attempts: How many replies in a row may hold calls that can't be read, the first one included.
        remember_format_after_usages: After how many results each the format is told again.

    Raises:
        ConfigurationError: One of them is less than 1.
    """

    max_parsing_attempts: int = 3
    remember_format_after_usages: int = 3

    def __post_init__(self) -> None:
        for name in ("max_parsing_attempts", "remember_format_after_usages"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")

    @classmethod
    def for_model(
        cls, model: str, max_parsing_attempts: int | None = None, remember_format_after_usages: int | None = None
    ) -> Self:
        """Return what is given, and where it is None what suits the model: 2 and 4 for large ones, else 3 and 3.

        A provider before the name of a model, and a version behind it, make no other model of it.
        """
        names = [_MODEL_VERSION.sub("", part) for part in re.split(r"[/:]", model.casefold())]
        attempts, usages = (3, 3) if _LARGE_MODELS.isdisjoint(names) else (2, 4)
        return cls(
            attempts if max_parsing_attempts is None else max_parsing_attempts,
            usages if remember_format_after_usages is None else remember_format_after_usages,
        )
