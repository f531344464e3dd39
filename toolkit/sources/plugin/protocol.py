"""The messages to a plugin and its answers; pure.

::

    -> {"type": "describe"}
    <- {"name": ..., "description": ..., "parameters": {...}}       or {"tools": [...], "extensions": [...]}
    -> {"type": "call", "call_id": ..., "params": {...}}            with "tool": ... where there are several
    <- {"call_id": ..., "content": [{"type": "text", "text": ...}], "error": false}

The ``call_id`` of an answer may be left out; then a plugin that answers late, twice or not at all is ended. An error is
``true``, with the reason in the content, or a text.

Extensions hold only where the plugin names them in its description: with ``concurrent`` it is sent calls while others
run, and each answer has the call's ``call_id``; with ``updates`` it may write ``{"type": "update", "content": [...]}``
while it works; with ``cancel`` it is sent ``{"type": "cancel", "call_id": ...}`` for a call that nobody waits for.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator

from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock
from toolkit.chat.output import ToolOutput
from toolkit.errors import PluginError
from toolkit.schema.nodes import is_array, is_object

__all__ = [
    "LONGEST_DESCRIPTION",
    "MOST_TOOLS",
    "Description",
    "PluginToolDefinition",
    "encode",
    "read_description",
    "read_output",
]

_MEDIA_TYPES = ("mimeType", "mime_type", "MIMEType", "media_type")


MOST_TOOLS = 256
LONGEST_DESCRIPTION = 1024 * 1024
_LONGEST_NAME, _LONGEST_TEXT, _LONGEST_SCHEMA = 256, 20_000, 200_000


class PluginToolDefinition(BaseModel):
    """One tool, as its plugin describes it."""

    name: Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME)]
    description: Annotated[str, Field(max_length=_LONGEST_TEXT)] = ""
    parameters: dict[str, Any] = Field(default_factory=dict[str, Any])

    @field_validator("parameters")
    @classmethod
    def _require_object(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        size = len(json.dumps(parameters, ensure_ascii=False))
        if size > _LONGEST_SCHEMA:
            raise ValueError(f"the schema has {size:,} characters, and no more than {_LONGEST_SCHEMA:,} are taken")
        return {"type": "object", **parameters}


class Description(BaseModel):
    """A plugin's words about itself.

    Args:
        tools: At least one.
        extensions: The extensions that it speaks.
        is_single: True where it described one tool without a list: then calls don't name it.
    """

    tools: Annotated[list[PluginToolDefinition], Field(min_length=1, max_length=MOST_TOOLS)]
    extensions: frozenset[Literal["concurrent", "updates", "cancel"]] = frozenset()
    is_single: bool = False


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as the line that it is on the wire."""
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def read_description(plugin: str, said: object) -> Description:
    """Read the answer to ``describe``.

    Raises:
        PluginError: It is none, or it is larger than what is taken; says what is wrong with it.
    """
    is_single = is_object(said) and "tools" not in said
    try:
        if is_single:
            tool = PluginToolDefinition.model_validate(said)
            extensions = said.get("extensions", ()) if is_object(said) else ()
            description = Description.model_validate({"tools": [tool], "extensions": extensions, "is_single": True})
        else:
            description = Description.model_validate(said)
    except RecursionError as error:
        raise PluginError(f"plugin {plugin}: what it says of itself is nested too deeply") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"])) or "the whole"
        raise PluginError(
            f"plugin {plugin}: what it says of itself is wrong at {place}: {problem['msg']}. "
            f"It wrote: {_show_part(said)}"
        ) from error
    names = [tool.name for tool in description.tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PluginError(f"plugin {plugin}: two tools have the name '{twice[0]}': give each its own")
    return description


def read_output(said: Mapping[str, Any]) -> ToolOutput | None:
    """Read the answer to a call, or an update; None where it is neither."""
    content: Any = said.get("content")
    reason = _read_reason(said.get("error"))
    if content is None and reason:
        content = []
    if isinstance(content, str):
        content = [content]
    if not is_array(content):
        return None
    blocks = [_read_part(part) for part in content]
    if reason and reason not in "".join(block.text for block in blocks if isinstance(block, TextBlock)):
        blocks.insert(0, TextBlock(f"{reason}\n" if blocks else reason))
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    return ToolOutput(
        "".join(texts) if len(texts) == len(blocks) else tuple(blocks),
        details=said.get("details"),
        is_error=reason is not None,
    )


def _read_reason(error: object) -> str | None:
    """Return the reason that an answer gives as its error, empty where it only says so; None where there is none."""
    if not error:
        return None
    if is_object(error):
        message = error.get("message")
        return message if isinstance(message, str) else _show_part(error)
    return "" if error is True else error if isinstance(error, str) else _show_part(error)


def _read_part(part: Any) -> ContentBlock:
    """Return a part of an answer as a block; what is none of those that we know is shown as the JSON that it is."""
    block = _read_known_part(part) if is_object(part) else None
    return block or TextBlock(part if isinstance(part, str) else json.dumps(part, ensure_ascii=False))


def _read_known_part(part: Mapping[str, Any]) -> ContentBlock | None:
    kind, text, url = part.get("type"), part.get("text"), part.get("url")
    if kind == "text":
        return TextBlock(text) if isinstance(text, str) else None
    data = _decode_data(part.get("data"))
    if data is None and not isinstance(url, str):
        return None
    media_type = next((str(part[name]) for name in _MEDIA_TYPES if name in part), None)
    match kind:
        case "image":
            return ImageBlock(data, media_type=media_type or "image/png", url=url)
        case "audio":
            return None if data is None else AudioBlock(data, media_type=media_type or "audio/wav")
        case "file":
            name = str(part.get("name", "file"))
            return FileBlock(data, name=name, media_type=media_type or "application/octet-stream", url=url)
        case _:
            return None


def _decode_data(data: object) -> bytes | None:
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _show_part(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:200] + "..."
