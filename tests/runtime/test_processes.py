"""Processes that are begun in a group of their own, and how they and their group are ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.process_state import is_running, is_stopped
from toolkit.runtime.processes import NO_PATIENCE, BlockingProcess, Patience, SupervisedProcess, describe_end

pytestmark = [pytest.mark.anyio, pytest.mark.real]

SHORT = Patience(closed_input=0.05, sigterm=0.05)
LONG = Patience(closed_input=60, sigterm=60)
# Each says the numbers of its processes first.
READS_ITS_INPUT = "echo $$; cat; exit 3"
IGNORES_ITS_INPUT = "sleep 600 & echo $$ $!; wait"
IGNORES_SIGNALS = "trap '' TERM; sleep 600 & echo $$ $!; wait; sleep 600"
LEAVES_A_CHILD = "trap '' TERM; sleep 600 & echo $$ $!"
LEAVES_ITS_GROUP = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"


async def start(script: str, patience: Patience) -> tuple[SupervisedProcess, list[int]]:
    process = await SupervisedProcess.start(["/bin/sh", "-c", script], patience=patience)
    return process, [int(number) for number in (await process.output.receive()).split()]


async def gone(*processes: int) -> None:
    """Wait until the processes are no more: whoever adopted them has to notice."""
    while any(is_running(process) for process in processes):  # noqa: ASYNC110
        await anyio.sleep(0.01)


@pytest.mark.parametrize(
    ("script", "patience", "ending"),
    [
        pytest.param(READS_ITS_INPUT, LONG, "ended with exit status 3", id="closing its input"),
        pytest.param(IGNORES_ITS_INPUT, Patience(closed_input=0.05, sigterm=60), "was killed by SIGTERM", id="SIGTERM"),
        pytest.param(IGNORES_SIGNALS, SHORT, "was killed by SIGKILL", id="SIGKILL"),
        pytest.param(IGNORES_ITS_INPUT, NO_PATIENCE, "was killed by SIGKILL", id="no patience"),
        pytest.param(LEAVES_A_CHILD, LONG, "ended with exit status 0", id="its own end"),
    ],
)
async def test_a_process_is_ended_by_the_mildest_step_that_does_it_and_its_group_with_it(
    script: str, patience: Patience, ending: str
) -> None:
    with anyio.fail_after(120):
        process, numbers = await start(script, patience)
        await process.end()
        assert describe_end(process.exit_code) == ending
        await gone(*numbers)
        await process.end()  # a second time there is nothing to do


async def test_a_process_that_is_stopped_goes_on_to_its_end() -> None:
    with anyio.fail_after(120):
        process, (number,) = await start("echo $$; kill -STOP $$; exit 4", LONG)
        while not is_stopped(number):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        await process.end()
    assert describe_end(process.exit_code) == "ended with exit status 4"


async def test_a_process_that_is_ended_at_once_gets_no_time_to_read_the_end_of_its_input() -> None:
    with anyio.fail_after(120):
        process, _ = await start("echo $$; sleep 600", LONG)
        await process.end(at_once=True)
    assert describe_end(process.exit_code) == "was killed by SIGTERM"


async def test_no_cancellation_stops_the_end_half_way() -> None:
    with anyio.fail_after(120):
        process, numbers = await start(IGNORES_SIGNALS, SHORT)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await process.end()
        assert describe_end(process.exit_code) == "was killed by SIGKILL"
        await gone(*numbers)


async def test_what_is_left_in_the_output_can_be_read_when_the_process_is_gone() -> None:
    rest: list[bytes] = []

    async def drain() -> None:
        rest.append(await process.output.receive())

    with anyio.fail_after(120):
        process, _ = await start("echo $$; read line; echo so long", LONG)
        await process.end(drain=drain)
    assert rest == [b"so long\n"]


async def test_who_left_the_group_and_holds_the_output_does_not_hold_the_end_up() -> None:
    with anyio.fail_after(120):
        process, (escaped,) = await start(f"{sys.executable} -c '{LEAVES_ITS_GROUP}' & wait", NO_PATIENCE)
        await process.end()
        assert is_running(escaped)
        os.kill(escaped, signal.SIGKILL)


async def test_what_leaves_the_group_is_ended_where_orphans_are_kept() -> None:
    with anyio.fail_after(120):
        process = await SupervisedProcess.start([sys.executable, "-c", LEAVES_ITS_GROUP], keeps_orphans=True)
        number = int(await process.output.receive())
        await process.end(at_once=True)
        assert not is_running(number)


async def test_a_process_has_the_environment_the_folder_and_the_files_that_it_is_given(tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    try:
        with anyio.fail_after(120):
            process = await SupervisedProcess.start(
                ["/bin/sh", "-c", f"echo $GIVEN $HOME in $(pwd); echo told > /dev/fd/{file}"],
                env={"GIVEN": "yes"},
                cwd=tmp_path,
                pass_fds=[file],
            )
            await process.wait()
            said = await process.output.receive()
            await process.end()
        assert said.decode() == f"yes in {tmp_path}\n"
        assert os.pread(file, 100, 0) == b"told\n"
    finally:
        os.close(file)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_process_that_nobody_ends_is_ended_with_its_event_loop(backend: str) -> None:
    async def main() -> list[int]:
        _, numbers = await start(IGNORES_SIGNALS, SHORT)
        return numbers

    numbers = anyio.run(main, backend=backend)
    assert not is_running(numbers[0])
    anyio.run(gone, *numbers)


def test_a_process_of_no_event_loop_is_ended_by_the_same_steps() -> None:
    process = BlockingProcess(["/bin/sh", "-c", IGNORES_SIGNALS], patience=SHORT)
    _, child = process.output.readline().split()
    process.end()
    assert describe_end(process.exit_code) == "was killed by SIGKILL"
    anyio.run(gone, int(child))
    process.end()


AT_EXIT = """
import os, sys, threading
import anyio
from toolkit.runtime.processes import NO_PATIENCE, BlockingProcess, Patience, SupervisedProcess

begun = threading.Event()

async def main():
    script = "trap '' TERM; sleep 600 & echo $$ $!; wait; sleep 600"
    process = await SupervisedProcess.start(["/bin/sh", "-c", script], patience=Patience(sigterm=0.1))
    sys.stdout.buffer.write(await process.output.receive())
    begun.set()
    await anyio.sleep_forever()

threading.Thread(target=anyio.run, args=(main,), daemon=True).start()
begun.wait()
process = BlockingProcess(["/bin/sh", "-c", "echo $$; sleep 600"], patience=NO_PATIENCE)
sys.stdout.buffer.write(process.output.readline())
sys.stdout.flush()
if os.fork() == 0:
    sys.exit()  # ends nothing of its parent's
os.wait()
assert process.exit_code is None
"""


def test_a_process_that_no_event_loop_ends_is_ended_when_the_interpreter_exits() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", AT_EXIT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stderr) == (0, "")
    numbers = [int(number) for number in done.stdout.split()]
    assert len(numbers) == 3
    anyio.run(gone, *numbers)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "closed its output"),
        (0, "ended with exit status 0"),
        (3, "ended with exit status 3"),
        (-9, "was killed by SIGKILL"),
        (-63, "was killed by signal 63"),
    ],
)
def test_an_end_is_described_in_words(code: int | None, text: str) -> None:
    assert describe_end(code) == text
