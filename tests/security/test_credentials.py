"""Credentials stay with their host, and out of what is said of a failure."""

import json
import os
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI

from tests.providers.loopback import completion
from toolkit import ChatRequest, ConfigurationError, Provider, ProviderError, UserMessage
from toolkit.chat.provider import closing
from toolkit.errors import ProviderAuthError
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.testing.loopback import Answer, Server, serving

pytestmark = pytest.mark.anyio

KEY = "sk-hand-0123456789/abc+def="
FROM_ENVIRONMENT = "sk-environment-0123456789"
REQUEST = ChatRequest(messages=[UserMessage("a prompt that stays at home")])
VARIABLES = (
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    *("OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_"))]:
        monkeypatch.delenv(variable)
    for variable in VARIABLES:
        monkeypatch.setenv(variable, FROM_ENVIRONMENT)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    with serving(Answer(completion())) as running:
        yield running


PROVIDERS: dict[str, Callable[..., Any]] = {
    "chat": partial(OpenAIProvider, "m"),
    "responses": partial(OpenAIResponsesProvider, "m"),
    "anthropic": partial(AnthropicProvider, "m"),
    "google": partial(GoogleProvider, "m"),
}


async def ask(provider: Provider, *, streams: bool) -> None:
    if not streams:
        await provider.generate(REQUEST)
        return
    async with closing(provider.stream(REQUEST)) as heard:
        async for _ in heard:
            pass


# redirects


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", PROVIDERS)
async def test_no_redirect_takes_key_or_prompt_elsewhere(
    server: Server, elsewhere: Server, kind: str, status: int, streams: bool
) -> None:
    server.answers[:] = [Answer(b"", status=status, headers={"location": f"{elsewhere.url}/x?token=abcdef"})]
    headers = {"X-Auth": "gateway-secret", "api-key": "gateway-key"}
    async with PROVIDERS[kind](base_url=server.url, api_key=KEY, headers=headers) as provider:
        with pytest.raises(ProviderError) as caught:
            await ask(provider, streams=streams)
    assert (elsewhere.requests, elsewhere.paths) == ([], [])
    assert len(server.requests) == 1
    assert "redirects to http://127.0.0.1" in str(caught.value)
    assert "base_url" in str(caught.value)
    assert "abcdef" not in str(caught.value)
    assert (caught.value.status, caught.value.is_retryable) == (status, False)


@pytest.mark.parametrize(
    "location",
    [
        *(
            "/v1/other",
            "",
            "//evil.example/x",
            "https://evil.example",
            "http://ada:pw@evil.example/",
            "ftp://evil.example",
        ),
        *("javascript:alert(1)", "http://[", "http://evil.example:99999999/", "\\\\evil.example", "?x=1", "#"),
    ],
)
async def test_a_redirect_is_an_error_wherever_it_leads(server: Server, location: str) -> None:
    server.answers[:] = [Answer(b"", status=307, headers={"location": location})]
    async with OpenAIProvider("m", base_url=server.url, api_key=KEY) as provider:
        with pytest.raises(ProviderError) as caught:
            await ask(provider, streams=False)
    assert len(server.requests) == 1
    assert "pw" not in str(caught.value)


async def test_a_client_of_ones_own_follows_none_either(server: Server, elsewhere: Server) -> None:
    server.answers[:] = [Answer(b"", status=307, headers={"location": f"{elsewhere.url}/chat/completions"})]
    clients = [
        AsyncOpenAI(api_key=KEY, base_url=server.url),
        AsyncAzureOpenAI(api_key=KEY, api_version="1", azure_endpoint=server.root),
    ]
    for client in clients:
        async with client:
            with pytest.raises(ProviderError, match="redirect"):
                await ask(OpenAIProvider("m", client=client), streams=False)
    assert elsewhere.requests == []


# keys of the environment

FOREIGN = [
    *(
        "https://openrouter.ai/api/v1",
        "https://evil.example/v1",
        "http://192.168.1.7:8000/v1",
        "http://0.0.0.0:8000/v1",
    ),
    *("https://api.openai.com.evil.example/v1", "https://evilopenai.com/v1", "https://evil.example/api.openai.com/v1"),
    *("https://api.openai.com@evil.example/v1", "https://evil.example?.openai.com", "https://evil.example#.openai.com"),
    *("http://api.openai.com/v1", "http://api.anthropic.com", "http://generativelanguage.googleapis.com"),
    *("https://anthropic.com.evil.example", "https://evilanthropic.com", "https://googleapis.com.evil.example"),
    *("https://evilgoogleapis.com", "http://localhost.evil.example/v1", "http://127.0.0.1.evil.example/v1"),
    *(
        "http://[2001:db8::1]/v1",
        "http://2130706433/v1",
        "https://api.openai.com./v1",
        "http://localhost@evil.example/v1",
    ),
]


