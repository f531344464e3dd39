"""A loop that the caller steps by hand: one turn at a time, with a word in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Generic, TypeAlias, cast, overload

import anyio
from typing_extensions import TypeVar

from toolkit.chat import (
    AssistantContent,
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ToolCall,
    ToolResult,
    Usage,
    text_of,
)
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError, MaxDepthExceededError
from toolkit.loop.approval import PendingApproval
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.driver import Driver, Prompt
from toolkit.loop.outcome import Out, Snapshot, TerminationReason, ToolLoopResult
from toolkit.loop.state import Command, InjectMessages
from toolkit.loop.stopping import Continue, Stop
from toolkit.tools.approval import Approval
from toolkit.tools.handler import Ctx
from toolkit.tools.registry import ToolRegistry

__all__ = ["Completed", "Failed", "ToolLoopHandle", "TurnOutcome", "Yielded", "tool_loop_resumable"]


# Where something is called on the class itself, a checker takes the class's own variables for their defaults.
OtherCtx = TypeVar("OtherCtx")
OtherOut = TypeVar("OtherOut", default=None)


class Yielded:
    """A turn has run its tools; say what comes next, or nothing to go on.

    Attributes:
        tool_calls: What the model asked for.
        results: What the tools gave, in call order.
        assistant_content: What the model said besides.
        iteration: The number of the turn.
        usage: The sum over all requests so far.
    """

    __slots__ = ("_handle", "assistant_content", "iteration", "results", "tool_calls", "usage")

    def __init__(
        self, handle: ToolLoopHandle[Any, Any], response: ChatResponse, results: tuple[ToolResult, ...]
    ) -> None:
        self._handle = handle
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
        """The text that the model said besides its calls, or None."""
        return text_of(self.assistant_content) or None

    def continue_loop(self) -> None:
        """Go on; the same as saying nothing."""
        self.resume(Continue())

    def inject_and_continue(self, messages: Iterable[Message]) -> None:
        """Append these messages after this turn's results, and go on.

        Raises:
            TranscriptError: They leave a call without its result, or repeat a call's id.
        """
        self.resume(InjectMessages(tuple(messages)))

    def stop(self, reason: str | None = None) -> None:
        """End the loop without another request."""
        self.resume(Stop(reason))

    def resume(self, command: Command) -> None:
        """Say what comes next; the last word before `next_turn` counts."""
        self._handle.resume(command)


@dataclass(frozen=True, slots=True)
class Completed(Generic[Out]):
    """The loop has ended."""

    result: ToolLoopResult[Out]

    @property
    def response(self) -> ChatResponse | None:
        """The last response."""
        return self.result.response

    @property
    def reason(self) -> TerminationReason:
        """Why it ended."""
        return self.result.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The loop can't go on.

    Args:
        error: Why; it carries the transcript.
        iterations: How many requests were made.
        usage: What they cost.
    """

    error: Exception
    iterations: int
    usage: Usage


TurnOutcome: TypeAlias = Yielded | Completed[Out] | Failed
"""What comes of a turn: more may follow, the loop has ended, or it can't go on."""


