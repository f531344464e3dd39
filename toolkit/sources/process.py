"""A process that is spoken to in lines: what it answers and what it logs, and its end with all that it started."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from toolkit.runtime.processes import ending_of, signal_group
from toolkit.secrets import Redact

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, Process

__all__ = ["LONGEST_LINE", "LineProcess", "LineTooLongError"]

LONGEST_LINE = 32 * 1024 * 1024
_LONGEST_LOG_LINE = 2_000
_LONGEST_LOOKED_AT = 10_000
_LINES_KEPT = 20
_PATIENCE = 1.0


class LineTooLongError(Exception):
    """A line grew over `LONGEST_LINE` bytes."""


class LineProcess:
    """A running process, begun in a group of its own by `start_process`, and ended by `end`.

    Args:
        name: What logs call it.
        process: It has pipes to all three of its streams.
        redact: What strikes secrets out of what it writes to standard error.
        logger: Takes that.
        last_words: Takes the last lines of it.
    """

    def __init__(
        self,
        name: str,
        process: Process,
        *,
        redact: Redact,
        logger: logging.Logger,
        last_words: deque[str] | None = None,
    ) -> None:
        self.last_words: deque[str] = deque(maxlen=_LINES_KEPT) if last_words is None else last_words
        self.name = name
        self.redact = redact
        self._logger = logger
        self._process = process
        self._output = _Lines(process.stdout, LONGEST_LINE)
        self._errors = _Lines(process.stderr, _LONGEST_LOOKED_AT)

    async def write(self, line: bytes) -> None:
        """Write a line; returns when the pipe has taken it.

        Raises:
            anyio.BrokenResourceError: The process reads no more.
        """
        assert self._process.stdin is not None
        await self._process.stdin.send(line)

    async def read(self) -> bytes | None:
        """Return the next line that it writes to standard output; None when it has closed that.

        Raises:
            LineTooLongError: The line does not end.
        """
        line = await self._output.next()
        if line is not None and len(line) > LONGEST_LINE:
            raise LineTooLongError
        return line

    @property
    def has_begun_line(self) -> bool:
        """Whether it has written the beginning of a line to standard output, and not its end."""
        return self._output.has_begun

    async def log_errors(self) -> None:
        """Log what it writes to standard error, and keep the last of it."""
        while (line := await self._errors.next()) is not None:
            # Cut behind that: a piece of a secret would not be known for one.
            text = self.redact(line.decode("utf-8", "replace").rstrip())[:_LONGEST_LOG_LINE]
            if text:
                self.last_words.append(text)
                self._logger.info("%s: %s", self.name, text)

    def describe_end(self) -> str:
        """Say how it ended, as far as is known, with its last words."""
        ended = ending_of(self._process.returncode)
        said = " | ".join(self.last_words)[-_LONGEST_LOG_LINE:]
        return f"{ended}. Its last words: {said}" if said else ended

    async def ended_within(self, seconds: float) -> bool:
        """Wait that long for its end; return whether it came."""
        with anyio.move_on_after(seconds):
            await self._process.wait()
            return True
        return False

    async def end(self, *, at_once: bool = False) -> None:
        """End it and all processes of its group: by closing its input, then by TERM, then by KILL. Never cancelled.

        With `at_once` it is not left the time to finish what it is at.
        """
        with anyio.CancelScope(shield=True):
            if self._process.stdin is not None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    await self._process.stdin.aclose()
            if at_once or not await self.ended_within(_PATIENCE):
                signal_group(self._process, "SIGTERM")
                await self.ended_within(_PATIENCE)
            # What it started may be left, also when it ended by itself or was killed by others.
            signal_group(self._process, "SIGKILL")
            await self._process.wait()
            # A pipe is closed when it has been read to its end. Who has left the group may still hold one.
            with anyio.move_on_after(_PATIENCE):
                await self._output.drain()
                await self.log_errors()
            await self._process.aclose()


class _Lines:
    """The lines of a stream. One that is longer than `most` bytes is cut there, and what follows of it is skipped."""

    __slots__ = ("_begun", "_is_cut", "_most", "_ready", "_stream")

    def __init__(self, stream: ByteReceiveStream | None, most: int) -> None:
        assert stream is not None
        self._stream = stream
        self._most = most
        self._ready: deque[bytes] = deque()
        self._begun = bytearray()
        self._is_cut = False

    @property
    def has_begun(self) -> bool:
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
            self._take(chunk)
        return self._ready.popleft()

    def _take(self, chunk: bytes) -> None:
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

    async def drain(self) -> None:
        """Read what is left, for nobody."""
        while await self.next() is not None:
            pass
