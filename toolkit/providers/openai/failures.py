"""What goes wrong with a request, as our errors say it: what happened, what to do, whether to try again."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx2
from openai import APIConnectionError, APIError, APIResponseValidationError, APIStatusError, APITimeoutError

from toolkit.errors import (
    BadResponseError,
    ContextTooLongError,
    ProviderAuthError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitedError,
)

__all__ = ["bad_response", "failure_of", "retry_after_of", "timed_out"]

_CONTEXT_CODES = ("context_length_exceeded", "exceed_context_size_error", "string_above_max_length")
_CONTEXT_PHRASES = ("maximum context length", "context size", "context window", "context length", "prompt is too long")
_LONGEST_MESSAGE = 500


def failure_of(
    error: httpx2.HTTPError | APIError | ValueError, *, provider: str, url: str, model: str, secret: str = ""
) -> ProviderError:
    """Return our error for one of the SDK's; raise it ``from`` that one.

    Args:
        error: What the SDK, or the HTTP client under it, raised.
        provider: The name to report.
        url: Where the request went, without credentials.
        model: The model that was asked for.
        secret: The key, to be struck out of whatever the server repeats.
    """
    match error:
        case APITimeoutError() | httpx2.TimeoutException():
            return timed_out(provider, f"no answer from {url} in time: is the server busy? Or set a longer timeout")
        case APIConnectionError() | httpx2.HTTPError():
            return ProviderError(provider, _connection_advice(error, url), is_retryable=True)
        case APIResponseValidationError():
            return bad_response(provider, url, str(error))
        case APIStatusError():
            return _failure_of_status(error, provider=provider, url=url, model=model, secret=secret)
        case _:
            return bad_response(provider, url, str(error))


def timed_out(provider: str, message: str) -> ProviderTimeoutError:
    """Return the error of a request that took too long."""
    return ProviderTimeoutError(provider, message, is_retryable=True)


def bad_response(provider: str, url: str, found: str, *, request_id: str | None = None) -> BadResponseError:
    """Return the error of an answer that is no chat completion."""
    return BadResponseError(
        provider,
        f"{url} did not answer with a chat completion ({found}): check base_url, which mostly ends in /v1",
        request_id=request_id,
    )


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait, from milliseconds, seconds or a date; None where it doesn't."""
    for header, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _failure_of_status(error: APIStatusError, *, provider: str, url: str, model: str, secret: str) -> ProviderError:
    status = error.status_code
    headers = error.response.headers
    said = _without(secret, _said(error))
    facts: dict[str, Any] = {
        "status": status,
        "retry_after": retry_after_of(headers),
        "request_id": error.request_id,
    }
    if status in (401, 403):
        advice = "check the key: api_key or the environment variable OPENAI_API_KEY"
        return ProviderAuthError(provider, f"{url} refused the key: {said}; {advice}", **facts)
    if _is_about_context(error, said):
        return ContextTooLongError(provider, f"{said}; shorten the conversation or set a compaction", **facts)
    if status == 404:
        return ProviderError(
            provider, f"{said}; check the model '{model}' and base_url: nothing was found at {url}", **facts
        )
    retryable = status in (408, 409, 429) or status >= 500
    if error.code == "insufficient_quota" or headers.get("x-should-retry") == "false":
        retryable = False
    if status == 429:
        return RateLimitedError(provider, said, is_retryable=retryable, **facts)
    if status in (408, 504):
        return ProviderTimeoutError(provider, said, is_retryable=retryable, **facts)
    return ProviderError(provider, said, is_retryable=retryable, **facts)


def _connection_advice(error: Exception, url: str) -> str:
    cause = (error.__cause__ or error) if isinstance(error, APIConnectionError) else error
    said = str(cause) or type(cause).__name__
    if isinstance(cause, (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)):
        return f"the connection to {url} was cut before the answer was complete: {said}"
    if "CERTIFICATE" in said.upper():
        return f"no trusted connection to {url}: {said}; check the certificate, or the proxy between"
    return f"no connection to {url}: {said}; is the server running, and is base_url right?"


def _is_about_context(error: APIError, said: str) -> bool:
    if error.code in _CONTEXT_CODES or error.type in _CONTEXT_CODES:
        return True
    status = error.status_code if isinstance(error, APIStatusError) else 400
    return status in (400, 413, 422) and any(phrase in said.lower() for phrase in _CONTEXT_PHRASES)


def _said(error: APIStatusError) -> str:
    body = error.body
    if isinstance(body, Mapping):
        told = cast("Mapping[str, object]", body)
        text = str(told.get("message") or told.get("detail") or told.get("error") or dict(told))
    elif isinstance(body, str) and "<html" not in body.lower():
        text = body
    else:
        text = ""
    text = " ".join(text.split())
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + "..."
    return text or f"the server answered {error.status_code} and said no more"


def _without(secret: str, text: str) -> str:
    return text.replace(secret, "[key]") if secret else text
