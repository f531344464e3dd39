"""A provider that reads the calls in a model's text, with the tools in its prompt or beside native tools.

The best way to ask a model for calls is found by its name and its file, or by three small requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from anyio import to_thread

from toolkit.calls.argument_repair import repair_arguments
from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    ContentBlock,
    Message,
    Provider,
    ResponseDone,
    ResponseFormat,
    StreamEvent,
    SystemMessage,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UnansweredItem,
    Usage,
    UserMessage,
    call_ids_of,
)
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.chat.request import callable_tools
from toolkit.dataclass import dataclass
from toolkit.errors import BadResponseError, ProviderError
from toolkit.foreign_text import shorten_to_line
from toolkit.parsing.forms import TextFormat
from toolkit.parsing.reply import GivenTexts, Reply, ReplyPart, ReplyReader, UnreadCall
from toolkit.parsing.wording import CallingWay, ModelFamily, TextFormatRow, find_family, read_limits, wording_of
from toolkit.redaction import without_keys
from toolkit.settings import check_setting
from toolkit.tool_names import repair_name

ToolOffer: TypeAlias = Literal["prompt", "native"]
"""Where the tools are offered: in the prompt, or in the request, for the server."""

T = TypeVar("T")

_MOST_QUESTIONS = 2
_MAY_CALL = re.compile(r"[<{\[(\u25c1]|action|functools", re.IGNORECASE)
_SMALL = 1_000_000_000
"""The most parameters of a guided model: at half a billion, native and text calls solved 3 of 30 tasks, schemas 14."""
# The first mark in a template decides.
_MARKS: tuple[tuple[str, TextFormat], ...] = (
    ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "deepseek"),
    ("<|tool_calls_section_begin|>", "kimi"),
    ("<|channel|>", "harmony"),
    ("<minimax:tool_call>", "minimax"),
    ("<arg_key>", "glm"),
    ("<function=", "qwen"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama"),
    ("<|tool_call|>", "phi"),
)
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(?P<experts>\d+)x)?(?P<number>\d+(?:\.\d+)?)(?P<unit>[bm])(?![a-z])")
_TOOLS_IN_TEMPLATE = re.compile(r"\btools\b")
_NAMES_IN_FILE = ("general.name", "general.basename", "general.base_model.0.name", "general.architecture")
_CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "The name of the city"}},
    "required": ["city"],
    "additionalProperties": False,
}
_TOOL = ToolDefinition(name="get_weather", description="Tell the weather of a city.", parameters=_CITY)
_QUESTION = "What is the weather in Oslo?"
_MOST_TOKENS = 300
_LONG_TEXT = 1_000  # characters, each of which takes up to 40 microseconds


class TextToolProvider(ProviderWrapper):
    """Reads the calls in a model's text, for any provider.

    ::

        provider = TextToolProvider(OpenAIProvider("my-model", base_url="http://localhost:8080/v1"), format="hermes")
        result = await tool_loop(provider, registry, "What's the weather in Paris?")

    With ``tools="prompt"`` the model needs no native tools. The system prompt describes them in the words of `format`;
    earlier calls and their results are written in that format, too. In the texts of users and tools, the markers of the
    format and the tokens of chat templates are broken by a backslash.

    With ``tools="native"`` the request is unchanged, with its tools. Native calls win; without any, a call in the text
    is read in the format of the model's family. So one request is enough for models whose calls their server does not
    recognize.

    The place decides whether a text is a call: see `read_reply`. A whole call elsewhere does not run. The model is
    asked, at most twice in a run, to reply with that call alone if it meant it; the call is then added to the text,
    which remains in any case. Texts of users, tools and the application are never calls, even if the model repeats
    them. If a call can't be read, is in another format than the prompt's, or disobeys `tool_choice`, nothing of that
    reply runs, the model is asked again with the reason, and its next reply is the answer. The usage is that of all
    requests. A call that is never readable is text, and ends a loop as `UnansweredItems`, not as an answer.

    A stream yields text as it arrives, and calls at the end. The reply to a question about a call is not streamed. The
    text of a reply with an unreadable call has been streamed, without the call.

    Args:
        provider: Talks to the model.
        format: The format of calls; ``auto`` for that of the model's family, or ``hermes``.
        model: The name of the model, which also sets the defaults: 2 attempts and a reminder after 4 results for the
            largest models of OpenAI, 3 and 3 for all others.
        tools: Where the tools are offered.
        max_parsing_attempts: The most requests for one reply that can't be read.
        remember_format_after_usages: The number of results after which the prompt repeats the format.

    Raises:
        ConfigurationError: There is no such format or way, or a limit is less than 1.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        format: TextFormat = "auto",  # noqa: A002
        model: str = "",
        tools: ToolOffer = "prompt",
        max_parsing_attempts: int | None = None,
        remember_format_after_usages: int | None = None,
    ) -> None:
        super().__init__(provider)
        check_setting("the tools of a TextToolProvider", tools, *get_args(ToolOffer))
        self._wording = wording_of(format, model)
        self._is_native = tools == "native"
        attempts, usages = read_limits(model, max_parsing_attempts, remember_format_after_usages)
        self.max_parsing_attempts: int = attempts
        self.remember_format_after_usages: int = usages

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer with the calls in its text.

        Raises:
            ConfigurationError: `tool_choice` names a tool that is not there.
        """
        exchange = self._begin_exchange(request)
        while True:
            response = await self._provider.generate(exchange.asked)
            answer = await _read_beside(partial(exchange.read, response), len(_join_text(response)))
            if answer is not None:
                return answer

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the text of the answer without calls as it arrives, then the calls.

        Raises:
            ConfigurationError: `tool_choice` names a tool that is not there.
            BadResponseError: The provider's stream ended without its `ResponseDone`.
        """
        exchange = self._begin_exchange(request)
        if not exchange.tools:
            async with closing(self._provider.stream(exchange.asked)) as events:
                async for event in events:
                    yield event
            return
        while True:
            streamed = _StreamedReply(exchange, self._wording)
            async with closing(self._provider.stream(exchange.asked)) as events:
                async for event in events:
                    length = len(event.text) if isinstance(event, TextDelta) else 0
                    for shown in await _read_beside(partial(streamed.show, event), length):
                        yield shown
            if streamed.response is None:
                raise BadResponseError("the provider", "its stream ended without the whole response")
            judge = partial(exchange.judge, streamed.response, streamed.collect(), streamed.text)
            answer = await _read_beside(judge, len(streamed.text))
            if answer is None:
                continue
            if not streamed.response.tool_calls:
                for index, call in enumerate(answer.tool_calls):
                    yield ArgumentsDelta(index, call.id, call.name, call.arguments)
            yield ResponseDone(answer)
            return

    def _begin_exchange(self, request: ChatRequest) -> _Exchange:
        tools = callable_tools(request)
        asked = request if self._is_native else self._write_without_tools(request, tools)
        return _Exchange(request, asked, tools, self._wording, self.max_parsing_attempts, is_native=self._is_native)

    def _write_without_tools(self, request: ChatRequest, tools: Sequence[ToolDefinition]) -> ChatRequest:
        """Return the request with the tools in its prompt."""
        wording = self._wording
        messages = _write_messages(request, tools, wording, self.remember_format_after_usages)
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


