"""Who calls: each kind of credentials, and that no secret is ever seen."""

import json
import logging
import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from tests.counted_work import grows_with_its_input
from tests.sources.openapi.application import Application
from tests.sources.openapi.pets import document, operation
from toolkit import ConfigurationError, ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool_loop
from toolkit.chat import dump_messages
from toolkit.errors import OpenApiError
from toolkit.events import LoopEvent
from toolkit.sources.openapi import ApiKey, Auth, Basic, Bearer, OAuth2ClientCredentials, openapi_tools
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

SECRET = "s3cret-0123456789"


def signed(request: httpx2.Request) -> Mapping[str, str]:
    return {"X-Signed": f"{request.method} {SECRET}"}


async def asked(application: Application, auth: Any, name: str = "echo", arguments: str = "{}") -> ToolResult:
    with anyio.fail_after(120):
        async with openapi_tools(application.document, base_url=application.url, auth=auth) as tools:
            return await ToolRegistry(tools).execute(ToolCall("1", name, arguments))


def headers_of(application: Application) -> dict[str, str]:
    headers: dict[str, str] = application.requests[-1]["headers"]
    return headers


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (Bearer(SECRET), "authorization", f"Bearer {SECRET}"),
        (ApiKey(name="X-Key", value=SECRET), "x-key", SECRET),
        (ApiKey(name="key", value=SECRET, location="cookie"), "cookie", f"key={SECRET}"),
        (Basic("ada", SECRET), "authorization", "Basic " + b64encode(f"ada:{SECRET}".encode()).decode()),
        (signed, "x-signed", f"GET {SECRET}"),
    ],
    ids=["bearer", "header", "cookie", "basic", "callable"],
)
async def test_a_header_says_who_calls(auth: Auth, header: str, value: str, application: Application) -> None:
    result = await asked(application, auth)
    assert headers_of(application)[header] == value
    assert SECRET not in result.text


async def test_a_callable_may_wait(application: Application) -> None:
    async def sign(request: httpx2.Request) -> Mapping[str, str]:
        await anyio.lowlevel.checkpoint()
        return {"authorization": f"Digest {SECRET}"}

    result = await asked(application, sign)
    assert headers_of(application)["authorization"] == f"Digest {SECRET}"
    assert json.loads(result.text.partition("\n\n")[2])["headers"]["authorization"] == "***"


async def test_a_key_in_the_query_goes_beside_what_is_there(application: Application) -> None:
    key = ApiKey(name="key", value=f"{SECRET}&", location="query")
    await asked(application, key, "getPet", '{"pet": "7", "tag": ["a"]}')
    assert application.requests[-1]["query"] == f"tag=a&key={SECRET}%26"


async def test_client_credentials_get_one_token_for_all_calls_and_another_when_it_is_refused(
    application: Application,
) -> None:
    auth = OAuth2ClientCredentials("robot", "its secret", scopes=("pets",), token_url=f"{application.url}/token")
    calls = [ToolCall(str(number), "echo", "{}") for number in range(5)]
    with anyio.fail_after(120):
        async with openapi_tools(application.document, base_url=application.url, auth=auth) as tools:
            registry = ToolRegistry(tools)
            await registry.execute_all(calls)
            assert [one["target"] for one in application.requests].count("/token") == 1
            # The application wants the second token, as if the first had been revoked.
            result = await registry.execute(ToolCall("6", "guarded", "{}"))
    assert result.text.endswith('"welcome"')
    assert [one["target"] for one in application.requests][-3:] == ["/guarded", "/token", "/guarded"]


async def test_calls_at_once_whose_token_is_refused_ask_for_one_other_and_tell_who_gives_it_nothing_else() -> None:
    given: list[httpx2.Request] = []
    refused = 0
    is_renewed = anyio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal refused
        if request.url.path == "/token":
            given.append(request)
            if len(given) == 2:
                is_renewed.set()
            return httpx2.Response(200, json={"access_token": f"token-{len(given)}", "expires_in": 3600})
        if request.headers["authorization"] == "Bearer token-2":
            return httpx2.Response(200, text="welcome")
        refused += 1
        if refused == 1:  # and hears of it when another token is there
            await is_renewed.wait()
        return httpx2.Response(401)

    auth = OAuth2ClientCredentials("robot", "its secret", token_url="https://elsewhere.test/token")
    calls = [ToolCall(str(number), "get", "{}") for number in range(5)]
    async with openapi_tools(
        document({"/": {"get": operation()}}),
        auth=auth,
        headers={"X-Key": SECRET},
        allow_hosts=["pets.test"],
        transport=httpx2.MockTransport(answer),
    ) as tools:
        with anyio.fail_after(120):
            results = await ToolRegistry(tools).execute_all(calls)
    assert [result.text.endswith("welcome") for result in results] == [True] * 5
    assert len(given) == 2
    assert SECRET not in given[0].headers.values()


async def test_client_credentials_that_are_refused_are_an_error_without_the_secret(application: Application) -> None:
    auth = OAuth2ClientCredentials("robot", SECRET, token_url=f"{application.url}/token")
    result = await asked(application, auth)
    assert result.is_error
    assert result.text == f"No access token could be had from {application.url}/token: 401 Unauthorized."


