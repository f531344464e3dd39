"""What reads servers and programs that offer tools: OpenAPI documents and replies, MCP messages, lines of plugins.

An input of those that talk is what the peer says, a line for each thing that it is asked; ``$id`` stands for the id of
the question. Peers run in this process, on a clock that jumps to whatever is waited for: what waits for ever fails.
"""

import json
import logging
import random
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

from tests.fuzzing.harness import Target, bend, run_in_loop

__all__ = [
    "GREETING",
    "TALK",
    "TARGETS",
    "Peer",
    "mcp_http_target",
    "restore_log_levels",
    "start_peer_instead",
    "use_mcp",
]

_EVER = 1_000_000.0


def run_on_jumping_clock(talk: Callable[[], Any]) -> None:
    """Run an async function to its end, with all pauses skipped.

    Raises:
        TimeoutError: It never ends.
    """
    anyio = import_module("anyio")
    clock = import_module("trio.testing").MockClock(autojump_threshold=0.02)

    async def bounded() -> None:
        with anyio.fail_after(_EVER):
            await talk()

    run_in_loop(bounded, "trio", clock=clock)


class Peer:
    """A process that is none: what it is written to is answered by the next line that it has to say."""

    def __init__(self, lines: list[bytes], first: bytes = b"") -> None:
        self.returncode: int | None = None
        self.pid = 2**22 + 1  # beyond every process
        self.stdin, self.stdout, self.stderr = self, self, _Silence()
        self._lines = lines
        self._anyio = import_module("anyio")
        self._said: list[bytes] = [first] if first else []
        self._more = self._anyio.Event()

    async def send(self, line: bytes) -> None:
        if self.returncode is not None:
            raise self._anyio.BrokenResourceError
        reply = self._lines.pop(0) if self._lines else None
        if reply is None:
            self.returncode = 0
        else:
            self._said.append(answer(reply, line) + b"\n")
        self._more.set()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        while not self._said:
            if self.returncode is not None:
                raise self._anyio.EndOfStream
            self._more = self._anyio.Event()
            await self._more.wait()
        await import_module("anyio.lowlevel").checkpoint()
        said, rest = self._said[0][:max_bytes], self._said[0][max_bytes:]
        self._said[:1] = [rest] if rest else []
        return said

    async def wait(self) -> int:
        while self.returncode is None:
            self._more = self._anyio.Event()
            await self._more.wait()
        return self.returncode

    async def aclose(self) -> None:
        self.returncode = self.returncode or 0
        self._more.set()


class _Silence:
    async def receive(self, max_bytes: int = 65_536) -> bytes:
        raise import_module("anyio").EndOfStream


def answer(reply: bytes, question: bytes) -> bytes:
    """Return a reply with the id of what was asked in place of ``$id``."""
    if b"$id" not in reply:
        return reply
    try:
        asked: Any = json.loads(question)
    except ValueError:
        return reply
    try:
        named: Any = asked["id"] if "id" in asked else asked["call_id"]
    except (TypeError, LookupError):
        named = None
    return reply.replace(b'"$id"', json.dumps(named).encode())


def start_peer_instead(peer: Peer) -> Callable[[], None]:
    """Have this peer started in place of a process; return what puts back what was there."""
    processes: Any = import_module("toolkit.runtime.processes")
    before = processes.SupervisedProcess.start

    async def start(*_: object, **__: object) -> Any:
        return processes.SupervisedProcess(peer, processes.Patience())

    processes.SupervisedProcess.start = start
    return lambda: setattr(processes.SupervisedProcess, "start", before)


