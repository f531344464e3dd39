"""The things that a run log is told, as the JSON values of its lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from toolkit.chat import ToolDefinition
from toolkit.chat.messages import messages_to_plain
from toolkit.dataclass import dataclass
from toolkit.loop.event_json import dump_event
from toolkit.loop.events import Done, Failed, LoopEvent
from toolkit.run_log.cleaning import EntryCleaner
from toolkit.run_log.entries import make_record

__all__ = ["LogRecord", "Told", "write_plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """The entries of a log beside the events of a run; see `entries`."""

    kind: str
    run_id: str
    loop_id: str
    time: float
    fields: Mapping[str, Any]


Told: TypeAlias = LoopEvent | LogRecord
"""An event or a record that a log is told of."""


def write_plain(told: Told, cleaner: EntryCleaner) -> dict[str, Any]:
    """Return what was told as JSON values, before it is cleaned; transcripts are left out of the end of a run."""
    match told:
        case LogRecord():
            fields = dict(told.fields)
            if told.kind == "request_made":
                fields["messages"] = messages_to_plain(fields["messages"])
                if "definitions" in fields:
                    cleaner.learn_tools(fields["definitions"])
                    fields["definitions"] = [_dump_definition(each) for each in fields["definitions"]]
            return make_record(told.kind, told.run_id, told.loop_id, told.time, **fields)
        case Done(result):
            # The requests and replies before have said it all.
            return dump_event(replace(told, result=replace(result, messages=[], snapshot=None)))
        case Failed():
            return dump_event(replace(told, messages=()))
        case _:
            return dump_event(told)


def _dump_definition(definition: ToolDefinition) -> dict[str, Any]:
    parameters = dict(definition.parameters)
    return {"name": definition.name, "description": definition.description, "parameters": parameters}
