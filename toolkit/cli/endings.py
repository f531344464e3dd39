"""How a command ends: its exit codes, and the error that ends it with one."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["CommandError", "ExitCode"]


class ExitCode(IntEnum):
    """The exit codes of the process; `docs/command_line.md` lists them."""

    DONE = 0
    FAILED = 1
    MISUSED = 2
    NOT_APPROVED = 3
    INTERRUPTED = 130
    TERMINATED = 143


class CommandError(Exception):
    """The command can't go on.

    Args:
        message: The problem, and what would be right; shown as one line.
        code: The exit code.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        self.code = code
        super().__init__(message)
