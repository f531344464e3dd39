"""The blocks that messages are made of: plain values, no behaviour beyond reading themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import Any, Literal, TypeAlias

from toolkit.dataclass import dataclass

__all__ = [
    "AssistantContent",
    "AudioBlock",
    "ContentBlock",
    "FileBlock",
    "ImageBlock",
    "ReasoningBlock",
    "TextBlock",
    "ToolCall",
]

_BYTES_AS_BASE64: Any = {"ser_json_bytes": "base64", "val_json_bytes": "base64", "extra": "forbid"}


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text."""

    text: str
    _: KW_ONLY
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image: either its bytes or a URL.

    Args:
        data: The encoded image file, or None where `url` says where it is.
        media_type: Such as ``image/png``.
        url: Where the provider can fetch it.
    """

    __pydantic_config__ = _BYTES_AS_BASE64

    data: bytes | None = None
    _: KW_ONLY
    media_type: str = "image/png"
    url: str | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class AudioBlock:
    """A sound: the bytes of an audio file, such as ``audio/wav``."""

    __pydantic_config__ = _BYTES_AS_BASE64

    data: bytes
    _: KW_ONLY
    media_type: str = "audio/wav"
    type: Literal["audio"] = "audio"


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A file: its bytes, or a URL where the provider can fetch it."""

    __pydantic_config__ = _BYTES_AS_BASE64

    data: bytes | None = None
    _: KW_ONLY
    name: str = "file"
    media_type: str = "application/octet-stream"
    url: str | None = None
    type: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningBlock:
    """The thoughts of the model, as far as its provider shows it.

    Args:
        text: The readable part; may be empty.
        signature: The provider's seal on the text, sent back untouched.
        encrypted: The part that the provider hides from the reader, sent back untouched.
        id: The provider's name for the block, where it has one.
    """

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    id: str | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call that a model asked for.

    Args:
        id: The model's name for this call; its result carries the same.
        name: The tool, as the model wrote it.
        arguments: JSON text, as the model wrote it: it may be malformed.
        extra: Data that the provider wants back with the call (a thought signature), untouched.
    """

    id: str
    name: str
    arguments: str
    _: KW_ONLY
    extra: Mapping[str, Any] | None = None
    type: Literal["call"] = "call"


ContentBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock | FileBlock
"""The blocks that a user or a tool may send."""

AssistantContent: TypeAlias = TextBlock | ReasoningBlock | ImageBlock | AudioBlock | FileBlock | ToolCall
"""The blocks that a model may send."""
