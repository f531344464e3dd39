"""OpenAI's chat completions, on the official SDK, for every server that speaks them."""

from toolkit.providers.openai.client import OpenAIProvider

__all__ = ["OpenAIProvider"]
