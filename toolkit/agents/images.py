"""A tool with which a model has an image shown to it."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any

from pydantic import Field

from toolkit.chat import ImageBlock, TextBlock
from toolkit.errors import InvalidArgumentsError
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool

__all__ = ["add_image"]

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
