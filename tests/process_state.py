"""What the kernel says of a process that is not ours to wait for."""

from pathlib import Path

__all__ = ["is_running"]


def is_running(process: int) -> bool:
    """Return whether a process is there, and not only waiting for its parent to take note of its end."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
