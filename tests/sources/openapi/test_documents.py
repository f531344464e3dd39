"""Documents from everywhere, and those that can't be used: the error names the place and the remedy."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import yaml

from tests.providers.loopback import closed_port
from tests.sources.openapi.application import Application
from tests.sources.openapi.pets import document, operation
from toolkit import ConfigurationError
from toolkit.errors import OpenApiError
from toolkit.sources import ServerLimits
from toolkit.sources.openapi import (
    ApiKey,
    Basic,
    Bearer,
    OAuth2ClientCredentials,
    Only,
    OpenApiTool,
    Operation,
    openapi_tools,
)

pytestmark = pytest.mark.anyio

dump_yaml: Callable[[Any], str] = cast("Any", yaml).safe_dump  # pyright does not know a type that its stubs name
PETS = document({"/pets": {"get": operation(operationId="listPets", summary="List pets.")}})


async def load(source: Mapping[str, Any] | str | Path, **options: Any) -> list[OpenApiTool]:
    async with openapi_tools(source, **options) as tools:
        return tools


async def names_of(source: Mapping[str, Any] | str | Path, **options: Any) -> list[str]:
    return [tool.definition.name for tool in await load(source, **options)]


async def test_a_document_is_taken_as_a_mapping_text_path_or_url(application: Application, tmp_path: Path) -> None:
    as_json, as_yaml = tmp_path / "pets.json", tmp_path / "pets.yaml"
    as_json.write_text(json.dumps(PETS))
    as_yaml.write_text(dump_yaml(PETS))
    sources: list[Mapping[str, Any] | str | Path] = [
        PETS,
        json.dumps(PETS),
        dump_yaml(PETS),
        as_json,
        str(as_yaml),
    ]
    assert [await names_of(source) for source in sources] == [["listPets"]] * 5
    assert "getPet" in await names_of(f"{application.url}/openapi.json")


async def test_yaml_has_the_types_of_its_version_1_2() -> None:
    text = """
openapi: 3.1.0
info: {title: Pets, version: 2026-01-31}
servers: [{url: "https://pets.test"}]
paths:
  /pets:
    get:
      operationId: listPets
      parameters:
        - {name: country, in: query, schema: {enum: [NO, on, true, 2026-01-31]}}
      responses:
        200: {description: Fine.}
