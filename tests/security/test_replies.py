"""Replies of hostile servers: they end, in bounded memory, as an answer or as an error of ours."""

import gzip
import json
import socket
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Any

import anyio
import httpx2
import pytest
from openai import AsyncOpenAI

from tests.loop_turns import LONGEST_TURN, longest_turn
from tests.providers.loopback import chunk, completion, events
from tests.sources.openapi.pets import document, operation
from toolkit import (
    ChatRequest,
    Provider,
    ProviderError,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import Freeform
from toolkit.chat.provider import closing
from toolkit.errors import BadResponseError
from toolkit.http_client import BoundedClient, ReplyTooLargeError, check_json_parts, read_bounded
from toolkit.providers import ClosableProvider
from toolkit.providers.adapter import ServerEventReader
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.sources.openapi import openapi_tools
from toolkit.testing.loopback import Answer, serving

pytestmark = pytest.mark.anyio

PATIENCE = 60.0
MOST_MEMORY = 400 * 2**20
Bytes = Callable[[], Iterator[bytes]]


@contextmanager
def sending(reply: Bytes) -> Generator[str]:
    """Serve these raw bytes to each request, for as long as somebody reads them; gives the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65_536)
                for piece in reply():
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def head(status: int = 200, content_type: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def once(*pieces: bytes) -> Bytes:
    return lambda: iter(pieces)


def endless(*first: bytes, piece: bytes) -> Bytes:
    def reply() -> Iterator[bytes]:
        yield from first
        yield from repeat(piece)

    return reply


def deflated_gigabyte() -> bytes:
    """What unpacks to a gigabyte of spaces, made of one piece: to pack it all takes seconds."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(b" " * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    return piece * 2**10


DEFLATED = deflated_gigabyte()
BOMB = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + DEFLATED
TWICE = gzip.compress(BOMB)
ANSWER = json.dumps(completion()).encode()
STREAM = "text/event-stream"
EVENT = b"".join(events(chunk({"content": "a"}), is_done=False))
WORDS = b"".join(events(chunk({"content": "word " * 800}), is_done=False))

ATTACKS: dict[str, Bytes] = {
    "gzip of a gigabyte": once(head(content_encoding="gzip"), BOMB),
    "gzip of a gigabyte, under its other name": once(head(content_encoding="x-gzip"), BOMB),
    "gzip in capitals": once(head(content_encoding="GZIP"), BOMB),
    "zlib of a gigabyte": once(head(content_encoding="deflate"), b"\x78\x9c" + DEFLATED),
    "raw deflate of a gigabyte": once(head(content_encoding="deflate"), DEFLATED),
    "gzip within gzip": once(head(content_encoding="gzip, gzip"), TWICE),
    "gzip within gzip, in two headers": once(
        head(content_encoding="gzip").removesuffix(b"\r\n") + b"content-encoding: gzip\r\n\r\n", TWICE
    ),
    "five times gzip": once(head(content_encoding="gzip, gzip, gzip, gzip, gzip"), TWICE),
    "brotli, which was not asked for": once(head(content_encoding="br"), b"\x00" * 1000),
    "zstandard, which was not asked for": once(head(content_encoding="zstd"), b"\x28\xb5\x2f\xfd" + b"\x00" * 1000),
    "an encoding that nobody knows": once(head(content_encoding="x" * 5000), ANSWER),
    "gzip that is none": once(head(content_encoding="gzip"), ANSWER),
    "gzip cut off": once(head(content_encoding="gzip"), gzip.compress(ANSWER)[:-20]),
    "a refusal of a gigabyte": once(head(400, content_encoding="gzip"), BOMB),
    "a failure of a gigabyte": once(head(500, content_encoding="gzip"), BOMB),
    "a refusal without end": endless(head(429), piece=b"a" * 65_536),
    "a refusal packed twice": once(head(400, content_encoding="gzip, gzip"), TWICE),
    "a refusal packed as nobody asked": once(head(400, content_encoding="br"), b"\x00" * 1000),
    "a redirect without end": endless(head(307, location="http://127.0.0.1:1/"), piece=b"a" * 65_536),
    "a body without end": endless(head(), piece=b" " * 65_536),
    "a text without end": endless(head(), b'{"choices":[{"message":{"content":"', piece=b"a" * 65_536),
    "a list without end": endless(head(), b'{"choices":[', piece=b"[]," * 20_000),
    "a body of bytes": endless(head(), piece=b"\xff" * 65_536),
    "a chunked body without end": endless(
        head(transfer_encoding="chunked"), piece=b"10000\r\n" + b" " * 65_536 + b"\r\n"
    ),
    "headers without end": endless(b"HTTP/1.1 200 X\r\n", piece=b"x-more: " + b"a" * 1000 + b"\r\n"),
    "one header without end": endless(b"HTTP/1.1 200 X\r\nx-more: ", piece=b"a" * 65_536),
    "headers without number": once(
        head().removesuffix(b"\r\n") + b"a: b\r\n" * 9_000 + f"content-length: {len(ANSWER)}\r\n\r\n".encode(), ANSWER
    ),
    "a status line without end": endless(b"HTTP/1.1 200 ", piece=b"a" * 65_536),
    "no HTTP": endless(piece=b"\x00" * 65_536),
    "lists of a million lists": once(head(), b'{"choices":[' + b"[]," * 5_000_000 + b"[]]}"),
    "objects in objects": once(head(), b'{"choices":' + b'{"a":' * 100_000),
    "lists in lists": once(head(), b"[" * 1_000_000),
    "a number of a million digits": once(head(), b'{"choices":[{"index":' + b"9" * 1_000_000 + b"}]}"),
    "a stream that is one line": endless(head(content_type=STREAM), b"data: ", piece=b"a" * 65_536),
    "a stream of comments": endless(head(content_type=STREAM), piece=b": ping\n\n" * 8000),
    "a stream of empty lines": endless(head(content_type=STREAM), piece=b"\n" * 65_536),
    "a stream of data that no event ends": endless(head(content_type=STREAM), piece=b"data: a\n" * 8000),
    "a stream of line ends of old": endless(head(content_type=STREAM), piece=b"data: a\r" * 8000),
    "a stream of words without end": endless(head(content_type=STREAM), piece=WORDS * 20),
    "a stream of what is no JSON": endless(head(content_type=STREAM), piece=b"data: {\n\n" * 8000),
    "a packed stream without end": once(head(content_type=STREAM, content_encoding="gzip"), BOMB),
    "a stream whose event is a million lists": once(
        head(content_type=STREAM), b'data: {"choices":[' + b"[]," * 5_000_000 + b"[]]}\n\n"
    ),
    "a stream that ends at once": once(head(content_type=STREAM)),
    "a stream after its end": endless(head(content_type=STREAM), EVENT, b"data: [DONE]\n\n", piece=EVENT * 500),
    "HTML without end": endless(head(content_type="text/html"), piece=b"<p>" * 20_000),
    "nothing": once(),
}
PROVIDERS: dict[str, Callable[[str], ClosableProvider]] = {
    "chat": lambda url: OpenAIProvider("m", base_url=url, timeout=PATIENCE),
    "responses": lambda url: OpenAIResponsesProvider("m", base_url=url, timeout=PATIENCE),
    "anthropic": lambda url: AnthropicProvider("m", base_url=url, timeout=PATIENCE),
    "google": lambda url: GoogleProvider("m", base_url=url, timeout=PATIENCE),
}
REQUEST = ChatRequest(messages=[UserMessage("Hi")])


async def ask(provider: Provider, *, streams: bool) -> None:
    if not streams:
        await provider.generate(REQUEST)
        return
    async with closing(provider.stream(REQUEST)) as heard:
        async for _ in heard:
            pass


async def attacked(kind: str, reply: Bytes, *, streams: bool) -> ProviderError:
    with sending(reply) as url, pytest.raises(ProviderError) as caught:
        async with PROVIDERS[kind](url) as provider:
            with anyio.fail_after(PATIENCE):
                await ask(provider, streams=streams)
    return caught.value


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("name", ATTACKS)
async def test_no_reply_takes_the_process(name: str, streams: bool) -> None:
    error = await attacked("chat", ATTACKS[name], streams=streams)
    assert len(str(error)) < 2000


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize(
    "name",
    [
        *("gzip of a gigabyte", "raw deflate of a gigabyte", "five times gzip", "a failure of a gigabyte"),
        *("a body without end", "lists of a million lists", "a packed stream without end", "a stream that is one line"),
    ],
)
async def test_no_reply_takes_the_memory(name: str, streams: bool) -> None:
    tracemalloc.start(1)
    try:
        await attacked("chat", ATTACKS[name], streams=streams)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("kind", PROVIDERS)
@pytest.mark.parametrize(
    "name",
    [
        "gzip of a gigabyte",
        "gzip within gzip",
        "a refusal of a gigabyte",
        "a body without end",
        "a stream that is one line",
        "headers without number",
    ],
)
async def test_no_adapter_reads_what_has_no_end(kind: str, name: str, streams: bool) -> None:
    error = await attacked(kind, ATTACKS[name], streams=streams)
    assert isinstance(error, BadResponseError) or "refusal" in name or "headers" in name


async def test_a_time_limit_holds_while_a_server_promises_to_go_on() -> None:
    more = endless(piece=b"HTTP/1.1 100 Continue\r\n\r\n" * 500)
    with sending(more) as url:
        async with OpenAIProvider("m", base_url=url, timeout=0.5) as provider:
            with pytest.raises(ProviderError), anyio.fail_after(PATIENCE):
                await ask(provider, streams=False)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(ANSWER)),
        ("x-gzip", gzip.compress(ANSWER)),
        ("deflate", zlib.compress(ANSWER)),
        ("deflate", zlib.compress(ANSWER, wbits=-15)),
        ("identity", ANSWER),
        ("gzip", gzip.compress(ANSWER) + b"what follows the end" * 10),
    ],
)
async def test_what_is_packed_as_was_asked_is_unpacked(encoding: str, packed: bytes) -> None:
    for size in (1, 7, len(packed)):
        pieces = [packed[start : start + size] for start in range(0, len(packed), size)]
        with sending(once(head(content_encoding=encoding), *pieces)) as url:
            async with OpenAIProvider("m", base_url=url, timeout=PATIENCE) as provider:
                assert (await provider.generate(REQUEST)).text == "Hello."


