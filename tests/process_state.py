"""What the kernel says of a process that is not ours to wait for."""

from pathlib import Path

__all__ = ["is_running", "is_stopped"]


def is_running(process: int) -> bool:
    """Return whether a process is there, and not only waiting for its parent to take note of its end."""
    return _read_state(process) not in ("", "Z")


def is_stopped(process: int) -> bool:
    """Return whether a process is there, and waits for SIGCONT."""
    return _read_state(process) == "T"


def _read_state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
