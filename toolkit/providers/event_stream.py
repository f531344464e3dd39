"""Server-sent events: bytes in, the data of each event out."""

from __future__ import annotations

__all__ = ["EventReader"]


class EventReader:
    """Cuts the bytes of an event stream into the data of its events.

    Attributes:
        is_done: Whether the server has said ``[DONE]``; what follows is ignored.
    """

    def __init__(self) -> None:
        self.is_done: bool = False
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that are now complete."""
        *lines, self._rest = (self._rest + received).split(b"\n")
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