async def test_the_piece_that_bounds_is_for_every_source() -> None:
    with sending(ATTACKS["gzip of a gigabyte"]) as url:
        async with BoundedClient() as client:
            with pytest.raises(ReplyTooLargeError):
                await client.get(url)
            response = await client.send(client.build_request("GET", url), stream=True)
            with pytest.raises(ReplyTooLargeError):
                await read_bounded(response, most_bytes=1000)
    with sending(once(head(404, content_encoding="gzip"), gzip.compress(b"gone"))) as url:
        async with BoundedClient() as client:
            response = await client.get(url)
            assert (response.status_code, response.text) == (404, "gone")


async def test_no_tool_of_a_document_reads_headers_without_number() -> None:
    with sending(ATTACKS["headers without number"]) as url:
        source = document({"/": {"get": operation(operationId="read")}})
        async with openapi_tools(source, base_url=url) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "read", "{}"))
    assert result.is_error
    assert "more than 1000 headers" in result.text


async def test_the_headers_that_a_model_reads_are_bounded() -> None:
    more = {f"x-page-{number}": "a" * 90 for number in range(900)}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=more, text="ok"))
    async with openapi_tools(document({"/": {"get": operation()}}), transport=transport) as tools:
        result = await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
    assert len(result.text) < 20_000
    assert result.text.endswith("\n\nok")


