"""One command, run to its end or to its death with all that it has started; of its output the last part is kept."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.errors import ToolFailedError
from toolkit.tools.processes import signal_group, start_process

__all__ = ["Tail", "run_command"]

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_CHUNK = 65_536
_GRACE_SECONDS = 1.0
# The supervisor's own patience, after its grace, and a bit.
_PATIENCE_SECONDS = _GRACE_SECONDS + 6.0
_DRAIN_SECONDS = 1.0


class Tail:
    """The last bytes of a stream.

    Args:
        most: How many are kept.

    Attributes:
        dropped: How many came before those that are kept.
    """

    __slots__ = ("_chunks", "_kept", "_most", "dropped")

    def __init__(self, most: int) -> None:
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self._most = most
        self.dropped = 0

    def add(self, data: bytes) -> None:
        """Take more, and let go of what is too much."""
        self._chunks.append(data)
        self._kept += len(data)
        while self._kept > self._most:
            first = self._chunks.popleft()
            over = min(self._kept - self._most, len(first))
            if over < len(first):
                self._chunks.appendleft(first[over:])
            self._kept -= over
            self.dropped += over

    def text(self) -> str:
        """Return what is kept as text; bytes that are no UTF-8 as question marks in a diamond."""
        data = b"".join(self._chunks)
        if self.dropped:
            start = next((index for index in range(min(4, len(data))) if data[index] & 0xC0 != 0x80), 0)
            data = data[start:]  # from a whole character on
        return data.decode("utf-8", "replace")

    def last(self, count: int) -> str:
        """Return the last bytes as text."""
        tail = Tail(count)
        for chunk in list(self._chunks)[-3:]:
            tail.add(chunk)
        return tail.text()


async def run_command(
    command: Sequence[str],
    *,
    working_folder: Path,
    environment: Mapping[str, str],
    timeout: float | None,
    output: Tail,
    errors: Tail,
    told: Callable[[], None],
) -> int | None:
    """Return the exit code of a command, 128 and more for a signal, when it and all that it has started are gone.

    None means that its time was over.

    What is left in the background when it ends, when its time is over or when this is cancelled, is told to end and
    after a second killed: also what ignores signals, holds the pipes or has made a session of its own (that on Linux).

    Args:
        command: The program's path and its arguments.
        working_folder: Where it runs.
        environment: All of its environment.
        timeout: Seconds; None sets no limit.
        output: Takes the standard output.
        errors: Takes the standard error.
        told: Called after each piece of either.

    Raises:
        ToolFailedError: It can't be started.
    """
    process = await _started(command, working_folder, environment)
    is_in_time = False
    try:
        await checkpoint_if_cancelled()
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as tasks:
                for stream, tail in ((process.stdout, output), (process.stderr, errors)):
                    assert stream is not None
                    tasks.start_soon(_pump, stream, tail, told)
                await process.wait()
                # All that could hold the pipes is dead, unless the command has killed its supervisor.
                tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS
            is_in_time = True
    finally:
        with anyio.CancelScope(shield=True):
            await _ended(process)
    code = process.returncode
    if not is_in_time or code is None:
        return None
    return 128 - code if code < 0 else code


async def _started(command: Sequence[str], working_folder: Path, environment: Mapping[str, str]) -> Process:
    supervised = [sys.executable, "-I", "-S", _SUPERVISOR, str(_GRACE_SECONDS), *command]
    try:
        return await start_process(supervised, cwd=working_folder, env=environment)
    except OSError as error:
        raise ToolFailedError(f"The command can't be started: {error.strerror}.") from error


async def _pump(stream: ByteReceiveStream, tail: Tail, told: Callable[[], None]) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            tail.add(await stream.receive(_CHUNK))
            told()


async def _ended(process: Process) -> None:
    """Let the supervisor end all; where it is gone or doesn't come to an end, kill its group."""
    assert process.stdin is not None
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    with anyio.move_on_after(_PATIENCE_SECONDS):
        await process.wait()
    if process.returncode is None or process.returncode < 0:
        signal_group(process, "SIGKILL")
    await process.aclose()
