"""The tools that the conformance runner calls, served over HTTP on the port given."""

from __future__ import annotations

import base64
import sys
from typing import Any

import anyio
from mcp import MCPError
from mcp.types.jsonrpc import INTERNAL_ERROR, MISSING_REQUIRED_CLIENT_CAPABILITY

from toolkit import Tool, ToolContext, ToolError, ToolRegistry, tool, tool_from_schema, tool_with_ctx
from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock
from toolkit.serving.mcp import McpRequest, serve_mcp_http

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


NAME: dict[str, Any] = {"name": {"type": "string"}}
COLOR: dict[str, Any] = {"color": {"type": "string"}}


@tool
def test_simple_text() -> str:
    """Give text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> ImageBlock:
    """Give an image."""
    return ImageBlock(PIXEL)


@tool
def test_audio_content() -> AudioBlock:
    """Give a sound."""
    return AudioBlock(b"RIFF")


@tool
def test_embedded_resource() -> FileBlock:
    """Give a file."""
    return FileBlock(b"inside", name="a.txt", media_type="text/plain")


@tool
def test_multiple_content_types() -> list[ContentBlock]:
    """Give several things."""
    return [TextBlock("Several:"), ImageBlock(PIXEL), FileBlock(b"{}", name="a.json", media_type="application/json")]


@tool
def test_error_handling() -> None:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool_with_ctx
async def test_tool_with_progress(context: ToolContext[object]) -> str:
    """Report three times."""
    for step in range(3):
        context.report_progress(f"{step * 50} of 100")
        await anyio.sleep(0.05)
    return "done"


@tool_with_ctx
async def test_tool_with_logging(request: McpRequest) -> str:
    """Log three times."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await request.log(text)
        await anyio.sleep(0.05)
    return "done"


async def ask(request: McpRequest, message: str, properties: dict[str, Any]) -> str:
    """Ask the user."""
    answer = await request.elicit(message, {"type": "object", "properties": properties, "required": []})
    return f"User response: {answer}"


@tool_with_ctx
async def test_elicitation(request: McpRequest, message: str) -> str:
    """Ask for a name."""
    return await ask(request, message, {"username": {"type": "string"}, "email": {"type": "string"}})


@tool_with_ctx
async def test_elicitation_sep1034_defaults(request: McpRequest) -> str:
    """Ask with defaults."""
    properties: dict[str, Any] = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await ask(request, "Who?", properties)


@tool_with_ctx
async def test_elicitation_sep1330_enums(request: McpRequest) -> str:
    """Ask for a choice of each kind."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
    properties: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await ask(request, "Which?", properties)


@tool_with_ctx
async def test_logging_tool(request: McpRequest) -> str:
    """Log."""
    await request.log("only where it is asked for")
    return "done"


@tool
def test_missing_capability() -> None:
    """Need what the client lacks."""
    needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
    raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This needs a client that samples.", needed)


@tool_with_ctx(idempotent=True)
async def test_streaming_elicitation(request: McpRequest) -> str:
    """Ask in the newest revision."""
    return await ask(request, "Who?", NAME)


@tool_with_ctx(idempotent=True)
async def test_input_required_result_elicitation(request: McpRequest) -> str:
    """Ask before the call goes on."""
    answer = await request.elicit("What is your name?", {"type": "object", "properties": NAME}, name="user_name")
    return f"Hello, {answer}!"


@tool_with_ctx(idempotent=True)
async def test_input_required_result_request_state(request: McpRequest) -> str:
    """Ask with a state."""
    return f"state-ok: {await ask(request, 'Please confirm', {'ok': {'type': 'boolean'}})}"


@tool_with_ctx(idempotent=True)
async def test_input_required_result_tampered_state(request: McpRequest) -> str:
    """Ask with a state."""
    return await ask(request, "Please confirm", {"ok": {"type": "boolean"}})


@tool_with_ctx(idempotent=True)
async def test_input_required_result_multi_round(request: McpRequest) -> str:
    """Ask twice."""
    first = await request.elicit("Step 1: What is your name?", {"type": "object", "properties": NAME}, name="step1")
    second = await request.elicit("Step 2: What is your favorite color?", {"type": "object", "properties": COLOR})
    return f"{first} {second}"


@tool
def test_trigger_tool_change() -> str:
    """Change the tools."""
    registry.register_or_replace(tool_from_schema("changed", "Be new.", {"type": "object"}, lambda _: "new"))
    return "changed"


@tool
def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tool
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take a while."""
    await anyio.sleep(seconds)
    return f"{label}: done"


@tool
async def test_reconnection() -> str:
    """Take longer than a stream, and less than two."""
    await anyio.sleep(3)
    return "still here"


@tool(tags={"task_only"})
async def failing_job() -> None:
    """Take a while, and fail."""
    await anyio.sleep(1)
    raise ToolError("It can't be done.")


@tool
async def protocol_error_job() -> None:
    """Take a while, and end with an error of the protocol."""
    await anyio.sleep(1)
    raise MCPError(INTERNAL_ERROR, "The job is lost.")


@tool_with_ctx
async def confirm_delete(request: McpRequest, filename: str) -> str:
    """Ask in the middle of a call."""
    return f"{filename}: {await ask(request, 'Delete it?', {'confirm': {'type': 'boolean'}})}"


@tool_with_ctx
async def multi_input(request: McpRequest) -> str:
    """Ask two things at once."""
    answers: list[str] = []

    async def add(message: str) -> None:
        answers.append(await ask(request, message, NAME))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add, "First?")
        tasks.start_soon(add, "Second?")
    return " ".join(answers)


@tool_with_ctx(idempotent=True)
async def test_tool_with_task(request: McpRequest) -> str:
    """Ask first, and then take a while."""
    answer = await ask(request, "What is your name?", NAME)
    await anyio.sleep(1)
    return answer


registry: ToolRegistry[McpRequest] = ToolRegistry()


async def main() -> None:
    """Serve."""
    headed = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    schema = tool_from_schema("json_schema_2020_12_tool", "Take an address.", SCHEMA, lambda arguments: arguments)
    tools: list[Tool[McpRequest]] = [
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
        test_tool_with_progress,
        test_tool_with_logging,
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        schema,
        tool_from_schema("headed", "Take a region.", headed, str),
        test_logging_tool,
        test_missing_capability,
        test_streaming_elicitation,
        test_input_required_result_elicitation,
        test_input_required_result_request_state,
        test_input_required_result_tampered_state,
        test_input_required_result_multi_round,
        test_trigger_tool_change,
        greet,
        slow_compute,
        test_reconnection,
        failing_job,
        protocol_error_job,
        confirm_delete,
        multi_input,
        test_tool_with_task,
    ]
    for each in tools:
        registry.register(each)
    options: Any = {"port": int(sys.argv[1]), "task_after": 0.3, "stream_seconds": 2}
    await serve_mcp_http(registry, context_for=lambda request: request, **options)


if __name__ == "__main__":
    anyio.run(main)
