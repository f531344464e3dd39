"""One tool of a server whose session is open: its definition, its options, its calls, and MCP's contents as blocks."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from typing import Any, assert_never

import mcp.types as wire
from anyio import to_thread
from mcp import Client

from toolkit.calls.context import ToolContext
from toolkit.calls.output import redact_output
from toolkit.calls.registration import Effect, ToolOptions, UsageCounter
from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    TextBlock,
    ToolDefinition,
    Trust,
    UserMessage,
)
from toolkit.chat.output import ToolOutput
from toolkit.errors import McpError, SchemaError, ToolFailedError
from toolkit.logs import get_logger
from toolkit.schema import ArgumentsParser, raw_arguments
from toolkit.schema.arguments import TooMuchWorkError
from toolkit.schema.raw import find_problems
from toolkit.schema.raw_schema import RawSchema
from toolkit.sources import ServerLimits
from toolkit.sources.mcp.messages import MOST_BLOCKS, restore_result
from toolkit.sources.mcp.servers import McpServer
from toolkit.sources.mcp.session import McpSession
from toolkit.sources.mcp.tasks import Task, TaskFollower, call_as_task, find_task, takes_tasks

_logger = get_logger("toolkit.sources.mcp")
_LONGEST_REPORT = 2_000
_LONGEST_READ = 10_000


def read_result(result: wire.CallToolResult) -> ToolOutput:
    """Return the result of a call: its content; structured content goes to `details`, and replaces missing content.

    A server should also send structured content as text; if it does not, the model reads the JSON.

    Raises:
        ToolFailedError: It has too many blocks.
    """
    if len(result.content) > MOST_BLOCKS:
        raise ToolFailedError(f"The server answered with more than {MOST_BLOCKS:,} blocks.")
    blocks = [block for item in result.content for block in read_block(item)]
    structured: object = result.structured_content
    if structured is not None and not any(isinstance(block, TextBlock) for block in blocks):
        blocks.append(TextBlock(json.dumps(structured, ensure_ascii=False)))
    content: str | tuple[ContentBlock, ...] = tuple(blocks)
    if all(isinstance(block, TextBlock) for block in blocks):
        content = "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
    if result.is_error:
        return ToolOutput(content or "The server reports that the tool failed, without a reason.", is_error=True)
    return ToolOutput(content or "(no output)", details=structured)


def read_block(item: wire.ContentBlock) -> list[ContentBlock]:
    """Return one block of MCP's as blocks."""
    match item:
        case wire.TextContent():
            return [TextBlock(item.text)]
        case wire.ImageContent():
            data = _decode_base64(item.data)
            if data is None:
                return [TextBlock("(An image that is no base64.)")]
            return [ImageBlock(data, media_type=item.mime_type)]
        case wire.AudioContent():
            data = _decode_base64(item.data)
            if data is None:
                return [TextBlock("(A sound that is no base64.)")]
            return [AudioBlock(data, media_type=item.mime_type)]
        case wire.ResourceLink():
            about = f": {item.description}" if item.description else ""
            kind = f", {item.mime_type}" if item.mime_type else ""
            return [TextBlock(f"[{item.title or item.name}]({item.uri}{kind}){about}")]
        case wire.EmbeddedResource():
            return [read_resource_contents(item.resource)]
        case _ as never:
            assert_never(never)


def read_resource_contents(resource: wire.TextResourceContents | wire.BlobResourceContents) -> ContentBlock:
    """Return the content of a resource: text as text, else an image, a sound or a file."""
    if isinstance(resource, wire.TextResourceContents):
        return TextBlock(resource.text)
    data = _decode_base64(resource.blob)
    if data is None:
        return TextBlock(f"({resource.uri} is no base64.)")
    kind = resource.mime_type or "application/octet-stream"
    if kind.startswith("image/"):
        return ImageBlock(data, media_type=kind)
    if kind.startswith("audio/"):
        return AudioBlock(data, media_type=kind)
    return FileBlock(data, name=str(resource.uri).rstrip("/").rpartition("/")[2] or "file", media_type=kind)


def read_prompt(result: wire.GetPromptResult) -> list[Message]:
    """Return the messages of a prompt."""
    messages: list[Message] = []
    for message in result.messages:
        content = tuple(read_block(message.content))
        is_user = message.role == "user"
        messages.append(UserMessage(content, trust="untrusted") if is_user else AssistantMessage(content))
    return messages


