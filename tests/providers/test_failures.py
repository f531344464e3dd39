"""What goes wrong with a request, as our errors say it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from toolkit import ProviderError
from toolkit.backoff import read_retry_after
from toolkit.errors import (
    BadResponseError,
    ContentFilteredError,
    ContextTooLongError,
    ProviderAuthError,
    ProviderTimeoutError,
    RateLimitedError,
)
from toolkit.providers import provider_error
from toolkit.providers.adapter import is_loopback
from toolkit.providers.failures import Failures
from toolkit.redaction import without_credentials

SECRET = "sk-very-secret-0123456789"
FAILURES = Failures(
    provider="test",
    url="https://example.com/v1",
    model="test-1",
    key_advice="check TEST_KEY",
    protocol="an answer",
    secrets=(SECRET, "short", ""),
)


@dataclass(frozen=True)
class Refused:
    name: str
    status: int
    body: object
    kind: type[ProviderError]
    says: str
    is_retryable: bool = False
    headers: dict[str, str] = field(default_factory=dict[str, str])
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


REFUSED = [
    Refused("a wrong key", 401, error(f"No {SECRET}"), ProviderAuthError, "No ***; check TEST_KEY"),
    Refused("no right", 403, "Not yours", ProviderAuthError, "Not yours"),
    Refused("an unknown model", 404, error("No such model"), ProviderError, "check the model 'test-1' and base_url"),
    Refused(
        "OpenAI's filter",
        400,
        error("Flagged", code="content_policy_violation"),
        ContentFilteredError,
        "change the request",
    ),
    Refused(
        "Azure's filter",
        400,
        error("Flagged", code="x", innererror={"code": "ResponsibleAIPolicyViolation"}),
        ContentFilteredError,
        "content filter",
    ),
    Refused("a long context by code", 400, error("No", code="context_length_exceeded"), ContextTooLongError, "compact"),
    Refused("a long context in words", 400, error("prompt is too long: 9 > 8"), ContextTooLongError, "compaction"),
    Refused("in others", 400, {"error": "maximum prompt length is 8 but"}, ContextTooLongError, "compaction"),
    Refused("a large body", 413, "<html>Too large</html>", ContextTooLongError, "compaction"),
    Refused("another bad request", 400, error("temperature"), ProviderError, "temperature"),
    Refused("words about the context in a 500", 500, error("context window"), ProviderError, "context", True),
    Refused(
        "too many requests",
        429,
        error("Slow"),
        RateLimitedError,
        "Slow",
        True,
        {"retry-after": "2", "x-request-id": "r"},
        {"retry_after": 2, "request_id": "r", "status": 429},
    ),
    Refused("no money", 429, error("Pay", code="insufficient_quota"), RateLimitedError, "Pay"),
    Refused("a conflict", 409, error("Again"), ProviderError, "Again", True),
    Refused("a slow server", 408, error("Late"), ProviderTimeoutError, "Late", True),
    Refused("a slow gateway", 504, "", ProviderTimeoutError, "answered 504 without a message", True),
    Refused("a broken server", 503, "<html><body>Oops</body></html>", ProviderError, "without a message", True),
    Refused("a server that says no", 500, error("No"), ProviderError, "No", headers={"x-should-retry": "false"}),
    Refused("FastAPI's way", 422, {"detail": "max_tokens: too large"}, ProviderError, "max_tokens: too large"),
    Refused("a text for an error", 400, {"error": "No such tool"}, ProviderError, "No such tool"),
    Refused("a list", 400, [error("In a list")], ProviderError, "In a list"),
    Refused("a long tale", 400, error(f"x {SECRET} " * 99), ProviderError, "..."),
    Refused("nothing", 400, None, ProviderError, "answered 400 without a message"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_status_is_told_as_what_it_means(case: Refused) -> None:
    failure = FAILURES.refused(case.status, case.headers, case.body)
    assert type(failure) is case.kind
    assert case.says in str(failure)
    assert failure.is_retryable is case.is_retryable
    assert {name: getattr(failure, name) for name in case.facts} == case.facts
    assert SECRET[:8] not in str(failure)
    assert len(str(failure)) < 700


@pytest.mark.parametrize(
    ("told", "kind", "is_retryable"),
    [
        ({"message": "Broke", "code": "server_error"}, ProviderError, True),
        ({"message": "Broke", "code": 502}, ProviderError, True),
        ({"message": "Bad", "code": 400}, ProviderError, False),
        ({"message": "Bad", "type": "invalid_request_error"}, ProviderError, False),
        ({"message": "Slow", "code": 429}, RateLimitedError, True),
        ({"message": "Slow", "code": "rate_limit_exceeded"}, RateLimitedError, True),
        ({"message": "Long", "code": "context_length_exceeded"}, ContextTooLongError, False),
        ({"message": "Bad", "code": "content_filter"}, ContentFilteredError, False),
        ("just a text", ProviderError, True),
    ],
)
def test_an_error_inside_an_answer_is_told_as_what_it_means(
    told: object, kind: type[ProviderError], is_retryable: bool
) -> None:
    failure = FAILURES.reported(told, request_id="r")
    assert (type(failure), failure.is_retryable, failure.request_id) == (kind, is_retryable, "r")


@pytest.mark.parametrize(
    ("told", "kind", "advice"),
    [
        ({"code": 401, "message": "no such key"}, ProviderAuthError, "refused the key"),
        ({"code": 404, "message": "gone"}, ProviderError, "check the model"),
    ],
)
def test_an_error_inside_an_answer_has_the_advice_of_one_with_a_status(
    told: object, kind: type[ProviderError], advice: str
) -> None:
    failure = FAILURES.reported(told)
    assert type(failure) is kind
    assert advice in str(failure)


class ReadError(Exception):
    """Named as in every HTTP client."""


class ProxyError(Exception):
    """Named as in every HTTP client."""


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        (ReadError(""), "was cut before the answer was complete: ReadError"),
        (ProxyError("407"), "the proxy between here and https://example.com/v1 refused: 407; check HTTPS_PROXY"),
        (OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), "check the certificate"),
        (OSError("Name or service not known"), "is the server running, and is base_url right?"),
    ],
    ids=["cut", "proxy", "certificate", "no such host"],
)
def test_a_connection_that_fails_says_what_to_look_at(cause: Exception, says: str) -> None:
    failure = FAILURES.unreachable(cause)
    assert says in str(failure)
    assert failure.is_retryable


def test_errors_of_ours_come_back_as_they_are_and_others_are_named() -> None:
    own = RateLimitedError("test", "Slow")
    assert FAILURES.of(own) is own
    assert type(FAILURES.of(ValueError("no JSON"))) is BadResponseError
    assert "RuntimeError" in str(FAILURES.of(RuntimeError()))


def test_a_cause_that_repeats_the_key_is_left_out_of_the_traceback() -> None:
    harmless, telling = ValueError("no JSON"), ValueError(f"no {SECRET}")
    assert FAILURES.cause_of(harmless) is harmless
    assert FAILURES.cause_of(telling) is None
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = telling
    assert FAILURES.cause_of(wrapped) is wrapped
    assert getattr(wrapped, "__cause__") is None  # noqa: B009 - a checker remembers what it was
    assert SECRET not in repr(FAILURES)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "-2"}, 0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_the_time_to_wait_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("34.5s", 34.5), ("-1s", 0), ("1e400s", None), ("nans", None), ("infs", None), ("x", None), (5, None)],
)
def test_the_time_to_wait_in_a_body_is_read(delay: object, seconds: float | None) -> None:
    body = {"error": {"message": "slow", "details": [{"retryDelay": delay}]}}
    assert provider_error("acme", 429, {}, body).retry_after == seconds


def test_a_servers_words_are_shown_without_what_a_terminal_would_obey() -> None:
    body = {"error": {"message": "slow \ud83d\x1b[2J down"}}
    assert str(provider_error("acme", 429, {}, body)).endswith("slow down")


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:8000/v1", True),
        ("http://api.localhost", True),
        ("http://127.0.0.2", True),
        ("http://[::1]:80/v1", True),
        ("http://10.0.0.1/v1", False),
        ("https://localhost.example.com", False),
        ("", False),
    ],
)
def test_this_machine_is_told_from_others(url: str, is_local: bool) -> None:
    assert is_loopback(url) is is_local


def test_a_url_is_shown_without_what_is_secret_in_it() -> None:
    assert without_credentials("https://user:pass@example.com:8/v1?key=1#x") == "https://example.com:8/v1"


@pytest.mark.parametrize(
    ("status", "body", "kind", "is_retryable"),
    [
        (401, {"error": f"wrong key {SECRET}"}, ProviderAuthError, False),
        (429, f'{{"error": {{"message": "slow down {SECRET}"}}}}', RateLimitedError, True),
        (400, '{"error": {"code": "context_length_exceeded", "message": "too long"}}', ContextTooLongError, False),
        (504, f"<html>{SECRET}</html>", ProviderTimeoutError, True),
        (503, f"busy {SECRET}", ProviderError, True),
        (302, "", ProviderError, False),
    ],
)
def test_a_provider_of_ones_own_raises_the_errors_of_the_adapters(
    status: int, body: object, kind: type[ProviderError], is_retryable: bool
) -> None:
    error = provider_error("acme", status, {"Retry-After": "3", "X-Request-Id": "r1"}, body, secrets=[SECRET])
    assert (type(error), error.provider, error.status, error.is_retryable) == (kind, "acme", status, is_retryable)
    assert (error.retry_after, error.request_id) == (3.0, "r1")
    assert SECRET not in str(error)
