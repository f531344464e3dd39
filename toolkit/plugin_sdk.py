"""A registry as a plugin: a program that another one starts, and speaks to over standard input and output."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, BinaryIO, overload

import anyio
import anyio.to_thread

from toolkit.calls.events import ToolEvent, ToolExecutionUpdate, ToolProgress
from toolkit.calls.registration import Ctx
from toolkit.chat import ContentBlock, FileBlock, TextBlock, ToolCall
from toolkit.logs import get_logger
from toolkit.plain_values import read_plain
from toolkit.runtime.processes import take_streams
from toolkit.tools.registry import ToolRegistry

__all__ = ["serve_plugin"]

_logger = get_logger("toolkit.plugin_sdk")


@overload
def serve_plugin(registry: ToolRegistry[object] | ToolRegistry[None], ctx: None = None) -> None: ...
@overload
def serve_plugin(registry: ToolRegistry[Ctx], ctx: Ctx) -> None: ...
def serve_plugin(registry: ToolRegistry[Any], ctx: Any = None) -> None:
    """Serve a registry as a plugin until standard input ends.

    ::

        from toolkit.plugin_sdk import serve_plugin

        if __name__ == "__main__":
            serve_plugin(ToolRegistry([stats, median]))

    `plugin_tools` reads it, and so does any other program that speaks the protocol. Calls run at once, each by the
    registry's rules; updates are written while they run, and a cancelled call is cancelled. Standard input and output
    are the protocol's: tools read an empty input, and text that they print goes to standard error.

    Args:
        registry: The tools; calls that need approval are denied, since there is no approver.
        ctx: Their context.
    """
    anyio.run(_PluginServer(registry, ctx, *take_streams()).run)


class _PluginServer:
    def __init__(self, registry: ToolRegistry[Any], ctx: Any, requests: BinaryIO, answers: BinaryIO) -> None:
        self._registry = registry
        self._ctx = ctx
        self._requests = requests
        self._answers = answers
        self._running: list[tuple[object, anyio.CancelScope]] = []  # ids may be there twice

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            while line := await anyio.to_thread.run_sync(self._requests.readline, abandon_on_cancel=True):
                try:
                    request: Any = json.loads(line)
                except (ValueError, RecursionError):
                    request = None
                match request:
                    case {"type": "describe"}:
                        self.write(self._describe_tools())
                    case {"type": "call"}:
                        tasks.start_soon(self._run_call, request)
                    case {"type": "cancel"}:
                        for call_id, scope in self._running:
                            if call_id == request.get("call_id"):
                                scope.cancel()
                    case _:
                        _logger.warning("not a request: a line of %d bytes", len(line))
            # Running calls may finish; to end them sooner, end this process.

    def write(self, message: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(message).encode() + b"\n")
        self._answers.flush()

    def _describe_tools(self) -> dict[str, Any]:
        tools: list[dict[str, Any]] = [
            {"name": each.name, "description": each.description, "parameters": each.parameters}
            for each in self._registry.definitions()
        ]
        # One by itself is described so that it is understood where only one is.
        return {
            **(tools[0] if len(tools) == 1 else {"tools": tools}),
            "extensions": ["concurrent", "updates", "cancel"],
        }

    async def _run_call(self, request: Mapping[str, Any]) -> None:
        call_id: object = request.get("call_id", "")
        name = request.get("tool") or (self._registry.names[0] if len(self._registry) == 1 else "")
        call = ToolCall(str(call_id), str(name), json.dumps(request.get("params", {})))
        with anyio.CancelScope() as scope:
            self._running.append((call_id, scope))
            try:
                result = await self._registry.execute(call, self._ctx, observer=_Updates(self, call_id))
            finally:
                self._running.remove((call_id, scope))
            content = [TextBlock(result.content)] if isinstance(result.content, str) else result.content
            self.write(
                {
                    "call_id": call_id,
                    "content": [_encode_block(block) for block in content],
                    "error": result.is_error,
                    "details": read_plain(result.details).value,
                }
            )


class _Updates:
    """Writes the updates of a running call."""

    def __init__(self, server: _PluginServer, call_id: object) -> None:
        self._server = server
        self._call_id = call_id

    async def emit(self, event: ToolEvent) -> None:
        if isinstance(event, (ToolExecutionUpdate, ToolProgress)):
            self.offer(event)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        content = event.text if isinstance(event, ToolProgress) else event.output.content
        blocks = [TextBlock(content)] if isinstance(content, str) else content
        self._server.write(
            {"type": "update", "call_id": self._call_id, "content": [_encode_block(block) for block in blocks]}
        )


def _encode_block(block: ContentBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    part: dict[str, Any] = {"type": block.type, "mimeType": block.media_type}
    if isinstance(block, FileBlock):
        part["name"] = block.name
    if block.data is not None:
        return {**part, "data": b64encode(block.data).decode()}
    return {**part, "url": getattr(block, "url", None)}