"""
    (tool,) = await load(text)
    assert tool.definition.parameters["properties"]["country"] == {"enum": ["NO", "on", True, "2026-01-31"]}


async def test_references_lead_to_files_beside_the_document(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/pet.yaml").write_text("type: object\nproperties: {owner: {$ref: 'owner.json#/Owner'}}")
    (tmp_path / "schemas/owner.json").write_text('{"Owner": {"type": "string", "maxLength": 9}}')
    (tmp_path / "paths.yaml").write_text(
        dump_yaml({"pets": {"post": operation(operationId="addPet", requestBody=body({"$ref": "schemas/pet.yaml"}))}})
    )
    main = tmp_path / "pets.json"
    main.write_text(json.dumps(document({"/pets": {"$ref": "paths.yaml#/pets"}})))
    (tool,) = await load(main)
    assert tool.definition.parameters["properties"]["body"] == {
        "type": "object",
        "properties": {"owner": {"type": "string", "maxLength": 9}},
    }


def body(schema: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


def referring(reference: str) -> dict[str, Any]:
    return document({"/pets": {"get": operation({"$ref": reference})}})


@dataclass
class Bad:
    about: str
    source: Any
    message: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])


BAD = [
    Bad("nothing", "{}", "the text: it has no field openapi; a document of OpenAPI 3.0 or 3.1 says so"),
    Bad("broken JSON", '{"openapi": 3,,}', "the text: this is no JSON, at line 1, column 15"),
    Bad("broken YAML", "openapi: [\npaths: {", "the text: this is neither JSON nor YAML, at line"),
    Bad("a list", "- a\n- b", "the text: this is no OpenAPI document: it must be an object, not a list"),
    Bad("a missing file", "nowhere.yaml", "nowhere.yaml: it can't be read: No such file or directory"),
    Bad("Swagger 2", {"swagger": "2.0"}, "this is Swagger 2.0, and OpenAPI 3.0 and 3.1 are read here: convert it"),
    Bad("OpenAPI 3.2", {"openapi": "3.2.0"}, "it says openapi: '3.2.0'; a document of OpenAPI 3.0 or 3.1 says so"),
    Bad(
        "a dangling reference",
        referring("#/components/parameters/Size"),
        "the document: GET /pets: the reference '#/components/parameters/Size' can't be followed: nothing is there",
    ),
    Bad(
        "a parameter with a list for a name",
        document({"/pets": {"get": operation({"name": ["size"], "in": "query"})}}),
        "GET /pets: a parameter is not what OpenAPI has, at name: Input should be a valid string",
    ),
    Bad(
        "a reference in a list where a schema should be",
        document({"/pets": {"post": operation(requestBody=body({"additionalProperties": [{"$ref": "#/a"}]}))}}),
        "a schema refers to '#/a' in a place where no schema can be",
    ),
    Bad(
        "a reference into a number",
        {**referring("#/components/size/x"), "components": {"size": 1}},
        "GET /pets: the reference '#/components/size/x' can't be followed: nothing is there",
    ),
    Bad(
        "a reference by name, and a schema that is text",
        {**referring("other"), "components": {"schemas": {"A": "text"}}},
        "GET /pets: the reference 'other' can't be followed",
    ),
    Bad(
        "a reference in a circle",
        {
            **referring("#/components/parameters/A"),
            "components": {"parameters": {"A": {"$ref": "#/components/parameters/A"}}},
        },
        "the reference '#/components/parameters/A' leads round in a circle",
    ),
    Bad("a reference out of text", referring("other.yaml#/Size"), "it can refer to itself alone: pass its path or URL"),
    Bad(
        "a schema that contains nothing but itself",
        {
            **document({"/pets": {"post": operation(requestBody=body({"$ref": "#/components/schemas/A"}))}}),
            "components": {"schemas": {"A": {"allOf": [{"$ref": "#/components/schemas/A"}]}}},
        },
        "POST /pets: no tool can be made of it: a reference in it leads back to itself",
    ),
    Bad(
        "a schema that is none",
        document({"/pets": {"get": operation({"name": "size", "in": "query", "schema": {"type": "int"}})}}),
        "GET /pets: no tool can be made of it: its parameters are no JSON Schema, at $.properties.size.type: 'int'",
    ),
    Bad(
        "a parameter without a name",
        document({"/pets": {"get": operation({"in": "query", "schema": {}})}}),
        "GET /pets: a parameter is not what OpenAPI has, at name: Field required",
    ),
    Bad(
        "a style that is not for its place",
        document({"/pets": {"get": operation({"name": "a", "in": "query", "style": "matrix", "schema": {}})}}),
        "GET /pets: the query parameter 'a' has the style 'matrix'; there it can be form or spaceDelimited or",
    ),
    Bad("a path that is no object", document({"/pets": "x"}), "the document: /pets: a path must be an object, not 'x'"),
    Bad(
        "no server", {**PETS, "servers": []}, "GET /pets: no absolute base URL: the document's server is '/'; pass base"
    ),
    Bad("a relative server", {**PETS, "servers": [{"url": "/v2"}]}, "the document's server is '/v2'; pass base_url="),
    Bad(
        "a server with a password",
        {**PETS, "servers": [{"url": "https://ada:pw@pets.test"}]},
        "its server's URL holds a user or password: pass base_url= and auth=",
    ),
    Bad(
        "a server variable without a value",
        {**PETS, "servers": [{"url": "https://{region}.pets.test"}]},
        "needs a value for 'region': pass server_variables={'region': ...}, or base_url=",
    ),
    Bad(
        "a server variable with a wrong value",
        {
            **PETS,
            "servers": [
                {"url": "https://{region}.pets.test", "variables": {"region": {"default": "eu", "enum": ["eu"]}}}
            ],
        },
        "the server variable 'region' can be eu, not 'mars'",
        {"server_variables": {"region": "mars"}},
    ),
    Bad("an unknown scheme", PETS, "it has no security scheme 'key'; it has none", {"auth": {"key": "s3cret"}}),
    Bad(
        "a mistyped scheme",
        {**PETS, "components": {"securitySchemes": {"api_key": {"type": "apiKey", "name": "k", "in": "query"}}}},
        "it has no security scheme 'apikey'; did you mean 'api_key'?",
        {"auth": {"apikey": "s3cret"}},
    ),
    Bad(
        "a bare secret for a user and password",
        {**PETS, "components": {"securitySchemes": {"login": {"type": "http", "scheme": "basic"}}}},
        "security scheme 'login' takes a user and a password: pass Basic(username, password)",
        {"auth": {"login": "s3cret"}},
    ),
    Bad(
        "a scheme of an unknown type",
        {**PETS, "components": {"securitySchemes": {"tls": {"type": "mutualTLS"}}}},
        "security scheme 'tls' is of the type 'mutualTLS', unknown here: pass a callable",
        {"auth": {"tls": "s3cret"}},
    ),
    Bad(
        "client credentials without an address",
        PETS,
        "it does not say where client credentials get their token: pass OAuth2ClientCredentials(..., token_url=",
        {"auth": OAuth2ClientCredentials("robot", "s3cret")},
    ),
    Bad(
        "an unknown operation",
        PETS,
        "it has no operation 'listPet'; did you mean 'listPets'?",
        {"filter": Only(operations=["listPet"])},
    ),
    Bad("an unknown tag", PETS, "no operation of it has the tag 'cats'", {"filter": Only(tags=["cats"])}),
    Bad(
        "an unknown path",
        PETS,
        "no path of it begins with '/pet'; did you mean '/pets'?",
        {"filter": Only(paths=["/pet"])},
    ),
    Bad("an unused method", PETS, "has the method 'POST'; there are 'GET'", {"filter": Only(methods=["post"])}),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.about)
async def test_what_can_not_be_used_is_refused_by_its_place_and_its_remedy(case: Bad) -> None:
    with pytest.raises(OpenApiError) as caught:
        await load(case.source, **case.options)
    assert case.message in str(caught.value)
    assert "s3cret" not in str(caught.value)


CONFIGURATIONS: list[tuple[str, dict[str, Any]]] = [
    ("base_url must be an absolute URL", {"base_url": "pets.test"}),
    ("must not hold a user or password: pass auth=Basic", {"base_url": "https://ada:pw@pets.test"}),
    ("must not have a query or fragment", {"base_url": "https://pets.test/?key=s3cret"}),
    ("auth must be a Bearer, an ApiKey, a Basic", {"auth": 5}),
    ("max_response_bytes must be 1 or more, not 0", {"max_response_bytes": 0}),
]


@pytest.mark.parametrize(("message", "options"), CONFIGURATIONS, ids=[message for message, _ in CONFIGURATIONS])
async def test_a_setting_that_can_not_be_is_refused(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        await load(PETS, **options)
    assert "s3cret" not in str(caught.value)


def test_a_secret_that_no_header_can_carry_is_refused_without_being_shown() -> None:
    for make in (lambda: Bearer("s3cret\n"), lambda: ApiKey(name="key", value=" s3cret"), lambda: Bearer("")):
        with pytest.raises(ConfigurationError, match="can't be sent") as caught:
            make()
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="colon"):
        Basic("a:b", "s3cret")


async def test_a_file_outside_the_documents_folder_is_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("type: string")
    folder = tmp_path / "api"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    for reference in ("../secret.yaml", f"file://{tmp_path}/secret.yaml", "link.yaml"):
        (folder / "pets.json").write_text(
            json.dumps(document({"/pets": {"post": operation(requestBody=body({"$ref": reference}))}}))
        )
        with pytest.raises(OpenApiError, match=r"secret\.yaml is not in the document's folder"):
            await load(folder / "pets.json")


async def test_another_server_is_never_asked(tmp_path: Path) -> None:
    (tmp_path / "pets.json").write_text(json.dumps(referring(f"http://127.0.0.1:{closed_port()}/x.json")))
    with pytest.raises(OpenApiError, match="is elsewhere, and is never fetched"):
        await load(tmp_path / "pets.json")


async def test_a_url_that_gives_nothing_is_refused_without_its_secrets(application: Application) -> None:
    with pytest.raises(OpenApiError, match="it can't be fetched: 404 Not Found; check the URL") as caught:
        await load(f"{application.url}/nothing?token=s3cret")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(OpenApiError, match="it can't be fetched: ConnectError"):
        await load(f"http://127.0.0.1:{closed_port()}/openapi.json")


async def test_operations_that_are_wrong_are_refused_together_or_left_out(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {**PETS, "paths": {**PETS["paths"], "/a": {"get": operation({})}, "/b": {"get": operation({})}}}
    with pytest.raises(OpenApiError) as caught:
        await load(wrong)
    assert "GET /a: a parameter" in str(caught.value)
    assert "GET /b: a parameter" in str(caught.value)
    assert str(caught.value).endswith(
        "(1 other operations are right: leave these out by filter=, or by skip_broken=True)"
    )
    with caplog.at_level(logging.WARNING):
        assert await names_of(wrong, skip_broken=True) == ["listPets"]
    assert [record.getMessage()[:40] for record in caplog.records] == [
        "left out: the document: GET /a: a parame",
        "left out: the document: GET /b: a parame",
    ]
    assert await names_of(wrong, filter=Only(paths=["/pets"])) == ["listPets"]


async def test_a_path_that_no_request_can_carry_is_refused() -> None:
    with pytest.raises(OpenApiError, match=r"GET /a\?: its path has half of a surrogate pair"):
        await load(document({"/a\ud800": {"get": operation()}}))


async def test_what_uses_a_broken_schema_is_broken_each_time() -> None:
    schemas = {
        "Pet": {"properties": {"owner": {"$ref": "#/components/schemas/Owner"}}},
        "Owner": {"properties": {"pet": {"$ref": "#/components/schemas/Pet"}, "home": {"$ref": "#/nowhere"}}},
    }

    def taking(name: str) -> dict[str, Any]:
        schema = {"$ref": f"#/components/schemas/{name}"}
        return operation(operationId=name, requestBody={"content": {"application/json": {"schema": schema}}})

    paths = {"/a": {"post": taking("Pet")}, "/b": {"post": taking("Owner")}, "/c": {"get": operation()}}
    source = document(paths, components={"schemas": schemas})
    async with openapi_tools(source, skip_broken=True) as tools:
        assert [tool.definition.name for tool in tools] == ["get_c"]


async def test_servers_are_taken_from_the_operation_its_path_or_the_document() -> None:
    def server(url: str) -> dict[str, Any]:
        return {"servers": [{"url": url, "variables": {"region": {"default": "eu"}}}]}

    source = document(
        {
            "/own": {"get": operation(**server("https://own.test/")), **server("https://path.test")},
            "/path": {"get": operation(), **server("https://{region}.path.test")},
            "/document": {"get": operation()},
        }
    )
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["https://own.test", "https://eu.path.test", "https://pets.test/v1"]),
        ({"server_variables": {"region": "us"}}, ["https://own.test", "https://us.path.test", "https://pets.test/v1"]),
        ({"base_url": "https://all.test/"}, ["https://all.test"] * 3),
    ]
    for options, urls in cases:
        async with openapi_tools(source, **options, limits=ServerLimits(timeout=1), transport=Echo()) as tools:
            texts = [(await tool.ainvoke({})).text for tool in tools]
        assert [text.split()[1].rpartition("/")[0] for text in texts] == urls


class Echo(httpx2.AsyncBaseTransport):
    """Answers everything with nothing."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200)


