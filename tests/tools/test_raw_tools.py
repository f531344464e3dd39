"""Tools for a JSON Schema that is there already, and tools written by hand."""

from typing import Any

import pytest

from toolkit import ToolCall, ToolContext, ToolOutput, ToolRegistry, tool_from_schema, tool_from_schema_with_ctx
from toolkit.chat import ToolDefinition
from toolkit.errors import SchemaError

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


def weather(arguments: dict[str, Any]) -> str:
    return f"sunny in {arguments['city']}"


async def weather_later(context: ToolContext[str], arguments: dict[str, Any]) -> str:
    return f"sunny in {arguments['city']} for {context.state}"


async def test_a_handler_gets_the_arguments_as_a_dict() -> None:
    tool = tool_from_schema("weather", "Get the weather.", SCHEMA, weather, tags={"read"})
    assert tool.definition == ToolDefinition(name="weather", description="Get the weather.", parameters=SCHEMA)
    assert tool({"city": "Oslo"}) == "sunny in Oslo"
    assert tool.invoke('{"city": "Oslo"}') == "sunny in Oslo"
    registry = ToolRegistry([tool])
    assert (await registry.execute(ToolCall("1", "weather", '{"city": "Oslo"}'))).text == "sunny in Oslo"
    wrong = await registry.execute(ToolCall("1", "weather", '{"city": "Oslo", "days": 0, "x": 1}'))
    assert wrong.is_error
    assert "days" in wrong.text
    assert "x" in wrong.text


async def test_a_handler_may_take_the_context_first() -> None:
    tool = tool_from_schema_with_ctx("weather", "Get the weather.", SCHEMA, weather_later)
    result = await ToolRegistry[str]([tool]).execute(ToolCall("1", "weather", '{"city": "Oslo"}'), "ada")
    assert result.text == "sunny in Oslo for ada"


async def test_a_broken_schema_is_refused_at_once() -> None:
    with pytest.raises(SchemaError, match="weather"):
        tool_from_schema(
            "weather", "Get the weather.", {"type": "object", "properties": {"x": {"type": "text"}}}, weather
        )
    no_schema: Any = "a schema"
    with pytest.raises(SchemaError, match="tool 'weather': its parameters must be a JSON Schema, not str"):
        tool_from_schema("weather", "Get the weather.", no_schema, weather)


class Dice:
    """A tool written by hand."""

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(name="dice", description="Roll.", parameters={"type": "object", "properties": {}})

    async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        return ToolOutput("4", details={"fair": True})


async def test_a_tool_may_be_written_by_hand() -> None:
    result = await ToolRegistry([Dice()]).execute(ToolCall("1", "dice", ""))
    assert (result.text, result.details) == ("4", {"fair": True})
