"""The events of a run, and the types of their consumers: `LoopEvent` is the union of all."""

from toolkit.calls.events import (
    ApprovalRequested,
    Observer,
    ToolCallRefused,
    ToolCallRepaired,
    ToolEvent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.chat import ArgumentsDelta, ReasoningDelta, TextDelta
from toolkit.loop.event_json import dump_event, dump_result, load_event, load_result
from toolkit.loop.events import (
    Compacted,
    Done,
    Failed,
    IterationStart,
    LoopEvent,
    ProviderRetried,
    ResponseReceived,
    RunStart,
)
from toolkit.loop.handle import EventChannel, EventStream
from toolkit.loop.listener import EventHook, EventListener, listener
from toolkit.loop.outcome import LoopDetected

__all__ = [
    "ApprovalRequested",
    "ArgumentsDelta",
    "Compacted",
    "Done",
    "EventChannel",
    "EventHook",
    "EventListener",
    "EventStream",
    "Failed",
    "IterationStart",
    "LoopDetected",
    "LoopEvent",
    "Observer",
    "ProviderRetried",
    "ReasoningDelta",
    "ResponseReceived",
    "RunStart",
    "TextDelta",
    "ToolCallRefused",
    "ToolCallRepaired",
    "ToolEvent",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "ToolProgress",
    "dump_event",
    "dump_result",
    "listener",
    "load_event",
    "load_result",
]
