"""Calls to a real application: what it is sent, and what the model reads of its answers."""

import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import pytest

from tests.sources.openapi.application import PIXEL, Application
from toolkit import ApprovalRequest, ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool_loop, tool_loop_sync
from toolkit.chat import FileBlock, ImageBlock, TextBlock
from toolkit.sources import ServerLimits
from toolkit.sources.openapi import Bearer, openapi_tools
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


async def call(application: Application, name: str, arguments: dict[str, Any], **options: Any) -> ToolResult:
    with anyio.fail_after(120):
        async with openapi_tools(application.document, base_url=application.url, **options) as tools:
            return await ToolRegistry(tools).execute(ToolCall("1", name, json.dumps(arguments)))


def body_of(result: ToolResult) -> Any:
    return json.loads(result.text.partition("\n\n")[2])


@dataclass
class Case:
    about: str
    tool: str
    arguments: dict[str, Any]
    answer: Any
    options: dict[str, Any] = field(default_factory=dict[str, Any])


CALLS = [
    Case(
        "every place of a parameter",
        "getPet",
        {"pet": "a/b ü?", "tag": ["x y", "&"], "x-trace": "t1", "session": "s=1"},
        {"pet": "a/b ü?", "tag": ["x y", "&"], "trace": "t1", "session": "s%3D1"},
    ),
    Case("what may be left out", "getPet", {"pet": "7"}, {"pet": "7", "tag": None, "trace": None, "session": None}),
    Case(
        "a JSON body",
        "addPet",
        {"body": {"name": "Rex ü", "age": None, "tags": ["a"]}},
        {"name": "Rex ü", "age": None, "tags": ["a"]},
    ),
    Case(
        "a form",
        "login",
        {"body": {"user": "ada & co", "scopes": ["read", "write all"]}},
        {"user": "ada & co", "scopes": ["read", "write all"]},
    ),
    Case(
        "a multipart form with files as text and as base64",
        "upload",
        {
            "body": {
                "note": "für dich",
                "main": {"content": "hello", "filename": "a.txt"},
                "more": [
                    {"content": b64encode(PIXEL).decode(), "encoding": "base64", "filename": "p.png"},
                    {"content": "x"},
                ],
            }
        },
        {
            "note": "für dich",
            "files": [
                ["a.txt", "text/plain", b64encode(b"hello").decode()],
                ["p.png", "image/png", b64encode(PIXEL).decode()],
                ["more", "application/octet-stream", b64encode(b"x").decode()],
            ],
        },
    ),
    Case(
        "bytes",
        "putBlob",
        {"body": {"content": b64encode(bytes(range(256))).decode(), "encoding": "base64"}},
        {"size": 256},
    ),
]


@pytest.mark.parametrize("case", CALLS, ids=lambda case: case.about)
async def test_a_call_reaches_the_application_as_it_was_meant(case: Case, application: Application) -> None:
    result = await call(application, case.tool, case.arguments, **case.options)
    assert not result.is_error, result.text
    assert body_of(result) == case.answer


async def test_the_model_reads_status_and_body(application: Application) -> None:
    result = await call(application, "addPet", {"body": {"name": "Rex"}})
    assert result.text == f'POST {application.url}/pets -> 201 Created\n\n{{"name":"Rex","age":null,"tags":[]}}'
    assert not result.is_error


async def test_a_call_that_does_not_fit_the_document_is_never_sent(application: Application) -> None:
    result = await call(application, "addPet", {"body": {"nam": "Rex"}})
    assert result.is_error
    assert "body.name" in result.text
    assert application.requests == []


async def test_no_content_is_said(application: Application) -> None:
    result = await call(application, "deletePet", {"pet": "7"})
    assert result.text == f"DELETE {application.url}/pets/7 -> 204 No Content\n\n(no content)"


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_an_http_error_is_an_error_result_with_status_and_body(status: int, application: Application) -> None:
    result = await call(application, "fail", {"status": status})
    assert result.is_error
    assert f"-> {status} " in result.text
    assert body_of(result) == {"detail": f"the reason for {status}"}
    assert result.details["status"] == status


async def test_an_image_is_an_image(application: Application) -> None:
    result = await call(application, "image", {})
    assert isinstance(result.content[0], TextBlock)
    assert result.content[1] == ImageBlock(PIXEL, media_type="image/png")


async def test_a_file_has_its_name_and_type(application: Application) -> None:
    result = await call(application, "report", {})
    assert result.content[1] == FileBlock(b"%PDF", name="report.pdf", media_type="application/pdf")


async def test_a_file_over_the_limit_is_described(application: Application) -> None:
    result = await call(application, "report", {"size": 1001}, max_file_bytes=1000)
    assert result.text.endswith("[application/pdf: 1,001 bytes in all; too large to be shown]")


