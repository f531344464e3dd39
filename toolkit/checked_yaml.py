"""YAML files that people write: read under bounds, checked by type, and told of in the words that tools use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolkit.bounded_yaml import load_yaml
from toolkit.errors import ConfigurationError, InvalidArgumentsError
from toolkit.schema import function_schema

__all__ = ["check_sections", "read_yaml_file"]

_MOST_FILE_BYTES = 1_000_000


def read_yaml_file(path: Path, *, needed_by: str, extra: str = "config", most_parts: int = 10_000) -> Any:
    """Return what a YAML file says.

    Args:
        path: The file.
        needed_by: The function that needs PyYAML, for the error.
        extra: The extra that brings PyYAML.
        most_parts: How many values and keys the file may hold.

    Raises:
        ConfigurationError: It can't be read, has more than a million bytes, or is no YAML.
        ModuleNotFoundError: PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{needed_by} needs PyYAML: `pip install 'toolkit-sdk[{extra}]'`", name=error.name
        ) from error
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise ConfigurationError(f"{path} can't be read: it has more than {_MOST_FILE_BYTES:,} bytes")
        return load_yaml(path.read_text(encoding="utf-8"), most_parts=most_parts)
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
        ConfigurationError: A section is not of its type, is missing or unknown; the error says each problem's place.
    """
    try:
        return function_schema(reader).arguments.parse(sections)
    except InvalidArgumentsError as error:
        _, *problems, _ = error.message.split("\n")  # without what is said to a model alone
        raise ConfigurationError("\n".join([f"{path} can't be used:", *problems])) from error
