"""One command, run to its end or to its death with all that it has started; of its output the last part is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.errors import ToolFailedError
from toolkit.runtime.processes import SupervisedProcess, Tail

__all__ = ["run_command"]

_CHUNK_BYTES = 65_536
_PIPE_SECONDS = 1.0


async def run_command(
    command: Sequence[str],
    *,
    working_folder: Path,
    environment: Mapping[str, str],
    timeout: float | None,
    output: Tail,
    errors: Tail,
    on_output: Callable[[], None],
) -> int | None:
    """Return the exit code of a command, 128 and more for a signal, when it and all that it has started are gone.

    None means that its time was over.

    Processes that it left in the background are told to end, and killed after a second, when it ends, when its time is
    over or when this is cancelled: also those that ignore signals, hold the pipes or, on Linux, have a session of their
    own.

    Args:
        command: The program's path and its arguments.
        working_folder: Where it runs.
        environment: All of its environment.
        timeout: Seconds; None sets no limit.
        output: Takes the standard output.
        errors: Takes the standard error.
        on_output: Called after each piece of either.

    Raises:
        ToolFailedError: It can't be started.
    """
    process = await _start_command(command, working_folder, environment)
    is_in_time = False
    try:
        await checkpoint_if_cancelled()
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as tasks:
                for stream, tail in ((process.output, output), (process.errors, errors)):
                    tasks.start_soon(_read_to_tail, stream, tail, on_output)
                await process.wait()
                # All that could hold the pipes is dead, unless the command has killed its supervisor.
                tasks.cancel_scope.deadline = anyio.current_time() + _PIPE_SECONDS
            is_in_time = True
    finally:
        await process.end()
    code = process.exit_code
    if not is_in_time or code is None:
        return None
    return 128 - code if code < 0 else code


async def _start_command(
    command: Sequence[str], working_folder: Path, environment: Mapping[str, str]
) -> SupervisedProcess:
    try:
        return await SupervisedProcess.start(command, cwd=working_folder, env=environment, keeps_orphans=True)
    except OSError as error:
        if not await anyio.Path(working_folder).is_dir():
            raise ToolFailedError(
                f"The command can't be started: the working folder {working_folder} is not there any more."
            ) from error
        raise ToolFailedError(f"The command can't be started: {error.strerror}.") from error


async def _read_to_tail(stream: ByteReceiveStream, tail: Tail, on_output: Callable[[], None]) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            tail.add(await stream.receive(_CHUNK_BYTES))
            on_output()
