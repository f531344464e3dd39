"""Conversion from and to Pydantic AI's tools."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, cast, overload
from uuid import uuid4

from pydantic import ValidationError
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, FileUrl, ImageUrl, ToolReturn
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from toolkit.calls.context import ToolContext
from toolkit.calls.registration import Ctx
from toolkit.chat import (
    AudioBlock,
    ContentBlock,
    FileBlock,
    ImageBlock,
    TextBlock,
    ToolCall,
    ToolDefinition,
    ToolResult,
)
from toolkit.chat.output import ToolOutput
from toolkit.errors import InvalidArgumentsError, ToolFailedError
from toolkit.interop import OneOrMore, output_from_parts, read_registry, read_tools
from toolkit.tool_names import legal_names
from toolkit.tools.decorators import tool_from_schema_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import ToolRegistry


def from_pydantic_ai(
    tools: Tool[Any] | FunctionToolset[Any] | Iterable[Tool[Any] | FunctionToolset[Any]],
) -> list[FunctionTool[Any, ..., Any]]:
    """Convert Pydantic AI's tools and toolsets; tools that need approval there need it here.

    ::

        registry = ToolRegistry(from_pydantic_ai([multiply, search]))

    A tool that takes a ``RunContext`` receives one with the tool context as its ``deps``, the call's id and name, no
    history and a model that never answers. `ModelRetry` and `ToolFailed` become error results. A tool's ``prepare`` is
    not called: the registry's scope decides which tools are offered.
    """
    given: Any = [tools] if isinstance(tools, (Tool, FunctionToolset)) else tools
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, ToolRegistry)):
        given = [each for one in cast("Any", given) for each in _list_tools(one)]
    found = read_tools(given, Tool, "a tool of Pydantic AI")
    names = legal_names([tool.name for tool in found])
    return [_import_pydantic_tool(tool, name) for tool, name in zip(found, names, strict=True)]


@overload
def to_pydantic_ai(tools: OneOrMore[object], ctx: object = None) -> list[Tool[Any]]: ...
@overload
def to_pydantic_ai(tools: OneOrMore[Ctx], ctx: Ctx) -> list[Tool[Any]]: ...
def to_pydantic_ai(tools: OneOrMore[Any], ctx: Any = None) -> list[Tool[Any]]:
    """Convert tools to Pydantic AI's; the registry's rules apply to each call, including permissions.

    ::

        agent = Agent(model, tools=to_pydantic_ai(registry))

    An error result becomes `ToolFailed`: the model reads it and continues.

    Args:
        tools: A registry, or one or several tools, with their current definitions.
        ctx: The context of the tools.
    """
    registry = read_registry(tools)
    return [_export_pydantic_tool(definition, registry, ctx) for definition in registry.definitions()]


def _list_tools(given: Any) -> list[Any]:
    """Return the tools of a toolset, with its timeout as their default; return anything else in a list."""
    if not isinstance(given, FunctionToolset):
        return [given]
    toolset = cast("FunctionToolset[Any]", cast("object", given))
    tools = [copy(tool) for tool in toolset.tools.values()]
    for tool in tools:
        tool.timeout = toolset.timeout if tool.timeout is None else tool.timeout
    return tools


def _import_pydantic_tool(tool: Tool[Any], name: str) -> FunctionTool[Any, ..., Any]:
    async def run(context: ToolContext[Any], arguments: dict[str, Any]) -> ToolOutput:
        theirs = RunContext[Any](
            deps=context.state,
            model=TestModel(),
            usage=RunUsage(),
            tool_call_id=context.call_id or uuid4().hex,
            tool_name=tool.name,
            retry=context.attempt - 1,
        )
        schema = tool.function_schema
        try:
            valid = schema.validator.validate_python(arguments)
            if tool.args_validator is not None:
                judged = tool.args_validator(theirs, **valid)
                if inspect.isawaitable(judged):
                    await judged
            return _read_pydantic_output(await schema.call(valid, theirs))
        except ValidationError as error:
            raise InvalidArgumentsError(str(error)) from error
        except (ModelRetry, ToolFailed) as error:
            raise ToolFailedError(error.message) from error

    return tool_from_schema_with_ctx(
        name,
        tool.description or "",
        tool.function_schema.json_schema,
        run,
        fills_defaults=False,
        requires_approval=tool.requires_approval,
        sequential=tool.sequential,
        timeout=tool.timeout,
        metadata=tool.metadata or {},
    )


def _read_pydantic_output(value: Any) -> ToolOutput:
    details: Any = None
    if isinstance(value, ToolReturn):
        details = value.metadata
        more: Any = value.content
        extra: list[Any] = [] if more is None else [more] if isinstance(more, str) else list(more)
        value = [value.return_value, *extra] if extra else value.return_value
    output = output_from_parts(value, _read_pydantic_block)
    output.details = details
    return output


def _read_pydantic_block(item: object) -> ContentBlock | None:
    """Convert a piece of content to a block; None for any other value."""
    if isinstance(item, BinaryContent):
        kind = item.media_type.partition("/")[0]
        if kind == "image":
            return ImageBlock(item.data, media_type=item.media_type)
        if kind == "audio":
            return AudioBlock(item.data, media_type=item.media_type)
        return FileBlock(item.data, media_type=item.media_type)
    if isinstance(item, ImageUrl):
        return ImageBlock(url=item.url)
    if isinstance(item, FileUrl):
        return FileBlock(url=item.url, media_type=item.media_type)
    return None


def _export_pydantic_tool(definition: ToolDefinition, registry: ToolRegistry[Ctx], ctx: Ctx) -> Tool[Any]:
    async def run(theirs: RunContext[Any], /, **arguments: Any) -> Any:
        call = ToolCall(theirs.tool_call_id or uuid4().hex, definition.name, json.dumps(arguments, default=str))
        return _write_pydantic_content(await registry.execute(call, ctx))

    return Tool[Any].from_schema(
        run,
        name=definition.name,
        description=definition.description,
        json_schema=dict(definition.parameters),
        takes_ctx=True,
    )


def _write_pydantic_content(result: ToolResult) -> Any:
    if result.is_error:
        raise ToolFailed(result.text)
    if isinstance(result.content, str):
        return ToolReturn(return_value=result.content, metadata=result.details)
    return ToolReturn(return_value=[_write_pydantic_part(block) for block in result.content], metadata=result.details)


def _write_pydantic_part(block: ContentBlock) -> Any:
    if isinstance(block, TextBlock):
        return block.text
    if block.data is not None:
        return BinaryContent(data=block.data, media_type=block.media_type)
    url = block.url or ""
    if isinstance(block, ImageBlock):
        return ImageUrl(url=url)
    return AudioUrl(url=url) if block.media_type.startswith("audio/") else DocumentUrl(url=url)