@pytest.mark.parametrize("url", FOREIGN)
@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_key_of_the_environment_goes_to_its_vendor_alone(kind: str, url: str) -> None:
    with pytest.raises((ProviderAuthError, ConfigurationError)) as caught:
        PROVIDERS[kind](base_url=url)
    assert FROM_ENVIRONMENT not in str(caught.value)


@pytest.mark.parametrize("kind", PROVIDERS)
def test_the_address_of_the_environment_gets_no_key_of_it_either(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.setenv(variable, "https://evil.example/v1")
    with pytest.raises(ProviderAuthError, match="pass api_key"):
        PROVIDERS[kind](base_url=None)


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        *(("chat", url) for url in (None, "https://api.openai.com/v1", "https://eu.api.openai.com:443/v1")),
        ("responses", "https://API.OPENAI.COM/v1"),
        *(("anthropic", url) for url in (None, "https://api.anthropic.com")),
        *(("google", url) for url in (None, "https://generativelanguage.googleapis.com")),
    ],
)
def test_a_vendor_gets_its_key(kind: str, url: str | None) -> None:
    PROVIDERS[kind](base_url=url)


@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_key_that_is_passed_by_hand_goes_where_it_is_sent(kind: str) -> None:
    PROVIDERS[kind](base_url="https://gateway.example/v1", api_key=KEY)


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_nothing_of_the_environment_goes_to_another_server_on_this_machine(server: Server, kind: str) -> None:
    server.answers[:] = [Answer({"error": {"message": "No"}}, status=400)]
    async with PROVIDERS[kind](base_url=server.url) as provider:
        with pytest.raises(ProviderError):
            await ask(provider, streams=False)
    sent = {
        name: value
        for name, value in server.headers[0].items()
        if name not in ("openai-organization", "openai-project")
    }
    assert FROM_ENVIRONMENT not in json.dumps(sent)


@pytest.mark.parametrize("kind", ["chat", "responses", "anthropic"])
def test_headers_of_the_environment_stay_with_the_vendor(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(variable, "X-Gateway: s3cret-gateway\nX-Other:1")
    provider = PROVIDERS[kind](base_url="https://gateway.example/v1", api_key=KEY, headers={"X-Other": "mine"})
    kept: dict[str, Any] = provider._request_headers  # no request leaves this machine in a test
    assert [type(kept[name]).__name__ for name in ("X-Gateway",)] == ["Omit"]
    assert "X-Other" not in kept


def test_the_credentials_of_a_machine_go_to_google_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    with pytest.raises(ProviderAuthError, match="go to Google alone"):
        GoogleProvider("m", vertexai=True, base_url="https://evil.example")


@pytest.mark.parametrize(
    "address", ["https://evil.example", "http://127.0.0.1:9", "https://generativelanguage.googleapis.com"]
)
async def test_the_options_of_a_request_lead_a_key_nowhere(server: Server, address: str) -> None:
    options = {"http_options": {"base_url": address}}
    request = ChatRequest(messages=REQUEST.messages, options=options)
    async with GoogleProvider("m", base_url=server.root, api_key=KEY) as provider:
        with pytest.raises(ConfigurationError, match="base_url"):
            await provider.generate(request)
    assert server.requests == []


@pytest.mark.parametrize(
    "url",
    [
        *("https://api.openai.com\\@evil.example/v1", "https://evil.example\\.openai.com/v1", "//api.openai.com/v1"),
        *("https:///v1", "https://api.openai.com\n.evil.example/v1", "file:///etc/passwd", "https://[::1/v1", ""),
    ],
)
@pytest.mark.parametrize("kind", PROVIDERS)
def test_an_address_that_can_be_read_in_two_ways_is_refused(kind: str, url: str) -> None:
    if url:
        with pytest.raises(ConfigurationError):
            PROVIDERS[kind](base_url=url, api_key=KEY)


# what errors show

WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in capitals": str.upper,
    "percent-encoded": lambda secret: quote(secret, safe=""),
    "as a form": quote_plus,
    "in JSON": json.dumps,
    "in Base64": lambda secret: b64encode(secret.encode()).decode(),
    "in Base64 of URLs": lambda secret: urlsafe_b64encode(secret.encode()).decode(),
    "in Base64 behind others": lambda secret: b64encode(b"user:" + secret.encode()).decode(),
    "in hex": lambda secret: secret.encode().hex(),
}
HEADERS = {
    "X-Auth": "x-auth-value-77",
    "X-Session": "x-session-value-77",
    "X-Tenant": "tenant-value-77",
    "Proxy-Authorization": "Bearer proxy-token-77",
    "Cookie": "sid=cookie-value-77",
    "X-Neutral": "neutral-value-77",
    "X-Basic": "Basic " + b64encode(b"ada:hunter-two-77").decode(),
    "X-Trace": "Token trace-token-77",
}
SECRETS = {
    "the key": KEY,
    "X-Auth": "x-auth-value-77",
    "X-Session": "x-session-value-77",
    "X-Tenant": "tenant-value-77",
    "behind Bearer": "proxy-token-77",
    "a cookie": "cookie-value-77",
    "X-Neutral": "neutral-value-77",
    "behind Basic": "hunter-two-77",
    "behind Token": "trace-token-77",
}


