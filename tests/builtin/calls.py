"""One call of one tool, as a model makes it."""

import json
from typing import Any

from toolkit import ApprovalRequest, FunctionTool, ToolCall, ToolRegistry, ToolResult


def _approve(_: ApprovalRequest) -> bool:
    return True


async def call(tool: FunctionTool[object, ..., Any], **arguments: object) -> ToolResult:
    registry = ToolRegistry[object]([tool])
    name = tool.definition.name
    # A shell that nothing holds wants an approver.
    approve = _approve if name == "bash" else None
    return await registry.execute(ToolCall("1", name, json.dumps(arguments)), object(), approve=approve)


async def error_of(tool: FunctionTool[object, ..., Any], **arguments: object) -> str:
    result = await call(tool, **arguments)
    assert result.is_error, result.text
    return result.text


async def text_of(tool: FunctionTool[object, ..., Any], **arguments: object) -> str:
    result = await call(tool, **arguments)
    assert not result.is_error, result.text
    return result.text