def openapi_target() -> Callable[[bytes], None]:
    openapi = import_module("toolkit.sources.openapi")
    toolkit = import_module("toolkit")
    httpx2 = import_module("httpx2")
    error = toolkit.errors.OpenApiError
    known = [json.loads(each) for each in _documents()[:2]]

    class Reply(httpx2.AsyncBaseTransport):  # type: ignore[name-defined, misc]
        async def handle_async_request(self, request: Any) -> Any:
            return httpx2.Response(200, json={"pets": [1]})

    def test(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")

        async def use() -> None:
            source = text if "\n" in text or text.startswith("{") else f"{text}\n"
            if data[:1] == b"!":  # it says how a good one is bent
                dice = random.Random(data)
                source = bend(deepcopy(dice.choice(known)), dice)
            try:
                async with openapi.openapi_tools(
                    source, base_url="https://pets.test", skip_broken=True, transport=Reply()
                ) as tools:
                    registry = toolkit.ToolRegistry(tools)
                    for tool in tools[:5]:
                        for arguments in ("{}", '{"id": 1, "body": {"name": "x"}, "tags": ["a"]}'):
                            await registry.execute(toolkit.ToolCall("1", tool.definition.name, arguments))
            except error:
                pass

        run_in_loop(use)

    return test


def _documents() -> list[bytes]:
    pets = import_module("tests.sources.openapi.pets")
    yaml = import_module("yaml")
    whole = pets.document(
        {
            "/pets/{id}": {
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "get": pets.operation(
                    {"name": "tags", "in": "query", "explode": False, "schema": {"type": "array", "items": {}}},
                    {"$ref": "#/components/parameters/Size"},
                    operationId="getPet",
                    tags=["pets"],
                    deprecated=True,
                ),
                "put": pets.operation(
                    requestBody={
                        "required": True,
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}},
                            "multipart/form-data": {"schema": {"properties": {"f": {"format": "binary"}}}},
                        },
                    },
                    security=[{"key": []}],
                ),
            }
        },
        components={
            "parameters": {"Size": {"name": "X-Size", "in": "header", "content": {"application/json": {"schema": {}}}}},
            "schemas": {
                "Pet": {
                    "allOf": [{"properties": {"name": {"type": ["string", "null"]}}}, {"required": ["name"]}],
                    "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Pet"}},
                    "additionalProperties": {"$ref": "#/components/schemas/Pet"},
                }
            },
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        },
    )
    older = {**whole, "openapi": "3.0.3"}
    return [json.dumps(whole).encode(), json.dumps(older).encode(), yaml.safe_dump(whole).encode(), b"!0"]


def openapi_reply_target() -> Callable[[bytes], None]:
    openapi = import_module("toolkit.sources.openapi")
    toolkit = import_module("toolkit")
    httpx2 = import_module("httpx2")
    pets = import_module("tests.sources.openapi.pets")
    source = pets.document({"/pets": {"get": pets.operation(operationId="pets")}})

    def test(data: bytes) -> None:
        head, _, body = data.partition(b"\n\n")
        status, *lines = head[:65_536].split(b"\n")  # more than that of headers, the HTTP client refuses
        headers = [
            (name.strip(), value.strip()) for name, colon, value in (line.partition(b":") for line in lines) if colon
        ]
        code = int(status) if re.fullmatch(rb"[2-5]\d\d", status) else 200

        class Reply(httpx2.AsyncBaseTransport):  # type: ignore[name-defined, misc]
            async def handle_async_request(self, request: Any) -> Any:
                async def pieces() -> Any:
                    yield body

                return httpx2.Response(code, headers=headers, content=pieces())

        async def use() -> None:
            async with openapi.openapi_tools(source, transport=Reply()) as tools:
                await toolkit.ToolRegistry(tools).execute(toolkit.ToolCall("1", "pets", "{}"))

        run_in_loop(use)

    return test


_REPLIES = (
    b'200\ncontent-type: application/json; charset=utf-8\nlink: </b>; rel="next"\n\n{"pets": []}',
    b"302\nlocation: https://pets.test/b?c=d\n\n",
    b"302\nlocation: //elsewhere.test:99999/\nset-cookie: a=b\n\n",
    b'200\ncontent-type: image/png\ncontent-disposition: attachment; filename="a.png"\ncontent-length: 3\n\n\x89PN',
    b"500\ncontent-type: text/html; charset=latin-1\nretry-after: 5\n\n<h1>\xe9</h1>",
    b"200\ncontent-encoding: gzip\n\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K\x04\x00C\xbe\xb7\xe8\x01\x00\x00\x00",
    *[
        f"200\ncontent-type: text/plain; charset={name}\n\nabc-".encode()
        for name in ("idna", "punycode", "utf-7", "hex")
    ],
)