async def test_names_are_made_where_there_are_none_or_they_do_not_do() -> None:
    source = document(
        {
            "/pets/{id}": {"get": operation(), "delete": operation(operationId="pets.delete!")},
            "/a": {"get": operation(operationId="same")},
            "/b": {"get": operation(operationId="same")},
            "/c": {"get": operation(operationId="x" * 70)},
        }
    )
    names = await names_of(source)
    assert names[:3] == ["get_pets_id", "pets_delete", "same"]
    assert names[3].startswith("same_")
    assert [len(name) for name in names[3:]] == [13, 64]
    assert await names_of(source, filter=Only(operations=["get_pets_id"])) == ["get_pets_id"]
    assert await names_of(PETS, prefix="petshop") == ["petshop__listPets"]


async def test_filters_choose_by_operation_tag_path_and_method() -> None:
    source = document(
        {
            "/pets": {"get": operation(operationId="listPets", tags=["pets"]), "post": operation(operationId="addPet")},
            "/pets/{id}": {"get": operation(operationId="getPet", tags=["pets", "one"])},
            "/petshops": {"get": operation(operationId="listShops", deprecated=True)},
        }
    )
    assert await names_of(source, filter=Only(operations=["getPet", "addPet"])) == ["addPet", "getPet"]
    assert await names_of(source, filter=Only(tags=["one"])) == ["getPet"]
    assert await names_of(source, filter=Only(paths=["/pets/"])) == ["listPets", "addPet", "getPet"]
    assert await names_of(source, filter=Only(methods=["post"])) == ["addPet"]
    assert await names_of(source, filter=Only(paths=["/pets"], methods=["GET"], tags=["one"])) == ["getPet"]

    def is_wanted(one: Operation) -> bool:
        return one.is_read and not one.is_deprecated

    assert await names_of(source, filter=is_wanted) == ["listPets", "getPet"]


