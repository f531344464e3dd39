"""One command, run to its end or to its death with all that it has started; of its output the last part is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.errors import ToolFailedError
from toolkit.runtime.processes import signal_group, start_process

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
        return _decoded(self._kept, is_cut=self.dropped > 0)

    def last(self, count: int) -> str:
        """Return the last bytes as text."""
        return _decoded(self._kept[-count:], is_cut=self.dropped > 0 or len(self._kept) > count)


def _decoded(data: bytearray, *, is_cut: bool) -> str:
    """Return bytes as text, without the rest of a character that was cut in two."""
    start = next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0) if is_cut else 0
    return data[start:].decode("utf-8", "replace")


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
        if not await anyio.Path(working_folder).is_dir():
            raise ToolFailedError(
                f"The command can't be started: the working folder {working_folder} is not there any more."
            ) from error
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
    if process.returncode is None:
        signal_group(process, "SIGCONT")  # the command may have stopped it
    with anyio.move_on_after(_PATIENCE_SECONDS):
        await process.wait()
    if process.returncode is None or process.returncode < 0:
        signal_group(process, "SIGKILL")
    await process.aclose()
