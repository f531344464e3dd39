"""The entries of a run that is kept in a log: each is taken from there, or its work is done and kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from toolkit.calls.handler import Ctx
from toolkit.chat.messages import messages_to_plain
from toolkit.errors import JournalError, LoopUsageError
from toolkit.json_text import digest_json
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.entry_work import LiveWork, StopAnswer, current_record, load_failure
from toolkit.loop.feeds import CallReturned, CallsPrepared, Feed, RunEnded, dump_feed, load_feed
from toolkit.loop.journal import Journal, JournalEntry, JournalValue
from toolkit.loop.outcome import Cancelled, Timeout
from toolkit.loop.side_state import SideState
from toolkit.loop.state import LoopState
from toolkit.loop.stopping import Continue, Stop, StopContext, StopDecision, ask_stop_when

if TYPE_CHECKING:
    from toolkit.loop.clock import LoopClock
    from toolkit.loop.driver import Driver
    from toolkit.loop.requests import ModelRequests
    from toolkit.loop.resources import LoopResources

__all__ = ["JournaledEntries"]

_NO_ARGUMENTS: Mapping[str, str] = {}


class JournaledEntries(Generic[Ctx]):
    """The part of a run with a log that reads and writes it; `JournaledSteps` says what the entries are.

    Args:
        journal: The log.
        config: The settings as the application gave them.

    Attributes:
        config: The settings for the machine, whose questions to the application are recorded.
        works: The works that are under way.
        is_cut: True where all that is done is to end, because the run was cancelled.
        is_failing: True where it is to end because the run has failed.
        time: The time of what the machine writes itself, in seconds since 1970: that of the entry it follows from.
    """

    def __init__(self, journal: Journal, config: ToolLoopConfig[Any]) -> None:
        self._journal = journal
        self._stop_when = config.stop_when
        asked = config.stop_when is not None
        self.config: ToolLoopConfig[Any] = replace(config, stop_when=self._ask_stop_when) if asked else config
        self.time: float = time.time()
        self._stops: list[StopAnswer] | None = None  # while entries are replayed
        self._has_told = self._has_replayed = False
        self._arguments: dict[str, str] = {}
        self._bindings: dict[str, str] = {}
        self.works: set[LiveWork] = set()
        self.is_cut: bool = False
        self.is_failing: bool = False

    def record_feeds(self, state: LoopState) -> Callable[[Feed], None]:
        """Return what feeds the machine, and writes down each feed that comes out of the work of an entry."""
        self._state = state
        return self.feed

    def feed(self, feed: Feed) -> None:
        """Feed the machine, and write that down.

        Raises:
            LoopUsageError: It does not fit.
            JournalError: It can't be stored.
        """
        record = current_record.get()
        while record is not None and record.run is not self:
            record = record.outer
        if record is None:
            self._state.feed(feed)
            return
        dumped = feed
        if isinstance(feed, CallsPrepared) and not self._state.reads_calls:
            dumped = replace(feed, calls=None)  # the answers of `stop_when` are recorded by themselves
        elif isinstance(feed, CallReturned) and feed.result.time is None:
            feed = dumped = replace(feed, result=replace(feed.result, time=time.time()))
        try:
            plain = dump_feed(dumped, self._state.messages)
        except ValueError as error:
            raise JournalError(f"{type(feed).__name__} can't be stored in the log of the run: {error}") from error
        self._state.feed(feed)
        if plain is not None:
            record.feeds.append(plain)

    def serve(
        self, driver: Driver[Ctx, Any], resources: LoopResources[Ctx], requests: ModelRequests, *, is_restored: bool
    ) -> None:
        """Take the loop that is driven."""
        self._driver = driver
        self._resources = resources
        self._requests = requests
        self._side = SideState(resources, requests)
        messages = messages_to_plain(self._state.messages)
        self._prompt: JournalValue = {"restored": digest_json(messages)} if is_restored else {"messages": messages}

    def attend(self, clock: LoopClock, read_wish: Callable[[], tuple[str | None] | None]) -> None:
        """Take the time that the run may take, and what tells that it is cancelled, and why."""
        self._side.clock, self._read_wish = clock, read_wish

    @property
    def run_id(self) -> str:
        """The id of the run, as its log says it."""
        return self._journal.run_id

    def read_time(self) -> float:
        """Return the time of what the machine writes itself."""
        return self.time

    def take_failure(self) -> None:
        """Cancel what is being done: the run fails."""
        self.is_failing = True
        self._cut_works()

    def _cut_works(self) -> None:
        for work in self.works:
            if work.failure is None:
                work.scope.cancel()

    async def tell_start(self) -> None:
        """Tell observers, once, that the run begins or goes on."""
        if not self._has_told:
            self._has_told = True
            await self._driver.tell_start(is_resumed=self._has_replayed)

    # entries

    async def _keep_entry(self, name: str, do: Callable[[], Awaitable[JournalValue]]) -> JournalValue:
        """Take an entry from the log, or do what is to be done and keep that."""
        side = self._side

        async def do_measured() -> JournalValue:
            before = side.read_spent()
            return {**await do(), **side.count_spent(before)}

        work = LiveWork(self, name, do_measured)
        self.time = time.time()
        value = await self._journal.once(JournalEntry(name, work))
        await self._take_entry(work, value)
        return value

    async def _take_entry(self, work: LiveWork, value: JournalValue) -> None:
        if not work.is_done:
            self._replay_entry(work.name, value)
        elif self._state.turn.closed:
            await self._driver.tell_refusals()
        failure = work.failure or load_failure(value)
        if failure is not None:
            raise failure
        self._end_as_kept(value)

    def _replay_entry(self, name: str, value: JournalValue) -> None:
        self._has_replayed = True
        untold = len(self._state.turn.closed)  # of works that were done beside this entry
        try:
            if not name.startswith("call "):  # which run at the same time, and so at none
                self.time = value["at"]
            self._stops = list(value.get("stops", ()))
            for feed in value.get("feeds", ()):
                self._state.feed(load_feed(feed, self._state.messages))
            self._take_arguments(value.get("arguments", _NO_ARGUMENTS))
            self._bindings |= value.get("bindings", {})
            self._side.note(value)
        except (LookupError, TypeError, ValueError, LoopUsageError) as error:
            raise JournalError(
                f"the entry '{name}' of the log does not fit the run, or was changed: {error}"
            ) from error
        finally:
            self._stops = None
        del self._state.turn.closed[untold:]

    def _take_arguments(self, arguments: Mapping[str, str]) -> None:
        """Have calls run with the arguments that were decided on, also where they are prepared with their own."""
        self._arguments |= arguments
        for call_id in arguments:
            entry = self._state.turn.by_id.get(call_id)
            if entry is not None:
                entry.prepared = None

    def _end_as_kept(self, value: JournalValue) -> None:
        match value.get("stopped"):
            case {"kind": "cancelled", "reason": reason}:
                self._state.feed(RunEnded(Cancelled(reason)))
            case {"kind": "timeout", "limit": limit}:
                self._state.feed(RunEnded(Timeout(limit)))
            case _:
                pass

    def write_side(self) -> JournalValue:
        """Return what the run knows beside its machine, for an entry."""
        return self._side.write()

    def write_stop(self) -> JournalValue | None:
        """Return why what is being done was cut, where that ends the run for good; None for a cancellation of tasks."""
        scope = self._resources.memory.run_scope
        if self.is_failing:
            return {"kind": "failed"}
        if scope is None or not scope.cancel_called:
            return None
        wish = self._read_wish()
        if wish is not None:
            return {"kind": "cancelled", "reason": wish[0]}
        return {"kind": "timeout", "limit": self._driver.timeout}

    async def go_live(self) -> None:
        """Make ready for work that the log does not have."""
        self._side.restore()
        await self.tell_start()

    # what the application is asked by the machine

    def _ask_stop_when(self, context: StopContext) -> StopDecision:
        if self._stops is not None:
            if not self._stops:
                raise JournalError("the log has no answer of stop_when where it is asked: it was written without one")
            kept = self._stops.pop(0)
            return Continue() if kept is None else Stop(kept["reason"])
        assert self._stop_when is not None
        decision = ask_stop_when(self._stop_when, context)
        record = current_record.get()
        if record is not None:
            record.stops.append({"reason": decision.reason} if isinstance(decision, Stop) else None)
        return decision
