"""A registry as a server of the SDK: it lists the tools, and runs their calls under the registry's rules."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypedDict, assert_never, overload
from urllib.parse import quote

import anyio
import mcp.types as wire
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPError
from mcp.server import InitializationOptions, NotificationOptions, Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from typing_extensions import Unpack

from toolkit.calls.approval import Approval, ApprovalRequest, Approve, Deny
from toolkit.calls.events import ToolCallRefused, ToolEvent, ToolExecutionEnd, ToolExecutionUpdate, ToolProgress
from toolkit.calls.registration import Ctx, Registration
from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from toolkit.settings import check_setting
from toolkit.tools.registry import ToolRegistry

_logger = logging.getLogger("toolkit.serving")

_WAITING_REPORTS = 64
_LONGEST_REPORT = 2_000
_QUESTION = "approval"
_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "description": "Whether the tool may run."}},
    "required": ["approve"],
}


CrashReport: TypeAlias = Literal["reference", "text"]
"""The words for clients of an exception that a tool raised by accident: its type and a reference, or its text."""


class McpServerKeywords(TypedDict, total=False):
    """The keywords of `mcp_server`, which documents them."""

    name: str
    instructions: str | None
    crashes: CrashReport


@overload
def mcp_server(
    registry: ToolRegistry[object],
    ctx: object = None,
    **options: Unpack[McpServerKeywords],
) -> Server[Any]: ...
@overload
def mcp_server(
    registry: ToolRegistry[Ctx],
    ctx: Ctx,
    **options: Unpack[McpServerKeywords],
) -> Server[Any]: ...
def mcp_server(
    registry: ToolRegistry[Any],
    ctx: Any = None,
    *,
    name: str = "toolkit",
    instructions: str | None = None,
    crashes: CrashReport = "reference",
) -> Server[Any]:
    """Return the SDK's server for a registry, for a transport of your own; `serve_mcp` runs one.

    Clients see the registry's current tools. A tool's reports become progress, if a client asks for
    it; a client that cancels a call cancels the tool. Tools that need approval are run when the client's user agrees:
    they are asked by elicitation, and where the client can't ask, the call is refused.

    Args:
        registry: Its permissions, limits and options apply.
        ctx: For each call.
        name: The name of the server.
        instructions: A text about the server that clients may pass to their models.
        crashes: The part of an exception other than a `ToolError` that clients see: ``reference`` gives its type and a
            reference under which the log has the rest, as its text may hold paths, queries and keys; ``text`` gives
            all of it.
    """
    check_setting("crashes", crashes, "reference", "text")
    return _Serving(registry, ctx, crashes).make_server(name, instructions)


@overload
async def serve_mcp(
    registry: ToolRegistry[object],
    ctx: object = None,
    **options: Unpack[McpServerKeywords],
) -> None: ...
@overload
async def serve_mcp(
    registry: ToolRegistry[Ctx],
    ctx: Ctx,
    **options: Unpack[McpServerKeywords],
) -> None: ...
async def serve_mcp(registry: ToolRegistry[Any], ctx: Any = None, **options: Unpack[McpServerKeywords]) -> None:
    """Serve a registry on standard input and output until the client closes them.

    ::

        anyio.run(serve_mcp, ToolRegistry([add]))

    Meanwhile, printed text goes to standard error. The arguments are those of `mcp_server`.
    """
    server = mcp_server(registry, ctx, **options)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _RegistryServer(Server[Any]):
    """Declares on every transport that its tools may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        notification_options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(notification_options, experimental_capabilities, extensions)