async def test_a_long_text_is_cut_on_a_whole_character_and_says_so(application: Application) -> None:
    result = await call(application, "text_text_get", {"size": 60_000}, max_response_bytes=10_001)
    body = result.text.partition("\n\n")[2]
    text, _, note = body.partition("\n")
    assert text == "é" * 5_000
    assert note == "... [truncated: 120,000 bytes in all; the first 10,001 bytes are shown]"


async def test_what_grows_when_it_is_unpacked_is_cut_like_any_other(application: Application) -> None:
    result = await call(application, "packed", {}, max_response_bytes=1_000)
    assert result.text.endswith("\0" * 1_000 + "\n... [truncated: the first 1,000 bytes are shown]")


async def test_headers_that_lead_to_the_next_page_are_shown_and_no_cookie(application: Application) -> None:
    result = await call(application, "pages", {"page": 2})
    assert 'link: </pages?page=3>; rel="next"' in result.text
    assert "x-total-count: 30" in result.text
    assert "from-the-server" not in result.text


async def test_no_cookie_is_carried_from_one_call_to_the_next(application: Application) -> None:
    with anyio.fail_after(120):
        async with openapi_tools(application.document, base_url=application.url) as tools:
            registry = ToolRegistry(tools)
            await registry.execute(ToolCall("1", "pages", "{}"))
            result = await registry.execute(ToolCall("2", "echo", "{}"))
    assert "cookie" not in body_of(result)["headers"]


async def test_a_call_that_takes_too_long_is_an_error_and_says_whether_it_may_have_worked(
    application: Application,
) -> None:
    result = await call(application, "slow", {}, limits=ServerLimits(timeout=0.2))
    assert result.is_error
    assert result.text == "Tool 'slow' timed out after 0.2 s."


@pytest.mark.parametrize("value", [".", "..", "", "../../admin"])
async def test_a_path_parameter_can_not_lead_elsewhere(value: str, application: Application) -> None:
    result = await call(application, "getPet", {"pet": value})
    if "/" in value:
        assert body_of(result)["pet"] == value
    else:
        assert result.is_error
        assert "can't stand in a path" in result.text
        assert application.requests == []


async def test_a_redirect_to_the_same_server_keeps_the_signature(application: Application) -> None:
    result = await call(application, "moved", {"to": "/echo?x=1"}, auth=Bearer("the-token-itself"))
    answer = body_of(result)
    assert answer["query"] == "x=1"
    assert answer["headers"]["authorization"] == "Bearer ***"


async def test_a_redirect_elsewhere_is_told_nothing(application: Application) -> None:
    elsewhere = application.url.replace("127.0.0.1", "localhost")
    result = await call(
        application, "moved", {"to": f"{elsewhere}/echo"}, auth=Bearer("the-token-itself"), headers={"x-tenant": "t"}
    )
    headers = body_of(result)["headers"]
    assert headers["host"].startswith("localhost")
    assert not {"authorization", "x-tenant"} & headers.keys()


async def test_a_redirect_of_what_changes_something_is_not_followed(application: Application) -> None:
    result = await call(application, "moveIt", {})
    assert "-> 307 Temporary Redirect\nlocation: /echo" in result.text
    assert len(application.requests) == 1


async def test_only_reads_are_tagged_so_whatever_the_document_says(application: Application) -> None:
    async with openapi_tools(application.document, base_url=application.url) as tools:
        registry = ToolRegistry(tools)
        assert "read" in application.document["paths"]["/pets"]["post"]["tags"]
        reads = registry.tagged("read")
        assert {tool.options.metadata["method"] for tool in tools if tool.definition.name in reads} == {"GET"}
        assert "addPet" not in reads
        assert registry.tagged("pets").names == ("getPet", "addPet")


async def test_the_tools_run_in_a_loop(application: Application) -> None:
    calls: list[ToolCall | str] = [ToolCall("1", "getPet", '{"pet": "7"}'), "There it is."]
    async with openapi_tools(application.document, base_url=application.url) as tools:
        result = await tool_loop(ScriptedProvider(calls), ToolRegistry(tools), "Find pet 7")
    assert result.text == "There it is."


async def test_the_tools_run_on_another_event_loop(application: Application) -> None:
    async with openapi_tools(application.document, base_url=application.url) as tools:
        registry = ToolRegistry(tools)
        provider = ScriptedProvider([ToolCall("1", "getPet", '{"pet": "7"}'), "There."])
        result = await anyio.to_thread.run_sync(lambda: tool_loop_sync(provider, registry, "Find it"))
    message = result.messages[2]
    assert isinstance(message, ToolResult)
    assert body_of(message)["pet"] == "7"


