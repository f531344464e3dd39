"""A durable loop as a virtual object of Restate: each run is an object, which its handlers move from rest to rest."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from restate import ObjectContext, ObjectSharedContext, TerminalError, VirtualObject
from restate.serde import JsonSerde

from toolkit.chat import Message
from toolkit.durable.loops import DurableLoop, LoopQueue, RunPlace
from toolkit.durable.restate_journal import RestateJournal
from toolkit.durable.rests import InboxItem, Rest, leave_error, leave_result, read_messages, read_rest, write_prompt
from toolkit.durable.run_handles import configure_run, make_handle, write_traceback
from toolkit.errors import ConfigurationError, ToolkitError
from toolkit.json_text import write_json
from toolkit.loop.handle import ToolLoopHandle
from toolkit.settings import check_setting

__all__ = ["restate_service"]

_logger = logging.getLogger("toolkit.durable")

_LONGEST_STEP = timedelta(days=7)
"""The engine suspends a step that takes longer, and its calls would then be told as interrupted."""

_DECISIONS = frozenset({"approve", "deny", "modify", "abort"})
_PLAIN: JsonSerde[Any] = JsonSerde()


def restate_service(loop: DurableLoop[Any, Any]) -> VirtualObject:
    """Return a durable loop as a virtual object, for `restate.app`; the key of an object is the id of a run.

    ::

        app = restate.app([restate_service(support)], protocol="bidi")  # hypercorn --bind 0.0.0.0:9080 shop:app

    Its handlers take and return JSON objects. A run is in one of them while it moves; what they return is how it came
    to rest (``state``, ``ending``, ``error``, ``messages``, ``result``, ``snapshot``), which the object keeps.

    - ``start``: ``{"prompt": ..., "tenant": ..., "metadata": ...}`` begins the run; the same again gives its rest.
    - ``decide``: ``{"call_id": ..., "binding": ..., "decision": {"kind": "approve"}}`` decides on a call that awaits
      it, and goes on; or ``{"kind": "deny", "reason": ...}``, ``{"kind": "modify", "arguments": ...}``, and
      ``{"kind": "abort", "reason": ...}``. A second decider gets error 409.
    - ``status``: the ``state``, and the calls that are ``pending``.
    - ``result``: how it came to rest last.
    - ``cancel``: what runs is told, and the transcript is closed.
    - ``forget``: delete what the object keeps.

    Args:
        loop: The loop. Restate shares the work out by itself, so it has no `queue`.

    Raises:
        ConfigurationError: A part of it can't work in Restate.
    """
    check_setting("the loop of a service", loop, DurableLoop)
    if loop.queue != LoopQueue():
        raise ConfigurationError(
            f"the loop '{loop.name}' has a queue, which Restate would not keep to: set limits in its own configuration"
        )
    service = VirtualObject(loop.name, inactivity_timeout=_LONGEST_STEP)
    handlers = _RunHandlers(loop)
    service.handler("start")(handlers.start)
    service.handler("decide")(handlers.decide)
    service.handler("forget")(handlers.forget)
    service.handler("status", kind="shared")(handlers.status)
    service.handler("result", kind="shared")(handlers.result)
    service.handler("cancel", kind="shared")(handlers.cancel)
    service.handler("close", ingress_private=True)(handlers.close)
    service.handler("expire", ingress_private=True)(handlers.expire)
    return service


class _RunHandlers:
    """The handlers of the runs of one loop.

    An object keeps ``run``, what it was started with; ``segment``, how often it has begun to move; ``moving``, the
    invocation that moves it; and ``rest``.
    """

    def __init__(self, loop: DurableLoop[Any, Any]) -> None:
        self._loop = loop

    async def start(self, ctx: ObjectContext, request: dict[str, Any]) -> dict[str, Any]:
        """Begin a run; return how it came to rest."""
        run = await _read_state(ctx, "run")
        asked = self._read_start(request)
        if run is None:
            ctx.set("run", asked, _PLAIN)
            return await self._begin_segment(ctx, asked, None, [])
        if run != asked:
            raise TerminalError(f"run '{ctx.key()}' was begun with something else: give another id", 409)
        return await _read_kept(ctx)

    async def decide(self, ctx: ObjectContext, request: dict[str, Any]) -> dict[str, Any]:
        """Decide on a call that awaits it; return how the run came to rest then."""
        rest = read_rest(await _read_kept(ctx))
        decision: Any = request.get("decision")
        if not isinstance(decision, dict) or cast("dict[str, Any]", decision).get("kind") not in _DECISIONS:
            raise TerminalError(f"a decision has a 'kind', which is one of {', '.join(sorted(_DECISIONS))}", 400)
        asked = (request.get("call_id"), request.get("binding"))
        if asked not in [(pending.call_id, pending.binding) for pending in rest.pending]:
            raise TerminalError(
                f"the decision on call {asked[0]!r} of run '{ctx.key()}' was not taken: somebody has decided, or it is "
                "on something else; 'status' tells what is pending",
                409,
            )
        item = _make_item(1, *asked, cast("dict[str, Any]", decision))
        return await self._begin_segment(ctx, await _read_state(ctx, "run"), rest, [item])

    async def status(self, ctx: ObjectSharedContext) -> dict[str, Any]:
        """Return how the run stands."""
        if await _read_state(ctx, "moving") is not None:
            return {"run_id": ctx.key(), "state": "running", "ending": "", "error": "", "pending": []}
        rest = await _read_kept(ctx)
        pending: list[Any] = rest["snapshot"]["pending_approvals"] if rest["state"] == "waiting" else []
        told = {name: rest[name] for name in ("state", "ending", "error")}
        return {"run_id": ctx.key(), **told, "pending": pending}

    async def result(self, ctx: ObjectSharedContext) -> dict[str, Any]:
        """Return how the run came to rest last."""
        return await _read_kept(ctx)

    async def cancel(self, ctx: ObjectSharedContext) -> None:
        """Cancel the run, whether it moves or rests."""
        moving = await _read_state(ctx, "moving")
        if moving is None:
            ctx.generic_send(self._loop.name, "close", b"", key=ctx.key())
        else:
            ctx.cancel_invocation(moving)

    async def forget(self, ctx: ObjectContext) -> None:
        """Delete what is kept of the run."""
        ctx.clear_all()

    async def close(self, ctx: ObjectContext) -> None:
        """Close a run that awaits a decision."""
        await self._close_waiting(ctx, None)

    async def expire(self, ctx: ObjectContext, segment: int) -> None:
        """Deny the calls that await a decision since a segment."""
        if await _read_state(ctx, "segment") == segment:
            await self._close_waiting(ctx, {"kind": "deny", "reason": "Tool call denied: nobody decided in time."})

    async def _close_waiting(self, ctx: ObjectContext, decision: Mapping[str, Any] | None) -> None:
        kept = await _read_state(ctx, "rest")
        if kept is None or kept["state"] != "waiting":
            return
        rest = read_rest(kept)
        items = [InboxItem(id=1, kind="cancel", body={})]
        if decision is not None:
            pending = enumerate(rest.pending, 1)
            items = [_make_item(number, each.call_id, each.binding, decision) for number, each in pending]
        await self._begin_segment(ctx, await _read_state(ctx, "run"), rest, items)

    def _read_start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run is begun with, as it is kept.

        Raises:
            TerminalError: It can't be begun so.
        """
        prompt: Any = request.get("prompt")
        tenant: Any = request.get("tenant", "")
        metadata: Any = request.get("metadata") or {}
        if not isinstance(tenant, str) or not isinstance(metadata, dict):
            raise TerminalError("a run's tenant is a text, and its metadata an object", 400)
        try:
            begin = prompt if isinstance(prompt, str) else read_messages(prompt or [])
            messages = write_prompt(begin, self._loop.system_prompt)
        except (ToolkitError, ValueError) as error:
            raise TerminalError(f"the run can't be begun: {error}", 400) from error
        return {"prompt": messages, "tenant": tenant, "metadata": metadata}

    async def _begin_segment(
        self, ctx: ObjectContext, run: Mapping[str, Any], rest: Rest | None, items: Sequence[InboxItem]
    ) -> dict[str, Any]:
        """Move the run to its next rest, and keep that."""
        segment = (await _read_state(ctx, "segment") or 0) + 1
        ctx.set("segment", segment, _PLAIN)
        ctx.set("moving", ctx.request().id, _PLAIN)
        place = RunPlace(run_id=ctx.key(), loop=self._loop.name, tenant=run["tenant"], metadata=run["metadata"])
        left = await _move_to_rest(self._loop, place, ctx, rest or read_messages(run["prompt"]), items)
        ctx.set("rest", left, _PLAIN)
        ctx.clear("moving")
        if left["state"] == "waiting" and self._loop.approval_expiry is not None:
            delay, told = timedelta(seconds=self._loop.approval_expiry), json.dumps(segment).encode()
            ctx.generic_send(self._loop.name, "expire", told, key=ctx.key(), send_delay=delay)
        return left


