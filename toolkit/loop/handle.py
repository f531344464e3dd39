"""The one object behind every view of a loop, and the views: the result at once, a stream, a channel, turn by turn."""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Protocol, Self, TypeAlias, cast, overload

import anyio
from typing_extensions import TypeVar, Unpack

from toolkit.calls.approval import Approval
from toolkit.calls.registration import Ctx
from toolkit.chat import AssistantContent, ChatResponse, Message, Provider, ToolCall, ToolResult, Usage, text_of
from toolkit.chat.provider import TextDelta
from toolkit.errors import ConfigurationError, LoopUsageError, ToolCancelledError
from toolkit.logs import get_logger
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.config import (
    ANSWER_TOOL,
    DEFAULT_CONFIG,
    KEYWORDS,
    Decisions,
    LoopOptions,
    Prompt,
    SystemPrompt,
    ToolLoopConfig,
    check_keywords,
    check_messages,
    check_parts,
    check_places,
    check_prompt,
    with_options,
)
from toolkit.loop.events import Failed, LoopEvent
from toolkit.loop.feeds import Command, CommandGiven, InjectMessages
from toolkit.loop.limits import Continue, Stop
from toolkit.loop.listener import EventFeed
from toolkit.loop.outcome import Completed, Out, ResultAsAnswer, Snapshot, ToolLoopResult, TypedAnswer
from toolkit.loop.run import Run
from toolkit.runtime.backend import current_task_id, is_in_event_loop, run_in_own_loop, start_carried
from toolkit.runtime.workers import when_abandoned
from toolkit.settings import check_setting
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolkit.loop.answers import PartialAnswers

_logger = get_logger("toolkit.loop")

# Where something is called on the class itself, a checker takes the class's own variables for their defaults.
OtherCtx = TypeVar("OtherCtx")
OtherOut = TypeVar("OtherOut", default=None)


