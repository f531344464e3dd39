"""URLs: what may be shown of them, and which belong to one server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import urlsplit

from toolkit.errors import ConfigurationError
from toolkit.http_replies import origin_of

__all__ = ["Origin", "allowed_origins", "is_url"]


def is_url(text: str) -> bool:
    """Return whether a text is a URL that can be fetched."""
    return text.startswith(("http://", "https://"))


Origin: TypeAlias = tuple[str, str, int | None]
"""Scheme, host and port."""


def allowed_origins(hosts: Iterable[str]) -> frozenset[Origin]:
    """Return the origins that `allow_hosts` names: by HTTPS, where an entry does not say otherwise.

    Raises:
        ConfigurationError: An entry is no host and no origin.
    """
    if isinstance(hosts, str):
        raise ConfigurationError(f"allow_hosts must be several hosts, such as [{hosts!r}]")
    return frozenset(map(_read_allowed_host, hosts))


def _read_allowed_host(host: str) -> Origin:
    url = host if is_url(host) else f"https://{host}"
    try:
        parts = urlsplit(url)
        is_origin = parts.hostname and not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
        if is_origin and not re.search(r"[\s\\*]", host):
            return origin_of(url)
    except ValueError:
        pass
    raise ConfigurationError(
        f"allow_hosts names {host!r}: write a host like 'api.example.com', or an origin like 'http://10.0.0.1:8080'"
    )
