"""Chat completions: OpenAI's, and those of every server that speaks them."""

from toolkit.providers.openai.chat.provider import OpenAIProvider

__all__ = ["OpenAIProvider"]
