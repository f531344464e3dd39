"""The half of a tool that a model sees."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolkit.dataclass import dataclass
from toolkit.schema import project_openai_strict

__all__ = ["ToolDefinition", "copy_definition", "openai_strict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """The definition of a tool: the half of it that a model sees.

    Args:
        name: Matches ``^[A-Za-z0-9_-]{1,64}$``.
        description: When to use it and what it gives.
        parameters: A JSON Schema of type object.
        output_schema: A JSON Schema of what it returns, where that is structured.
        strict: True where providers that can should hold the model to `parameters` exactly.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    strict: bool = False


def copy_definition(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition for somebody who may change what it holds."""
    parameters, output_schema = copy.deepcopy((definition.parameters, definition.output_schema))
    return replace(definition, parameters=parameters, output_schema=output_schema)


def openai_strict(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition with the variant of its schema that OpenAI's strict mode accepts.

    Every property becomes required, what could be left out becomes nullable, and keywords that the mode does not know
    are left out; a null that comes back for such a property is read as left out. The registry still validates against
    the whole schema.

    Raises:
        SchemaError: No such variant says the same; names the place and the reason.
    """
    parameters = project_openai_strict(dict(definition.parameters), subject=f"tool '{definition.name}'")
    return replace(definition, parameters=parameters, strict=True)