class ToolLoopHandle(Generic[Ctx, Out]):
    """A loop that can be run in several ways; creating one starts nothing.

    ::

        handle = ToolLoopHandle(provider, registry, "Analyse this")
        result = await handle.run()  # or handle.run_sync(), or one of:

        async with handle.stream() as events:
            async for event in events: ...

        while isinstance(turn := await handle.next_turn(), Yielded):
            if any("DONE" in result.text for result in turn.results):
                turn.stop("task complete")

    However it ends, `messages` has the transcript and `result` the result. It runs in one way at a time; turns may be
    stepped first and the rest be run or streamed. If it is stepped, the `timeout` counts only while a turn runs, unless
    `counts_pauses` is set.

    The other arguments are those of `tool_loop`.
    """

    _run: Run[Ctx, Out]
    _may_be_edited = False
    _owes_outcome = False

    @overload
    def __init__(
        self: ToolLoopHandle[object, None],
        provider: Provider,
        registry: ToolRegistry[object] | ToolRegistry[None],
        prompt: Prompt,
        *,
        ctx: None = None,
        counts_pauses: bool = False,
        **options: Unpack[LoopOptions[None]],
    ) -> None: ...
    @overload
    def __init__(
        self: ToolLoopHandle[object, OtherOut],
        provider: Provider,
        registry: ToolRegistry[object] | ToolRegistry[None],
        prompt: Prompt,
        *,
        ctx: None = None,
        counts_pauses: bool = False,
        **options: Unpack[LoopOptions[OtherOut]],
    ) -> None: ...
    @overload
    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        prompt: Prompt,
        *,
        ctx: Ctx,
        counts_pauses: bool = False,
        **options: Unpack[LoopOptions[Out, Ctx]],
    ) -> None: ...
    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Any],
        prompt: Prompt,
        *misplaced: object,
        ctx: Any = None,
        config: ToolLoopConfig[Any] | None = None,
        system_prompt: SystemPrompt[Any] = "",
        decisions: Decisions | None = None,
        counts_pauses: bool = False,
        **misspelled: object,
    ) -> None:
        if misplaced:
            check_places(misplaced)
        if misspelled:
            check_keywords(misspelled)
        check_parts(provider, registry, prompt, config)
        if isinstance(prompt, dict):
            if system_prompt:
                raise ConfigurationError("a snapshot has its system prompt already: leave system_prompt out")
            self._run = _restore_run(prompt, provider, registry, ctx, config, counts_pauses=counts_pauses)
        else:
            request = check_prompt(prompt, system_prompt)
            config = config or DEFAULT_CONFIG
            if config.request_options:
                request = with_options(request, config.request_options)
            self._run = Run(provider, registry, request, ctx, config, counts_pauses=counts_pauses)
            if not isinstance(system_prompt, str):
                self._run.prompt_function = system_prompt
        if decisions:
            asked: list[dict[str, str]] = prompt["pending_approvals"] if isinstance(prompt, dict) else []
            self._run.approvals.decide_saved(decisions, {each["call_id"]: each["binding"] for each in asked})
            self._run.reset_outcome()

    @classmethod
    def restore(
        cls,
        snapshot: Snapshot,
        provider: Provider,
        registry: ToolRegistry[OtherCtx],
        *,
        ctx: OtherCtx,
        config: ToolLoopConfig[OtherOut] | None = None,
        counts_pauses: bool = False,
        messages: Sequence[Message] | None = None,
    ) -> ToolLoopHandle[OtherCtx, OtherOut]:
        """Restore a saved loop, in this or another process; nothing that had run when it was saved runs again.

        Each call that has not run yet is prepared again. If its tool, its definition, its arguments or a default has
        changed since the call was decided on, somebody has to decide again.

        A snapshot is plain data, which can be read twice: two processes that restore the same one run its calls twice.
        Its store must return each snapshot only once, for example with ``DELETE ... RETURNING``.

        Args:
            snapshot: The value that `snapshot` returned, or `ToolLoopResult.snapshot`; decoded JSON.
            provider: Talks to the model.
            registry: The tools; those of open calls must be there.
            ctx: The context, which is never saved.
            config: The settings, which are not saved either; with the `signing_key` that the snapshot was sealed with.
            counts_pauses: As for a new handle; the time since it was saved does not count.
            messages: Messages to continue with, also if the loop had ended: its usage, its middleware's state and the
                ids of its calls are kept, and `max_iterations` and `timeout` start anew. An empty list asks again
                without a new message; None leaves a loop that has ended as it is.

        Raises:
            LoopUsageError: It is no snapshot, of another version, was changed, is not sealed with the key, a tool of
                its open calls is gone, or a secret among the request's options is not in `config.request_options`; or
                it awaits decisions, and there are messages.
            TranscriptError: The messages leave a call without its result, or repeat a call's id.
        """
        if messages is not None:
            check_messages("the messages to go on with", messages)
        handle = object.__new__(cast("type[ToolLoopHandle[OtherCtx, OtherOut]]", cls))
        check_parts(provider, registry, snapshot, config)
        handle._run = _restore_run(
            snapshot, provider, registry, ctx, config, counts_pauses=counts_pauses, messages=messages
        )
        return handle

    # its state

    @property
    def messages(self) -> list[Message]:
        """The transcript. Between turns it may be edited, as long as it stays valid.

        While calls await a decision, it is a copy in which they are answered as not started. With a journal, it is
        always a copy.
        """
        run = self._run
        if run.log is not None:
            return list(run.state.settled_messages())
        if run.state.open_calls and not run.is_running:
            return run.state.settled_messages()
        self._may_be_edited = True
        return run.state.messages

    @property
    def turn(self) -> int:
        """The number of turns that were stepped."""
        return self._run.turn

    @property
    def loop_id(self) -> str:
        """The id that its events carry."""
        return self._run.loop_id

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._run.state.usage

    @property
    def iterations(self) -> int:
        """How many requests were made."""
        return self._run.state.iterations

    @property
    def is_finished(self) -> bool:
        """True if the last outcome was the end."""
        return self._run.outcome is not None and not self._owes_outcome

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result of the loop; also after it was cancelled, or a stream of it was left.

        Raises:
            LoopUsageError: It has not ended.
            Exception: It failed; the same error as in `Failed`.
        """
        if isinstance(self._run.outcome, Failed):
            raise self._run.outcome.error
        if self._run.outcome is None:
            raise LoopUsageError(
                "the loop has not ended yet: call next_turn until it gives Completed or Failed, or run()"
            )
        return self._run.outcome.result

    def into_result(self) -> ToolLoopResult[Out]:
        """Return `result`."""
        return self.result

    def snapshot(self) -> Snapshot:
        """Return the loop as plain JSON, between turns, when it awaits approval, or when it has ended or failed.

        One that failed is restored as it was before the request that failed, and asks again.

        Raises:
            LoopUsageError: A turn is running.
        """
        if self._run.is_running:
            raise LoopUsageError("a turn is running: take the snapshot when next_turn has returned")
        return self._run.save()

    # the views

    async def run(self) -> ToolLoopResult[Out]:
        """Run to the end and return the result; after the end, return it again.

        Raises:
            LoopUsageError: It is running already.
            ProviderError: The model could not be reached after retries; carries the transcript.
            MaxDepthExceededError: The loop is nested too deep, in a tool of another loop.
        """
        if self._run.outcome is None or not self._run.is_over:
            await self._run.advance(to_end=True, is_edited=self._may_be_edited)
        return self.result

    def run_unshared(self) -> Awaitable[None]:
        """Run to the end where nobody else has this handle, and so nobody can call `cancel`."""
        return self._run.advance(to_end=True, may_be_cancelled=False)

    def run_sync(self) -> ToolLoopResult[Out]:
        """Do the same as `run` in an event loop of its own, for code that is not async.

        Later calls reuse that event loop, from any thread, so that connections stay open between them. In a tool that
        runs in a worker thread, the run inherits the limits of that tool's loop, and is cancelled with the call.

        Raises:
            LoopUsageError: Called on a thread where an event loop is running: await `run` there.
        """
        if is_in_event_loop():
            raise LoopUsageError(
                "tool_loop_sync was called where an event loop is running: use 'await tool_loop(...)' there"
            )
        given_up = threading.Event()

        def give_up() -> None:
            given_up.set()
            self.cancel()

        async def run() -> None:  # asyncio's handling of interrupts writes the result of its main task as text
            with when_abandoned(give_up):
                await self.run()

        run_in_own_loop(run)
        if given_up.is_set():
            raise ToolCancelledError
        return self.result

    def stream(self) -> EventStream[Out]:
        """Return the events of the run, to be entered with ``async with``; see `tool_loop_stream`."""
        return EventStream(self)

    def channel(self, buffer_size: int = 32) -> EventChannel[Out]:
        """Return the events of the run in a bounded queue, and its result apart; see `tool_loop_channel`."""
        return EventChannel(self, buffer_size)

    def read_partials(self) -> PartialAnswers:
        """Return a reader of the typed answer while it comes; see `EventStream.partial_answers`.

        Raises:
            ConfigurationError: No answer of a type was asked for.
        """
        from toolkit.loop.answers import read_partials  # noqa: PLC0415 - it needs Pydantic, which is slow to import

        return read_partials(self._run.config)

    async def run_into(self, feed: EventFeed, *, to_end: bool = True) -> None:
        """Run to the end, or one turn, with the events for the reader of `feed`; the outcome is stored, not raised."""
        await self._run.advance(to_end=to_end, feed=feed, is_edited=self._may_be_edited)

    async def next_turn(self) -> TurnOutcome[Out]:
        """Run one turn: a request and the tools it asks for. After the end, return the same outcome again.

        Each turn that ran tools is yielded, also one that reached a limit; the end comes after it. Cancelling this ends
        the loop; the transcript in `messages` is valid then, too.

        Raises:
            LoopUsageError: It is running already.
            TranscriptError: The `messages` were edited and are not valid anymore; repair them and call it again.
            ConfigurationError: The loop has a journal, and is not stepped.
        """
        if self._run.log is not None:
            self._run.log.refuse_steps()
        self._owes_outcome = False
        if self._run.outcome is not None and self._run.is_over:
            return self._run.outcome
        rounds = self._run.state.tool_rounds
        await self._run.advance(to_end=False, is_edited=self._may_be_edited)
        outcome = self._read_outcome()
        self._owes_outcome = isinstance(outcome, Completed) and self._run.state.tool_rounds > rounds
        if outcome is not None and not self._owes_outcome:
            return outcome
        response = self._run.state.response
        assert response is not None
        return Yielded(self, response, tuple(self._run.state.results))

    def _read_outcome(self) -> Completed[Out] | Failed | None:
        return self._run.outcome  # in a method, since a type checker assumes that it has not changed

    # commands and decisions

    def resume(self, command: Command) -> None:
        """Give the command that the next turn begins with; ignored after the end.

        Raises:
            TranscriptError: The messages to inject leave a call without its result, or repeat a call's id.
            ConfigurationError: The loop has a journal, and is not stepped.
        """
        if self._run.log is not None:
            self._run.log.refuse_steps()
        self._run.feed(CommandGiven(command))

    def cancel(self, reason: str | None = None) -> None:
        """End the loop as `Cancelled`, whichever view runs it; callable from any thread or task, and does not wait.

        Running work is cancelled, and the view returns the result, with `reason` in it. A loop that is not running ends
        when it is run next; a loop that has ended does not change.
        """
        self._run.cancel(reason)

    async def close(self) -> None:
        """End the loop now, answer open calls, and return when nothing of it runs anymore.

        A turn that another task is running is cancelled. Does nothing after the end, except for a loop that awaits
        approval, which it ends.
        """
        await self._run.close()

    @property
    def pending_approvals(self) -> list[PendingApproval]:
        """The calls that await a decision, in call order; empty unless the loop ended as `AwaitingApproval`."""
        return self._run.approvals.list_pending()

    async def decide(self, call_id: str, approval: Approval | bool | str, *, binding: str) -> None:
        """Decide on one call; the loop continues with the next `next_turn` after the last decision.

        Args:
            call_id: The call.
            approval: As an approval hook would answer.
            binding: The `PendingApproval.binding` that the decision was made on: it is valid for those arguments alone.

        Raises:
            LoopUsageError: No decision is awaited on the call, or it was made on something else.
        """
        decide = partial(self._run.approvals.decide, call_id, approval, binding)
        if self._run.log is None:
            decide()
        else:
            await self._run.log.store_decision(decide)
        self._run.reset_outcome()


def _restore_run(
    snapshot: Snapshot,
    provider: Provider,
    registry: ToolRegistry[Ctx],
    ctx: Ctx,
    config: ToolLoopConfig[Out] | None,
    *,
    counts_pauses: bool,
    messages: Sequence[Message] | None = None,
) -> Run[Ctx, Out]:
    from toolkit.loop.snapshot import load_snapshot, restore_request  # noqa: PLC0415 - few loops are restored

    saved = load_snapshot(snapshot, None if config is None else config.signing_key)
    config = config or DEFAULT_CONFIG
    request = restore_request(saved.request, config.request_options)
    return Run(provider, registry, request, ctx, config, counts_pauses=counts_pauses, saved=saved, messages=messages)


class Yielded:
    """A turn that has run its tools: give a command for the next one, or call `next_turn` to go on.

    Once the next turn has begun, commands that are given here are logged and ignored.

    Attributes:
        tool_calls: The calls that the model asked for.
        results: The results of the tools, in call order.
        assistant_content: The other content of the model's message.
        iteration: The number of the turn.
        usage: The sum over all requests so far.
    """

    __slots__ = ("_handle", "_turn", "assistant_content", "iteration", "results", "tool_calls", "usage")

    def __init__(
        self, handle: ToolLoopHandle[Any, Any], response: ChatResponse, results: tuple[ToolResult, ...]
    ) -> None:
        self._handle = handle
        self._turn = handle.turn
        self.tool_calls: tuple[ToolCall, ...] = response.tool_calls
        self.results: tuple[ToolResult, ...] = results
        self.assistant_content: tuple[AssistantContent, ...] = tuple(
            [block for block in response.message.content if not isinstance(block, ToolCall)]
        )
        self.iteration: int = handle.iterations
        self.usage: Usage = handle.usage

    @property
    def messages(self) -> list[Message]:
        """The transcript; it may be edited until the next turn, as long as it stays valid."""
        return self._handle.messages

    @property
    def assistant_text(self) -> str | None:
        """The text of the model beside its calls, or None."""
        return text_of(self.assistant_content) or None

    def continue_loop(self) -> None:
        """Go on, as without a command."""
        self.resume(Continue())

    def inject_and_continue(self, messages: Iterable[Message]) -> None:
        """Append these messages after this turn's results, and go on.

        Raises:
            ConfigurationError: They are no list.
            TranscriptError: They leave a call without its result, or repeat a call's id.
        """
        check_messages("the messages to inject", messages)
        self.resume(InjectMessages(tuple(messages)))

    def stop(self, reason: str | None = None) -> None:
        """End the loop without another request."""
        self.resume(Stop(reason))

    def resume(self, command: Command) -> None:
        """Give the command for the next turn; the last one before `next_turn` counts."""
        if self._turn != self._handle.turn:
            _logger.warning("a command for turn %d came after the next one had begun, and does nothing", self.iteration)
            return
        self._handle.resume(command)


TurnOutcome: TypeAlias = Yielded | Completed[Out] | Failed
"""The outcome of a turn: more may follow, the loop has ended, or it can't go on."""

