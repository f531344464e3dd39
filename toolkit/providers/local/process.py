"""The engine's process as its parent sees it: start, ready, died, stopped."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.to_thread

from toolkit.errors import ProviderError, ProviderTimeoutError
from toolkit.runtime.processes import NO_PATIENCE, BlockingProcess, describe_end

__all__ = ["EngineProcess"]

_ENGINE_PROGRAM = Path(__file__).with_name("engine.py")
_LONGEST_LOG = 2000
_ENGINE_EXIT_SECONDS = 5.0  # from the end of its output to its own


class EngineProcess:
    """A running engine; made by `start`, ended by `stop`, and by the end of this process however it comes.

    No event loop owns it: a provider may be used from several, one after the other or at once.

    Attributes:
        url: Where it listens, on loopback.
        key: Without it the engine answers nobody: other users of the machine and web pages can't use it.
    """

    def __init__(self, process: BlockingProcess, log: IO[bytes], key: str) -> None:
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
            process = BlockingProcess(
                [sys.executable, "-P", str(_ENGINE_PROGRAM)],
                # Threads that spin while they wait slow each other down many times on a busy machine.
                env={**os.environ, "OMP_WAIT_POLICY": "passive"},
                errors=log,
                patience=NO_PATIENCE,
            )
        except OSError as error:
            log.close()
            raise ProviderError(name, f"no process for the engine: {error}") from error
        engine = cls(process, log, key)
        is_ready = False
        try:
            with anyio.fail_after(timeout):
                report = await anyio.to_thread.run_sync(engine._request_start, settings, abandon_on_cancel=True)
            if "url" not in report:
                raise ProviderError(name, engine._explain_failure(model, report))
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
        """The code that it ended with, below 0 for a signal; None while it runs."""
        return self._process.exit_code

    async def has_ended_within(self, seconds: float) -> bool:
        """Wait that long for its end, and return whether it came: a connection is cut a moment before that."""
        return await anyio.to_thread.run_sync(self._process.has_ended_within, seconds)

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def stop(self) -> None:
        """End it and wait until it has ended. May be called again."""
        self._process.end()
        with suppress(OSError):
            self._log.close()

    def _request_start(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Say what to load and read the report; an empty one where it died before."""
        try:
            self._process.input.write(json.dumps(settings).encode() + b"\n")
            self._process.input.flush()
            with self._process.output as reports:
                report: dict[str, Any] = json.loads(reports.readline() or "{}")
                return report
        except (OSError, ValueError):
            return {}

    def _explain_failure(self, model: Path, report: dict[str, Any]) -> str:
        error = str(report.get("error", ""))
        if error.startswith(("ImportError", "OSError", "ModuleNotFoundError")):
            return (
                f"xllamacpp can't be loaded on this platform ({error}): "
                "`pip install --force-reinstall xllamacpp` installs it anew where there is a build"
            )
        self._log.seek(0)
        said = self._log.read().decode("utf-8", "replace").strip()[-_LONGEST_LOG:]
        self._process.has_ended_within(_ENGINE_EXIT_SECONDS)
        ended = error or f"it {describe_end(self._process.exit_code)}"
        return f"the engine could not load {model}: {ended}. Is it a whole GGUF file of a chat model? {said}".rstrip()
