"""Bytes of a file as text and back, honestly: what is no text in the encoding that was named is an error."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Literal

from toolkit.errors import ToolFailedError
from toolkit.foreign_text import escape_in_name, escape_in_text, is_text_encoding

__all__ = ["FileText", "decoded", "image_type", "is_binary", "searchable"]

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """The text of a file, its line ends as they are.

    Args:
        text: Without the byte order mark.
        encoding: In which it was read, and is to be written.
        mark: The byte order mark, or nothing.
    """

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def line_end(self) -> Literal["\n", "\r\n"]:
        """The line end that most lines have."""
        windows = self.text.count("\r\n")
        return "\r\n" if windows * 2 > self.text.count("\n") else "\n"

    def encoded(self, text: str, path: str) -> bytes:
        """Return what another text is in the file: same encoding, same byte order mark.

        Raises:
            ToolFailedError: The encoding can't say it.
        """
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            wrong = error.object[error.start]
            raise ToolFailedError(
                f"'{escape_in_name(path)}' is written in {self.encoding}, which has no character U+{ord(wrong):04X}. "
                "Leave it out; nothing was changed."
            ) from error


def decoded(data: bytes, path: str, encoding: str | None = None) -> FileText:
    """Return the text of a file: UTF-8, what its byte order mark says, or in the encoding that is named.

    Raises:
        ToolFailedError: It is binary, or not in that encoding; says which way there is.
    """
    mark, marked = _read_mark(data)
    if marked is not None and (encoding is None or _is_same_encoding(encoding, marked)):
        return FileText(text=_decode_file(data[len(mark) :], marked, path), encoding=marked, mark=mark)
    if encoding is not None:
        return FileText(text=_decode_file(data, encoding, path), encoding=encoding)
    if is_binary(data):
        raise ToolFailedError(
            f"'{escape_in_name(path)}' is a binary file of {len(data):,} bytes and can't be read or edited as text. "
            "If it is text in an encoding such as utf-16-le, give the argument encoding."
        )
    return FileText(text=_decode_file(data, "utf-8", path))


def searchable(data: bytes) -> str | None:
    """Return the text of a file, what is none in its encoding replaced; None of what is binary."""
    mark, marked = _read_mark(data)
    if marked is None and is_binary(data):
        return None
    return data[len(mark) :].decode(marked or "utf-8", "replace")


def is_binary(data: bytes) -> bool:
    """Return whether the start of a file holds a NUL, as no text without a byte order mark does."""
    return b"\0" in data[:_LOOKED_AT] and _read_mark(data)[1] is None


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that models can see, by its first bytes."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"BM") and data[6:10] == b"\0\0\0\0":
        return "image/bmp"
    return None


def _read_mark(data: bytes) -> tuple[bytes, str | None]:
    """Return the byte order mark, and the encoding that it stands for."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return mark, encoding
    return b"", None


def _is_same_encoding(encoding: str, marked: str) -> bool:
    try:
        return codecs.lookup(encoding).name == marked
    except (LookupError, ValueError):
        return False


def _decode_file(data: bytes, encoding: str, path: str) -> str:
    _check_encoding(encoding)
    try:
        return data.decode(encoding)
    except UnicodeError as error:
        at = ""
        if isinstance(error, UnicodeDecodeError):
            at = f" (byte 0x{data[error.start]:02x} at offset {error.start})"
        raise ToolFailedError(
            f"'{escape_in_name(path)}' is not text in {encoding}{at}. Give its encoding in the argument encoding, "
            "such as latin-1, cp1252 or shift_jis."
        ) from error


def _check_encoding(encoding: str) -> None:
    if not is_text_encoding(encoding):
        raise ToolFailedError(
            f"'{escape_in_text(encoding[:80])}' is no encoding of text that files are read in. "
            "Give one such as latin-1, cp1252 or shift_jis."
        )