tool_loop_resumable = ToolLoopHandle
"""Another name of the handle."""


@overload
async def tool_loop(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    **options: Unpack[LoopOptions[Out]],
) -> ToolLoopResult[Out]: ...
@overload
async def tool_loop(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    **options: Unpack[LoopOptions[Out, Ctx]],
) -> ToolLoopResult[Out]: ...
async def tool_loop(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, *_misplaced: Any, **options: Any
) -> ToolLoopResult[Any]:
    """Let the model call tools until it answers, and return the answer with all that led to it.

    ::

        result = await tool_loop(provider, registry, "What's the weather in Paris?")
        print(result.text)

    Works on asyncio and on trio. Whatever way it ends, ``result.messages`` is valid: each call has its result. Make a
    `ToolLoopHandle` and ``run()`` it to have the transcript also where this is cancelled, or to stop it from elsewhere.

    Args:
        provider: Talks to the model.
        registry: The tools; it may be changed while the loop runs, and the next turn sees it.
        prompt: A question, a transcript, or a `ChatRequest` with its settings. It is copied, never changed; a
            transcript with calls that have no result is repaired. Or a snapshot, with which a saved loop goes on.
        options: ``ctx=None``, the context of the tools, which may be left out only where they need none;
            ``config=ToolLoopConfig()``, the settings; ``system_prompt=""``, a text or a function of the context that
            returns one, which stands first, in the place of one that the transcript begins with; ``decisions=None``,
            with a snapshot: the decisions on the calls that await them, by call id.

    Raises:
        ProviderError: The model could not be reached after retries; carries the transcript.
        MaxDepthExceededError: The loop is nested too deep, in a tool of another loop.
    """
    handle: ToolLoopHandle[Any, Any] = ToolLoopHandle(provider, registry, prompt, *_misplaced, **options)
    await handle.run_unshared()
    return handle.result