async def _read_beside(read: Callable[[], T], length: int) -> T:
    """Return the result of a function that reads a text; long texts are read in a thread."""
    if length <= _LONG_TEXT:
        return read()
    return await to_thread.run_sync(read, abandon_on_cancel=True)


class _Exchange:
    """The requests for one answer, and their replies.

    Attributes:
        tools: The tools that may be called.
        asked: The next request.
        is_asking: True once the model was asked about a call in its text.
        attempts_left: How many more unreadable replies may be sent back.
    """

    def __init__(
        self,
        request: ChatRequest,
        asked: ChatRequest,
        tools: Sequence[ToolDefinition],
        wording: TextFormatRow,
        attempts: int,
        *,
        is_native: bool,
    ) -> None:
        self.tools: Sequence[ToolDefinition] = tools
        self.asked: ChatRequest = asked
        self.attempts_left: int = attempts - 1
        self._request = request
        self._wording = wording
        self._is_native = is_native
        self._given = _read_given_texts(request)
        self._spent = Usage()
        self._questioned: tuple[ChatResponse, Reply] | None = None  # the reply that the model was asked about
        self._questions_left: int | None = None

    @property
    def is_asking(self) -> bool:
        return self._questioned is not None

    def make_reader(self) -> ReplyReader:
        return ReplyReader(self.tools, format=self._wording.format, given=self._given)

    def read(self, response: ChatResponse) -> ChatResponse | None:
        """Do what `judge` does, for a whole response."""
        reader, text = self.make_reader(), _join_text(response)
        return self.judge(response, reader.collect([*reader.feed(text), *reader.finish()]), text)

    def judge(self, response: ChatResponse, reply: Reply, text: str) -> ChatResponse | None:
        """Return the answer in a reply; None if the model has to be asked again."""
        self._spent += response.usage
        if not self.tools:
            return replace(response, usage=self._spent)
        if response.tool_calls:
            return self._add_questioned_text(replace(response, usage=self._spent))
        complaint = self._find_complaint(reply)
        if complaint is not None and self.attempts_left > 0:
            self.attempts_left -= 1
            self._ask_again(text, complaint)
            return None
        question = None if complaint is not None else self._find_question(reply)
        if question is not None:
            self._questioned = self._questioned or (response, reply)
            self._ask_again(text, question)
            return None
        return self._make_answer(response, reply)

    def _ask_again(self, text: str, words: str) -> None:
        messages = [*self.asked.messages, AssistantMessage(text), UserMessage(words)]
        self.asked = replace(self.asked, messages=messages)

    def _find_complaint(self, reply: Reply) -> str | None:
        """Return the problem of a reply, for the model, or None."""
        reminder = "" if self._is_native else f" {self._wording.reminder(self.tools)}"
        if self._find_foreign(reply):
            return f"Your call was not run: it was written in another way than this one.{reminder}"
        if reply.unread:
            reasons = " ".join(dict.fromkeys([part.reason for part in reply.unread]))
            several = reply.calls or len(reply.unread) > 1
            some = "None of your calls was run, because one" if several else "Your call was not run: it"
            return f"{some} could not be read. {reasons} Write all of it again.{reminder}"
        if self._is_native or self._request.tool_choice in {"auto", "none"}:
            return None
        if not reply.calls or any(map(self._is_unwanted, reply.calls)):
            return f"{_word_choice(self._request, self.tools)}{reminder}"
        return None

    def _find_foreign(self, reply: Reply) -> list[str]:
        """Return the names of calls in other formats, for a reply without calls in the format of the prompt."""
        if self._is_native or reply.calls or reply.unread or _MAY_CALL.search(reply.text) is None:
            return []
        reader = ReplyReader(self.tools, given=self._given)
        found = [*reader.feed(reply.text), *reader.finish()]
        return [part.name if isinstance(part, ToolCall) else "" for part in found if not isinstance(part, str)]

    def _is_unwanted(self, call: ToolCall) -> bool:
        is_named = self._request.tool_choice not in {"auto", "none", "required"}
        return is_named and repair_name(call.name, [tool.name for tool in self.tools]) is None

    def _find_question(self, reply: Reply) -> str | None:
        """Return a question about whole calls in the text; None without any, or after two questions in this run."""
        made = {
            _make_key(call)
            for message in self._request.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }
        if all(_make_key(call) in made for call in reply.displaced):
            return None
        if self._questions_left is None:
            self._questions_left = _MOST_QUESTIONS - self._count_questions()
        if self._questions_left <= 0:
            return None
        self._questions_left -= 1
        names = list(dict.fromkeys([call.name for call in (*reply.displaced, *reply.calls)]))
        several = len(reply.displaced) + len(reply.calls) > 1
        return (
            f"Nothing was called. If you meant to call {' and '.join(names)}, reply with "
            f"{'those calls' if several else 'that call'} alone. Otherwise reply with one word."
        )

    def _count_questions(self) -> int:
        """Return the number of questions in this run: one for each earlier reply with a whole call in its text."""
        count = 0
        messages = self._request.messages
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            before = messages[index - 1] if index else None
            if isinstance(message, AssistantMessage) and message.text:
                reader = ReplyReader(self.tools, format=self._wording.format)
                count += bool(reader.collect([*reader.feed(message.text), *reader.finish()]).displaced)
            elif isinstance(message, UserMessage) and isinstance(before, AssistantMessage) and not before.tool_calls:
                break  # the run began after an answer
        return count

    def _make_answer(self, response: ChatResponse, reply: Reply) -> ChatResponse:
        if self._questioned is None:
            return self._write_answer(response, reply.parts, reply)
        standing, earlier = self._questioned
        calls = [] if reply.unread else [call for call in reply.calls if not self._is_unwanted(call)]
        if calls:
            return self._write_answer(response, [earlier.text, *calls], None)
        return self._write_answer(standing, earlier.parts, None)

    def _write_answer(self, response: ChatResponse, parts: Sequence[ReplyPart], reply: Reply | None) -> ChatResponse:
        """Return a response with its text and calls; unreadable and unwanted calls are text.

        Unreadable calls and those in other formats are unanswered items, since they are no answer.
        """
        content: list[AssistantContent] = [
            block for block in response.message.content if not isinstance(block, TextBlock)
        ]
        text = ""
        calls: list[ToolCall] = []
        used = call_ids_of(self._request.messages)
        number = len(used)
        for part in parts:
            if isinstance(part, ToolCall) and not self._is_unwanted(part):
                number += 1
                while f"call_{number}" in used:
                    number += 1
                calls.append(replace(part, id=f"call_{number}"))
            else:
                text += _write_part(part, self._wording)
        if text:
            content.append(TextBlock(text))
        unanswered = [] if reply is None else [*self._find_foreign(reply), *["" for _ in reply.unread]]
        is_cut = response.stop_reason == "max_tokens"
        return replace(
            response,
            usage=self._spent,
            unanswered=(*response.unanswered, *[UnansweredItem("text_call", name=name) for name in unanswered]),
            message=AssistantMessage([*content, *calls]),
            stop_reason="tool_use" if calls and not is_cut else response.stop_reason,
        )

    def _add_questioned_text(self, response: ChatResponse) -> ChatResponse:
        if self._questioned is None:
            return response
        content = [block for block in response.message.content if not isinstance(block, TextBlock)]
        text = TextBlock(self._questioned[1].text)
        return replace(response, message=AssistantMessage([text, *content]))


