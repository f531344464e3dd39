"""The half of a tool that a model sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ToolDefinition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """What a model is told about a tool.

    Args:
        name: Matches ``^[A-Za-z0-9_-]{1,64}$``.
        description: When to use it and what it gives.
        parameters: A JSON Schema of type object.
        output_schema: A JSON Schema of what it returns, where that is structured.
        strict: Whether providers that can should hold the model to `parameters` exactly.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    strict: bool = False
