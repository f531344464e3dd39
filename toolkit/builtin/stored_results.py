"""Tools over what is kept already: the rest of a long output, and the cache."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolkit.chat import ToolCall
from toolkit.errors import ToolError, ToolFailedError
from toolkit.tools.authorize import authorize
from toolkit.tools.cache_keys import find_cache_key, is_cached
from toolkit.tools.caching import Cache
from toolkit.tools.context import ToolContext
from toolkit.tools.decorators import tool_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.output import ToolOutput, load_output
from toolkit.tools.prepare import Ready, Refused, prepare
from toolkit.tools.results import ResultStore

__all__ = ["CacheTools", "read_result_tool"]

_PAGE = 10_000
_MOST_MATCHES = 50


def read_result_tool(store: ResultStore) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_result``: it pages through, or searches, outputs that were cut in the same run.

    What a run cut is given to that run alone, also where several have one store.
    """

    async def read_result(
        context: ToolContext[object],
        id: Annotated[str, Field(description="The id that stands in the notice of the cut output.")],  # noqa: A002
        start: Annotated[int, Field(ge=0, description="The first character to read, from 0.")] = 0,
        length: Annotated[int, Field(ge=1, le=_PAGE, description="How many characters to read.")] = _PAGE,
        find: Annotated[str | None, Field(description="Give the lines that contain this text instead.")] = None,
    ) -> str:
        """Read an earlier output that was too long to be shown whole."""
        owner = "" if context.policy is None else context.policy.loop_id
        text = store.get(id, owner=owner)
        if text is None:
            there = ", ".join(store.names_of(owner)[-5:]) or "none"
            raise ToolError(f"There is no result with the id '{id}'. Kept are: {there}.")
        if find is not None:
            return _found(text, find)
        if start >= len(text):
            raise ToolError(f"The result has {len(text)} characters; start must be less than that.")
        end = min(start + length, len(text))
        rest = f"; call read_result with start={end} for more" if end < len(text) else ""
        return f"[characters {start} to {end} of {len(text)}{rest}]\n{text[start:end]}"

    # What it gives is a part already, and must not be cut again.
    return tool_with_ctx(tags={"read"}, max_output_chars=_PAGE * 2, cache=False)(read_result)


def _found(text: str, find: str) -> str:
    matches: list[str] = []
    count = 0
    position = 0
    for line in text.splitlines(keepends=True):
        if find in line:
            count += 1
            if count <= _MOST_MATCHES:
                matches.append(f"{position}: {line.rstrip()[:200]}")
        position += len(line)
    if not count:
        return f"No line contains '{find}'."
    more = f"\n[{count - _MOST_MATCHES} more lines contain it]" if count > _MOST_MATCHES else ""
    return "\n".join(matches) + more


class CacheTools:
    """Lets a model read the cache of tool outputs.

    It is given only what it could have by calling the tool itself: of the tools that it is offered, under their rules
    and guards, and kept for the same context.

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
            name, arguments = _parts(key)
            kept_under = await _find_key(context, ToolCall(context.call_id, name, arguments))
            kept = None if kept_under is None else await self._cache.get(kept_under)
            if kept is None:
                raise ToolFailedError(f"Nothing is kept under '{key}'. Call the tool '{name}' itself.")
            return load_output(kept)

        return tool_with_ctx(tags={"read"}, cache=False)(hit_cache)


async def _find_key(context: ToolContext[object], call: ToolCall) -> str | None:
    """Return the key under which the output of a call is kept that might run as it stands."""
    policy, scope = context.policy, context.scope
    if policy is None or scope is None:
        return None
    prepared = prepare(call, scope, policy)
    verdict = await authorize(prepared, policy) if isinstance(prepared, Ready) else prepared
    if isinstance(verdict, Refused):
        raise ToolFailedError(verdict.result.text)
    if not isinstance(verdict, Ready):
        raise ToolFailedError(f"The tool '{call.name}' needs approval: call it itself.")
    if not is_cached(verdict.registration.options, by_default=policy.caches_by_default):
        return None
    return find_cache_key(verdict.registration, verdict.arguments, context.state)


def _parts(key: str) -> tuple[str, str]:
    tool, bar, arguments = key.partition("|")
    if not bar or not tool.strip().startswith("tool:") or not arguments.strip().startswith("input:"):
        raise ToolFailedError(f"'{key}' is no cache key. Write it as tool:NAME|input:ARGUMENTS.")
    return tool.strip().removeprefix("tool:").strip(), arguments.strip().removeprefix("input:").strip()
