"""YAML from elsewhere, read under bounds, and files that people write: checked by type, with variables replaced.

Without bounds, a few lines can expand to more than any memory holds, or take very long to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from toolkit.errors import ConfigurationError, InvalidArgumentsError, naming_extra
from toolkit.schema import function_schema
from toolkit.schema.nodes import is_array, is_object

_MOST_FILE_BYTES = 1_000_000
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_BOOLEAN_WORDS = "YAML reads yes, no, on and off as true and false: write them in quotes where they are words."
_BOOLEAN_MET = re.compile(r": got (?:the boolean )?(?:true|false)\b")


def read_yaml_file(path: Path, *, most_parts: int = 5_000) -> Any:
    """Return the value of a YAML file.

    Args:
        path: The file.
        most_parts: How many values and keys the file may hold.

    Raises:
        ConfigurationError: It can't be read, has more than a million bytes, is no YAML, or has a key that is there
            twice or that YAML takes for true or false.
        ModuleNotFoundError: PyYAML is not installed.
    """
    with naming_extra("config"):
        import yaml  # noqa: PLC0415 - an extra
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise ConfigurationError(f"{path} can't be read: it has more than {_MOST_FILE_BYTES:,} bytes")
        return load_yaml(path.read_text(encoding="utf-8"), most_parts=most_parts, has_clear_keys=True)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from error


def check_sections(sections: Mapping[str, Any], reader: Callable[..., None], path: Path) -> dict[str, Any]:
    """Return the sections of a file as objects of the types that the parameters of `reader` have.

    ::

        def read(tools: ToolConfig) -> None: ...

        config = check_sections({"tools": content["tools"]}, read, path)["tools"]

    Args:
        sections: The content of the file, by the name of a parameter.
        reader: A function that is not called; its hints and defaults are those of the sections.
        path: The file, for errors.

    Raises:
        ConfigurationError: A section is not of its type, is missing or unknown; the error gives the place of each
            problem.
    """
    try:
        return function_schema(reader).arguments.parse(sections)
    except InvalidArgumentsError as error:
        _, *problems, _ = error.message.split("\n")  # without the hint that is only for a model
        if any(_BOOLEAN_MET.search(problem) for problem in problems):
            problems.append(_BOOLEAN_WORDS)
        raise ConfigurationError("\n".join([f"{path} can't be used:", *problems])) from error


_DEEPEST = 200
_TOO_DEEP = f"it is nested more than {_DEEPEST} deep"
_MOST_ALIASES = 10_000
_LONG_NUMBER = re.compile(r"[-+0-9_:.,eExXoObBa-fA-F]{1000,}")


class YamlTooLargeError(ValueError):
    """A document is nested too deeply, or expands to too much."""


class UnclearKeyError(ValueError):
    """A key of a mapping is there twice, or is a word that YAML takes for true or false."""


def load_yaml(
    text: str, loader: type[Any] | None = None, *, most_parts: int = 100_000, has_clear_keys: bool = False
) -> Any:
    """Return the value of a YAML document, of safe types only.

    Args:
        text: The document.
        loader: A safe loader of PyYAML's; None takes its own.
        most_parts: How many values and keys it may hold, those that aliases and merges repeat counted each time.
        has_clear_keys: True refuses keys that are there twice, of which YAML takes the last, and keys such as ``on``,
            which YAML takes for true.

    Raises:
        YamlTooLargeError: It contains more, has more than 10,000 aliases, or is nested more than 200 deep.
        UnclearKeyError: A key is unclear.
        yaml.YAMLError: It is no YAML.
        ValueError: A value in it can't be.
    """
    import yaml  # noqa: PLC0415 - an extra

    safe = cast("Any", loader or getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    made = safe("")
    try:
        root = _compose_node(text, safe, made, most_parts)
        if root is None:
            return None
        for node in _check_size(root, most_parts):
            if has_clear_keys:
                _check_keys(node)
        return made.construct_document(root)
    except (yaml.YAMLError, ValueError):
        raise
    except Exception as error:  # such as `!!timestamp x`, for which the loader's own code is not ready
        raise ValueError(f"a value in it is not what its tag says: {type(error).__name__}") from error
    finally:
        made.dispose()


def _compose_node(text: str, loader: Any, resolver: Any, most_parts: int) -> Any:
    """Return the root of a document, of which nothing is read behind the first thing that is too much."""
    from yaml.composer import Composer  # noqa: PLC0415 - an extra

    events = _check_events(text, loader, most_parts)

    class CheckedComposer(Composer):
        """Composes the events, which are all that it has of a loader, besides the meaning of words."""

        def __init__(self) -> None:
            super().__init__()
            self._following: Any = next(events)

        def peek_event(self) -> Any:
            return self._following

        def get_event(self) -> Any:
            event, self._following = self._following, next(events, None)
            return event

        def check_event(self, *choices: Any) -> bool:
            return isinstance(self._following, choices)

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            return resolver.resolve(kind, value, implicit)

        def descend_resolver(self, parent: Any, index: Any) -> None:
            resolver.descend_resolver(parent, index)

        def ascend_resolver(self) -> None:
            resolver.ascend_resolver()

    composer: Any = CheckedComposer()
    return composer.get_single_node()


def _check_events(text: str, loader: Any, most_parts: int) -> Iterator[Any]:
    import yaml  # noqa: PLC0415 - an extra

    depth = aliases = 0
    for parts, event in enumerate(_parse_events(text, loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        elif isinstance(event, yaml.ScalarEvent) and not event.style and _LONG_NUMBER.fullmatch(event.value):
            raise YamlTooLargeError(f"a number has {len(event.value):,} characters")
        if depth > _DEEPEST:
            raise YamlTooLargeError(_TOO_DEEP)
        if parts > 2 * most_parts or aliases > _MOST_ALIASES:
            raise YamlTooLargeError(f"it holds more than {most_parts:,} values, or {_MOST_ALIASES:,} aliases")
        yield event


def _parse_events(text: str, loader: Any) -> Iterator[Any]:
    """Yield the events of a document; the parser reads ahead and, since libyaml 0.2.6, has a limit of 1,000 levels."""
    import yaml  # noqa: PLC0415 - an extra

    try:
        yield from yaml.parse(text, loader)
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in (error.problem or ""):
            raise YamlTooLargeError(_TOO_DEEP) from error
        raise


def _check_size(root: Any, most_parts: int) -> Iterator[Any]:
    """Count the expanded size of a document, each node once however often it is referenced; a cycle has no end.

    Yields:
        Each mapping, behind what is in it.
    """
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
            if isinstance(node, yaml.MappingNode):
                yield node
        elif id(node) not in sizes:
            if id(node) in open_nodes:
                raise YamlTooLargeError("an alias refers to a node that contains it")
            open_nodes.add(id(node))
            waiting.append((node, True))
            waiting += [(child, False) for child in _children_of(node)]


def _children_of(node: Any) -> list[Any]:
    value = node.value
    return [part for pair in value for part in pair] if node.id == "mapping" else list(value)


def _check_keys(mapping: Any) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        if key.id != "scalar" or key.tag == "tag:yaml.org,2002:merge":
            continue
        line = key.start_mark.line + 1
        if key.tag == "tag:yaml.org,2002:bool" and key.value.lower() not in ("true", "false"):
            raise UnclearKeyError(f"the key '{key.value}' in line {line} is true or false to YAML: write it in quotes")
        if (before := lines.get((key.tag, key.value))) is not None:
            raise UnclearKeyError(f"the key '{key.value}' is there twice, in line {before} and in line {line}")
        lines[key.tag, key.value] = line


def expand_variables(value: Any, environment: Mapping[str, str], place: str) -> Any:
    """Return a value with ``${NAME}``, ``${env:NAME}`` and ``${NAME:-default}`` in its texts replaced.

    Args:
        value: Read from a file.
        environment: The variables.
        place: Where it stands, for errors.

    Raises:
        ConfigurationError: A variable is not set, and has no default.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _read_variable(found, environment, place), value)
    if is_object(value):
        return {key: expand_variables(inner, environment, f"{place}.{key}") for key, inner in value.items()}
    if is_array(value):
        return [expand_variables(inner, environment, f"{place}.{number}") for number, inner in enumerate(value)]
    return value


def _read_variable(found: re.Match[str], environment: Mapping[str, str], place: str) -> str:
    name, default = found[1], found[2]
    value = environment.get(name)
    if not value and default is not None:
        return default
    if value is None:
        raise ConfigurationError(
            f"{place} needs the environment variable {name}, which is not set: set it, or write ${{{name}:-default}}"
        )
    return value
