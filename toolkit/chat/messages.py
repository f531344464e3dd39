"""Messages, their blocks, and transcripts: plain values, serialization, validation and repair.

A message is immutable. A transcript is a list of messages: to edit it, replace a message, as in
``messages[0] = replace(messages[0], content="...")``.

A transcript is valid when each call of an assistant message has exactly one result, directly after that message, in
call order, with nothing between; when there is no result anywhere else; and when no two calls share an id. Whether its
results are true is the responsibility of the code that ran the tools: a repair never claims that a call ran.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, cast, get_args

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, TranscriptError
from toolkit.json_text import make_adapter, write_json
from toolkit.redaction import clean_text, digest_of
from toolkit.settings import check_setting

if TYPE_CHECKING:
    from pydantic import TypeAdapter


_BYTES_AS_BASE64: Any = {"ser_json_bytes": "base64", "val_json_bytes": "base64", "extra": "forbid"}


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text."""

    text: str
    _: KW_ONLY
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image: either its bytes or a URL.

    Args:
        data: The encoded image file, or None if `url` locates it.
        media_type: Such as ``image/png``.
        url: The URL from which the provider can fetch it.
    """

    __pydantic_config__ = _BYTES_AS_BASE64

    data: bytes | None = None
    _: KW_ONLY
    media_type: str = "image/png"
    url: str | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class AudioBlock:
    """A sound: the bytes of an audio file, such as ``audio/wav``."""

    __pydantic_config__ = _BYTES_AS_BASE64

    data: bytes
    _: KW_ONLY
    media_type: str = "audio/wav"
    type: Literal["audio"] = "audio"


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A file: its bytes, or a URL from which the provider can fetch it."""

    __pydantic_config__ = _BYTES_AS_BASE64

    data: bytes | None = None
    _: KW_ONLY
    name: str = "file"
    media_type: str = "application/octet-stream"
    url: str | None = None
    type: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningBlock:
    """The model's reasoning, to the extent that the provider shows it.

    Args:
        text: The readable part; may be empty.
        signature: The provider's signature of the text, sent back unchanged.
        encrypted: The encrypted part, sent back unchanged.
        id: The provider's id of the block, if any.
    """

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    id: str | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a model.

    Args:
        id: The model's id of this call; its result has the same id.
        name: The tool, as the model wrote it.
        arguments: JSON text, as the model wrote it: it may be malformed.
        extra: Data that must be sent back to the provider unchanged, such as a thought signature.

    Raises:
        ConfigurationError: The id, the name or the arguments are not strings; a missing id is an empty string.

    Attributes:
        unsaid: The arguments that occur nowhere in the conversation, as paths, if the provider checks that.
        program: The id of the code at the vendor that made the call; empty if the model made it.
    """

    id: str
    name: str
    arguments: str
    _: KW_ONLY
    extra: Mapping[str, Any] | None = None
    type: Literal["call"] = "call"

    __expected__: ClassVar[Mapping[str, Any]] = {"id": str, "name": str, "arguments": str}

    def __check_fields__(self) -> None:
        check_setting("the id of a ToolCall", self.id, str)
        check_setting("the name of a ToolCall", self.name, str)
        given = cast("object", self.arguments)
        if not isinstance(given, str):
            kind = type(given).__name__
            raise ConfigurationError(
                f"the arguments of a ToolCall must be JSON text, not {kind}: write json.dumps(...)"
            )

    def __repr__(self) -> str:
        # Only the schema of the tool shows which arguments are secret.
        arguments = f"<{len(self.arguments):,} characters, {digest_of(self.arguments)[-6:]}>"
        return clean_text(f"{type(self).__qualname__}(id={self.id!r}, name={self.name!r}, arguments={arguments})")

    @property
    def unsaid(self) -> tuple[str, ...]:
        """See the class."""
        return tuple(self.extra.get("unsaid", ())) if self.extra else ()

    @property
    def program(self) -> str:
        """See the class."""
        if not self.extra:
            return ""
        caller: Any = self.extra.get("caller") or self.extra.get("anthropic", {}).get("caller")
        return str(caller.get("caller_id") or caller.get("tool_id") or "") if isinstance(caller, dict) else ""  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]


ContentBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock | FileBlock
"""The blocks that user messages and results may contain."""

AssistantContent: TypeAlias = TextBlock | ReasoningBlock | ImageBlock | AudioBlock | FileBlock | ToolCall
"""The blocks that messages of a model may contain."""


def text_of(content: str | Sequence[Any]) -> str:
    """Return the text of message content: a string, or its text blocks joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join([block.text for block in content if isinstance(block, TextBlock)])


