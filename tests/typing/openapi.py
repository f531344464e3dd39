"""Tools of an OpenAPI document fit every registry; checked, never run."""

from dataclasses import dataclass
from typing import assert_type

import httpx2

from toolkit import ToolRegistry
from toolkit.sources.openapi import Basic, Only, OpenApiTool, Operation, openapi_tools


@dataclass
class App:
    user: str


async def use() -> None:
    async with openapi_tools(
        {}, filter=Only(tags=["pets"]), auth={"key": "secret", "login": Basic("ada", "pw")}
    ) as tools:
        assert_type(tools, list[OpenApiTool])
        assert_type(ToolRegistry[App](tools).tagged("read"), ToolRegistry[App])

    def is_wanted(operation: Operation) -> bool:
        return operation.is_read

    async def sign(request: httpx2.Request) -> dict[str, str]:
        return {"x-signed": request.method}

    openapi_tools("pets.yaml", filter=is_wanted, auth=sign)
    openapi_tools("pets.yaml", filter=Only(tags=["pets"]))
    openapi_tools("pets.yaml", auth=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    openapi_tools("pets.yaml", filter="pets")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
