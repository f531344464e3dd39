"""The keys of vendors: what an environment holds for a vendor goes to that vendor, or stays on this machine."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2

from toolkit.errors import ConfigurationError, ProviderAuthError
from toolkit.providers.failures import NO_KEY
from toolkit.secrets import without_credentials
from toolkit.settings import check_setting

__all__ = [
    "checked_key",
    "checked_url",
    "headers_kept_home",
    "is_home",
    "is_loopback",
    "is_of",
    "key_for",
    "split_login",
]


def key_for(url: str, *, name: str, variables: Sequence[str], hosts: Sequence[str], advice: str) -> str:
    """Return the key that the environment has for a server.

    Args:
        url: Where requests go.
        name: The provider's name in errors.
        variables: Where the key may stand; the first that is set counts.
        hosts: The vendor's own.
        advice: Other advice, for the error.

    Raises:
        ProviderAuthError: There is none, or it is for another host.
    """
    if is_loopback(url):
        return NO_KEY
    found = next((variable for variable in variables if os.environ.get(variable)), None)
    if found is None:
        raise ProviderAuthError(
            name,
            f"no key for {without_credentials(url)}: set the environment variable {variables[-1]}, "
            f"or pass api_key{advice}",
        )
    if not is_home(url, hosts):
        raise ProviderAuthError(
            name,
            f"no key for {without_credentials(url)}: {found} of the environment goes to https://*.{hosts[0]} alone; "
            f"pass api_key{advice}",
        )
    return os.environ[found]


def is_home(url: str, hosts: Sequence[str]) -> bool:
    """Return whether what an environment holds for a vendor may go to a URL: one of the vendor's hosts, encrypted."""
    return urlsplit(url).scheme == "https" and is_of(url, *hosts)


def headers_kept_home(
    url: str, variable: str, hosts: Sequence[str], *names: str, given: Iterable[str]
) -> tuple[str, ...]:
    """Return the names of the headers that an SDK takes from a variable and that must not go to a URL.

    Args:
        url: Where requests go.
        variable: The variable.
        hosts: The vendor's own.
        *names: Headers that it takes from variables of their own.
        given: The headers that the application has set itself: those may go there.
    """
    if is_loopback(url) or is_home(url, hosts):
        return ()
    lines = os.environ.get(variable, "").split("\n")
    found = (*names, *(line.partition(":")[0].strip() for line in lines if ":" in line))
    own = {name.lower() for name in given}
    return tuple(name for name in found if name.lower() not in own)


def checked_url(url: str) -> str:
    """Return the URL where it can be one of a server.

    Raises:
        ConfigurationError: It can't; the URL is not shown, since it may hold a password.
    """
    check_setting("base_url", url, str)
    try:
        parts = urlsplit(url)
        _ = parts.port
        host = httpx2.URL(url).host
    except (ValueError, httpx2.InvalidURL) as error:
        raise ConfigurationError(f"base_url is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("base_url is not an address: it begins with http:// or https:// and names a host")
    if "\\" in parts.netloc or (host.isascii() and host.lower() != parts.hostname.strip("[]")):
        raise ConfigurationError("base_url is not an address: its host can be read in two ways")
    return url


def checked_key(key: str, provider: str) -> str:
    """Return the key as a header takes it: without the line end that a file may have left at its end.

    Raises:
        ProviderAuthError: It has letters that no key has.
        ConfigurationError: It is no text.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a pydantic.SecretStr, say
        raise ConfigurationError(f"api_key must be text, not a {type(key).__name__}")
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ProviderAuthError(provider, "the key has letters that no header can hold: copy it anew")
    return key


def split_login(url: str) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Return the URL without user and password, the headers that say them, and what of that is secret.

    HTTP clients log the URL of each request.
    """
    parts = urlsplit(url)
    if parts.username is None:
        return url, {}, ()
    password = unquote(parts.password or "")
    token = b64encode(f"{unquote(parts.username)}:{password}".encode()).decode()
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return plain, {"Authorization": f"Basic {token}"}, (token, password)


def is_of(url: str, *domains: str) -> bool:
    """Return whether the host of a URL is one of these, or within one."""
    host = f".{urlsplit(url).hostname or ''}"
    return any(host.endswith(f".{domain}") for domain in domains)


def is_loopback(url: str) -> bool:
    """Return whether the URL is of this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
