"""What the adapters for Anthropic and Google do alike, beyond the suite that every adapter passes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.providers.loopback import Answer, Hang, Server, closed_port, serving
from tests.providers.vendor_answers import (
    anthropic_message,
    anthropic_text_stream,
    gemini_answer,
    gemini_stream,
)
from toolkit import ChatRequest, ConfigurationError, ProviderError, UserMessage
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent
from toolkit.errors import BadResponseError, ProviderAuthError, ProviderTimeoutError
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider

pytestmark = pytest.mark.anyio

SECRET = "very-secret-0123456789"
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
HTML = b"<!doctype html><html><body>Welcome!</body></html>"


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One adapter, and how its vendor answers.

    Args:
        make: Makes the provider for a server.
        whole: An answer that says "Hello.".
        streamed: The same in pieces.
    """

    name: str
    make: Callable[..., AnthropicProvider | GoogleProvider]
    whole: dict[str, Any]
    streamed: Sequence[bytes]


def anthropic(url: str, **options: Any) -> AnthropicProvider:
    return AnthropicProvider("test-1", base_url=url, api_key=SECRET, **options)


def google(url: str, **options: Any) -> GoogleProvider:
    return GoogleProvider("test-1", base_url=url, api_key=SECRET, **options)


ADAPTERS = [
    Adapter(
        name="anthropic",
        make=anthropic,
        whole=anthropic_message({"type": "text", "text": "Hello."}),
        streamed=anthropic_text_stream("He", "llo."),
    ),
    Adapter(
        name="google",
        make=google,
        whole=gemini_answer({"text": "Hello."}),
        streamed=gemini_stream(gemini_answer({"text": "He"}, finish=None), gemini_answer({"text": "llo."})),
    ),
]


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
def server(adapter: Adapter) -> Iterator[Server]:
    with serving(Answer(adapter.whole)) as running:
        yield running


async def ask(adapter: Adapter, url: str, *, streams: bool = False, request: ChatRequest = REQUEST) -> ChatResponse:
    """Generate or stream, and return the answer."""
    with anyio.fail_after(120):
        async with adapter.make(url) as provider:
            if not streams:
                return await provider.generate(request)
            async with aclosing(provider.stream(request)) as stream:
                heard: list[StreamEvent] = [event async for event in stream]
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    return last.response


both_ways = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


