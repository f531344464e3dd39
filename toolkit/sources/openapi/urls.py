"""URLs: what may be shown of them, and which belong to one server."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx2

from toolkit.secrets import without_credentials

__all__ = ["DiscreetUrl", "is_url", "origin_of"]


def is_url(text: str) -> bool:
    """Whether a text is a URL that can be fetched."""
    return text.startswith(("http://", "https://"))


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return what two URLs of one server have in common."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class DiscreetUrl(httpx2.URL):
    """A URL that is used as it is and shown without its secrets: HTTP clients write URLs into logs."""

    def __str__(self) -> str:
        return without_credentials(super().__str__())

    def __repr__(self) -> str:
        return f"URL({str(self)!r})"
