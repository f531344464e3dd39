"""Strikes secrets out of all that an output says."""

from __future__ import annotations

from typing import Any

from toolkit.chat import TextBlock
from toolkit.chat.output import ToolOutput
from toolkit.schema.nodes import is_array, is_object
from toolkit.secrets import Redact

__all__ = ["redacted"]


def redacted(output: ToolOutput, redact: Redact) -> ToolOutput:
    """Strike secrets out of an output's text and details, and return it."""
    if isinstance(output.content, str):
        output.content = redact(output.content)
    else:
        output.content = tuple(
            TextBlock(redact(block.text)) if isinstance(block, TextBlock) else block for block in output.content
        )
    output.details = _redact_value(output.details, redact)
    return output


def _redact_value(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if is_object(value):
        return {name: _redact_value(inner, redact) for name, inner in value.items()}
    if is_array(value):
        return [_redact_value(inner, redact) for inner in value]
    return value
