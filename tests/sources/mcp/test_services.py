"""Clients that are not ours, in a registry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from toolkit import ToolCall, ToolError, ToolRegistry, tool
from toolkit.chat import ToolDefinition
from toolkit.errors import McpError, UnknownToolNameError
from toolkit.sources.mcp import register_mcp_service, register_mcp_tools_by_name

pytestmark = pytest.mark.anyio

CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@dataclass
class Service:
    names: list[str] = field(default_factory=lambda: ["weather", "time"])
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[tuple[str, Mapping[str, Any]]])

    async def list_tools(self) -> list[ToolDefinition]:
        return [ToolDefinition(name=name, description="", parameters=CITY) for name in self.names]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.calls.append((name, arguments))
        if arguments["city"] == "Nowhere":
            raise ToolError("there is no such city")
        return f"{name} of {arguments['city']}"


async def test_all_tools_of_a_service_are_registered_and_called() -> None:
    service = Service()
    registry: ToolRegistry[object] = ToolRegistry()
    with anyio.fail_after(240):
        assert await register_mcp_service(registry, service, prefix="s") == 2
        right = await registry.execute(ToolCall("1", "s__weather", '{"city": "Rome"}'))
        wrong = await registry.execute(ToolCall("2", "s__weather", '{"city": "Nowhere"}'))
        refused = await registry.execute(ToolCall("3", "s__weather", "{}"))
    assert registry.names == ("s__weather", "s__time")
    assert registry.definitions()[0].description == "MCP tool (no description)"
    assert (right.text, right.is_error) == ("weather of Rome", False)
    assert (wrong.text, wrong.is_error) == ("there is no such city", True)
    assert refused.is_error
    assert service.calls == [("weather", {"city": "Rome"}), ("weather", {"city": "Nowhere"})]


async def test_a_default_of_a_service_is_never_sent_for_it() -> None:
    @dataclass
    class Defaulted(Service):
        async def list_tools(self) -> list[ToolDefinition]:
            properties = {**CITY["properties"], "unit": {"type": "string", "default": "metric"}}
            return [ToolDefinition(name="weather", description="", parameters={**CITY, "properties": properties})]

    service, registry = Defaulted(), ToolRegistry[object]()
    await register_mcp_service(registry, service)
    await registry.execute(ToolCall("1", "weather", '{"city": "Rome"}'))
    assert service.calls == [("weather", {"city": "Rome"})]


async def test_tools_are_registered_by_name() -> None:
    registry: ToolRegistry[object] = ToolRegistry()
    assert await register_mcp_tools_by_name(registry, Service(), ["time"]) == 1
    assert await register_mcp_tools_by_name(registry, Service(), ["nothing"], missing_ok=True) == 0
    assert registry.names == ("time",)
    with pytest.raises(UnknownToolNameError, match="did you mean 'weather'"):
        await register_mcp_tools_by_name(registry, Service(), ["wether"])


async def test_a_name_that_is_taken_registers_nothing() -> None:
    @tool
    def time() -> str:
        """Tell the time."""
        return "noon"

    registry = ToolRegistry([time])
    with pytest.raises(McpError, match="'time' is there already: give prefix="):
        await register_mcp_service(registry, Service())
    assert registry.names == ("time",)
    assert await register_mcp_service(registry, Service(), replace=True) == 2
    assert (await registry.execute(ToolCall("1", "time", '{"city": "Rome"}'))).text == "time of Rome"


async def test_a_service_that_lists_a_name_twice_is_refused() -> None:
    with pytest.raises(McpError, match="'same'"):
        await register_mcp_service(ToolRegistry(), Service(["same", "same"]))


WITHOUT_SDK = """
import sys
for name in ("mcp", "httpx2"):
    sys.modules[name] = None
import anyio
from toolkit import ToolCall, ToolRegistry
from toolkit.chat import ToolDefinition
from toolkit.sources.mcp import McpService, register_mcp_service

class Service:
    async def list_tools(self):
        return [ToolDefinition(name="add", description="Add.", parameters={"type": "object"})]

    async def call_tool(self, name, arguments):
        return f"{name} {arguments}"

registry = ToolRegistry([])
anyio.run(register_mcp_service, registry, Service())
print(anyio.run(registry.execute, ToolCall("1", "add", "{}")).text)
try:
    from toolkit.sources.mcp import mcp_tools
except ModuleNotFoundError as error:
    print(error)
"""


def test_a_service_needs_nothing_of_the_sdk() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_SDK], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("add {}\nmcp")
    assert run.stdout.endswith(" is not installed: `pip install 'toolkit-sdk[mcp]'`\n")
