"""What a running tool is told about its call, and how it reports back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic

from typing_extensions import TypeVar

from toolkit.tools.events import Observer, ToolExecutionUpdate, ToolProgress
from toolkit.tools.output import to_output
from toolkit.tools.workers import call_in_loop, is_worker_thread

__all__ = ["Ctx_co", "ToolContext"]

Ctx_co = TypeVar("Ctx_co", covariant=True, default=object)

_NO_METADATA: Mapping[str, Any] = {}


class ToolContext(Generic[Ctx_co]):
    """The envelope round the user's own context, for one call.

    A tool gets it by annotating its context parameter ``ToolContext[App]``; annotated ``App`` it gets `state` itself.

    Attributes:
        call_id: The id of the call.
        tool_name: The name under which the tool was called.
        attempt: 1 for the first run, one more for each retry.
        depth: How many loops are running round this call; 1 inside a plain `tool_loop`, 0 outside of any.
        metadata: What the application attached to the run; no model reads it.
        sync_workers: How many worker threads this event loop may run at once, for a tool that is not async.
    """

    __slots__ = (
        "_is_cancelled",
        "_is_over",
        "_observer",
        "_state",
        "attempt",
        "call_id",
        "depth",
        "metadata",
        "sync_workers",
        "tool_name",
    )

    def __init__(
        self,
        state: Ctx_co,
        *,
        call_id: str = "",
        tool_name: str = "",
        depth: int = 0,
        metadata: Mapping[str, Any] = _NO_METADATA,
        sync_workers: int = 40,
        observer: Observer | None = None,
    ) -> None:
        self._state = state
        self.call_id: str = call_id
        self.tool_name: str = tool_name
        self.attempt: int = 1
        self.depth: int = depth
        self.metadata: Mapping[str, Any] = metadata
        self.sync_workers: int = sync_workers
        self._observer = observer
        self._is_cancelled = False
        self._is_over = False

    @property
    def state(self) -> Ctx_co:
        """The user's own object."""
        return self._state

    @property
    def cancelled(self) -> bool:
        """Whether the call was given up: a function in a worker thread can't be stopped and should look at it."""
        return self._is_cancelled

    @property
    def is_observed(self) -> bool:
        """Whether anybody takes reports; a costly one need not be made otherwise."""
        return self._observer is not None and not self._is_over

    def report_update(self, output: object) -> None:
        """Show what there is so far, as a `ToolExecutionUpdate`; any value that a tool may return.

        On the event loop it never waits; from a worker thread it waits until the update is taken.
        """
        if self.is_observed:
            # Who takes it may change what it is given, and the tool goes on with its own.
            shown = replace(to_output(output))
            self._report(ToolExecutionUpdate(call_id=self.call_id, tool_name=self.tool_name, output=shown))

    def report_progress(self, text: str) -> None:
        """Say how far the work is, as a `ToolProgress`; waits like `report_update`."""
        if self.is_observed:
            self._report(ToolProgress(call_id=self.call_id, tool_name=self.tool_name, text=text))

    def _report(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        observer = self._observer
        if observer is None or self._is_cancelled:
            return
        if is_worker_thread():
            call_in_loop(observer.emit, event)
        else:
            observer.offer(event)

    def abandon(self) -> None:
        """Tell the running function that nobody waits for it anymore."""
        self._is_cancelled = True
        self._is_over = True

    def close(self) -> None:
        """Take no more reports: the call has ended."""
        self._is_over = True