@overload
def tool_loop_sync(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    **options: Unpack[LoopOptions[Out]],
) -> ToolLoopResult[Out]: ...
@overload
def tool_loop_sync(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    **options: Unpack[LoopOptions[Out, Ctx]],
) -> ToolLoopResult[Out]: ...
def tool_loop_sync(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, *_misplaced: Any, **options: Any
) -> ToolLoopResult[Any]:
    """Do the same as `tool_loop` in an event loop of its own, for code that is not async.

    Later calls reuse that event loop, from any thread, so that connections stay open between them.

    ::

        result = tool_loop_sync(provider, registry, "What's the weather in Paris?")
        print(result.text, result.reason)

    In a tool that runs in a worker thread it is cancelled when the call of that tool is, and inherits its limits.

    Raises:
        LoopUsageError: Called on a thread where an event loop is running: await `tool_loop` there.
    """
    return ToolLoopHandle(provider, registry, prompt, *_misplaced, **options).run_sync()


@overload
def tool_loop_stream(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    **options: Unpack[LoopOptions[Out]],
) -> EventStream[Out]: ...
@overload
def tool_loop_stream(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    **options: Unpack[LoopOptions[Out, Ctx]],
) -> EventStream[Out]: ...
def tool_loop_stream(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, *_misplaced: Any, **options: Any
) -> EventStream[Any]:
    """Run a loop and read its events as they come.

    ::

        async with tool_loop_stream(provider, registry, "What's the weather in Paris?") as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        print(text, end="")
                    case Done(result):
                        print(result.reason)

    The last event is `Done`, once, with the result; a run that fails emits `Failed` instead, and raises. Nothing runs
    ahead of the reader, except tools that run already, and up to 32 deltas of an answer, which has no effect before
    they are read. Leaving the block cancels running work; the transcript is closed all the same, and ``events.result``
    has it. Arguments are those of `tool_loop`.
    """
    return ToolLoopHandle(provider, registry, prompt, *_misplaced, **options).stream()


