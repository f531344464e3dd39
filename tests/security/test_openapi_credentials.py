"""A hostile OpenAPI document or server: where credentials go, and how much is read."""

import gzip
import json
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import anyio
import anyio.abc
import httpx2
import pytest
from anyio.abc import SocketStream

from tests.counted_work import count_calls
from tests.sources.openapi.pets import document, operation
from toolkit import ConfigurationError, ToolCall, ToolRegistry
from toolkit.checked_yaml import YamlTooLargeError, load_yaml
from toolkit.errors import OpenApiError
from toolkit.sources import ServerLimits
from toolkit.sources.openapi import ApiKey, Auth, Basic, Bearer, OAuth2ClientCredentials, openapi_tools
from toolkit.tool_config import load_tools

pytestmark = pytest.mark.anyio

SECRET = "s3cret-value"
AUTHS: dict[str, Auth] = {
    "a token": Bearer(SECRET),
    "a key in a header": ApiKey(name="X-Key", value=SECRET),
    "a key in the query": ApiKey(name="key", value=SECRET, location="query"),
    "a key in a cookie": ApiKey(name="key", value=SECRET, location="cookie"),
    "a password": Basic("ada", SECRET),
    "a function": lambda request: {"x-signed": SECRET},
    "a client": OAuth2ClientCredentials("ada", SECRET, token_url="https://auth.mine.test/token"),
}


def with_servers(*, root: str = "https://api.mine.test", path: str = "", own: str = "") -> dict[str, Any]:
    """A document whose root, path item and operation may name servers."""
    get = operation() | ({"servers": [{"url": own}]} if own else {})
    item = {"get": get} | ({"servers": [{"url": path}]} if path else {})
    return document({"/": item}) | {"servers": [{"url": root}]}


class Sink:
    """Plays every server, and keeps who was told what."""

    def __init__(self, redirects: Mapping[str, str] | None = None) -> None:
        self.redirects = redirects or {}
        self.requests: list[httpx2.Request] = []
        self.transport = httpx2.MockTransport(self.answer)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        url = request.url.copy_with(query=None)
        if str(url) == "https://auth.mine.test/token":
            return httpx2.Response(200, json={"access_token": SECRET})
        leads = self.redirects.get(f"{url.scheme}://{url.netloc.decode()}{url.path}")
        return httpx2.Response(302, headers={"location": leads}) if leads else httpx2.Response(200, text="ok")

    def told(self) -> set[str]:
        """The hosts that were told the secret."""
        return {request.url.netloc.decode() for request in self.requests if is_told(request)}


def is_told(request: httpx2.Request) -> bool:
    raw = bytes(request.url.raw_path) + b"".join(name + value for name, value in request.headers.raw)
    encoded = b"YWRhOnMzY3JldC12YWx1ZQ=="  # ada:s3cret-value
    return SECRET.encode() in raw or encoded in raw


INNER = [
    "http://localhost", "http://127.0.0.1", "http://127.1", "http://2130706433", "http://0x7f.0.0.1", "http://0.0.0.0",
    "http://[::1]", "http://[::ffff:127.0.0.1]", "http://169.254.169.254/latest", "http://metadata.google.internal",
    "http://10.0.0.1:8080", "http://192.168.1.1", "http://100.64.0.1", "http://[fd00:ec2::254]", "http://printer.local",
    "http://intranet", "http://a.localhost.", "http://LOCALHOST", "http://[64:ff9b::7f00:1]", "http://[::127.0.0.1]",
    "http://[64:ff9b:1::a9fe:a9fe]", "http://[::ffff:0:7f00:1]", "http://[fec0::1]", "http://224.0.0.1", "http://192.0.0.192",
    "http://\\127.0.0.1", "http://127.0.0.1%2f.mine.test",
]  # fmt: skip


@pytest.mark.parametrize("inner", INNER)
async def test_no_redirect_leads_from_an_outer_host_to_an_inner_one(inner: str) -> None:
    sink = Sink({"https://api.mine.test/": inner})
    async with openapi_tools(with_servers(), transport=sink.transport) as [tool]:
        result = await ToolRegistry([tool]).execute(ToolCall("1", tool.definition.name, "{}"))
    assert [request.url.host for request in sink.requests] == ["api.mine.test"]
    assert "302" in result.text


