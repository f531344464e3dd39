"""Conversion from and to LangChain's tools."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast, get_type_hints, overload
from uuid import uuid4

from anyio.from_thread import start_blocking_portal
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, Tool, ToolException

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
from toolkit.chat.output import ToolOutput, to_output
from toolkit.errors import ConfigurationError
from toolkit.interop import OneOrMore, read_registry, read_tools
from toolkit.tool_names import legal_names
from toolkit.tools.decorators import tool_from_schema_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import ToolRegistry

_GIVEN_BY_LANGCHAIN = ("run_manager", "callbacks")


def from_langchain(tools: BaseTool | Iterable[BaseTool]) -> list[FunctionTool[object, ..., Any]]:
    """Convert LangChain's tools; their calls are validated, limited, approved and retried like any others.

    ::

        registry = ToolRegistry(from_langchain([multiply, search]))

    A reported error becomes an error result; the artifact is in the `details`. Sync tools run in a worker thread;
    LangChain's async code needs asyncio.

    Raises:
        ConfigurationError: A tool needs an argument that only LangChain's agents inject, such as their state.
    """
    found = read_tools(tools, BaseTool, "a tool of LangChain")  # type: ignore[type-abstract]  # only looked at
    names = legal_names([tool.name for tool in found])
    return [_import_langchain_tool(tool, name) for tool, name in zip(found, names, strict=True)]


@overload
def to_langchain(tools: OneOrMore[object], ctx: object = None) -> list[BaseTool]: ...
@overload
def to_langchain(tools: OneOrMore[Ctx], ctx: Ctx) -> list[BaseTool]: ...
def to_langchain(tools: OneOrMore[Any], ctx: Any = None) -> list[BaseTool]:
    """Convert tools to LangChain's; the registry's rules apply to each call, including permissions.

    ::

        agent = create_agent(model, tools=to_langchain(registry))

    An error result becomes a message with the status ``error``; `details` become the artifact.

    Args:
        tools: A registry, or one or several tools, with their current definitions.
        ctx: The context of the tools.
    """
    registry = read_registry(tools)
    return [_export_langchain_tool(definition, registry, ctx) for definition in registry.definitions()]


def _import_langchain_tool(tool: BaseTool, name: str) -> FunctionTool[object, ..., Any]:
    schema: Any = tool.tool_call_schema
    if isinstance(tool, Tool) and tool.args_schema is None:  # takes a single text, without a schema
        schema = {"type": "object", "properties": tool.args, "required": [*tool.args], "additionalProperties": False}
    if isinstance(schema, dict):
        parameters = {**cast("dict[str, Any]", schema)}
    else:
        # Injected arguments are not part of the schema, and a model may not supply them.
        parameters = {"additionalProperties": False, **schema.model_json_schema()}
    parameters.pop("description", None)  # a copy of the tool's description
    offered: Any = parameters.get("properties", {})
    _refuse_injected(tool, offered)

    def call_of(context: ToolContext[object], arguments: dict[str, Any]) -> Any:
        return {"type": "tool_call", "id": context.call_id or uuid4().hex, "name": tool.name, "args": arguments}

    def run(context: ToolContext[object], arguments: dict[str, Any]) -> ToolOutput:
        return _read_langchain_output(tool.invoke(call_of(context, arguments)))

    async def arun(context: ToolContext[object], arguments: dict[str, Any]) -> ToolOutput:
        return _read_langchain_output(await tool.ainvoke(call_of(context, arguments)))

    handler = arun if _is_async(tool) else run
    return tool_from_schema_with_ctx(
        name, tool.description, parameters, handler, fills_defaults=False, result_as_answer=tool.return_direct
    )


def _refuse_injected(tool: BaseTool, offered: Mapping[str, Any]) -> None:
    """Refuse a tool whose function needs an injected argument that this adapter can't supply."""
    if isinstance(tool, Tool):
        return
    own = tool.func or tool.coroutine if isinstance(tool, StructuredTool) else getattr(tool, "_run", None)
    if own is None:
        return
    hints = get_type_hints(own, include_extras=True)
    missing = [
        name
        for name, parameter in inspect.signature(own).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and not (name in offered or name in _GIVEN_BY_LANGCHAIN or _is_given(hints.get(name)))
    ]
    if missing:
        raise ConfigurationError(
            f"the tool {tool.name} of LangChain needs {', '.join(missing)}, which only its own agents inject: give "
            "defaults to the function, or wrap it in one that knows these values"
        )