@overload
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    buffer_size: int = 32,
    **options: Unpack[LoopOptions[Out]],
) -> EventChannel[Out]: ...
@overload
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    buffer_size: int = 32,
    **options: Unpack[LoopOptions[Out, Ctx]],
) -> EventChannel[Out]: ...
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[Any],
    prompt: Prompt,
    *_misplaced: Any,
    buffer_size: int = 32,
    **options: Any,
) -> EventChannel[Any]:
    """Run a loop with its events in a bounded queue, and its result apart.

    ::

        async with tool_loop_channel(provider, registry, "Go") as (events, handle):
            async for event in events:
                await show(event)
            result = await handle.result()

    A slow reader slows the run down; one that stops reading and awaits ``handle.result()`` does not. Leaving the block
    cancels the run. Arguments are those of `tool_loop`.

    Args:
        provider: Talks to the model.
        registry: The tools.
        prompt: The start of the loop: a question, messages, a request or a snapshot.
        buffer_size: How many events may wait; with 0, each is handed to the reader directly.
        options: As for `tool_loop`.
    """
    return ToolLoopHandle(provider, registry, prompt, *_misplaced, **options).channel(buffer_size)


def _list_keywords() -> None:
    """Have `help` list the keywords of the views, with their types and defaults."""
    of_handle = inspect.signature(ToolLoopHandle.__init__).parameters
    keywords = [of_handle[name] for name in KEYWORDS]
    for view in (tool_loop, tool_loop_sync, tool_loop_stream, tool_loop_channel):
        own = inspect.signature(view)
        named = [each for each in own.parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        vars(view)["__signature__"] = own.replace(parameters=[*named, *keywords])


_list_keywords()


class _StreamedLoop(Protocol[Out]):
    """The loop behind a stream, as `ToolLoopHandle` is."""

    @property
    def result(self) -> ToolLoopResult[Out]: ...
    @property
    def messages(self) -> list[Message]: ...
    @property
    def usage(self) -> Usage: ...
    def cancel(self, reason: str | None = None) -> None: ...
    def read_partials(self) -> PartialAnswers: ...
    def run_into(self, feed: EventFeed) -> Awaitable[None]: ...


class _EnteredView:
    """A view for use with ``async with``; any other use raises an error that shows how."""

    __slots__ = ()
    _spelling: ClassVar[str]

    def __iter__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)

    def __await__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)

    def __enter__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)

    def __exit__(self, *error: object) -> None: ...