@pytest.mark.parametrize("url", ["example.com", "ftp://example.com", "http://", "http://[::1", "http://h:99999"])
def test_what_is_no_address_is_refused_at_once(adapter: Adapter, url: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url is not an address"):
        adapter.make(url)


def test_a_key_with_odd_letters_is_refused_and_not_shown(adapter: Adapter) -> None:
    made = {"anthropic": AnthropicProvider, "google": GoogleProvider}[adapter.name]
    with pytest.raises(ProviderAuthError, match="copy it anew") as caught:
        made("test-1", api_key="kéy-0123456789")
    assert "0123456789" not in str(caught.value)


async def test_a_line_end_after_the_key_is_left_out(adapter: Adapter, server: Server) -> None:
    made = {"anthropic": AnthropicProvider, "google": GoogleProvider}[adapter.name]
    async with made("test-1", base_url=server.root, api_key=f"{SECRET}\n") as provider:
        await provider.generate(REQUEST)
    assert SECRET in str(server.headers)


@both_ways
async def test_a_wrong_path_says_to_check_it(adapter: Adapter, server: Server, streams: bool) -> None:
    server.answers[:] = [Answer(HTML, status=404, content_type="text/html")]
    with pytest.raises(ProviderError, match="check the model 'test-1' and base_url") as caught:
        await ask(adapter, server.root, streams=streams)
    assert caught.value.status == 404
    assert "<html" not in str(caught.value)


@both_ways
@pytest.mark.parametrize(
    ("answer", "is_retryable"),
    [(Answer(b"", status=418), False), (Answer(HTML, status=502), True)],
    ids=["418", "502 with HTML"],
)
async def test_a_refusal_without_words_has_its_status(
    adapter: Adapter, server: Server, answer: Answer, is_retryable: bool, streams: bool
) -> None:
    server.answers[:] = [answer]
    with pytest.raises(ProviderError, match="without a message") as caught:
        await ask(adapter, server.root, streams=streams)
    assert (caught.value.status, caught.value.is_retryable) == (answer.status, is_retryable)


@both_ways
async def test_no_server_names_the_url_and_what_to_do(adapter: Adapter, streams: bool) -> None:
    with pytest.raises(ProviderError, match=r"no connection to http://127\.0\.0\.1:\d+.*is the server") as caught:
        await ask(adapter, f"http://user:pass@127.0.0.1:{closed_port()}", streams=streams)
    assert caught.value.is_retryable
    assert "pass" not in str(caught.value)


@both_ways
async def test_a_timeout_of_the_provider_counts_where_the_request_has_none(
    adapter: Adapter, server: Server, streams: bool
) -> None:
    server.answers[:] = [Hang()]
    with anyio.fail_after(120):
        async with adapter.make(server.root, timeout=0.2) as provider:
            with pytest.raises(ProviderTimeoutError):
                if streams:
                    async with aclosing(provider.stream(REQUEST)) as stream:
                        await anext(stream)
                else:
                    await provider.generate(REQUEST)


@pytest.mark.parametrize(
    "body", [{"error": {"message": "Busy"}}, {"hello": "you"}, [1]], ids=["error", "other", "list"]
)
async def test_json_instead_of_a_stream_is_read(adapter: Adapter, server: Server, body: Any) -> None:
    server.answers[:] = [Answer(body)]
    with pytest.raises(ProviderError) as caught:
        await ask(adapter, server.root, streams=True)
    if isinstance(body, dict) and "error" in body:
        assert "Busy" in str(caught.value)
        assert caught.value.is_retryable
    else:
        assert isinstance(caught.value, BadResponseError)
        assert "application/json, without events" in str(caught.value)


@pytest.mark.parametrize("begun", [b"", b": wait\n\n", b'data: {"ty', b"event: message_start\n"])
async def test_a_stream_that_is_cut_in_its_first_event_may_be_whole_next_time(
    adapter: Adapter, server: Server, begun: bytes
) -> None:
    for answer in (Answer(pieces=[begun] if begun else []), Answer(begun, content_type="text/plain")):
        server.answers[:] = [answer]
        with pytest.raises(ProviderError, match="the stream ended before") as caught:
            await ask(adapter, server.root, streams=True)
        assert caught.value.is_retryable


async def test_a_password_in_the_url_is_sent_and_no_log_has_it(
    adapter: Adapter, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await ask(adapter, server.root.replace("http://", "http://ada:hunter2%21@"))
    assert server.headers[0]["authorization"] == "Basic YWRhOmh1bnRlcjIh"
    assert caplog.text
    assert "hunter2" not in caplog.text
    assert "YWRhOmh1" not in caplog.text


async def test_one_connection_serves_one_request_after_another(adapter: Adapter, server: Server) -> None:
    whole, streamed = Answer(adapter.whole), Answer(pieces=adapter.streamed)
    server.answers[:] = [whole, streamed, whole, streamed, whole]
    async with adapter.make(server.root) as provider:
        for _ in range(2):
            await provider.generate(REQUEST)
            async with aclosing(provider.stream(REQUEST)) as stream:
                assert [event async for event in stream]
        await provider.generate(REQUEST)
    assert len(server.requests) == 5
    assert len(server.connections) == 1


async def test_a_closed_provider_opens_again(adapter: Adapter, server: Server) -> None:
    provider = adapter.make(server.root)
    await provider.generate(REQUEST)
    await provider.aclose()
    await provider.generate(REQUEST)
    await provider.aclose()
    await provider.aclose()
    assert len(server.connections) == 2


def test_one_provider_serves_one_event_loop_after_another(adapter: Adapter, server: Server) -> None:
    provider = adapter.make(server.root)

    async def ask_and_close() -> str:
        async with provider:
            return (await provider.generate(REQUEST)).text

    assert [anyio.run(ask_and_close, backend=backend) for backend in ("asyncio", "trio", "asyncio")] == ["Hello."] * 3


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"])
async def test_the_key_of_the_environment_is_not_sent_to_a_server_of_this_machine(
    adapter: Adapter, server: Server, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "another-secret-key")
    made = {"anthropic": AnthropicProvider, "google": GoogleProvider}[adapter.name]
    async with made("test-1", base_url=server.root) as provider:
        await provider.generate(REQUEST)
    assert "another-secret-key" not in str(server.headers)
