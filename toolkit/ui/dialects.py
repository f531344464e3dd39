"""The two dialects that interfaces speak, as pure translators: the events of a run out, a request of an interface in.

AG-UI has its types from ``ag-ui-protocol``, whose encoder has no bytes for half a surrogate pair; the chunks of
Vercel's UI-message stream are those of the schema that ``ai`` 7 publishes. Nothing here waits, stores or decides:
`toolkit.ui.streams` does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from ag_ui import core
from pydantic import BaseModel, ValidationError

from toolkit.calls.approval import Approval, Deny, Modify
from toolkit.calls.events import (
    CallEvent,
    ToolCallRefused,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.calls.registration import hides_arguments
from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    AudioBlock,
    ChatResponse,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    SystemMessage,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UserMessage,
)
from toolkit.chat.messages import ContentBlock
from toolkit.chat.output import ToolOutput, to_output
from toolkit.dataclass import dataclass
from toolkit.events import show_messages
from toolkit.foreign_text import replace_surrogates
from toolkit.json_text import make_adapter, parse_long_json
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.config import ANSWER_TOOL
from toolkit.loop.events import IterationStart, LoopEvent, ProviderRetried, ResponseReceived
from toolkit.loop.outcome import Cancelled, Complete, ToolLoopResult
from toolkit.schema.nodes import is_array, is_object

Chunk: TypeAlias = Any
"""An event of a dialect: `ag_ui.core.BaseEvent`, or a chunk of a UI-message stream as JSON values."""

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_FINISHES: Mapping[str | None, str] = {
    **dict.fromkeys((None, "typed_answer", "result_as_answer"), "stop"),
    "max_tokens": "length",
    "content_filter": "content-filter",
    "awaiting_approval": "tool-calls",
}
_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}, "editedArgs": {"type": "object"}},
    "required": ["approved"],
}
_MOST_PARTS = 2_000
MOST_TOOLS = 128
"""How many tools an interface may bring along."""
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_ANY_OF_KIND: Mapping[str, str] = {"image": "image/*", "audio": "audio/*", "video": "video/*"}
_Kind: TypeAlias = Literal["text", "reasoning"]
_Stage: TypeAlias = Literal["start", "delta", "end"]
_Shown: TypeAlias = Literal["answer", "state"]
_Media: TypeAlias = ImageBlock | AudioBlock | FileBlock
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """A request of an interface, in either dialect.

    The history that comes with it is left out: the stored conversation is the one that counts.

    Args:
        thread_id: The conversation, as the interface names it.
        run_id: The run, as the interface names it; empty where its dialect names none.
        message_id: The message of the interface that the answer continues; empty where it begins one.
        question: The user's message; None where answers are posted, or nothing new.
        question_id: Its id in the interface.
        decisions: The answers to approvals, by `PendingApproval.binding`.
        results: The results of calls that ran in the browser, by call id.
        tools: The definitions of tools that the interface brings along, and runs.
        state: The state of the interface, as any JSON value.
        is_again: True where the last question is to be answered once more.
    """

    thread_id: str
    run_id: str = ""
    message_id: str = ""
    question: UserMessage | None = None
    question_id: str = ""
    decisions: Mapping[str, Approval | bool] = field(default_factory=dict[str, Approval | bool])
    results: Mapping[str, ToolOutput] = field(default_factory=dict[str, ToolOutput])
    tools: Sequence[ToolDefinition] = ()
    state: Any = None
    is_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A conversation as it is stored.

    Args:
        messages: The transcript.
        pending: The calls that await decisions, or results of the browser.
        in_browser: Returns whether a pending call runs in the browser.
    """

    messages: Sequence[Message]
    pending: Sequence[PendingApproval]
    in_browser: Callable[[PendingApproval], bool]

    @property
    def questions(self) -> list[int]:
        """The places of the user's messages."""
        return [place for place, each in enumerate(self.messages) if isinstance(each, UserMessage)]

    def list_last_events(self) -> Iterator[LoopEvent]:
        """Yield the events that would lead to what follows the last question, but results that are awaited."""
        awaited = {each.call_id for each in self.pending}
        for message in self.messages[max(self.questions, default=-1) + 1 :]:
            if isinstance(message, AssistantMessage):
                yield IterationStart(iteration=0, message_count=0)
                yield ResponseReceived(iteration=0, response=ChatResponse(message=message))
            elif isinstance(message, ToolResult) and message.call_id not in awaited:
                yield ToolExecutionEnd(
                    call_id=message.call_id, tool_name=message.tool_name, result=message, duration=0.0
                )


