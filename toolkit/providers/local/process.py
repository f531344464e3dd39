"""The engine's process as its parent sees it: start, ready, died, stopped."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.to_thread

from toolkit.errors import ProviderError, ProviderTimeoutError

__all__ = ["EngineProcess"]

_PROGRAM = Path(__file__).with_name("engine.py")
_LONGEST_LOG = 2000


class EngineProcess:
    """A running engine; made by `start`, ended by `stop`, and by the end of this process however it comes.

    Attributes:
        url: Where it listens, on loopback.
        key: Without it the engine answers nobody: other users of the machine and web pages can't use it.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes], key: str) -> None:
        self._process = process
        self._log = log
        self.key = key
        self.url = ""

    @classmethod
    async def start(
        cls, model: Path, *, name: str, context_size: int, threads: int | None, timeout: float
    ) -> EngineProcess:
        """Return an engine that has loaded the model. On failure and on cancellation no process is left.

        Raises:
            ProviderError: It could not load the model, or not in time.
        """
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        key = secrets.token_urlsafe(24)
        settings = {"model": str(model), "context_size": context_size, "threads": threads, "key": key}
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - it returns at once; the program is our own
                [sys.executable, "-P", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Threads that spin while they wait slow each other down many times on a busy machine.
                env={**os.environ, "OMP_WAIT_POLICY": "passive"},
                start_new_session=True,  # Ctrl-C is for the parent, which then stops the engine
            )
        except OSError as error:
            log.close()
            raise ProviderError(name, f"no process for the engine: {error}") from error
        engine = cls(process, log, key)
        is_ready = False
        try:
            with anyio.fail_after(timeout):
                report = await anyio.to_thread.run_sync(engine._exchange, settings, abandon_on_cancel=True)
            if "url" not in report:
                raise ProviderError(name, engine._why_not(model, report))
            engine.url = report["url"]
            is_ready = True
        except TimeoutError as error:
            raise ProviderTimeoutError(
                name, f"the engine did not load {model} within {timeout:g} s: a larger start_timeout gives it more"
            ) from error
        finally:
            if not is_ready:
                engine.stop()
        return engine

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    async def ended_within(self, seconds: float) -> bool:
        """Whether it ends in that time: a connection is cut a moment before the process is gone."""
        try:
            await anyio.to_thread.run_sync(self._process.wait, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def stop(self) -> None:
        """End it and wait until it has ended. May be called again."""
        if self._process.poll() is None:
            self._process.kill()  # it keeps nothing, so there is nothing to finish
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _exchange(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Say what to load and read the report; an empty one where it died before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()
            with self._process.stdout as reports:
                report: dict[str, Any] = json.loads(reports.readline() or "{}")
                return report
        except (OSError, ValueError):
            return {}

    def _why_not(self, model: Path, report: dict[str, Any]) -> str:
        error = str(report.get("error", ""))
        if error.startswith(("ImportError", "OSError", "ModuleNotFoundError")):
            return (
                f"xllamacpp can't be loaded on this platform ({error}): "
                "`pip install --force-reinstall xllamacpp` installs it anew where there is a build"
            )
        self._log.seek(0)
        said = self._log.read().decode("utf-8", "replace").strip()[-_LONGEST_LOG:]
        ended = error or f"it ended with exit code {self._process.wait()}"
        return f"the engine could not load {model}: {ended}. Is it a whole GGUF file of a chat model? {said}".rstrip()
