"""Counts the attempts at a run that end without a word, so that one which ends its workers is not taken up for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from toolkit.chat import ToolCall
from toolkit.durable.entry_log import KeptEntries
from toolkit.durable.segment_journal import unwrap_value
from toolkit.durable.tables import runs
from toolkit.loop.feeds import CallReturned, Feed, ModelReplied, load_feed
from toolkit.loop.journal import storable_id
from toolkit.loop.turn import LOST
from toolkit.schema.nodes import is_object

__all__ = ["count_attempt", "describe_under_way", "spare_attempt"]

_MOST_NAMED = 3


def count_attempt(connection: sa.Connection, run_id: str, kept: KeptEntries) -> int:
    """Count an attempt that begins as lost, until it tells how it ends; return how many in a row are, with this one.

    Where a call has come to its end since the last one began, it is the first: what the run does lets workers live.
    """
    mine, ended = runs.c.run_id == run_id, _count_ended(kept)
    lost = sa.case((runs.c.ended < ended, 1), else_=runs.c.lost + 1)
    counted = runs.update().where(mine).values(lost=lost, ended=ended).returning(runs.c.lost)
    return int(connection.execute(counted).scalar_one())


def spare_attempt(connection: sa.Connection, run_id: str, segment: int) -> None:
    """Count an attempt as one that has told how it ended: its worker was told to end, or the run was taken over."""
    mine = (runs.c.run_id == run_id, runs.c.segment == segment, runs.c.lost > 0)
    connection.execute(runs.update().where(*mine).values(lost=runs.c.lost - 1))


def describe_under_way(kept: KeptEntries) -> str:
    """Return what a run was at when its last attempt ended."""
    turn, calls = 0, dict[str, ToolCall]()
    for name, feeds in _read_fed(kept.get("", {})):
        kind, _, key = name.partition(" ")
        if kind == "turn":
            turn = int(key)
            replies = [each.response for each in feeds if isinstance(each, ModelReplied)]
            calls = {storable_id(call.id): call for reply in replies for call in reply.tool_calls}
        elif kind == "call":
            calls.pop(key, None)
    if not calls:
        return f"it had asked for the reply of turn {turn + 1}"
    named = [f"'{key}' of the tool '{call.name}'" for key, call in calls.items()][:_MOST_NAMED]
    more = f" and {len(calls) - _MOST_NAMED} more" if len(calls) > _MOST_NAMED else ""
    return f"turn {turn} was under way, with no result yet of the call {', '.join(named)}{more}"


def _count_ended(kept: KeptEntries) -> int:
    """Return how many calls have come to an end, also in loops inside of calls."""
    results = [
        each.result
        for entries in kept.values()
        for name, feeds in _read_fed(entries)
        if name.startswith("call ")
        for each in feeds
        if isinstance(each, CallReturned)
    ]
    return sum(result.text != LOST for result in results)


def _read_fed(entries: Any) -> Iterator[tuple[str, list[Feed]]]:
    """Yield the names of entries in their order, and what they fed the machine; without what can't be read."""
    for _, (name, stored) in sorted(entries.items()):
        feeds: Any = unwrap_value(stored).get("feeds", ()) if is_object(stored) else ()
        try:
            yield name, [load_feed(feed) for feed in feeds if feed[0] in ("model_replied", "tool_returned")]
        except (LookupError, TypeError, ValueError):
            continue  # the replay says what is wrong with it
