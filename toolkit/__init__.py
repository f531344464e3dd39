"""Python functions as tools that language models call.

::

    from toolkit import ToolRegistry, tool, tool_loop

    @tool
    def add(a: int, b: int) -> int:
        '''Add two numbers.'''
        return a + b

    result = await tool_loop(provider, ToolRegistry([add]), "What is 17 + 25?")

More is available by subject: `toolkit.events` and `toolkit.endings` (the events and the endings of runs),
`toolkit.policies` (stop conditions, permissions, caches, compaction), `toolkit.errors` and `toolkit.chat` (messages,
requests, transcripts).

To read the code, follow one call: ``tools/decorators`` -> ``schema/function_schema`` -> ``tools/function_tool`` ->
``tools/registry`` -> ``calls/prepare`` -> ``calls/run`` -> ``loop/state`` -> ``loop/run`` -> ``loop/handle`` ->
``chat/provider`` -> ``providers/``. The public thing of each is the input of the next.
"""

from toolkit.calls.approval import Abort, ApprovalRequest, Approve, Defer, Deny, Modify
from toolkit.calls.caching import MemoryCache
from toolkit.calls.context import ToolContext
from toolkit.calls.permissions import Permissions, allow, ask, deny
from toolkit.calls.policy import OutputLimits, Timeouts
from toolkit.calls.registration import EnvVar, Tool, ToolOptions, ToolRetryConfig
from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    Message,
    Provider,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, ProviderError, ToolError, ToolFailedError, ToolkitError
from toolkit.loop.config import AnswerFormat, LoopLimits, Prompt, ProviderRetryConfig, Steering, ToolLoopConfig
from toolkit.loop.events import Done, Failed
from toolkit.loop.handle import (
    ToolLoopHandle,
    Yielded,
    tool_loop,
    tool_loop_channel,
    tool_loop_resumable,
    tool_loop_stream,
    tool_loop_sync,
)
from toolkit.loop.limits import LoopDetectionConfig, UsageLimits, stop_after
from toolkit.loop.middleware import Middleware
from toolkit.loop.outcome import Completed, Snapshot, ToolLoopResult
from toolkit.tools.decorators import (
    tool,
    tool_from_function,
    tool_from_schema,
    tool_from_schema_with_ctx,
    tool_with_ctx,
    tools_of,
)
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import ToolRegistry

__all__ = [
    "Abort",
    "AnswerFormat",
    "ApprovalRequest",
    "Approve",
    "AssistantMessage",
    "ChatRequest",
    "Completed",
    "ConfigurationError",
    "Defer",
    "Deny",
    "Done",
    "EnvVar",
    "Failed",
    "FunctionTool",
    "LoopDetectionConfig",
    "LoopLimits",
    "MemoryCache",
    "Message",
    "Middleware",
    "Modify",
    "OutputLimits",
    "Permissions",
    "Prompt",
    "Provider",
    "ProviderError",
    "ProviderRetryConfig",
    "Snapshot",
    "Steering",
    "SystemMessage",
    "TextDelta",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolFailedError",
    "ToolLoopConfig",
    "ToolLoopHandle",
    "ToolLoopResult",
    "ToolOptions",
    "ToolOutput",
    "ToolRegistry",
    "ToolResult",
    "ToolRetryConfig",
    "ToolkitError",
    "Usage",
    "UsageLimits",
    "UserMessage",
    "Yielded",
    "allow",
    "ask",
    "deny",
    "stop_after",
    "tool",
    "tool_from_function",
    "tool_from_schema",
    "tool_from_schema_with_ctx",
    "tool_loop",
    "tool_loop_channel",
    "tool_loop_resumable",
    "tool_loop_stream",
    "tool_loop_sync",
    "tool_with_ctx",
    "tools_of",
]
