"""Anthropic's messages, on the official SDK, for every server that speaks them."""

from toolkit.errors import naming_extra

with naming_extra("anthropic"):
    from toolkit.providers.anthropic.client import AnthropicOptions, AnthropicProvider

__all__ = ["AnthropicOptions", "AnthropicProvider"]
