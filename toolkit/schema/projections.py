"""The canonical schema of a tool as each provider accepts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["anthropic", "gemini", "openai_strict"]


def openai_strict(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what OpenAI's strict mode accepts."""
    return dict(parameters)


def anthropic(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Anthropic accepts."""
    return dict(parameters)


def gemini(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Gemini accepts."""
    return dict(parameters)
