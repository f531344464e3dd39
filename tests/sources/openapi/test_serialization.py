"""What goes over the wire for an argument: each style, each place, each kind of body."""

from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.sources.openapi.pets import document, operation
from toolkit.errors import InvalidArgumentsError
from toolkit.sources.openapi import openapi_tools

pytestmark = pytest.mark.anyio

LIST = ["blue", "a,b"]
ANY_VALUE: dict[str, Any] = {}
ANY: dict[str, Any] = {"type": "object"}
OBJECT = {"R": 100, "G h": "x&y"}


@dataclass
class Recorder(httpx2.AsyncBaseTransport):
    """Keeps what would be sent."""

    requests: list[tuple[httpx2.Request, bytes]] = field(default_factory=list[tuple[httpx2.Request, bytes]])

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append((request, await request.aread()))
        return httpx2.Response(204)


async def sent(path: str, arguments: dict[str, Any], described: dict[str, Any]) -> tuple[httpx2.Request, bytes]:
    recorder = Recorder()
    method = "post" if "requestBody" in described else "get"
    async with openapi_tools(document({path: {method: described}}), transport=recorder) as tools:
        await tools[0].ainvoke(arguments)
    return recorder.requests[0]


@dataclass
class Case:
    place: str
    style: str
    explode: bool | None
    value: Any
    target: str
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        kind = "list" if isinstance(self.value, list) else "object" if isinstance(self.value, dict) else "one"
        return f"{self.place}-{self.style}-{self.explode}-{kind}{len(self.more) or ''}"


# The examples are those of OpenAPI's own table and of RFC 6570.
URLS = [
    Case("path", "simple", None, "a b/c", "/a%20b%2Fc"),
    Case("path", "simple", None, LIST, "/blue,a%2Cb"),
    Case("path", "simple", None, OBJECT, "/R,100,G%20h,x%26y"),
    Case("path", "simple", True, OBJECT, "/R=100,G%20h=x%26y"),
    Case("path", "label", None, 5, "/.5"),
    Case("path", "label", False, LIST, "/.blue,a%2Cb"),
    Case("path", "label", True, LIST, "/.blue.a%2Cb"),
    Case("path", "label", False, OBJECT, "/.R,100,G%20h,x%26y"),
    Case("path", "label", True, OBJECT, "/.R=100.G%20h=x%26y"),
    Case("path", "matrix", None, True, "/;color=true"),
    Case("path", "matrix", None, "", "/;color"),
    Case("path", "matrix", True, ["", "x"], "/;color;color=x"),
    Case("path", "simple", None, "a?b/../c", "/a%3Fb%2F..%2Fc", {"allowReserved": True}),
    Case("path", "matrix", False, LIST, "/;color=blue,a%2Cb"),
    Case("path", "matrix", True, LIST, "/;color=blue;color=a%2Cb"),
    Case("path", "matrix", False, OBJECT, "/;color=R,100,G%20h,x%26y"),
    Case("path", "matrix", True, OBJECT, "/;R=100;G%20h=x%26y"),
    Case("query", "form", None, "a&b=c#d+e%", "?color=a%26b%3Dc%23d%2Be%25"),
    Case("query", "form", None, LIST, "?color=blue&color=a%2Cb"),
    Case("query", "form", False, LIST, "?color=blue,a%2Cb"),
    Case("query", "form", False, [], ""),
    Case("query", "form", None, OBJECT, "?R=100&G%20h=x%26y"),
    Case("query", "form", False, OBJECT, "?color=R,100,G%20h,x%26y"),
    Case("query", "spaceDelimited", False, LIST, "?color=blue%20a%2Cb"),
    Case("query", "pipeDelimited", False, LIST, "?color=blue%7Ca%2Cb"),
    Case("query", "pipeDelimited", True, LIST, "?color=blue&color=a%2Cb"),
    Case("query", "deepObject", True, OBJECT, "?color%5BR%5D=100&color%5BG%20h%5D=x%26y"),
    Case("query", "deepObject", True, {"a": [{"b": 1}, 2]}, "?color%5Ba%5D%5B0%5D%5Bb%5D=1&color%5Ba%5D%5B1%5D=2"),
    Case("query", "form", None, "/a?b,c:d&e", "?color=/a?b,c:d%26e", {"allowReserved": True}),
    Case("query", "form", None, 5.0, "?color=5"),
    Case("query", "form", None, None, ""),
]  # fmt: skip


@pytest.mark.parametrize("case", URLS, ids=lambda case: f"{case} {case.target}")
async def test_a_parameter_in_a_url_is_written_in_its_style(case: Case) -> None:
    parameter: dict[str, Any] = {
        "name": "color",
        "in": case.place,
        "required": True,
        "style": case.style,
        "schema": {},
        **case.more,
    }
    if case.explode is not None:
        parameter["explode"] = case.explode
    path = "/{color}" if case.place == "path" else "/"
    request, _ = await sent(path, {"color": case.value}, operation(parameter))
    assert request.url.raw_path.decode() == "/v1" + (case.target if case.place == "path" else f"/{case.target}")


