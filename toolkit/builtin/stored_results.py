"""Tools over what is kept already: the rest of a long output, and the cache."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolkit.errors import ToolError, ToolFailedError
from toolkit.tools.caching import Cache, cache_key
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.output import ToolOutput, load_output
from toolkit.tools.results import ResultStore

__all__ = ["CacheTools", "read_result_tool"]

_PAGE = 10_000
_MOST_MATCHES = 50


def read_result_tool(store: ResultStore) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_result``: it pages through, or searches, outputs that were cut."""

    def read_result(
        id: Annotated[str, Field(description="The id that stands in the notice of the cut output.")],  # noqa: A002
        start: Annotated[int, Field(ge=0, description="The first character to read, from 0.")] = 0,
        length: Annotated[int, Field(ge=1, le=_PAGE, description="How many characters to read.")] = _PAGE,
        find: Annotated[str | None, Field(description="Give the lines that contain this text instead.")] = None,
    ) -> str:
        """Read an earlier output that was too long to be shown whole."""
        text = store.get(id)
        if text is None:
            there = ", ".join(store.names[-5:]) or "none"
            raise ToolError(f"There is no result with the id '{id}'. Kept are: {there}.")
        if find is not None:
            return _found(text, find)
        if start >= len(text):
            raise ToolError(f"The result has {len(text)} characters; start must be less than that.")
        end = min(start + length, len(text))
        rest = f"; call read_result with start={end} for more" if end < len(text) else ""
        return f"[characters {start} to {end} of {len(text)}{rest}]\n{text[start:end]}"

    # What it gives is a part already, and must not be cut again.
    return tool_from_function(read_result, tags={"read"}, max_output_chars=_PAGE * 2, run_in_thread=False)


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

    Args:
        cache: The cache that `ToolLoopConfig.cache` has.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def tool(self) -> FunctionTool[object, ..., Any]:
        """Return the tool ``hit_cache``: it takes a key, ``tool:{name}|input:{canonical JSON of the arguments}``."""

        async def hit_cache(
            key: Annotated[str, Field(description="tool:{name}|input:{arguments as JSON, keys sorted, no spaces}")],
        ) -> ToolOutput:
            """Read the output of an earlier call directly from the cache."""
            name, arguments = _parts(key)
            kept = await self._cache.get(cache_key(name, arguments))
            if kept is None:
                raise ToolFailedError(f"Nothing is kept under '{key}'. Call the tool '{name}' itself.")
            return load_output(kept)

        return tool_from_function(hit_cache, tags={"read"}, should_cache=False)


def _parts(key: str) -> tuple[str, str]:
    tool, bar, arguments = key.partition("|")
    if not bar or not tool.strip().startswith("tool:") or not arguments.strip().startswith("input:"):
        raise ToolFailedError(f"'{key}' is no cache key. Write it as tool:NAME|input:ARGUMENTS.")
    return tool.strip().removeprefix("tool:").strip(), arguments.strip().removeprefix("input:").strip()
