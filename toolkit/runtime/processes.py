"""Supervised processes: each starts in its own process group, which is ended with it in fixed steps.

The steps: close the input, wait, SIGTERM to the group, wait, SIGKILL to the group, reap, read the rest of the pipes.
Every wait is bounded, and no cancellation interrupts the steps. `Patience` sets how long each wait is, or skips a step.
A process that leaves the group escapes, unless it is started with ``keeps_orphans``.

A `SupervisedProcess` belongs to an event loop and is ended with it at the latest; a `BlockingProcess` belongs to none,
and several event loops or threads may use it. Both are ended before the interpreter exits. If this process is killed by
SIGKILL, it ends nothing: the programs started here have to notice that their input is closed.

The output is read within bounds, as its last bytes (`Tail`) or by lines (`LineReader`).
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, BinaryIO, Literal, Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.lowlevel import checkpoint

from toolkit.dataclass import dataclass
from toolkit.foreign_text import strip_hidden
from toolkit.logs import get_logger
from toolkit.redaction import Redact
from toolkit.runtime.backend import LoopLocal

_logger = get_logger("toolkit.runtime")

# Variables with which programs find files and the user's language; none of them is secret.
_INHERITED = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)
_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_SUPERVISOR_GRACE = 1.0
_REAP_SECONDS = 5.0  # from SIGKILL to the end; a process that waits for a disk takes longer, and is left to the system
_DRAIN_SECONDS = 1.0  # a process that has left the group may keep a pipe open
_EXIT_POLL_SECONDS = 0.01


def inherited_environment(allowlist: Collection[str] | None = ()) -> dict[str, str]:
    """Return the environment variables of this process that a program of somebody else may inherit.

    Args:
        allowlist: Variables besides the few that every program needs; None passes all.
    """
    if allowlist is None:
        return dict(os.environ)
    return {
        name: value
        for name, value in os.environ.items()
        if name in allowlist or name.upper() in _INHERITED or name.startswith("LC_")
    }


def take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the standard input and output of this process, for a protocol.

    The code that it runs, and its children, get an empty input and the standard error in their place.
    """
    sys.stdout.flush()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return requests, answers


def describe_end(code: int | None) -> str:
    """Return how a process ended, as a predicate: "ended with exit status 3".

    The code None means that it has closed its output and has not ended.
    """
    if code is None:
        return "closed its output"
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a process may take to end by itself before the next step; 0 skips a step.

    Args:
        closed_input: Seconds from the end of its input to SIGTERM.
        sigterm: Seconds from SIGTERM to SIGKILL.
    """

    closed_input: float = 1.0
    sigterm: float = 1.0


_USUAL_PATIENCE = Patience()

NO_PATIENCE = Patience(closed_input=0, sigterm=0)
"""For a process that has nothing to finish: killed at once."""

# The supervisor ends its children in the same steps, and must not be terminated meanwhile.
_SUPERVISOR_PATIENCE = Patience(closed_input=_SUPERVISOR_GRACE + 6.0, sigterm=0)


class SupervisedProcess:
    """A program that runs in its own process group; created by `start`, ended by `end` or with its event loop.

    Attributes:
        pid: The id of the process and of its group.
    """

    def __init__(self, process: Process, patience: Patience) -> None:
        self.pid = process.pid
        self._process = process
        self._patience = patience
        self._is_over = False

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        errors: int | None = subprocess.PIPE,
        pass_fds: Sequence[int] = (),
        patience: Patience = _USUAL_PATIENCE,
        keeps_orphans: bool = False,
    ) -> Self:
        """Start a program, with pipes to its input and from its output.

        A cancellation waits until it has started, so that no unknown process remains.

        Args:
            command: The program and its arguments.
            env: Its whole environment; None for that of this process.
            cwd: Its working directory; None for that of this process.
            errors: The destination of its standard error, as for `subprocess`; None for that of this process.
            pass_fds: The file descriptors that it inherits besides its three streams.
            patience: How long it may take to end.
            keeps_orphans: True to end also processes that leave the group, on Linux even daemons in other sessions. A
                supervising program then runs the command: its input is empty, its patience is fixed, and the exit code
                for a signal is 128 plus its number, as in a shell.

        Raises:
            OSError: It can't be started.
        """
        if keeps_orphans:
            command = [sys.executable, "-I", "-S", _SUPERVISOR, str(_SUPERVISOR_GRACE), *command]
            patience = _SUPERVISOR_PATIENCE
        started: Self | None = None
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                cwd=cwd,
                start_new_session=True,
                pass_fds=pass_fds,
            )
            started = cls(process, patience)
            if not keeps_orphans:  # a supervisor ends by itself, when this process has ended
                _living[started.pid] = patience
            _loop_processes.get().add(started)
        assert started is not None
        return started

    @property
    def input(self) -> ByteSendStream:
        """The pipe that it reads from."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def output(self) -> ByteReceiveStream:
        """The pipe that it writes to."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def errors(self) -> ByteReceiveStream:
        """The pipe of its standard error, if it has one."""
        assert self._process.stderr is not None
        return self._process.stderr

    @property
    def exit_code(self) -> int | None:
        """The code that it ended with, below 0 for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> None:
        """Wait until it has ended by itself."""
        await self._process.wait()

    async def has_ended_within(self, seconds: float) -> bool:
        """Wait that long for its end; return whether it came."""
        with anyio.move_on_after(seconds):
            await self._process.wait()
            return True
        return False

    async def end(self, *, at_once: bool = False, drain: Callable[[], Awaitable[object]] | None = None) -> None:
        """End it and its group step by step, and close its pipes. It can't be cancelled; another call does nothing.

        Args:
            at_once: True to send SIGTERM when its input is closed, without time to finish.
            drain: Reads the rest of its output when it has ended; None discards it.
        """
        if self._is_over:
            return
        self._is_over = True
        # A supervisor is notified only by the end of its input.
        is_hurried = at_once and self._patience.sigterm > 0
        patience = replace(self._patience, closed_input=0) if is_hurried else self._patience
        with anyio.CancelScope(shield=True):
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self.input.aclose()
            for seconds in _descend_ladder(self.pid, patience):
                if await self.has_ended_within(seconds):
                    break
            # Its children may be left, also when it ended by itself or was killed by others.
            _signal_group(self.pid, "SIGKILL")
            if await self.has_ended_within(_REAP_SECONDS):
                # A pipe is closed when it has been read to its end.
                with anyio.move_on_after(_DRAIN_SECONDS):
                    await (drain or self._skip_output)()
                await self._process.aclose()
            else:
                _logger.error("process %s does not end %g s after SIGKILL, and is left", self.pid, _REAP_SECONDS)
            _living.pop(self.pid, None)
            processes = _loop_processes.find()
            if processes is not None:
                processes.discard(self)

    async def _skip_output(self) -> None:
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    while True:
                        await stream.receive()


