"""Events that an attempt emits for the entries of an earlier one."""

from typing import Any

from toolkit import AssistantMessage, Deny, ToolCall, ToolResult
from toolkit.calls.run import CallReturned
from toolkit.chat import ChatResponse
from toolkit.durable.event_writer import AttemptEvents, AttemptPlace
from toolkit.errors import DurableError
from toolkit.loop.feeds import CallDecided, ModelReplied, dump_feed
from toolkit.stored_text import StoredText


def test_the_events_of_replayed_calls_name_their_program() -> None:
    by_code: dict[str, Any] = {"caller": {"type": "program", "caller_id": "p"}}
    calls = [ToolCall("a", "add", "{}", extra=by_code), ToolCall("b", "add", "{}", extra=by_code)]
    reply = ChatResponse(message=AssistantMessage([*calls, ToolCall("c", "add", "{}")]))
    text = StoredText(None, DurableError)
    place = AttemptPlace("run", 1, "attempt")
    written = AttemptEvents(place, last_seq=0, emitted=frozenset(), text=text, wake=lambda: None)
    written.replay_entry("turn 1", {"feeds": [dump_feed(ModelReplied(reply))]})
    written.replay_entry("call a", {"feeds": [dump_feed(CallReturned("a", ToolResult("a", "1", tool_name="add")))]})
    written.replay_entry("refused b", {"feeds": [dump_feed(CallDecided("b", Deny("no"), "add"))]})
    written.replay_entry("call c", {"feeds": [dump_feed(CallReturned("c", ToolResult("c", "1", tool_name="add")))]})
    rows, _ = written.read_rows()
    events = [text.read(row["line"]) for row in rows]
    programs = [(event["call_id"], event["program"]) for event in events if "call_id" in event]
    assert programs == [("a", "p"), ("b", "p"), ("c", "")]
