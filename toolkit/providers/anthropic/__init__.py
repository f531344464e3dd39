"""Anthropic's messages, on the official SDK, for every server that speaks them; also on Bedrock and Vertex AI."""

from toolkit.errors import naming_extra

with naming_extra("anthropic"):
    from toolkit.providers.anthropic.client import (
        AnthropicOptions,
        AnthropicProvider,
        anthropic_on_bedrock,
        anthropic_on_vertex,
    )

__all__ = ["AnthropicOptions", "AnthropicProvider", "anthropic_on_bedrock", "anthropic_on_vertex"]
