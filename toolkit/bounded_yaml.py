"""YAML from elsewhere, read under bounds: a few lines can stand for more than any memory holds, or take for ever."""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["YamlTooLargeError", "load_yaml"]

_DEEPEST = 200
_MOST_ALIASES = 10_000
_LONG_NUMBER = re.compile(r"[-+0-9_:.,eExXoObBa-fA-F]{1000,}")


class YamlTooLargeError(ValueError):
    """A document is nested too deeply, or stands for too much."""


def load_yaml(text: str, loader: type[Any] | None = None, *, most_parts: int = 100_000) -> Any:
    """Return what a YAML document says, by the safe types alone.

    Args:
        text: The document.
        loader: A safe loader of PyYAML's; None takes its own.
        most_parts: How many values and keys it may hold, those that aliases and merges repeat counted each time.

    Raises:
        YamlTooLargeError: It holds more, has more than 10,000 aliases, or is nested more than 200 deep.
        yaml.YAMLError: It is no YAML.
        ValueError: A value in it can't be.
    """
    import yaml  # noqa: PLC0415 - an extra

    safe = cast("Any", loader or getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    _check_events(text, safe, most_parts)
    root = yaml.compose(text, safe)
    if root is None:
        return None
    _check_size(root, most_parts)
    made = safe("")
    try:
        return made.construct_document(root)
    except (yaml.YAMLError, ValueError):
        raise
    except Exception as error:  # such as `!!timestamp x`, for which the loader's own code is not ready
        raise ValueError(f"a value in it is not what its tag says: {type(error).__name__}") from error
    finally:
        made.dispose()


def _check_events(text: str, loader: Any, most_parts: int) -> None:
    """Read the document piece by piece, which ends at the first that is too much."""
    import yaml  # noqa: PLC0415 - an extra

    depth = aliases = 0
    for parts, event in enumerate(yaml.parse(text, loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        elif isinstance(event, yaml.ScalarEvent) and not event.style and _LONG_NUMBER.fullmatch(event.value):
            raise YamlTooLargeError(f"a number has {len(event.value):,} characters")
        if depth > _DEEPEST:
            raise YamlTooLargeError(f"it is nested more than {_DEEPEST} deep")
        if parts > 2 * most_parts or aliases > _MOST_ALIASES:
            raise YamlTooLargeError(f"it holds more than {most_parts:,} values, or {_MOST_ALIASES:,} aliases")


def _check_size(root: Any, most_parts: int) -> None:
    """Count what a document stands for, each node once however often it is meant; a circle stands for no end."""
    import yaml  # noqa: PLC0415 - an extra

    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(root, False)]
    while waiting:
        node, is_counted = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            sizes[id(node)] = 1
        elif is_counted:
            open_nodes.discard(id(node))
            sizes[id(node)] = size = 1 + sum(sizes[id(child)] for child in _children_of(node))
            if size > 2 * most_parts:
                raise YamlTooLargeError(f"its aliases stand for more than {most_parts:,} values")
        elif id(node) not in sizes:
            if id(node) in open_nodes:
                raise YamlTooLargeError("an alias stands for what it is a part of")
            open_nodes.add(id(node))
            waiting.append((node, True))
            waiting += [(child, False) for child in _children_of(node)]


def _children_of(node: Any) -> list[Any]:
    value = node.value
    return [part for pair in value for part in pair] if node.id == "mapping" else list(value)
