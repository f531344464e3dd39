"""OpenAI on the official SDK: chat completions, for every server that speaks them, and responses."""

try:
    from toolkit.providers.openai.chat import OpenAIProvider
    from toolkit.providers.openai.client import ChatOptions, ResponsesOptions
    from toolkit.providers.openai.responses import OpenAIResponsesProvider
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed: `pip install 'toolkit-sdk[openai]'`", name=error.name
    ) from error

__all__ = ["ChatOptions", "OpenAIProvider", "OpenAIResponsesProvider", "ResponsesOptions"]
