"""Arguments checked against a JSON Schema that we did not derive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.schema.arguments import ArgumentsParser, MalformedJsonError, canonical_json

__all__ = ["raw_arguments"]


def raw_arguments(parameters: Mapping[str, Any], *, subject: str) -> ArgumentsParser:
    """Return a parser for any JSON Schema of draft 2020-12 or 7.

    Raises:
        SchemaError: The schema is broken.
    """
    return RawArguments(parameters, subject=subject)


class RawArguments:
    """Arguments as plain JSON values."""

    def __init__(self, parameters: Mapping[str, Any], *, subject: str) -> None:
        import jsonschema

        kind = jsonschema.validators.validator_for(parameters, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(parameters)
        except jsonschema.SchemaError as error:
            raise SchemaError(subject, f"its parameters are not a JSON Schema: {error.message}") from error
        self._validator = kind(parameters)
        self.schema = parameters
        self.is_strict = False

    def parse_json(self, text: str) -> dict[str, Any]:
        if not text.strip():
            return self.parse({})
        try:
            value = json.loads(text)
        except ValueError as error:
            raise MalformedJsonError(f"The arguments are not valid JSON: {error}.") from None
        return self.parse(value)

    def parse(self, value: object) -> dict[str, Any]:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise InvalidArgumentsError("The arguments must be a JSON object.")
        problems = [f"- {error.json_path}: {error.message}" for error in self._validator.iter_errors(value)]
        if problems:
            raise InvalidArgumentsError("Invalid arguments:\n" + "\n".join(problems))
        return value

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        del reveal_secrets  # values that came as JSON hold none
        return canonical_json(arguments)
