"""The limits of one server, the same for each kind of it: calls of a run, size, time, pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx2
import pytest

from tests.sources.mcp.memory_server import MemoryServer, listed, text
from toolkit import AssistantMessage, ConfigurationError, ToolCall, ToolRegistry, tool_loop
from toolkit.errors import McpError
from toolkit.sources import ServerLimits
from toolkit.sources.mcp import mcp_tools
from toolkit.sources.openapi import openapi_tools
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

Opening: TypeAlias = Callable[[ServerLimits, Path], AbstractAsyncContextManager[ToolRegistry[object]]]
LONG = "x" * 50


@asynccontextmanager
async def open_mcp(limits: ServerLimits, _: Path) -> AsyncGenerator[ToolRegistry[object]]:
    async def answer(context: Any, arguments: dict[str, Any]) -> Any:
        return text(LONG)

    server = MemoryServer([(listed("first"), answer), (listed("second"), answer)])
    async with mcp_tools(server, limits=limits) as tools:
        yield ToolRegistry(tools)


@asynccontextmanager
async def open_api(limits: ServerLimits, _: Path) -> AsyncGenerator[ToolRegistry[object]]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text=LONG)

    responses = {"200": {"description": "It."}}
    paths = {f"/{name}": {"get": {"operationId": name, "responses": responses}} for name in ("first", "second")}
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}
    network = httpx2.MockTransport(answer)
    async with openapi_tools(document, base_url="http://api.test", limits=limits, transport=network) as tools:
        yield ToolRegistry(tools)


@asynccontextmanager
async def open_plugin(limits: ServerLimits, folder: Path) -> AsyncGenerator[ToolRegistry[object]]:
    described = ",".join(f'{{"name":"{name}","parameters":{{"type":"object"}}}}' for name in ("first", "second"))
    (folder / "plugin.sh").write_text(
        f'while IFS= read -r line; do case "$line" in *describe*) echo \'{{"tools":[{described}]}}\' ;;\n'
        f'*) echo \'{{"content":[{{"type":"text","text":"{LONG}"}}],"error":false}}\' ;; esac; done\n'
    )
    async with plugin_tools("bash", ["plugin.sh"], cwd=folder, describe_timeout=60, limits=limits) as tools:
        yield ToolRegistry(tools)


OPENINGS: dict[str, Opening] = {"mcp": open_mcp, "openapi": open_api, "plugin": open_plugin}


@pytest.mark.parametrize("kind", OPENINGS)
async def test_all_tools_of_a_server_share_the_calls_of_a_run(kind: str, tmp_path: Path) -> None:
    calls = [ToolCall("1", "first", "{}"), ToolCall("2", "second", "{}"), ToolCall("3", "first", "{}")]
    with anyio.fail_after(240):
        async with OPENINGS[kind](ServerLimits(calls=2), tmp_path) as registry:
            for _ in range(2):
                result = await tool_loop(ScriptedProvider([AssistantMessage(calls), "Done."]), registry, "Call them.")
                ends = [message.is_error for message in result.messages if message.role == "tool"]
                assert sorted(ends) == [False, False, True]


@pytest.mark.parametrize("kind", OPENINGS)
@pytest.mark.parametrize(("size", "is_error"), [(49, True), (1_000, False)])
async def test_an_output_above_the_limit_is_an_error(kind: str, size: int, *, is_error: bool, tmp_path: Path) -> None:
    with anyio.fail_after(240):
        async with OPENINGS[kind](ServerLimits(output_size=size), tmp_path) as registry:
            result = await registry.execute(ToolCall("1", "first", "{}"))
    assert result.is_error is is_error
    assert (LONG in result.text) is not is_error
    assert ("at most 49 is taken" in result.text) is is_error


async def test_a_list_of_more_pages_than_the_limit_is_refused() -> None:
    async def answer(context: Any, arguments: dict[str, Any]) -> Any:
        return text("")

    server = MemoryServer([(listed(f"t{number}"), answer) for number in range(3)], page_size=1)
    with anyio.fail_after(240):
        with pytest.raises(McpError, match="more than 2 pages"):
            async with mcp_tools(server, limits=ServerLimits(pages=2)):
                raise AssertionError
        async with mcp_tools(server, limits=ServerLimits(pages=3)) as tools:
            assert len(tools) == 3


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"calls": 0}, {"pages": -1}, {"output_size": "1 MB"}], ids=str)
def test_a_limit_that_can_not_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ServerLimits(**wrong)
