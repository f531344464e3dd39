"""Input of a peer that would hold the event loop: each row is less than a megabyte, and other tasks have their turn.

What is measured is the CPU time of the loop's thread between two turns, on a machine of a fixed speed.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import anyio.to_thread
import httpx2
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from tests.fuzzing.sources import GREETING, TALK, Peer, mcp_http_target, restore_log_levels, start_peer_instead, use_mcp
from tests.loop_turns import LONGEST_TURN, METER, TurnMeter, longest_hold, longest_turn, slowness
from tests.sources.openapi.pets import document, operation
from toolkit import (
    AssistantMessage,
    LoopDetectionConfig,
    LoopLimits,
    MemoryCache,
    Provider,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_from_schema,
    tool_loop,
)
from toolkit.chat import ChatRequest, ChatResponse, ToolCall, ToolResult, Usage, UserMessage
from toolkit.checked_yaml import YamlTooLargeError, load_yaml
from toolkit.errors import BadResponseError, PluginError, ProviderError
from toolkit.parsing import TextFormat, TextToolProvider
from toolkit.providers.google import GoogleProvider
from toolkit.sources.mcp import http, mcp_tools, stdio
from toolkit.sources.openapi import openapi_tools
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import RecordingProvider, ReplayProvider, ScriptedProvider
from toolkit.tracing import Tracing
from toolkit.ui.dialects import read_ag_ui_request, read_ui_request

DICE = random.Random(1)
LONG_NAMES = ["".join(DICE.choices("abcd", k=60)) + str(number) for number in range(1_000)]
# Names of the same letters as the tool's: nothing but a whole comparison tells them apart.
ALIKE = ["".join(DICE.sample(name[:60], 60)) for name in LONG_NAMES[:50]]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a model calls; `config` are settings of the loop, and `tools` those that there are."""

    calls: list[tuple[str, str]]
    config: dict[str, Any]
    tools: list[str]


REPLIES = {
    "unknown names of the letters of a thousand tools": Reply(
        calls=[(name, "{}") for name in ALIKE], config={}, tools=LONG_NAMES
    ),
    "unknown names, of which a similar one is taken": Reply(
        calls=[(name, "{}") for name in ALIKE], config={"name_repair": "similar"}, tools=LONG_NAMES
    ),
    "unknown names that are too long": Reply(calls=[(name * 50, "{}") for name in ALIKE], config={}, tools=LONG_NAMES),
    "arguments with a key a thousand times": Reply(
        calls=[("one", '{"a": "b", ' + '"a": "c", ' * 2_800 + '"d": e}')], config={}, tools=["one"]
    ),
    "arguments full of comments": Reply(calls=[("one", '{"a": ' + "//" * 400_000 + "}")], config={}, tools=["one"]),
    "arguments full of lists": Reply(calls=[("one", '{"a": [' + "[], " * 200_000 + "]}")], config={}, tools=["one"]),
    "arguments of lists and of a string without an end": Reply(
        calls=[("one", '{"a": [' + "[], " * 21_000 + '"' + '\\"' * 100_000)], config={}, tools=["one"]
    ),
    "arguments that could be read in many ways": Reply(
        calls=[("one", '[1, "x",*"ne": ", ' + '"a,b",None "p"q_r,s", ""t,u", ' * 6)] * 3, config={}, tools=["one"]
    ),
    "as many calls as are read": Reply(calls=[("one", "{}")] * 2_000, config={}, tools=["one"]),
    "more calls than are read": Reply(calls=[("one", "{}")] * 20_000, config={}, tools=["one"]),
    "unknown names of many parts": Reply(
        calls=[(f"{'a.' * 120}{number}", "{}") for number in range(50)], config={}, tools=LONG_NAMES
    ),
}


@cache
def make_registry(names: tuple[str, ...]) -> ToolRegistry:
    return ToolRegistry([tool_from_schema(name, "", {"type": "object"}, lambda _: "ran") for name in names])


MANY_TOOLS = make_registry(tuple(LONG_NAMES))


def reply_with(case: Reply) -> Callable[[], Awaitable[object]]:
    registry = make_registry(tuple(case.tools))
    message = AssistantMessage([ToolCall(str(place), *call) for place, call in enumerate(case.calls)])

    async def run() -> None:
        provider = ScriptedProvider([message, "Done."])
        with suppress(BadResponseError):
            await tool_loop(provider, registry, "Go.", config=ToolLoopConfig(**case.config))

    return run


