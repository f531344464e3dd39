"""The hosts that a server answers for, and the pages that may call it: scheme, host and port are compared exactly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.errors import ConfigurationError

__all__ = ["LOOPBACK", "OriginGuard"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")

_ORIGIN_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}|\*))?")
_ORIGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<place>[^/?#@\\\s]+)")


@dataclass(frozen=True, slots=True)
class _Place:
    """A host and a port; None stands for the default one, ``*`` for any."""

    host: str
    port: int | str | None


class OriginGuard:
    """Decides by the headers of a request; loopback is allowed at any port.

    Args:
        hosts: More hosts, such as ``tools.example.com``, ``tools.example.com:8443`` or, for any port,
            ``tools.example.com:*``.
        origins: More origins, such as ``https://app.example.com`` or ``https://app.example.com:8443``.

    Raises:
        ConfigurationError: One can't be read.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = [_Place(host, "*") for host in LOOPBACK] + [_read_host(host) for host in hosts]
        self._origins = [(scheme, _Place(host, "*")) for scheme in _ORIGIN_PORTS for host in LOOPBACK]
        for origin in origins:
            read = _read_origin(origin)
            if read is None:
                raise ConfigurationError(f"{origin!r} is no origin: write one like 'https://app.example.com'")
            self._origins.append(read)

    def allows_host(self, values: Sequence[str]) -> bool:
        """Return whether the ``Host`` headers of a request are one, and name an allowed host."""
        asked = _read_place(values[0]) if len(values) == 1 else None
        return asked is not None and asked.port != "*" and any(_is_meant(asked, place, None) for place in self._hosts)

    def allows_origin(self, values: Sequence[str]) -> bool:
        """Return whether the ``Origin`` headers of a request are none, as of a program, or one that is allowed."""
        if not values:
            return True
        read = _read_origin(values[0]) if len(values) == 1 else None
        if read is None or read[1].port == "*":
            return False
        scheme, place = read
        return any(
            scheme == allowed and _is_meant(place, meant, _ORIGIN_PORTS.get(scheme)) for allowed, meant in self._origins
        )


def _is_meant(asked: _Place, meant: _Place, default_port: int | None) -> bool:
    if asked.host != meant.host:
        return False
    return meant.port == "*" or (asked.port or default_port) == (meant.port or default_port)


def _read_host(host: str) -> _Place:
    place = _read_place(host)
    if place is None:
        raise ConfigurationError(
            f"{host!r} is no host: write one like 'tools.example.com', or 'tools.example.com:*' for any port"
        )
    return place


def _read_place(text: str) -> _Place | None:
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = found["port"]
    if port is not None and port != "*":
        port = int(port)
        if port > 65535:
            return None
    return _Place(found["host"].strip("[]").lower(), port)


def _read_origin(text: str) -> tuple[str, _Place] | None:
    found = _ORIGIN.fullmatch(text)
    place = None if found is None else _read_place(found["place"])
    return None if found is None or place is None else (found["scheme"].lower(), place)
