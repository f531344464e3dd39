"""Messages and transcripts: what is said, in order, and how it becomes JSON and comes back.

A message never changes once it is made. A transcript is a list of them: to edit it, put another message in the place
of one, such as ``messages[0] = replace(messages[0], content="...")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast, get_args

from toolkit.chat.content import AssistantContent, ContentBlock, TextBlock, ToolCall
from toolkit.dataclass import AS_TUPLE, dataclass
from toolkit.errors import TranscriptError
from toolkit.json_text import write_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "AssistantMessage",
    "Message",
    "SystemMessage",
    "ToolResult",
    "UserMessage",
    "dump_messages",
    "load_messages",
    "messages_to_plain",
    "text_of",
]


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

    content: str | tuple[ContentBlock, ...] = field(metadata=AS_TUPLE)
    _: KW_ONLY
    role: Literal["user"] = "user"

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
    """The result of a tool, with its call's id: the message that goes back to the model.

    Args:
        call_id: The id of the call that this answers.
        content: Text, or blocks.
        tool_name: The tool that ran.
        is_error: True where the content tells of a failure.
        result_as_answer: True where the loop ends here, with this as the answer.
        child_loop_id: The id of the loop that ran inside the tool, for an agent.
        details: For the application alone: no model reads it and no JSON of the transcript holds it.
        time: When it was there, in seconds since 1970; None where nobody noted it. As `details`, for the
            application alone.
    """

    call_id: str
    content: str | tuple[ContentBlock, ...] = field(metadata=AS_TUPLE)
    _: KW_ONLY
    tool_name: str = ""
    is_error: bool = False
    result_as_answer: bool = False
    child_loop_id: str | None = None
    details: Any = field(default=None, compare=False)
    time: float | None = field(default=None, compare=False)
    role: Literal["tool"] = "tool"

    @property
    def text(self) -> str:
        """The text in it."""
        return text_of(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolResult
"""One entry of a transcript; `role` tells them apart."""


@cache
def _make_message_adapter() -> TypeAdapter[list[Message]]:
    # Made at the first use: few programs that import this say messages as JSON.
    from pydantic import Field, TypeAdapter  # noqa: PLC0415

    return TypeAdapter(list[Annotated[Message, Field(discriminator="role")]])


def dump_messages(messages: Sequence[Message], *, indent: int | None = None) -> str:
    """Return the transcript as JSON text; `load_messages` gives it back, equal.

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
    # No warnings: a list of blocks, for which a tuple is meant, is said as well.
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