class ToolLoopHandle(Generic[Ctx, Out]):
    """A loop that stands still between turns.

    Making one does nothing yet. The `timeout` counts only while a turn runs, not while the caller thinks, unless
    `counts_pauses` says so.

    ::

        handle = ToolLoopHandle(provider, registry, "Analyse this")
        while isinstance(turn := await handle.next_turn(), Yielded):
            if any("DONE" in result.text for result in turn.results):
                turn.stop("task complete")
        result = handle.into_result()

    The other arguments are those of `tool_loop`.
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
        counts_pauses: bool = False,
    ) -> None:
        self._driver: Driver[Ctx, Out] | None = None
        self._outcome: Completed[Out] | Failed | None = None
        self._is_running = False
        self._may_be_edited = False
        try:
            self._driver = Driver(provider, registry, prompt, ctx, config)
        except MaxDepthExceededError as error:
            self._outcome = Failed(error=error, iterations=0, usage=Usage())
        self._seconds_left = None if config is None else config.timeout
        self._counts_pauses = counts_pauses
        self._paused_at: float | None = None

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
        """Take up a saved loop, in this or another process; nothing that has run runs again.

        Args:
            snapshot: What `snapshot` returned, or `ToolLoopResult.snapshot`; decoded JSON.
            provider: Talks to the model.
            registry: The tools; those of calls that await a decision must be what they were.
            ctx: The context, which is never saved.
            config: The settings, which are not saved either.
            counts_pauses: As for a new handle; the time since it was saved does not count.

        Raises:
            LoopUsageError: It is no snapshot, of another version, was changed, or its open calls don't fit the tools.
        """
        from toolkit.loop.snapshot import SavedRequest, load_snapshot  # noqa: PLC0415 - few loops are restored

        saved = load_snapshot(snapshot)
        settings = {field.name: getattr(saved.request, field.name) for field in fields(SavedRequest)}
        handle = object.__new__(cast("type[ToolLoopHandle[OtherCtx, OtherOut]]", cls))
        handle._driver = Driver(provider, registry, ChatRequest(messages=(), **settings), ctx, config, saved=saved)
        handle._outcome = None
        handle._is_running = False
        handle._may_be_edited = False
        handle._seconds_left = saved.seconds_left
        handle._counts_pauses = counts_pauses
        handle._paused_at = None
        if handle._driver.state.is_finished:
            handle._outcome = Completed(handle._driver.result())
        return handle

    @property
    def _started(self) -> Driver[Ctx, Out]:
        if self._driver is None:
            assert isinstance(self._outcome, Failed)
            raise self._outcome.error
        return self._driver

    @property
    def messages(self) -> list[Message]:
        """The transcript; between turns it may be edited, as long as it stays valid."""
        self._may_be_edited = True
        return self._started.state.messages

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._started.state.usage

    @property
    def iterations(self) -> int:
        """How many requests were made."""
        return self._started.state.iterations

    @property
    def is_finished(self) -> bool:
        """Whether the last outcome was the end."""
        return self._outcome is not None

    def resume(self, command: Command) -> None:
        """Say what the next turn begins with; ignored after the end.

        Raises:
            TranscriptError: The messages to inject leave a call without its result, or repeat a call's id.
        """
        if self._driver is not None:
            self._driver.state.commanded(command)

    def snapshot(self) -> Snapshot:
        """Return the loop as plain JSON, between turns, when it awaits approval, or when it has ended.

        Raises:
            LoopUsageError: A turn is running, or the loop has failed.
        """
        if self._is_running:
            raise LoopUsageError("a turn is running: take the snapshot when next_turn has returned")
        return self._started.save(self._seconds_left)

    @property
    def pending_approvals(self) -> list[PendingApproval]:
        """What awaits a decision, in call order; empty unless the loop ended as `AwaitingApproval`."""
        return self._started.pending()

    async def decide(self, call_id: str, approval: Approval | bool | str, *, binding: str) -> None:
        """Decide on one call; the next `next_turn` deals with it, and goes on when the last decision is in.

        Args:
            call_id: The call.
            approval: As an approval hook would answer.
            binding: The `PendingApproval.binding` that the decision was made on: it holds for exactly those arguments.

        Raises:
            LoopUsageError: No decision is awaited on the call, or it was made on something else.
        """
        driver = self._started
        await driver.decide(call_id, approval, binding)
        self._outcome = Completed(driver.result()) if driver.state.reason is not None else None

    async def next_turn(self) -> TurnOutcome[Out]:
        """Run one turn: a request and the tools it asks for. After the end, the same outcome again.

        Cancelling it ends the loop; the transcript in `messages` is valid then, too.

        Raises:
            LoopUsageError: Another `next_turn` of this handle is running.
            TranscriptError: The `messages` were edited and are not valid anymore; mend them and call it again.
        """
        if self._outcome is not None:
            return self._outcome
        if self._is_running:
            raise LoopUsageError("next_turn is running already: a handle takes one turn at a time")
        driver = self._started
        if self._may_be_edited:
            driver.state.edited()
        self._is_running = True
        is_through = False
        try:
            await self._turn(driver)
            is_through = True
        except Exception as error:  # noqa: BLE001 - it is handed to the caller as an outcome
            driver.fail(error)
            self._outcome = Failed(error=error, iterations=driver.state.iterations, usage=driver.state.usage)
            return self._outcome
        finally:
            self._is_running = False
            if self._outcome is None and not is_through:
                driver.state.cancelled()
            if driver.state.is_finished:
                await driver.tell_end()
                if driver.state.reason is not None:
                    self._outcome = Completed(driver.result())
        if self._outcome is not None:
            return self._outcome
        response = driver.state.response
        assert response is not None
        return Yielded(self, response, tuple(driver.state.last_results))

    async def _turn(self, driver: Driver[Ctx, Out]) -> None:
        if self._seconds_left is None:
            await driver.turn()
            return
        began = anyio.current_time()
        if self._counts_pauses and self._paused_at is not None:
            self._seconds_left = max(0.0, self._seconds_left - (began - self._paused_at))
        if self._seconds_left == 0:
            driver.time_out()
            return
        with anyio.move_on_after(self._seconds_left) as scope:
            await driver.turn()
        self._paused_at = anyio.current_time()
        self._seconds_left = max(0.0, self._seconds_left - (self._paused_at - began))
        if scope.cancelled_caught:
            driver.time_out()

    def into_result(self) -> ToolLoopResult[Out]:
        """Return what the loop leaves.

        Raises:
            LoopUsageError: It has not ended.
            ToolkitError: It failed; the same error as in `Failed`.
        """
        if isinstance(self._outcome, Failed):
            raise self._outcome.error
        if self._outcome is None:
            raise LoopUsageError("the loop has not ended yet: call next_turn until it gives Completed or Failed")
        return self._outcome.result

    async def close(self) -> None:
        """End the loop now, also one that awaits approval: open calls are answered. Does nothing after the end."""
        is_open = self._outcome is None or (isinstance(self._outcome, Completed) and bool(self.pending_approvals))
        if self._driver is not None and is_open:
            self._driver.state.close()
            await self._driver.tell_end()
            self._outcome = Completed(self._driver.result())


tool_loop_resumable = ToolLoopHandle
"""The handle under the name of what it makes possible."""
