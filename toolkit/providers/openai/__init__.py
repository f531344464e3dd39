"""OpenAI on the official SDK: chat completions, for every server that speaks them, and responses."""

from toolkit.errors import naming_extra

with naming_extra("openai"):
    from toolkit.providers.openai.chat import OpenAIProvider
    from toolkit.providers.openai.client import ChatOptions, OpenAISettings, ResponsesOptions
    from toolkit.providers.openai.responses import OpenAIResponsesProvider

__all__ = ["ChatOptions", "OpenAIProvider", "OpenAIResponsesProvider", "OpenAISettings", "ResponsesOptions"]