@pytest.mark.parametrize("name", REPLIES)
def test_no_reply_of_a_model_holds_the_event_loop(name: str) -> None:
    run = reply_with(REPLIES[name])
    backend = "trio" if name == "unknown names of many parts" else "asyncio"
    longest_turn(reply_with(Reply(calls=[("none", "{}")], config={}, tools=["one"])), backend)  # what is imported late
    assert longest_turn(run, backend) < LONGEST_TURN


@pytest.mark.anyio
@pytest.mark.parametrize(("most", "is_refused"), [(128, True), (None, True), (2_001, False)])
async def test_a_reply_of_too_many_calls_is_an_error_of_which_the_usage_is_known(
    most: int | None, is_refused: bool
) -> None:
    message = AssistantMessage([ToolCall(str(place), "one", "{}") for place in range(2_001)])
    provider = ScriptedProvider([ChatResponse(message=message, usage=Usage(input_tokens=3, output_tokens=4)), "Done."])
    config = ToolLoopConfig(limits=LoopLimits(calls_per_turn=most))
    if not is_refused:
        result = await tool_loop(provider, make_registry(("one",)), "Go.", config=config)
        assert len(result.messages) == 2_001 + 3
        return
    with pytest.raises(BadResponseError, match="2001 calls in one reply; at most 2000 are read") as caught:
        await tool_loop(provider, make_registry(("one",)), "Go.", config=config)
    assert caught.value.usage == Usage(input_tokens=3, output_tokens=4)
    assert [each.role for each in caught.value.messages] == ["user"]


class Sum(BaseModel):
    left: Term
    right: Term


class Product(BaseModel):
    left: Term
    right: Term


class Number(BaseModel):
    number: int


class Name(BaseModel):
    name: str


Term = Sum | Product | Number | Name


def tree_of_terms(levels: int) -> dict[str, Any]:
    term: dict[str, Any] = {"number": 1}
    for _ in range(levels):
        term = {"left": term, "right": {"number": 1}}
    return term


@tool
def take(
    values: list[int | float | str | bool | None] | None = None,
    names: dict[str, Name] | None = None,
    numbers: set[int] | None = None,
    by_number: dict[int, int] | None = None,
    keys: set[UUID] | None = None,
    term: Term | None = None,
) -> None:
    """Take."""


@pytest.mark.parametrize("way", ["keys", "a set"])
def test_no_yaml_with_numbers_of_one_hash_holds_the_lock(way: str) -> None:
    numbers = "".join([f"? {number}\n" for number in ONE_HASH])
    text = numbers if way == "keys" else "!!set {" + numbers.replace("\n", ", ") + "}"
    with pytest.raises(YamlTooLargeError, match="keys that are numbers"):
        load_yaml(text)


ONE_HASH = [number * (2**61 - 1) for number in range(20_000)]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "values that are none of the choices": {"values": [{}] * 200_000},
    "members of the wrong type": {"names": {str(number): {"name": 1} for number in range(40_000)}},
    "names that nobody knows": {f"name{number}": 1 for number in range(60_000)},
    "numbers of one hash": {"numbers": ONE_HASH},
    "names that are numbers of one hash": {"by_number": dict.fromkeys(map(str, ONE_HASH), 1)},
    "identifiers of one hash": {"keys": [str(UUID(int=number)) for number in ONE_HASH]},
    "choices in choices": {"term": tree_of_terms(30)},
    "choices in choices that are all wrong": {"term": {"left": tree_of_terms(30), "right": {}}},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_no_arguments_for_a_function_hold_the_lock(name: str) -> None:
    longest_turn(reply_to_take({"names": []}))  # what is imported late
    assert longest_hold(reply_to_take(ARGUMENTS[name])) < LONGEST_TURN


def test_no_failure_of_a_provider_after_large_arguments_holds_the_event_loop() -> None:
    arguments = json.dumps({"a": ["x"] * 100_000, "password": "hunter22"})

    async def run() -> None:
        failure = ProviderError("p", "Refused: hunter22.")
        provider = ScriptedProvider([AssistantMessage([ToolCall("1", "one", arguments)]), failure])
        with pytest.raises(ProviderError, match=r"Refused: \*\*\*"):
            await tool_loop(provider, make_registry(("one",)), "Go.")

    longest_turn(reply_with(Reply(calls=[("one", "{}")], config={}, tools=["one"])))  # what is imported late
    assert longest_turn(run) < LONGEST_TURN