async def _end_all(processes: set[SupervisedProcess]) -> None:
    for process in tuple(processes):
        await process.end()


_loop_processes: LoopLocal[set[SupervisedProcess]] = LoopLocal(set[SupervisedProcess], _end_all)


class BlockingProcess:
    """A program in its own process group that no event loop owns; its methods block, and work in any thread.

    Attributes:
        pid: The id of the process and of its group.

    Args:
        command: The program and its arguments.
        env: Its whole environment; None for that of this process.
        cwd: Its working directory; None for that of this process.
        has_input: False for an empty input in place of a pipe.
        errors: The destination of its standard error, as for `subprocess`.
        patience: How long it may take to end.

    Raises:
        OSError: It can't be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        has_input: bool = True,
        errors: int | IO[bytes] = subprocess.DEVNULL,
        patience: Patience = _USUAL_PATIENCE,
    ) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and callers write their commands
            command,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._patience = patience
        _living[self.pid] = patience

    @property
    def input(self) -> IO[bytes]:
        """The pipe that it reads from."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def output(self) -> IO[bytes]:
        """The pipe that it writes to."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def exit_code(self) -> int | None:
        """The code that it ended with, below 0 for a signal; None while it runs."""
        return self._process.poll()

    def has_ended_within(self, seconds: float) -> bool:
        """Wait that long for its end; return whether it came."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill it and its group without waiting; `end` reaps it."""
        _signal_group(self.pid, "SIGKILL")

    def end(self) -> None:
        """End it and its group step by step, and close its pipes. May be called again."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        for seconds in _descend_ladder(self.pid, self._patience):
            if self.has_ended_within(seconds):
                break
        self.kill()
        if not self.has_ended_within(_REAP_SECONDS):
            _logger.error("process %s does not end %g s after SIGKILL, and is left", self.pid, _REAP_SECONDS)
        with suppress(OSError):
            self.output.close()
        _living.pop(self.pid, None)


def _descend_ladder(pid: int, patience: Patience) -> Generator[float]:
    """Execute the steps between the end of the input and SIGKILL; yield after each how long to wait for the end."""
    if patience.closed_input:
        _signal_group(pid, "SIGCONT")  # a stopped one would never read the end of its input
        yield patience.closed_input
    if patience.sigterm:
        _signal_group(pid, "SIGTERM")
        yield patience.sigterm


def _signal_group(pid: int, name: Literal["SIGTERM", "SIGKILL", "SIGCONT"]) -> None:
    """Send a signal to a process and its children in its group, if they exist."""
    with suppress(ProcessLookupError, PermissionError):  # gone already; the latter on macOS
        if sys.platform != "win32":
            os.killpg(pid, signal.Signals[name])
        elif name != "SIGCONT":
            os.kill(pid, signal.SIGTERM)


# The processes to end before the interpreter exits; event loops that are closed leave none.
_living: dict[int, Patience] = {}


@atexit.register
def _end_at_exit() -> None:
    """End all at once, without the first step: the inputs are closed when this process ends."""
    left = _living.copy()  # an event loop in another thread may continue
    for pid, patience in left.items():
        _signal_group(pid, "SIGTERM" if patience.sigterm else "SIGKILL")
    end = time.monotonic() + max((patience.sigterm for patience in left.values()), default=0)
    while any(_is_running(pid) for pid in left) and time.monotonic() < end:
        time.sleep(_EXIT_POLL_SECONDS)
    for pid in left:
        _signal_group(pid, "SIGKILL")


def _is_running(pid: int) -> bool:
    """Return whether a child has not ended, without reaping it."""
    if sys.platform == "win32":
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_living.clear)  # they are the parent's children, not the fork's


class Tail:
    """The last bytes of a stream.

    Args:
        most: The number of bytes that are stored.

    Attributes:
        dropped: The number of bytes before those.
    """

    __slots__ = ("_data", "_most", "dropped")

    def __init__(self, most: int) -> None:
        self._data = bytearray()
        self._most = most
        self.dropped: int = 0

    def add(self, data: bytes) -> None:
        """Append data, and drop the excess."""
        self._data += data
        over = max(len(self._data) - self._most, 0)
        del self._data[:over]
        self.dropped += over

    def text(self) -> str:
        """Return the stored bytes as text, with the replacement character for bytes that are not UTF-8."""
        return _decode_end(self._data, is_cut=self.dropped > 0)

    def last(self, count: int) -> str:
        """Return the last bytes as text."""
        return _decode_end(self._data[-count:], is_cut=self.dropped > 0 or len(self._data) > count)


def _decode_end(data: bytearray, *, is_cut: bool) -> str:
    """Return bytes as text, without the rest of a character at the start."""
    start = next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0) if is_cut else 0
    return data[start:].decode("utf-8", "replace")


_LINES_IN_A_ROW = 100


class LineReader:
    """The lines of a stream. Lines longer than `most` bytes are truncated."""

    __slots__ = ("_begun", "_is_cut", "_most", "_ready", "_stream", "_taken")

    def __init__(self, stream: ByteReceiveStream, most: int) -> None:
        self._stream = stream
        self._most = most
        self._ready: deque[bytes] = deque()
        self._begun = bytearray()
        self._is_cut = False
        self._taken = 0

    async def next(self) -> bytes | None:
        """Return the next line without its end; None at the end of the stream.

        Other tasks run between the lines, however many come at once.
        """
        self._taken += 1
        if self._taken % _LINES_IN_A_ROW == 0:
            await checkpoint()
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
        """Read and discard the rest."""
        while await self.next() is not None:
            pass


LONGEST_LINE = 32 * 1024 * 1024
_LINE_HEAD = 10_000
_LONGEST_LOG_LINE = 2_000
_LONGEST_ERROR_LINE = 10_000
_LINES_KEPT = 20


class LineTooLongError(Exception):
    """A line is longer than `LONGEST_LINE` bytes; the rest of it is skipped.

    Args:
        head: Its first bytes.
    """

    def __init__(self, head: bytes) -> None:
        super().__init__(f"a line has more than {LONGEST_LINE:,} bytes")
        self.head = head


class LineProcess:
    """A supervised process, read by lines, whose standard error is logged.

    Args:
        name: Its name in logs.
        process: The process, with pipes to all three of its streams.
        redact: Redacts secrets in its standard error.
        logger: Logs its standard error.
        last_words: Stores the last lines of its standard error.
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
        """Write a line, and wait until the pipe has accepted it.

        Raises:
            anyio.BrokenResourceError: The process no longer reads.
        """
        await self._process.input.send(line)

    async def read(self) -> bytes | None:
        """Return the next line of its standard output; None at the end.

        Raises:
            LineTooLongError: The line is too long.
        """
        line = await self._output.next()
        if line is not None and len(line) > LONGEST_LINE:
            raise LineTooLongError(line[:_LINE_HEAD])
        return line

    async def log_errors(self) -> None:
        """Log its standard error, and store the last lines."""
        while (line := await self._errors.next()) is not None:
            # Cut after that: a part of a secret would not be recognized.
            text = self.redact(" ".join(strip_hidden(line.decode("utf-8", "replace")).split("\n")).rstrip())[
                :_LONGEST_LOG_LINE
            ]
            if text:
                self.last_words.append(text)
                self._logger.info("%s: %s", self.name, text)

    def describe_end(self) -> str:
        """Return how it ended, as far as is known, and its last words."""
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
