"""The settings of `openapi_tools`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlsplit

import httpx2
from typing_extensions import TypedDict

from toolkit.errors import ConfigurationError
from toolkit.settings import Duration, PositiveInt, Seconds, check_fields
from toolkit.sources.openapi.auth import Auth
from toolkit.sources.openapi.selection import Filter
from toolkit.sources.openapi.urls import is_url

__all__ = ["OpenApiKeywords", "OpenApiOptions"]


Progress: TypeAlias = Callable[[int, int], None]
"""Takes how much is done of how much."""


class OpenApiKeywords(TypedDict, total=False):
    """The keywords of `openapi_tools`; `OpenApiOptions` says what they mean."""

    filter: Filter | None
    auth: Auth | Mapping[str, Auth | str] | None
    base_url: str | None
    prefix: str | None
    server_variables: Mapping[str, str]
    headers: Mapping[str, str]
    allow_hosts: Collection[str]
    timeout: Duration
    max_response_bytes: int
    max_file_bytes: int
    skip_broken: bool
    transport: httpx2.AsyncBaseTransport | None
    on_progress: Progress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiOptions:
    """The operations that become tools, who calls them, and within which limits.

    Args:
        filter: The operations to take; None takes all. `Only` or a function of an `Operation`.
        auth: The credentials. One for every call; or by the names of the document's security schemes, where a bare
            string is the token or key and each operation takes what it asks for. It goes to hosts that you have named
            alone: that of `base_url`, that of the URL in `source`, and those of `allow_hosts`. None signs nothing.
        base_url: Instead of the document's servers. None takes an operation's own server, else that of its path,
            else the document's first.
        prefix: Put before each name, as ``{prefix}__{name}``.
        server_variables: The values of variables in a server's URL; a missing one takes the document's default.
        headers: Sent with each call to hosts that you have named, as for `auth`; not where a redirect leads elsewhere,
            and not to who gives tokens.
        allow_hosts: More hosts that may be told who calls, such as ``api.example.com``, or ``http://10.0.0.1:8080`` for
            one without HTTPS.
        timeout: Seconds for a call, redirects and body too.
        max_response_bytes: Longer text is cut there.
        max_file_bytes: An image, sound or file that is larger is not handed to the model.
        skip_broken: True leaves out an operation that the document gets wrong, with a warning in the log; else it is
            refused together with all others.
        transport: The transport of requests, such as an ``httpx2.AsyncHTTPTransport`` with a proxy or certificates of
            its own; None is the network, with the proxies that the environment names. Closed with the block.
        on_progress: Told how much is done of how much, while the document becomes tools, on another thread.

    Raises:
        ConfigurationError: A setting that can't be.
    """

    filter: Filter | None = None
    auth: Auth | Mapping[str, Auth | str] | None = field(default=None, repr=False)
    base_url: str | None = None
    prefix: str | None = None
    server_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow_hosts: Collection[str] = ()
    timeout: Seconds = 30.0
    max_response_bytes: PositiveInt = 65_536
    max_file_bytes: PositiveInt = 10_485_760
    skip_broken: bool = False
    transport: httpx2.AsyncBaseTransport | None = None
    on_progress: Progress | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.base_url is not None:
            _check_base_url(self.base_url)

    def report_progress(self, done: int, total: int) -> None:
        """Tell `on_progress`, where there is one."""
        if self.on_progress is not None:
            self.on_progress(done, total)


def _check_base_url(url: str) -> None:
    parts = urlsplit(url)
    if not is_url(url) or not parts.hostname:
        raise ConfigurationError("base_url must be an absolute URL, such as https://api.example.com/v1")
    if parts.username or parts.password:
        raise ConfigurationError("base_url must not hold a user or password: pass auth=Basic(username, password)")
    if parts.query or parts.fragment:
        raise ConfigurationError("base_url must not have a query or fragment: pass auth=ApiKey(..., location='query')")
