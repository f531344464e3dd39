"""Workers as processes, as they are deployed: started, killed, frozen, and started again."""

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).parents[2]

_APP = """
from pathlib import Path
from tests.durable.desk import make_desk

desk = make_desk(Path({folder!r}))
"""


def write_app(folder: Path, text: str = _APP) -> Path:
    """Write the module that workers import; return its path."""
    app = folder / "app.py"
    app.write_text(text.format(folder=str(folder)))
    return app


class WorkerProcess:
    """One worker: ``toolkit worker app.py:desk``."""

    def __init__(self, app: Path, url: str, *options: str, lease: float = 1.0, log: Path | None = None) -> None:
        command = [sys.executable, "-m", "toolkit", "worker", f"{app}:desk", "--database", url]
        self._log = (log or app.with_name("worker.log")).open("ab")
        self.process = subprocess.Popen(
            [*command, "--lease", str(lease), *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"},
            cwd=app.parent,
        )

    def wait_until_ready(self, timeout: float = 180.0) -> None:
        """Return when it moves runs."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(timeout), "the worker did not come up"
        line = self.process.stdout.readline()
        assert line.startswith(b"worker "), Path(self._log.name).read_text()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without a word."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(120)
        self._close()

    def end(self, timeout: float = 180.0) -> int:
        """Tell it to end; return its exit code."""
        self.process.terminate()
        return self.wait_for_end(timeout)

    def wait_for_end(self, timeout: float = 180.0) -> int:
        """Return the exit code of one that was told to end: told again at its last moment it would be killed."""
        code = self.process.wait(timeout)
        self._close()
        return code

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()


def start_workers(count: int, app: Path, url: str, *options: str, lease: float = 1.0) -> list[WorkerProcess]:
    """Return workers that are ready."""
    workers = [WorkerProcess(app, url, *options, lease=lease) for _ in range(count)]
    deadline = time.monotonic() + 180
    for worker in workers:
        worker.wait_until_ready(max(1.0, deadline - time.monotonic()))
    return workers