@pytest.mark.parametrize(
    ("value", "explode", "header"),
    [
        ("a b", False, "a b"),
        (LIST, False, "blue,a,b"),
        (OBJECT, False, "R,100,G h,x&y"),
        (OBJECT, True, "R=100,G h=x&y"),
    ],
    ids=["one", "list", "object", "exploded object"],
)
async def test_a_parameter_in_a_header_is_written_as_it_is(value: Any, explode: bool, header: str) -> None:
    parameter: dict[str, Any] = {"name": "X-Color", "in": "header", "explode": explode, "schema": {}}
    request, _ = await sent("/", {"X-Color": value}, operation(parameter))
    assert request.headers["x-color"] == header


@pytest.mark.parametrize(
    "value", ["a\r\nX-Evil: 1", ["a", "b\n"], {"a": "\0"}, " a"], ids=["lines", "in a list", "in an object", "space"]
)
async def test_what_would_begin_another_header_is_refused_before_anything_is_sent(value: Any) -> None:
    described = operation({"name": "X-Color", "in": "header", "schema": {}})
    recorder = Recorder()
    async with openapi_tools(document({"/": {"get": described}}), transport=recorder) as tools:
        with pytest.raises(InvalidArgumentsError, match=r"X-Color: .* can't stand in a header: it must be one line"):
            await tools[0].ainvoke({"X-Color": value})
    assert recorder.requests == []


async def test_cookies_are_written_into_one_header() -> None:
    one: dict[str, Any] = {"name": "a", "in": "cookie", "schema": {}}
    other: dict[str, Any] = {"name": "b", "in": "cookie", "explode": False, "schema": {}}
    request, _ = await sent("/", {"a": "x;y", "b": LIST}, operation(one, other))
    assert request.headers["cookie"] == "a=x%3By; b=blue,a%2Cb"


async def test_a_parameter_with_content_is_written_as_that() -> None:
    parameter: dict[str, Any] = {
        "name": "where",
        "in": "query",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
    request, _ = await sent("/", {"where": {"a": [1]}}, operation(parameter))
    assert request.url.raw_path == b"/v1/?where=%7B%22a%22%3A%5B1%5D%7D"


async def test_parameters_of_the_path_count_and_those_of_the_operation_go_before() -> None:
    item = {
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "size", "in": "query", "schema": {"type": "string"}},
        ],
        "get": operation({"name": "size", "in": "query", "required": True, "schema": {"type": "integer"}}),
    }
    async with openapi_tools(document({"/pets/{id}/{other}": item})) as tools:
        assert tools[0].definition.parameters == {
            "type": "object",
            "properties": {"id": {"type": "string"}, "size": {"type": "integer"}, "other": {"type": "string"}},
            "required": ["id", "size", "other"],
            "additionalProperties": False,
        }


async def test_names_that_providers_refuse_or_that_are_taken_are_changed_for_the_model_alone() -> None:
    described = operation(
        {"name": "filter[state]", "in": "query", "description": "Which.", "schema": {"type": "string"}},
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "id", "in": "query", "schema": {"type": "string"}},
        {"name": "body", "in": "query", "schema": {"type": "string"}},
        {"name": "Content-Type", "in": "header", "schema": {"type": "string"}},
        requestBody={"required": True, "content": {"application/json": {"schema": {"type": "integer"}}}},
    )
    async with openapi_tools(document({"/{id}": {"post": described}})) as tools:
        parameters = tools[0].definition.parameters
    assert list(parameters["properties"]) == ["filter_state", "id", "id_query", "body", "_request_body"]
    assert (
        parameters["properties"]["filter_state"]["description"] == "Which.\nSent as the query parameter filter[state]."
    )
    arguments = {"filter_state": "a", "id": "1", "id_query": "2", "body": "3", "_request_body": 4}
    request, content = await sent("/{id}", arguments, described)
    assert request.url.raw_path == b"/v1/1?filter%5Bstate%5D=a&id=2&body=3"
    assert content == b"4"


@dataclass
class BodyCase:
    about: str
    media_type: str
    schema: dict[str, Any]
    value: Any
    content_type: str
    content: bytes
    encoding: dict[str, Any] = field(default_factory=dict[str, Any])


BODIES = [
    BodyCase("JSON", "application/json", {}, {"ü": [None]}, "application/json", '{"ü":[null]}'.encode()),
    BodyCase("a kind of JSON", "application/merge-patch+json", {}, [1], "application/merge-patch+json", b"[1]"),
    BodyCase("anything", "*/*", {}, {"a": 1}, "application/json", b'{"a":1}'),
    BodyCase("text", "text/plain", {"type": "string"}, "hé", "text/plain; charset=utf-8", "hé".encode()),
    BodyCase("XML", "application/xml", ANY, "<a/>", "application/xml; charset=utf-8", b"<a/>"),
    BodyCase(
        "a file as text", "application/octet-stream", {}, {"content": "hé"}, "application/octet-stream", "hé".encode()
    ),
    BodyCase("an image", "image/png", {}, {"content": "iVA=", "encoding": "base64"}, "image/png", b"\x89P"),
    BodyCase(
        "a form",
        "application/x-www-form-urlencoded",
        ANY,
        {"a": "x &", "b": [1, 2], "c": {"d": 1}, "e": None},
        "application/x-www-form-urlencoded",
        b"a=x%20%26&b=1&b=2&c=%7B%22d%22%3A1%7D",
    ),
    BodyCase(
        "a form with styles",
        "application/x-www-form-urlencoded",
        ANY,
        {"a": {"b": ["x"]}, "c": [1, 2]},
        "application/x-www-form-urlencoded",
        b"a%5Bb%5D%5B0%5D=x&c=1,2",
        {"a": {"style": "deepObject", "explode": True}, "c": {"style": "form", "explode": False}},
    ),
]