async def test_a_document_says_where_client_credentials_get_their_token(application: Application) -> None:
    flows: dict[str, Any] = {"clientCredentials": {"tokenUrl": f"{application.url}/token", "scopes": {"pets": "All."}}}
    source = {
        **application.document,
        "components": {
            **application.document["components"],
            "securitySchemes": {"o": {"type": "oauth2", "flows": flows}},
        },
    }
    auth = OAuth2ClientCredentials("robot", "its secret", scopes=("pets",))
    async with openapi_tools(source, base_url=application.url, auth=auth) as tools:
        await ToolRegistry(tools).execute(ToolCall("1", "echo", "{}"))
    assert headers_of(application)["authorization"].startswith("Bearer granted-pets-")


SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "name": "X-Key", "in": "header"},
    "login": {"type": "http", "scheme": "basic"},
}


TOKEN, KEY = {"authorization": "Bearer t0ken"}, {"x-key": "k3yy"}


@dataclass
class Needs:
    about: str
    security: Any
    given: dict[str, Auth | str]
    sent: dict[str, str]


NEEDS = [
    Needs("one", [{"token": []}], {"token": "t0ken", "key": "k3yy"}, TOKEN),
    Needs("both", [{"token": [], "key": []}], {"token": "t0ken", "key": "k3yy"}, {**TOKEN, **KEY}),
    Needs("the second", [{"login": []}, {"key": []}], {"key": "k3yy"}, KEY),
    Needs("none", [], {"key": "k3yy"}, {}),
    Needs("none is enough", [{}, {"key": []}], {"key": "k3yy"}, {}),
    Needs("not given", [{"token": []}], {"key": "k3yy"}, {}),
    Needs("the document's", None, {"token": "t0ken", "key": "k3yy"}, KEY),
]


@pytest.mark.parametrize("case", NEEDS, ids=lambda case: case.about)
async def test_an_operation_takes_the_credentials_that_it_asks_for(case: Needs) -> None:
    described = operation() if case.security is None else operation(security=case.security)
    seen: list[httpx2.Headers] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers)
        return httpx2.Response(204)

    source = document({"/": {"get": described}}, components={"securitySchemes": SCHEMES}, security=[{"key": []}])
    transport = httpx2.MockTransport(answer)
    async with openapi_tools(source, auth=case.given, allow_hosts=["pets.test"], transport=transport) as tools:
        await tools[0].ainvoke({})
    assert {name: value for name, value in seen[0].items() if name in ("authorization", "x-key")} == case.sent


SIGNED: list[Auth] = [
    Bearer(SECRET),
    ApiKey(name="X-Key", value=SECRET),
    ApiKey(name="key", value=SECRET, location="query"),
    ApiKey(name="key", value=SECRET, location="cookie"),
    Basic("ada", SECRET),
    signed,
]


@pytest.mark.parametrize("auth", SIGNED, ids=["bearer", "header", "query", "cookie", "basic", "callable"])
async def test_no_secret_is_in_a_repr_an_event_an_error_a_transcript_or_a_log(
    auth: Auth, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[LoopEvent] = []
    calls = [
        ToolCall("1", "echo", "{}"),
        ToolCall("2", "fail", '{"status": 401}'),
        ToolCall("3", "moved", json.dumps({"to": f"{application.url}/echo"})),
        ToolCall("4", "getPet", '{"pet": ".."}'),
    ]
    # The application says everything that it was sent.
    with caplog.at_level(logging.DEBUG):
        async with openapi_tools(application.document, base_url=application.url, auth=auth) as tools:
            result = await tool_loop(
                ScriptedProvider([*calls, "done"]),
                ToolRegistry(tools),
                "Go",
                config=ToolLoopConfig(on_event=seen.append, max_iterations=9),
            )
            said = [repr(auth), repr(tools), repr([tool.options for tool in tools]), repr(result), repr(seen)]
        async with openapi_tools(application.document, base_url="http://127.0.0.1:9", auth=auth) as tools:
            said.append((await ToolRegistry(tools).execute(calls[0])).text)
    assert len(application.requests) >= 4
    # The server is in this process too, and what it logs is its own affair.
    ours = [record for record in caplog.records if not record.name.startswith("uvicorn")]
    assert {"httpx2", "httpcore2.http11"} <= {record.name for record in ours}
    said += [dump_messages(result.messages), *map(logging.Formatter().format, ours)]
    encoded = b64encode(f"ada:{SECRET}".encode()).decode()
    for text in said:
        assert SECRET not in text
        assert encoded not in text


async def test_a_secret_at_the_edge_of_what_is_cut_is_not_shown_in_part() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text="x" * 90 + SECRET + "y" * 90)

    source = document({"/": {"get": operation()}})
    for limit in range(85, 130):
        async with openapi_tools(
            source,
            auth=Bearer(SECRET),
            allow_hosts=["pets.test"],
            max_response_bytes=limit,
            transport=httpx2.MockTransport(answer),
        ) as tools:
            text = (await tools[0].ainvoke({})).text
        assert SECRET[:4] not in text


