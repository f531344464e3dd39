"""Tools from an OpenAPI document: each operation is one, and those that only read can be handed out alone.

Prints:

    ['listPets', 'addPet']
    ['listPets']
    GET https://pets.example.com/v1/pets?limit=2 -> 200 OK

    [{"name":"Rex"},{"name":"Tom"}]
    Rex and Tom are here.
"""

import anyio
import httpx2

from toolkit import ToolCall, ToolRegistry, ToolResult, tool_loop
from toolkit.sources.openapi import Bearer, openapi_tools
from toolkit.testing import ScriptedProvider

# As text, a mapping, a path or a URL.
PETS = """
openapi: 3.1.0
info: {title: Pets, version: "1"}
servers: [{url: "https://pets.example.com/v1"}]
paths:
  /pets:
    get:
      operationId: listPets
      summary: List the pets that are here.
      parameters:
        - {name: limit, in: query, schema: {type: integer, maximum: 100}}
      responses: {"200": {description: The pets.}}
    post:
      operationId: addPet
      summary: Add a pet.
      requestBody:
        required: true
        content:
          application/json:
            schema: {type: object, properties: {name: {type: string}}, required: [name]}
      responses: {"201": {description: Added.}}
"""


def answer(request: httpx2.Request) -> httpx2.Response:
    """Play the server, so that this runs anywhere; without ``transport=`` the real one is asked."""
    assert request.headers["authorization"] == "Bearer the-token"
    return httpx2.Response(200, json=[{"name": "Rex"}, {"name": "Tom"}])


async def main() -> None:
    """Let a model list the pets."""
    # The token goes to hosts that are named here, and not to any that the document may name.
    async with openapi_tools(
        PETS,
        auth=Bearer("the-token"),
        allow_hosts=["pets.example.com"],
        transport=httpx2.MockTransport(answer),
    ) as tools:
        registry = ToolRegistry(tools)
        print(list(registry.names))
        reads = registry.tagged("read")
        print(list(reads.names))
        provider = ScriptedProvider([ToolCall("1", "listPets", '{"limit": 2}'), "Rex and Tom are here."])
        result = await tool_loop(provider, reads, "Who is here?")
    for message in result.messages:
        if isinstance(message, ToolResult):
            print(message.text)
    print(result.text)


anyio.run(main)