class Translator:
    """Translates the events of one turn; each dialect writes its own chunks.

    Attributes:
        headers: The headers of its stream.
        closing: Ends its stream, behind the last event.
    """

    headers: ClassVar[Mapping[str, str]] = {}
    closing: ClassVar[str] = ""

    def __init__(self, mark: str) -> None:
        self._mark, self._count = mark, 0
        self._open: tuple[_Kind, str] | None = None
        self._begin_reply()

    def _begin_reply(self) -> None:
        self._calls: dict[int, str] = {}
        self._early: dict[int, str] = {}
        self._kinds: set[str] = set()

    # the stream

    def begin(self) -> list[Chunk]:
        """Return the begin of the stream."""
        raise NotImplementedError

    def replay(self, stored: Stored) -> list[Chunk]:
        """Return the stored conversation, for a client that has not seen what came before this stream."""
        raise NotImplementedError

    def take(self, event: LoopEvent) -> list[Chunk]:
        """Return the chunks that an event of the run becomes."""
        match event:
            case IterationStart():
                self._begin_reply()
                return [*self._close_part(), *self._begin_turn()]
            case TextDelta(text):
                return self._add_delta("text", text)
            case ReasoningDelta(text):
                return self._add_delta("reasoning", text)
            case ArgumentsDelta():
                return self._add_arguments(event)
            case ResponseReceived(response=response):
                [shown] = show_messages([response.message])
                return self._take_reply(cast("AssistantMessage", shown))
            case ProviderRetried():
                chunks = [*self._close_part(), *self._take_back()]
                self._begin_reply()
                return chunks
            case CallEvent(tool_name=name) if name == ANSWER_TOOL:
                return []
            case _:
                return self._take_call(event)

    def show(self, name: _Shown, value: Any) -> list[Chunk]:
        """Return the chunks that show a typed answer as far as it came, or the state, as a JSON value."""
        raise NotImplementedError

    def end(self, stored: Stored, result: ToolLoopResult[Any] | None = None) -> list[Chunk]:
        """Return the end of the stream; the result is that of the run, and None where none ran, as in a replay."""
        raise NotImplementedError

    def fail(self, text: str, code: str) -> list[Chunk]:
        """Return the end of a stream whose run failed."""
        raise NotImplementedError

    def write(self, chunk: Chunk) -> str:
        """Return a chunk as the data of a server-sent event."""
        plain = chunk.model_dump(by_alias=True) if isinstance(chunk, core.BaseEvent) else chunk
        return replace_surrogates(json.dumps(plain, ensure_ascii=False, separators=(",", ":")))

    # the pieces of a reply

    def _add_delta(self, kind: _Kind, text: str) -> list[Chunk]:
        self._kinds.add(kind)
        chunks: list[Chunk] = []
        if self._open is None or self._open[0] != kind:
            chunks = self._close_part()
            self._open = (kind, self._make_id())
            chunks += self._write_part(*self._open, "start")
        return [*chunks, *self._write_part(*self._open, "delta", text)]

    def _close_part(self) -> list[Chunk]:
        opened, self._open = self._open, None
        return [] if opened is None else self._write_part(*opened, "end")

    def _make_id(self) -> str:
        self._count += 1
        return f"{self._mark}-{self._count}"

    def _add_arguments(self, delta: ArgumentsDelta) -> list[Chunk]:
        place, name = delta.index, delta.tool_name
        if name == ANSWER_TOOL or hides_arguments(name):  # the latter are shown with the whole reply
            return []
        if place not in self._calls:
            self._early[place] = self._early.get(place, "") + delta.text
            if not (delta.call_id and name):
                return []
            self._calls[place] = delta.call_id
            return [*self._close_part(), *self._begin_call(delta.call_id, name, self._early[place])]
        return self._add_to_call(self._calls[place], delta.text) if delta.text else []

    def _take_reply(self, message: AssistantMessage) -> list[Chunk]:
        """Show what did not come in pieces; take back the calls that the whole reply has not, or has by other ids."""
        chunks = self._close_part()
        if not {call.id for call in message.tool_calls}.issuperset(self._calls.values()):
            chunks += self._take_back()
            self._begin_reply()
        for block in message.content:
            match block:
                case TextBlock(text) if "text" not in self._kinds:
                    chunks += [*self._add_delta("text", text), *self._close_part()]
                    self._kinds.discard("text")
                case ReasoningBlock(text=text) if text and "reasoning" not in self._kinds:
                    chunks += [*self._add_delta("reasoning", text), *self._close_part()]
                    self._kinds.discard("reasoning")
                case ToolCall(call_id, name, arguments) if name != ANSWER_TOOL:
                    if call_id not in self._calls.values():
                        chunks += self._begin_call(call_id, name, arguments)
                case ImageBlock() | AudioBlock() | FileBlock():
                    chunks += self._show_file(block)
                case _:
                    pass
        return [*chunks, *self._end_calls()]

    # what a dialect writes

    def _begin_turn(self) -> list[Chunk]:
        return []

    def _write_part(self, kind: _Kind, part_id: str, stage: _Stage, text: str = "") -> list[Chunk]:
        raise NotImplementedError

    def _begin_call(self, call_id: str, name: str, text: str) -> list[Chunk]:
        raise NotImplementedError

    def _add_to_call(self, call_id: str, text: str) -> list[Chunk]:
        raise NotImplementedError

    def _end_calls(self) -> list[Chunk]:
        return []

    def _take_back(self) -> list[Chunk]:
        """Return the chunks that undo what was shown of this reply."""
        raise NotImplementedError

    def _take_call(self, event: LoopEvent) -> list[Chunk]:
        raise NotImplementedError

    def _show_file(self, block: _Media) -> list[Chunk]:
        raise NotImplementedError


