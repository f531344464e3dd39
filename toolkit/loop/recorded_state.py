"""A machine that writes down each feed it is given, for a run that is kept in a log.

Which entry a feed belongs to is told by the context it comes from: each piece of work has a record of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

from typing_extensions import override

from toolkit.calls.approval import Verdict
from toolkit.calls.run import CutCall
from toolkit.chat import ChatResponse, Message, ToolCall, ToolResult, Usage, UserMessage
from toolkit.dataclass import dataclass
from toolkit.errors import JournalError
from toolkit.loop.feeds import Feed, dump_feed, dump_verdict, load_feed, load_verdict
from toolkit.loop.outcome import Aborted, LoopDetected, NoValidAnswer, TypedAnswer, UsageLimit
from toolkit.loop.state import NO_MISTAKES, LoopState
from toolkit.loop.steps import Step

__all__ = ["FeedRecord", "RecordedState", "StopAnswer", "current_record"]


StopAnswer: TypeAlias = dict[str, str | None] | None
"""An answer of ``stop_when``: None to go on, else the reason to stop."""


@dataclass(slots=True)
class FeedRecord:
    """The feeds of one piece of work.

    Args:
        state: The machine that it feeds.
        outer: The record of the work that this is a part of: that of a loop round this one.
        feeds: In order.
        stops: The answers of ``stop_when``, in order.
    """

    state: RecordedState
    outer: FeedRecord | None
    feeds: list[Feed] = field(default_factory=list[Feed])
    stops: list[StopAnswer] = field(default_factory=list[StopAnswer])


current_record: ContextVar[FeedRecord | None] = ContextVar("toolkit_feed_record", default=None)
"""The record of the work that the current code does."""


class RecordedState(LoopState):
    """The machine of a run that is kept in a log: each feed that comes out of recorded work is written down."""

    __slots__ = ()

    def begin_turn(self) -> Step:
        """Return the next step, where that changes the machine: it is a feed of its own."""
        self._write_feed("next_step")
        return self.next_step()

    @override
    def compacted(self, messages: Sequence[Message]) -> None:
        self._write_feed("compacted", _refer_to_kept(self.messages, messages))
        super().compacted(messages)

    @override
    def keep_partial(self, text: str) -> None:
        self._write_feed("keep_partial", text)
        super().keep_partial(text)

    @override
    def limit_reached(self, limit: UsageLimit) -> None:
        self._write_feed("limit_reached", limit)
        super().limit_reached(limit)

    @override
    def model_replied(self, response: ChatResponse) -> Sequence[ToolCall]:
        self._write_feed("model_replied", response)
        return super().model_replied(response)

    @override
    def calls_prepared(
        self, calls: Sequence[ToolCall], mistakes: Mapping[str, Literal["name", "arguments"]] = NO_MISTAKES
    ) -> LoopDetected | None:
        # Nothing else looks at them again: the answers of `stop_when` are recorded by themselves.
        is_read = self._detector is not None or self._order is not None or self._history is not None
        self._write_feed("calls_prepared", list(calls) if is_read else None, dict(mistakes))
        return super().calls_prepared(calls, mistakes)

    @override
    def approval_decided(
        self, call_id: str, verdict: Verdict, *, tool_name: str = "", is_alone: bool = False
    ) -> ToolResult | None:
        self._write_feed("approval_decided", call_id, *dump_verdict(verdict), tool_name, is_alone)
        return super().approval_decided(call_id, verdict, tool_name=tool_name, is_alone=is_alone)

    @override
    def call_reopened(self, call_id: str) -> None:
        self._write_feed("call_reopened", call_id)
        super().call_reopened(call_id)

    @override
    def tool_started(self, call_id: str) -> None:
        self._write_feed("tool_started", call_id)
        super().tool_started(call_id)

    @override
    def tool_returned(self, call_id: str, result: ToolResult) -> None:
        if result.time is None:
            result = replace(result, time=time.time())
        self._write_feed("tool_returned", call_id, result)
        super().tool_returned(call_id, result)

    @override
    def tool_cut(self, call_id: str, cut: CutCall) -> None:
        self._write_feed("tool_cut", call_id, cut)
        super().tool_cut(call_id, cut)

    @override
    def answer_judged(self, judgement: TypedAnswer | NoValidAnswer | UserMessage) -> None:
        self._write_feed("answer_judged", judgement)
        super().answer_judged(judgement)

    @override
    def spent(self, usage: Usage) -> None:
        self._write_feed("spent", usage)
        super().spent(usage)

    @override
    def steered(self, messages: Iterable[Message]) -> None:
        new = list(messages)
        if new:
            super().steered(new)
            self._write_feed("steered", new)

    @override
    def wind_up(self, reason: UsageLimit | NoValidAnswer | Aborted) -> None:
        super().wind_up(reason)
        self._write_feed("wind_up", reason)

    def replay(self, feeds: Iterable[Feed]) -> None:
        """Take recorded feeds, in place of the work that they came from.

        Raises:
            ValueError: One of them is none.
            LoopUsageError: One does not fit where the machine stands.
        """
        calls: Sequence[ToolCall] = ()
        for feed in feeds:
            name, arguments = load_feed(feed)
            match name:
                case "model_replied":
                    calls = super().model_replied(*arguments)
                case "calls_prepared":
                    super().calls_prepared(calls if arguments[0] is None else arguments[0], arguments[1])
                case "approval_decided":
                    call_id, kind, reason, tool_name, is_alone = arguments
                    verdict = load_verdict(kind, reason)
                    super().approval_decided(call_id, verdict, tool_name=tool_name, is_alone=is_alone)
                case "compacted":
                    super().compacted(_restore_kept(self.messages, arguments[0]))
                case _:
                    getattr(super(), name)(*arguments)

    def _write_feed(self, name: str, *arguments: Any) -> None:
        record = current_record.get()
        while record is not None and record.state is not self:
            record = record.outer
        if record is None:
            return
        try:
            record.feeds.append(dump_feed(name, arguments))
        except ValueError as error:
            raise JournalError(f"what '{name}' is given can't be kept in the log of the run: {error}") from error


def _refer_to_kept(before: Sequence[Message], after: Sequence[Message]) -> list[Message | tuple[int, int]]:
    """Return a shorter transcript, with a pair of positions in place of each stretch that stayed."""
    positions = {id(message): position for position, message in enumerate(before)}
    parts: list[Message | tuple[int, int]] = []
    for message in after:
        position = positions.get(id(message))
        last = parts[-1] if parts else None
        if position is None:
            parts.append(message)
        elif isinstance(last, tuple) and last[1] == position:
            parts[-1] = (last[0], position + 1)
        else:
            parts.append((position, position + 1))
    return parts


def _restore_kept(before: Sequence[Message], parts: Sequence[Message | tuple[int, int]]) -> list[Message]:
    messages: list[Message] = []
    for part in parts:
        messages.extend(before[part[0] : part[1]] if isinstance(part, tuple) else (part,))
    return messages