def shown(error: BaseException) -> str:
    """All that a log could show of an error, whatever it is told to leave out."""
    texts = [*traceback.format_exception(error), repr(error), json.dumps(vars(error), default=str)]
    for other in (error.__cause__, error.__context__):
        if other is not None:
            texts.append(shown(other))
    return "\n".join(texts)


@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
async def test_no_error_shows_what_a_server_echoes(server: Server, secret: str, write: Callable[[str], str]) -> None:
    echoed = write(secret)
    refusal = {"error": {"message": f"Not with {echoed}, sorry", "type": echoed, "code": echoed}}
    told = b"data: " + json.dumps(refusal).encode() + b"\n\n"
    async with OpenAIProvider("m", base_url=server.url, api_key=KEY, headers=HEADERS) as provider:
        for answer in (
            Answer(refusal, status=400),
            Answer(refusal, status=401),
            Answer(refusal, status=500),
            Answer(f"plain {echoed}".encode(), status=403, content_type="text/plain"),
            Answer(refusal),
            Answer(f"not JSON {echoed}".encode()),
            Answer(b"<html>", content_type=f"text/html; x={quote(echoed)}"),
        ):
            server.answers[:] = [answer]
            with pytest.raises(ProviderError) as caught:
                await ask(provider, streams=False)
            assert echoed not in shown(caught.value)
        for stream in (Answer(pieces=[told]), Answer(pieces=[f"data: {echoed}\n\n".encode()])):
            server.answers[:] = [stream]
            with pytest.raises(ProviderError) as caught:
                await ask(provider, streams=True)
            assert echoed not in shown(caught.value)


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_no_adapter_shows_what_a_server_echoes(server: Server, kind: str) -> None:
    secrets = list(SECRETS.values())
    server.answers[:] = [Answer({"error": {"message": " ".join(secrets)}}, status=status) for status in (400, 401, 500)]
    async with PROVIDERS[kind](base_url=server.url, api_key=KEY, headers=HEADERS) as provider:
        assert not [secret for secret in secrets if secret in repr(provider)]
        for _ in range(3):
            with pytest.raises(ProviderError) as caught:
                await ask(provider, streams=False)
            assert not [secret for secret in secrets if secret in shown(caught.value)]


async def test_no_error_shows_the_login_of_an_address(server: Server) -> None:
    url = server.url.replace("http://", "http://ada-login:pa55word-77@") + "?sig=signature-77"
    echo = "ada-login pa55word-77 signature-77 " + b64encode(b"ada-login:pa55word-77").decode()
    server.answers[:] = [Answer({"error": {"message": echo}}, status=400)]
    async with OpenAIProvider("m", base_url=url, api_key=KEY) as provider:
        with pytest.raises(ProviderError) as caught:
            await ask(provider, streams=False)
    for secret in ("pa55word-77", "signature-77", b64encode(b"ada-login:pa55word-77").decode()):
        assert secret not in shown(caught.value)
        assert secret not in repr(provider)


async def test_words_of_the_protocol_are_told(server: Server) -> None:
    server.answers[:] = [Answer({"error": {"message": "unknown beta fast-2026"}}, status=400)]
    headers = {"anthropic-beta": "fast-2026"}
    async with AnthropicProvider("m", base_url=server.root, api_key=KEY, headers=headers) as provider:
        with pytest.raises(ProviderError, match="fast-2026"):
            await ask(provider, streams=False)
