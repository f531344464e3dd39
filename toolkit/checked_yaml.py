"""Loads YAML within limits, checks configuration files by type, and replaces variables in them.

Without limits, a few lines can expand beyond all memory, or take very long to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from toolkit.errors import ConfigurationError, InvalidArgumentsError, naming_extra
from toolkit.redaction import without_secrets
from toolkit.schema import function_schema
from toolkit.schema.nodes import is_array, is_object
from toolkit.schema.problems import value_at

_MOST_FILE_BYTES = 1_000_000
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_DEEPEST = 200
_TOO_DEEP = f"it is nested more than {_DEEPEST} deep"
_MOST_ALIASES = 10_000
_MOST_MERGED = 500_000  # entries; unlike aliases, merge keys make copies
_LONG_NUMBER = re.compile(r"[-+0-9_:.,eExXoObBa-fA-F]{1000,}")
_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_LONG_KEY = 17
_MOST_LONG_KEYS = 1_000
_BOOLEAN_WORDS = "YAML reads yes, no, on and off as true and false: write them in quotes where they are words."


def read_yaml_file(path: Path, *, most_parts: int = 5_000) -> Any:
    """Return the value of a YAML file.

    Args:
        path: The file.
        most_parts: How many values and keys the file may hold.

    Raises:
        ConfigurationError: It can't be read, has more than a million bytes, is not YAML, or has a repeated key or one
            that YAML takes for true or false.
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