@pytest.mark.parametrize("case", BODIES, ids=lambda case: case.about)
async def test_a_body_is_written_as_its_media_type(case: BodyCase) -> None:
    content = {case.media_type: {"schema": case.schema, "encoding": case.encoding}}
    request, body = await sent("/", {"body": case.value}, operation(requestBody={"content": content}))
    assert request.headers["content-type"] == case.content_type
    assert body == case.content


async def test_json_is_taken_where_a_body_may_be_several_things() -> None:
    content: dict[str, Any] = {
        "application/xml": {"schema": {}},
        "multipart/form-data": {"schema": ANY},
        "application/json": {},
    }
    request, body = await sent("/", {"body": {"a": 1}}, operation(requestBody={"content": content}))
    assert (request.headers["content-type"], body) == ("application/json", b'{"a":1}')


async def test_the_parts_of_a_multipart_form_have_their_types() -> None:
    schema = {
        "type": "object",
        "properties": {
            "picture": {"type": "string", "format": "binary"},
            "raw": {},
            "about": {"type": "object"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    encoding = {"picture": {"contentType": "image/png, image/jpeg"}, "raw": {"contentType": "application/pdf"}}
    content = {"multipart/form-data": {"schema": schema, "encoding": encoding}}
    value = {
        "picture": {"content": "x", "filename": "cat.jpeg"},
        "raw": {"content": "y"},
        "about": {"name": "Tom"},
        "tags": ["a", "b"],
    }
    request, body = await sent("/", {"body": value}, operation(requestBody={"content": content}))
    boundary = request.headers["content-type"].removeprefix("multipart/form-data; boundary=")
    parts = [part.strip().decode() for part in body.split(b"--" + boundary.encode())[1:-1]]
    assert parts == [
        'Content-Disposition: form-data; name="picture"; filename="cat.jpeg"\r\nContent-Type: image/jpeg\r\n\r\nx',
        'Content-Disposition: form-data; name="raw"; filename="raw"\r\nContent-Type: application/pdf\r\n\r\ny',
        'Content-Disposition: form-data; name="about"\r\nContent-Type: application/json\r\n\r\n{"name":"Tom"}',
        'Content-Disposition: form-data; name="tags"\r\n\r\na',
        'Content-Disposition: form-data; name="tags"\r\n\r\nb',
    ]


async def test_files_are_found_in_what_a_form_is_made_of_and_have_the_type_that_is_said_there() -> None:
    described = operation(
        requestBody={
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "allOf": [
                            {"$ref": "#/components/schemas/Upload"},
                            {"type": "object", "properties": {"note": {"type": "string"}}},
                        ]
                    }
                }
            }
        }
    )
    upload = {"type": "object", "properties": {"picture": {"contentMediaType": "image/webp"}}, "required": ["picture"]}
    recorder = Recorder()
    source = document({"/": {"post": described}}, components={"schemas": {"Upload": upload}})
    async with openapi_tools(source, transport=recorder) as tools:
        await tools[0].ainvoke({"body": {"picture": {"content": "x"}, "note": "mine"}})
        with pytest.raises(InvalidArgumentsError, match=r"body\.picture"):
            await tools[0].ainvoke({"body": {"note": "mine"}})
    assert recorder.requests[0][1].split(b"\r\n")[1:5] == [
        b'Content-Disposition: form-data; name="picture"; filename="picture"',
        b"Content-Type: image/webp",
        b"",
        b"x",
    ]


async def test_a_file_that_is_no_base64_is_told_to_the_model() -> None:
    described = operation(requestBody={"content": {"application/octet-stream": {}}})
    async with openapi_tools(document({"/": {"post": described}}), transport=Recorder()) as tools:
        with pytest.raises(InvalidArgumentsError, match=r"body\.content is no base64 .*: send base64, or text with"):
            await tools[0].ainvoke({"body": {"content": "no base64!", "encoding": "base64"}})


async def test_a_path_may_have_a_query_and_a_fragment_of_its_own() -> None:
    parameter: dict[str, Any] = {"name": "a", "in": "query", "schema": {"type": "string"}}
    request, _ = await sent("/x?Action=List#Target=Pets", {"a": "1"}, operation(parameter))
    assert request.url.raw_path == b"/v1/x?Action=List&a=1"