NO_URLS = [
    ":on:on:", ":a:", ":a:b@c:d", "::on:on:", "http://", "https://[", "https://[::1", "https://a:b",
    "https://a:99999999", "//", "https://a b/", "http:///x", "https://\u00ad/", "https://xn--/", "\x00", "%",
    "//[x]/", "https://a@@b:c/", "ftp://h/", "javascript:alert(1)", ":", "?#", "https://" + "a" * 70_000,
]  # fmt: skip


@pytest.mark.parametrize("location", NO_URLS)
async def test_a_redirect_to_no_url_is_a_failure_of_the_call(location: str, caplog: pytest.LogCaptureFixture) -> None:
    def redirect(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(302, headers=[(b"location", location.encode("utf-8", "surrogatepass"))])

    async with openapi_tools(with_servers(), transport=httpx2.MockTransport(redirect)) as [tool]:
        result = await ToolRegistry([tool]).execute(ToolCall("1", tool.definition.name, "{}"))
    assert "failed: " in result.text or "302" in result.text
    assert not [record for record in caplog.records if record.exc_info]


async def test_an_inner_host_may_lead_to_another_one() -> None:
    sink = Sink({"http://10.0.0.1/": "http://10.0.0.2/"})
    async with openapi_tools(with_servers(root="http://10.0.0.1"), transport=sink.transport) as [tool]:
        await ToolRegistry([tool]).execute(ToolCall("1", tool.definition.name, "{}"))
    assert [request.url.host for request in sink.requests] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("inner", INNER)
async def test_no_document_from_outside_names_an_inner_server(inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(self: object, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=with_servers(root=inner))

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    with pytest.raises(OpenApiError, match="is this machine or one of its network"):
        async with openapi_tools("https://api.mine.test/openapi.json"):
            pass
    async with openapi_tools("https://api.mine.test/openapi.json", base_url="http://10.0.0.1") as tools:
        assert len(tools) == 1
    async with openapi_tools("http://10.0.0.1/openapi.json") as tools:
        assert len(tools) == 1


async def test_no_document_is_fetched_from_an_inner_host_that_an_outer_one_leads_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = Sink({"https://api.mine.test/openapi.json": "http://169.254.169.254/openapi.json"})

    async def send(self: object, request: httpx2.Request) -> httpx2.Response:
        return sink.answer(request)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    with pytest.raises(OpenApiError, match="which is never fetched"):
        async with openapi_tools("https://api.mine.test/openapi.json"):
            pass
    assert len(sink.requests) == 1


@pytest.mark.parametrize("auth", AUTHS)
@pytest.mark.parametrize(
    "source",
    [
        with_servers(root="https://evil.test"),
        with_servers(own="https://evil.test"),
        with_servers(path="https://evil.test"),
        with_servers(own="http://api.mine.test"),
        with_servers(own="https://api.mine.test:8443"),
        with_servers(own="https://api.mine.test.evil.test"),
    ],
    ids=["the root", "an operation", "a path", "another scheme", "another port", "a longer name"],
)
async def test_a_document_names_no_host_that_is_told_who_calls(auth: str, source: dict[str, Any]) -> None:
    sink = Sink()
    with pytest.raises(ConfigurationError, match="which only the document names"):
        async with openapi_tools(source, auth=AUTHS[auth], allow_hosts=["api.mine.test"], transport=sink.transport):
            pass
    assert sink.told() == set()


async def test_headers_of_the_application_are_no_less_secret() -> None:
    with pytest.raises(ConfigurationError, match="allow_hosts="):
        async with openapi_tools(with_servers(own="https://evil.test"), headers={"x-tenant": SECRET}):
            pass


@pytest.mark.parametrize(
    ("options", "hosts"),
    [
        ({"allow_hosts": ["api.mine.test"]}, {"api.mine.test"}),
        ({"base_url": "https://other.mine.test/v1"}, {"other.mine.test"}),
        ({"allow_hosts": ["https://api.mine.test"]}, {"api.mine.test"}),
        ({"allow_hosts": ["https://api.mine.test:443"]}, {"api.mine.test"}),
    ],
)
async def test_hosts_that_the_application_names_are_told(options: dict[str, Any], hosts: set[str]) -> None:
    sink = Sink()
    async with openapi_tools(with_servers(), auth=Bearer(SECRET), transport=sink.transport, **options) as tools:
        await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
    assert sink.told() == hosts


async def test_without_credentials_any_server_of_the_document_is_asked() -> None:
    sink = Sink()
    async with openapi_tools(with_servers(own="https://evil.test"), transport=sink.transport) as tools:
        await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
    assert [request.url.host for request in sink.requests] == ["evil.test"]


def with_token_url(url: str) -> dict[str, Any]:
    flows: dict[str, Any] = {"clientCredentials": {"tokenUrl": url, "scopes": {}}}
    return with_servers() | {"components": {"securitySchemes": {"o": {"type": "oauth2", "flows": flows}}}}


@pytest.mark.parametrize("url", ["https://evil.test/token", "http://api.mine.test/token", "https://api.mine.test:1/t"])
@pytest.mark.parametrize("options", [{"base_url": "https://api.mine.test"}, {"allow_hosts": ["api.mine.test"]}])
async def test_a_clients_secret_goes_to_no_address_that_only_the_document_names(
    url: str, options: dict[str, Any]
) -> None:
    sink = Sink()
    auth = OAuth2ClientCredentials("ada", SECRET)
    with pytest.raises(ConfigurationError, match="the client's secret would go to"):
        async with openapi_tools(with_token_url(url), auth=auth, transport=sink.transport, **options):
            pass
    assert sink.requests == []


CHAINS: dict[str, dict[str, str]] = {
    "elsewhere": {"https://api.mine.test/": "https://evil.test/"},
    "to another port": {"https://api.mine.test/": "https://api.mine.test:8443/"},
    "to no encryption": {"https://api.mine.test/": "http://api.mine.test/"},
    "away and back": {
        "https://api.mine.test/": "https://evil.test/",
        "https://evil.test/": "https://api.mine.test/log",
    },
    "away, round and back": {
        "https://api.mine.test/": "https://evil.test/",
        "https://evil.test/": "https://evil.test/two",
        "https://evil.test/two": "https://api.mine.test/transfer",
    },
}


@pytest.mark.parametrize("auth", AUTHS)
@pytest.mark.parametrize("chain", CHAINS)
async def test_nothing_is_signed_again_once_a_request_was_sent_away(auth: str, chain: str) -> None:
    sink = Sink(CHAINS[chain])
    async with openapi_tools(
        with_servers(),
        auth=AUTHS[auth],
        headers={"x-tenant": SECRET},
        allow_hosts=["api.mine.test"],
        transport=sink.transport,
    ) as tools:
        await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
    calls = [request for request in sink.requests if request.url.host != "auth.mine.test"]
    assert len(calls) > 1
    assert [is_told(request) for request in calls] == [True] + [False] * (len(calls) - 1)


@pytest.mark.parametrize(
    "host",
    ["", "https://a.test/path", "a b", "a.test/x", "https://u@a.test", f"u:{SECRET}@a.test", "*", "*.a.test", "a\\b"],
)
async def test_a_host_that_can_not_be_is_the_callers_mistake(host: str) -> None:
    with pytest.raises(ConfigurationError, match="allow_hosts") as caught:
        async with openapi_tools(with_servers(), allow_hosts=[host]):
            pass
    assert SECRET not in str(caught.value)


OF_PROTOCOL = [
    *("Host", "Transfer-Encoding", "Content-Length", "Connection", "TE", "Upgrade", "Trailer", "Expect", "Via"),
    *(
        "Authorization",
        "authorization",
        "Proxy-Authorization",
        "Cookie",
        "Forwarded",
        "X-Forwarded-Host",
        "X-Envoy-Original-Path",
        "True-Client-IP",
    ),
    *("X-HTTP-Method-Override", "X-Original-URL", "Sec-Fetch-Site", "Content-Type", "Accept-Encoding"),
    *("Host ", "Ho\tst", "X-A: b", "X-A\r\nHost", "", "X-\u00e9"),
    *("Transfer_Encoding", "X_Forwarded_For", "Transfer.Encoding", "HTTP_HOST", "Trailers", "Early-Data"),
    *("Proxy", "X-Forwarded", "Forwarded-For", "Method-Override", "Fastly-Client-IP", "X-Remote-User"),
]
FREE = [
    *("X-Tenant", "Idempotency-Key", "If-Match", "Accept-Language", "Prefer", "Range", "X-Request-ID"),
    *("PSU-IP-Address", "X-RapidAPI-Host"),
]


@dataclass(frozen=True, kw_only=True)
class Own:
    """A parameter of a document that the application sends itself."""

    place: str
    name: str
    options: dict[str, Any]


OWN = {
    "a header": Own(place="header", name="x_TENANT", options={"headers": {"X-Tenant": "mine"}}),
    "a key in a header": Own(place="header", name="x-key", options={"auth": ApiKey(name="X-Key", value="mine")}),
    "a key in the query": Own(
        place="query", name="key", options={"auth": ApiKey(name="key", value="mine", location="query")}
    ),
    "a key in a cookie": Own(
        place="cookie", name="sid", options={"auth": ApiKey(name="sid", value="mine", location="cookie")}
    ),
    "a key of a scheme": Own(place="query", name="api", options={"auth": {"scheme": "mine"}}),
}


@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
async def test_what_the_application_sends_is_no_parameter(own: Own) -> None:
    declared = {"name": own.name, "in": own.place, "required": True, "schema": {"type": "string"}}
    scheme = {"type": "apiKey", "name": "api", "in": "query"}
    source = document(
        {"/": {"get": operation(declared, security=[{"scheme": []}])}},
        components={"securitySchemes": {"scheme": scheme}},
    )
    sink = Sink()
    async with openapi_tools(source, allow_hosts=["pets.test"], transport=sink.transport, **own.options) as [tool]:
        assert not tool.definition.parameters["properties"]
        await ToolRegistry([tool]).execute(ToolCall("1", tool.definition.name, "{}"))
    [request] = sink.requests
    assert "mine" in f"{request.url.query!r} {request.headers}".lower()


@pytest.mark.parametrize("name", ["X-Key", "", "X Key", "X-Key\r\nHost"])
@pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\u00e9", f"{SECRET}\x00"])
async def test_a_header_that_can_not_be_sent_is_the_callers_mistake(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match="no header can hold") as caught:
        async with openapi_tools(with_servers(), headers={name: value}):
            pass
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("is_required", [True, False])
async def test_no_header_of_the_protocol_is_a_parameter(is_required: bool, caplog: pytest.LogCaptureFixture) -> None:
    parameters = [
        {"name": name, "in": "header", "required": is_required, "schema": {"type": "string"}}
        for name in (*OF_PROTOCOL, *FREE)
    ]
    sink = Sink()
    source = document({"/": {"get": operation(*parameters)}}) | {"servers": [{"url": "https://api.mine.test"}]}
    async with openapi_tools(
        source, auth=Bearer(SECRET), allow_hosts=["api.mine.test"], transport=sink.transport
    ) as tools:
        assert list(tools[0].definition.parameters["properties"]) == FREE
        arguments = json.dumps(dict.fromkeys(FREE, "x"))
        await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, arguments))
    assert (
        "no parameters are made of headers that belong to HTTP, nor of what auth= and headers= send: Host, "
        in caplog.text
    )
    assert "X-A\r\nHost" not in caplog.text
    assert sink.requests[0].headers["host"] == "api.mine.test"
    assert sink.requests[0].headers["x-tenant"] == "x"


