"""Google's Gemini, on the official SDK: the Gemini API and Vertex AI."""

from toolkit.errors import naming_extra

with naming_extra("google"):
    from toolkit.providers.google.client import GoogleProvider

__all__ = ["GoogleProvider"]