class UiMessageTranslator(Translator):
    """Translates the events of a turn into the chunks of a UI-message stream.

    Args:
        message_id: The id of the assistant's message that the stream makes, or continues.
        asked: The calls that the message shows already as awaiting a decision, or a result of the browser.
        denied: The ids of the calls that this request denies.
    """

    headers: ClassVar[Mapping[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}
    closing: ClassVar[str] = "data: [DONE]\n\n"

    def __init__(
        self, message_id: str, *, asked: Collection[PendingApproval] = (), denied: Collection[str] = ()
    ) -> None:
        super().__init__(message_id)
        self._denied, self._asked = denied, {each.binding for each in asked}
        self._shown = {each.call_id for each in asked}
        self._is_in_step = False

    def begin(self) -> list[Chunk]:
        """See `Translator`."""
        return [{"type": "start", "messageId": self._mark}]

    def replay(self, stored: Stored) -> list[Chunk]:
        """See `Translator`; what follows the last question is the message that this continues, and is replayed."""
        past = UiMessageTranslator(f"{self._mark}-past")
        chunks: list[Chunk] = []
        for event in stored.list_last_events():
            chunks += past.take(event)
        shown = {chunk.get("toolCallId") for chunk in chunks}
        for each in stored.pending:
            if each.binding in self._asked and each.call_id in shown:
                chunks += past._ask_user(each, stored)
        return chunks

    def show(self, name: _Shown, value: Any) -> list[Chunk]:
        """See `Translator`."""
        return [{"type": f"data-{name}", "id": name, "data": value}]

    def end(self, stored: Stored, result: ToolLoopResult[Any] | None = None) -> list[Chunk]:
        """See `Translator`."""
        chunks = self._close_part()
        for each in stored.pending:
            if each.binding not in self._asked:
                chunks += self._ask_user(each, stored)
        finish: dict[str, Any] = {"type": "finish", "finishReason": "tool-calls" if stored.pending else "stop"}
        if result is not None:
            reason = result.reason
            if isinstance(reason, Cancelled):
                return [*chunks, {"type": "abort", "reason": reason.reason or "The run was cancelled."}]
            stop = reason.stop if isinstance(reason, Complete) else None
            finish["finishReason"] = _FINISHES.get(stop if isinstance(reason, Complete) else reason.kind, "other")
            finish["messageMetadata"] = {"ending": reason.kind}
        return [*chunks, *self._end_step(), finish]

    def fail(self, text: str, code: str) -> list[Chunk]:  # noqa: ARG002
        """See `Translator`."""
        return [*self._close_part(), {"type": "error", "errorText": text}]

    def _ask_user(self, call: PendingApproval, stored: Stored) -> list[Chunk]:
        chunks = self._show_input(call.call_id, call.tool_name, dict(call.arguments))
        if not stored.in_browser(call):
            asks = {"type": "tool-approval-request", "approvalId": call.binding, "toolCallId": call.call_id}
            chunks.append({**asks, "reason": call.reason} if call.reason else asks)
        return chunks

    def _begin_turn(self) -> list[Chunk]:
        chunks = self._end_step()
        self._is_in_step = True
        return [*chunks, {"type": "start-step"}]

    def _end_step(self) -> list[Chunk]:
        was, self._is_in_step = self._is_in_step, False
        return [{"type": "finish-step"}] if was else []

    def _write_part(self, kind: _Kind, part_id: str, stage: _Stage, text: str = "") -> list[Chunk]:
        chunk = {"type": f"{kind}-{stage}", "id": part_id}
        return [{**chunk, "delta": text} if stage == "delta" else chunk]

    def _begin_call(self, call_id: str, name: str, text: str) -> list[Chunk]:
        begin = {"type": "tool-input-start", "toolCallId": call_id, "toolName": name}
        return [begin, *(self._add_to_call(call_id, text) if text else ())]

    def _add_to_call(self, call_id: str, text: str) -> list[Chunk]:
        return [{"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": text}]

    def _take_back(self) -> list[Chunk]:
        return [{"type": "reset-step"}]

    def _show_file(self, block: _Media) -> list[Chunk]:
        return [_to_ui_part(block)]

    def _take_call(self, event: LoopEvent) -> list[Chunk]:
        match event:
            case ToolExecutionStart(call_id=call_id, tool_name=name, arguments_json=text):
                return self._show_input(call_id, name, _read_json(text))
            case ToolExecutionUpdate(call_id=call_id, output=output):
                return [{**_write_output(call_id, output), "preliminary": True}]
            case ToolProgress(call_id=call_id, text=text):
                data = {"toolCallId": call_id, "text": text}
                return [{"type": "data-progress", "data": data, "transient": True}]
            case ToolCallRefused(call_id=call_id) if call_id in self._denied:
                return [{"type": "tool-output-denied", "toolCallId": call_id}]
            case ToolCallRefused(call_id=call_id, tool_name=name, result=result):
                return [*self._show_input(call_id, name, None), _write_output(call_id, result)]
            case ToolExecutionEnd(call_id=call_id, result=result):
                media = () if isinstance(result.content, str) else result.content
                files = [_to_ui_part(each) for each in media if not isinstance(each, TextBlock)]
                return [_write_output(call_id, result), *files]
            case _:
                return []

    def _show_input(self, call_id: str, name: str, value: Any) -> list[Chunk]:
        if call_id in self._shown:
            return []
        self._shown.add(call_id)
        return [{"type": "tool-input-available", "toolCallId": call_id, "toolName": name, "input": value}]


class AgUiTranslator(Translator):
    """Translates the events of a turn into those of AG-UI.

    Args:
        thread_id: The conversation, as the interface names it.
        run_id: The run, as the interface names it.
        mark: Begins the ids of messages; unique among the turns of a conversation.
        answered: The ids of the calls whose results came with this request, which the interface has.
    """

    def __init__(self, thread_id: str, run_id: str, mark: str, *, answered: Collection[str] = ()) -> None:
        super().__init__(mark)
        self._thread, self._run, self._answered = thread_id, run_id, answered
        self._message = ""
        self._open_calls: list[str] = []
        self._unanswered: list[str] = []
        self._is_wrong = False

    def begin(self) -> list[Chunk]:
        """See `Translator`."""
        return [core.RunStartedEvent(thread_id=self._thread, run_id=self._run, protocol_version="1.0")]

    def replay(self, stored: Stored) -> list[Chunk]:
        """See `Translator`."""
        found = [_to_ag_ui(f"message-{place}", each) for place, each in enumerate(stored.messages)]
        awaited = {each.call_id for each in stored.pending}
        shown = [each for each in found if getattr(each, "tool_call_id", None) not in awaited]
        return [core.MessagesSnapshotEvent(messages=shown)]

    def show(self, name: _Shown, value: Any) -> list[Chunk]:
        """See `Translator`."""
        if name == "state":
            return [core.StateSnapshotEvent(snapshot=value)]
        return [core.CustomEvent(name=name, value=value)]

    def end(self, stored: Stored, result: ToolLoopResult[Any] | None = None) -> list[Chunk]:
        """See `Translator`."""
        chunks = self._close_part()
        if self._is_wrong:
            chunks += self.replay(stored)
        interrupts = [
            core.Interrupt(
                id=each.binding,
                reason="tool_call",
                message=each.reason or None,
                tool_call_id=each.call_id,
                response_schema=_ANSWER_SCHEMA,
                metadata={"toolName": each.tool_name, "preview": each.preview},
            )
            for each in stored.pending
            if not stored.in_browser(each)
        ]
        outcome: Any = core.RunFinishedSuccessOutcome(pending_tool_call_ids=self._unanswered or None)
        if result is not None and isinstance(result.reason, Cancelled):
            outcome = core.RunFinishedCancelledOutcome()
        elif interrupts:
            outcome = core.RunFinishedInterruptOutcome(interrupts=interrupts)
        finished = core.RunFinishedEvent(thread_id=self._thread, run_id=self._run, outcome=outcome)
        if result is not None:
            used = result.usage
            finished.metadata = {"ending": result.reason.kind}
            finished.usage = [core.TokenUsage(input_tokens=used.input_tokens, output_tokens=used.output_tokens)]
        return [*chunks, finished]

    def fail(self, text: str, code: str) -> list[Chunk]:
        """See `Translator`."""
        return [*self._close_part(), core.RunErrorEvent(message=text, code=code)]

    def _begin_turn(self) -> list[Chunk]:
        self._message = ""
        return []

    def _write_part(self, kind: _Kind, part_id: str, stage: _Stage, text: str = "") -> list[Chunk]:
        if kind == "text":
            self._message = self._message or part_id
            if stage == "delta":
                return [core.TextMessageContentEvent(message_id=part_id, delta=text)]
            if stage == "start":
                return [*self._end_calls(), core.TextMessageStartEvent(message_id=part_id, role="assistant")]
            return [core.TextMessageEndEvent(message_id=part_id)]
        if stage == "delta":
            return [core.ReasoningMessageContentEvent(message_id=part_id, delta=text)]
        if stage == "start":
            begin = core.ReasoningMessageStartEvent(message_id=part_id)
            return [*self._end_calls(), core.ReasoningStartEvent(message_id=part_id), begin]
        return [core.ReasoningMessageEndEvent(message_id=part_id), core.ReasoningEndEvent(message_id=part_id)]

    def _close_part(self) -> list[Chunk]:
        return [*super()._close_part(), *self._end_calls()]

    def _begin_call(self, call_id: str, name: str, text: str) -> list[Chunk]:
        self._message = self._message or self._make_id()
        self._open_calls.append(call_id)
        self._unanswered.append(call_id)
        begin = core.ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, parent_message_id=self._message)
        return [begin, *(self._add_to_call(call_id, text) if text else ())]

    def _add_to_call(self, call_id: str, text: str) -> list[Chunk]:
        return [core.ToolCallArgsEvent(tool_call_id=call_id, delta=text)]

    def _end_calls(self) -> list[Chunk]:
        ended, self._open_calls = self._open_calls, []
        return [core.ToolCallEndEvent(tool_call_id=each) for each in ended]

    def _take_back(self) -> list[Chunk]:
        # No event takes back what was shown: the right messages follow at the end.
        self._is_wrong = True
        self._unanswered = [each for each in self._unanswered if each not in self._calls.values()]
        return self._end_calls()

    def _show_file(self, block: _Media) -> list[Chunk]:
        return [core.CustomEvent(name="file", value=_to_ui_part(block))]

    def _take_call(self, event: LoopEvent) -> list[Chunk]:
        match event:
            case ToolExecutionUpdate(call_id=call_id, output=output):
                return [core.CustomEvent(name="progress", value={"toolCallId": call_id, "text": output.text})]
            case ToolProgress(call_id=call_id, text=text):
                return [core.CustomEvent(name="progress", value={"toolCallId": call_id, "text": text})]
            case ToolExecutionEnd(result=result) | ToolCallRefused(result=result):
                self._unanswered = [each for each in self._unanswered if each != result.call_id]
                if result.call_id in self._answered:
                    return []
                found = _to_ag_ui(f"result-{result.call_id}", result)
                return [
                    core.ToolCallResultEvent(message_id=found.id, tool_call_id=result.call_id, content=found.content)
                ]
            case _:
                return []


