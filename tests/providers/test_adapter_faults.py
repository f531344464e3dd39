"""What goes wrong between here and a vendor goes wrong alike in the adapters for Anthropic and Google."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.providers.loopback import Answer, Hang, Server, closed_port, serving
from tests.providers.vendor_answers import (
    anthropic_message,
    anthropic_stream,
    anthropic_text_stream,
    block_events,
    gemini_answer,
    gemini_stream,
)
from toolkit import (
    BadResponseError,
    ChatRequest,
    ChatResponse,
    ProviderError,
    ProviderTimeoutError,
    ResponseDone,
    StreamEvent,
    TextDelta,
    UserMessage,
)
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
        begun: The beginning of it, with "He" in it.
        in_mid_argument: A stream that ends in the arguments of a call, or before the end of its turn.
    """

    name: str
    make: Callable[..., AnthropicProvider | GoogleProvider]
    whole: dict[str, Any]
    streamed: Sequence[bytes]
    begun: Sequence[bytes]
    in_mid_argument: Sequence[bytes]


def anthropic(url: str, **options: Any) -> AnthropicProvider:
    return AnthropicProvider("test-1", base_url=url, api_key=SECRET, **options)


def google(url: str, **options: Any) -> GoogleProvider:
    return GoogleProvider("test-1", base_url=url, api_key=SECRET, **options)


CALL: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
ADAPTERS = [
    Adapter(
        name="anthropic",
        make=anthropic,
        whole=anthropic_message({"type": "text", "text": "Hello."}),
        streamed=anthropic_text_stream("He", "llo."),
        begun=anthropic_text_stream("He", is_complete=False),
        in_mid_argument=anthropic_stream(
            block_events(0, CALL, {"type": "input_json_delta", "partial_json": '{"a'})[:-1], is_complete=False
        ),
    ),
    Adapter(
        name="google",
        make=google,
        whole=gemini_answer({"text": "Hello."}),
        streamed=gemini_stream(gemini_answer({"text": "He"}, finish=None), gemini_answer({"text": "llo."})),
        begun=gemini_stream(gemini_answer({"text": "He"}, finish=None)),
        in_mid_argument=gemini_stream(gemini_answer({"functionCall": {"name": "f", "args": {}}}, finish=None)),
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
    with anyio.fail_after(10):
        async with adapter.make(url) as provider:
            if not streams:
                return await provider.generate(request)
            async with aclosing(provider.stream(request)) as stream:
                heard: list[StreamEvent] = [event async for event in stream]
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    return last.response


both_ways = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


@both_ways
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(HTML, content_type="text/html"), "text/html.*check base_url"),
        (Answer(b'{"id": '), "check base_url|before the answer was"),
    ],
    ids=["HTML", "half a JSON"],
)
async def test_a_200_that_is_no_answer_names_the_url(
    adapter: Adapter, server: Server, answer: Answer, says: str, streams: bool
) -> None:
    server.answers[:] = [answer]
    with pytest.raises(ProviderError, match=says):
        await ask(adapter, server.root, streams=streams)
    assert len(server.requests) == 1, "the loop retries, the provider does not"


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
    with pytest.raises(ProviderError, match="said no more") as caught:
        await ask(adapter, server.root, streams=streams)
    assert (caught.value.status, caught.value.is_retryable) == (answer.status, is_retryable)


@pytest.mark.parametrize("stage", ["cut", "ends early", "stops in mid-argument", "no JSON"])
async def test_a_broken_stream_is_an_error_and_never_a_short_answer(
    adapter: Adapter, server: Server, stage: str
) -> None:
    broken = {
        "cut": (Answer(pieces=adapter.begun, is_cut=True), ProviderError, "was cut"),
        "ends early": (Answer(pieces=adapter.begun), ProviderError, "before the answer was"),
        "stops in mid-argument": (Answer(pieces=adapter.in_mid_argument), ProviderError, "before the answer was"),
        "no JSON": (Answer(pieces=[*adapter.begun, b"data: {nonsense\n\n"]), BadResponseError, "check base_url"),
    }
    answer, kind, says = broken[stage]
    server.answers[:] = [answer]
    with pytest.raises(kind, match=says) as caught:
        await ask(adapter, server.root, streams=True)
    assert caught.value.is_retryable is (kind is ProviderError)


@pytest.mark.parametrize("size", [1, 7])
async def test_a_stream_may_come_in_pieces_of_any_size(adapter: Adapter, server: Server, size: int) -> None:
    whole = b"".join(adapter.streamed)
    server.answers[:] = [Answer(pieces=[whole[start : start + size] for start in range(0, len(whole), size)])]
    assert (await ask(adapter, server.root, streams=True)).text == "Hello."


@both_ways
async def test_no_server_names_the_url_and_what_to_do(adapter: Adapter, streams: bool) -> None:
    with pytest.raises(ProviderError, match=r"no connection to http://127\.0\.0\.1:\d+.*is the server") as caught:
        await ask(adapter, f"http://user:pass@127.0.0.1:{closed_port()}", streams=streams)
    assert caught.value.is_retryable
    assert "pass" not in str(caught.value)


@both_ways
@pytest.mark.parametrize("has_begun", [False, True], ids=["no answer", "stops in the middle"])
async def test_a_timeout_is_an_error_and_closes_the_connection(
    adapter: Adapter, server: Server, has_begun: bool, streams: bool
) -> None:
    hang = Hang(adapter.begun if has_begun else ())
    server.answers[:] = [hang]
    request = ChatRequest(messages=REQUEST.messages, timeout=0.2)
    with pytest.raises(ProviderTimeoutError, match=r"within 0\.2 s|in time") as caught:
        await ask(adapter, server.root, streams=streams, request=request)
    assert caught.value.is_retryable
    assert await anyio.to_thread.run_sync(hang.has_left.wait, 5)


@both_ways
async def test_a_timeout_of_the_provider_counts_where_the_request_has_none(
    adapter: Adapter, server: Server, streams: bool
) -> None:
    server.answers[:] = [Hang()]
    with anyio.fail_after(10):
        async with adapter.make(server.root, timeout=0.2) as provider:
            with pytest.raises(ProviderTimeoutError):
                if streams:
                    async with aclosing(provider.stream(REQUEST)) as stream:
                        await anext(stream)
                else:
                    await provider.generate(REQUEST)


@both_ways
@pytest.mark.parametrize("has_begun", [False, True], ids=["no answer", "stops in the middle"])
async def test_cancelling_closes_the_connection(
    adapter: Adapter, server: Server, has_begun: bool, streams: bool
) -> None:
    hang = Hang(adapter.begun if has_begun else ())
    server.answers[:] = [hang]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(ask, adapter, server.root, streams=streams))
        assert await anyio.to_thread.run_sync(hang.has_come.wait, 5)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(hang.has_left.wait, 5)


async def test_leaving_a_stream_early_closes_the_connection(adapter: Adapter, server: Server) -> None:
    hang = Hang(adapter.begun)
    server.answers[:] = [hang]
    async with adapter.make(server.root) as provider:
        async with aclosing(provider.stream(REQUEST)) as stream:
            assert await anext(stream) == TextDelta("He")
        assert await anyio.to_thread.run_sync(hang.has_left.wait, 5)


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


async def test_requests_may_run_side_by_side(adapter: Adapter, server: Server) -> None:
    async with adapter.make(server.root) as provider, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(provider.generate, REQUEST)
    assert len(server.requests) == 5


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
