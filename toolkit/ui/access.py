"""Access to the page: for whoever has the link, from this machine, by the page itself."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["TokenGate"]

_OWN_SITES = ("same-origin", "none", "")


class TokenGate:
    """Lets pass only requests that have the token: in the link, which sets a cookie, and then in that cookie.

    A page of another site, or of another server on this machine, that the browser has open must reach nothing: the host
    has to be this server under a name of the loopback, and the origin, where one is said, this very page.

    Args:
        app: The application behind it.
        token: The token of the link.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._find_refusal(scope)
        if answer is None:
            await self._app(scope, receive, send)
        else:
            await answer(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> Response | None:
        """Return what is answered in the place of what was asked for; None where it may be had."""
        headers = Headers(scope=scope)
        port = scope["server"][1]
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return PlainTextResponse("This server answers for 127.0.0.1 and localhost alone.", 421)
        if origins and origins != [f"http://{hosts[0].lower()}"]:
            return PlainTextResponse("Other pages may not ask this server.", 403)
        cookie = f"toolkit_viewer_{port}"
        given = QueryParams(scope["query_string"]).get("token")
        if given is not None:
            return self._let_in(given, cookie, scope["path"])
        if headers.get("sec-fetch-site", "") not in _OWN_SITES:
            return PlainTextResponse("Other pages may not ask this server.", 403)
        if not self._is_right(_read_cookie(headers.get("cookie", ""), cookie)):
            return PlainTextResponse(
                "Open the link that the command printed: it has a token that is new each time.", 403
            )
        return None

    def _let_in(self, given: str, cookie: str, path: str) -> Response:
        if not self._is_right(given):
            return PlainTextResponse("This link is of another time: open the one that the command printed last.", 403)
        answer = RedirectResponse(path, 303, headers={"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"})
        answer.set_cookie(cookie, self._token, httponly=True, samesite="strict", path="/")
        return answer

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _read_cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
