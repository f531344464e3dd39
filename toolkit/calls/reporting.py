"""Brings the reports of a running tool to whoever takes the events, from whatever thread they are made in."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from threading import Event, get_ident

import anyio

from toolkit.calls.events import Observer, ToolExecutionUpdate, ToolProgress
from toolkit.chat.output import ToolOutput
from toolkit.runtime.backend import detached_starter, is_in_event_loop, loop_waker
from toolkit.runtime.workers import call_in_loop, worker_loop_thread

__all__ = ["Reporter"]

_logger = logging.getLogger("toolkit.calls")

_CHECK_SECONDS = 1.0  # how often a thread that waits for an event loop looks whether that still answers


class Reporter:
    """Takes the reports of one call; made in the event loop in which the call runs.

    In that loop a report is taken without waiting, and of what waits the oldest gives way. From another thread it waits
    until the report is taken, so that no thread runs ahead of its readers; from another event loop, which it must not
    hold up, it doesn't.
    """

    __slots__ = (
        "_call_id",
        "_home",
        "_is_over",
        "_label",
        "_observer",
        "_queue",
        "_start",
        "_tags",
        "_tool_name",
        "_waiting",
        "_wake",
    )

    def __init__(
        self, observer: Observer, call_id: str, tool_name: str, *, label: str = "", tags: frozenset[str] = frozenset()
    ) -> None:
        self._observer = observer
        self._call_id = call_id
        self._tool_name = tool_name
        self._label = label
        self._tags = tags
        self._home = get_ident()
        self._wake = loop_waker()
        self._start = detached_starter()
        self._is_over = False
        self._waiting: set[anyio.CancelScope] = set()
        self._queue: deque[tuple[ToolExecutionUpdate | ToolProgress, Event]] = deque()

    def another(self) -> Reporter:
        """Return one for another attempt at the call."""
        return Reporter(self._observer, self._call_id, self._tool_name, label=self._label, tags=self._tags)

    @property
    def is_over(self) -> bool:
        """True where no more reports are taken."""
        return self._is_over

    def close(self) -> None:
        """Take no more reports; who waits for one to be taken goes on."""
        self._is_over = True
        for scope in tuple(self._waiting):
            scope.cancel()

    def report_update(self, output: ToolOutput) -> None:
        """Report what there is so far."""
        self._send_report(self._update_of(output))

    def report_progress(self, text: str) -> None:
        """Report how far the work is."""
        self._send_report(
            ToolProgress(
                call_id=self._call_id, tool_name=self._tool_name, label=self._label, tags=self._tags, text=text
            )
        )

    async def deliver_update(self, output: ToolOutput) -> None:
        """Report what there is so far, in the event loop of the call, and wait until it is taken."""
        if not self._is_over:
            await self._observer.emit(self._update_of(output))

    async def deliver_progress(self, text: str, details: object) -> None:
        """Report how far the work is, in the event loop of the call, and wait until it is taken."""
        if not self._is_over:
            await self._observer.emit(
                ToolProgress(
                    call_id=self._call_id,
                    tool_name=self._tool_name,
                    label=self._label,
                    tags=self._tags,
                    text=text,
                    details=details,
                )
            )

    def _update_of(self, output: ToolOutput) -> ToolExecutionUpdate:
        return ToolExecutionUpdate(
            call_id=self._call_id, tool_name=self._tool_name, label=self._label, tags=self._tags, output=output
        )

    def _send_report(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        if get_ident() == self._home:
            self._offer_event(event)
        elif worker_loop_thread() == self._home:
            call_in_loop(self._deliver_event, event)
        elif is_in_event_loop():
            self._wake(partial(self._offer_event, event))
        else:
            self._deliver_from_thread(event)

    def _offer_event(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        if not self._is_over:
            self._observer.offer(event)

    async def _deliver_event(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        if self._is_over:
            return
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                await self._observer.emit(event)
            finally:
                self._waiting.discard(scope)

    def _deliver_from_thread(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Have the event delivered at home, and wait for that; a loop that doesn't answer is not waited for."""
        begun, ended = Event(), Event()

        def start() -> None:
            begun.set()
            if self._is_over:
                ended.set()
                return
            self._queue.append((event, ended))
            if len(self._queue) == 1:
                self._start_delivery()

        if not self._wake(start):
            return
        if not begun.wait(_CHECK_SECONDS):
            return  # what holds the loop up may be a function that waits for this very thread
        while not ended.wait(_CHECK_SECONDS):
            if not self._wake(_answer_nothing):
                return

    def _start_delivery(self) -> None:
        try:
            self._start(self._deliver_queue)
        except RuntimeError:
            _logger.debug("the event loop ends, and takes no report of %s anymore", self._tool_name)
            while self._queue:
                self._queue.popleft()[1].set()

    async def _deliver_queue(self) -> None:
        """Deliver what threads report, one after the other: tasks of their own would run in any order on trio."""
        while self._queue:
            event, ended = self._queue[0]
            try:
                await self._deliver_event(event)
            except Exception:
                _logger.exception("a report of %s could not be delivered", self._tool_name)
            finally:
                self._queue.popleft()
                ended.set()


def _answer_nothing() -> None: ...
