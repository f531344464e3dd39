"""The command line in a process of its own, on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Person", "sit_down"]

ROOT = Path(__file__).parents[2]
# Ctrl-C goes to whom the terminal belongs.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'toolkit', *sys.argv[1:]])"
)


class Person:
    """Who types at the terminal and reads what it shows."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self._master, self.shown = process, master, ""

    def read_until(self, pattern: str, timeout: float = 60) -> str:
        """Return all that was shown, once the pattern is in what is new."""
        start, deadline = len(self.shown), time.monotonic() + timeout
        while not re.search(pattern, self.shown[start:]):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._master], [], [], max(left, 0))
            assert ready, f"{pattern!r} was not shown, but {self.shown!r}"
            assert self._read_piece(), f"{pattern!r} was not shown before the end, but {self.shown!r}"
        return self.shown

    def type(self, text: str) -> None:
        """Type a line, and Enter."""
        os.write(self._master, f"{text}\n".encode())

    def press(self, key: str) -> None:
        """Press Ctrl with a letter."""
        os.write(self._master, bytes([ord(key.upper()) - 64]))

    def press_until(self, key: str, pattern: str) -> None:
        """Press Ctrl with a letter until a pattern is shown.

        A signal that comes when the prompt is shown, but before the program waits for a line, is taken with the next.
        """
        start = len(self.shown)
        for _ in range(30):
            self.press(key)
            while select.select([self._master], [], [], 2)[0]:
                is_open = self._read_piece()
                if re.search(pattern, self.shown[start:]):
                    return
                assert is_open, f"{pattern!r} was not shown before the end, but {self.shown!r}"
        raise AssertionError(f"{pattern!r} was not shown, but {self.shown!r}")

    def wait(self, timeout: float = 30) -> int:
        """Return the exit code, and read what was shown to the end."""
        deadline = time.monotonic() + timeout
        while True:
            ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"it does not end: {self.shown!r}"
            if not self._read_piece():
                return self.process.wait(timeout)

    def _read_piece(self) -> bool:
        """Add what is shown by now; return False where the other end is closed."""
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            piece = b""
        self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)


@contextmanager
def sit_down(arguments: Sequence[str], folder: Path, *, columns: int = 80) -> Generator[Person]:
    """Start ``python -m toolkit`` on a terminal so wide; it is killed where the block leaves it running."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Person(process, master)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.close(master)