def _decode_base64(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


class MCPNativeTool:
    """A tool of a server whose session is open; any number of its calls may run at once.

    Attributes:
        definition: The definition that a model sees.
        options: The options of its runs; tags and idempotence come from the server.
        arguments: Checks the arguments before anything is sent.
        counter: Counts the calls of all tools of the server; None where they are not counted.
        is_described_outside: True where the description is not trusted.
        original_name: Its name on the server.
        listed: The server's entry for it.
    """

    def __init__(
        self,
        session: McpSession,
        tool: wire.Tool,
        *,
        name: str,
        limits: ServerLimits,
        trust: Trust = "untrusted",
        hints: Trust = "untrusted",
    ) -> None:
        self.definition: ToolDefinition = ToolDefinition(
            name=name,
            description=tool.description or find_title(tool) or "MCP tool (no description)",
            parameters=tool.input_schema,
            output_schema=tool.output_schema,
        )
        options = read_options(tool, session.server, limits.timeout, trust=trust, hints=hints)
        self.options: ToolOptions = replace(options, max_usage_count=limits.calls)
        self.is_described_outside: bool = hints == "untrusted"
        self.arguments: ArgumentsParser = raw_arguments(tool.input_schema, subject=f"tool '{tool.name}'")
        self.counter: UsageCounter | None = None
        self.original_name: str = tool.name
        self.listed = tool
        self._session = session
        self._limits = limits
        self._is_task = tool.execution is not None and tool.execution.task_support == "required"
        self._schema: RawSchema | None = None
        if tool.output_schema is not None:
            try:
                self._schema = RawSchema(tool.output_schema, subject=f"tool '{tool.name}'")
            except SchemaError as error:
                text = "MCP server '%s': the output schema of '%s' is ignored, as for a schema of arguments: %s"
                _logger.warning(text, session.server.name, tool.name, error.reason)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} of {self._session.server.name}>"

    async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        """Call it on the server; its progress is reported here, and a cancellation is sent."""
        return await self.call_in(self._session, arguments, context)

    async def call_in(self, session: McpSession, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        """Call it in an open session.

        Structured content is checked with the bounds of the checks of arguments; an output schema that can't be checked
        within them is ignored, with a warning in the log.

        Raises:
            ToolFailedError: The server can't be reached or refused the call; the message says whether it may have
                taken effect.
        """
        try:
            async with session.serving(context.state) as callers_session:
                server = callers_session.server
                result = await self._request_result(callers_session, arguments, context)
        except McpError as error:
            raise ToolFailedError(str(error)) from error
        if self._schema is None or result.is_error:
            problem = None
        else:  # the schema may be large, too
            problem = await to_thread.run_sync(self._find_problem, self._schema, result, abandon_on_cancel=True)
        if problem is not None:
            failure = f"the tool ran, but its answer does not fit its output schema: {problem}"
            raise ToolFailedError(server.redact(f"MCP server '{server.name}': {failure}"))
        return await redact_output(self._limits.check_output(read_result(result)), server.redact)

    async def _request_result(
        self, session: McpSession, arguments: dict[str, Any], context: ToolContext[object]
    ) -> wire.CallToolResult:
        report, redact = session.back(context.report_progress), session.server.redact

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            so_far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            # Cut twice: a piece of a secret would not be known for one.
            report(redact(f"{so_far}: {message[:_LONGEST_READ]}")[:_LONGEST_REPORT] if message else so_far)

        async def call(client: Client) -> wire.CallToolResult | Task:
            if self._is_task and takes_tasks(client):
                return find_task(await call_as_task(client, self.original_name, arguments))
            # Asking for progress makes some servers send it; without an observer it is not requested.
            callback = progressed if context.is_observed else None
            return find_task(await client.call_tool(self.original_name, arguments, progress_callback=callback))

        name = self.original_name
        answer = await session.request(f"call '{name}'", call, is_repeatable=self.options.idempotent)
        if not isinstance(answer, Task):
            return restore_result(answer)
        follower = TaskFollower(answer, lambda text: report(redact(text[:_LONGEST_READ])[:_LONGEST_REPORT]))
        try:
            return restore_result(await session.request(f"follow the task of '{name}'", follower.follow))
        except McpError as error:
            raise type(error)(f"{error} It may have taken effect.") from error

    def _find_problem(self, schema: RawSchema, result: wire.CallToolResult) -> str | None:
        """Return what is wrong with the structured content of a result that is no error; None if it fits."""
        if "structured_content" not in result.model_fields_set:
            return "it has no structured content"
        value: object = result.structured_content
        try:
            if schema.is_valid(value):
                return None
        except TooMuchWorkError:
            return "checking it takes too long"
        except RecursionError:
            return "it is nested too deeply"
        except (TypeError, ValueError) as error:
            return f"it is not JSON: {error}"
        problem = next(iter(find_problems(schema, value)), None)
        if problem is None:
            return "where takes too long to find out"
        where = ".".join(map(str, problem.path)) or "the whole"
        return f"{where}: {problem.reason or problem.kind}"


def read_options(
    tool: wire.Tool, server: McpServer, timeout: float | None, *, trust: Trust, hints: Trust
) -> ToolOptions:
    """Return the options of a server's tool, by its annotations: those of an untrusted server may be false.

    Untrusted hints can't take effects away: such a tool may write and send, whatever its server says.
    """
    annotations = tool.annotations or wire.ToolAnnotations()
    is_read = annotations.read_only_hint is True
    tags = {
        "read": is_read,
        "destructive": annotations.destructive_hint is True and not is_read,
        "idempotent": annotations.idempotent_hint is True,
        "open_world": annotations.open_world_hint is True,
    }
    return ToolOptions(
        label=find_title(tool),
        timeout=timeout,
        idempotent=is_read or annotations.idempotent_hint is True,
        cache=False,
        tags=frozenset(tag for tag, is_meant in tags.items() if is_meant),
        metadata={"mcp_server": server.name, "mcp_name": tool.name},
        trust=trust,
        effects=_read_effects(annotations) if hints == "trusted" else frozenset[Effect](("write", "send")),
    )


def _read_effects(annotations: wire.ToolAnnotations) -> frozenset[Effect]:
    """Return the effects of a tool by annotations, whose defaults are those of the protocol."""
    if annotations.read_only_hint is True:
        return frozenset()
    return frozenset(("write",)) if annotations.open_world_hint is False else frozenset(("write", "send"))


def find_title(tool: wire.Tool) -> str:
    """Return the title of a tool; nothing where it has none."""
    return tool.title or (tool.annotations.title if tool.annotations else None) or ""
