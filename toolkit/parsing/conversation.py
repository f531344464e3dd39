"""A request with tools as one without: definitions, calls and results are text, and the reply is read back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from toolkit.calls.repair.names import repair_name
from toolkit.chat import (
    AssistantContent,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    ContentBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UnansweredItem,
    UserMessage,
    call_ids_of,
)
from toolkit.parsing.attempts import ParsingLimits
from toolkit.parsing.reply import ReplyReader
from toolkit.parsing.reply_parts import ReplyPart, UnreadCall
from toolkit.parsing.wording import Wording

__all__ = ["answer", "find_complaint", "list_others_texts", "add_complaint", "write_without_tools"]


def write_without_tools(
    request: ChatRequest, tools: Sequence[ToolDefinition], wording: Wording, limits: ParsingLimits
) -> ChatRequest:
    """Return the request as a model without tools understands it."""
    messages = list(_write_messages(request, tools, wording, limits))
    if tools:
        instructions = f"{wording.instructions(tools)}\n\n{_word_choice(request, tools)}"
        if messages and isinstance(messages[0], SystemMessage):
            messages[0] = SystemMessage(f"{messages[0].content}\n\n{instructions}")
        else:
            messages.insert(0, SystemMessage(instructions))
    return replace(
        request,
        messages=messages,
        tools=None,
        tool_choice="auto",
        parallel_tool_calls=None,
        stop=(*request.stop, *wording.stop) if tools else request.stop,
    )


def _word_choice(request: ChatRequest, tools: Sequence[ToolDefinition]) -> str:
    several = " Call one tool at a time." if request.parallel_tool_calls is False else ""
    match request.tool_choice:
        case "auto":
            return f"When no tool is needed, answer in plain text.{several}"
        case "required":
            return f"You must call a tool now.{several}"
        case _:
            return f"You must call the tool {tools[0].name} now.{several}"


def _write_messages(
    request: ChatRequest, tools: Sequence[ToolDefinition], wording: Wording, limits: ParsingLimits
) -> list[Message]:
    messages: list[Message] = []
    results = 0
    for message in request.messages:
        if isinstance(message, ToolResult):
            results += 1
            text = wording.write_result(replace(message, content=wording.escape(message.text)))
            if tools and results % limits.remember_format_after_usages == 0:
                text += f"\n\n{wording.reminder(tools)}"
            _add_user(messages, _append_blocks(text, message))
        elif isinstance(message, UserMessage):
            _add_user(messages, _escape_message(message, wording))
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            messages.append(_write_call_message(message, wording))
        else:
            messages.append(message)
    return messages


def _escape_message(message: UserMessage, wording: Wording) -> UserMessage:
    if isinstance(message.content, str):
        return replace(message, content=wording.escape(message.content))
    blocks = [
        TextBlock(wording.escape(block.text)) if isinstance(block, TextBlock) else block for block in message.content
    ]
    return replace(message, content=tuple(blocks))


def _append_blocks(text: str, result: ToolResult) -> UserMessage:
    blocks = () if isinstance(result.content, str) else result.content
    others = [block for block in blocks if not isinstance(block, TextBlock)]
    return UserMessage((TextBlock(text), *others)) if others else UserMessage(text)


def _add_user(messages: list[Message], message: UserMessage) -> None:
    """Append what the user says, to what the user has said directly before: many models insist on taking turns."""
    last = messages[-1] if messages else None
    if not isinstance(last, UserMessage):
        messages.append(message)
    elif isinstance(last.content, str) and isinstance(message.content, str):
        messages[-1] = UserMessage(f"{last.content}\n\n{message.content}")
    else:
        messages[-1] = UserMessage((*_list_blocks(last), *_list_blocks(message)))


def _list_blocks(message: UserMessage) -> tuple[ContentBlock, ...]:
    return (TextBlock(message.content),) if isinstance(message.content, str) else message.content


def _write_call_message(message: AssistantMessage, wording: Wording) -> AssistantMessage:
    others = [block for block in message.content if not isinstance(block, (TextBlock, ToolCall))]
    text = "\n".join([text for text in (message.text, wording.write_calls(message.tool_calls)) if text])
    return AssistantMessage([*others, TextBlock(text)])


# the reply

_MAY_CALL = re.compile(r"[<{\[(\u25c1]|action|functools", re.IGNORECASE)


def list_others_texts(request: ChatRequest) -> list[str]:
    """Return what users and tools have said: where a reply repeats a call that stands there, it is none."""
    return [message.text for message in request.messages if isinstance(message, (UserMessage, ToolResult))]


def find_foreign_calls(parts: Sequence[ReplyPart], request: ChatRequest, tools: Sequence[ToolDefinition]) -> list[str]:
    """Return the names of what a reply, in which no call was found, calls in another format than it was told to."""
    if not all(isinstance(part, str) for part in parts):
        return []
    text = "".join(map(str, parts))
    if _MAY_CALL.search(text) is None:
        return []
    reader = ReplyReader(tools, repeated=list_others_texts(request))
    found = reader.settle([*reader.feed(text), *reader.finish()])
    return [part.name if isinstance(part, ToolCall) else "" for part in found if not isinstance(part, str)]


def find_complaint(
    parts: Sequence[ReplyPart], request: ChatRequest, tools: Sequence[ToolDefinition], wording: Wording
) -> str | None:
    """Return what the model must be told of its reply before it can be taken; None where it can."""
    if find_foreign_calls(parts, request, tools):
        return f"Your call was not run: it was written in another way than this one. {wording.reminder(tools)}"
    unread = [part for part in parts if isinstance(part, UnreadCall)]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if unread:
        reasons = " ".join(dict.fromkeys([part.reason for part in unread]))
        some = "None of your calls was run, because one" if calls or len(unread) > 1 else "Your call was not run: it"
        return f"{some} could not be read. {reasons} Write all of it again. {wording.reminder(tools)}"
    if request.tool_choice in {"auto", "none"}:
        return None
    if not calls or any(_is_unwanted(call, request, tools) for call in calls):
        return f"{_word_choice(request, tools)} {wording.reminder(tools)}"
    return None


def _is_unwanted(call: ToolCall, request: ChatRequest, tools: Sequence[ToolDefinition]) -> bool:
    is_named = request.tool_choice not in {"auto", "none", "required"}
    return is_named and repair_name(call.name, [tool.name for tool in tools]) is None


def add_complaint(request: ChatRequest, reply: str, told: str) -> ChatRequest:
    """Return the request once more, with the reply that could not be taken and the reason."""
    return replace(request, messages=[*request.messages, AssistantMessage(reply), UserMessage(told)])


def answer(
    response: ChatResponse,
    parts: Sequence[ReplyPart],
    request: ChatRequest,
    tools: Sequence[ToolDefinition],
    wording: Wording,
) -> ChatResponse:
    """Return the response with its text and calls; what could not be read, or may not be called, stays text.

    Neither calls that could not be read nor those in another format than the one that was told are an answer: they are
    named as unanswered.
    """
    content: list[AssistantContent] = [block for block in response.message.content if not isinstance(block, TextBlock)]
    text = ""
    calls: list[ToolCall] = []
    used = call_ids_of(request.messages)
    number = len(used)
    for part in parts:
        if isinstance(part, ToolCall) and not _is_unwanted(part, request, tools):
            number += 1
            while f"call_{number}" in used:
                number += 1
            calls.append(replace(part, id=f"call_{number}"))
        else:
            text += write_part(part, wording)
    if text:
        content.append(TextBlock(text))
    is_cut = response.stop_reason == "max_tokens"
    foreign = find_foreign_calls(parts, request, tools)
    foreign += ["" for part in parts if isinstance(part, UnreadCall)]
    return replace(
        response,
        unanswered=(*response.unanswered, *[UnansweredItem("text_call", name=name) for name in foreign]),
        message=AssistantMessage([*content, *calls]),
        stop_reason="tool_use" if calls and not is_cut else response.stop_reason,
    )


def write_part(part: ReplyPart, wording: Wording) -> str:
    """Return a part of a reply as text."""
    match part:
        case str():
            return part
        case ToolCall():
            return wording.write_calls([part])
        case UnreadCall(text=text):
            return text
