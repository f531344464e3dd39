"""Server-sent events: bytes in, the data of each event out."""

from __future__ import annotations

from toolkit.http_replies import ReplyTooLargeError

__all__ = ["EventReader"]

_MOST_LINE_BYTES = 32 * 2**20
_MOST_EVENT_LINES = 4_000_000


class EventReader:
    """Cuts the bytes of an event stream into the data of its events, in time linear in what comes.

    Attributes:
        is_done: True where the server has said ``[DONE]``; what follows is ignored.
    """

    def __init__(self) -> None:
        self.is_done: bool = False
        self._rest = bytearray()  # of a line that has not ended
        self._data: list[bytes] = []
        self._lines = 0

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that are now complete.

        Raises:
            ReplyTooLargeError: A line has no end, or there are too many.
        """
        end = received.rfind(b"\n")
        self._rest += received[: end + 1] if end >= 0 else received
        if len(self._rest) > _MOST_LINE_BYTES:
            raise ReplyTooLargeError(f"a line of the stream is larger than {_MOST_LINE_BYTES} bytes")
        if end < 0:
            return []
        lines = bytes(self._rest[:-1]).split(b"\n")
        self._rest = bytearray(received[end + 1 :])
        self._lines += len(lines)
        if self._lines > _MOST_EVENT_LINES:
            raise ReplyTooLargeError(f"the stream has more than {_MOST_EVENT_LINES} lines")
        complete: list[bytes] = []
        for line in lines:
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text and self._data and not self.is_done:
                data = b"\n".join(self._data)
                self._data.clear()
                if data.startswith(b"[DONE]"):
                    self.is_done = True
                else:
                    complete.append(data)
        return complete
