"""Tools with which a model looks at an image, and reads the files that the application provides, and no others."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock
from toolkit.errors import InvalidArgumentsError, ToolError
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool

_WHAT_TO_DO = "Describe what the image shows, with every detail that matters."


def add_image() -> FunctionTool[object, ..., Any]:
    """Return the tool ``add_image``: its output is the image itself, which the model sees in its next turn.

    The image is given by a URL (``http``, ``https``), which the provider fetches, not this process; or by a ``data:``
    URL, which is decoded here.
    """

    def add_image(
        image_url: Annotated[str, Field(description="Where the image is: an http or https URL, or a data: URL.")],
        action: Annotated[str, Field(description="What is to be done with the image.")] = _WHAT_TO_DO,
    ) -> list[TextBlock | ImageBlock]:
        """Look at an image."""
        return [TextBlock(action), _read_image(image_url.strip())]

    return tool_from_function(add_image, tags={"read"}, run_in_thread=False)


def _read_image(url: str) -> ImageBlock:
    scheme, _, rest = url.partition(":")
    if scheme.lower() in ("http", "https") and re.fullmatch(r"//([^][/\s]|\[[\da-fA-F:.]+\])\S*", rest):
        return ImageBlock(url=url)
    if scheme.lower() != "data":
        raise InvalidArgumentsError(
            f"image_url: '{url[:80]}' is no URL of an image. Give one that begins with https://, http:// or data:image."
        )
    head, _, body = rest.partition(",")
    media_type, *parameters = head.lower().split(";")
    if not media_type.startswith("image/") or parameters[-1:] != ["base64"] or not body:
        raise InvalidArgumentsError("image_url: a data: URL of an image begins with data:image/png;base64, or alike.")
    try:
        return ImageBlock(base64.b64decode(body, validate=True), media_type=media_type)
    except binascii.Error as error:
        raise InvalidArgumentsError(f"image_url: what follows the comma is not base64 ({error}).") from error


_TEXT_TYPES = frozenset({
    "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
    "application/javascript", "application/x-sh", "application/sql",
})  # fmt: skip
_MOST_FILE_BYTES = 20 * 1024 * 1024


def read_input_file(files: Mapping[str, bytes | str | Path | FileBlock]) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_input_file`` over these files; no other file can be read with it.

    Text is returned as text, images and audio as such, anything else as a file for the provider to read.

    Args:
        files: By the name under which the model asks for them: the content, text, where the file is, or a block. The
            mapping is looked at in each call, so that files can be added later. One may have at most 20 MB.
    """

    def read_input_file(
        file_name: Annotated[str, Field(description="The name of the file.")],
    ) -> str | list[ContentBlock]:
        """Read one of the user's files."""
        if not files:
            raise ToolError("No input files are there.")
        if file_name not in files:
            raise ToolError(f"There is no file '{file_name}'. These are there: {', '.join(files)}.")
        return _make_blocks(file_name, _read_content(file_name, files[file_name]))

    return tool_from_function(read_input_file, tags={"read"}, cache=False)


def _read_content(name: str, file: bytes | str | Path | FileBlock) -> bytes | str | FileBlock:
    if not isinstance(file, Path):
        return file
    try:
        return _read_file(file)
    except OSError as error:
        raise ToolError(f"The file '{name}' can't be read: {error.strerror or type(error).__name__}.") from error


def _read_file(path: Path) -> bytes:
    size = path.stat().st_size
    if size > _MOST_FILE_BYTES:
        raise ToolError(f"The file has {size:,} bytes, and at most {_MOST_FILE_BYTES:,} can be read.")
    return path.read_bytes()


def _make_blocks(name: str, file: bytes | str | FileBlock) -> str | list[ContentBlock]:
    if isinstance(file, str):
        return file
    if isinstance(file, FileBlock):
        if file.data is None:
            return [file]
        media_type, data = file.media_type, file.data
    else:
        media_type, data = mimetypes.guess_type(name)[0] or "", file
    if not media_type or media_type.startswith("text/") or media_type in _TEXT_TYPES:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass  # not the text that its name promised: it goes as it is
    if media_type.startswith("image/"):
        return [ImageBlock(data, media_type=media_type)]
    if media_type.startswith("audio/"):
        return [AudioBlock(data, media_type=media_type)]
    return [FileBlock(data, name=name, media_type=media_type or "application/octet-stream")]
