"""Failures of requests as our errors: what happened, what to do, whether to try again, and after how long.

Nothing of an SDK is imported. OpenAI's and Anthropic's come from one generator: their exceptions have the same names
and attributes, and so have those of the HTTP clients, so they are distinguished by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, cast
from urllib.parse import urlsplit

from toolkit.backoff import read_retry_after, read_seconds
from toolkit.dataclass import dataclass
from toolkit.errors import (
    BadResponseError,
    ContentFilteredError,
    ContextTooLongError,
    ProviderAuthError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitedError,
)
from toolkit.foreign_text import shorten_to_line, strip_hidden
from toolkit.http_client import ReplyTooLargeError, Stage
from toolkit.logs import get_logger
from toolkit.providers.encoding import as_items, as_text
from toolkit.redaction import cut_causes, without_secrets

NO_KEY = "none"
"""The key for a server that wants none, which SDKs can't go without."""

_CONTEXT_CODES = {
    "context_length_exceeded", "exceed_context_size_error", "string_above_max_length", "request_too_large",
}  # fmt: skip
_CONTEXT_PHRASES = (
    "maximum context length",
    "context size",
    "context window",
    "context length",
    "context limit",
    "prompt is too long",
    "input token count",
    "maximum prompt length",
    "input is too long",
    "too many tokens",
    "reduce the length",
)
_FILTER_CODES = {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
_FILTER_PHRASE = "content filtering policy"
_KEY_CODES = {"api_key_invalid", "api_key_expired"}  # Google answers a wrong key with 400
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached"}
_CUT_OFF = {"ReadError", "WriteError", "RemoteProtocolError"}
_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-goog-request-id", "x-amzn-requestid")
_LONGEST_MESSAGE = 500
_NOTICEABLE_DELAY = 0.5
_LONGEST_PAUSE = 30.0
_STAGES: dict[str, Stage] = {"PoolTimeout": "queued", "ConnectTimeout": "connecting", "ReadTimeout": "sent"}

_logger = get_logger("toolkit.providers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Makes the errors of one provider."""

    provider: str
    url: str  # where requests go, without credentials
    model: str
    key_advice: str  # for a key that is refused
    protocol: str  # that the server should speak, for the error of one that doesn't
    url_advice: str = "check base_url"
    secrets: tuple[str, ...] = field(default=(), repr=False)  # struck out of texts that a server repeats

    def of(self, error: Exception) -> ProviderError:
        """Return our error for one of an SDK's or of the HTTP client's; ours come back as they are.

        Raise it from `cause_of` that error.
        """
        if isinstance(error, ProviderError):
            return error
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & {"APITimeoutError", "TimeoutException"}:
            return self.late(None)
        status = getattr(error, "status_code", None)
        if isinstance(status, int) and "APIStatusError" in kinds:
            headers: Mapping[str, str] = cast("Any", error).response.headers
            return self.refused(status, headers, getattr(error, "body", None))
        if isinstance(error, ReplyTooLargeError):
            return BadResponseError(self.provider, f"{self.url} sent too much: {error}")
        if kinds & {"APIConnectionError", "HTTPError"}:
            return self.unreachable(error.__cause__ if isinstance(error.__cause__, Exception) else error)
        if isinstance(error, ValueError | ArithmeticError | RecursionError):
            return self.not_an_answer(str(error) or type(error).__name__)
        return ProviderError(self.provider, self._quote_server(str(error)) or type(error).__name__)

    def cause_of(self, error: Exception) -> Exception | None:
        """Return the cause for ``raise ... from``: the error, or None if a traceback of it would show a secret."""
        holder = Exception()
        holder.__cause__ = error
        cut_causes(holder, self.without_secrets)
        return error if holder.__cause__ is error else None

    def late(self, seconds: float | None, *, stage: Stage | None = None, late_by: float = 0.0) -> ProviderTimeoutError:
        """Return the error of a request that took too long, by how far it came; None is a time that the client set.

        Where this process noticed the timeout late, it is asked to wait as long.
        """
        within = "in time" if seconds is None else f"within {seconds:g} s"
        if stage == "queued":
            message = (
                f"no connection to {self.url} became free {within}: all that max_connections allows are in use by "
                "other requests of this event loop"
            )
        elif stage == "connecting":
            message = f"no connection to {self.url} {within}: is the server running, and is base_url right?"
        elif seconds is None:
            message = f"no answer from {self.url} in time: is the server busy? Or set a longer timeout"
        else:
            message = f"no complete answer from {self.url} within {seconds:g} s"
        if late_by < _NOTICEABLE_DELAY:
            return ProviderTimeoutError(self.provider, message, is_retryable=True)
        message += (
            f"; this process noticed it {late_by:.1f} s late, so its event loop was held up, and the server may have "
            "answered in time"
        )
        _logger.warning("%s: %s", self.provider, message)
        pause = min(late_by, _LONGEST_PAUSE)
        return ProviderTimeoutError(self.provider, message, is_retryable=True, retry_after=pause)

    def unreachable(self, cause: Exception) -> ProviderError:
        """Return the error of a connection that could not be made, or was cut."""
        reason = self.without_secrets(_read_first_words(cause)) or type(cause).__name__
        kinds = {kind.__name__ for kind in type(cause).__mro__}
        if kinds & _CUT_OFF:
            message = f"the connection to {self.url} was cut before the answer was complete: {reason}"
        elif "ProxyError" in kinds:
            message = f"the proxy between here and {self.url} refused: {reason}; check HTTPS_PROXY and NO_PROXY"
        elif "CERTIFICATE" in reason.upper() or "SSL" in reason.upper():
            message = f"no trusted connection to {self.url}: {reason}; check the certificate, or the proxy between"
        else:
            message = f"no connection to {self.url}: {reason}; is the server running, and is base_url right?"
        return ProviderError(self.provider, message, is_retryable=True)

    def refused(self, status: int, headers: Mapping[str, str], body: object) -> ProviderError:
        """Return the error of a status of 300 or above, from headers in lower case and parsed JSON or text."""
        details = _read_details(body)
        reason = self._read_message(details or body) or f"the server answered {status} without a message"
        codes = _read_codes(details)
        facts: dict[str, Any] = {
            "status": status,
            "retry_after": find_retry_after(headers, details),
            "request_id": self._strike_id(request_id_of(headers)),
        }
        if status < 400:
            return ProviderError(self.provider, self._describe_redirect(headers.get("location", "")), **facts)
        explained = self._explain_refusal(status, codes, reason)
        if explained is not None:
            kind, message = explained
            return kind(self.provider, message, **facts)
        retryable = status in (408, 409, 429) or status >= 500
        if codes & _QUOTA_CODES or headers.get("x-should-retry") == "false":
            retryable = False
        kind = RateLimitedError if status == 429 else ProviderTimeoutError if status in (408, 504) else ProviderError
        return kind(self.provider, reason, is_retryable=retryable, **facts)

    def _explain_refusal(self, status: int, codes: set[str], reason: str) -> tuple[type[ProviderError], str] | None:
        """Return the kind and the message of a refusal that the same request would meet again; None for another."""
        if status in (401, 403) or codes & _KEY_CODES:
            return ProviderAuthError, f"{self.url} refused the key: {reason}; {self.key_advice}"
        if status == 413 or (status < 500 and (codes & _CONTEXT_CODES or _is_about_context(status, reason))):
            return ContextTooLongError, f"{reason}; shorten the conversation or set a compaction"
        if status < 500 and (codes & _FILTER_CODES or _FILTER_PHRASE in reason.lower()):
            return ContentFilteredError, f"the content filter refused the request: {reason}; change the request"
        if status == 404:
            advice = f"check the model '{self.model}' and base_url: nothing was found at {self.url}"
            return ProviderError, f"{reason}; {advice}"
        return None

    def _describe_redirect(self, location: str) -> str:
        """Return a description of a redirect: its target, without parts that may be secret."""
        try:
            parts = urlsplit(location)
            where = f"{parts.scheme}://{parts.hostname}" if parts.hostname else "elsewhere on that host"
        except ValueError:
            where = "an invalid address"
        where = self.without_secrets(where)
        return f"{self.url} redirects to {where}, and no redirect is followed with a key; if it is right, set base_url"

    def not_an_answer(self, found: str, *, request_id: str | None = None) -> BadResponseError:
        """Return the error of an answer that is nothing of the protocol: HTML, or no JSON."""
        return BadResponseError(
            self.provider,
            f"{self.url} did not answer with {self.protocol} ({self._quote_server(found)}): {self.url_advice}",
            request_id=self._strike_id(request_id),
        )

    def empty(self, what: str, *, request_id: str | None = None) -> BadResponseError:
        """Return the error of an answer that is of the protocol and has nothing in it; the same request may work."""
        return BadResponseError(
            self.provider,
            f"the answer has no {what}: does this server speak {self.protocol}?",
            is_retryable=True,
            request_id=self._strike_id(request_id),
        )

    def cut_off(self, *, request_id: str | None = None) -> ProviderError:
        """Return the error of a stream that ended before the answer did; the same request may work."""
        return ProviderError(
            self.provider,
            "the stream ended before the answer was complete: the connection was cut, or the server stopped",
            is_retryable=True,
            request_id=self._strike_id(request_id),
        )

    def reported(self, error: object, *, request_id: str | None = None) -> ProviderError:
        """Return the error that a server reports inside a stream, or inside an answer of status 200."""
        details = _read_details({"error": error})
        reason = self._read_message(details or error) or str(error)
        codes = _read_codes(details)
        status = next((int(code) for code in codes if code.isdecimal() and 400 <= int(code) < 600), None)
        facts: dict[str, Any] = {"status": status, "request_id": self._strike_id(request_id)}
        explained = self._explain_refusal(status or 400, codes, reason)
        if explained is not None:
            kind, message = explained
            return kind(self.provider, message, **facts)
        if status == 429 or codes & {"rate_limit_exceeded", "rate_limit_error", "resource_exhausted"}:
            return RateLimitedError(self.provider, reason, **facts)
        refused = codes & {"invalid_request_error", "invalid_prompt", "invalid_argument"}
        retryable = status in (408, 409) or status >= 500 if status is not None else not refused
        return ProviderError(self.provider, reason, is_retryable=retryable, **facts)

    def _read_message(self, body: object) -> str:
        if isinstance(body, Mapping):
            fields = cast("Mapping[str, object]", body)
            text = str(fields.get("message") or fields.get("detail") or fields.get("error") or dict(fields))
        elif isinstance(body, str) and "<html" not in body.lower():
            text = body
        else:
            text = ""
        return self._quote_server(text)

    def _quote_server(self, text: str) -> str:
        """Return the server's text for a message: on one line, bounded, without secrets and codes of terminals."""
        return shorten_to_line(strip_hidden(self.without_secrets(text)), _LONGEST_MESSAGE)

    def _strike_id(self, request_id: str | None) -> str | None:
        return request_id and self.without_secrets(request_id)

    def without_secrets(self, text: str) -> str:
        """Return a server's text without secrets."""
        return without_secrets(text, [secret for secret in self.secrets if secret != NO_KEY])


def provider_error(
    name: str, status: int, headers: Mapping[str, str], body: object, *, secrets: Sequence[str] = ()
) -> ProviderError:
    """Return the error of a refused request, for a provider of your own to raise: the one that adapters here raise.

    ::

        if reply.status_code >= 300:
            raise provider_error("acme", reply.status_code, reply.headers, reply.text, secrets=[self._key])

    A key that is refused, a conversation that is too long, a content filter, a rate limit and a timeout have classes of
    their own; `ProviderError.is_retryable` and `retry_after` say whether and when to ask again.

    Args:
        name: The provider, as errors name it.
        status: The HTTP status, of 300 or above.
        headers: Of the answer, in any case.
        body: The answer: parsed JSON or text, which may be JSON.
        secrets: The texts to strike out of the server's, such as the key.
    """
    failures = Failures(
        provider=name,
        url=name,
        model="of the request",
        key_advice="check the key",
        protocol=f"an answer of {name}",
        secrets=tuple(secrets),
    )
    if isinstance(body, str):
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    return failures.refused(status, {field.lower(): value for field, value in headers.items()}, body)


def stage_of(error: Exception) -> Stage | None:
    """Return how far the request of a timeout came, by the kind of that or of its cause; None for another error."""
    found: BaseException | None = error
    while found is not None:
        stage = _STAGES.get(type(found).__name__)
        if stage is not None:
            return stage
        found = found.__cause__
    return None


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """Return the server's name for the request, where it gave one."""
    return next((headers[name] for name in _REQUEST_ID_HEADERS if headers.get(name)), None)


def _read_details(body: object) -> Mapping[str, Any]:
    """Return the part of an error's body that describes it: servers put it under ``error``, in a list, or nowhere."""
    if isinstance(body, list) and body:
        body = cast("list[object]", body)[0]
    if not isinstance(body, Mapping):
        return {}
    fields = cast("Mapping[str, Any]", body)
    inner: object = fields.get("error")
    return cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else fields


def _read_codes(details: Mapping[str, Any]) -> set[str]:
    inner = details.get("innererror")  # where Azure names its filter
    found = [details.get(name) for name in ("code", "type", "status")]
    if isinstance(inner, Mapping):
        found.append(cast("Mapping[str, Any]", inner).get("code"))
    found.extend([detail.get("reason") for detail in as_items(details.get("details"))])  # Google's form
    return {str(code).lower() for code in found if code}


def _read_first_words(error: BaseException) -> str:
    """Return the message of an error, or else of its cause: trio's errors have no text of their own."""
    found: BaseException | None = error
    while found is not None and not str(found):
        found = found.__cause__ or found.__context__
    return "" if found is None else str(found)


def _is_about_context(status: int, reason: str) -> bool:
    return status in (400, 413, 422) and any(phrase in reason.lower() for phrase in _CONTEXT_PHRASES)


def find_retry_after(headers: Mapping[str, str], details: Mapping[str, Any]) -> float | None:
    """Return the seconds that an answer asks to wait, by its headers or else by its body; None where it doesn't."""
    asked = read_retry_after(headers)
    return _read_retry_delay(details) if asked is None else asked


def _read_retry_delay(details: Mapping[str, Any]) -> float | None:
    """Return the seconds that Google asks to wait: it says so in the body, as in ``34.5s``."""
    for detail in as_items(details.get("details")):
        seconds = read_seconds(as_text(detail.get("retryDelay")).removesuffix("s"))
        if seconds is not None:
            return seconds
    return None
