"""Failures of MCP servers, with remedies in their messages."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import cast

import anyio
import httpx2
from mcp import MCPError
from mcp.client.auth import OAuthFlowError
from mcp.types import CONNECTION_CLOSED, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from pydantic import ValidationError

from toolkit.errors import McpError
from toolkit.sources.mcp.servers import HttpFault, McpServer

_LONGEST_REASON = 600
_SHORT = 20
_STAND_INS = ("Server returned an error response", "Not Found", "Session terminated")  # for a status, by the SDK


class McpConnectionError(McpError):
    """The server can't be reached, or the connection to it is lost: another try may help."""


class McpAuthError(McpError):
    """The server refuses who calls."""


class McpNotFoundError(McpError):
    """There is no such server, command, tool or method."""


def innermost(error: BaseException) -> BaseException:
    """Return the first error in the groups that task groups make."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def is_loss(error: BaseException) -> bool:
    """Return whether an error means that the connection or the session may be lost, and not that a request is wrong."""
    if isinstance(error, MCPError):
        return _is_connection_closed(error)
    return isinstance(
        error, (httpx2.TransportError, OSError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    )


def _is_connection_closed(error: MCPError) -> bool:
    # Servers use that code for other errors, too: the SDK's own text decides.
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


# Of the server's load or its gateway's, not of a session; a refused caller is refused in a new session, too.
_NOT_OF_A_SESSION = frozenset({401, 403, 407, 408, 425, 429, 502, 503, 504})


def is_not_found(error: BaseException, faults: Iterable[HttpFault]) -> bool:
    """Return whether a request was refused by the status that MCP has for sessions that a server does not know."""
    if not isinstance(error, MCPError) or error.code == METHOD_NOT_FOUND:
        return False
    return any(fault.status == 404 for fault in faults)


def may_have_lost_session(faults: Iterable[HttpFault]) -> bool:
    """Return whether a request in a session had a status that servers give where they don't know the session.

    MCP has 404 for that, and servers answer with 400, 500 and others: whether the session is lost is found out by
    another request.
    """
    return any(fault.is_of_session and fault.status not in _NOT_OF_A_SESSION for fault in faults)


def to_mcp_error(
    error: BaseException,
    server: McpServer,
    what: str,
    *,
    faults: Iterable[HttpFault] = (),
    words: Iterable[str] = (),
    seconds: float | None = None,
) -> McpError:
    """Return a failure as an error of ours, with the server's secrets redacted.

    Args:
        error: The exception that was raised.
        server: By whom.
        what: The attempted action, such as ``connect``.
        faults: The errors of the requests below it.
        words: The last lines that the server logged.
        seconds: How long it was tried, for a timeout.
    """
    inner = innermost(error)
    if isinstance(inner, McpError):
        return inner
    kind, reason = _explain_error(inner, list(faults), seconds)
    said = list(words)
    tail = f" Its last words: {_shorten_text(' | '.join(said[-5:]))}" if said else ""
    return kind(server.redact(f"MCP server '{server.name}': could not {what}: {reason}{tail}"))


def _explain_error(error: BaseException, faults: list[HttpFault], seconds: float | None) -> tuple[type[McpError], str]:
    explained = _explain_faults(error, faults)
    if explained is not None:
        return explained
    if isinstance(error, TimeoutError):
        return McpConnectionError, (
            f"it gave no answer within {seconds:g} s; is it an MCP server, and does it speak this transport?"
            if seconds is not None
            else "it took too long"
        )
    if isinstance(error, (httpx2.HTTPError, ssl.SSLError)):
        return _explain_network_error(error)
    if isinstance(error, MCPError):
        return _explain_protocol_error(error)
    if isinstance(error, ValidationError):
        return McpError, f"what it answered is not MCP ({error.error_count()} problems); is it an MCP server?"
    if isinstance(error, OSError):
        return _explain_os_error(error)
    return McpError, f"{type(error).__name__}: {_shorten_text(str(error))}"


def _explain_faults(error: BaseException, faults: list[HttpFault]) -> tuple[type[McpError], str] | None:
    """Return the errors of the requests if they are more specific than the error that they caused."""
    for fault in faults:
        if fault.error is not None:
            return _explain_network_error(fault.error)
    # Asking in a newer revision first may be refused: the last refusal counts, where the server did not explain it.
    statuses = [fault.status for fault in faults if fault.status is not None]
    is_explained = isinstance(error, MCPError) and error.message not in _STAND_INS
    if statuses and (not is_explained or statuses[-1] in (401, 403)):
        return _explain_status(statuses[-1])
    return None


def _explain_os_error(error: OSError) -> tuple[type[McpError], str]:
    if isinstance(error, FileNotFoundError):
        return McpNotFoundError, f"{error.filename!r} was not found; install it, or give its whole path"
    if isinstance(error, PermissionError):
        return McpNotFoundError, f"{error.filename!r} can't be executed; is it a program, and is it yours to run?"
    return McpConnectionError, f"{type(error).__name__}: {_shorten_text(str(error))}"


def _explain_protocol_error(error: MCPError) -> tuple[type[McpError], str]:
    message = _shorten_text(error.message)
    if _is_connection_closed(error):
        return McpConnectionError, "the connection was closed; did the server end, and is it an MCP server?"
    if error.code == REQUEST_TIMEOUT and "timed out" in message:  # some servers mean other things by that code
        return McpConnectionError, f"no answer came in time ({message})"
    if error.code == METHOD_NOT_FOUND:
        return McpNotFoundError, f"it does not know this ({message}); is it an MCP server that offers it?"
    if "content type" in message:
        return McpError, f"{message}; is it an MCP server, and is this its whole URL?"
    return McpError, f"{message} (code {error.code})"


def _explain_status(status: int) -> tuple[type[McpError], str]:
    if status in (401, 403):
        return McpAuthError, (
            f"it refuses who calls (HTTP {status}); give the right bearer=, headers= or auth= to http(...)"
        )
    if status in (404, 405, 406):
        return McpNotFoundError, (
            f"there is no MCP server at this URL (HTTP {status}); is it the whole URL, such as .../mcp, and does it "
            "speak this transport: http(...) or sse(...)?"
        )
    if status >= 500 or status == 429:
        return McpConnectionError, f"it failed (HTTP {status}); try again later"
    return McpError, f"it refused the request (HTTP {status})"


def _explain_network_error(error: Exception) -> tuple[type[McpError], str]:
    if isinstance(error, OAuthFlowError):
        return McpAuthError, f"signing in failed ({_shorten_text(str(error))}); give the right auth= to http(...)"
    if _is_about_certificates(error):
        return McpError, (
            f"its certificate is not trusted ({_shorten_text(str(error))}); give http(...) a "
            "verify=ssl.create_default_context(cafile=...)"
        )
    if isinstance(error, httpx2.TimeoutException):
        return McpConnectionError, f"{type(error).__name__}: it gave no answer in time"
    words = _shorten_text(str(error))
    return McpConnectionError, f"{type(error).__name__}: {words}; is it running, and is the URL right?"


def _is_about_certificates(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError) or "CERTIFICATE" in str(error).upper():
            return True
        error = error.__cause__ or error.__context__
    return False


def _shorten_text(text: str) -> str:
    if len(text) <= _LONGEST_REASON:
        return text
    head = text[:_LONGEST_REASON]
    return f"{head.rpartition(' ')[0] or head[:_SHORT]} ..."  # a piece of a secret would not be known for one