LARGE = json.dumps({"values": ["ab cd"] * 60_000})
WAYS: dict[str, dict[str, Any]] = {
    "run": {},
    "observed": {"on_event": id},
    "approved": {"on_tool_call": bool},
    "cached": {"cache": MemoryCache()},
    "compared": {"loop_detection": LoopDetectionConfig(mode="call")},
}


@pytest.mark.parametrize("way", WAYS)
def test_large_arguments_that_are_right_do_not_hold_the_event_loop(way: str) -> None:
    longest_turn(call_with('{"values": []}', **WAYS[way]))  # what is imported late
    assert longest_turn(call_with(LARGE, **WAYS[way])) < LONGEST_TURN


def call_with(arguments: str, **config: Any) -> Callable[[], Awaitable[object]]:
    keep = tool_from_schema("keep", "", {"type": "object"}, lambda _: "kept", cache=True)

    async def run() -> None:
        provider = ScriptedProvider([AssistantMessage([ToolCall("1", "keep", arguments)]), "Done."])
        result = await tool_loop(provider, ToolRegistry([keep]), "Go.", config=ToolLoopConfig(**config))
        told = result.messages[2]
        assert isinstance(told, ToolResult)
        assert told.text == "kept"

    return run


def reply_to_take(arguments: dict[str, Any]) -> Callable[[], Awaitable[object]]:
    call = ToolCall("1", "take", json.dumps(arguments))

    async def run() -> None:
        result = await tool_loop(ScriptedProvider([AssistantMessage([call]), "Done."]), ToolRegistry([take]), "Go.")
        told = result.messages[2]
        assert isinstance(told, ToolResult)
        assert told.is_error

    return run


MOST = 400_000
DESCRIBED = b'{"name": "add"}'


def talk_to_plugin(*lines: bytes) -> Callable[[], Awaitable[object]]:
    async def run() -> None:
        put_back = start_peer_instead(Peer(list(lines)))
        try:
            async with plugin_tools(
                "/nowhere", env={"API_TOKEN": "s3cret-value"}, describe_timeout=0.3, timeout=0.3
            ) as tools:
                await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
        except PluginError:
            pass
        finally:
            put_back()

    return run


def talk_to_mcp_server(*lines: bytes, listed: bytes = TALK.splitlines()[0]) -> Callable[[], Awaitable[object]]:
    async def run() -> None:
        put_back = start_peer_instead(Peer([*GREETING.splitlines(), listed, *lines]))
        try:
            await use_mcp(stdio("/nowhere"))
        finally:
            put_back()

    return run


