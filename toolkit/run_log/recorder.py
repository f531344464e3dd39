"""The middleware around one loop that tells the writer its events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from toolkit.chat import ChatResponse, Message, ToolDefinition
from toolkit.loop.events import LoopEvent
from toolkit.loop.middleware import Middleware, RequestInfo, RequestProceed, RunInfo, RunProceed
from toolkit.run_log.lines import LogRecord, Told

__all__ = ["EntryTaker", "RunRecorder", "recorded_run"]

recorded_run: ContextVar[RunInfo[Any] | None] = ContextVar("toolkit_recorded_run", default=None)
"""The loop that is being written, for what is asked of a person on its behalf."""


class EntryTaker(Protocol):
    """Takes what a loop tells, and writes it down."""

    def put(self, told: Told) -> None:
        """Take an event or a record; returns at once."""
        ...


class RunRecorder(Middleware[object]):
    """Serves one loop.

    Args:
        writer: Writes.
        run: The loop.
    """

    def __init__(self, writer: EntryTaker, run: RunInfo[object]) -> None:
        self._writer = writer
        self._run = run
        self._last: Message | None = None
        self._count = 0
        self._definitions: Sequence[ToolDefinition] | None = None
        self._is_told = False

    async def around_run(self, run: RunInfo[object], proceed: RunProceed) -> None:
        """Say whose loop it is, once, and let what runs inside know it."""
        if not self._is_told:
            self._is_told = True
            self._record_entry(
                "loop_opened",
                agent=run.agent,
                provider=run.provider,
                model=run.model,
                parent_loop_id=run.parent_loop_id,
                parent_call_id=run.parent_call_id,
            )
        token = recorded_run.set(run)
        try:
            await proceed()
        finally:
            recorded_run.reset(token)

    async def around_request(self, request: RequestInfo[object], proceed: RequestProceed) -> ChatResponse:
        """Write what is asked that was not asked before."""
        messages, count = request.chat.messages, self._count
        # Where the transcript was shortened or edited, all of it is new.
        if count > len(messages) or (count and messages[count - 1] is not self._last):
            count = 0
        fields: dict[str, Any] = {
            "iteration": request.iteration,
            "attempt": request.attempt,
            "model": request.run.model,
            "known_messages": count,
            "messages": tuple(messages[count:]),
        }
        if request.chat.tools is not self._definitions:
            self._definitions = request.chat.tools
            fields["definitions"] = tuple(request.chat.tools or ())
        self._record_entry("request_made", **fields)
        self._count, self._last = len(messages), messages[-1] if messages else None
        return await proceed()

    def on_event(self, event: LoopEvent) -> None:
        """Write an event."""
        self._writer.put(event)

    def _record_entry(self, kind: str, **fields: Any) -> None:
        run = self._run
        self._writer.put(LogRecord(kind=kind, run_id=run.run_id, loop_id=run.loop_id, time=time.time(), fields=fields))
