"""A model on this machine: llama.cpp's server in a process of its own, spoken to as any other server."""

from toolkit.providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
