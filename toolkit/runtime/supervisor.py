"""A separate program that runs one command and outlives all processes that the command starts.

It is started with ``-I -S`` in its own session, as ``supervisor.py GRACE PROGRAM ARGUMENT...``. On Linux it adopts
every orphan among its descendants, daemons in other sessions included, so that no process escapes: when the command has
ended, or the standard input closes, all remaining processes are terminated and, `GRACE` seconds later, killed. It exits
with the command's code, or 128 plus the number of the signal. It imports nothing slow, neither the library nor pathlib,
because it starts with each command.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_GIVE_UP_SECONDS = 5.0
_NOT_STARTED = 126


def run_supervisor() -> int:
    """Run the command of the arguments and return its exit code."""
    grace, command = float(sys.argv[1]), sys.argv[2:]
    _adopt_orphans()
    # This process is in the group that is terminated by signals to the group.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _ignore_signal)
    child = os.fork()
    if child == 0:
        _replace_process(command)
    # Only processes that the command starts may have the pipes open.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    code = None
    while code is None:
        readable, _, _ = select.select([0, wakes], [], [])
        if 0 in readable:
            break
        os.read(wakes, 4096)
        code = _reap_ended(child)
    _end_all(child, grace)
    return 128 + signal.SIGKILL if code is None else code


def _ignore_signal(number: int, frame: object) -> None:
    """Do nothing: Python writes the signal to the pipe."""


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - slow to import, and needed on Linux alone

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _replace_process(command: list[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell unless the command is one
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(_NOT_STARTED)


def _reap_ended(child: int) -> int | None:
    """Reap all children that have ended, and return the exit code of the command if it is one of them."""
    code = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if ended == 0:
            return code
        if ended == child:
            exit_code = os.waitstatus_to_exitcode(status)
            code = 128 - exit_code if exit_code < 0 else exit_code


def _end_all(child: int, grace: float) -> None:
    """Terminate all remaining processes, and kill those that have not ended after `grace` seconds."""
    end = time.monotonic() + grace
    while (left := _find_descendants()) and time.monotonic() < end:
        for process in left:
            _send_signal(process, signal.SIGTERM)
        time.sleep(0.02)
        _reap_ended(child)
    end = time.monotonic() + _GIVE_UP_SECONDS
    while _find_descendants() and time.monotonic() < end:
        _kill_all()
        time.sleep(0.005)
        _reap_ended(child)


def _kill_all() -> None:
    """Kill all descendants; they are stopped first, so that none starts another process meanwhile."""
    stopped: set[int] = set()
    while new := set(_find_descendants()) - stopped:
        for process in new:
            _send_signal(process, signal.SIGSTOP)
        stopped |= new
    for process in stopped:
        _send_signal(process, signal.SIGKILL)


def _find_descendants() -> list[int]:
    """Return the descendants of this process and the members of its group that have not ended."""
    here, group = os.getpid(), os.getpgrp()
    children: dict[int, list[int]] = {}
    found: set[int] = set()
    for process, parent, its_group in _list_processes():
        children.setdefault(parent, []).append(process)
        if its_group == group and process != here:
            found.add(process)
    waiting = [here, *found]
    while waiting:
        below = [process for process in children.get(waiting.pop(), ()) if process not in found]
        found.update(below)
        waiting += below
    return sorted(found)


def _list_processes() -> list[tuple[int, int, int]]:
    """Return the id, the parent and the group of each process that has not ended."""
    if not os.path.isdir("/proc/self"):  # noqa: PTH112
        return _list_by_ps()
    found: list[tuple[int, int, int]] = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent, group = file.read().rpartition(b")")[2].split()[:3]
        except OSError:
            continue  # it has ended meanwhile
        if state != b"Z":
            found.append((int(name), int(parent), int(group)))
    return found


def _list_by_ps() -> list[tuple[int, int, int]]:
    """Return the same on systems without /proc, such as macOS."""
    import subprocess  # noqa: PLC0415 - not needed on Linux, and it takes a while

    command = ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,comm="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    rows = [line.split(maxsplit=4) for line in listed.splitlines()]
    return [(int(row[0]), int(row[1]), int(row[2])) for row in rows if "Z" not in row[3] and row[4] != command[0]]


def _send_signal(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except (ProcessLookupError, PermissionError):  # it has ended, or has become another user's
        return


if __name__ == "__main__":
    sys.exit(run_supervisor())