Trust: TypeAlias = Literal["trusted", "untrusted"]
"""The trust label of a text: text from outside, such as a web page or an email, is ``untrusted``."""


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Instructions from the application.

    Args:
        content: The text.
        trust: See `UserMessage`.
    """

    content: str
    _: KW_ONLY
    trust: Trust = field(default="trusted", compare=False)
    role: Literal["system"] = "system"

    @property
    def text(self) -> str:
        """The instructions."""
        return self.content


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message of the user: text, or blocks.

    Args:
        content: Text, or blocks.
        trust: ``untrusted`` if the text is not the user's, but a summary of text from outside.
    """

    content: str | tuple[ContentBlock, ...]
    _: KW_ONLY
    trust: Trust = field(default="trusted", compare=False)
    role: Literal["user"] = "user"

    __expected__: ClassVar[Mapping[str, type]] = {"content": str}

    def __check_fields__(self) -> None:
        content: Any = self.content
        if isinstance(content, list):  # the caller could change it later
            object.__setattr__(self, "content", tuple(content))  # pyright: ignore[reportUnknownArgumentType]

    @property
    def text(self) -> str:
        """The text in it."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message of the model: text, reasoning and calls, in order.

    A plain string becomes one text block.
    """

    content: tuple[AssistantContent, ...]
    _: KW_ONLY
    role: Literal["assistant"] = "assistant"

    def __init__(
        self, content: str | Iterable[AssistantContent] = (), *, role: Literal["assistant"] = "assistant"
    ) -> None:
        if isinstance(content, str):
            content = (TextBlock(content),) if content else ()
        object.__setattr__(self, "content", tuple(content))
        object.__setattr__(self, "role", role)

    @property
    def text(self) -> str:
        """The text blocks joined by line breaks; empty if there are none."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the model's order."""
        return tuple([block for block in self.content if isinstance(block, ToolCall)])