async def _move_to_rest(
    loop: DurableLoop[Any, Any],
    place: RunPlace,
    ctx: ObjectContext,
    begin: Rest | Sequence[Message],
    items: Sequence[InboxItem],
) -> dict[str, Any]:
    """Move a run to its next rest; return what it leaves."""
    handle: ToolLoopHandle[Any, Any] | None = None
    is_cancelled = False

    def cancel_run() -> None:
        nonlocal is_cancelled
        is_cancelled = True
        if handle is not None:
            handle.cancel()

    run_id = hashlib.sha256(f"{place.loop}/{place.run_id}".encode()).hexdigest()[:32]
    journal = RestateJournal(ctx, run_id, on_cancel=cancel_run)
    if isinstance(begin, Rest):
        journal.trace = begin.trace
    try:
        handle = await make_handle(loop, place, configure_run(loop, place, journal), begin, items)
        if is_cancelled:
            handle.cancel()
        result = await handle.run()
        snapshot = handle.snapshot() if result.reason.kind == "awaiting_approval" else None
        left = leave_result(result, snapshot, trace=journal.trace)
        write_json(left)
        return left
    except Exception as error:  # noqa: BLE001 - that the run failed is how it comes to rest
        if journal.failure is not None:
            raise journal.failure from None
        _logger.warning("durable run %s failed: %s", place.run_id, write_traceback(error))
        snapshot = begin.snapshot if handle is None and isinstance(begin, Rest) else None
        messages = begin.load_messages() if isinstance(begin, Rest) else begin
        carried = handle.messages if handle else messages
        return leave_error(error, carried, snapshot, is_resumable=False, is_read=True, trace=journal.trace)


def _make_item(number: int, call_id: Any, binding: Any, decision: Mapping[str, Any]) -> InboxItem:
    return InboxItem(
        id=number, kind="decide", body={"call_id": call_id, "binding": binding, "decision": dict(decision)}
    )


async def _read_state(ctx: ObjectContext | ObjectSharedContext, name: str) -> Any:
    return await ctx.get(name, _PLAIN)


async def _read_kept(ctx: ObjectContext | ObjectSharedContext) -> dict[str, Any]:
    """Return how the run of an object came to rest.

    Raises:
        TerminalError: It has not.
    """
    rest: dict[str, Any] | None = await _read_state(ctx, "rest")
    if rest is None:
        raise TerminalError(f"run '{ctx.key()}' was not started, or has not come to rest yet", 404)
    return rest