class _StreamedReply:
    """A reply that is being streamed."""

    def __init__(self, exchange: _Exchange, wording: TextFormatRow) -> None:
        self.response: ChatResponse | None = None
        self._shows_text = not exchange.is_asking
        self._shows_unread = exchange.attempts_left <= 0
        self._wording = wording
        self._reader = exchange.make_reader()
        self._parts: list[ReplyPart] = []
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The whole reply, as it was written."""
        return "".join(self._texts)

    def collect(self) -> Reply:
        """Return the whole reply."""
        return self._reader.collect(self._parts)

    def show(self, event: StreamEvent) -> list[StreamEvent]:
        """Add an event, and return the events to yield: of the reply, text alone."""
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
            new = self._reader.feed(event.text)
        elif isinstance(event, ResponseDone):
            self.response = event.response
            if not self._texts:
                self._texts.append(_join_text(event.response))
                new = self._reader.feed(self._texts[0])
            else:
                new = []
            new += self._reader.finish()
        else:
            return [event]
        self._parts += new
        if not self._shows_text:
            return []
        return [
            TextDelta(_write_part(part, self._wording))
            for part in new
            if isinstance(part, str) or (self._shows_unread and isinstance(part, UnreadCall))
        ]


def _read_given_texts(request: ChatRequest) -> GivenTexts:
    messages = [message for message in request.messages if not isinstance(message, AssistantMessage)]
    return GivenTexts(
        [message.text for message in messages],
        [message.text for message in messages if isinstance(message, ToolResult)],
    )


def _make_key(call: ToolCall) -> tuple[str, str]:
    repaired = repair_arguments(call.arguments)
    return call.name, call.arguments if repaired is None else json.dumps(json.loads(repaired), sort_keys=True)


def _join_text(response: ChatResponse) -> str:
    # Not `response.text`, which joins blocks by line breaks: a stream does not show where they end.
    return "".join([block.text for block in response.message.content if isinstance(block, TextBlock)])


def _write_part(part: ReplyPart, wording: TextFormatRow) -> str:
    match part:
        case str():
            return part
        case ToolCall():
            return wording.write_calls([part])
        case UnreadCall(text=text):
            return text


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
    request: ChatRequest, tools: Sequence[ToolDefinition], wording: TextFormatRow, reminds_after: int
) -> list[Message]:
    messages: list[Message] = []
    results = 0
    for message in request.messages:
        if isinstance(message, ToolResult):
            results += 1
            text = wording.write_result(replace(message, content=wording.escape(message.text)))
            if tools and results % reminds_after == 0:
                text += f"\n\n{wording.reminder(tools)}"
            _add_user(messages, _append_blocks(text, message))
        elif isinstance(message, UserMessage):
            _add_user(messages, _escape_message(message, wording))
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            messages.append(_write_call_message(message, wording))
        else:
            messages.append(message)
    return messages


def _escape_message(message: UserMessage, wording: TextFormatRow) -> UserMessage:
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
    """Append a user message, joined to a preceding one: many models require alternating turns."""
    last = messages[-1] if messages else None
    if not isinstance(last, UserMessage):
        messages.append(message)
    elif isinstance(last.content, str) and isinstance(message.content, str):
        messages[-1] = UserMessage(f"{last.content}\n\n{message.content}")
    else:
        messages[-1] = UserMessage((*_list_blocks(last), *_list_blocks(message)))


def _list_blocks(message: UserMessage) -> tuple[ContentBlock, ...]:
    return (TextBlock(message.content),) if isinstance(message.content, str) else message.content


def _write_call_message(message: AssistantMessage, wording: TextFormatRow) -> AssistantMessage:
    others = [block for block in message.content if not isinstance(block, (TextBlock, ToolCall))]
    text = "\n".join([text for text in (message.text, wording.write_calls(message.tool_calls)) if text])
    return AssistantMessage([*others, TextBlock(text)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingAdvice:
    """The best way to ask a model for calls.

    Args:
        way: The best known way.
        reason: The reason, in a few words.
        format: The format of its calls in text.
        family: Its family; None if it is unknown.
        parameters: The number of its parameters; None if it is unknown.
        template_has_tools: True if its template accepts tools; None if that is unknown.
    """

    way: CallingWay
    reason: str
    format: TextFormat = "hermes"
    family: ModelFamily | None = None
    parameters: int | None = None
    template_has_tools: bool | None = None


def advise_calling(model: str = "", metadata: Mapping[str, Any] | None = None) -> CallingAdvice:
    """Return the best way to ask a model for calls.

    ::

        advise_calling("qwen3:8b").way  # "native"
        advise_calling("SmolLM2-135M-Instruct").way  # "guided": it is too small to call by itself

    The metadata of its file, such as the chat template, override the facts about its family.

    Args:
        model: The name of the model, as its server or its makers write it.
        metadata: The metadata of its GGUF file, by keys such as ``general.name`` and ``tokenizer.chat_template``.
    """
    facts: Mapping[str, Any] = {} if metadata is None else metadata
    names = [model, *[str(facts[key]) for key in _NAMES_IN_FILE if key in facts]]
    family = next((found for found in map(find_family, names) if found is not None), None)
    parameters = _count_parameters(names, facts)
    advice = CallingAdvice(way="native", reason="nothing is known of it: ask for a probe", parameters=parameters)
    if family is not None:
        advice = replace(
            advice,
            way=family.calling,
            reason=f"the way of the family {family.name}",
            format=family.format,
            family=family,
            template_has_tools=family.template_has_tools,
        )
    if metadata is not None:
        advice = _read_template(advice, facts)
    if parameters is not None and parameters <= _SMALL:
        return replace(
            advice, way="guided", reason=f"with {_write_count(parameters)} parameters it rarely calls by itself"
        )
    return advice


def _read_template(advice: CallingAdvice, metadata: Mapping[str, Any]) -> CallingAdvice:
    """Return the advice, adjusted to a model's own template."""
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str) or not template:
        return replace(advice, way="guided", reason="it has no chat template", template_has_tools=False)
    if _TOOLS_IN_TEMPLATE.search(template) is None:
        way: CallingWay = "guided" if advice.family is None else "text"
        return replace(advice, way=way, reason="its chat template takes no tools", template_has_tools=False)
    format_ = next((name for mark, name in _MARKS if mark in template), advice.format)
    if advice.family is not None and advice.way == "text" and advice.family.template_has_tools is not False:
        reason = f"its chat template takes tools, and the family {advice.family.name} writes its calls as text"
        return replace(advice, reason=reason, format=format_, template_has_tools=True)
    reason = "its chat template takes tools"
    return replace(advice, way="native", reason=reason, format=format_, template_has_tools=True)


