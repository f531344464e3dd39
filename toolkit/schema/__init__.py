"""Functions to JSON Schema, and JSON back to what functions take; knows nothing of tools or models."""

from toolkit.schema.arguments import ArgumentsParser, MalformedJsonError
from toolkit.schema.function_schema import FunctionSchema, function_schema
from toolkit.schema.projections import anthropic, anthropic_strict, gemini, openai_strict
from toolkit.schema.raw import raw_arguments
from toolkit.schema.scopes import find_local_names
from toolkit.schema.signature import kind_of

__all__ = [
    "anthropic",
    "anthropic_strict",
    "ArgumentsParser",
    "find_local_names",
    "function_schema",
    "FunctionSchema",
    "gemini",
    "kind_of",
    "MalformedJsonError",
    "openai_strict",
    "raw_arguments",
]
