"""The handle of a durable run, made in the process that moves it: the same whichever engine keeps the run."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolkit.calls.approval import Approval, ApprovalHook, put_off_asked
from toolkit.chat import Message
from toolkit.durable.inbox_rows import read_decision
from toolkit.durable.loops import DurableLoop, RunPlace
from toolkit.durable.rests import InboxItem, Rest, read_messages
from toolkit.errors import LoopUsageError
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.handle import ToolLoopHandle
from toolkit.loop.journal import Journal
from toolkit.secrets import without_keys

__all__ = ["configure_run", "make_handle", "read_said", "write_traceback"]

_logger = logging.getLogger("toolkit.durable")


def configure_run(loop: DurableLoop[Any, Any], place: RunPlace, journal: Journal) -> ToolLoopConfig[Any]:
    """Return the settings of a loop for one of its runs."""
    config = loop.config
    return replace(
        config,
        journal=journal,
        on_tool_call=config.on_tool_call or _find_approver(loop),
        metadata={**config.metadata, "run_id": place.run_id, "loop": place.loop, "tenant": place.tenant},
    )


async def make_handle(
    loop: DurableLoop[Any, Any],
    place: RunPlace,
    config: ToolLoopConfig[Any],
    begin: Rest | Sequence[Message],
    items: Sequence[InboxItem],
) -> ToolLoopHandle[Any, Any]:
    """Return the handle of a run, with a context of its own.

    Args:
        loop: The loop.
        place: The run.
        config: As from `configure_run`.
        begin: The prompt, or how the run came to rest.
        items: Said to it since: decisions and messages.
    """
    ctx: Any = None
    if loop.make_context is not None:
        ctx = loop.make_context(place)
        if inspect.isawaitable(ctx):
            ctx = await ctx
    if isinstance(begin, Rest) and begin.snapshot is not None:
        handle: ToolLoopHandle[Any, Any] = ToolLoopHandle.restore(
            begin.snapshot, loop.provider, loop.registry, ctx=ctx, config=config
        )
        await _apply_items(handle, items)
        return handle
    messages = begin.load_messages() if isinstance(begin, Rest) else list(begin)
    messages += [read_said(item) for item in items if item.kind in ("say", "steer")]
    return ToolLoopHandle(loop.provider, loop.registry, messages, ctx=ctx, config=config)


def read_said(item: InboxItem) -> Message:
    """Return the message of an item."""
    return read_messages([item.body["message"]])[0]


def write_traceback(error: Exception) -> str:
    """Return an error with its traceback, without what looks like a key."""
    return without_keys("".join(traceback.format_exception(error)).rstrip())


def _find_approver(loop: DurableLoop[Any, Any]) -> ApprovalHook | None:
    """Return what puts calls off that ask for a decision, where tools of the loop may ask."""
    registry = loop.registry
    asks = [each.options.requires_approval is not False for each in registry.registrations.values()]
    return put_off_asked if any(asks) or registry.permissions is not None else None


async def _apply_items(handle: ToolLoopHandle[Any, Any], items: Sequence[InboxItem]) -> None:
    """Decide what was decided, or close the run, where a run is taken up that awaits decisions."""
    for item in items:
        if item.kind == "cancel":
            handle.cancel(item.body.get("reason"))
            await handle.close()
            return
        if item.kind != "decide":
            continue
        decision: Approval | bool | str = read_decision(item.body["decision"])
        try:
            await handle.decide(item.body["call_id"], decision, binding=item.body["binding"])
        except LoopUsageError as error:
            # The tool is another one since: the run comes to rest again, with what is to be decided on now.
            _logger.warning("a decision on call %s does not hold anymore: %s", item.body["call_id"], error)
