"""Where outputs of tools are kept, so that the same call need not run again."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Cache", "cache_key"]


class Cache(Protocol):
    """Keeps texts under keys. What goes wrong inside is the cache's own to handle: a miss is always right."""

    async def get(self, key: str) -> str | None:
        """Return what is kept, or None."""
        ...

    async def set(self, key: str, value: str) -> None:
        """Keep `value`."""
        ...


def cache_key(tool_name: str, arguments: str) -> str:
    """Return the key of a call: its tool and the canonical JSON of its validated arguments."""
    return f"tool:{tool_name}|input:{arguments}"