class EventStream(_EnteredView, Generic[Out]):
    """The events of a run: enter it, iterate, leave it at any time.

    Leaving the block cancels running work; `messages` and `result` are available afterwards. No event is lost if
    waiting for the next one is cancelled, for example for a heartbeat.
    """

    __slots__ = ("_ended", "_fatal", "_feed", "_is_left", "_is_started", "_loop")
    _spelling = (
        "enter a stream before you read it, so that it is left however reading ends: "
        "'async with tool_loop_stream(...) as events:' and inside 'async for event in events:'"
    )

    def __init__(self, loop: _StreamedLoop[Out], capacity: int = 0) -> None:
        self._loop = loop
        self._feed = EventFeed(capacity)
        self._ended = anyio.Event()
        self._fatal: BaseException | None = None
        self._is_started = self._is_left = False

    async def __aenter__(self) -> Self:
        if self._is_started:
            raise LoopUsageError("a stream can be entered once; make another handle for another run")
        self._is_started = True
        start_carried(self._run_loop, self._end_stream)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_left = True
        if not self._ended.is_set():
            self._loop.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
        self._feed.leave()  # not before: whatever waits for the reader would go on
        if error is None:
            self._raise_fatal()

    async def _run_loop(self) -> None:
        await self._loop.run_into(self._feed)

    def _end_stream(self, raised: BaseException | None) -> None:
        self._fatal = raised
        self._feed.end()
        self._ended.set()

    def __aiter__(self) -> Self:
        self._require_entered()
        return self

    async def __anext__(self) -> LoopEvent:
        event = self._feed.take()
        if event is None:
            self._require_entered()
            event = await self._feed.next()
        if event is not None:
            return event
        if not self._is_left:
            self._raise_fatal()
            _ = self._loop.result  # raises the exception of a failed run
        raise StopAsyncIteration

    async def partial_answers(self) -> AsyncIterator[Out]:
        """Read the events of the run, and yield the typed answer while it arrives; last, once more as a whole.

        ::

            async with tool_loop_stream(provider, registry, "Plan a trip.", config=config) as events:
                async for trip in events.partial_answers():
                    show(getattr(trip, "title", ""), getattr(trip, "days", []))

        Texts grow piece by piece, lists by whole items, and other values appear once they are complete. Until then they
        are left out: as an attribute of a model or dataclass, or a key of a dict. Validators of single fields apply;
        those of a whole object, and the answer's check, get only the whole answer. If the model is asked again, the
        next answer begins anew.

        Raises:
            ConfigurationError: No answer of a type was asked for, it is given by functions, or its check changes its
                type.
        """
        reader = self._loop.read_partials()
        async for event in self:
            for value in reader.take(event):
                yield value
        result = self.result
        if isinstance(result.reason, TypedAnswer):
            yield result.require_output()
        elif isinstance(result.reason, ResultAsAnswer) and result.reason.tool_name == ANSWER_TOOL:
            yield cast("Out", result.text)

    async def answer_text(self, field: str | None = None) -> AsyncIterator[TextDelta]:
        """Read the events of the run, and yield a text of the answer as deltas.

        Args:
            field: The field of the answer that has the text; None if the answer is a text.

        Raises:
            ConfigurationError: As for `partial_answers`, or the answer has no such text.
        """
        self._loop.read_partials().check_text(field)
        text = ""
        async for answer in self.partial_answers():
            found = cast("Any", answer)
            if field is not None:
                found = found.get(field) if isinstance(answer, Mapping) else getattr(found, field, None)
            if isinstance(found, str) and not text.startswith(found):  # else it is one that comes again
                delta, text = found.removeprefix(text), found
                yield TextDelta(delta)

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result of the run, once it has ended or the block was left.

        Raises:
            LoopUsageError: It goes on.
            Exception: The exception that made it fail.
        """
        return self._loop.result

    @property
    def messages(self) -> list[Message]:
        """The transcript so far; valid once the run has ended or the block was left."""
        return list(self._loop.messages)

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._loop.usage

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`, from any thread; its last events are still read. See `ToolLoopHandle`."""
        self._loop.cancel(reason)

    def _require_entered(self) -> None:
        if not self._is_started:
            raise LoopUsageError(self._spelling)

    def _raise_fatal(self) -> None:
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal


class ChannelEvents(EventStream[Out]):
    """The events of a channel; several tasks may read them, and each event goes to one of these."""

    __slots__ = ("_reader",)

    def __init__(self, loop: _StreamedLoop[Out], capacity: int) -> None:
        super().__init__(loop, capacity)
        self._reader: int | None = None

    async def __anext__(self) -> LoopEvent:
        self._reader = current_task_id()
        return await super().__anext__()

    async def wait(self) -> ToolLoopResult[Out]:
        """Wait for the end without being slowed down by unread events; drop them if this task has read some before."""
        if self._reader == current_task_id():
            self._feed.leave()
        else:
            self._feed.lift_bound()
        await self._ended.wait()
        self._raise_fatal()
        return self.result


class LoopTask(Generic[Out]):
    """A loop that runs by itself, in the task of a channel."""

    __slots__ = ("_events",)

    def __init__(self, events: ChannelEvents[Out]) -> None:
        self._events = events

    async def result(self) -> ToolLoopResult[Out]:
        """Wait for the end and return the result.

        Unread events do not slow the run down anymore: if the calling task has read some before, the others are
        dropped; else they are stored for another reader until the block is left.

        Raises:
            Exception: The exception that made the run fail.
        """
        return await self._events.wait()

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came; valid once the run has ended or the block was left."""
        return self._events.messages

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._events.usage

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`, from any thread; its last events are still read. See `ToolLoopHandle`."""
        self._events.cancel(reason)


class EventChannel(_EnteredView, Generic[Out]):
    """The value of `tool_loop_channel`: enter it for the events and the handle."""

    __slots__ = ("_events",)
    _spelling = (
        "enter a channel to get its events and its handle: 'async with tool_loop_channel(...) as (events, handle):'"
    )

    def __init__(self, loop: _StreamedLoop[Out], buffer_size: int) -> None:
        check_setting("buffer_size", buffer_size, int, least=0)
        self._events = ChannelEvents(loop, buffer_size)

    async def __aenter__(self) -> tuple[ChannelEvents[Out], LoopTask[Out]]:
        events = await self._events.__aenter__()
        return events, LoopTask(events)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._events.__aexit__(kind, error, traceback)

    def __aiter__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)
