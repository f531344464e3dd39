"""The events of a run, the types of their consumers, and the serialization of events and results.

`LoopEvent` is the union of all. As JSON, an event is an object: ``v``, the version of the format; ``event``, its class
in snake case; then its fields by name. Errors are stored as class and message, without secrets. The `details` of
results and reports, which may be any objects of the application, are left out.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict

from toolkit.calls.argument_repair import list_readings
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
from toolkit.calls.output import redacted
from toolkit.calls.registration import find_schemas, hides_arguments
from toolkit.chat import ArgumentsDelta, AssistantMessage, Message, ReasoningDelta, TextDelta, ToolCall, ToolResult
from toolkit.chat.output import ToolOutput
from toolkit.chat.provider import provider_error_from_plain, provider_error_to_plain
from toolkit.errors import ProviderError, RecordedError
from toolkit.foreign_text import replace_surrogates
from toolkit.json_text import canonical_json, make_adapter, write_json
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
from toolkit.loop.outcome import LoopDetected, TerminationReason, ToolLoopResult
from toolkit.plain_values import read_plain
from toolkit.redaction import MASK, Scrubber, without_secrets

if TYPE_CHECKING:
    from pydantic import TypeAdapter

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


EVENT_VERSION = 1
"""The version of the JSON format of events and results."""

_SCRUBBER = Scrubber(find_schemas=find_schemas, list_readings=list_readings)

_Plain: TypeAlias = dict[str, Any]

_NOT_SAVED = {"details", "time"}
_EXCLUDED: dict[str, Any] = {
    "result": _NOT_SAVED,
    "messages": {"__all__": _NOT_SAVED},
    "output": {"details"},
}


def dump_event(event: LoopEvent) -> dict[str, Any]:
    """Return an event as JSON values; `load_event` restores it.

    ::

        line = json.dumps(dump_event(event))

    The arguments of a call are those of `arguments_json`, where secrets are digests. Elsewhere, secrets that are
    recognized by the format of a text or the name of a field become ``***``, except in deltas of texts; pieces of
    arguments are masked if the tool may take secrets. A value that JSON can't represent is stored as text, and a lone
    surrogate as a question mark.
    """
    plain = write_event(event)
    match event:
        case TextDelta() | ReasoningDelta():
            return plain
        case ArgumentsDelta():
            return {**plain, "text": MASK if event.text and hides_arguments(event.tool_name) else event.text}
        case _:
            cleaned: dict[str, Any] = _SCRUBBER.clean_whole(plain)
            return cleaned


def show_messages(messages: Sequence[Message]) -> list[Message]:
    """Return messages for an interface: without secret arguments of calls, also where the results repeat them."""
    has_results = any(isinstance(message, ToolResult) for message in messages)  # which may repeat secret arguments
    scrubber = Scrubber(find_schemas=cache(find_schemas), list_readings=list_readings, is_learning=has_results)
    hides = cache(hides_arguments)
    shown: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and any(hides(call.name) for call in message.tool_calls):
            content = [
                replace(block, arguments=scrubber.mask_arguments(block.name, block.arguments))
                if isinstance(block, ToolCall) and hides(block.name)
                else block
                for block in message.content
            ]
            shown.append(replace(message, content=tuple(content)))
        elif isinstance(message, ToolResult) and scrubber.secrets:
            output = redacted(ToolOutput(message.content), partial(without_secrets, secrets=scrubber.secrets))
            shown.append(replace(message, content=output.content))
        else:
            shown.append(message)
    return shown


def write_event(event: LoopEvent) -> dict[str, Any]:
    """Return an event as `dump_event` does, but with secrets, for writers that redact everything themselves."""
    kind: Any = type(event)
    fields = {name: getattr(event, name) for name in _hints_of(kind)}
    if "arguments_json" in fields:
        written = fields.pop("arguments_json")
        fields["arguments"] = json.loads(written) if written else read_plain(fields["arguments"]).value
    return {"v": EVENT_VERSION, "event": name_event(kind), **_dump_fields(kind, fields)}


def load_event(plain: Mapping[str, Any]) -> LoopEvent:
    """Return the event that `dump_event` wrote, with each error as a `ProviderError` or a `RecordedError`.

    Raises:
        ValueError: It is not an event, or of another version; the message names the problem.
    """
    fields = _strip_version(plain)
    name = fields.pop("event", None)
    kind = _kinds_by_name().get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"{name!r} is no event: there are {', '.join(_kinds_by_name())}")
    read = _load_fields(kind, fields)
    if "arguments" in read:
        read["arguments_json"] = canonical_json(read["arguments"])
    event: LoopEvent = _build_object(kind, read)
    return event


def dump_result(result: ToolLoopResult[Any]) -> dict[str, Any]:
    """Return a result as JSON values; `load_result` restores it.

    An `output` of an application's type is restored as JSON values.
    """
    fields = {name: getattr(result, name) for name in _hints_of(ToolLoopResult)}
    fields["output"] = read_plain(fields["output"]).value
    return {"v": EVENT_VERSION, **_dump_fields(ToolLoopResult, fields)}


def load_result(plain: Mapping[str, Any]) -> ToolLoopResult[Any]:
    """Return the result that `dump_result` wrote.

    Raises:
        ValueError: It is not a result, or of another version; the message names the problem.
    """
    result: ToolLoopResult[Any] = _build_object(ToolLoopResult, _load_fields(ToolLoopResult, _strip_version(plain)))
    return result


@cache
def name_event(kind: type) -> str:
    """Return the tag of an event's class, such as ``tool_execution_start``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def list_fields(kind: type) -> dict[str, Any]:
    """Return the names and types of the JSON fields of an event class, without version and tag."""
    return {name: hint for name, hint in _hints_of(kind).items() if name != "arguments_json"}