def _count_parameters(names: list[str], metadata: Mapping[str, Any]) -> int | None:
    """Return the number of parameters of a model, from its file or one of its names."""
    count = metadata.get("general.parameter_count")
    if isinstance(count, int) and count > 0:
        return count
    for text in (str(metadata.get("general.size_label", "")), *names):
        sizes = [_read_size(found) for found in _SIZE.finditer(text.casefold().replace("_", "-"))]
        if sizes:
            return max(sizes)
    return None


def _read_size(found: re.Match[str]) -> int:
    unit = 1_000_000_000 if found["unit"] == "b" else 1_000_000
    return int(float(found["number"]) * unit) * int(found["experts"] or 1)


def _write_count(parameters: int) -> str:
    if parameters >= 1_000_000_000:
        return f"{parameters / 1_000_000_000:g} billion"
    return f"{parameters / 1_000_000:.0f} million"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingProbe:
    """The outcome of each way of asking: None for success, else the problem.

    Args:
        native: With a tool in the request.
        text: With the tool described in the prompt, and the call written as text.
        guided: With the reply held to a schema.
    """

    native: str | None
    text: str | None
    guided: str | None

    @property
    def way(self) -> CallingWay | None:
        """The first successful way of native, text and guided, or None."""
        ways: tuple[tuple[CallingWay, str | None], ...] = (
            ("native", self.native),
            ("text", self.text),
            ("guided", self.guided),
        )
        return next((way for way, problem in ways if problem is None), None)