def ask_over_http(content_type: str, structured: bytes) -> Callable[[], Awaitable[object]]:
    """Call a tool of a server over HTTP, whose result has a long value."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            listed = GREETING.splitlines()[1] if asked["method"] == "initialize" else list_tools(LOOK)
            if asked["method"] == "tools/call":
                listed = b'{"jsonrpc": "2.0", "id": "$id", "result": {"content": [], "structuredContent": $it}}'
            answer = listed.replace(b'"$id"', json.dumps(asked.get("id")).encode()).replace(b"$it", structured)
            is_event = content_type != "application/json"
            self.send_response(404 if asked["method"] == "server/discover" else 200 if "id" in asked else 202)
            self.send_header("content-type", content_type)
            self.end_headers()
            self.wfile.write(b"data: " + answer + b"\n\n" if is_event else answer)

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the parent's name

    async def run() -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            async with mcp_tools(http(f"http://127.0.0.1:{server.server_port}/mcp")) as tools:
                result = await ToolRegistry(tools).execute(ToolCall("1", "look", "{}"))
            assert isinstance(result.details, dict)
        finally:
            await anyio.to_thread.run_sync(server.shutdown)
            thread.join()
            server.server_close()

    return run


def read_interface(read: Callable[[bytes], object], **request: Any) -> Callable[[], Awaitable[object]]:
    usual = {"id": "1", "threadId": "1", "runId": "1", "messages": [ASKED], "tools": [], "context": []}
    body = json.dumps({**usual, **request}).encode()

    async def run() -> None:
        with suppress(ValueError):
            read(body)

    return run


def read_file_of_interface(url: str) -> Callable[[], Awaitable[object]]:
    part = {"type": "file", "url": url, "mediaType": "image/png"}
    return read_interface(read_ui_request, messages=[{"role": "user", "parts": [part]}])


ASKED = {"id": "1", "role": "user", "content": "Hi."}
SHOWN = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "x"}] * 30_000}


LOOK = {"name": "look", "inputSchema": {"type": "object"}}


def list_tools(*tools: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "$id", "result": {"tools": tools}}).encode()


def answer_look(result: dict[str, Any], **tool: Any) -> Callable[[], Awaitable[object]]:
    """Have an MCP server list one tool, and answer its call."""
    answer = json.dumps({"jsonrpc": "2.0", "id": "$id", "result": result}).encode()
    return talk_to_mcp_server(answer, listed=list_tools({**LOOK, **tool}))


CONDITIONS = {
    "type": "object",
    "allOf": [
        {"if": {"properties": {f"a{place}": {"const": 1}}}, "then": {"required": [f"b{place}"]}}
        for place in range(5_000)
    ],
}
WIDE = {"type": "object", "properties": {f"token{place}": {"type": "object"} for place in range(9_000)}}


def read_page(status: int, headers: dict[str, str], content: bytes) -> Callable[[], Awaitable[object]]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers=headers, content=content)

    async def run() -> None:
        async with openapi_tools(
            document({"/": {"get": operation(operationId="read")}}),
            headers={"x-key": "s3cret-value"},
            allow_hosts=["pets.test"],
            transport=httpx2.MockTransport(answer),
            max_response_bytes=MOST,
        ) as tools:
            await ToolRegistry(tools).execute(ToolCall("1", "read", "{}"))

    return run


def read_calls(text: str) -> Callable[[], Awaitable[object]]:
    async def run() -> None:
        provider = TextToolProvider(ScriptedProvider([text, "Done."]))
        await tool_loop(provider, make_registry(("one",)), "Go.")

    return run


def read_text_for(text: str, text_format: TextFormat) -> Callable[[], Awaitable[object]]:
    """Read a reply with no call for a thousand tools."""

    async def run() -> None:
        provider = TextToolProvider(ScriptedProvider([text], repeats=True), format=text_format)
        await provider.generate(ChatRequest(messages=[UserMessage("Go.")], tools=MANY_TOOLS.definitions()))

    return run


def hear(*pieces: bytes) -> Callable[[], Awaitable[object]]:
    """Stream a model's answer that comes in such pieces, all at once."""

    class Pieces(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces())

    async def run() -> None:
        http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        async with http_client, GoogleProvider("m", api_key="k", http_client=http_client) as provider:
            with suppress(ProviderError):
                async for _ in provider.stream(ChatRequest(messages=[UserMessage("Go.")])):
                    pass

    return run