class _Serving:
    def __init__(self, registry: ToolRegistry[Any], ctx: Any, crashes: CrashReport) -> None:
        self._registry = registry
        self._crashes = crashes
        self._ctx = ctx
        self._bus = InMemorySubscriptionBus()
        self._shown = registry.definitions()
        self._key = secrets.token_bytes(32)

    def make_server(self, name: str, instructions: str | None) -> Server[Any]:
        return _RegistryServer(
            name,
            version="1",
            instructions=instructions,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    async def _list_tools(
        self,
        context: ServerRequestContext[Any, Any],  # noqa: ARG002 - as the SDK calls it
        params: wire.PaginatedRequestParams | None,  # noqa: ARG002
    ) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=[_to_wire_tool(tool) for tool in self._registry.registrations.values()])

    async def _call_tool(
        self, context: ServerRequestContext[Any, Any], params: wire.CallToolRequestParams
    ) -> wire.CallToolResult | wire.InputRequiredResult:
        registration = self._registry.registrations.get(params.name)
        if registration is None:
            raise MCPError(wire.INVALID_PARAMS, f"Unknown tool: {params.name}")
        arguments = json.dumps(params.arguments or {})
        call = ToolCall(str(context.request_id), params.name, arguments)
        approver = _Approver(context, params, self._seal_call(params.name, arguments))
        token = (context.meta or {}).get("progress_token")
        send, receive = anyio.create_memory_object_stream[str](_WAITING_REPORTS)
        observer = _Reports(send, is_wanted=token is not None)
        given: list[ToolResult] = []
        with receive:
            async with anyio.create_task_group() as tasks:
                if token is not None:
                    tasks.start_soon(_send_progress, context, token, receive)
                with send:
                    given.append(
                        await self._registry.execute(call, self._ctx, approve=approver.decide, observer=observer)
                    )
        await self._announce_changes(context)
        if approver.question is not None:
            return approver.question
        if observer.crash is not None and self._crashes == "reference":
            return _refer_to_log(observer.crash, call)
        return _make_result(given[0], observer.whole or given[0], registration)

    def _seal_call(self, name: str, arguments: str) -> str:
        """Return an HMAC that binds a question to its call."""
        return hmac.new(self._key, f"{name}\n{arguments}".encode(), hashlib.sha256).hexdigest()

    async def _announce_changes(self, context: ServerRequestContext[Any, Any]) -> None:
        shown = self._registry.definitions()
        if shown is self._shown:
            return
        self._shown = shown
        await self._bus.publish(ToolsListChanged())
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await context.session.send_notification(wire.ToolListChangedNotification())


class _Reports:
    """Takes the events of one call: its reports, its whole result, and its unexpected exception."""

    def __init__(self, send: MemoryObjectSendStream[str], *, is_wanted: bool) -> None:
        self._send = send
        self._is_wanted = is_wanted
        self.whole: ToolResult | None = None
        self.crash: BaseException | None = None

    async def emit(self, event: ToolEvent) -> None:
        """Deliver an event."""
        if isinstance(event, ToolExecutionEnd):
            self.whole, self.crash = event.result, event.error
        elif isinstance(event, ToolCallRefused):
            self.crash = event.error
        elif self._is_wanted and (text := _write_report(event)) is not None:
            await self._send.send(text)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Queue a report without waiting; if the queue is full, it is dropped."""
        if self._is_wanted and (text := _write_report(event)) is not None:
            with suppress(anyio.WouldBlock):
                self._send.send_nowait(text)


def _write_report(event: ToolEvent) -> str | None:
    match event:
        case ToolProgress(text=text):
            return text[:_LONGEST_REPORT]
        case ToolExecutionUpdate(output=output):
            return output.text[:_LONGEST_REPORT]
        case _:
            return None


async def _send_progress(
    context: ServerRequestContext[Any, Any], token: str | int, reports: MemoryObjectReceiveStream[str]
) -> None:
    count = 0
    async for text in reports:
        count += 1
        note = wire.ProgressNotificationParams(progress_token=token, progress=count, message=text)
        await context.session.send_notification(
            wire.ProgressNotification(params=note), related_request_id=context.request_id
        )


class _Approver:
    """Asks the client's user about a call that needs it.

    Up to the revision of 2025 the server asks in the middle of the call. Later ones have no way to: there the call is
    answered with the question, and repeated with the user's answer and the seal of the question.

    Attributes:
        question: The answer to the call, where its user is to be asked first.
    """

    def __init__(self, context: ServerRequestContext[Any, Any], params: wire.CallToolRequestParams, seal: str) -> None:
        self._context = context
        self._params = params
        self._seal = seal
        self.question: wire.InputRequiredResult | None = None

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Approve calls that need no consent; ask about the others."""
        if not request.reason:
            return Approve()
        capabilities = self._context.session.client_capabilities
        if capabilities is None or capabilities.elicitation is None:
            return Deny(f"{request.reason} This client can't ask its user, so it was not run.")
        if self._context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            question = _write_question(request)
            return _read_decision(await self._context.session.elicit_form(*question, self._context.request_id))
        answer = (self._params.input_responses or {}).get(_QUESTION)
        if isinstance(answer, wire.ElicitResult) and hmac.compare_digest(self._params.request_state or "", self._seal):
            return _read_decision(answer)
        message, schema = _write_question(request)
        asked = wire.ElicitRequest(params=wire.ElicitRequestFormParams(message=message, requested_schema=schema))
        self.question = wire.InputRequiredResult(input_requests={_QUESTION: asked}, request_state=self._seal)
        return Deny("The user is asked first.")