async def test_an_error_of_a_callable_is_told_by_its_type_alone(application: Application) -> None:
    def sign(request: httpx2.Request) -> Mapping[str, str]:
        raise KeyError(SECRET)

    result = await asked(application, sign)
    assert result.text == "The request could not be signed: KeyError."
    assert application.requests == []


@pytest.mark.parametrize(
    ("server", "entry"),
    [
        ("https://pets.test/v1", "pets.test"),
        ("https://pets.test:8443/v1", "pets.test:8443"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
    ],
)
async def test_the_host_that_an_error_says_to_allow_is_allowed_so(server: str, entry: str) -> None:
    source = {**document({"/": {"get": operation()}}), "servers": [{"url": server}]}
    with pytest.raises(ConfigurationError, match="pass allow_hosts=") as raised:
        async with openapi_tools(source, auth=Bearer(SECRET)):
            pass
    assert f"allow_hosts=[{entry!r}]" in str(raised.value)
    async with openapi_tools(source, auth=Bearer(SECRET), allow_hosts=[entry]) as tools:
        assert len(tools) == 1


@pytest.mark.parametrize("schemes", [None, True, 1, "key", ["key"], [["key"]], {"key": None}, {"key": ["apiKey"]}])
async def test_security_schemes_that_are_none_are_an_error_of_ours(schemes: object) -> None:
    source = document({"/": {"get": operation()}}, components={"securitySchemes": schemes})
    with pytest.raises(OpenApiError, match="security scheme 'key'"):
        async with openapi_tools(source, auth={"key": SECRET}):
            pass


async def test_a_security_scheme_may_stand_in_another_document_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "/api.json": document(
            {"/": {"get": operation(security=[{"key": []}])}},
            components={"securitySchemes": {"key": {"$ref": "schemes.json"}}},
        ),
        "/schemes.json": {"type": "apiKey", "name": "X-Key", "in": "header"},
    }
    seen: list[httpx2.Request] = []

    async def send(self: object, request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json=pages.get(request.url.path, {}))

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    async with openapi_tools("https://pets.test/api.json", auth={"key": SECRET}) as tools:
        await tools[0].ainvoke({})
    assert seen[-1].headers["x-key"] == SECRET


ODD_TOKENS = {
    "a lifetime of four hundred digits": {"access_token": "tok-1", "expires_in": 10**400},
    "an endless lifetime": {"access_token": "tok-1", "expires_in": math.inf},
    "a lifetime that is no number": {"access_token": "tok-1", "expires_in": math.nan},
    "a lifetime below zero": {"access_token": "tok-1", "expires_in": -1},
    "a token of a megabyte": {"access_token": "t" * 900_000},
}


@pytest.mark.parametrize("name", ODD_TOKENS)
async def test_an_odd_answer_of_a_token_server_is_used_or_a_failure_of_the_call(name: str) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        is_token = request.url.path == "/token"
        return httpx2.Response(200, content=json.dumps(ODD_TOKENS[name]) if is_token else b"ok")

    auth = OAuth2ClientCredentials("ada", SECRET, token_url="https://pets.test/token")
    transport = httpx2.MockTransport(answer)
    async with openapi_tools(
        document({"/": {"get": operation()}}), auth=auth, allow_hosts=["pets.test"], transport=transport
    ) as tools:
        result = await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
    assert result.is_error is (name == "a token of a megabyte")
    assert "No access token could be had" in result.text or "ok" in result.text


def test_a_call_costs_the_same_however_many_signatures_there_were() -> None:
    signatures = count(10**9)
    source = document({"/": {"get": operation()}})
    transport = httpx2.MockTransport(lambda _: httpx2.Response(204))

    def sign(request: httpx2.Request) -> Mapping[str, str]:
        return {"X-Signature": f"{next(signatures)}-signature"}

    async def call(times: int) -> None:
        async with openapi_tools(source, auth=sign, allow_hosts=["pets.test"], transport=transport) as tools:
            for _ in range(times):
                await tools[0].ainvoke({})

    assert grows_with_its_input(lambda times: anyio.run(call, times), 20)


@pytest.mark.parametrize("url", ["token", "//pets.test/token", "ftp://pets.test/token", f"https://{SECRET}:x@[::1"])
def test_a_wrong_token_url_is_refused_where_it_is_given(url: str) -> None:
    with pytest.raises(ConfigurationError, match="token_url") as caught:
        OAuth2ClientCredentials("ada", "secret", token_url=url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", ["http://0177.0.0.1/t", "https://[::1", "https://a\u200b/t", "/token", "", "\x00"])
async def test_a_token_url_of_a_document_that_is_none_is_an_error_of_ours(url: str) -> None:
    flows: dict[str, Any] = {"clientCredentials": {"tokenUrl": url, "scopes": {}}}
    source = document(
        {"/": {"get": operation()}}, components={"securitySchemes": {"o": {"type": "oauth2", "flows": flows}}}
    )
    with pytest.raises(OpenApiError, match="does not say where client credentials get their token"):
        async with openapi_tools(source, auth=OAuth2ClientCredentials("ada", SECRET)):
            pass
