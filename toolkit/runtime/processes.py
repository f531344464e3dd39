"""Processes with all that they start: begun in a group of their own, and ended with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

if TYPE_CHECKING:
    from anyio.abc import Process

__all__ = ["ending_of", "inherited_environment", "signal_group", "start_process"]

# What programs need to find themselves and others, and to speak the user's language; none of it is a secret.
_INHERITED = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)


def inherited_environment(allowlist: Collection[str] | None = ()) -> dict[str, str]:
    """Return what a program that is not the application's own may inherit of this process's environment.

    Args:
        allowlist: Variables besides the few that every program needs; None gives all.
    """
    if allowlist is None:
        return dict(os.environ)
    return {
        name: value
        for name, value in os.environ.items()
        if name in allowlist or name.upper() in _INHERITED or name.startswith("LC_")
    }


async def start_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    errors: int | None = subprocess.PIPE,
) -> Process:
    """Start a program in a group of its own, with pipes to its input and from its output.

    A cancellation waits until it has started: cancelled in the middle, a process would be there that nobody knows.

    Args:
        command: The program and its arguments.
        env: All of its environment; None means this process's.
        cwd: Where it starts; None means here.
        errors: Where its standard error goes, as `subprocess` has it; None means to this process's.

    Raises:
        OSError: It can't be started.
    """
    process: Process | None = None
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    assert process is not None
    return process


def signal_group(process: Process, name: Literal["SIGTERM", "SIGKILL", "SIGCONT"]) -> None:
    """Send a signal to a process and what it started in its group; nothing where they are gone already."""
    try:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.Signals[name])
    except (ProcessLookupError, PermissionError):  # gone already; the latter is what macOS says
        pass


def ending_of(code: int | None) -> str:
    """Say how a process ended, by its exit code; None is one that has not, and says no more."""
    if code is None:
        return "closed its output"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
