"""The half of a tool that a model sees, in the variant that a strict provider takes."""

import re

import pytest

from toolkit import tool
from toolkit.chat import openai_strict
from toolkit.errors import SchemaError


@tool
def search(topic: str, limit: int = 3) -> str:
    """Search.

    Args:
        topic: What about.
        limit: How many.
    """
    return topic * limit


@tool
def store(values: dict[str, int]) -> str:
    """Store values under names."""
    return str(values)


def test_a_definition_becomes_strict() -> None:
    strict = openai_strict(search.definition)
    assert strict.strict
    assert strict.parameters["required"] == ["topic", "limit"]
    assert strict.parameters["additionalProperties"] is False
    assert "null" in re.sub(r"\s", "", str(strict.parameters["properties"]["limit"]))
    assert search.definition.parameters["required"] == ["topic"]


def test_what_can_not_be_strict_says_why() -> None:
    with pytest.raises(SchemaError, match=r"tool 'store'.*values"):
        openai_strict(store.definition)