@dataclass(frozen=True)  # without slots, creation takes a third of the time, and every call creates one
class ToolResult:
    """The message that answers a model's call with the result of a tool.

    Args:
        call_id: The id of the call.
        content: Text, or blocks.
        tool_name: The tool that ran.
        is_error: True if the content describes a failure.
        result_as_answer: True if the loop ends with this result as its answer.
        child_loop_id: The id of the loop that ran inside the tool, for an agent.
        details: Data for the application only: it is not sent to a model, and not part of the transcript's JSON.
        time: The time of its arrival, in seconds since 1970; None if unknown. For the application only, like `details`.
        trust: ``untrusted`` for content from outside, by the label of its tool; it is not sent to a model.
    """

    call_id: str
    content: str | tuple[ContentBlock, ...]
    _: KW_ONLY
    tool_name: str = ""
    is_error: bool = False
    result_as_answer: bool = False
    child_loop_id: str | None = None
    details: Any = field(default=None, compare=False)
    time: float | None = field(default=None, compare=False)
    trust: Trust = field(default="trusted", compare=False)
    role: Literal["tool"] = "tool"

    __expected__: ClassVar[Mapping[str, type]] = {"content": str}

    def __check_fields__(self) -> None:
        content: Any = self.content
        if isinstance(content, list):  # which its owner could change later
            object.__setattr__(self, "content", tuple(content))  # pyright: ignore[reportUnknownArgumentType]

    @property
    def text(self) -> str:
        """The text in it."""
        return text_of(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolResult
"""One entry of a transcript; `role` distinguishes them."""


def is_untrusted(message: Message) -> bool:
    """Return True if a message has text from outside."""
    return not isinstance(message, AssistantMessage) and message.trust == "untrusted"


@cache
def _make_message_adapter() -> TypeAdapter[list[Message]]:
    # Created on first use, since few programs serialize messages.
    from pydantic import Field  # noqa: PLC0415

    return make_adapter(list[Annotated[Message, Field(discriminator="role")]])


def dump_messages(messages: Sequence[Message], *, indent: int | None = None) -> str:
    """Return the transcript as JSON text; `load_messages` restores an equal one.

    ::

        text = dump_messages(result.messages)
        assert load_messages(text) == result.messages

    The `details` and `time` of results are left out, since they may be any objects of the application. A lone
    surrogate, which JSON can't encode, becomes a question mark.

    Raises:
        TranscriptError: An item is not a message, so it could not be loaded again.
    """
    for index, message in enumerate(messages):
        if not isinstance(cast("object", message), get_args(Message)):
            raise TranscriptError(
                index, f"a {type(message).__name__} is not a message; build messages from toolkit.chat"
            )
    return write_json(messages_to_plain(messages), indent=indent)


def messages_to_plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as JSON values, as `dump_messages` writes them.

    The label of a trusted message is left out, so that logs without labels remain valid and digests are unchanged.
    """
    # Without warnings, because a list of blocks in place of a tuple is fine.
    plain: list[dict[str, Any]] = _make_message_adapter().dump_python(
        list(messages), mode="json", exclude={"__all__": {"details", "time"}}, exclude_defaults=False, warnings="none"
    )
    for message in plain:
        if message.get("trust") == "trusted":
            del message["trust"]
    return plain


def load_messages(text: str | bytes) -> list[Message]:
    """Return the transcript that `dump_messages` wrote.

    ::

        messages = load_messages(text)
        result = await tool_loop(provider, registry, [*messages, UserMessage("And then?")])

    Raises:
        ValueError: The text is not a valid transcript; the message gives the place and the reason.
    """
    return _make_message_adapter().validate_json(text)


_UNKNOWN = (
    "The result of this call was lost: it is not known whether it ran, and it may have taken effect. "
    "Check before you call it again."
)

# Typed as object, since a caller's list can contain anything.
_OTHER_ROLES: tuple[type[object], ...] = (SystemMessage, UserMessage, ToolResult)


def call_ids_of(messages: Iterable[Message]) -> set[str]:
    """Return the ids of all calls in these messages."""
    ids: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage):
            ids.update([call.id for call in message.tool_calls])
    return ids


def validate_transcript(messages: Sequence[Message], *, allow_pending: bool = False) -> None:
    """Raise for the first problem of a transcript, in linear time.

    Args:
        messages: The transcript; it is not changed.
        allow_pending: True to accept calls without results in the last message, as in a loop that awaits approval. Such
            a transcript is never sent to a model.

    Raises:
        TranscriptError: A `ValueError` that names the message, the problem and the remedy.
    """
    seen: set[str] = set()
    awaited: list[ToolCall] = []  # the calls without a result yet, the next one last
    for index, message in enumerate(messages):
        if isinstance(message, ToolResult):
            _expect_result(index, message, awaited, seen)
            awaited.pop()
            continue
        if awaited:
            raise TranscriptError(
                index,
                f"{_describe_role(message)} stands where the result of {_name_call(awaited[-1])} belongs; "
                "each call is answered directly after the message that asks for it, in call order",
            )
        if isinstance(message, AssistantMessage):
            awaited = list(message.tool_calls)
            _check_ids(index, awaited, seen)
            awaited.reverse()
        elif not isinstance(message, _OTHER_ROLES):
            raise _refuse_item(index, message)
    if awaited and not (allow_pending and isinstance(messages[-1], AssistantMessage)):
        missing = ", ".join(_name_call(call) for call in reversed(awaited))
        raise TranscriptError(
            len(messages) - 1,
            f"the transcript ends here, without the result of {missing}; "
            "each call needs one, and repair_transcript() answers those whose outcome is not known",
        )


def repair_transcript(messages: Sequence[Message]) -> list[Message]:
    """Return a valid copy of the transcript with as few changes as possible.

    - A call without a result gets an error result that says that it is unknown whether it ran.
    - A result that is not next to its call is moved there. A result of no call, or of an answered call, is removed.
      With repeated ids, a result belongs to the latest preceding call of that id.
    - Results and calls without ids are paired in order, if they are adjacent and equal in number.
    - A missing or repeated call id is replaced, in the call and in its result; the first of equal ids remains.

    The messages of a valid prefix are not replaced, so a provider's cache of it remains valid. The repair is
    idempotent, and a valid transcript is returned as an equal list.

    Raises:
        TranscriptError: Something in the list is not a message.
    """
    slots = _slots_of(messages)
    _match_results(messages, slots)
    taken = {slot.call.id for group in slots.values() for slot in group}
    used: set[str] = set()
    repaired: list[Message] = []
    iteration = 0
    for index, message in enumerate(messages):
        if isinstance(message, ToolResult):
            continue
        if not isinstance(message, AssistantMessage):
            repaired.append(message)
            continue
        iteration += 1
        group = slots.get(index, ())
        with_ids = _with_ids(message, _new_ids(group, used, taken, iteration))
        repaired.append(with_ids)
        repaired.extend(_answer_call(call, slot.result) for call, slot in zip(with_ids.tool_calls, group, strict=True))
    return repaired


def repair_call_ids(message: AssistantMessage, used_ids: Container[str], iteration: int) -> AssistantMessage:
    """Return a reply in which each call has a unique id; the same object if it has already.

    A missing id, one in `used_ids`, and one of an earlier call of the reply become ``call_{iteration}_{position}``,
    with a number appended if that is taken. The new ids are deterministic. It takes linear time.

    Args:
        message: The reply; it is not changed.
        used_ids: The ids of all earlier calls of the transcript.
        iteration: The 1-based number of the turn.
    """
    calls = message.tool_calls
    own: set[str] = set()
    wrong: list[int] = []
    for position, call in enumerate(calls):
        if not call.id or call.id in own or call.id in used_ids:
            wrong.append(position)
        own.add(call.id)
    if not wrong:
        return message
    new: dict[int, str] = {}
    for position in wrong:
        new[position] = _free_id(iteration, position + 1, used_ids, own)
        own.add(new[position])
    return _with_ids(message, new)


@dataclass(slots=True)
class _Slot:
    """A call, and its result if there is one."""

    call: ToolCall
    result: ToolResult | None = None


def _expect_result(index: int, result: ToolResult, awaited: list[ToolCall], seen: set[str]) -> None:
    if awaited and result.call_id == awaited[-1].id:
        return
    found = f"the result of call '{result.call_id}'"
    if any(call.id == result.call_id for call in awaited):
        reason = (
            f"{found} stands where that of {_name_call(awaited[-1])} belongs; results stand in the order of their calls"
        )
    elif result.call_id in seen:
        reason = (
            f"{found} stands away from its call, or answers it a second time; "
            "each call has exactly one result, directly after the message that asks for it"
        )
    else:
        reason = f"{found} answers no call before it; a result carries the id of the call that it answers"
    raise TranscriptError(index, reason)


def _check_ids(index: int, calls: Iterable[ToolCall], seen: set[str]) -> None:
    for call in calls:
        if not call.id:
            raise TranscriptError(index, f"the call of '{call.name}' has no id; each call has one of its own")
        if call.id in seen:
            raise TranscriptError(
                index, f"{_name_call(call)} has the id of an earlier call; each call of a transcript has one of its own"
            )
        seen.add(call.id)


def _refuse_item(index: int, found: object) -> TranscriptError:
    what = f"a {type(found).__qualname__} is not a message; build messages from toolkit.chat"
    return TranscriptError(index, f"{what}, or read them with load_messages")


def _name_call(call: ToolCall) -> str:
    return f"call '{call.id}' ('{call.name}')"


def _describe_role(message: object) -> str:
    role = getattr(message, "role", type(message).__qualname__)
    return f"an {role} message" if role == "assistant" else f"a {role} message"


def _slots_of(messages: Sequence[Message]) -> dict[int, list[_Slot]]:
    """Return the slots of each assistant message that has calls, by its index."""
    slots: dict[int, list[_Slot]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            if calls := message.tool_calls:
                slots[index] = [_Slot(call) for call in calls]
        elif not isinstance(message, _OTHER_ROLES):
            raise _refuse_item(index, message)
    return slots


def _match_results(messages: Sequence[Message], slots: dict[int, list[_Slot]]) -> None:
    """Assign each result to the slot of its call."""
    latest: dict[str, list[_Slot]] = {}  # the unanswered calls of each id in the last message with that id
    strays: list[tuple[int, ToolResult]] = []
    for index, message in enumerate(messages):
        if index in slots:
            latest.update({slot.call.id: [] for slot in slots[index]})
            for slot in reversed(slots[index]):
                latest[slot.call.id].append(slot)
        elif isinstance(message, ToolResult):
            waiting = latest.get(message.call_id)
            if waiting:
                waiting.pop().result = message
            elif waiting is None or not message.call_id:
                strays.append((index, message))
    _match_by_order(messages, slots, dict(_match_early(slots, strays)))


def _match_early(
    slots: dict[int, list[_Slot]], strays: list[tuple[int, ToolResult]]
) -> Iterator[tuple[int, ToolResult]]:
    """Assign stray results that precede their call, if no other call has that id; yield the other strays."""
    by_id: dict[str, list[_Slot]] = {}
    for group in slots.values():
        for slot in group:
            by_id.setdefault(slot.call.id, []).append(slot)
    for index, result in strays:
        same = by_id.get(result.call_id, ()) if result.call_id else ()
        if len(same) == 1 and same[0].result is None:
            same[0].result = result
        else:
            yield index, result


def _match_by_order(messages: Sequence[Message], slots: dict[int, list[_Slot]], strays: dict[int, ToolResult]) -> None:
    """Pair unanswered calls with the strays directly after their message, where ids are missing."""
    for index, group in slots.items():
        open_slots = [slot for slot in group if slot.result is None]
        if not open_slots:
            continue
        near: list[ToolResult] = []
        after = index + 1
        while after < len(messages) and isinstance(messages[after], ToolResult):
            if after in strays:
                near.append(strays[after])
            after += 1
        pairs = list(zip(open_slots, near, strict=False))
        if len(near) == len(open_slots) and all(not slot.call.id or not result.call_id for slot, result in pairs):
            for slot, result in pairs:
                slot.result = result


def _new_ids(group: Sequence[_Slot], used: set[str], taken: set[str], iteration: int) -> dict[int, str]:
    """Return the new ids of the calls that need one, by position. `used` contains the ids of the calls so far."""
    new: dict[int, str] = {}
    for position, slot in enumerate(group):
        call_id = slot.call.id
        if not call_id or call_id in used:
            new[position] = call_id = _free_id(iteration, position + 1, taken, used)
            taken.add(call_id)
        used.add(call_id)
    return new


def _free_id(iteration: int, position: int, used: Container[str], own: Container[str]) -> str:
    wanted = candidate = f"call_{iteration}_{position}"
    number = 1
    while candidate in used or candidate in own:
        number += 1
        candidate = f"{wanted}_{number}"
    return candidate


def _with_ids(message: AssistantMessage, new: dict[int, str]) -> AssistantMessage:
    if not new:
        return message
    content = list(message.content)
    places = [place for place, block in enumerate(content) if isinstance(block, ToolCall)]
    for position, call_id in new.items():
        block = content[places[position]]
        assert isinstance(block, ToolCall)
        content[places[position]] = replace(block, id=call_id)
    return AssistantMessage(content)


def _answer_call(call: ToolCall, result: ToolResult | None) -> ToolResult:
    if result is None:
        return ToolResult(call.id, _UNKNOWN, tool_name=call.name, is_error=True)
    return result if result.call_id == call.id else replace(result, call_id=call.id)
