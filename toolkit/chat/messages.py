"""Messages, the blocks that they are made of, and transcripts: plain values, their JSON, and how they are read back.

A message never changes once it is made. A transcript is a list of them: to edit it, put another message in the place
of one, such as ``messages[0] = replace(messages[0], content="...")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, cast, get_args

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, TranscriptError
from toolkit.json_text import write_json
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
        url: Where the provider can fetch it.
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
    """A file: its bytes, or a URL where the provider can fetch it."""

    __pydantic_config__ = _BYTES_AS_BASE64

    data: bytes | None = None
    _: KW_ONLY
    name: str = "file"
    media_type: str = "application/octet-stream"
    url: str | None = None
    type: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningBlock:
    """The thoughts of the model, as far as its provider shows it.

    Args:
        text: The readable part; may be empty.
        signature: The provider's seal on the text, sent back untouched.
        encrypted: The part that the provider hides from the reader, sent back untouched.
        id: The provider's name for the block, where it has one.
    """

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    id: str | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call that a model asked for.

    Args:
        id: The model's name for this call; its result carries the same.
        name: The tool, as the model wrote it.
        arguments: JSON text, as the model wrote it: it may be malformed.
        extra: Data that the provider wants back with the call (a thought signature), untouched.

    Raises:
        ConfigurationError: The id, the name or the arguments are no text; a missing id is an empty text.

    Attributes:
        unsaid: The arguments that occur nowhere in the conversation, as paths, if the provider checks that.
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
        # Which arguments are secret, only the schema of the tool can say.
        from toolkit.redaction import digest_of  # noqa: PLC0415 - its patterns take milliseconds

        arguments = f"<{len(self.arguments):,} characters, {digest_of(self.arguments)[-6:]}>"
        return f"{type(self).__qualname__}(id={self.id!r}, name={self.name!r}, arguments={arguments})"

    @property
    def unsaid(self) -> tuple[str, ...]:
        """See the class."""
        return tuple(self.extra.get("unsaid", ())) if self.extra else ()


ContentBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock | FileBlock
"""The blocks that a user or a tool may send."""

AssistantContent: TypeAlias = TextBlock | ReasoningBlock | ImageBlock | AudioBlock | FileBlock | ToolCall
"""The blocks that a model may send."""


def text_of(content: str | Sequence[Any]) -> str:
    """Return the text in a content: all of it where it is a string, else its text blocks, one a line."""
    if isinstance(content, str):
        return content
    return "\n".join([block.text for block in content if isinstance(block, TextBlock)])


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Instructions from the application."""

    content: str
    _: KW_ONLY
    role: Literal["system"] = "system"

    @property
    def text(self) -> str:
        """The instructions."""
        return self.content


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message of the user: text, or blocks."""

    content: str | tuple[ContentBlock, ...]
    _: KW_ONLY
    role: Literal["user"] = "user"

    __expected__: ClassVar[Mapping[str, type]] = {"content": str}

    def __check_fields__(self) -> None:
        content: Any = self.content
        if isinstance(content, list):  # which its owner could change later
            object.__setattr__(self, "content", tuple(content))  # pyright: ignore[reportUnknownArgumentType]

    @property
    def text(self) -> str:
        """The text in it."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message of the model: text, reasoning, and the calls it asked for, in its order.

    A plain string is taken as one text block.
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
        """The text blocks, one a line; empty when there are none."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the order the model gave them."""
        return tuple([block for block in self.content if isinstance(block, ToolCall)])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool, with its call's id: the message that answers the model's call.

    Args:
        call_id: The id of the call that this answers.
        content: Text, or blocks.
        tool_name: The tool that ran.
        is_error: True if the content describes a failure.
        result_as_answer: True where the loop ends here, with this as the answer.
        child_loop_id: The id of the loop that ran inside the tool, for an agent.
        details: For the application only: it is not sent to a model and not part of the transcript's JSON.
        time: The time of its arrival, in seconds since 1970; None if unknown. As `details`, for the
            application alone.
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


@cache
def _make_message_adapter() -> TypeAdapter[list[Message]]:
    # Created on first use: few programs that import this serialize messages.
    from pydantic import Field, TypeAdapter  # noqa: PLC0415

    return TypeAdapter(list[Annotated[Message, Field(discriminator="role")]])


def dump_messages(messages: Sequence[Message], *, indent: int | None = None) -> str:
    """Return the transcript as JSON text; `load_messages` restores it, equal.

    ::

        text = dump_messages(result.messages)
        assert load_messages(text) == result.messages

    The `details` and `time` of results are left out: they are the application's own objects. A lone surrogate, which no
    encoding of JSON can carry, becomes a question mark.

    Raises:
        TranscriptError: Something in it is no message, so that it could not be loaded again.
    """
    for index, message in enumerate(messages):
        if not isinstance(cast("object", message), get_args(Message)):
            raise TranscriptError(
                index, f"a {type(message).__name__} is not a message; build messages from toolkit.chat"
            )
    return write_json(messages_to_plain(messages), indent=indent)


def messages_to_plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as JSON values, as `dump_messages` writes them."""
    # No warnings: a list of blocks in place of a tuple is serialized as well.
    plain: list[dict[str, Any]] = _make_message_adapter().dump_python(
        list(messages), mode="json", exclude={"__all__": {"details", "time"}}, exclude_defaults=False, warnings="none"
    )
    return plain


def load_messages(text: str | bytes) -> list[Message]:
    """Return the transcript that `dump_messages` wrote.

    ::

        messages = load_messages(text)
        result = await tool_loop(provider, registry, [*messages, UserMessage("And then?")])

    Raises:
        ValueError: The text is not such JSON; the message says where and why.
    """
    return _make_message_adapter().validate_json(text)