# requests


class _Answer(BaseModel):
    id: str
    approved: bool = False
    reason: str | None = None


class _UiPart(BaseModel):
    type: str
    text: str = ""
    url: str = ""
    mediaType: str = ""  # noqa: N815 - the name on the wire
    filename: str = "file"
    toolCallId: str = ""  # noqa: N815
    state: str = ""
    output: Any = None
    errorText: str = ""  # noqa: N815
    approval: _Answer | None = None


class _UiMessage(BaseModel):
    id: str = ""
    role: Literal["system", "user", "assistant"]
    parts: list[_UiPart]


class _UiRequest(BaseModel):
    id: str
    messages: list[_UiMessage]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: str | None = None  # noqa: N815
    state: Any = None


def read_ui_request(body: bytes) -> Posted:
    """Read a request of ``useChat``.

    Raises:
        ValueError: It is none; says why.
    """
    given = _read_object(body)
    listed, again = given.get("messages"), given.get("trigger") == "regenerate-message"
    messages, named_id = listed if is_array(listed) else [], given.get("messageId")
    named = named_id is not None and [each for each in messages if is_object(each) and each.get("id") == named_id]
    if is_array(listed):
        given["messages"] = (named if named and not again else messages)[-1:]
    request = _read_model(_UiRequest, given)
    message = next(iter(request.messages), None)
    if message is None or message.role == "system":
        raise ValueError("the last message is neither a question nor an answer with results or decisions")
    thread: dict[str, Any] = {"thread_id": request.id, "state": request.state}
    if message.role == "user":
        if named and not again:
            raise ValueError("a question that was asked can't be changed: ask another one")
        blocks = [_read_part(each) for each in message.parts if each.type in ("text", "file")]
        return Posted(**thread, question=_make_question(blocks), question_id=message.id, is_again=again)
    return _read_ui_answers(message, thread)


