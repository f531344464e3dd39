"""Authentication of calls by a header, a query parameter or a cookie.

No ``repr`` here shows a secret; secrets are recorded so that they can be redacted from server responses and errors.
"""

from __future__ import annotations

import base64
import inspect
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, field
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

import anyio
import httpx2
from pydantic_core import from_json

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, OpenApiError, ToolFailedError
from toolkit.http_client import ACCEPTED_ENCODINGS, UNSENT, check_headers, origin_of, read_bounded, split_url
from toolkit.redaction import secrets_in_headers, without_credentials, without_secrets
from toolkit.runtime.backend import LoopLocal
from toolkit.schema.nodes import is_object
from toolkit.sources.openapi.document import Document, Origin, Part
from toolkit.sources.openapi.endpoints import plain_header
from toolkit.suggestions import ask_whether_meant, find_similar

_SENDABLE = re.compile(r"[\x21-\x7e]+([ \t]+[\x21-\x7e]+)*")
_EARLIER = 30.0
_LIFETIME = 300.0
_SHORTEST_STRUCK = 4
_LONGEST_FORM = 5  # each byte percent-encoded twice
_MOST_TOKEN_BYTES = 1_000_000
_LONGEST_TOKEN = 16_000  # more than servers accept in a header
_LONGEST_LIFETIME = 86_400.0


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token, sent as ``Authorization: Bearer ...``."""

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        _check_sendable(self.token, "the token of Bearer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key in a named header, query parameter or cookie.

    Args:
        name: The name of the header, query parameter or cookie.
        value: The key.
        location: The part of the request that carries it.
    """

    name: str
    value: str = field(repr=False)
    location: Literal["header", "query", "cookie"] = "header"

    def __post_init__(self) -> None:
        _check_sendable(self.name, "the name of ApiKey")
        _check_sendable(self.value, f"the value of ApiKey '{self.name}'")
        if self.location not in ("header", "query", "cookie"):
            raise ConfigurationError(f"the location of ApiKey must be header, query or cookie, not {self.location!r}")


@dataclass(frozen=True, slots=True)
class Basic:
    """A user and a password."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if ":" in self.username:
            raise ConfigurationError("the username of Basic can't have a colon in it: HTTP ends it there")


@dataclass(frozen=True, slots=True)
class OAuth2ClientCredentials:
    """A token that is requested when needed, reused while valid, and requested again when refused.

    Args:
        client_id: The id of the client.
        client_secret: The secret of the client.
        token_url: The token endpoint; None takes it from the document.
        scopes: The scopes to request.
    """

    client_id: str
    client_secret: str = field(repr=False)
    _: KW_ONLY
    token_url: str | None = None
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token_url is not None:
            split_url(self.token_url, "token_url")


AuthCallable: TypeAlias = Callable[[httpx2.Request], Mapping[str, str] | Awaitable[Mapping[str, str]]]

Auth: TypeAlias = Bearer | ApiKey | Basic | OAuth2ClientCredentials | AuthCallable
"""The credentials of a caller.

A callable, sync or async, receives each request as it will be sent, and returns the headers to add to it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSignature:
    """The headers, query and cookie that sign one request."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    query: str = field(default="", repr=False)
    cookie: str = field(default="", repr=False)


class Secrets:
    """Secrets to redact from all text that is shown.

    Those that one call obtains, such as a token or a signature, are added to a copy, so that their number is bounded.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = set(known)

    def __repr__(self) -> str:
        return f"<{len(self._known)} secrets>"

    def add(self, *secrets: str) -> None:
        """Record secrets, except those of fewer than four characters, which would match everywhere."""
        for secret in secrets:
            if len(secret) >= _SHORTEST_STRUCK:
                self._known.add(secret)

    def copy(self) -> Secrets:
        """Return the same secrets, to which a call adds its own."""
        return Secrets(self._known)

    @property
    def longest(self) -> int:
        """The maximum size of a secret in bytes, in any encoding."""
        return max((_LONGEST_FORM * len(secret.encode()) for secret in self._known), default=0)

    def without(self, text: str) -> str:
        """Return a text with every secret redacted."""
        return without_secrets(text, self._known)


