"""The work of one entry of a durable run's log: it is done once, and all that it fed the machine becomes the entry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import field
from typing import Protocol, TypeAlias

import anyio

from toolkit.chat.serialization import provider_error_from_plain, provider_error_to_plain
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, JournalError, LoopError, ProviderError, ToolCrashedError
from toolkit.loop.feeds import FeedJson, UsageSpent, dump_feed, load_feed
from toolkit.loop.journal import JournalValue
from toolkit.secrets import without_keys

__all__ = ["CutError", "FeedRecord", "LiveWork", "RecordedRun", "StopAnswer", "current_record", "load_failure"]


class CutError(BaseException):
    """Comes out of work of which nothing is to be kept; its cause is what came in between, None for a cancellation.

    It is no `Exception`, so that no journal takes it for the outcome of the work.
    """


StopAnswer: TypeAlias = dict[str, str | None] | None
"""An answer of ``stop_when``: None to go on, else the reason to stop."""


@dataclass(slots=True)
class FeedRecord:
    """The feeds of one piece of work.

    Args:
        run: The run whose machine it feeds.
        outer: The record of the work that this is a part of: that of a loop round this one.
        feeds: In order.
        stops: The answers of ``stop_when``, in order.
    """

    run: RecordedRun
    outer: FeedRecord | None
    feeds: list[FeedJson] = field(default_factory=list[FeedJson])
    stops: list[StopAnswer] = field(default_factory=list[StopAnswer])


current_record: ContextVar[FeedRecord | None] = ContextVar("toolkit_feed_record", default=None)
"""The record of the work that the current code does."""


class RecordedRun(Protocol):
    """The run that work belongs to."""

    works: set[LiveWork]
    is_cut: bool
    is_failing: bool
    time: float

    async def go_live(self) -> None:
        """Make ready for work."""
        ...

    def take_failure(self) -> None:
        """Cancel what is being done: the run fails."""
        ...

    def write_stop(self) -> JournalValue | None:
        """Return why what is being done was cut; None where the run goes on in another process."""
        ...

    def write_side(self) -> JournalValue:
        """Return what the run knows beside its machine."""
        ...


class LiveWork:
    """The work of one entry.

    Args:
        run: The run.
        name: The entry.
        do: Feeds the machine, and gives what else is to be kept.

    Attributes:
        scope: Cancelled where the work is to end.
        is_done: True where it was done, and the entry was not kept already.
        failure: The error that ended it.
    """

    def __init__(self, run: RecordedRun, name: str, do: Callable[[], Awaitable[JournalValue]]) -> None:
        self._run = run
        self._do = do
        self.name: str = name
        self.scope: anyio.CancelScope = anyio.CancelScope()
        self.is_done: bool = False
        self.failure: Exception | None = None

    async def __call__(self) -> JournalValue:
        """Do it, and return the entry."""
        run, record = self._run, FeedRecord(self._run, current_record.get())
        run.works.add(self)
        token = current_record.set(record)
        value: JournalValue = {"at": run.time}
        try:
            if run.is_cut or run.is_failing:
                self.scope.cancel()
            with self.scope:
                value |= await self._do_live()
            if self.scope.cancelled_caught:
                value["stopped"] = run.write_stop()
                if value["stopped"] is None:
                    raise CutError
            value |= run.write_side()
            value["feeds"] = record.feeds
            if record.stops:
                value["stops"] = record.stops
        finally:
            current_record.reset(token)
            run.works.discard(self)
        self.is_done = True
        return value

    async def _do_live(self) -> JournalValue:
        try:
            await self._run.go_live()
            return await self._do()
        except (ConfigurationError, JournalError) as error:  # mended by the application, not by the run
            raise CutError from error
        except Exception as error:  # noqa: BLE001 - it is the outcome of the run
            self.failure = error
            self._run.take_failure()
            return {"failed": _dump_failure(error)}


def _dump_failure(error: Exception) -> JournalValue:
    """Return the error that ended a run as JSON."""
    if isinstance(error, ProviderError):
        plain: JournalValue = provider_error_to_plain(error)
        plain["message"] = without_keys(plain["message"])
        return {"provider": plain, "usage": None if error.usage is None else dump_feed(UsageSpent(error.usage))}
    if isinstance(error, ToolCrashedError):
        said = str(error).removeprefix(str(ToolCrashedError(error.tool, error.call_id, "")))
        return {"crash": [error.tool, error.call_id, without_keys(said)]}
    said = without_keys(str(error))
    return {"error": said if isinstance(error, LoopError) else f"{type(error).__name__}: {said}"}


def load_failure(value: JournalValue) -> Exception | None:
    """Return the error that an entry says has ended the run; None where it says of none.

    Raises:
        JournalError: It can't be read.
    """
    try:
        match value.get("failed"):
            case None:
                return None
            case {"provider": plain, "usage": usage}:
                error = provider_error_from_plain(plain)
                spent = None if usage is None else load_feed(usage)
                error.usage = spent.usage if isinstance(spent, UsageSpent) else None
                return error
            case {"crash": [str(tool), str(call_id), str(reason)]}:
                return ToolCrashedError(tool, call_id, reason)
            case {"error": str(message)}:
                return LoopError(message)
            case unknown:
                return JournalError(f"the log says that the run has failed, but not how: {unknown!r}")
    except (LookupError, TypeError, ValueError) as error:
        raise JournalError(f"the error that ended the run can't be read from the log: {error}") from error