def _read_ui_answers(message: _UiMessage, thread: dict[str, Any]) -> Posted:
    decisions: dict[str, Approval | bool] = {}
    results: dict[str, ToolOutput] = {}
    for part in message.parts:
        if part.state == "approval-responded" and part.approval is not None:
            answer = part.approval
            decisions[answer.id] = answer.approved or (Deny(answer.reason) if answer.reason else False)
        elif part.state == "output-available":
            results[part.toolCallId] = to_output(part.output)
        elif part.state == "output-error":
            results[part.toolCallId] = ToolOutput.error(part.errorText)
    return Posted(**thread, message_id=message.id, decisions=decisions, results=results)


def read_ag_ui_request(body: bytes) -> Posted:
    """Read a ``RunAgentInput`` of AG-UI.

    Raises:
        ValueError: It is none; says why.
    """
    given = _read_object(body)
    _leave_out_ignored(given)
    request = _read_model(core.RunAgentInput, given)
    decisions = {entry.interrupt_id: _read_ag_ui_decision(entry) for entry in request.resume or ()}
    results: dict[str, ToolOutput] = {}
    question, question_id = None, ""
    for message in reversed(request.messages):
        if isinstance(message, core.ToolMessage):
            content = message.content if isinstance(message.content, str) else _read_parts(message.content)
            results[message.tool_call_id] = ToolOutput(content, is_error=message.error is not None)
            continue
        if isinstance(message, core.UserMessage) and not (results or decisions):
            question, question_id = _make_question(_read_parts(message.content)), message.id
        break
    return Posted(
        thread_id=request.thread_id,
        run_id=request.run_id,
        question=question,
        question_id=question_id,
        decisions=decisions,
        results=results,
        tools=[
            ToolDefinition(name=each.name, description=each.description, parameters=each.parameters or _NO_PARAMETERS)
            for each in request.tools or ()
        ],
        state=request.state,
    )