def _write_question(request: ApprovalRequest) -> tuple[str, dict[str, Any]]:
    return f"{request.reason} Run it with {request.preview}?", _ANSWER_SCHEMA


def _read_decision(answer: wire.ElicitResult) -> Approval:
    if answer.action == "accept" and (answer.content or {}).get("approve") is True:
        return Approve()
    return Deny("The user did not approve this call, so it was not run.")


def _to_wire_tool(registration: Registration[Any]) -> wire.Tool:
    definition, options = registration.definition, registration.options
    hints = wire.ToolAnnotations(
        title=options.label or None,
        read_only_hint=True if "read" in options.tags else None,
        destructive_hint=True if "destructive" in options.tags else None,
        idempotent_hint=True if options.idempotent else None,
        open_world_hint=True if "open_world" in options.tags else None,
    )
    return wire.Tool(
        name=definition.name,
        title=options.label or None,
        description=definition.description,
        input_schema=dict(definition.parameters),
        output_schema=_to_object_schema(definition.output_schema),
        annotations=hints,
    )


def _is_object_schema(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _to_object_schema(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an output's schema as MCP has them, about an object: another value is its property ``result``."""
    if schema is None or _is_object_schema(schema):
        return None if schema is None else dict(schema)
    inner = {name: part for name, part in schema.items() if name != "$defs"}
    outer: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _make_result(result: ToolResult, whole: ToolResult, registration: Registration[Any]) -> wire.CallToolResult:
    schema = registration.definition.output_schema
    structured: object = None
    if schema is not None and not result.is_error:
        try:
            # The text may go on after the JSON, with a note.
            value, _ = json.JSONDecoder().raw_decode(whole.text)
        except ValueError:
            return _make_failure(f"The tool did not return what its output schema says, but: {result.text}")
        structured = value if _is_object_schema(schema) else {"result": value}
    content = [TextBlock(result.content)] if isinstance(result.content, str) else result.content
    blocks = [_write_block(block) for block in content]
    return wire.CallToolResult(content=blocks, structured_content=structured, is_error=result.is_error)


def _refer_to_log(crash: BaseException, call: ToolCall) -> wire.CallToolResult:
    reference = secrets.token_hex(4)
    _logger.error("reference %s: tool %s raised in call %s", reference, call.name, call.id, exc_info=crash)
    return _make_failure(f"{type(crash).__name__}: the tool failed. The server's log has the rest, as {reference}.")


def _make_failure(text: str) -> wire.CallToolResult:
    return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], is_error=True)


def _write_block(block: ContentBlock) -> wire.ContentBlock:
    match block:
        case TextBlock(text):
            return wire.TextContent(type="text", text=text)
        case ImageBlock(data) if data is not None:
            return wire.ImageContent(type="image", data=_encode_base64(data), mime_type=block.media_type)
        case AudioBlock(data):
            return wire.AudioContent(type="audio", data=_encode_base64(data), mime_type=block.media_type)
        case FileBlock(data) if data is not None:
            contents = wire.BlobResourceContents(
                uri=f"file:///{quote(block.name)}", blob=_encode_base64(data), mime_type=block.media_type
            )
            return wire.EmbeddedResource(type="resource", resource=contents)
        case ImageBlock() | FileBlock():
            name = block.name if isinstance(block, FileBlock) else "image"
            return wire.ResourceLink(
                type="resource_link", name=name, uri=block.url or "about:blank", mime_type=block.media_type
            )
        case _ as never:
            assert_never(never)


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