class Signer:
    """Signs requests with one `Auth`.

    Args:
        auth: The credentials.
        token_url: The token endpoint, for `OAuth2ClientCredentials`.
    """

    def __init__(self, auth: Auth, *, token_url: str) -> None:
        self._auth = auth
        self._token_url = token_url
        self._token = ""
        self._until = 0.0
        self._locks = LoopLocal(anyio.Lock)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._auth!r}>"

    @property
    def can_renew(self) -> bool:
        """True if a rejected signature may have expired."""
        return isinstance(self._auth, OAuth2ClientCredentials)

    def forget(self, refused: httpx2.Request) -> None:
        """Request a new token next time, unless the rejected one has been replaced already."""
        if refused.headers.get("authorization") == f"Bearer {self._token}":
            self._token = ""

    async def sign(self, request: httpx2.Request, client: httpx2.AsyncClient, secrets: Secrets) -> RequestSignature:
        """Return the signature for a request, and add its secrets to those of the call.

        Raises:
            ToolFailedError: No token could be obtained, or the callable failed.
        """
        match self._auth:
            case Bearer(token):
                secrets.add(token)
                return RequestSignature(headers={"authorization": f"Bearer {token}"})
            case ApiKey(name=name, value=value, location=location):
                secrets.add(value)
                if location == "header":
                    return RequestSignature(headers={name: value})
                pair = f"{quote(name, safe='')}={quote(value, safe='')}"
                return RequestSignature(query=pair) if location == "query" else RequestSignature(cookie=pair)
            case Basic(username, password):
                pair = base64.b64encode(f"{username}:{password}".encode()).decode()
                secrets.add(password, pair)
                return RequestSignature(headers={"authorization": f"Basic {pair}"})
            case OAuth2ClientCredentials() as credentials:
                token = await self._get_token(credentials, client, secrets)
                secrets.add(token)
                return RequestSignature(headers={"authorization": f"Bearer {token}"})
            case function:
                headers = await self._ask_callable(function, request)
                secrets.add(*secrets_in_headers(headers))
                return RequestSignature(headers=headers)

    async def _ask_callable(self, function: AuthCallable, request: httpx2.Request) -> dict[str, str]:
        try:
            given = function(request)
            headers = dict(await given if inspect.isawaitable(given) else given)
            check_headers(headers)
        except Exception as error:
            # Its text may contain the secrets that it handles.
            raise ToolFailedError(f"The request could not be signed: {type(error).__name__}.") from error
        return headers

    async def _get_token(
        self, credentials: OAuth2ClientCredentials, client: httpx2.AsyncClient, secrets: Secrets
    ) -> str:
        async with self._locks.get():  # so that concurrent calls request one token
            if not self._token or time.monotonic() > self._until:
                await self._renew_token(credentials, client, secrets)
            return self._token

    async def _renew_token(
        self, credentials: OAuth2ClientCredentials, client: httpx2.AsyncClient, secrets: Secrets
    ) -> None:
        where = without_credentials(self._token_url)
        form = {"grant_type": "client_credentials"}
        if credentials.scopes:
            form["scope"] = " ".join(credentials.scopes)
        pair = f"{quote(credentials.client_id, safe='')}:{quote(credentials.client_secret, safe='')}"
        encoded = base64.b64encode(pair.encode()).decode()
        secrets.add(credentials.client_secret, encoded)
        try:
            # Not sent by the shared client, whose headers are not for the token server.
            signed = {
                "authorization": f"Basic {encoded}",
                "accept": "application/json",
                "accept-encoding": ACCEPTED_ENCODINGS,
            }
            request = httpx2.Request("POST", self._token_url, data=form, headers=signed)
            response = await client.send(request, stream=True)
            answer = _read_json_object(await read_bounded(response, most_bytes=_MOST_TOKEN_BYTES))
        except UNSENT as error:
            raise ToolFailedError(f"No access token could be had from {where}: {type(error).__name__}.") from error
        token = answer.get("access_token")
        if response.is_error or not isinstance(token, str) or not _SENDABLE.fullmatch(token):
            reason = answer.get("error_description") or answer.get("error") or response.reason_phrase
            shown = secrets.without(f"{response.status_code} {reason}"[:300])
            raise ToolFailedError(f"No access token could be had from {where}: {shown}.")
        if len(token) > _LONGEST_TOKEN:
            raise ToolFailedError(f"No access token could be had from {where}: it has {len(token):,} characters.")
        self._token = token
        self._until = time.monotonic() + max(_read_lifetime(answer.get("expires_in")) - _EARLIER, 0.0)


def _read_lifetime(found: object) -> float:
    """Return the seconds that a token is valid, from a number that may be of any size."""
    if isinstance(found, (int, float)) and 0 <= found < math.inf:
        return min(found, _LONGEST_LIFETIME)
    return _LIFETIME


