"""The output of a process, read with a bound: its last bytes, or its lines."""

from __future__ import annotations

from collections import deque

import anyio
from anyio.abc import ByteReceiveStream

__all__ = ["LineReader", "Tail"]


class Tail:
    """The last bytes of a stream.

    Args:
        most: How many are kept.

    Attributes:
        dropped: How many came before those that are kept.
    """

    __slots__ = ("_kept", "_most", "dropped")

    def __init__(self, most: int) -> None:
        self._kept = bytearray()
        self._most = most
        self.dropped: int = 0

    def add(self, data: bytes) -> None:
        """Take more, and let go of what is too much."""
        self._kept += data
        over = max(len(self._kept) - self._most, 0)
        del self._kept[:over]
        self.dropped += over

    def text(self) -> str:
        """Return what is kept as text; bytes that are no UTF-8 as question marks in a diamond."""
        return _decode_end(self._kept, is_cut=self.dropped > 0)

    def last(self, count: int) -> str:
        """Return the last bytes as text."""
        return _decode_end(self._kept[-count:], is_cut=self.dropped > 0 or len(self._kept) > count)


def _decode_end(data: bytearray, *, is_cut: bool) -> str:
    """Return bytes as text, without the rest of a character that was cut in two."""
    start = next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0) if is_cut else 0
    return data[start:].decode("utf-8", "replace")


class LineReader:
    """The lines of a stream. One that is longer than `most` bytes is cut there, and what follows of it is skipped."""

    __slots__ = ("_begun", "_is_cut", "_most", "_ready", "_stream")

    def __init__(self, stream: ByteReceiveStream, most: int) -> None:
        self._stream = stream
        self._most = most
        self._ready: deque[bytes] = deque()
        self._begun = bytearray()
        self._is_cut = False

    @property
    def has_begun_line(self) -> bool:
        """True where the beginning of a line has come, and not its end."""
        return bool(self._begun) or self._is_cut

    async def next(self) -> bytes | None:
        """Return the next line without its end; None at the end of the stream."""
        while not self._ready:
            try:
                chunk = await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                last = bytes(self._begun)
                self._begun.clear()
                return last or None
            self._split_chunk(chunk)
        return self._ready.popleft()

    def _split_chunk(self, chunk: bytes) -> None:
        *ended, begun = chunk.split(b"\n")
        for piece in ended:
            if not self._is_cut:
                self._ready.append(bytes(self._begun + piece))
            self._is_cut = False
            self._begun.clear()
        if self._is_cut:
            return
        self._begun += begun
        if len(self._begun) > self._most:
            self._ready.append(bytes(self._begun))
            self._begun.clear()
            self._is_cut = True

    async def skip_rest(self) -> None:
        """Read what is left, for nobody."""
        while await self.next() is not None:
            pass