def check_sections(
    sections: Mapping[str, Any], reader: Callable[..., None], path: Path, *, secrets: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the sections of a file as objects of the types that the parameters of `reader` have.

    ::

        def read(tools: ToolConfig) -> None: ...

        config = check_sections({"tools": content["tools"]}, read, path)["tools"]

    Args:
        sections: The content of the file, by the name of a parameter.
        reader: A function that is not called; its hints and defaults are those of the sections.
        path: The file, for errors.
        secrets: The texts that errors do not show.

    Raises:
        ConfigurationError: A section is not of its type, is missing or unknown; the error gives the place of each
            problem.
    """
    try:
        return function_schema(reader).arguments.parse(sections)
    except InvalidArgumentsError as error:
        has_booleans = any(isinstance(value_at(sections, place), bool) for place in error.paths)
        words = [_BOOLEAN_WORDS] if has_booleans else []
        lines = [without_secrets(line, secrets) for line in error.lines]
        raise ConfigurationError("\n".join([f"{path} can't be used:", *lines, *words])) from None


class YamlTooLargeError(ValueError):
    """A document is nested too deeply, or expands to too much."""


class UnclearKeyError(ValueError):
    """A key of a mapping is repeated, or is a word that YAML takes for true or false."""


def load_yaml(
    text: str, loader: type[Any] | None = None, *, most_parts: int = 100_000, has_clear_keys: bool = False
) -> Any:
    """Return the value of a YAML document, of safe types only.

    Args:
        text: The document.
        loader: A safe loader of PyYAML; None for its fastest one.
        most_parts: How many values and keys it may hold; those repeated by aliases count each time.
        has_clear_keys: True refuses repeated keys, of which YAML takes the last, and keys such as ``on``, which YAML
            takes for true.

    Raises:
        YamlTooLargeError: It holds more, has more than 10,000 aliases, merges more than 500,000 entries, or is nested
            more than 200 deep.
        UnclearKeyError: A key is ambiguous.
        yaml.YAMLError: It is not YAML.
        ValueError: A value does not fit its tag.
    """
    import yaml  # noqa: PLC0415 - an extra

    safe = cast("Any", loader or getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    bounded = _make_bounded_loader(safe)(text, most_parts, has_clear_keys=has_clear_keys)
    try:
        root = bounded.get_single_node()
        return None if root is None else bounded.construct_document(root)
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in (error.problem or ""):  # a limit of libyaml, which reads ahead
            raise YamlTooLargeError(_TOO_DEEP) from error
        raise
    except (yaml.YAMLError, ValueError):
        raise
    except Exception as error:  # such as `!!timestamp x`, which the loader does not expect
        raise ValueError(f"a value in it is not what its tag says: {type(error).__name__}") from error
    finally:
        bounded.dispose()


@cache
def _make_bounded_loader(safe: Any) -> Any:
    """Return a loader that stops at the first part that is too much, while it composes the document."""
    import yaml  # noqa: PLC0415 - an extra
    from yaml.composer import Composer  # noqa: PLC0415

    # The C loader composes by itself, without a place to stop it.
    base: Any = safe if issubclass(safe, Composer) else type("ComposingLoader", (Composer, safe), {})

    class BoundedLoader(base):  # type: ignore[misc]  # its class is known at run time only
        flatten_mapping = _bound_merges(base.flatten_mapping)

        def __init__(self, text: str, most_parts: int, *, has_clear_keys: bool) -> None:
            cast("Any", safe).__init__(self, text)
            self.anchors: dict[str, Any] = {}
            self._most_sizes = 2 * most_parts
            self._has_clear_keys = has_clear_keys
            self._aliases = self._parts = self.merged = 0
            self._open: list[int] = []  # the sizes of the open collections so far
            self._sizes: dict[int, int] = {}  # the expanded size of each node, by its id

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = self.peek_event()
            self._check_event(event)
            self._open.append(1)
            node: Any = base.compose_node(self, parent, index)
            size = self._open.pop()
            if isinstance(event, yaml.AliasEvent):
                if id(node) not in self._sizes:
                    raise YamlTooLargeError("an alias refers to a node that contains it")
                size = self._sizes[id(node)]
            self._sizes[id(node)] = size
            if self._open:
                self._open[-1] += size
            if size > self._most_sizes:
                raise YamlTooLargeError(f"its aliases stand for more than {self._most_sizes // 2:,} values")
            if node.id == "mapping":
                _check_keys(node, are_clear=self._has_clear_keys)
            return node

        def _check_event(self, event: Any) -> None:
            self._parts += 1
            self._aliases += isinstance(event, yaml.AliasEvent)
            if self._parts > self._most_sizes or self._aliases > _MOST_ALIASES:
                raise YamlTooLargeError(
                    f"it holds more than {self._most_sizes // 2:,} values, or {_MOST_ALIASES:,} aliases"
                )
            if isinstance(event, yaml.CollectionStartEvent) and len(self._open) >= _DEEPEST:
                raise YamlTooLargeError(_TOO_DEEP)
            if isinstance(event, yaml.ScalarEvent) and not event.style and _LONG_NUMBER.fullmatch(event.value):
                raise YamlTooLargeError(f"a number has {len(event.value):,} characters")

    return BoundedLoader


def _bound_merges(flatten: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a loader's `flatten_mapping` that stops where the merge keys have made too many copies."""

    def flatten_mapping(loader: Any, node: Any) -> None:
        own = len(node.value)
        flatten(loader, node)
        loader.merged += len(node.value) - own
        if loader.merged > _MOST_MERGED:
            raise YamlTooLargeError(f"its merge keys stand for more than {_MOST_MERGED:,} entries")

    return flatten_mapping


def _check_keys(mapping: Any, *, are_clear: bool) -> None:
    # Numbers beyond 2**61 may all have the same hash: an object of as many keys takes the square of their time.
    numbers = [key for key, _ in mapping.value if key.tag in _NUMBERS and len(key.value) >= _LONG_KEY]
    if len(numbers) > _MOST_LONG_KEYS:
        raise YamlTooLargeError(f"it has more than {_MOST_LONG_KEYS:,} keys that are numbers of {_LONG_KEY} characters")
    if not are_clear:
        return
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


def expand_variables(value: Any, environment: Mapping[str, str], place: str, used: set[str] | None = None) -> Any:
    """Return a value with ``${NAME}``, ``${env:NAME}`` and ``${NAME:-default}`` in its texts replaced.

    Args:
        value: Read from a file.
        environment: The variables.
        place: Where it stands, for errors.
        used: Receives the values of the variables that were replaced.

    Raises:
        ConfigurationError: A variable is not set, and has no default.
    """
    used = set() if used is None else used
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _read_variable(found, environment, place, used), value)
    if is_object(value):
        return {key: expand_variables(inner, environment, f"{place}.{key}", used) for key, inner in value.items()}
    if is_array(value):
        return [expand_variables(inner, environment, f"{place}.{number}", used) for number, inner in enumerate(value)]
    return value


def _read_variable(found: re.Match[str], environment: Mapping[str, str], place: str, used: set[str]) -> str:
    name, default = found[1], found[2]
    value = environment.get(name)
    if not value and default is not None:
        return default
    if value is None:
        raise ConfigurationError(
            f"{place} needs the environment variable {name}, which is not set: set it, or write ${{{name}:-default}}"
        )
    used.add(value)
    return value
