"""All that the machine of a loop knows: asked for at any time, frozen to plain data and thawed from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, TypeAlias

from toolkit.chat import AssistantMessage, ChatResponse, Message, ToolCall, ToolResult, Usage, call_ids_of
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.detection import LoopDetector
from toolkit.loop.open_calls import CallStatus, OpenCall, OpenCalls
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    MissingSteps,
    NoValidAnswer,
    TerminationReason,
    UsageLimit,
)
from toolkit.loop.own_results import write_not_started
from toolkit.loop.steered_retries import CallHistory
from toolkit.loop.steps import Command
from toolkit.loop.tool_order import OrderProgress

__all__ = ["FrozenCall", "FrozenState", "LoopRecord", "Phase"]

Phase: TypeAlias = Literal[
    "ready", "compacting", "compacted", "asking", "preparing", "deciding", "running", "finished", "failed"
]


@dataclass(slots=True)
class FrozenCall:
    """One open call of a frozen machine."""

    call_id: str
    status: CallStatus
    result: ToolResult | None
    is_own: bool = False


@dataclass(slots=True, kw_only=True)
class FrozenState:
    """All that a machine knows, as plain data; see `LoopRecord.freeze`."""

    messages: list[Message]
    usage: Usage
    iterations: int
    tool_rounds: int
    response: ChatResponse | None
    reason: TerminationReason | None
    open_calls: list[FrozenCall]
    results: list[ToolResult]
    incoming: list[Message]
    warnings: list[Message]
    command: Command | None
    wound_up: UsageLimit | NoValidAnswer | MissingSteps | Aborted | None
    is_last: bool
    tool_calls_executed: int
    detector: dict[str, Any] | None
    order: dict[str, Any] | None = None
    history: dict[str, Any] | None = None


class LoopRecord:
    """The state that a loop has reached; `LoopState` decides what follows from it.

    Args:
        messages: The transcript to start from: valid, and owned by the machine from here on.
        config: The settings; only what decides is read here.
        compacts: True where a `Compact` step comes before each request.
        now: Gives the time of a result that the machine writes itself; None leaves it without.

    Attributes:
        messages: The transcript so far.
        iterations: How many requests were made.
        tool_rounds: How many turns ran to their results.
        phase: The phase that is awaited; ``ready`` between two turns.
        response: The last response.
        reason: Why the loop ended; None while it goes on.
        closed: The results that the machine gave itself because the loop ended, and whether each call had started.
    """

    __slots__ = (
        "_call_ids",
        "_calls",
        "_command",
        "_compacts",
        "_config",
        "_detector",
        "_history",
        "_hold",
        "_incoming",
        "_is_last",
        "_open",
        "_order",
        "_results",
        "_spent",
        "_tool_calls_executed",
        "_warnings",
        "_wound_up",
        "closed",
        "iterations",
        "messages",
        "phase",
        "reason",
        "response",
        "tool_rounds",
    )

    def __init__(
        self,
        messages: list[Message],
        config: ToolLoopConfig[Any],
        *,
        compacts: bool = False,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.messages: list[Message] = messages
        self._spent: list[Usage] = []  # summed when somebody asks
        self.iterations: int = 0
        self.tool_rounds: int = 0
        self.response: ChatResponse | None = None
        self.reason: TerminationReason | None = None
        self._config = config
        self._compacts = compacts
        self.phase: Phase = "ready"
        self._calls: Sequence[ToolCall] = ()
        self._open = OpenCalls(now)
        self.closed: list[tuple[ToolResult, bool]] = self._open.closed
        self._results: Sequence[ToolResult] = ()
        self._incoming: list[Message] = []
        self._warnings: list[Message] = []
        self._command: Command | None = None
        self._wound_up: UsageLimit | NoValidAnswer | MissingSteps | Aborted | None = None
        self._is_last: bool = False
        self._tool_calls_executed: int = 0
        self._detector = None if config.loop_detection is None else LoopDetector(config.loop_detection)
        self._order = None if config.order is None else OrderProgress(config.order)
        self._history = None if config.steered_retries is None else CallHistory(config.steered_retries)
        self._hold: str = ""
        self._call_ids: set[str] = call_ids_of(messages)

    @property
    def usage(self) -> Usage:
        """The sum over all responses so far; it stays what it is when more come."""
        if len(self._spent) != 1:
            self._spent[:] = [Usage.total(self._spent)]
        return self._spent[0]

    @property
    def is_finished(self) -> bool:
        """True where no step is left, or only somebody's decision can bring one."""
        return self.phase in ("finished", "failed")

    @property
    def is_at_boundary(self) -> bool:
        """True where no turn is under way: the transcript is whole and may be changed."""
        return self.phase == "ready"

    @property
    def deferred_ids(self) -> tuple[str, ...]:
        """The ids of the calls that await a decision, in call order."""
        return tuple([call.id for call in self._open.list_deferred()])

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet, in call order."""
        return tuple([entry.call for entry in self._open.by_id.values() if entry.result is None])

    def settled_messages(self) -> list[Message]:
        """Return the transcript; where calls await a decision, a copy in which they are answered as not started."""
        if not self._open.by_id:
            return self.messages
        entries = self._open.by_id.values()
        answers = [entry.result or write_not_started(entry.call, "approval is awaited") for entry in entries]
        return [*self.messages, *answers]

    @property
    def missing_steps(self) -> tuple[str, ...]:
        """The tools that must be used before the answer."""
        return () if self._order is None else self._order.find_missing_steps()

    def refusal_of(self, tool_name: str) -> str | None:
        """Return what was told of a call of a tool that the machine answered in this turn without asking anybody."""
        told = [result.text for result, _ in self.closed if result.tool_name == tool_name]
        return told[0] if told else None

    @property
    def last_results(self) -> Sequence[ToolResult]:
        """The results of the turn that was finished last."""
        return self._results

    def freeze(self) -> FrozenState:
        """Return all that the machine knows, as plain data: between turns, at the end, or round a late decision.

        Raises:
            LoopUsageError: A turn is under way.
        """
        is_decided = self.phase == "running" and all(entry.status != "started" for entry in self._open.by_id.values())
        if not (self.is_at_boundary or self.phase == "finished" or is_decided):
            raise LoopUsageError(f"the loop is {self.phase}: it can be saved between turns, or when it has ended")
        return FrozenState(
            messages=list(self.messages),
            usage=self.usage,
            iterations=self.iterations,
            tool_rounds=self.tool_rounds,
            response=self.response,
            reason=None if isinstance(self.reason, AwaitingApproval) else self.reason,
            open_calls=[
                FrozenCall(entry.call.id, entry.status, entry.result, entry.is_own)
                for entry in self._open.by_id.values()
            ],
            results=list(self._results),
            incoming=list(self._incoming),
            warnings=list(self._warnings),
            command=self._command,
            wound_up=self._wound_up,
            is_last=self._is_last,
            tool_calls_executed=self._tool_calls_executed,
            detector=None if self._detector is None else self._detector.state(),
            order=None if self._order is None else self._order.state(),
            history=None if self._history is None else self._history.state(),
        )

    @classmethod
    def thaw(
        cls,
        frozen: FrozenState,
        config: ToolLoopConfig[Any],
        *,
        compacts: bool = False,
        now: Callable[[], float] | None = None,
    ) -> Self:
        """Return a machine that goes on where the frozen one stood."""
        state = cls(list(frozen.messages), config, compacts=compacts, now=now)
        state._spent.append(frozen.usage)
        state.iterations = frozen.iterations
        state.tool_rounds = frozen.tool_rounds
        state.response = frozen.response
        state._results = frozen.results
        state._incoming = list(frozen.incoming)
        state._warnings = list(frozen.warnings)
        state._command = frozen.command
        state._wound_up = frozen.wound_up
        state._is_last = frozen.is_last
        state._tool_calls_executed = frozen.tool_calls_executed
        if state._detector is not None and frozen.detector is not None:
            state._detector.restore(frozen.detector)
        if state._order is not None and frozen.order is not None:
            state._order.restore(frozen.order)
        if state._history is not None and frozen.history is not None:
            state._history.restore(frozen.history)
        if frozen.reason is not None:
            state.reason, state.phase = frozen.reason, "finished"
        elif frozen.open_calls:
            state._thaw_calls(frozen.open_calls)
        return state

    def _thaw_calls(self, frozen: Sequence[FrozenCall]) -> None:
        """Open the calls of the last message again, each where it stood."""
        last = self.messages[-1] if self.messages else None
        calls = {call.id: call for call in last.tool_calls} if isinstance(last, AssistantMessage) else {}
        if list(calls) != [saved.call_id for saved in frozen]:
            raise LoopUsageError("the saved calls are not those of the last message")
        for saved in frozen:
            call = calls[saved.call_id]
            self._open.by_id[call.id] = OpenCall(call, saved.status, saved.result, is_own=saved.is_own)
        self._open.unanswered = sum(saved.result is None for saved in frozen)
        self.phase = "running"