def plugin_target() -> Callable[[bytes], None]:
    plugin = import_module("toolkit.sources.plugin")
    toolkit = import_module("toolkit")

    def test(data: bytes) -> None:
        async def use() -> None:
            peer = Peer(data.split(b"\n"))
            put_back = start_peer_instead(peer)
            try:
                async with plugin.plugin_tools("/nowhere", timeout=5) as tools:
                    registry = toolkit.ToolRegistry(tools)
                    for number in range(3):
                        call = toolkit.ToolCall(str(number), tools[0].definition.name, '{"a": 1}')
                        result = await registry.execute(call)
                        assert result.call_id == call.id
            except toolkit.errors.PluginError:
                pass
            finally:
                put_back()

        run_on_jumping_clock(use)

    return test


_PLUGINS = (
    (
        b'{"name": "add", "description": "Adds.", "parameters": {"properties": {"a": {"type": "integer"}}}}\n'
        b'{"call_id": "$id", "content": [{"type": "text", "text": "3"}], "error": false}\n'
        b'{"content": [{"type": "image", "data": "aGk="}, {"type": "file", "url": "x", "name": "y"}]}\n'
        b'{"error": "no", "content": null, "details": {"a": 1}}'
    ),
    (
        b'{"tools": [{"name": "a"}, {"name": "b b"}], "extensions": ["concurrent", "updates", "cancel"]}\n'
        b'{"type": "update", "call_id": "$id", "content": ["x"]}\n{"call_id": "$id", "content": "done"}\nno JSON\n[]'
    ),
)


GREETING = (
    b'{"jsonrpc": "2.0", "id": "$id", "error": {"code": -32601, "message": "no such method"}}\n'
    b'{"jsonrpc": "2.0", "id": "$id", "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": '
    b'{"listChanged": true}}, "serverInfo": {"name": "s", "version": "1"}}}\n'
    b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}\n'
)
TALK = (
    b'{"jsonrpc": "2.0", "id": "$id", "result": {"tools": [{"name": "look", "description": "Looks.", "inputSchema": '
    b'{"type": "object", "properties": {"a": {"type": "integer"}}}, "outputSchema": {"type": "object"}, '
    b'"annotations": {"readOnlyHint": true}}]}}\n'
    b'{"jsonrpc": "2.0", "id": "$id", "result": {"content": [{"type": "text", "text": "x"}, {"type": "image", "data": '
    b'"aGk=", "mimeType": "image/png"}, {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}}, {"type": '
    b'"resource_link", "uri": "a:b", "name": "l"}], "structuredContent": {"a": 1}, "isError": false}}\n'
    b'{"jsonrpc": "2.0", "id": "$id", "error": {"code": -32602, "message": "bad", "data": {"a": [1]}}}\n'
    b'{"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}\n'
    b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}'
)


async def use_mcp(server: Any) -> None:
    mcp = import_module("toolkit.sources.mcp")
    toolkit = import_module("toolkit")
    try:
        async with mcp.mcp_tools(server, limits=import_module("toolkit.sources").ServerLimits(timeout=5)) as tools:
            registry = toolkit.ToolRegistry(tools)
            for number, tool in enumerate([*tools, *tools][:3]):
                call = toolkit.ToolCall(str(number), tool.definition.name, '{"a": 1}')
                result = await registry.execute(call)
                assert result.call_id == call.id
    except (toolkit.errors.McpError, toolkit.errors.ConfigurationError):
        pass


_QUIET_LOGGERS = [logging.getLogger(name) for name in ("mcp", "client", "httpx2")]


def _quiet() -> None:
    for logger in _QUIET_LOGGERS:
        logger.setLevel(logging.CRITICAL + 1)


