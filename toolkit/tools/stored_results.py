"""Tools with which a model reads earlier outputs: the rest of a truncated one, and those in the cache."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolkit.calls.approval import Abort, Approve, Defer, Deny, authorize
from toolkit.calls.caching import Cache, find_cache_key, is_cached
from toolkit.calls.context import ToolContext
from toolkit.calls.output import READER, ResultStore
from toolkit.calls.prepare import Refused, prepare
from toolkit.calls.registration import ToolOptions
from toolkit.chat import ToolCall, Trust
from toolkit.chat.output import ToolOutput, load_output
from toolkit.errors import ToolError, ToolFailedError
from toolkit.tools.decorators import tool_with_ctx
from toolkit.tools.function_tool import FunctionTool

_PAGE = 10_000
_MOST_MATCHES = 50
_MARK = "toolkit.reads_results"


def is_reader(options: ToolOptions) -> bool:
    """Return True if these are the options of a tool made by `read_result_tool`."""
    return bool(options.metadata.get(_MARK))


def read_result_tool(store: ResultStore) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_result``, which pages through or searches truncated outputs.

    In a run it reads only outputs that the run truncated, or that its transcript has at the start, even if several runs
    share a store; a loop adds it automatically. Outside of a run it reads any text of the store by its id.
    """

    def read_result(
        context: ToolContext[object],
        /,
        id: Annotated[str, Field(description="The id that stands in the notice of the cut output.")],  # noqa: A002
        start: Annotated[int, Field(ge=0, description="The first character to read, from 0.")] = 0,
        length: Annotated[int, Field(ge=1, le=_PAGE, description="How many characters to read.")] = _PAGE,
        find: Annotated[str | None, Field(description="Give the lines that contain this text instead.")] = None,
    ) -> ToolOutput:
        """Read an earlier output that was too long to be shown whole."""
        memory = context.memory
        text = store.get(id) if memory is None else memory.get(id)
        if text is None:
            there = "" if memory is None else ", ".join([*memory.names][-5:])
            raise ToolError(f"There is no result with the id '{id}'." + (f" Stored are: {there}." if there else ""))
        trust: Trust = "trusted" if memory is not None and memory.names[id] == "trusted" else "untrusted"
        if find is not None:
            return ToolOutput(_find_lines(text, find), trust=trust)
        if start >= len(text):
            raise ToolError(f"The result has {len(text)} characters; start must be less than that.")
        end = min(start + length, len(text))
        name = context.tool_name or READER
        rest = f"; call {name} with start={end} for more" if end < len(text) else ""
        return ToolOutput(f"[characters {start} to {end} of {len(text)}{rest}]\n{text[start:end]}", trust=trust)

    # Its output is a page already, and must not be truncated again.
    made_tool = tool_with_ctx(
        tags={"read"}, max_output_chars=_PAGE * 2, run_in_thread=False, cache=False, metadata={_MARK: True}
    )
    return made_tool(read_result)


def _find_lines(text: str, find: str) -> str:
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

    It returns only outputs that the model could get by calling the tool itself: of offered tools, subject to their
    rules and guards, and cached for the same context.

    Args:
        cache: The cache in `ToolLoopConfig.cache`.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def tool(self) -> FunctionTool[object, ..., Any]:
        """Return the tool ``hit_cache``, which takes a key ``tool:{name}|input:{JSON of the arguments}``."""

        async def hit_cache(
            context: ToolContext[object],
            key: Annotated[str, Field(description="tool:{name}|input:{arguments as JSON}")],
        ) -> ToolOutput:
            """Read the output of an earlier call directly from the cache."""
            name, arguments = _split_key(key)
            kept_under, trust = await _find_key(context, ToolCall(context.call_id, name, arguments))
            cached = None if kept_under is None else await self._cache.get(kept_under)
            if cached is None:
                raise ToolFailedError(f"Nothing is kept under '{key}'. Call the tool '{name}' itself.")
            output = load_output(cached)
            output.trust = output.trust or trust
            return output

        return tool_with_ctx(tags={"read"}, cache=False)(hit_cache)


async def _find_key(context: ToolContext[object], call: ToolCall) -> tuple[str | None, Trust | None]:
    """Return the cache key of a call that may run unchanged, and the trust label of its tool."""
    policy, scope = context.policy, context.scope
    if policy is None or scope is None:
        return None, None
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
        return None, None
    key = find_cache_key(prepared.registration, prepared.arguments, context.state)
    return key, prepared.registration.options.trust


def _split_key(key: str) -> tuple[str, str]:
    tool, bar, arguments = key.partition("|")
    if not bar or not tool.strip().startswith("tool:") or not arguments.strip().startswith("input:"):
        raise ToolFailedError(f"'{key}' is no cache key. Write it as tool:NAME|input:ARGUMENTS.")
    return tool.strip().removeprefix("tool:").strip(), arguments.strip().removeprefix("input:").strip()
