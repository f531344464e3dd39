"""A provider for models that have no tools of their own: they read of them in the prompt and write calls as text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from toolkit.chat import (
    ArgumentsDelta,
    ChatRequest,
    ChatResponse,
    Provider,
    ResponseDone,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolDefinition,
    Usage,
)
from toolkit.chat.provider import ProviderWrapper
from toolkit.chat.request import callable_tools
from toolkit.errors import BadResponseError
from toolkit.parsing.attempts import ParsingLimits
from toolkit.parsing.conversation import (
    add_complaint,
    answer,
    find_complaint,
    list_others_texts,
    write_part,
    write_without_tools,
)
from toolkit.parsing.formats import TextFormat
from toolkit.parsing.reply import ReplyReader
from toolkit.parsing.reply_parts import ReplyPart, UnreadCall
from toolkit.parsing.wording import Wording, wording_of

__all__ = ["TextToolProvider"]


class TextToolProvider(ProviderWrapper):
    """Gives any provider tools, by text alone.

    ::

        provider = TextToolProvider(OpenAIProvider("my-model", base_url="http://localhost:8080/v1"), format="hermes")
        result = await tool_loop(provider, registry, "What's the weather in Paris?")

    The model is told of the tools in the system prompt, in the words of `format`; its earlier calls and their results
    are put into those words, too. Its replies are read in that format alone, outside of quotations, code and reported
    speech (see `read_reply`), and what users and tools wrote is never a call, also where the model repeats it: in their
    texts the markers of the format and the tokens of chat templates are broken by a backslash. Where a call can't
    be read, stands there in another format, or the choice of tools was not obeyed, the model is told why and asked
    again, and nothing of that reply runs; the answer then is the last reply alone, with the usage of all. What can't be
    read even then is text, and ends a loop as `UnansweredItems`, not as an answer.

    A stream gives text as it comes and calls at its end. Where the model had to be asked again, the text of the earlier
    reply has been shown by then, without the call.

    Args:
        provider: Talks to the model; it is never told of tools.
        format: How the model writes its calls; ``auto`` is the format of its family, as far as `model` tells it, and
            ``hermes`` for all others.
        model: Its name, which decides on the defaults, too: 2 attempts and a reminder after 4 results for the largest
            ones of OpenAI, 3 and 3 for all others.
        max_parsing_attempts: How often the model is asked at most, for one reply.
        remember_format_after_usages: After how many results each the model is told again how to write calls.

    Raises:
        ConfigurationError: There is no such format, or a limit is less than 1.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        format: TextFormat = "auto",  # noqa: A002
        model: str = "",
        max_parsing_attempts: int | None = None,
        remember_format_after_usages: int | None = None,
    ) -> None:
        super().__init__(provider)
        self._wording = wording_of(format, model)
        self._limits = ParsingLimits.for_model(model, max_parsing_attempts, remember_format_after_usages)

    @property
    def max_parsing_attempts(self) -> int:
        """How often the model is asked at most, for one reply."""
        return self._limits.max_parsing_attempts

    @property
    def remember_format_after_usages(self) -> int:
        """After how many results each the model is told again how to write calls."""
        return self._limits.remember_format_after_usages

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer, with the calls that it wrote.

        Raises:
            ConfigurationError: `tool_choice` names a tool that is not there.
        """
        tools = callable_tools(request)
        asked = write_without_tools(request, tools, self._wording, self._limits)
        spent, attempts_left = Usage(), self.max_parsing_attempts
        while True:
            response = await self._provider.generate(asked)
            spent, attempts_left = spent + response.usage, attempts_left - 1
            if response.tool_calls or not tools:
                return replace(response, usage=spent)
            text = _join_text(response)
            reader = self._make_reader(request, tools)
            parts = reader.settle([*reader.feed(text), *reader.finish()])
            told = find_complaint(parts, request, tools, self._wording) if attempts_left else None
            if told is None:
                return replace(answer(response, parts, request, tools, self._wording), usage=spent)
            asked = add_complaint(asked, text, told)

    def _make_reader(self, request: ChatRequest, tools: Sequence[ToolDefinition]) -> ReplyReader:
        return ReplyReader(tools, format=self._wording.format, repeated=list_others_texts(request))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes, without what is a call or may become one; the calls come at its end.

        Raises:
            ConfigurationError: `tool_choice` names a tool that is not there.
            BadResponseError: The provider's stream ended without its `ResponseDone`.
        """
        tools = callable_tools(request)
        asked = write_without_tools(request, tools, self._wording, self._limits)
        if not tools:
            async with _close_events(self._provider.stream(asked)) as events:
                async for event in events:
                    yield event
            return
        spent, attempts_left = Usage(), self.max_parsing_attempts
        while True:
            attempts_left -= 1
            reply = _StreamedReply(self._make_reader(request, tools), self._wording)
            async with _close_events(self._provider.stream(asked)) as events:
                async for event in events:
                    for shown in reply.show(event, shows_unread=not attempts_left):
                        yield shown
            response = reply.response
            if response is None:
                raise BadResponseError("the provider", "its stream ended without the whole response")
            spent += response.usage
            if response.tool_calls:
                yield ResponseDone(replace(response, usage=spent))
                return
            told = find_complaint(reply.parts, request, tools, self._wording) if attempts_left else None
            if told is None:
                response = answer(response, reply.parts, request, tools, self._wording)
                for index, call in enumerate(response.tool_calls):
                    yield ArgumentsDelta(index, call.id, call.name, call.arguments)
                yield ResponseDone(replace(response, usage=spent))
                return
            asked = add_complaint(asked, reply.text, told)


class _StreamedReply:
    """A reply while it comes."""

    def __init__(self, reader: ReplyReader, wording: Wording) -> None:
        self.response: ChatResponse | None = None
        self._wording = wording
        self.parts: list[ReplyPart] = []
        self._reader = reader
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All of it, as it was written."""
        return "".join(self._texts)

    def show(self, event: StreamEvent, *, shows_unread: bool) -> list[StreamEvent]:
        """Take an event, and return what may be shown for it: text alone of what the model wrote."""
        if not isinstance(event, (TextDelta, ResponseDone)):
            return [event]
        return [
            TextDelta(write_part(part, self._wording))
            for part in self.take(event)
            if isinstance(part, str) or (shows_unread and isinstance(part, UnreadCall))
        ]

    def take(self, event: TextDelta | ResponseDone) -> list[ReplyPart]:
        """Return what is known now and was not before."""
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
            new = self._reader.feed(event.text)
        else:
            self.response = event.response
            new = [] if self._texts else self._reader.feed(_join_text(event.response))
            new += self._reader.finish()
        self.parts += new
        if self.response is not None:
            self.parts = self._reader.settle(self.parts)
        return new


def _join_text(response: ChatResponse) -> str:
    # Not `response.text`, which puts blocks on lines of their own: a stream can't tell where one ends.
    return "".join([block.text for block in response.message.content if isinstance(block, TextBlock)])


@asynccontextmanager
async def _close_events(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
    try:
        yield events
    finally:
        close: Any = getattr(events, "aclose", None)
        if close is not None:
            await close()