def _leave_out_ignored(given: dict[str, Any]) -> None:
    """Remove what nobody reads of a request: messages before the question or the results, the context, spare tools.

    Raises:
        ValueError: There are too many results.
    """
    messages, tools, context = (given.get(name) for name in ("messages", "tools", "context"))
    if is_array(messages):
        place = len(messages) - 1
        while place > 0 and is_object(messages[place]) and messages[place].get("role") == "tool":
            place -= 1
        del messages[: max(place, 0)]
        if len(messages) > _MOST_PARTS:
            raise ValueError(f"a request has {_MOST_PARTS:,} results at most")
    if is_array(tools):
        del tools[MOST_TOOLS + 1 :]  # one too many is refused
    if is_array(context):
        context.clear()


def _read_ag_ui_decision(entry: core.ResumeEntry) -> Approval | bool:
    payload: object = entry.payload
    answer = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    is_approved = entry.status == "resolved" and answer.get("approved")
    if not isinstance(is_approved, bool):
        raise ValueError(  # noqa: TRY004 - as for all else that is wrong in a request
            'an answer to a tool\'s interrupt has the payload {"approved": true or false}'
        )
    if is_approved:
        arguments: object = answer.get("editedArgs")
        return Modify(cast("dict[str, Any]", arguments)) if isinstance(arguments, dict) else True
    reason: object = answer.get("reason")
    return Deny(reason) if isinstance(reason, str) else False


