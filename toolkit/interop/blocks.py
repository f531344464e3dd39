"""Outputs of other frameworks: some of their parts are content blocks, others are data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from toolkit.chat import ContentBlock
from toolkit.chat.output import ToolOutput, to_output

__all__ = ["output_from_parts"]


def output_from_parts(value: object, block_of: Callable[[Any], ContentBlock | None]) -> ToolOutput:
    """Return a value, or a list of parts, as an output: the parts that `block_of` knows as blocks, others as text."""
    parts: object = value
    items = list(cast("list[Any]", parts)) if isinstance(parts, (list, tuple)) else [parts]
    blocks = [block_of(item) for item in items]
    if all(block is None for block in blocks):
        return to_output(value)
    pairs = zip(items, blocks, strict=True)
    return to_output([to_output(item).text if block is None else block for item, block in pairs])