async def probe_calling(provider: Provider, *, format: TextFormat = "auto", model: str = "") -> CallingProbe:  # noqa: A002
    """Ask a model for the same call in three ways, by one request each, and return the outcomes.

    ::

        probe = await probe_calling(provider)
        if probe.way == "text":
            provider = TextToolProvider(provider)

    A single request is no measure of reliability: a small model may pass, and still fail in a task.

    Args:
        provider: Talks to the model.
        format: The format of calls in text.
        model: The name of the model, for ``auto``.
    """
    in_text = TextToolProvider(provider, format=format, model=model, max_parsing_attempts=1)
    return CallingProbe(
        native=await _try_call(provider), text=await _try_call(in_text), guided=await _try_schema(provider)
    )


async def _try_call(provider: Provider) -> str | None:
    response = await _ask_model(provider, _QUESTION, tools=(_TOOL,))
    if isinstance(response, str):
        return response
    if not response.tool_calls:
        return f"it answered in words: {_quote_reply(response.text)}"
    call = response.tool_calls[0]
    if call.name != _TOOL.name:
        return f"it called {_quote_reply(call.name)}"
    return None if _names_oslo(call.arguments) else f"it wrote the arguments {_quote_reply(call.arguments)}"


async def _try_schema(provider: Provider) -> str | None:
    question = f"{_QUESTION} Reply with JSON that names the city."
    response = await _ask_model(provider, question, response_format=ResponseFormat(_CITY, name="city"))
    if isinstance(response, str):
        return response
    return None if _names_oslo(response.text) else f"it replied {_quote_reply(response.text)}"


async def _ask_model(provider: Provider, question: str, **settings: Any) -> ChatResponse | str:
    """Return the answer, or the problem; a missing or refused key is raised, since no way would work."""
    request = ChatRequest(messages=[UserMessage(question)], temperature=0, max_tokens=_MOST_TOKENS, **settings)
    try:
        return await provider.generate(request)
    except ProviderError as error:
        if error.status in (401, 403):
            raise
        return f"its server refused: {_quote_reply(without_keys(str(error)))}"


def _names_oslo(text: str) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and list(found) == ["city"] and "oslo" in str(found["city"]).casefold()  # pyright: ignore[reportUnknownArgumentType]


def _quote_reply(text: str) -> str:
    return repr(shorten_to_line(text, 80))