def _is_given(hint: Any) -> bool:
    kinds = [mark if isinstance(mark, type) else type(mark) for mark in getattr(hint, "__metadata__", ())]
    return hint is RunnableConfig or any(issubclass(kind, InjectedToolCallId) for kind in kinds)


def _is_async(tool: BaseTool) -> bool:
    if isinstance(tool, (StructuredTool, Tool)):
        return tool.coroutine is not None
    return getattr(type(tool), "_arun", None) is not getattr(BaseTool, "_arun", None)  # subclasses override it


def _read_langchain_output(answer: object) -> ToolOutput:
    if not isinstance(answer, ToolMessage):
        return to_output(answer)
    content: Any = answer.content
    blocks = content if isinstance(content, str) else [_read_langchain_block(part) for part in content]
    output = to_output(blocks)
    output.details = answer.artifact
    output.is_error = answer.status == "error"
    return output


def _read_langchain_block(part: Any) -> ContentBlock:
    if isinstance(part, str):
        return TextBlock(part)
    match part:
        case {"type": "text", "text": str(text)}:
            return TextBlock(text)
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return ImageBlock(url=url)
        case {"type": "image" | "audio" | "file" as kind, "base64": str(data)}:
            return _read_media(kind, base64.b64decode(data), part.get("mime_type"))
        case {"type": "image", "url": str(url)}:
            return ImageBlock(url=url)
        case _:
            return TextBlock(json.dumps(part, ensure_ascii=False, default=str))


def _read_media(kind: str, data: bytes, media_type: str | None) -> ContentBlock:
    if kind == "image":
        return ImageBlock(data, media_type=media_type or "image/png")
    if kind == "audio":
        return AudioBlock(data, media_type=media_type or "audio/wav")
    return FileBlock(data, media_type=media_type or "application/octet-stream")


class _Exported(BaseTool):
    """A converted tool, whose parameters may have names that LangChain treats specially in functions."""

    execute: Callable[[dict[str, Any]], Awaitable[tuple[Any, Any]]]

    async def _arun(self, /, **arguments: Any) -> tuple[Any, Any]:
        return await self.execute(arguments)

    def _run(self, /, **arguments: Any) -> tuple[Any, Any]:
        with start_blocking_portal() as portal:  # in a new thread: an event loop may be running in this one
            return portal.call(self.execute, arguments)


def _export_langchain_tool(definition: ToolDefinition, registry: ToolRegistry[Ctx], ctx: Ctx) -> BaseTool:
    async def execute(arguments: dict[str, Any]) -> tuple[Any, Any]:
        call = ToolCall(uuid4().hex, definition.name, json.dumps(arguments, default=str))
        result = await registry.execute(call, ctx)
        if result.is_error:
            raise ToolException(result.text)
        return _write_langchain_content(result), result.details

    return _Exported(
        name=definition.name,
        description=definition.description,
        args_schema=dict(definition.parameters),
        return_direct=registry.registrations[definition.name].options.result_as_answer,
        response_format="content_and_artifact",
        handle_tool_error=True,
        execute=execute,
    )


def _write_langchain_content(result: ToolResult) -> str | Sequence[dict[str, Any]]:
    return (
        result.content
        if isinstance(result.content, str)
        else [_write_langchain_part(block) for block in result.content]
    )


def _write_langchain_part(block: ContentBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if block.data is None:
        return {"type": block.type, "url": block.url}
    return {"type": block.type, "base64": base64.b64encode(block.data).decode(), "mime_type": block.media_type}
