"""The client of durable runs: begins them, finds them, and talks to them; no loop runs here."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from anyio import to_thread

from toolkit.chat import AssistantMessage, Message, UserMessage
from toolkit.chat.messages import messages_to_plain
from toolkit.durable.contents import Encryption, check_number, check_storable_text
from toolkit.durable.errors import DurableError
from toolkit.durable.loops import DurableLoop
from toolkit.durable.rests import DurableState, write_prompt
from toolkit.durable.run_rows import RunRow, RunRows
from toolkit.durable.runs import DurableRun, DurableStatus
from toolkit.durable.storage import Storage
from toolkit.errors import ConfigurationError, LoopUsageError
from toolkit.settings import check_setting
from toolkit.trace_context import inject_trace_context

__all__ = ["DurableRuns"]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}")
_MOST_PRIORITY = 2**31 - 1
_Returned = TypeVar("_Returned")


class DurableRuns:
    """The durable runs in a database.

    ::

        async with DurableRuns("postgresql://db/app") as runs:
            run = await runs.start(support, "Where is order 17?", run_id="ticket-17")
            result = await run.result()

    It moves no run: workers do (`DurableWorker`, ``toolkit worker``). Any number of processes may have one, also
    without a worker being there. Works on asyncio and trio.

    Args:
        url: The database: ``sqlite:///runs.db`` for the processes of one machine, ``postgresql://...`` for many.
        encryption: How what is stored is encrypted; the same for all workers and clients.
    """

    def __init__(self, url: str, *, encryption: Encryption | None = None) -> None:
        self._url = url
        self._encryption = encryption
        self._opened: Storage | None = None

    async def __aenter__(self) -> DurableRuns:
        """Open the database; its tables are made where there are none.

        Raises:
            ConfigurationError: The URL is none of a database that can be used.
            DatabaseUnavailableError: The database can't be reached.
        """
        self._opened = await to_thread.run_sync(Storage, self._url, self._encryption)
        self._rows = RunRows(self._opened)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database."""
        storage, self._opened = self._opened, None
        if storage is not None:
            await to_thread.run_sync(storage.close)

    async def start(
        self,
        loop: DurableLoop[Any, Any],
        prompt: str | Sequence[Message],
        *,
        run_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        metadata: Mapping[str, Any] | None = None,
    ) -> DurableRun:
        """Begin a run, or return the one that has the id already, whatever it was begun with.

        Args:
            loop: The loop, as the workers know it by its name.
            prompt: A question, or a transcript to go on from.
            run_id: The id: what the run is for in the application, such as ``ticket-17``; None makes one up.
            tenant: The customer or team that it is for; runs of different tenants take turns.
            priority: Runs of a lower number begin first, of those of one tenant; 0 is the first.
            metadata: JSON, from which the worker makes the context.

        Raises:
            DurableError: The id is that of a run of another loop, or the prompt is no transcript.
            UnstorableValueError: The tenant or the metadata can't be stored; it says which part, and what is right.
            ConfigurationError: The prompt is empty, or the id can't be one.
        """
        check_setting("the loop of a durable run", loop, DurableLoop)
        check_setting("tenant", tenant, str)
        check_setting("priority", priority, int, least=0, most=_MOST_PRIORITY)
        check_setting("metadata", metadata, Mapping, None)
        check_storable_text("the tenant", tenant)
        known = _check_run_id(uuid.uuid4().hex if run_id is None else run_id)
        trace: dict[str, str] = {}
        inject_trace_context(trace)
        begin = {"prompt": write_prompt(prompt, loop.system_prompt), "trace": trace}
        row = RunRow(
            run_id=known,
            loop=loop.name,
            tenant=tenant,
            priority=priority,
            metadata=metadata or {},
            state="queued",
            segment=1,
            attempts=0,
            last_seq=0,
            created=0.0,
            updated=0.0,
        )
        found = await self._ask_database(lambda: self._rows.start(row, begin))
        if found.loop != loop.name:
            raise DurableError(f"run '{known}' is one of loop '{found.loop}', not of '{loop.name}': give another id")
        return DurableRun(self._open_storage, known)

    async def get(self, run_id: str) -> DurableRun:
        """Return a run.

        Raises:
            DurableRunNotFoundError: There is none of this id.
        """
        await self._ask_database(lambda: self._rows.read(run_id))
        return DurableRun(self._open_storage, run_id)

    async def list(
        self,
        *,
        loop: DurableLoop[Any, Any] | str | None = None,
        state: DurableState | None = None,
        tenant: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[DurableStatus]:
        """Return runs in short, the newest first.

        Args:
            loop: Only those of this loop.
            state: Only those that stand so.
            tenant: Only those of this tenant.
            limit: How many at most.
            before: The id of the last run of the page before: only older ones.
        """
        check_setting("limit", limit, int, least=1)
        check_number("the limit of a list", limit)
        name = loop.name if isinstance(loop, DurableLoop) else loop
        for place, text in (("the loop of a list", name), ("the tenant of a list", tenant)):
            if text is not None:
                check_storable_text(place, text)
        found = await self._ask_database(
            lambda: self._rows.list_rows(loop=name, tenant=tenant, state=state, before=before, limit=limit)
        )
        return [DurableStatus.of_row(row) for row in found]

    async def fork(
        self, run_id: str, *, turn: int, prompt: str | Sequence[Message] = (), new_run_id: str | None = None
    ) -> DurableRun:
        """Begin a run from the transcript of another one as it was after a turn; see `DurableRun.fork`."""
        row = await self._ask_database(lambda: self._rows.read(run_id))
        rest = await self._ask_database(lambda: self._rows.read_rest(row))
        if rest is None:
            raise DurableError(f"run '{run_id}' is {row.state}: it can be forked when it is at rest")
        begin = _cut_after_turn(rest.load_messages(), turn, run_id)
        begin += [UserMessage(prompt)] if isinstance(prompt, str) else list(prompt)
        forked = replace(row, run_id=_check_run_id(new_run_id or uuid.uuid4().hex))
        plain = {"prompt": messages_to_plain(begin), "trace": {}, "forked": {"run_id": run_id, "turn": turn}}
        await self._ask_database(lambda: self._rows.start(forked, plain))
        return DurableRun(self._open_storage, forked.run_id)

    async def delete(self, run_id: str) -> None:
        """Delete a run at rest, and all that is kept of it.

        Raises:
            DurableError: It moves, or waits for a worker.
        """
        await self._ask_database(lambda: self._rows.delete(run_id))

    @property
    def _open_storage(self) -> Storage:
        if self._opened is None:
            raise LoopUsageError("durable runs are not open: use 'async with DurableRuns(url) as runs:'")
        return self._opened

    async def _ask_database(self, work: Callable[[], _Returned]) -> _Returned:
        return await self._open_storage.ask(work)


def _check_run_id(run_id: str) -> str:
    check_setting("run_id", run_id, str)
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigurationError(
            f"{run_id!r} is no id of a durable run: give 1 to 200 letters, digits, '_', '.', ':', '@' or '-', "
            "such as 'ticket-17'"
        )
    return run_id


def _cut_after_turn(messages: Sequence[Message], turn: int, run_id: str) -> list[Message]:
    """Return a transcript up to the end of a turn.

    Raises:
        DurableError: There is no such turn in it.
    """
    check_setting("turn", turn, int, least=1)
    starts = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    if turn > len(starts):
        raise DurableError(f"run '{run_id}' has {len(starts)} turns in its transcript: it can't be forked at {turn}")
    end = starts[turn - 1] + 1
    calls = messages[end - 1]
    assert isinstance(calls, AssistantMessage)
    return list(messages[: end + len(calls.tool_calls)])
