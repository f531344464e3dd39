"""The one object behind every view of a loop: run to its end, streamed, stepped by hand, saved and taken up again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast, overload

import anyio
from typing_extensions import TypeVar

from toolkit.chat import ChatRequest, Message, Provider, Usage
from toolkit.errors import ConfigurationError, LoopUsageError, ToolCancelledError
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.clock import LoopClock
from toolkit.loop.config import DEFAULT_CONFIG, ToolLoopConfig
from toolkit.loop.driver import Driver
from toolkit.loop.events import Done, Failed
from toolkit.loop.outcome import Out, Snapshot, ToolLoopResult
from toolkit.loop.prompt import Prompt, check_keywords, check_parts, check_prompt
from toolkit.loop.state import LoopState
from toolkit.loop.steps import Command
from toolkit.loop.turns import Completed, TurnOutcome, Yielded
from toolkit.tools.approval import Approval
from toolkit.tools.backend import LoopWaker, is_in_event_loop, loop_waker
from toolkit.tools.handler import Ctx
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.workers import when_abandoned

if TYPE_CHECKING:
    from toolkit.loop.listener import EventFeed
    from toolkit.loop.streaming import EventChannel, EventStream

__all__ = ["Decisions", "ToolLoopHandle", "tool_loop_resumable"]


# Where something is called on the class itself, a checker takes the class's own variables for their defaults.
OtherCtx = TypeVar("OtherCtx")
OtherOut = TypeVar("OtherOut", default=None)


Decisions: TypeAlias = Mapping[str, Approval | bool | str]
"""What was decided on the calls of a snapshot, by call id; it holds for what that snapshot says is pending."""


class ToolLoopHandle(Generic[Ctx, Out]):
    """A loop, to be run in whichever way: making one does nothing yet.

    ::

        handle = ToolLoopHandle(provider, registry, "Analyse this")
        result = await handle.run()  # or handle.run_sync(), or one of:

        async with handle.stream() as events:
            async for event in events: ...

        while isinstance(turn := await handle.next_turn(), Yielded):
            if any("DONE" in result.text for result in turn.results):
                turn.stop("task complete")

    Whatever way it ends, and whoever stops it, `messages` has the transcript and `result` what the loop leaves. It runs
    in one way at a time; turns may be stepped first and the rest be run or streamed. Stepped, the `timeout` counts only
    while a turn runs, not while the caller thinks, unless `counts_pauses` says so.

    The other arguments are those of `tool_loop`.

    Attributes:
        turn: How many turns were stepped.
    """

    @overload
    def __init__(
        self: ToolLoopHandle[object, None],
        provider: Provider,
        registry: ToolRegistry[object] | ToolRegistry[None],
        prompt: Prompt,
        *,
        ctx: None = None,
        config: None = None,
        system_prompt: str = "",
        decisions: Decisions | None = None,
        counts_pauses: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: ToolLoopHandle[object, OtherOut],
        provider: Provider,
        registry: ToolRegistry[object] | ToolRegistry[None],
        prompt: Prompt,
        *,
        ctx: None = None,
        config: ToolLoopConfig[OtherOut] | None,
        system_prompt: str = "",
        decisions: Decisions | None = None,
        counts_pauses: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        prompt: Prompt,
        *,
        ctx: Ctx,
        config: ToolLoopConfig[Out] | None = None,
        system_prompt: str = "",
        decisions: Decisions | None = None,
        counts_pauses: bool = False,
    ) -> None: ...
    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Any],
        prompt: Prompt,
        *,
        ctx: Any = None,
        config: ToolLoopConfig[Any] | None = None,
        system_prompt: str = "",
        decisions: Decisions | None = None,
        counts_pauses: bool = False,
        **misspelled: object,
    ) -> None:
        check_keywords(misspelled)
        check_parts(provider, registry, prompt, config)
        if isinstance(prompt, dict):
            if system_prompt:
                raise ConfigurationError("a snapshot has its system prompt already: leave system_prompt out")
            self._take_up(prompt, provider, registry, ctx, config, counts_pauses=counts_pauses)
        else:
            request = check_prompt(prompt, system_prompt)
            config = config or DEFAULT_CONFIG
            driver: Driver[Ctx, Out] = Driver(provider, registry, request, ctx, config)
            self._set_up(driver, LoopClock(config.timeout, counts_pauses=counts_pauses))
        if decisions:
            # What was shown to who decided; a tool that has changed since has another binding by now.
            asked: list[dict[str, str]] = []
            if isinstance(prompt, dict):
                asked = prompt["pending_approvals"]
            bindings = {pending["call_id"]: pending["binding"] for pending in asked}
            for call_id, approval in decisions.items():
                self._decide(call_id, approval, bindings.get(call_id, ""))

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
    ) -> ToolLoopHandle[OtherCtx, OtherOut]:
        """Take up a saved loop, in this or another process; nothing that had run when it was saved runs again.

        Each call that has not run yet is prepared again. Where its tool, its definition, its arguments or a default is
        not what it was when the call was decided on, somebody has to decide again, whatever was decided before.

        A snapshot is plain data, which can be read twice: two processes that restore the same one run its calls twice.
        Where it is kept must hand each out once, such as with ``DELETE ... RETURNING``, and give it back only changed.

        Args:
            snapshot: What `snapshot` returned, or `ToolLoopResult.snapshot`; decoded JSON.
            provider: Talks to the model.
            registry: The tools; those of open calls must be there.
            ctx: The context, which is never saved.
            config: The settings, which are not saved either; with the `signing_key` that the snapshot was sealed with.
            counts_pauses: As for a new handle; the time since it was saved does not count.

        Raises:
            LoopUsageError: It is no snapshot, of another version, was changed, is not sealed with the key, or a tool of
                its open calls is gone.
        """
        handle = object.__new__(cast("type[ToolLoopHandle[OtherCtx, OtherOut]]", cls))
        check_parts(provider, registry, snapshot, config)
        handle._take_up(snapshot, provider, registry, ctx, config, counts_pauses=counts_pauses)
        return handle

    def _take_up(
        self,
        snapshot: Snapshot,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        ctx: Ctx,
        config: ToolLoopConfig[Out] | None,
        *,
        counts_pauses: bool,
    ) -> None:
        from toolkit.loop.snapshot import SavedRequest, load_snapshot  # noqa: PLC0415 - few loops are restored

        saved = load_snapshot(snapshot, None if config is None else config.signing_key)
        settings = {field.name: getattr(saved.request, field.name) for field in fields(SavedRequest)}
        request = ChatRequest(messages=(), **settings)
        driver: Driver[Ctx, Out] = Driver(provider, registry, request, ctx, config or DEFAULT_CONFIG, saved=saved)
        self._set_up(driver, LoopClock(saved.seconds_left, counts_pauses=counts_pauses))

    def _set_up(self, driver: Driver[Ctx, Out], clock: LoopClock) -> None:
        self._driver = driver
        self._clock = clock
        self._outcome: Completed[Out] | Failed | None = None
        if driver.state.is_finished:
            self._outcome = Completed(driver.result(clock.seconds_left))
        self._is_running = self._may_be_edited = self._owes_outcome = False
        self._idle: anyio.Event | None = None
        self._lock = threading.Lock()  # over the next two
        self._reach: tuple[LoopWaker, anyio.CancelScope] | None = None
        self._wish: tuple[str | None] | None = None
        self.turn: int = 0

    # what may be asked at any time

    @property
    def _state(self) -> LoopState:
        return self._driver.state

    @property
    def messages(self) -> list[Message]:
        """The transcript. Between turns it may be edited, as long as it stays valid.

        While calls await a decision it is a copy, in which they are answered as not started.
        """
        if self._state.open_calls and not self._is_running:
            return self._state.settled_messages()
        self._may_be_edited = True
        return self._state.messages

    @property
    def loop_id(self) -> str:
        """The id that its events carry."""
        return self._driver.loop_id

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._state.usage

    @property
    def iterations(self) -> int:
        """How many requests were made."""
        return self._state.iterations

    @property
    def is_finished(self) -> bool:
        """Whether the last outcome was the end."""
        return self._outcome is not None and not self._owes_outcome

    @property
    def result(self) -> ToolLoopResult[Out]:
        """What the loop leaves; also after it was cancelled, or a stream of it was left.

        Raises:
            LoopUsageError: It has not ended.
            Exception: It failed; the same error as in `Failed`.
        """
        if isinstance(self._outcome, Failed):
            raise self._outcome.error
        if self._outcome is None:
            raise LoopUsageError(
                "the loop has not ended yet: call next_turn until it gives Completed or Failed, or run()"
            )
        return self._outcome.result

    def into_result(self) -> ToolLoopResult[Out]:
        """Return `result`."""
        return self.result

    def snapshot(self) -> Snapshot:
        """Return the loop as plain JSON, between turns, when it awaits approval, or when it has ended.

        Raises:
            LoopUsageError: A turn is running, or the loop has failed.
        """
        if self._is_running:
            raise LoopUsageError("a turn is running: take the snapshot when next_turn has returned")
        return self._driver.save(self._clock.seconds_left)

    # the views

    async def run(self) -> ToolLoopResult[Out]:
        """Run to the end and return what the loop leaves; after the end, the same again.

        Raises:
            LoopUsageError: It is running already.
            ProviderError: The model could not be reached after retries; carries the transcript.
            MaxDepthExceededError: The loop is nested too deep, in a tool of another loop.
        """
        if self._outcome is None:
            await self._advance(to_end=True)
        return self.result

    def run_sync(self) -> ToolLoopResult[Out]:
        """Do what `run` does, in an event loop of its own, for code that is not async.

        In a tool that runs in a worker thread it is cancelled when the call of that tool is, and inherits its limits.

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

        async def run() -> ToolLoopResult[Out]:
            with when_abandoned(give_up):
                return await self.run()

        result = anyio.run(run)
        if given_up.is_set():
            raise ToolCancelledError
        return result

    def stream(self) -> EventStream[Out]:
        """Return the events of the run, to be entered with ``async with``; see `tool_loop_stream`."""
        from toolkit.loop.streaming import EventStream  # noqa: PLC0415 - it needs the handle

        return EventStream(self)

    def channel(self, buffer_size: int = 32) -> EventChannel[Out]:
        """Return the events of the run in a bounded queue, and its result apart; see `tool_loop_channel`."""
        from toolkit.loop.streaming import EventChannel  # noqa: PLC0415 - it needs the handle

        return EventChannel(self, buffer_size)

    async def next_turn(self) -> TurnOutcome[Out]:
        """Run one turn: a request and the tools it asks for. After the end, the same outcome again.

        Each turn that ran tools is yielded, the one that reached a limit too; the end comes after it. Cancelling this
        ends the loop; the transcript in `messages` is valid then, too.

        Raises:
            LoopUsageError: It is running already.
            TranscriptError: The `messages` were edited and are not valid anymore; mend them and call it again.
        """
        self._owes_outcome = False
        if self._outcome is not None:
            return self._outcome
        rounds = self._state.tool_rounds
        await self._advance(to_end=False)
        outcome = self._outcome_now()
        self._owes_outcome = isinstance(outcome, Completed) and self._state.tool_rounds > rounds
        if outcome is not None and not self._owes_outcome:
            return outcome
        response = self._state.response
        assert response is not None
        return Yielded(self, response, tuple(self._state.last_results))

    def _outcome_now(self) -> Completed[Out] | Failed | None:
        return self._outcome  # asked anew, since a checker remembers what it was

    # what others say to it

    def resume(self, command: Command) -> None:
        """Say what the next turn begins with; ignored after the end.

        Raises:
            TranscriptError: The messages to inject leave a call without its result, or repeat a call's id.
        """
        self._state.commanded(command)

    def cancel(self, reason: str | None = None) -> None:
        """Have the loop end as `Cancelled`, whichever view runs it: from any thread or task, and without waiting.

        What is running is cancelled and the view returns its result, with `reason` in it. A loop that is not running
        ends so when it is run next; one that has ended stays as it is.
        """
        with self._lock:
            self._wish = self._wish or (reason,)
            reach = self._reach
        if reach is not None:
            wake, scope = reach
            wake(scope.cancel)

    async def close(self) -> None:
        """End the loop now, and return when nothing of it runs anymore; open calls are answered.

        A turn that another task is running is cancelled. Does nothing after the end, but ends a loop that awaits
        approval.
        """
        if self._is_running:
            self.cancel()
            assert self._idle is not None
            await self._idle.wait()
        driver, is_waiting = self._driver, bool(self._state.open_calls)
        if self._outcome is not None and not is_waiting:
            return
        driver.state.close()
        with anyio.CancelScope(shield=True):
            if is_waiting:
                await driver.begin(None, waits=False)
            await self._end(None)

    @property
    def pending_approvals(self) -> list[PendingApproval]:
        """What awaits a decision, in call order; empty unless the loop ended as `AwaitingApproval`."""
        return self._driver.approvals.list_pending()

    async def decide(self, call_id: str, approval: Approval | bool | str, *, binding: str) -> None:
        """Decide on one call; the next `next_turn` deals with it, and goes on when the last decision is in.

        Args:
            call_id: The call.
            approval: As an approval hook would answer.
            binding: The `PendingApproval.binding` that the decision was made on: it holds for exactly those arguments.

        Raises:
            LoopUsageError: No decision is awaited on the call, or it was made on something else.
        """
        self._decide(call_id, approval, binding)

    def _decide(self, call_id: str, approval: Approval | bool | str, binding: str) -> None:
        self._driver.approvals.decide(call_id, approval, binding)
        is_ended = self._state.reason is not None
        self._outcome = Completed(self._driver.result(self._clock.seconds_left)) if is_ended else None

    # running

    async def _advance(self, *, to_end: bool, feed: EventFeed | None = None) -> None:
        """Run one turn, or all; close the transcript and tell the end whatever happens."""
        if self._is_running:
            raise LoopUsageError("the loop is running already: a handle runs in one way, and one turn at a time")
        driver, state = self._driver, self._state
        if self._may_be_edited:
            state.edited()
        self._is_running, self._idle = True, anyio.Event()
        self.turn += 1
        error: Exception | None = None
        is_through = False
        try:
            await self._drive(to_end=to_end, feed=feed)
            is_through = True
        except Exception as failure:  # noqa: BLE001 - it is handed to the caller as an outcome
            error = failure
            driver.fail(failure)
        finally:
            # Neither through nor failed only when cancelled, or when something no `Exception` passes through.
            if not is_through and error is None:
                state.cancelled()
            if state.is_finished:
                await self._end(error)
            self._is_running = False
            self._idle.set()

    async def _end(self, error: Exception | None) -> None:
        """Keep the outcome, and tell it to observers; a cancellation does not stop that."""
        driver = self._driver
        driver.return_undelivered()
        if error is None:
            outcome = Completed(driver.result(self._clock.seconds_left))
            self._outcome = outcome
            await driver.tell_end(Done(outcome.result))
        else:
            self._outcome = driver.failure(error)
            await driver.tell_end(self._outcome)

    async def _drive(self, *, to_end: bool, feed: EventFeed | None) -> None:
        """Run within the loop's time, and within the reach of `cancel`."""
        driver, state = self._driver, self._state
        deadline = self._clock.start()
        is_late = False
        scope = anyio.CancelScope(deadline=deadline)
        try:
            with scope:
                is_wanted = self._expect_cancel(scope)
                await driver.begin(feed, waits=is_wanted)
                is_late = anyio.current_time() >= deadline
                if is_wanted and not is_late:
                    await (driver.run_turns() if to_end else driver.run_turn())
        finally:
            self._clock.pause()
            with self._lock:
                self._reach = None
        if self._wish is not None:
            state.cancelled(*self._wish)
        elif is_late or scope.cancelled_caught:
            state.timed_out(driver.timeout)

    def _expect_cancel(self, scope: anyio.CancelScope) -> bool:
        """Let `cancel` reach the scope from now on; return False where it was called before."""
        with self._lock:
            self._reach = (loop_waker(), scope)
            return self._wish is None


tool_loop_resumable = ToolLoopHandle
"""The handle under the name of what it makes possible."""
