"""Anthropic's messages, on the official SDK, for every server that speaks them."""

try:
    from toolkit.providers.anthropic.client import AnthropicOptions, AnthropicProvider
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed: `pip install 'toolkit-sdk[anthropic]'`", name=error.name
    ) from error

__all__ = ["AnthropicOptions", "AnthropicProvider"]