def make_signers(
    auth: Auth | Mapping[str, Auth | str] | None, document: Document, trusted: Collection[Origin]
) -> dict[str, Signer] | Signer | None:
    """Return the signers: one for all requests, or one for each security scheme.

    Raises:
        OpenApiError: The document lacks a scheme, or a scheme can't be satisfied by these credentials.
        ConfigurationError: `auth` is of an unknown kind, or its secret would be sent to a host that only the document
            names.
    """
    if auth is None:
        return None
    schemes = document.root.at("components").at("securitySchemes")
    there: Mapping[str, Any] = schemes.value if is_object(schemes.value) else {}
    if not is_object(auth):
        return _make_signer(auth, [schemes.at(name) for name in there], document, trusted)
    made: dict[str, Signer] = {}
    for name, one in cast("dict[str, Auth | str]", auth).items():
        if name not in there:
            near = find_similar(name, there, most=1, cutoff=0.6)
            hint = ask_whether_meant(near) or f"it has {', '.join(there) or 'none'}"
            raise OpenApiError(f"{document.name}: it has no security scheme '{name}'; {hint}")
        scheme = schemes.at(name).about(f"{document.name}: security scheme '{name}'").resolved()
        meant = _read_bare_secret(one, scheme.value, scheme.subject) if isinstance(one, str) else one
        made[name] = _make_signer(meant, [scheme], document, trusted)
    return made


def list_own_parameters(
    auth: Auth | Mapping[str, Auth | str] | None, headers: Mapping[str, str], document: Document
) -> set[tuple[str, str]]:
    """Return the places and names of the parameters that credentials and headers of the application are sent in."""
    own = {("header", plain_header(name)) for name in headers}
    schemes = document.root.at("components").at("securitySchemes")
    given: Mapping[str, object] = cast("dict[str, object]", auth) if is_object(auth) else {"": auth}
    for scheme_name, one in given.items():
        scheme = schemes.at(scheme_name).about(f"{document.name}: security scheme '{scheme_name}'").resolved()
        match one, scheme.value:
            case ApiKey(name=name, location=place), _:
                own.add((place, plain_header(name) if place == "header" else name))
            case str(), {"type": "apiKey", "name": str(name), "in": str(place)}:
                own.add((place, plain_header(name) if place == "header" else name))
            case _:
                pass
    return own


def _read_bare_secret(secret: str, scheme: Any, subject: str) -> Auth:
    """Return the credential that a security scheme makes of a bare secret."""
    match scheme:
        case {"type": "apiKey", "name": str(name), "in": "header" | "query" | "cookie" as location}:
            return ApiKey(name=name, value=secret, location=location)
        case {"type": "http", "scheme": str(kind)} if kind.lower() == "bearer":
            return Bearer(secret)
        case {"type": "oauth2" | "openIdConnect"}:
            return Bearer(secret)
        case {"type": "http", "scheme": str(kind)} if kind.lower() == "basic":
            raise OpenApiError(f"{subject} takes a user and a password: pass Basic(username, password)")
        case _:
            found = scheme.get("type") if is_object(scheme) else scheme
            raise OpenApiError(f"{subject} is of the type {found!r}, unknown here: pass a callable that gives headers")


def _make_signer(auth: object, schemes: list[Part], document: Document, trusted: Collection[Origin]) -> Signer:
    url = ""
    if isinstance(auth, OAuth2ClientCredentials):
        url = auth.token_url or _find_token_url(schemes, document)
        if auth.token_url is None and origin_of(url) not in trusted:
            raise ConfigurationError(
                f"the client's secret would go to {without_credentials(url)}, which only the document names: pass "
                "token_url= to OAuth2ClientCredentials, or name the host in allow_hosts="
            )
    elif not isinstance(auth, (Bearer, ApiKey, Basic)) and not callable(auth):
        raise ConfigurationError(
            f"auth must be Bearer, ApiKey, Basic, OAuth2ClientCredentials, a callable that gives headers, or these by "
            f"security scheme, not {type(auth).__name__}"
        )
    return Signer(cast("Auth", auth), token_url=url)


def _find_token_url(schemes: list[Part], document: Document) -> str:
    for scheme in schemes:
        match scheme.resolved().value:
            case {"flows": {"clientCredentials": {"tokenUrl": str(url)}}}:
                with suppress(*UNSENT, ConfigurationError):
                    absolute = str(httpx2.URL(document.url).join(url)) if document.url else url
                    split_url(absolute, "the token URL")
                    return absolute
            case _:
                pass
    raise OpenApiError(
        f"{document.name}: it does not say where client credentials get their token: "
        "pass OAuth2ClientCredentials(..., token_url='https://...')"
    )


def _read_json_object(content: bytes) -> dict[str, Any]:
    try:
        found: object = from_json(content)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _check_sendable(secret: str, what: str) -> None:
    """Refuse values that no header can carry; the error of an HTTP library would show them."""
    if not _SENDABLE.fullmatch(secret):
        raise ConfigurationError(
            f"{what} can't be sent: it must be printable ASCII, not empty, and without spaces or line ends around it"
        )