async def dribble(stream: SocketStream) -> None:
    """Answer with a byte each moment, for as long as anybody reads."""
    async with stream:
        await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{")
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await anyio.sleep(0.05)
                await stream.send(b" ")


async def test_a_document_that_comes_byte_by_byte_has_one_deadline() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, dribble)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with anyio.fail_after(120), pytest.raises(OpenApiError, match=r"can't be fetched within 0\.5 s"):
            async with openapi_tools(f"http://127.0.0.1:{port}/openapi.json", limits=ServerLimits(timeout=0.5)):
                pass
        tasks.cancel_scope.cancel()


WIDE, DEEP = 20, 5


def web_of_forms() -> dict[str, Any]:
    """Schemas of forms, of which each is made of all others, with files somewhere."""
    others = [{"$ref": f"#/components/schemas/s{number}"} for number in range(WIDE)]
    file = {"type": "string", "format": "binary"}
    return {
        f"s{number}": {
            "allOf": others,
            "properties": {f"p{number}": {"anyOf": [*others, file]}, f"f{number}": {"anyOf": [*others[:2], file]}},
        }
        for number in range(WIDE)
    }


def chains_of_references() -> dict[str, Any]:
    """References that lead to references, to the end of what is followed, and many that begin with the first."""
    links = {f"l{number}": {"$ref": f"#/components/schemas/l{number + 1}"} for number in range(40)}
    return {
        **links,
        "l40": {"type": "string"},
        "s0": {"properties": {f"p{number}": {"$ref": "#/components/schemas/l0"} for number in range(500)}},
    }


