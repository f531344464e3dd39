"""Checks of what a developer sets, so that a slip is told where it was made and not in the middle of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, cast

from toolkit.errors import ConfigurationError

__all__ = ["FUNCTION", "Duration", "Kind", "check_backoff", "check_setting", "check_settings", "shown", "to_seconds"]

Duration: TypeAlias = float | timedelta
"""Seconds, or a `timedelta`."""

Kind: TypeAlias = type | str | None
"""A type, a word that may be chosen, or None."""

FUNCTION = cast("type", Callable)

_WORDS: dict[Kind, str] = {
    None: "None",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    timedelta: "a timedelta",
    FUNCTION: "a function",
    Mapping: "a mapping",
    Iterable: "a list or the like",
    Collection: "a list or the like",
    Sequence: "a list",
}


def check_setting(
    name: str, value: object, *kinds: Kind, least: float | None = None, most: float | None = None
) -> None:
    """Refuse a value that is of none of these kinds; True and False are no numbers, whole numbers are `float` too.

    Args:
        name: As a developer would look for it.
        value: What was set.
        kinds: What fits.
        least: The smallest number that does.
        most: The largest.

    Raises:
        ConfigurationError: Says what would fit.
    """
    for kind in kinds:
        if _fits(value, kind):
            break
    else:
        words = [_word(kind) for kind in kinds]
        fitting = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
        raise ConfigurationError(f"{name} must be {fitting}, not {shown(value)}")
    if least is None or not isinstance(value, (int, float)):
        return
    if not least <= value <= (math.inf if most is None else most):
        limits = f"{least:g} or more" if most is None else f"between {least:g} and {most:g}"
        raise ConfigurationError(f"{name} must be {limits}, not {value:g}")


def check_settings(
    settings: object, kinds: Mapping[str, tuple[Kind, ...]], least: Mapping[str, float] | None = None
) -> None:
    """Do what `check_setting` does for each attribute that `kinds` names.

    Raises:
        ConfigurationError: Says which one is wrong, and what would fit.
    """
    limits = least or {}
    for name, fitting in kinds.items():
        value = getattr(settings, name)
        if type(value) in fitting and name not in limits:
            continue  # a fifth of the time, for most
        if value is not None or None not in fitting:
            check_setting(name, value, *fitting, least=limits.get(name))


def check_backoff(retry: Any) -> None:
    """Check the settings that every configuration of retries has.

    Raises:
        ConfigurationError: Says which one is wrong, and what would fit.
    """
    check_setting("max_retries", retry.max_retries, int, least=0)
    for name in ("initial_backoff", "max_backoff", "backoff_multiplier"):
        check_setting(name, getattr(retry, name), float, least=0)
    check_setting("jitter", retry.jitter, float, least=0, most=1)


def to_seconds(duration: Duration | None, name: str) -> float | None:
    """Return seconds.

    Raises:
        ConfigurationError: It is not above zero, or no time; `name` names the setting.
    """
    if duration is None:
        return None
    check_setting(name, duration, float, timedelta)
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not seconds > 0:
        raise ConfigurationError(f"{name} must be more than 0 seconds, not {seconds:g}")
    return seconds


def shown(value: object) -> str:
    """Return how an error names a value: plain ones as they are, of others no more than their type."""
    if value is None or isinstance(value, (str, int, float)):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:80]}..."
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    return _named(type(value))


def _fits(value: object, kind: Kind) -> bool:
    if kind is None or isinstance(kind, str):
        return value is kind or (isinstance(value, str) and value == kind)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


def _word(kind: Kind) -> str:
    return _WORDS.get(kind) or (repr(kind) if isinstance(kind, str) else _named(kind or object))


def _named(kind: type) -> str:
    name = kind.__qualname__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
