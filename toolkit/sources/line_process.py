"""A process with a line protocol: its answers, and its log."""

from __future__ import annotations

import logging
from collections import deque

from toolkit.redaction import Redact
from toolkit.runtime.processes import LineReader, SupervisedProcess, describe_end

LONGEST_LINE = 32 * 1024 * 1024
_LONGEST_LOG_LINE = 2_000
_LONGEST_ERROR_LINE = 10_000
_LINES_KEPT = 20


class LineTooLongError(Exception):
    """A line grew over `LONGEST_LINE` bytes."""


class LineProcess:
    """A supervised process, read by lines, whose standard error is logged.

    Args:
        name: Its name in logs.
        process: It has pipes to all three of its streams.
        redact: Redacts secrets from its standard error.
        logger: Takes that.
        last_words: Takes the last lines of it.
    """

    def __init__(
        self,
        name: str,
        process: SupervisedProcess,
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
        self._output = LineReader(process.output, LONGEST_LINE)
        self._errors = LineReader(process.errors, _LONGEST_ERROR_LINE)

    async def write(self, line: bytes) -> None:
        """Write a line; returns when the pipe has taken it.

        Raises:
            anyio.BrokenResourceError: The process reads no more.
        """
        await self._process.input.send(line)

    async def read(self) -> bytes | None:
        """Return the next line that it writes to standard output; None when it has closed that.

        Raises:
            LineTooLongError: The line does not end.
        """
        line = await self._output.next()
        if line is not None and len(line) > LONGEST_LINE:
            raise LineTooLongError
        return line

    async def log_errors(self) -> None:
        """Log its standard error, and store the last lines."""
        while (line := await self._errors.next()) is not None:
            # Cut behind that: a piece of a secret would not be known for one.
            text = self.redact(line.decode("utf-8", "replace").rstrip())[:_LONGEST_LOG_LINE]
            if text:
                self.last_words.append(text)
                self._logger.info("%s: %s", self.name, text)

    def describe_end(self) -> str:
        """Return how it ended, as far as is known, with its last words."""
        ended = describe_end(self._process.exit_code)
        said = " | ".join(self.last_words)[-_LONGEST_LOG_LINE:]
        return f"{ended}. Its last words: {said}" if said else ended

    async def has_ended_within(self, seconds: float) -> bool:
        """Wait that long for its end; return whether it came."""
        return await self._process.has_ended_within(seconds)

    async def end(self, *, at_once: bool = False) -> None:
        """End it with its whole group, as `SupervisedProcess.end` does, and log the rest of its standard error."""
        await self._process.end(at_once=at_once, drain=self._read_rest)

    async def _read_rest(self) -> None:
        await self._output.skip_rest()
        await self.log_errors()