async def test_a_document_with_more_operations_than_anybody_can_use_asks_for_a_filter() -> None:
    source = document({f"/pets/{number}": {"get": operation()} for number in range(10_001)})
    with pytest.raises(OpenApiError, match=r"it has 10,001 operations, and at most 10,000 .* choose with filter="):
        await load(source)
    assert await names_of(source, filter=Only(paths=["/pets/7"])) == ["get_pets_7"]


async def test_yaml_that_multiplies_without_end_is_refused(tmp_path: Path) -> None:
    levels = "\n".join(
        f"  l{number}: &l{number} {{properties: {{{', '.join(f'p{other}: *l{number - 1}' for other in range(9))}}}}}"
        for number in range(1, 12)
    )
    bomb = f"x-bomb:\n  l0: &l0 {{type: string}}\n{levels}\n" + dump_yaml(PETS)
    file = tmp_path / "bomb.yaml"
    file.write_text(bomb.replace("operationId: listPets", "requestBody: {content: {application/json: {schema: *l11}}}"))
    for source in (file, bomb):
        with pytest.raises(OpenApiError, match="its aliases stand for more than 20,000,000 values"):
            await load(source)


async def test_what_is_nested_without_end_is_refused() -> None:
    circle: dict[str, Any] = {**PETS}
    circle["x-circle"] = circle
    deep = '{"openapi": "3.1.0", "paths": ' + '{"a": ' * 100_000
    for source in (circle, deep):
        with pytest.raises(OpenApiError, match="it is nested too deeply"):
            await load(source)


@pytest.mark.parametrize("package", ["httpx2", "openapi_pydantic", "yaml"])
def test_a_package_that_is_missing_is_named_with_how_to_get_it(package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; import toolkit.sources.openapi"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert f"ModuleNotFoundError: {package}" in run.stderr
    assert run.stderr.endswith(" is not installed: `pip install 'toolkit-sdk[openapi]'`\n")


@pytest.mark.parametrize("reference", ["a" * 100_000, "#/" + "a/" * 50_000, "#/\ud800", "#/components/" + "9" * 5_000])
async def test_an_error_quotes_no_more_of_a_document_than_one_reads(reference: str) -> None:
    with pytest.raises(OpenApiError, match=r"^the document: GET /: the reference '.*' can't be followed: ") as caught:
        async with openapi_tools(document({"/": {"get": operation({"$ref": reference})}})):
            pass
    assert len(str(caught.value).encode()) < 5_000
