"""The log of a run in Restate: an entry is a run of the invocation that is moving it.

The engine draws the position of an entry where it is asked for, before anything of it begins, and gives what it has
kept back in that order; so it does with the logs of loops inside of calls (`restate_inner`). It must never try an entry
again by itself: whatever comes out of the work is an outcome here.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence

import anyio
from restate import Context, RestateDurableFuture, RunOptions, TerminalError, wait_completed
from restate.exceptions import SuspendedException
from restate.serde import BytesSerde

from toolkit.durable.restate_inner import InnerLogs
from toolkit.errors import ConfigurationError, JournalError, LoopUsageError, ToolkitError
from toolkit.json_text import write_json
from toolkit.loop.journal import CutError, Journal, JournalEntry, JournalValue

__all__ = ["RestateJournal"]

_logger = logging.getLogger("toolkit.durable")

_REFUSED = "$refused"
"""The key of what is kept in place of a value where the work was refused: the class and the text of the error."""

_REFUSALS: dict[str, type[ToolkitError]] = {
    each.__name__: each for each in (ConfigurationError, JournalError, LoopUsageError)
}
_SUSPENDED_AT_ONCE: set[str] = set()
"""The invocations that were suspended in their first entry, which takes no time."""

_INNER = "logs inside"
"""The name of the runs of the engine that keep the logs of loops inside of calls."""

_OPTIONS = RunOptions(serde=BytesSerde(), max_attempts=1)


class RestateJournal:
    """Keeps a run in the journal of a Restate invocation, for a handler of your own; `restate_service` has one.

    ::

        @service.handler(inactivity_timeout=timedelta(days=1))
        async def ask(ctx: restate.Context, question: str) -> str:
            config = ToolLoopConfig[None](journal=RestateJournal(ctx))
            return (await tool_loop(provider, registry, question, config=config)).text

    Serve it as `restate_service` says, and let nothing take longer than the ``inactivity_timeout``: an invocation that
    is suspended in the middle of its work finds its calls as those of a process that has ended. An error of the
    engine, or a `restate.TerminalError` by which it cancels the invocation, comes out of the loop as it is.

    Args:
        ctx: The context of the invocation.
        run_id: As in `Journal.run_id`; by default one that is made of the id of the invocation.
        on_cancel: Called in place of that error where the invocation is cancelled, such as `ToolLoopHandle.cancel`.
    """

    def __init__(
        self, ctx: Context, run_id: str | None = None, *, on_cancel: Callable[[], object] | None = None
    ) -> None:
        self._ctx = ctx
        self._run_id = hashlib.sha256(ctx.request().id.encode()).hexdigest()[:32] if run_id is None else run_id
        self._on_cancel = on_cancel
        self._has_begun = self._has_worked = False
        self._inner: InnerLogs | None = None  # of the calls that move
        self.trace: Mapping[str, str] = {}
        """The trace context of the first segment of the run, once the log has begun; empty without tracing."""
        self.failure: BaseException | None = None
        """The error that has ended this attempt, which must come out of the handler as it is."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    async def once(self, entry: JournalEntry) -> JournalValue:
        """Return what is kept at the next position, or do the work and keep what it gives; see `Journal`."""
        [value] = await self.all([entry])
        return value

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Do so with several entries at once; see `Journal`."""
        cut = anyio.CancelScope(shield=True)
        calls = [entry.name for entry in entries if entry.is_nested]
        logs = self._inner = InnerLogs(self._run_id, calls) if calls else None
        try:
            self._check_first_entry()
            futures = {entry.name: self._begin_entry(entry, cut) for entry in entries}
            with cut:
                await self._wait_for(futures, logs)
            texts = [] if cut.cancel_called else [await future for future in futures.values()]
        except BaseException as error:
            self.failure = error
            if isinstance(error, SuspendedException) and self._has_worked:
                self._note_suspension()
            raise
        finally:
            self._inner = None
        self._has_begun = True
        if cut.cancel_called:
            raise CutError
        values = [_read_value(text) for text in texts]
        if entries[0].name == "begin":
            self.trace = self.trace or values[0].get("trace", {})
            return [{**values[0], "trace": self.trace}]
        return values

    async def recall(self, name: str) -> JournalValue | None:  # noqa: ARG002 - a decision begins the next segment
        """Return None: a decision is never in the log that awaits it."""
        return None

    async def finish(self) -> None:
        """Do nothing: the engine compares all that a handler asks for with what it has."""

    def nested(self, name: str) -> Journal:
        """Return the log of a loop inside of a call; see `Journal`.

        Raises:
            ConfigurationError: The call has ended.
        """
        if self._inner is None:
            raise ConfigurationError(f"a loop begins inside of call '{name}', which has ended: await it in its tool")
        return self._inner.open_log(name)

    def _check_first_entry(self) -> None:
        if not self._has_begun and self._ctx.request().id in _SUSPENDED_AT_ONCE:
            raise ConfigurationError(
                "Restate suspends each run here after one entry, since it can't be answered while it calls: serve "
                "restate.app([...], protocol='bidi') over HTTP/2, as hypercorn does, and register it again"
            )

    def _note_suspension(self) -> None:
        """Note that the engine did not wait for work, which the next attempt finds as that of a process that ended."""
        if not self._has_begun:
            _SUSPENDED_AT_ONCE.add(self._ctx.request().id)
            return
        _logger.warning(
            "Restate suspended run %s while it worked, and its calls will be told as interrupted: set its "
            "inactivity_timeout above what a request or a call may take",
            self._run_id,
        )

    def _begin_entry(self, entry: JournalEntry, cut: anyio.CancelScope) -> RestateDurableFuture[bytes]:
        logs = self._inner if entry.is_nested else None

        async def do_work() -> bytes:
            self._has_worked = True
            try:
                if logs is not None:
                    await logs.is_live.wait()
                return write_json(await entry.work()).encode()
            except CutError as error:
                if error.__cause__ is None:  # the task of the run was cancelled: nothing is kept
                    cut.cancel()
                    raise anyio.get_cancelled_exc_class() from None
                return _write_refusal(error.__cause__)
            except Exception as error:  # noqa: BLE001 - the engine would try it again
                return _write_refusal(JournalError(f"entry '{entry.name}' can't be stored: {error}"))
            finally:
                if logs is not None:
                    logs.end_call(entry.name)

        return self._ctx.run_typed(entry.name, do_work, _OPTIONS)

    async def _wait_for(self, futures: Mapping[str, RestateDurableFuture[bytes]], logs: InnerLogs | None) -> None:
        """Wait until all have a value, and keep meanwhile what loops inside of calls log."""
        waiting, has_more = list(futures.values()), logs is not None
        while logs is not None and has_more:
            batch = self._ctx.run_typed(_INNER, logs.collect, _OPTIONS)
            waiting.append(batch)
            while batch in waiting:
                done, waiting = await self._wait_for_some(waiting)
                for name in [name for name, future in futures.items() if future in done]:
                    logs.end_call(name)
            has_more = logs.take(await batch)
        while waiting:
            _, waiting = await self._wait_for_some(waiting)

    async def _wait_for_some(
        self, futures: list[RestateDurableFuture[bytes]]
    ) -> tuple[list[RestateDurableFuture[bytes]], list[RestateDurableFuture[bytes]]]:
        """Return those that have a value, one at least, and the others; also where the invocation is cancelled."""
        while True:
            try:
                return await wait_completed(*futures)
            except TerminalError:
                if self._on_cancel is None:
                    raise
                self._on_cancel()


def _write_refusal(error: BaseException) -> bytes:
    name = next((name for name, kind in _REFUSALS.items() if type(error) is kind), JournalError.__name__)
    return write_json({_REFUSED: [name, str(error)]}).encode()


def _read_value(text: bytes) -> JournalValue:
    """Return the value of an entry.

    Raises:
        CutError: Its work was refused.
    """
    value: JournalValue = json.loads(text)
    if _REFUSED in value:
        name, said = value[_REFUSED]
        raise CutError from _REFUSALS[name](said)
    return value
