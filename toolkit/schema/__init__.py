"""Functions to JSON Schema, and JSON back to what functions take; knows nothing of tools or models."""

from toolkit.schema.arguments import ArgumentsParser, MalformedJsonError
from toolkit.schema.function_schema import FunctionSchema, function_schema
from toolkit.schema.projections import (
    project_anthropic,
    project_anthropic_strict,
    project_gemini,
    project_openai_strict,
)
from toolkit.schema.raw import raw_arguments
from toolkit.schema.signature import find_local_names, kind_of, read_signature

__all__ = [
    "ArgumentsParser",
    "find_local_names",
    "function_schema",
    "FunctionSchema",
    "kind_of",
    "MalformedJsonError",
    "project_anthropic",
    "project_anthropic_strict",
    "project_gemini",
    "project_openai_strict",
    "raw_arguments",
    "read_signature",
]
