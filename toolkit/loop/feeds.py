"""The feeds of a loop's machine as plain JSON, and back: what the entries of a durable run's log are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from toolkit.calls.approval import Abort, Approve, Defer, Deny, Verdict
from toolkit.calls.run import CutCall
from toolkit.chat import ChatResponse, Message, ToolCall, ToolResult, Usage, UserMessage
from toolkit.loop.outcome import Aborted, NoValidAnswer, TypedAnswer, UsageLimit

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["FEED_TYPES", "Feed", "dump_feed", "dump_verdict", "load_feed", "load_verdict"]

Feed = list[Any]
"""A feed as JSON: its name, and its arguments."""

FEED_TYPES: dict[str, tuple[Any, ...]] = {
    "next_step": (),
    "model_replied": (ChatResponse,),
    "calls_prepared": (list[ToolCall] | None, dict[str, Literal["name", "arguments"]]),
    "approval_decided": (str, str, str, str, bool),
    "call_reopened": (str,),
    "tool_started": (str,),
    "tool_returned": (str, ToolResult),
    "tool_cut": (str, CutCall),
    "answer_judged": (TypedAnswer | NoValidAnswer | UserMessage,),
    "spent": (Usage,),
    "steered": (list[Message],),
    "compacted": (list[Message | tuple[int, int]],),
    "keep_partial": (str,),
    "limit_reached": (UsageLimit,),
    "wind_up": (UsageLimit | NoValidAnswer | Aborted,),
}
"""The arguments of each feed that is recorded, by its name."""


def dump_feed(name: str, arguments: Sequence[object]) -> Feed:
    """Return a feed as JSON values.

    Raises:
        ValueError: Something in it can't be said in JSON; the message says what.
    """
    plain: list[Any] = _make_feed_adapter(name).dump_python(
        tuple(map(_leave_out_details, arguments)), mode="json", warnings="none"
    )
    return [name, *plain]


def load_feed(feed: Feed) -> tuple[str, tuple[Any, ...]]:
    """Return the name and the arguments of a feed.

    Raises:
        ValueError: It is none.
    """
    name = feed[0] if feed else None
    if name not in FEED_TYPES:
        raise ValueError(f"{name!r} is no feed of the loop")
    return name, _make_feed_adapter(name).validate_json(json.dumps(feed[1:]))


def dump_verdict(verdict: Verdict) -> tuple[str, str]:
    """Return the kind of a decision on a call, and its reason."""
    reason = verdict.reason if isinstance(verdict, (Deny, Abort)) else ""
    return type(verdict).__name__.lower(), reason


def load_verdict(kind: str, reason: str) -> Verdict:
    """Return the decision that `dump_verdict` said.

    Raises:
        ValueError: There is none of this kind.
    """
    match kind:
        case "approve":
            return Approve()
        case "deny":
            return Deny(reason)
        case "defer":
            return Defer()
        case "abort":
            return Abort(reason)
        case _:
            raise ValueError(f"{kind!r} is no decision on a call")


def _leave_out_details(argument: object) -> object:
    """Return an argument without the application's own objects, which are not kept."""
    if isinstance(argument, ToolResult) and argument.details is not None:
        return replace(argument, details=None)
    if isinstance(argument, CutCall):
        return replace(argument, left_by_child=(argument.left_by_child[0], None))
    if isinstance(argument, list):
        return [_leave_out_details(each) for each in cast("list[object]", argument)]
    return argument


@cache
def _make_feed_adapter(name: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow to import, and few runs are durable

    kind: Any = tuple  # a checker wants the types to be written here
    return TypeAdapter(kind[FEED_TYPES[name]])
