"""OpenAI's chat completions, on the official SDK, for every server that speaks them."""

try:
    from toolkit.providers.openai.chat import OpenAIProvider
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed: `pip install 'toolkit-sdk[openai]'`", name=error.name
    ) from error

__all__ = ["OpenAIProvider"]