PEERS: dict[str, Callable[[], Awaitable[object]]] = {
    "a description of many lines": talk_to_plugin(b'{"name": "add", "x": {\n' + b'"p": {},\n' * 30_000 + b'"q": {}}}'),
    "a description of blank lines": talk_to_plugin(b"\n" * 100_000),
    "a description of quotes": talk_to_plugin(b'{"' + b'\\"' * (MOST // 2)),
    "a wide schema": talk_to_plugin(
        json.dumps({"name": "add", "parameters": {"properties": {f"p{place}": {} for place in range(6_000)}}}).encode()
    ),
    "lines that are no messages": talk_to_plugin(DESCRIBED, b"x\n" * 100_000),
    "an object that never ends": talk_to_plugin(DESCRIBED, b"{\n" * 100_000),
    "an answer of many parts": talk_to_plugin(
        DESCRIBED, b'{"call_id": "$id", "content": [' + b"{}, " * (MOST // 4) + b"{}]}"
    ),
    "a long answer": talk_to_plugin(DESCRIBED, b'{"call_id": "$id", "content": "' + b"s3cret" * (MOST // 6) + b'"}'),
    "a long message of a kind that MCP does not have": talk_to_mcp_server(
        TALK.splitlines()[1].replace(b'"image"', b'"' + b"x" * 950_000 + b'"')
    ),
    "more tools than are read": talk_to_mcp_server(
        listed=list_tools(*({**LOOK, "name": f"t{place}"} for place in range(20_000)))
    ),
    "more blocks than are read": answer_look({"content": [{"type": "text", "text": "x"}] * 25_000}),
    "an answer for a wide schema": answer_look(
        {"content": [], "structuredContent": {"a": [{"b": 1}] * 20_000}}, outputSchema=WIDE
    ),
    "a call for a schema of many conditions": answer_look({"content": []}, inputSchema=CONDITIONS),
    "an output schema beside metadata that is null": answer_look(
        {"content": [], "structuredContent": {"a": "a" * 28 + "!"}},
        outputSchema={"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}},
        _meta=None,
    ),
    "icons of a tool": answer_look({"content": []}, icons=[{"src": "a:b"}] * 40_000),
    "icons of a link": answer_look(
        {"content": [{"type": "resource_link", "name": "a", "uri": "a:b", "icons": [{"src": "a:b"}] * 40_000}]}
    ),
    "metadata of many parts": answer_look({"content": [], "_meta": {"a": [{}] * 300_000}}),
    "a reply of many parts over HTTP": ask_over_http("application/json", b'{"a": [' + b"{}," * 300_000 + b"{}]}"),
    "an event of many parts over HTTP": ask_over_http("text/event-stream", b'{"a": [' + b"[]," * 300_000 + b"[]]}"),
    "a reply of escapes over HTTP": ask_over_http("application/json", b'{"a": "' + b"\\ud83d\\ude00" * 75_000 + b'"}'),
    "a file of an endless type": read_file_of_interface("data:image/" + "a" * 900_000),
    "a long history in AG-UI": read_interface(read_ag_ui_request, messages=[ASKED] * 19_000),
    "many tools in AG-UI": read_interface(
        read_ag_ui_request, tools=[{"name": "a", "description": "", "parameters": {}}] * 16_000
    ),
    "a message of many parts": read_interface(read_ui_request, messages=[SHOWN]),
    "a file of endless parameters": read_file_of_interface("data:a/b" + ";base64" * 120_000),
    "a long page": read_page(200, {"content-type": "text/plain"}, b"s3cret" * (MOST // 6)),
    "a long header": read_page(500, {"content-type": "text/html" + ";" * 100_000}, b"x"),
    "a redirect to an endless address": read_page(302, {"location": "/" + "%zz" * 20_000}, b""),
    "an event full of halves of characters": hear(b'data: {"a": "' + b"\\ud83d" * 130_000 + b'"}\n\n'),
    "an event full of characters of two halves": hear(b'data: {"a": "' + b"\\ud83d\\ude00" * 65_000 + b'"}\n\n'),
    "an answer in pieces of a byte": hear(*[b"data: {}\n\n"[place % 10 :][:1] for place in range(15_000)]),
    "more parts of an answer than are read": hear(
        b'data: {"candidates": [{"content": {"parts": [' + b"{}," * 32_000 + b"{}]}}]}\n\n"
    ),
    "text that is full of brackets": read_calls("[" * 10_000),
    "text that is full of brackets, and not long": read_calls("[" * 2_990),
    "text that is full of names of unknown tools": read_text_for('{"name": "a"}\n' * 200, "json"),
    "text that is full of what may be names": read_text_for("Action: " * 360, "react"),
    "text that is full of calls": read_calls('<tool_call>{"name": "one", "arguments": {}}</tool_call>' * 400),
}


@cache
def import_all() -> None:
    """Have everything imported that is imported when it is first used."""
    longest_turn(talk_to_plugin(DESCRIBED, DESCRIBED))
    longest_turn(talk_to_mcp_server(*TALK.splitlines()[1:]))
    longest_turn(read_page(200, {}, b""))
    longest_turn(ask_over_http("application/json", b"{}"))
    longest_turn(hear(b"data: {}\n\n"))
    longest_turn(read_calls("none"))
    longest_turn(read_text_for("[", "json"))
    longest_turn(read_text_for("Action:", "react"))


@pytest.mark.parametrize("name", PEERS)
def test_no_server_and_no_plugin_holds_the_event_loop(name: str) -> None:
    import_all()
    assert longest_turn(PEERS[name]) < LONGEST_TURN


EMPTY = b"[" + b"{}, " * 220_000 + b"{}]"
MCP_REPLIES = {
    "content": b'"result": {"content": %s}' % EMPTY,
    "structured content": b'"result": {"content": [], "structuredContent": {"a": %s}}' % EMPTY,
    "an unknown field": b'"result": {"content": [], "x": %s}' % EMPTY,
    "the data of an error": b'"error": {"code": 1, "message": "", "data": %s}' % EMPTY,
    "halves of characters": b'"result": {"content": [], "x": "%s"}' % (b"\\ud800" * 130_000),
}


# The MCP SDK leaves generators of the HTTP client to the garbage collector, of which trio warns.
@pytest.mark.filterwarnings("ignore:Async generator")
@pytest.mark.parametrize("name", MCP_REPLIES)
@pytest.mark.parametrize("way", ["stdio", "application/json", "text/event-stream"])
def test_no_reply_of_many_parts_of_an_mcp_server_holds_the_event_loop(name: str, way: str) -> None:
    import_all()
    reply = b'{"jsonrpc": "2.0", "id": "$id", ' + MCP_REPLIES[name] + b"}"
    if way == "stdio":
        assert longest_turn(talk_to_mcp_server(reply)) < LONGEST_TURN
        return
    with restore_log_levels():
        talk = mcp_http_target(way.encode())
        talk(TALK)  # what is imported late
        METER.longest = 0.0
        talk(TALK.splitlines()[0] + b"\n" + reply)
    assert METER.longest / slowness() < LONGEST_TURN


POSTED = {
    "messages that are none": b'{"id": "x", "threadId": "t", "messages": [' + b"{}, " * 200_000 + b"{}]}",
    "numbers for messages": b'{"id": "x", "threadId": "t", "messages": [' + b"1, " * 150_000 + b"1]}",
    "parts that are none": b'{"id": "x", "messages": [{"id": "a", "role": "user", "parts": ['
    + b"1, " * 150_000
    + b"1]}]}",
}


@pytest.mark.parametrize("name", POSTED)
@pytest.mark.parametrize("read", [read_ui_request, read_ag_ui_request])
def test_no_request_of_a_web_interface_holds_the_lock(name: str, read: Callable[[bytes], object]) -> None:
    meter = TurnMeter()
    for _ in range(2):  # what is compiled late is no work of the second
        meter.longest = 0.0
        with pytest.raises(ValueError):  # noqa: PT011 - it is an answer of 400, whatever it says
            meter.during(lambda: read(POSTED[name]))
    assert meter.longest / slowness() < LONGEST_TURN


TELLING = "a token: x, the password is key, auth=1\n" * 20_000


def watch(reply: str | list[ToolCall], output: str, *, way: str) -> Callable[[], Awaitable[object]]:
    """Run a loop whose texts are long, traced or recorded; where it is replayed, it was recorded before."""
    folder = Path(tempfile.mkdtemp())
    get = tool_from_schema("get", "", {"type": "object"}, lambda _: output)
    script = ScriptedProvider([AssistantMessage(reply), "Done."] * 2)
    recording = RecordingProvider(script, folder / "cassette.jsonl")

    async def run(provider: Provider, *middleware: Any) -> None:
        await tool_loop(provider, ToolRegistry([get]), "Go.", config=ToolLoopConfig(middleware=middleware))

    if way == "replayed":
        anyio.run(run, recording)
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))

    async def watched() -> None:
        if way == "traced":
            await run(script, Tracing(content="all", tracer_provider=spans))
        else:
            await run(recording if way == "recorded" else ReplayProvider(folder / "cassette.jsonl"))

    return watched


@pytest.mark.parametrize("way", ["traced", "recorded", "replayed"])
@pytest.mark.parametrize("text", ["the reply", "the arguments", "the result"])
def test_no_long_text_holds_the_event_loop_where_secrets_are_struck_out(way: str, text: str) -> None:
    arguments = json.dumps({"a": TELLING[:400_000]}) if text == "the arguments" else "{}"
    reply = TELLING if text == "the reply" else [ToolCall("1", "get", arguments)]
    longest_turn(watch("Hi.", "", way=way))  # what is imported late
    assert longest_turn(watch(reply, TELLING if text == "the result" else "", way=way)) < LONGEST_TURN
