"""A tool that reads the cache."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolkit.calls.approval import Abort, Approve, Defer, Deny, authorize
from toolkit.calls.caching import Cache, find_cache_key, is_cached
from toolkit.calls.context import ToolContext
from toolkit.calls.prepare import Refused, prepare
from toolkit.chat import ToolCall
from toolkit.chat.output import ToolOutput, load_output
from toolkit.errors import ToolFailedError
from toolkit.tools.decorators import tool_with_ctx
from toolkit.tools.function_tool import FunctionTool


class CacheTools:
    """Lets a model read the cache of tool outputs.

    It returns only outputs that the model could get by calling the tool itself: of offered tools, under their rules
    and guards, and cached for the same context.

    Args:
        cache: The cache that `ToolLoopConfig.cache` has.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def tool(self) -> FunctionTool[object, ..., Any]:
        """Return the tool ``hit_cache``: it takes a key, ``tool:{name}|input:{JSON of the arguments}``."""

        async def hit_cache(
            context: ToolContext[object],
            key: Annotated[str, Field(description="tool:{name}|input:{arguments as JSON}")],
        ) -> ToolOutput:
            """Read the output of an earlier call directly from the cache."""
            name, arguments = _split_key(key)
            kept_under = await _find_key(context, ToolCall(context.call_id, name, arguments))
            kept = None if kept_under is None else await self._cache.get(kept_under)
            if kept is None:
                raise ToolFailedError(f"Nothing is kept under '{key}'. Call the tool '{name}' itself.")
            return load_output(kept)

        return tool_with_ctx(tags={"read"}, cache=False)(hit_cache)


async def _find_key(context: ToolContext[object], call: ToolCall) -> str | None:
    """Return the cache key of a call that might run as it is."""
    policy, scope = context.policy, context.scope
    if policy is None or scope is None:
        return None
    prepared = prepare(call, scope, policy)
    if isinstance(prepared, Refused):
        raise ToolFailedError(prepared.result.text)
    match await authorize(prepared, policy):
        case Deny(reason):
            raise ToolFailedError(reason)
        case Abort() | Defer():
            raise ToolFailedError(f"The tool '{call.name}' needs approval: call it itself.")
        case Approve():
            pass
    if not is_cached(prepared.registration.options, by_default=policy.caches_by_default):
        return None
    return find_cache_key(prepared.registration, prepared.arguments, context.state)


def _split_key(key: str) -> tuple[str, str]:
    tool, bar, arguments = key.partition("|")
    if not bar or not tool.strip().startswith("tool:") or not arguments.strip().startswith("input:"):
        raise ToolFailedError(f"'{key}' is no cache key. Write it as tool:NAME|input:ARGUMENTS.")
    return tool.strip().removeprefix("tool:").strip(), arguments.strip().removeprefix("input:").strip()
