"""Supervised processes: each begins in a group of its own, and one ladder ends it with all of that group.

The ladder: close the input, wait, SIGTERM to the group, wait, SIGKILL to the group, reap, read the rest of the
pipes. Every wait has a bound, and no cancellation stops it half-way. `Patience` says how long each wait is, or leaves a
step out. A process that leaves the group escapes, unless it is started with ``keeps_orphans``.

A `SupervisedProcess` belongs to an event loop and is ended with it at the latest; a `BlockingProcess` belongs to none,
for what several event loops or threads use. Both are ended before the interpreter exits. A process that dies by SIGKILL
itself ends nothing: then the programs started here have to notice that their input is closed.

Their output is read with a bound, as its last bytes (`Tail`) or by lines (`LineReader`).
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.lowlevel import checkpoint

from toolkit.redaction import Redact
from toolkit.runtime.backend import LoopLocal

_logger = logging.getLogger("toolkit.runtime")

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
_REAP_SECONDS = 5.0  # from SIGKILL to the end: a process that waits for a disk takes longer, and is left to the system
_DRAIN_SECONDS = 1.0  # who has left the group may hold a pipe open
_EXIT_POLL_SECONDS = 0.01


def inherited_environment(allowlist: Collection[str] | None = ()) -> dict[str, str]:
    """Return the environment variables of this process that another author's program may inherit.

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


def describe_end(code: int | None) -> str:
    """Return how a process ended, by its exit code, to follow its name in a sentence: "ended with exit status 3".

    None is the code of one that has not ended: it is only known to have closed its output.
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
    """How long a process may take to end by itself before the next step of the ladder; 0 leaves a step out.

    Args:
        closed_input: Seconds from the end of its input to SIGTERM.
        sigterm: Seconds from SIGTERM to SIGKILL.
    """

    closed_input: float = 1.0
    sigterm: float = 1.0


_USUAL_PATIENCE = Patience()

NO_PATIENCE = Patience(closed_input=0, sigterm=0)
"""For a process that has nothing to finish: killed at once."""

# The supervisor ends its children by the same ladder, and must not be terminated in the middle of that.
_SUPERVISOR_PATIENCE = Patience(closed_input=_SUPERVISOR_GRACE + 6.0, sigterm=0)


class SupervisedProcess:
    """A program that runs in a process group of its own; made by `start`, ended by `end`, at the latest with its loop.

    Attributes:
        pid: The number of the process and of its group.
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

        A cancellation waits until it has started: otherwise there could be an unknown process.

        Args:
            command: The program and its arguments.
            env: All of its environment; None means this process's.
            cwd: Where it starts; None means here.
            errors: Where its standard error goes, as `subprocess` has it; None means to this process's.
            pass_fds: File descriptors that it inherits besides its three streams.
            patience: How long it may take to end.
            keeps_orphans: True if processes that leave the group are ended too, on Linux also a daemon in a session of
                its own. A small program stands between; the input of the command is then empty, its patience is fixed,
                and an end by a signal becomes the exit code 128 and more, as a shell has it.

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
            if not keeps_orphans:  # a supervisor ends by itself, when this process is gone
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
        """The pipe of its standard error, where it has one."""
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
        """End it and its group by the ladder, and close its pipes. Not to be cancelled; a second time it does nothing.

        Args:
            at_once: True leaves it no time to finish: SIGTERM is sent with the end of its input.
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
    """A program in a process group of its own that no event loop owns; its methods block, and take any thread.

    Attributes:
        pid: The number of the process and of its group.

    Args:
        command: The program and its arguments.
        env: All of its environment; None means this process's.
        cwd: Where it starts; None means here.
        has_input: False gives it an empty input, not a pipe.
        errors: Where its standard error goes, as `subprocess` has it.
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
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and every caller's command is its own
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
        """Kill it and its group, for `end` to reap; takes no time."""
        _signal_group(self.pid, "SIGKILL")

    def end(self) -> None:
        """End it and its group by the ladder, and close its pipes. May be called again."""
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
    """Take the steps between the end of the input and SIGKILL; yield after each how long to wait for the end."""
    if patience.closed_input:
        _signal_group(pid, "SIGCONT")  # stopped, it would never read the end of its input
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


# Processes to end before the interpreter exits: event loops that end in order leave none in here.
_living: dict[int, Patience] = {}


@atexit.register
def _end_at_exit() -> None:
    """Take the ladder with all at once, less its first step: the inputs close when this process is gone."""
    left = _living.copy()  # an event loop in another thread may continue
    for pid, patience in left.items():
        _signal_group(pid, "SIGTERM" if patience.sigterm else "SIGKILL")
    end = time.monotonic() + max((patience.sigterm for patience in left.values()), default=0)
    while any(_is_running(pid) for pid in left) and time.monotonic() < end:
        time.sleep(_EXIT_POLL_SECONDS)
    for pid in left:
        _signal_group(pid, "SIGKILL")


def _is_running(pid: int) -> bool:
    """Return whether a child has not ended, and leave it to be reaped by its waiter."""
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
    """Return bytes as text, without the rest of a character that was cut in two."""
    start = next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0) if is_cut else 0
    return data[start:].decode("utf-8", "replace")


_LINES_IN_A_ROW = 100


class LineReader:
    """The lines of a stream. One that is longer than `most` bytes is cut there, and the rest of it is skipped."""

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

        However many lines come at once, other tasks have their turn between them.
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