class Pieces(httpx2.AsyncByteStream):
    """A body that is there at once."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


BODIES: dict[str, tuple[dict[str, str], Pieces]] = {
    "pieces of a byte": ({}, Pieces(*[b"a"] * 400_000)),
    "sixty megabytes, packed": ({"content-encoding": "gzip"}, Pieces(gzip.compress(b" " * 60_000_000, 1))),
}


@pytest.mark.parametrize("name", BODIES)
def test_no_body_holds_the_event_loop(name: str) -> None:
    headers, stream = BODIES[name]

    async def read() -> None:
        await read_bounded(httpx2.Response(200, headers=headers, stream=stream))

    assert longest_turn(read) < LONGEST_TURN


async def test_a_client_of_ones_own_is_bounded_too() -> None:
    with sending(ATTACKS["gzip of a gigabyte"]) as url:
        async with httpx2.AsyncClient() as client, GoogleProvider("m", base_url=url, http_client=client) as provider:
            with pytest.raises(BadResponseError):
                await ask(provider, streams=False)


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_a_transport_of_ones_own_may_have_read_its_answer_already(streams: bool) -> None:
    told = b"".join(events(chunk({"content": "Hello."}), chunk({}, finish_reason="stop")))

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": STREAM if streams else "application/json"}
        return httpx2.Response(200, headers=headers, content=told if streams else ANSWER)

    http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with AsyncOpenAI(api_key="k", base_url="http://nowhere.example", http_client=http_client) as client:
        await ask(OpenAIProvider("m", client=client), streams=streams)


def test_a_line_is_put_together_of_any_number_of_pieces() -> None:
    reader, count = ServerEventReader(), 400_000  # what copied all that came before, piece by piece, would take minutes
    reader.feed(b"data: ")
    for _ in range(count):
        reader.feed(b"a" * 16)
    assert reader.feed(b"\n\n") == [b"a" * 16 * count]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    text = b": hi\ndata: a\ndata: b\r\n\r\nevent: x\ndata:c\n\n\n\ndata: {}\n\ndata: [DONE]\n\ndata: late\n\n"
    reader = ServerEventReader()
    heard = [event for start in range(0, len(text), size) for event in reader.feed(text[start : start + size])]
    assert heard == [b"a\nb", b"c", b"{}"]
    assert reader.is_done


def test_many_parts_are_counted_before_they_are_made() -> None:
    check_json_parts(b"[" + b"1," * 1_000_000 + b"1]")
    with pytest.raises(ReplyTooLargeError):
        check_json_parts(b"[" + b"[]," * 3_000_000 + b"1]")


# Many small pieces: what is put together of them is put together once.
MANY = 20_000


def stream_of(*told: dict[str, Any]) -> bytes:
    return b"".join([b"data: " + json.dumps(each).encode() + b"\n\n" for each in told])


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def block(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": fields}


LONG: dict[str, tuple[str, bytes, int, bytes]] = {
    "reasoning details": (
        "chat",
        stream_of(chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "a" * 200}]})),
        MANY,
        stream_of(chunk({}, finish_reason="stop")),
    ),
    "calls": (
        "chat",
        stream_of(chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "a" * 200}}]})),
        MANY,
        stream_of(chunk({}, finish_reason="stop")),
    ),
    "signatures": (
        "anthropic",
        stream_of(delta(0, type="signature_delta", signature="a" * 200)),
        MANY,
        stream_of({"type": "message_stop"}),
    ),
    "texts": (
        "anthropic",
        stream_of(block(0, type="text", text="a" * 200)),
        MANY,
        stream_of({"type": "message_stop"}),
    ),
    "explanations": (
        "anthropic",
        stream_of({"type": "message_delta", "delta": {"stop_details": {"explanation": "No."}}}),
        MANY,
        stream_of({"type": "message_stop"}),
    ),
    "parts": (
        "google",
        stream_of({"candidates": [{"content": {"parts": [{"text": "a" * 200}, {"text": "b", "thought": True}]}}]}),
        MANY,
        stream_of({"candidates": [{"finishReason": "STOP"}]}),
    ),
}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", LONG)
async def test_many_small_pieces_are_put_together_once(name: str) -> None:
    kind, first, count, last = LONG[name]
    start = (
        stream_of({"type": "message_start", "message": {}}, block(0, type="thinking")) if kind == "anthropic" else b""
    )
    with sending(once(head(content_type=STREAM), start, *[first * 100] * (count // 100), last)) as url:
        async with PROVIDERS[kind](url) as provider:
            with anyio.fail_after(PATIENCE):
                await ask(provider, streams=True)


ODD_NUMBERS: dict[str, tuple[str, str]] = {
    "tokens of four hundred digits": (
        "chat",
        '{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":HUGE,"cost":HUGE}}',
    ),
    "tokens without end": (
        "chat",
        '{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1e999,"cost":-1e999}}',
    ),
    "tokens that are no number": ("chat", '{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":NaN}}'),
    "arguments of five thousand digits": (
        "anthropic",
        '{"content":[{"type":"tool_use","id":"c","name":"f","input":{"a":HUGER}}]}',
    ),
    "gemini's arguments of five thousand digits": (
        "google",
        '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":HUGER}}}]}}]}',
    ),
    "an index of four hundred digits": ("responses", '{"output":[{"type":"message","content":[]}],"x":HUGE}'),
}


@pytest.mark.parametrize("name", ODD_NUMBERS)
async def test_numbers_without_measure_are_an_error_of_ours_or_not_told(name: str) -> None:
    kind, body = ODD_NUMBERS[name]
    said = body.replace("HUGER", "9" * 5000).replace("HUGE", "9" * 400)
    with sending(once(head(), said.encode())) as url:
        async with PROVIDERS[kind](url) as provider:
            try:
                response = await provider.generate(REQUEST)
            except BadResponseError:
                return
    assert (response.usage.input_tokens, response.usage.cost) == (0, None)


@pytest.mark.anyio
@pytest.mark.parametrize("charset", ["idna", "punycode", "undefined", "unicode_escape", "hex", "x" * 5_000])
async def test_a_charset_that_is_none_is_read_as_utf_8(charset: str) -> None:
    """Some codecs refuse to replace, or take time in the square of the text."""

    def reply(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": f"text/plain; charset={charset}"}, content="Zoë-".encode())

    source = document({"/pets": {"get": operation(operationId="pets")}})
    async with openapi_tools(source, transport=httpx2.MockTransport(reply)) as tools:
        result = await ToolRegistry(tools).execute(ToolCall("1", "pets", "{}"))
    assert not result.is_error
    assert result.text.endswith("Zoë-")


def chat_cut(reason: str | None, arguments: str = "") -> Answer:
    call = {"id": "c", "type": "function", "function": {"name": "erase", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return Answer({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})


def messages_cut(reason: str) -> Answer:
    call: dict[str, Any] = {"type": "tool_use", "id": "c", "name": "erase", "input": {}}
    return Answer({"id": "m", "type": "message", "role": "assistant", "content": [call], "stop_reason": reason})


def responses_cut(item: dict[str, Any], *after: dict[str, Any], **answer: Any) -> Answer:
    body = {"id": "r", "object": "response", "status": "completed", "output": [item, *after], **answer}
    return Answer(body)


def text_call(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "custom_tool_call", "id": "i", "call_id": "c", "name": "shell", "input": text, **more}


def item_call(**more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "i", "call_id": "c", "name": "erase", "arguments": "", **more}


CUT_OFF: dict[str, tuple[type[Any], Answer]] = {
    "chat: the limit, before the arguments": (OpenAIProvider, chat_cut("length")),
    "chat: the limit, with an empty object": (OpenAIProvider, chat_cut("length", "{}")),
    "chat: a reason that nobody knows": (OpenAIProvider, chat_cut("budget_exhausted")),
    "chat: a reason that nobody knows, with null": (OpenAIProvider, chat_cut("preempted", "null")),
    "messages: the limit": (AnthropicProvider, messages_cut("max_tokens")),
    "messages: a stop text": (AnthropicProvider, messages_cut("stop_sequence")),
    "messages: a reason of another vendor": (AnthropicProvider, messages_cut("length")),
    "messages: a reason that nobody knows": (AnthropicProvider, messages_cut("budget_exhausted")),
    "responses: the limit, in a text": (
        OpenAIResponsesProvider,
        responses_cut(text_call("rm -rf /"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    ),
    "responses: an unknown status, in a text": (
        OpenAIResponsesProvider,
        responses_cut(text_call("rm -rf /"), status="expired"),
    ),
    "responses: a text that says so itself": (
        OpenAIResponsesProvider,
        responses_cut(text_call("rm -rf /", status="incomplete"), {"type": "message", "content": []}),
    ),
    "responses: a text in progress": (
        OpenAIResponsesProvider,
        responses_cut(text_call("rm -rf /", status="in_progress")),
    ),
    "responses: a call in progress": (OpenAIResponsesProvider, responses_cut(item_call(status="in_progress"))),
    "responses: a failure without an error": (OpenAIResponsesProvider, responses_cut(item_call(), status="failed")),
}


@pytest.mark.parametrize("case", CUT_OFF)
async def test_a_call_that_may_be_cut_off_does_not_run(case: str) -> None:
    ran: list[str] = []

    @tool
    def erase(path: str = "/") -> str:
        """Erase a folder."""
        ran.append(path)
        return "erased"

    @tool(freeform=Freeform())
    def shell(command: str) -> str:
        """Run a command."""
        ran.append(command)
        return "done"

    provider_class, answer = CUT_OFF[case]
    with serving(answer) as server:
        url = server.url.removesuffix("/v1") if provider_class is AnthropicProvider else server.url
        async with provider_class("m", api_key="k", base_url=url) as provider:
            config = ToolLoopConfig(max_iterations=1, stream=False)
            result = await tool_loop(provider, ToolRegistry([erase, shell]), "Go.", config=config)
    assert ran == []
    assert [message.is_error for message in result.messages if message.role == "tool"] == [True]
