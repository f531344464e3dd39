"""The tool by which a model reads the rest of an output that was cut."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolkit.calls.context import ToolContext
from toolkit.calls.output import READER, ResultStore
from toolkit.calls.registration import ToolOptions
from toolkit.errors import ToolError
from toolkit.tools.decorators import tool_with_ctx
from toolkit.tools.function_tool import FunctionTool

_PAGE = 10_000
_MOST_MATCHES = 50
_MARK = "toolkit.reads_results"


def is_reader(options: ToolOptions) -> bool:
    """Return whether these are the options of a tool that `read_result_tool` gave."""
    return bool(options.metadata.get(_MARK))


def read_result_tool(store: ResultStore) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_result``: it pages through, or searches, outputs that were cut.

    In a run it reads what that run has cut, or begins with, and nothing else, also where several runs share a store; a
    loop offers one by itself. Outside of a run it reads each text of the store whose id it is given.
    """

    def read_result(
        context: ToolContext[object],
        /,
        id: Annotated[str, Field(description="The id that stands in the notice of the cut output.")],  # noqa: A002
        start: Annotated[int, Field(ge=0, description="The first character to read, from 0.")] = 0,
        length: Annotated[int, Field(ge=1, le=_PAGE, description="How many characters to read.")] = _PAGE,
        find: Annotated[str | None, Field(description="Give the lines that contain this text instead.")] = None,
    ) -> str:
        """Read an earlier output that was too long to be shown whole."""
        memory = context.memory
        text = store.get(id) if memory is None else memory.get(id)
        if text is None:
            there = "" if memory is None else ", ".join([*memory.names][-5:])
            raise ToolError(f"There is no result with the id '{id}'." + (f" Stored are: {there}." if there else ""))
        if find is not None:
            return _find_lines(text, find)
        if start >= len(text):
            raise ToolError(f"The result has {len(text)} characters; start must be less than that.")
        end = min(start + length, len(text))
        name = context.tool_name or READER
        rest = f"; call {name} with start={end} for more" if end < len(text) else ""
        return f"[characters {start} to {end} of {len(text)}{rest}]\n{text[start:end]}"

    # What it gives is a part already, and must not be cut again.
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