async def test_a_closed_block_closes_its_tools(application: Application) -> None:
    async with openapi_tools(application.document, base_url=application.url) as tools:
        pass
    result = await ToolRegistry(tools).execute(ToolCall("1", "echo", "{}"))
    assert result.is_error
    assert "closed" in result.text


async def test_a_server_that_is_not_there_is_an_error_result(application: Application) -> None:
    async with openapi_tools(application.document, base_url="http://127.0.0.1:9") as tools:
        result = await ToolRegistry(tools).execute(ToolCall("1", "addPet", '{"body": {"name": "Rex"}}'))
    assert result.is_error
    assert result.text.startswith("POST http://127.0.0.1:9/pets failed: ConnectError")
    assert "may have taken effect" not in result.text


async def test_a_hundred_calls_at_once_are_answered(application: Application) -> None:
    calls = [ToolCall(str(number), "getPet", json.dumps({"pet": str(number)})) for number in range(100)]
    with anyio.fail_after(120):
        async with openapi_tools(application.document, base_url=application.url) as tools:
            results = await ToolRegistry(tools).execute_all(calls)
    assert [body_of(result)["pet"] for result in results] == [str(number) for number in range(100)]


async def test_a_cancelled_loop_leaves_no_call_open(application: Application) -> None:
    provider = ScriptedProvider([ToolCall("1", "slow", "{}"), "never"])
    async with openapi_tools(application.document, base_url=application.url) as tools:
        result = await tool_loop(provider, ToolRegistry(tools), "Wait", config=ToolLoopConfig(timeout=0.3))
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]


async def test_another_transport_can_send(application: Application) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text=f"seen {request.url.path}")

    result = await call(application, "echo", {}, transport=httpx2.MockTransport(answer))
    assert result.text.endswith("seen /echo")


async def test_what_may_have_taken_effect_says_so(application: Application) -> None:
    result = await call(application, "slowly", {}, limits=ServerLimits(timeout=0.2))
    assert result.text == "Tool 'slowly' timed out after 0.2 s. It may have taken effect and may still be running."


DEFAULTS: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Repositories", "version": "1"},
    "paths": {
        "/repos/{owner}": {
            "patch": {
                "operationId": "update",
                "parameters": [
                    {"name": "owner", "in": "path", "required": True, "schema": {"type": "string", "default": "me"}},
                    {"name": "page", "in": "query", "schema": {"type": "integer", "default": 1}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string", "default": "on"}},
                    {"name": "session", "in": "cookie", "schema": {"type": "string", "default": "none"}},
                ],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Repo"}}}},
                "responses": {"200": {"description": "Done."}},
            },
            "post": {
                "operationId": "submit",
                "parameters": [{"name": "owner", "in": "path", "required": True, "schema": {"type": "string"}}],
                "requestBody": {
                    "content": {"application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Repo"}}}
                },
                "responses": {"200": {"description": "Done."}},
            },
        }
    },
    "components": {
        "schemas": {
            "Repo": {
                "type": "object",
                "properties": {
                    "description": {"type": "string"},
                    "private": {"type": "boolean", "default": False},
                    "topics": {"type": "array", "items": {"$ref": "#/components/schemas/Topic"}},
                    "security": {"type": "object", "properties": {"scan": {"default": "all"}}, "default": {}},
                },
            },
            "Topic": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "rank": {"type": "integer", "default": 5}},
            },
        }
    },
}


@pytest.mark.parametrize(
    ("name", "body", "sent"),
    [
        (
            "update",
            {"description": "x", "topics": [{"name": "a"}], "security": {}},
            b'{"description":"x","topics":[{"name":"a"}],"security":{}}',
        ),
        ("update", {}, b"{}"),
        ("submit", {"description": "x"}, b"description=x"),
    ],
)
async def test_a_default_of_the_service_is_never_sent_for_it(name: str, body: dict[str, Any], sent: bytes) -> None:
    requests: list[httpx2.Request] = []
    shown: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, text="done")

    def approve(request: ApprovalRequest) -> bool:
        shown.append(request.preview)
        return True

    arguments = {"owner": "ada", "body": body}
    async with openapi_tools(DEFAULTS, base_url="http://127.0.0.1:1", transport=httpx2.MockTransport(answer)) as tools:
        provider = ScriptedProvider([ToolCall("1", name, json.dumps(arguments)), "Done."])
        await tool_loop(provider, ToolRegistry(tools), "Update it.", config=ToolLoopConfig(on_tool_call=approve))
        described = next(tool.definition.parameters for tool in tools if tool.definition.name == name)
    (request,) = requests
    assert (request.url.path, request.url.query, request.content) == ("/repos/ada", b"", sent)
    assert not {"x-trace", "cookie"} & set(request.headers)
    assert [json.loads(each) for each in shown] == [arguments]
    assert '"default": false' in json.dumps(described)
