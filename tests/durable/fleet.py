"""Workers as processes, as they are deployed: started, killed, frozen, and started again."""

import os
import signal
import sqlite3
import time
from contextlib import closing
from itertools import count
from pathlib import Path

from tests.forked import fork_process
from toolkit.cli.application import run_command_line

_APP = """
from pathlib import Path
from tests.durable.desk import make_desk

desk = make_desk(Path({folder!r}))
"""
_numbers = count(1)


def write_app(folder: Path, text: str = _APP) -> Path:
    """Write the module that workers import; return its path."""
    app = folder / "app.py"
    app.write_text(text.format(folder=str(folder)))
    return app


class WorkerProcess:
    """One worker: ``toolkit worker app.py:desk``; its log is beside the file, or in a folder."""

    def __init__(
        self, app: Path, url: str, *options: str, lease: float = 2.0, loop: str = "desk", folder: Path | None = None
    ) -> None:
        command = ["worker", f"{app}:{loop}", "--database", url, "--lease", str(lease), *options]
        self.log: Path = (folder or app.parent) / f"worker{next(_numbers)}.log"
        self.process = fork_process(run_command_line, "toolkit", command, log=self.log)

    def wait_until_ready(self, timeout: float = 180.0) -> None:
        """Return when it moves runs."""
        out, deadline = self.log.with_suffix(".out"), time.monotonic() + timeout
        while not (out.exists() and out.read_text().startswith("worker ")):
            assert self.has_not_ended, self.log.read_text()
            assert time.monotonic() < deadline, "the worker did not come up"
            time.sleep(0.01)

    @property
    def has_not_ended(self) -> bool:
        """True while its process runs."""
        return self.process.exitcode is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def freeze(self, url: str) -> None:
        """Stop it for a while, on SQLite outside of its writes: a file stays locked for as long as its writer likes."""
        _, is_file, file = url.partition("sqlite:///")
        while True:
            self.send(signal.SIGSTOP)
            if not is_file or _is_free(file):
                return
            self.send(signal.SIGCONT)
            time.sleep(0.01)

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.join(120)

    def terminate(self) -> None:
        """Tell it to end."""
        self.process.terminate()

    def end(self, timeout: float = 180.0) -> int | None:
        """Tell it to end; return its exit code."""
        self.terminate()
        return self.wait_for_end(timeout)

    def wait_for_end(self, timeout: float = 180.0) -> int | None:
        """Return the exit code of one that was told to end: told again at its last moment it would be killed."""
        self.process.join(timeout)
        return self.process.exitcode


def _is_free(file: str) -> bool:
    """Return whether nobody writes to a database of SQLite."""
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def start_workers(count: int, app: Path, url: str, *options: str, lease: float = 2.0) -> list[WorkerProcess]:
    """Return workers that are ready."""
    workers = [WorkerProcess(app, url, *options, lease=lease) for _ in range(count)]
    deadline = time.monotonic() + 180
    for worker in workers:
        worker.wait_until_ready(max(1.0, deadline - time.monotonic()))
    return workers
