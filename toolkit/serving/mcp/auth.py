"""The users of a served registry: tokens from a table, a function or an OAuth issuer, and how often each may ask."""

from __future__ import annotations

import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import anyio.to_thread
import jwt
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier, principal_components
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from toolkit.errors import ConfigurationError
from toolkit.settings import describe_value

_logger = logging.getLogger("toolkit.serving")

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LONGEST_TOKEN = 16_384
_COUNTED_CALLERS = 10_000

Holder: TypeAlias = str | AccessToken | None
"""The holder of a token: a user's name, the SDK's `AccessToken` with scopes and claims, or None if it is not valid."""

Auth: TypeAlias = str | Mapping[str, str | AccessToken] | Callable[[str], Holder | Awaitable[Holder]] | TokenVerifier
"""The tokens that a server takes: one, a table of holders by token, a function of the token, or a verifier."""


@runtime_checkable
class OAuthResource(Protocol):
    """A verifier of tokens that an OAuth server gives; clients are referred to that server when they are refused.

    They find it in the metadata of the protected resource (RFC 9728).
    """

    issuer: str
    """The URL of the OAuth server."""
    resource: str
    """The URL under which clients reach this server."""
    required_scopes: Sequence[str]
    """The scopes that each token must have."""


class JwtVerifier(TokenVerifier):
    """Verifies JSON Web Tokens of an OAuth issuer by the keys that it publishes (RFC 7519, RFC 7517).

    ::

        mcp_app(registry, context_for=..., auth=JwtVerifier("https://login.example.com", audience="https://here/mcp"))

    Signature, issuer, audience and expiry are checked. Only asymmetric algorithms are taken, so that no token can be
    signed with a public key. Keys are fetched when first needed, and again at most every 30 s.

    Args:
        issuer: The ``iss`` of its tokens.
        audience: The ``aud`` that tokens for this server have: the URL under which clients reach it.
        required_scopes: Scopes that each token must have.
        jwks_url: Where the issuer publishes its keys; ``/.well-known/jwks.json`` below the issuer by default.
        timeout: Seconds for fetching the keys.
    """

    def __init__(
        self,
        issuer: str,
        *,
        audience: str,
        required_scopes: Sequence[str] = (),
        jwks_url: str | None = None,
        timeout: float = 10,
    ) -> None:
        self.issuer = issuer
        self.resource = audience
        self.required_scopes = tuple(required_scopes)
        self._keys = jwt.PyJWKClient(jwks_url or f"{issuer.rstrip('/')}/.well-known/jwks.json", timeout=timeout)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token's user, scopes and claims, or None if it is not valid."""
        try:
            claims = await anyio.to_thread.run_sync(self._read_claims, token)
        except jwt.PyJWKClientConnectionError:
            _logger.exception("the keys of %s can't be fetched, so that no token is accepted", self.issuer)
            return None
        except jwt.PyJWTError as error:
            _logger.info("a token was refused: %s", error)
            return None
        subject = claims["sub"]
        scope = claims.get("scope", claims.get("scp", ()))
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or subject),
            scopes=scope.split() if isinstance(scope, str) else [str(each) for each in scope],
            expires_at=int(claims["exp"]),
            subject=subject,
            claims=claims,
        )

    def _read_claims(self, token: str) -> dict[str, Any]:
        key = self._keys.get_signing_key_from_jwt(token)
        options: Any = {"require": ["exp", "iss", "aud", "sub"]}
        return jwt.decode(
            token, key, algorithms=_ALGORITHMS, audience=self.resource, issuer=self.issuer, options=options
        )


class _TokenReader(TokenVerifier):
    """A verifier by a function of the token."""

    def __init__(self, find_holder: Callable[[str], Holder | Awaitable[Holder]]) -> None:
        self._find_holder = find_holder

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            found = self._find_holder(token)
            holder = await found if isawaitable(found) else found
        except Exception:  # an error must not let anybody in
            _logger.exception("auth= failed, so that a token was refused")
            return None
        if isinstance(holder, str):
            return AccessToken(token=token, client_id=holder, scopes=[], subject=holder)
        if holder is None or isinstance(cast("object", holder), AccessToken):
            return holder
        _logger.error("auth= returned %s, not a user's name, an AccessToken or None", describe_value(holder))
        return None


class _BoundedVerifier(TokenVerifier):
    """Refuses tokens that are too long to be any, before they are read."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    async def verify_token(self, token: str) -> AccessToken | None:
        return None if len(token) > _LONGEST_TOKEN else await self._verifier.verify_token(token)


def make_verifier(auth: Auth) -> TokenVerifier:
    """Return the verifier that `auth` means.

    Raises:
        ConfigurationError: It is none of the kinds of `Auth`.
    """
    given = cast("object", auth)
    if isinstance(given, str):
        return make_verifier({given: AccessToken(token=given, client_id="token", scopes=[])})
    if isinstance(given, Mapping):
        table = [(token.encode(), holder) for token, holder in cast("Mapping[str, str | AccessToken]", given).items()]
        if not table or not all(token for token, _ in table):
            raise ConfigurationError("auth= has a token without text: everybody could call the tools")
        return _BoundedVerifier(_TokenReader(lambda token: _find_in_table(token, table)))
    if hasattr(given, "verify_token"):
        return _BoundedVerifier(cast("TokenVerifier", given))
    if callable(given):
        return _BoundedVerifier(_TokenReader(cast("Callable[[str], Holder]", given)))
    raise ConfigurationError(
        f"auth= takes a token, a table of users by token, a function of the token or a TokenVerifier, not "
        f"{describe_value(given)}"
    )


def _find_in_table(token: str, table: Iterable[tuple[bytes, str | AccessToken]]) -> Holder:
    """Compare with all tokens, so that the time says nothing about any."""
    found: Holder = None
    for known, holder in table:
        if hmac.compare_digest(known, token.encode()):
            found = holder
    return found


class RateBound:
    """Answers 429 to a caller who asks more than `per_minute` times a minute, with the seconds to wait.

    Callers are told apart by their token's user, and without tokens by their address. Each has a bucket of
    `per_minute` requests that fills evenly; the buckets of the last 10,000 callers are kept.
    """

    def __init__(self, app: ASGIApp, per_minute: int) -> None:
        self._app = app
        self._per_minute = per_minute
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        wait = self._take_request(_find_caller(scope)) if scope["type"] == "http" else 0.0
        if wait > 0:
            refusal = PlainTextResponse("Too many requests.", 429, {"Retry-After": str(int(wait) + 1)})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _take_request(self, caller: object) -> float:
        """Take one request from a caller's bucket, or return the seconds until there is one."""
        now, rate = anyio.current_time(), self._per_minute / 60
        left, before = self._buckets.pop(caller, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - before) * rate)
        taken = left >= 1
        self._buckets[caller] = (left - 1 if taken else left, now)
        if len(self._buckets) > _COUNTED_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1 - left) / rate


def _find_caller(scope: Scope) -> object:
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return principal_components(user.access_token)
    return (scope.get("client") or ("",))[0]