@contextmanager
def restore_log_levels() -> Generator[None]:
    """Restore the levels of the loggers that a target makes quiet: other tests look at what they log."""
    levels = [logger.level for logger in _QUIET_LOGGERS]
    try:
        yield
    finally:
        for logger, level in zip(_QUIET_LOGGERS, levels, strict=True):
            logger.setLevel(level)


def mcp_lines_target() -> Callable[[bytes], None]:
    servers = import_module("toolkit.sources.mcp.servers")
    _quiet()

    def test(data: bytes) -> None:
        lines = (data[1:] if data[:1] == b"!" else GREETING + data).split(b"\n")

        async def use() -> None:
            put_back = start_peer_instead(Peer(lines))
            try:
                await use_mcp(servers.stdio("/nowhere"))
            finally:
                put_back()

        run_on_jumping_clock(use)

    return test


def mcp_http_target(media_type: bytes) -> Callable[[bytes], None]:
    servers = import_module("toolkit.sources.mcp.servers")
    httpx2 = import_module("httpx2")
    _quiet()

    class Wire(httpx2.AsyncBaseTransport):  # type: ignore[name-defined, misc]
        """Answers each request with the next line, or event, that there is."""

        def __init__(self, lines: list[bytes]) -> None:
            self.lines = lines
            self.request_count = 0

        async def handle_async_request(self, request: Any) -> Any:
            self.request_count += 1
            content = await request.aread()
            if request.method != "POST":
                return httpx2.Response(405)
            if b'"id"' not in content:
                return httpx2.Response(202)
            if not self.lines:
                return httpx2.Response(404)
            said = answer(self.lines.pop(0), content)
            if media_type == b"text/event-stream":
                said = said.replace(b"\\n", b"\n") if said.startswith(b"data") else b"data: " + said + b"\n\n"

            async def pieces() -> Any:
                yield said[: len(said) // 2]
                yield said[len(said) // 2 :]

            return httpx2.Response(
                200, headers={"content-type": f"{media_type.decode()}; charset=undefined"}, content=pieces()
            )

    class FuzzedServer(servers.HttpServer):  # type: ignore[name-defined, misc]
        def _make_client(self) -> Any:
            client: Any = getattr(super(), "_make_client")()  # noqa: B009 - a class that is imported late has no types
            client._transport, client._mounts = self.wire, {}
            return client

        wire: Any = None  # set for each

    def test(data: bytes) -> None:
        greeting = b"\n".join(GREETING.split(b"\n")[:2]) + b"\n"
        lines = (data[1:] if data[:1] == b"!" else greeting + data).split(b"\n")
        wire = Wire(lines)
        fuzzed = type("Fuzzed", (FuzzedServer,), {"wire": wire, "__slots__": ()})
        run_on_jumping_clock(partial(use_mcp, fuzzed(url="https://server.test/mcp", name="server")))
        assert wire.request_count, "the session asked another wire than the fuzzed one"

    return test


def _talks() -> list[bytes]:
    return [
        TALK,
        b"!" + GREETING + TALK,
        *TALK.split(b"\n"),
        b'data: {"id": 1}\\n\\nid: 5\\nretry: 1\\ndata: {}\\n\\n',
    ]


_MCP = ["toolkit.sources.mcp", "toolkit.runtime.processes", "toolkit.http_client", "toolkit.schema"]

TARGETS = [
    Target(
        name="openapi", make=openapi_target, seeds=_documents, follows=["toolkit.sources.openapi", "toolkit.schema"]
    ),
    Target(
        name="openapi-reply",
        make=openapi_reply_target,
        seeds=lambda: _REPLIES,
        follows=["toolkit.sources.openapi", "toolkit.http_client"],
    ),
    Target(name="plugin", make=plugin_target, seeds=lambda: _PLUGINS, follows=["toolkit.sources", "toolkit.schema"]),
    Target(name="mcp-lines", make=mcp_lines_target, seeds=_talks, follows=_MCP),
    Target(name="mcp-json", make=partial(mcp_http_target, b"application/json"), seeds=_talks, follows=_MCP),
    Target(name="mcp-events", make=partial(mcp_http_target, b"text/event-stream"), seeds=_talks, follows=_MCP),
]
