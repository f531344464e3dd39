"""Responses: OpenAI's format for models that reason, and of the servers that speak it."""

from toolkit.providers.openai.responses.provider import OpenAIResponsesProvider

__all__ = ["OpenAIResponsesProvider"]