_adapter_of = cache(make_adapter)


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        found: object = parse_long_json(body)
    except ValueError as error:
        raise ValueError(f"the body: {error}") from None
    if not is_object(found):
        raise ValueError("the body: an object is expected")
    return found


def _read_model(model: type[_Model], given: dict[str, Any]) -> _Model:
    """Return a request as a model of it; a message has a bounded number of parts, which are validated at once."""
    listed: object = given.get("messages")
    for message in filter(is_object, listed if is_array(listed) else ()):
        parts: object = message.get("parts", message.get("content"))
        if is_array(parts) and len(parts) > _MOST_PARTS:
            raise ValueError(f"a message has {_MOST_PARTS:,} parts at most")
    try:
        return cast("_Model", _adapter_of(model).validate_python(given))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise ValueError(f"{place}: {first['msg']}") from None


def _make_question(blocks: Sequence[ContentBlock]) -> UserMessage:
    if not any(not isinstance(each, TextBlock) or each.text.strip() for each in blocks):
        raise ValueError("the question is empty")
    only = blocks[0] if len(blocks) == 1 else None
    return UserMessage(only.text if isinstance(only, TextBlock) else tuple(blocks))


def _read_part(part: _UiPart) -> ContentBlock:
    return TextBlock(part.text) if part.type == "text" else _make_media(part.url, part.mediaType, part.filename)


