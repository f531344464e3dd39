"""Lines that a person types."""

from __future__ import annotations

import sys

__all__ = ["read_answer"]


def read_answer(question: str) -> str:
    """Return the line that is typed after a question, without the spaces round it.

    Raises:
        EOFError: There is no more input.
    """
    if sys.stdin.isatty() and sys.stdout.isatty() and sys.stdout.fileno() == 1:
        return input(question).strip()
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()