def _strip_version(plain: Mapping[str, Any]) -> _Plain:
    """Return the fields without the version."""
    if not isinstance(cast("object", plain), Mapping):
        raise ValueError(f"an event or a result is an object, not of type {type(plain).__name__}")  # noqa: TRY004 - one kind of error for all that can't be read
    fields = dict(plain)
    version = fields.pop("v", None)
    if version != EVENT_VERSION:
        raise ValueError(f"it is of version {version!r}, and this library reads version {EVENT_VERSION}")
    return fields


def _dump_fields(kind: type, fields: _Plain) -> _Plain:
    plain: _Plain = _adapter_of(kind).dump_python(
        fields, mode="json", exclude=_EXCLUDED, warnings="none", fallback=_write_unknown
    )
    return plain


def _load_fields(kind: type, fields: _Plain) -> _Plain:
    try:
        read: _Plain = _adapter_of(kind).validate_json(write_json(fields))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"this is not made of JSON's values: {error}") from error
    return read


def _build_object(kind: Any, fields: _Plain) -> Any:
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"{name_event(kind)}: {error}") from error


@cache
def _kinds_by_name() -> dict[str, type]:
    return {name_event(kind): kind for kind in get_args(LoopEvent)}


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    """Return the types of the stored fields, by their names."""
    hints = get_type_hints(kind, localns={"ToolLoopResult": ToolLoopResult, "Message": Message})
    names = [field.name for field in dataclasses.fields(kind)]
    # `LoopDetected` has its own tag, which `event` repeats.
    return {name: hints[name] for name in names if name != "details" and not _is_tag(hints[name])}


def _is_tag(hint: object) -> bool:
    return get_origin(hint) is Literal and len(get_args(hint)) == 1


@cache
def _adapter_of(kind: type) -> TypeAdapter[dict[str, Any]]:
    """Return the Pydantic adapter for the fields of a class."""
    hints = {name: _saved_type(name, hint) for name, hint in _hints_of(kind).items()}
    make: Any = TypedDict  # type checkers require literal fields
    fields = make(f"{kind.__name__}Fields", hints, total=False)
    fields.__pydantic_config__ = {"extra": "forbid"}
    return make_adapter(fields)


def _saved_type(name: str, hint: Any) -> Any:
    """Return a field's type for Pydantic, with tagged unions, errors as class and message, and sorted sets."""
    from pydantic import Field, PlainSerializer, PlainValidator  # noqa: PLC0415 - as in `_adapter_of`

    match name:
        case "error":
            return Annotated[Any, PlainSerializer(_dump_error), PlainValidator(_load_error)]
        case "tags":
            return Annotated[hint, PlainSerializer(sorted)]
        case "messages":
            return get_origin(hint)[Annotated[Message, Field(discriminator="role")], *get_args(hint)[1:]]
        case "reason" if hint == TerminationReason:
            return Annotated[TerminationReason, Field(discriminator="kind")]
        case "result" if get_origin(hint) is ToolLoopResult:
            return Annotated[Any, PlainSerializer(dump_result), PlainValidator(load_result)]
        case "output" if hint is not ToolOutput:
            return Any
        case _:
            return hint


def _dump_error(error: BaseException | None) -> _Plain | None:
    if error is None:
        return None
    if isinstance(error, ProviderError):
        return provider_error_to_plain(error)
    if isinstance(error, RecordedError):
        return {"type": error.kind, "message": error.message}
    return {"type": type(error).__name__, "message": replace_surrogates(str(error))}


def _load_error(plain: Any) -> Exception | None:
    match plain:
        case None:
            return None
        case {"provider": str()}:
            try:
                return provider_error_from_plain(plain)
            except (LookupError, TypeError) as error:
                raise ValueError(f"an error of a provider can't be read: {error}") from error
        case {"type": str(kind), "message": str(message)}:
            return RecordedError(kind, message)
        case _:
            raise ValueError("an error has a type and a message")


def _write_unknown(value: object) -> Any:
    return read_plain(value).value