def _read_parts(content: str | Sequence[Any]) -> tuple[ContentBlock, ...]:
    if isinstance(content, str):
        return (TextBlock(content),)
    return tuple(map(_read_ag_ui_part, content))


def _read_ag_ui_part(part: Any) -> ContentBlock:
    if isinstance(part, core.TextPart):
        return TextBlock(part.text)
    url, media_type = part.source.value, part.source.mime_type or _ANY_OF_KIND.get(part.type, "")
    if isinstance(part.source, core.DataSource):
        url = f"data:{media_type};base64,{url}"
    return _make_media(url, media_type, "file")


def _make_media(url: str, media_type: str, name: str) -> ContentBlock:
    """Return the block of a file that came as a URL.

    Raises:
        ValueError: The URL is neither of the web nor has the data in it.
    """
    head, comma, encoded = url.partition(",")
    named, *parameters = head.removeprefix("data:").split(";")
    data = None
    is_data = head.startswith("data:") and comma and parameters[-1:] == ["base64"]
    if is_data and _MEDIA_TYPE.fullmatch(named):
        try:
            data, url, media_type = base64.b64decode(encoded, validate=True), "", named
        except binascii.Error as error:
            raise ValueError(f"the data of a file is no Base64: {error}") from None
    elif not url.startswith(("https://", "http://")):
        raise ValueError("a file has an http, https or data URL")
    if media_type.startswith("image"):
        return ImageBlock(data, media_type=media_type, url=url or None)
    if media_type.startswith("audio") and data is not None:
        return AudioBlock(data, media_type=media_type)
    return FileBlock(data, name=name, media_type=media_type or "application/octet-stream", url=url or None)


# parts of both


def _read_json(text: str) -> Any:
    """Return the object or list in a text; other texts as they are."""
    if text[:1] in "{[" and text:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _write_output(call_id: str, output: ToolOutput | ToolResult) -> dict[str, Any]:
    if output.is_error:
        return {"type": "tool-output-error", "toolCallId": call_id, "errorText": output.text}
    return {"type": "tool-output-available", "toolCallId": call_id, "output": _read_json(output.text)}


def _find_data(block: _Media) -> str:
    return "" if block.data is None else base64.b64encode(block.data).decode()


def _to_ui_part(block: _Media) -> dict[str, Any]:
    data, url = _find_data(block), None if isinstance(block, AudioBlock) else block.url
    return {"type": "file", "mediaType": block.media_type, "url": url or f"data:{block.media_type};base64,{data}"}


def _to_ag_ui(message_id: str, message: Message) -> Any:
    """Return a message as one of AG-UI."""
    content: Any = message.text
    if isinstance(message, (UserMessage, ToolResult)) and not isinstance(message.content, str):
        content = [_to_ag_ui_part(each) for each in message.content]
    match message:
        case SystemMessage():
            return core.SystemMessage(id=message_id, content=content)
        case UserMessage():
            return core.UserMessage(id=message_id, content=content)
        case ToolResult(call_id=call_id):
            return core.ToolMessage(id=message_id, content=content, tool_call_id=call_id)
        case AssistantMessage():
            calls = [
                core.ToolCall(id=each.id, function=core.FunctionCall(name=each.name, arguments=each.arguments))
                for each in message.tool_calls
                if each.name != ANSWER_TOOL
            ]
            return core.AssistantMessage(id=message_id, content=content or None, tool_calls=calls or None)


def _to_ag_ui_part(block: ContentBlock) -> Any:
    if isinstance(block, TextBlock):
        return core.TextPart(text=block.text)
    kind = {"image": core.ImagePart, "audio": core.AudioPart}.get(block.type, core.DocumentPart)
    url = None if isinstance(block, AudioBlock) else block.url
    if url is not None:
        return kind(source=core.UrlSource(value=url, mime_type=block.media_type))
    return kind(source=core.DataSource(value=_find_data(block), mime_type=block.media_type))
