"""Messages of a server before the SDK checks them: bounded, and without what it need not read.

The SDK checks a message at once in the event loop, part by part and several times. It checks results against output
schemas by `jsonschema`, which has no bound on work and uses Python's regular expressions: a server could occupy the
process for hours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mcp.types as wire
from anyio import to_thread
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from toolkit.schema.nodes import count_parts, is_array, is_object
from toolkit.sources.mcp.servers import NOT_MCP
from toolkit.sources.mcp.tasks import mark_task

MOST_TOOLS = 1_000
"""How many tools a server may have."""
MOST_MESSAGES = 1_000
"""How many messages a server may have a model answer, and a prompt may have."""
MOST_BLOCKS = 5_000
"""How many blocks a result may have."""
MOST_PARTS = 7_000
"""How many objects and lists a message may have, besides schemas, structured content and the metadata of tools."""
_FEW_TOOLS = 50
_FEW_BLOCKS = 100
_LONGEST_WALK = 100_000
_HIDDEN = "toolkit/hidden"
_OF_TOOLS = ("_meta", "inputSchema", "outputSchema")


class _Hidden(str):
    """A text that carries what the SDK only passes on.

    Attributes:
        content: The fields that are put back.
    """

    __slots__ = ("content",)
    content: dict[str, Any]


async def adapt_message(received: Any) -> Any:
    """Return a message of a server as the SDK can check it: an error in place of a reply that has too many parts."""
    message: object = getattr(received, "message", None)
    params, result = getattr(message, "params", None), getattr(message, "result", None)
    if isinstance(message, wire.JSONRPCError) and count_parts(message.error.data, MOST_PARTS) > MOST_PARTS:
        message.error.data = None  # its message says what is wrong
    if is_object(params):
        _cut_list(params, "messages", MOST_MESSAGES)
    if is_object(result):
        count = _cut_list(result, "content", MOST_BLOCKS)
        wrong = await to_thread.run_sync(_find_wrong_block, result["content"]) if count > _FEW_BLOCKS else None
        if wrong is not None:
            return _refuse_message(received, f"block {wrong + 1} of its content is no block")
        _cut_list(result, "messages", MOST_MESSAGES)
        if _cut_list(result, "tools", MOST_TOOLS) > _FEW_TOOLS:
            await to_thread.run_sync(_hide_schemas, result)
        else:
            _hide_schemas(result)
        for each in (result, result.get("result")):  # the second one is that of a task
            if is_object(each):
                _hide_fields(each, ("structuredContent",))
        mark_task(result)
    parts = max(count_parts(each, MOST_PARTS, opaque=("inputSchema",)) for each in (params, result))
    return received if parts <= MOST_PARTS else _refuse_message(received, f"it has more than {MOST_PARTS:,} parts")


def _refuse_message(received: Any, reason: str) -> Any:
    """Return an error in the place of a reply; of a request or a notification, one without parameters."""
    message = received.message
    if isinstance(message, wire.JSONRPCResponse):
        error = wire.ErrorData(code=wire.INTERNAL_ERROR, message=f"{NOT_MCP}: {reason}")
        received.message = wire.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    else:
        message.params = {}
    return received


def _find_wrong_block(blocks: list[object]) -> int | None:
    """Return the place of the first wrong block: the SDK lists the problems of all, several of each."""
    adapter = _make_block_adapter()
    for place, block in enumerate(blocks):
        try:
            adapter.validate_python(block)
        except ValidationError:
            return place
    return None


@lru_cache(maxsize=1)
def _make_block_adapter() -> TypeAdapter[wire.ContentBlock]:
    return TypeAdapter(wire.ContentBlock)


def _cut_list(fields: dict[str, Any], name: str, most: int) -> int:
    """Cut a list to one item more than there may be, since a longer one is refused; return its length."""
    listed: object = fields.get(name)
    if not is_array(listed):
        return 0
    del listed[most + 1 :]
    return len(listed)


def _hide_schemas(result: dict[str, Any]) -> None:
    """Hide the schemas and the metadata of the tools in a list.

    The SDK walks through input schemas for ``x-mcp-header``, and is left those that name it.
    """
    listed: object = result.get("tools")
    for tool in filter(is_object, listed if is_array(listed) else ()):
        schema: object = tool.get("inputSchema")
        _hide_fields(tool, _OF_TOOLS)
        if is_object(schema):
            text = to_json(schema)
            is_walked = b"x-mcp-header" in text and len(text) <= _LONGEST_WALK
            tool["inputSchema"] = schema if is_walked else {"type": "object"}


def _hide_fields(fields: dict[str, Any], names: tuple[str, ...]) -> None:
    """Move those of the fields that are objects, or null, to where `restore_tool` and `restore_result` find them."""
    hidden = _Hidden()
    hidden.content = {
        name: fields.pop(name) for name in names if name in fields and (fields[name] is None or is_object(fields[name]))
    }
    meta: object = fields.get("_meta")
    if hidden.content and (meta is None or is_object(meta)):
        fields["_meta"] = {**(meta or {}), _HIDDEN: hidden}


def restore_tool(tool: wire.Tool) -> wire.Tool:
    """Return a tool with its schemas and its metadata."""
    hidden = _find_hidden(tool)
    update = {"input_schema": hidden.get("inputSchema", tool.input_schema), "meta": hidden.get("_meta")}
    return tool.model_copy(update={**update, "output_schema": hidden.get("outputSchema")})


def restore_result(result: wire.CallToolResult) -> wire.CallToolResult:
    """Return a result with its structured content."""
    hidden = _find_hidden(result)
    if "structuredContent" not in hidden:
        return result
    return result.model_copy(update={"structured_content": hidden["structuredContent"]})


def _find_hidden(shown: wire.Tool | wire.CallToolResult) -> dict[str, Any]:
    hidden: object = (shown.meta or {}).get(_HIDDEN)
    return hidden.content if isinstance(hidden, _Hidden) else {}