WEBS: dict[str, dict[str, Any]] = {
    "forms that are made of each other": web_of_forms(),
    "chains of references": chains_of_references(),
}


@pytest.mark.parametrize("media_type", ["multipart/form-data", "application/json"])
@pytest.mark.parametrize("web", WEBS)
def test_references_are_visited_once(web: str, media_type: str) -> None:
    body = {"content": {media_type: {"schema": {"$ref": "#/components/schemas/s0"}}}}
    source = document({"/": {"post": operation(requestBody=body)}}, components={"schemas": WEBS[web]})

    async def load() -> None:
        async with openapi_tools(source, skip_broken=True) as tools:
            assert len(tools) <= 1

    assert count_calls(lambda: anyio.run(load)) < 1_000_000


class Packed(httpx2.AsyncByteStream):
    """Three hundred megabytes, packed."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield make_bomb()


@cache
def make_bomb() -> bytes:
    """Pack them; not where the module is imported, which each process does."""
    return gzip.compress(b"a" * 300_000_000, 1)


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, gzip", "x-unknown"])
async def test_no_response_unpacks_without_end(coding: str) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-encoding": coding, "content-type": "text/plain"}
        return httpx2.Response(200, headers=headers, stream=Packed())

    async with openapi_tools(with_servers(), transport=httpx2.MockTransport(answer)) as tools:
        result = await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
    assert len(result.text) < 100_000
    assert result.is_error is (coding != "gzip")


LEVELS = range(1, 12)
YAML: dict[str, str] = {
    "lists in lists": "[" * 100_000,
    "mappings in mappings": "{a: " * 100_000,
    "questions": "? " * 100_000,
    "dashes": "- " * 100_000,
    "indents": "\n".join(" " * depth + "a:" for depth in range(400)),
    "laughs": "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in LEVELS),
    "merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in LEVELS),
    "wide merges": "a: &a {" + ", ".join(f"k{n}: 1" for n in range(10_000)) + "}\n"
    + "".join(f"b{n}: {{<<: *a}}\n" for n in range(1_000)),
    "chained merges": "a0: &a0 {k0: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: 1}}\n" for n in range(1, 1_500)),
    "a circle": "&a [*a]",
    "a wider circle": "&a {b: &b [*a, *b]}",
    "aliases": "a: &a x\nb: [" + "*a, " * 20_000 + "]",
    "values": "- a\n" * 300_000,
    "a number of base sixty": "a: " + "1:" * 50_000 + "1",
    "a long number": "a: " + "9" * 100_000,
    "a long hexadecimal": "a: 0x" + "f" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", YAML)
def test_no_yaml_takes_the_process(name: str, tmp_path: Path) -> None:
    with pytest.raises(YamlTooLargeError):
        load_yaml(YAML[name])
    file = tmp_path / "tools.yaml"
    file.write_text("tools:\n  " + YAML[name].replace("\n", "\n  "))
    with pytest.raises(ConfigurationError, match=r"tools\.yaml can't be read"):
        load_tools(file)


@pytest.mark.parametrize("name", ["lists in lists", "laughs", "merges", "chained merges", "a circle"])
async def test_no_document_of_yaml_takes_the_process(name: str) -> None:
    with pytest.raises(OpenApiError, match="the text: it can't be read: "):
        async with openapi_tools(f"openapi: 3.1.0\npaths: {{}}\nx:\n{indent(YAML[name], '  ')}"):
            pass


def test_ordinary_yaml_is_read_as_ever() -> None:
    text = "a: [1, 2.5, yes]\nb: &x {c: d}\ne: *x\nf: {<<: *x, g: 1}\n"
    assert json.dumps(load_yaml(text)) == (
        '{"a": [1, 2.5, true], "b": {"c": "d"}, "e": {"c": "d"}, "f": {"c": "d", "g": 1}}'
    )
