"""Conversion from and to function tools of the OpenAI Agents SDK."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, cast, overload
from uuid import uuid4

from agents import FunctionTool as AgentsTool
from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext as AgentsContext
from pydantic import BaseModel

from toolkit.calls.context import ToolContext
from toolkit.calls.registration import Ctx
from toolkit.chat import ContentBlock, FileBlock, ImageBlock, TextBlock, ToolCall, ToolDefinition, ToolResult
from toolkit.chat.output import ToolOutput, to_output
from toolkit.errors import ConfigurationError
from toolkit.interop import OneOrMore, output_from_parts, read_registry, read_tools
from toolkit.tool_names import legal_names
from toolkit.tools.decorators import tool_from_schema_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import ToolRegistry


def from_openai_agents(tools: AgentsTool | Iterable[AgentsTool]) -> list[FunctionTool[Any, ..., Any]]:
    """Convert the SDK's function tools.

    ::

        registry = ToolRegistry(from_openai_agents([multiply, search]))

    The SDK converts errors of its functions to text, which becomes an ordinary result; an error that it raises becomes
    an error result. Approval and the time limit of a tool apply here, too, and a disabled tool is left out. The
    functions receive the tool context as theirs, and need asyncio.

    Raises:
        ConfigurationError: A tool is not a function tool, or has guardrails, which only the SDK's runner executes.
    """
    found: list[AgentsTool] = []
    for tool in read_tools(tools, AgentsTool, "a tool of the SDK"):
        if tool.tool_input_guardrails or tool.tool_output_guardrails:
            raise ConfigurationError(
                f"the tool '{tool.name}' has guardrails, which would not run here: take them off, and use permissions"
            )
        if tool.is_enabled is not False:
            found.append(tool)
    names = legal_names([tool.name for tool in found])
    return [_import_agents_tool(tool, name) for tool, name in zip(found, names, strict=True)]


@overload
def to_openai_agents(tools: OneOrMore[object], ctx: object = None) -> list[AgentsTool]: ...
@overload
def to_openai_agents(tools: OneOrMore[Ctx], ctx: Ctx) -> list[AgentsTool]: ...
def to_openai_agents(tools: OneOrMore[Any], ctx: Any = None) -> list[AgentsTool]:
    """Convert tools to the SDK's; the registry's rules apply to each call, including permissions.

    ::

        agent = Agent(name="clerk", tools=to_openai_agents(registry))

    The SDK has no field for a failed call: the text of an error result states it.

    Args:
        tools: A registry, or one or several tools, with their current definitions.
        ctx: The context of the tools.
    """
    registry = read_registry(tools)
    return [_export_agents_tool(definition, registry, ctx) for definition in registry.definitions()]


def _import_agents_tool(tool: AgentsTool, name: str) -> FunctionTool[Any, ..., Any]:
    async def run(context: ToolContext[Any], arguments: dict[str, Any]) -> ToolOutput:
        text = to_output(arguments).text
        call_id = context.call_id or uuid4().hex
        theirs: AgentsContext[Any] = AgentsContext(
            context.state, tool_name=tool.name, tool_call_id=call_id, tool_arguments=text
        )
        return output_from_parts(await tool.on_invoke_tool(theirs, text), _read_agents_block)

    return tool_from_schema_with_ctx(
        name,
        tool.description,
        tool.params_json_schema,
        run,
        fills_defaults=False,
        requires_approval=tool.needs_approval is not False,
        timeout=tool.timeout_seconds,
    )


_AGENTS_KINDS: dict[str, type[BaseModel]] = {
    "text": ToolOutputText,
    "image": ToolOutputImage,
    "file": ToolOutputFileContent,
}


def _read_agents_block(item: Any) -> ContentBlock | None:
    """Convert an output of the SDK to a block; None for any other value."""
    if isinstance(item, dict):
        fields = cast("dict[str, Any]", item)
        kind = _AGENTS_KINDS.get(str(fields.get("type")))
        item = fields if kind is None else kind.model_validate(fields)
    if isinstance(item, ToolOutputText):
        return TextBlock(item.text)
    if isinstance(item, ToolOutputImage):
        return TextBlock(f"[image {item.file_id}]") if item.image_url is None else ImageBlock(url=item.image_url)
    if isinstance(item, ToolOutputFileContent):
        name = item.filename or "file"
        if item.file_data is not None:
            return FileBlock(base64.b64decode(item.file_data.rpartition(",")[2]), name=name)
        return TextBlock(f"[file {item.file_id}]") if item.file_url is None else FileBlock(url=item.file_url, name=name)
    return None


def _export_agents_tool(definition: ToolDefinition, registry: ToolRegistry[Ctx], ctx: Ctx) -> AgentsTool:
    async def run(theirs: AgentsContext[Any], arguments: str) -> Any:
        return _write_agents_content(
            await registry.execute(ToolCall(theirs.tool_call_id, definition.name, arguments), ctx)
        )

    return AgentsTool(
        name=definition.name,
        description=definition.description,
        params_json_schema=dict(definition.parameters),
        on_invoke_tool=run,
        strict_json_schema=False,
    )


def _write_agents_content(result: ToolResult) -> Any:
    if result.is_error:
        return result.text if result.text.lower().startswith("error") else f"Error: {result.text}"
    return (
        result.content if isinstance(result.content, str) else [_write_agents_part(block) for block in result.content]
    )


def _write_agents_part(block: ContentBlock) -> ToolOutputText | ToolOutputImage | ToolOutputFileContent:
    if isinstance(block, TextBlock):
        return ToolOutputText(text=block.text)
    url = getattr(block, "url", None)
    data = None if block.data is None else base64.b64encode(block.data).decode()
    if isinstance(block, ImageBlock):
        return ToolOutputImage(image_url=url if data is None else f"data:{block.media_type};base64,{data}")
    name = block.name if isinstance(block, FileBlock) else f"sound.{block.media_type.rpartition('/')[2]}"
    file_data = None if data is None else f"data:{block.media_type};base64,{data}"
    return ToolOutputFileContent(file_data=file_data, file_url=url, filename=name)
