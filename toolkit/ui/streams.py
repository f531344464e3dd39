"""Conversations for web interfaces: AG-UI and Vercel's UI messages, as server-sent events over `Conversations`.

A turn runs beside the request that began it. Its chunks wait in a bounded buffer, from which any number of readers
take them: a client that comes back goes on behind the last one that it has. What the buffer has not any more is read
from the stored conversation, once the turn is over.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files
from inspect import isawaitable
from typing import Any, Generic, Literal, TypeAlias

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolkit.calls.approval import Approval, Approve, Defer, put_off_asked
from toolkit.calls.events import ToolExecutionEnd
from toolkit.calls.registration import BROWSER, Ctx
from toolkit.chat import Message, Provider, ToolResult, UserMessage
from toolkit.chat.output import ToolOutput
from toolkit.conversation_stores import check_conversation_id
from toolkit.conversations import Conversations, ConversationTurn
from toolkit.errors import (
    ConfigurationError,
    ConversationError,
    ConversationStoreError,
    ToolkitError,
)
from toolkit.events import show_messages
from toolkit.logs import get_logger
from toolkit.loop.answers import PartialAnswers, read_partials
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.config import DEFAULT_CONFIG, ToolLoopConfig
from toolkit.loop.middleware import CallInfo, CallProceed, Middleware
from toolkit.plain_values import read_plain
from toolkit.runtime.backend import start_carried
from toolkit.settings import check_setting
from toolkit.tools.decorators import tool_from_schema
from toolkit.tools.registry import ToolRegistry
from toolkit.ui.dialects import (
    MOST_TOOLS,
    AgUiTranslator,
    Chunk,
    Posted,
    Stored,
    Translator,
    UiMessageTranslator,
    read_ag_ui_request,
    read_ui_request,
)
from toolkit.ui.viewer import Pages, gate_app, read_number, serve_pages

__all__ = ["AgUiTranslator", "Dialect", "InterfaceStreams", "Posted", "UiMessageTranslator", "serve_chat"]

_logger = get_logger("toolkit.ui")
_KEEP_ALIVE_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_LONG_BODY = 20_000
_UNANSWERED = "The last question has no answer: send it again."

Dialect: TypeAlias = Literal["ag-ui", "ui-messages"]
"""A dialect of interfaces: that of AG-UI, or that of Vercel's ``useChat``."""


_Key: TypeAlias = tuple[Dialect, str]
_TRANSLATORS: Mapping[Dialect, type[Translator]] = {"ag-ui": AgUiTranslator, "ui-messages": UiMessageTranslator}


class InterfaceStreams(Generic[Ctx]):
    """Serves conversations to web interfaces.

    ::

        streams = InterfaceStreams(conversations, provider, registry, conversation_for=find_conversation)
        app = Starlette(routes=[*streams.routes("/api/chat", "ui-messages"), *streams.routes("/agent", "ag-ui")])

    Each dialect has three requests: ``POST path`` asks a question or answers; ``GET path/THREAD/stream`` goes on with
    the answer that is under way, behind ``Last-Event-ID`` where that is sent, or shows the stored one; and ``DELETE
    path/THREAD/stream`` cancels it. The stored conversation counts: the history that an interface sends is ignored,
    and so is everything in it but the question, decisions that are awaited, and results that are.

    A tool with the tag ``browser`` runs in the interface: its call waits there for a result, and the function behind
    it is never called. An interface of AG-UI may bring more such tools along.

    Args:
        conversations: The conversations.
        provider: Talks to the model.
        registry: The tools.
        conversation_for: Returns the id in the store of a conversation that a request names; may be async, and raises
            Starlette's `HTTPException` for what the user may not see. Interfaces choose the names: put the user of the
            request in front.
        context_for: Returns the context of the tools for a request; may be async.
        state_of: Returns the state that interfaces show, as any value of JSON, given the context; it is sent at the
            begin, and after each call that changed it.
        config: The settings. Without an approver, calls that need approval wait for the interface's answer.
        system_prompt: Stands first.
        error_text: Returns the words of the interface for what made a run fail; by default, the same for all.
        linger: Seconds that a run goes on after its last reader has left; 0 ends it with the connection.
        largest_body: The bytes of a request at most; files come in it, as Base64.
        buffer_size: The characters of a run's stream that wait for readers who come back.
    """

    def __init__(
        self,
        conversations: Conversations,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        *,
        conversation_for: Callable[[Request, str], str | Awaitable[str]],
        context_for: Callable[[Request, Posted], Ctx | Awaitable[Ctx]] | None = None,
        state_of: Callable[[Ctx], Any] | None = None,
        config: ToolLoopConfig[Any] | None = None,
        system_prompt: str = "",
        error_text: Callable[[Exception], str] = lambda _: "The answer failed.",
        linger: float = 30.0,
        largest_body: int = 16 * 2**20,
        buffer_size: int = 2**20,
    ) -> None:
        check_setting("linger", linger, float, least=0)
        check_setting("largest_body", largest_body, int, least=1)
        check_setting("buffer_size", buffer_size, int, least=0)
        self.conversations, self.provider, self.registry = conversations, provider, registry
        self.conversation_for, self.context_for, self.state_of = conversation_for, context_for, state_of
        config = config or DEFAULT_CONFIG
        self.config = replace(config, on_tool_call=config.on_tool_call or put_off_asked)
        self.system_prompt, self.error_text = system_prompt, error_text
        self._linger, self._largest_body, self._buffer_size = linger, largest_body, buffer_size
        self._live: dict[_Key, _LiveTurn] = {}

    def routes(self, path: str, dialect: Dialect) -> list[Route]:
        """Return the routes of a dialect, for Starlette or FastAPI."""
        check_setting("dialect", dialect, "ag-ui", "ui-messages")
        follow = f"{path.rstrip('/')}/{{thread:path}}/stream"
        return [
            Route(path, partial(self._take_post, dialect), methods=["POST"]),
            Route(follow, partial(self._follow_turn, dialect), methods=["GET"]),
            Route(follow, partial(self._cancel_turn, dialect), methods=["DELETE"]),
        ]

    def cancel_turns(self) -> None:
        """Cancel all turns under way in this process."""
        for each in self._live.values():
            each.cancel()

    def runs_in_browser(self, call: PendingApproval) -> bool:
        """Return whether a call runs in the interface: its tool has the tag, or the interface brought it along."""
        found = self.registry.registrations.get(call.tool_name)
        return not call.agent and (found is None or BROWSER in found.options.tags)

    def store(self, messages: Sequence[Message], pending: Sequence[PendingApproval]) -> Stored:
        """Return a conversation as translators take it."""
        return Stored(messages=show_messages(messages), pending=pending, in_browser=self.runs_in_browser)

    async def _take_post(self, dialect: Dialect, request: Request) -> Response:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return _make_refusal(415, "a request is JSON")  # which no page of another site may send unasked
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self._largest_body:
                return _make_refusal(413, f"a request has {self._largest_body:,} bytes at most")
        try:
            read = partial(read_ag_ui_request if dialect == "ag-ui" else read_ui_request, bytes(body))
            posted = await to_thread.run_sync(read) if len(body) > _LONG_BODY else read()
            registry = _add_tools(self.registry, posted)
        except (ValueError, ToolkitError) as error:
            return _make_refusal(400, str(error))
        conversation_id = await self._find_conversation(request, posted.thread_id)
        ctx = None if self.context_for is None else await _await_value(self.context_for(request, posted))
        live = _LiveTurn(self, dialect, posted, registry, self._buffer_size)
        key: _Key = (dialect, conversation_id)

        def end(raised: BaseException | None) -> None:
            live.end(raised)
            if self._live.get(key) is live:
                del self._live[key]

        start_carried(partial(live.run, conversation_id, ctx, partial(self._live.__setitem__, key, live)), end)
        await live.begun.wait()
        if live.refusal is not None:
            return live.refusal
        return _EventResponse(dialect, self._read_turn(live, key, 0), live, self._linger)

    async def _find_conversation(self, request: Request, thread: str) -> str:
        """Return the id of the conversation of a thread.

        Raises:
            HTTPException: No conversation can have it.
        """
        found = await _await_value(self.conversation_for(request, thread))
        try:
            check_conversation_id(found)
        except ConfigurationError as error:
            raise HTTPException(400, "no conversation can have this name") from error
        return str(found)

    async def _follow_turn(self, dialect: Dialect, request: Request) -> Response:
        thread = request.path_params["thread"]
        key: _Key = (dialect, await self._find_conversation(request, thread))
        live = self._live.get(key)
        if live is not None:
            mark, _, number = request.headers.get("last-event-id", "").rpartition("-")
            last = read_number(number) if mark == live.mark else -1
            events = self._read_turn(live, key, last + 1 if last >= 0 else -1)
            return _EventResponse(dialect, events, live, self._linger)
        found = await self.conversations.get(key[1])
        if not found.messages:
            return Response(status_code=204)
        return _EventResponse(dialect, self._read_stored(key, thread))

    async def _cancel_turn(self, dialect: Dialect, request: Request) -> Response:
        key: _Key = (dialect, await self._find_conversation(request, request.path_params["thread"]))
        live = self._live.get(key)
        if live is None:
            return _make_refusal(404, "no answer is under way here")
        live.cancel()
        return Response(status_code=204)

    async def _read_turn(self, live: _LiveTurn, key: _Key, position: int) -> AsyncIterator[str]:
        """Yield the events of a turn from a position on; -1 begins with what was stored before it."""
        if live.first > max(position, 0):
            async for text in self._read_stored(key, live.posted.thread_id):
                yield text
            return
        if position < 0:
            yield live.frame(0)
            for text in live.write_past():
                yield f"data: {text}\n\n"
            position = 1
        while True:
            while live.first <= position < live.first + len(live.events):
                yield live.frame(position)
                position += 1
            if position < live.first:
                yield live.write_loss()
                return
            if live.is_ended:
                yield live.translator.closing
                return
            if not await live.wait(_KEEP_ALIVE_SECONDS):
                yield ": nothing new\n\n"

    async def _read_stored(self, key: _Key, thread: str) -> AsyncIterator[str]:
        """Yield the stored conversation, or the last answer in it, once no turn of it is under way."""
        while (found := await self.conversations.get(key[1])).is_busy:
            yield ": the answer is under way\n\n"
            await anyio.sleep(_LOOK_SECONDS)
        stored = self.store(found.messages, found.pending)
        translator = _open_translator(key[0], thread, stored)
        chunks = [*translator.begin(), *translator.replay(stored)]
        if found.is_interrupted or stored.messages[-1].role == "user":  # its process was killed, or its run failed
            chunks += translator.fail(_UNANSWERED, "unanswered")
        else:
            chunks += translator.end(stored)
        for chunk in chunks:
            yield f"data: {translator.write(chunk)}\n\n"
        yield translator.closing


async def serve_chat(streams: InterfaceStreams[Any], port: int = 0, *, on_ready: Callable[[str], None]) -> None:
    """Serve a small page with one conversation on this machine until cancelled; it runs on asyncio.

    Args:
        streams: The conversation: the one that it finds for the thread ``chat``.
        port: The port to listen on at 127.0.0.1; 0 takes a free one.
        on_ready: Called with the link when it can be opened, and with a new one when that was opened.

    Raises:
        ConfigurationError: The port is in use or can't be had.
    """
    page = (files("toolkit.ui") / "static" / "chat.html").read_text("utf-8")

    def open_app(pages: Pages) -> tuple[Starlette, Callable[[], None]]:
        return gate_app(pages, lambda: page, *streams.routes("/chat", "ag-ui")), streams.cancel_turns

    await serve_pages(open_app, port, on_ready=on_ready)


class _RefusedError(Exception):
    """A request asks for something that the conversation does not await."""


class _LiveTurn:
    """A turn under way, and what it has emitted for its readers.

    Attributes:
        mark: Begins the ids of its events.
        events: The last of them, without those that the buffer has not any more.
        first: The number of the first of them.
        begun: Set once it has the conversation, or `refusal` says why not.
        readers: How many read it.
    """

    def __init__(
        self, streams: InterfaceStreams[Any], dialect: Dialect, posted: Posted, registry: ToolRegistry[Any], size: int
    ) -> None:
        self._streams, self.posted, self._registry = streams, posted, registry
        self._dialect: Dialect = dialect
        self._room = size
        self.mark = secrets.token_hex(6)
        self.events: deque[str] = deque()
        self.first = self.readers = 0
        self.is_ended = False
        self.begun = anyio.Event()
        self.refusal: Response | None = None
        self._past = streams.store((), ())
        self.translator = _open_translator(dialect, posted.thread_id, self._past)
        self._changed, self._scope = anyio.Event(), anyio.CancelScope()
        self._state: Any = None

    # readers

    def frame(self, number: int) -> str:
        """Return an event as it is sent."""
        return f"id: {self.mark}-{number}\ndata: {self.events[number - self.first]}\n\n"

    def write_loss(self) -> str:
        """Return the end of the stream of a reader that was too slow for the buffer."""
        fresh = _open_translator(self._dialect, self.posted.thread_id, self._past)
        [lost] = fresh.fail("This page fell behind: read the stream again.", "behind")
        return f"data: {fresh.write(lost)}\n\n"

    def write_past(self) -> list[str]:
        """Return the data of what was stored before this turn answered."""
        return [self.translator.write(chunk) for chunk in self.translator.replay(self._past)]

    async def wait(self, seconds: float) -> bool:
        """Wait until there is more; return False where there is nothing within some seconds."""
        with anyio.move_on_after(seconds):
            await self._changed.wait()
            return True
        return False

    async def wait_for_reader(self, seconds: float) -> None:
        """Cancel the turn unless somebody reads it again within some seconds."""
        with anyio.move_on_after(seconds):
            while not self.readers and not self.is_ended:
                await self._changed.wait()
        if not (self.readers or self.is_ended):
            self.cancel()

    def cancel(self) -> None:
        """Cancel the turn; its transcript is stored, and its stream ends."""
        self._scope.cancel()

    def end(self, raised: BaseException | None) -> None:
        """Take the end of the work."""
        if raised is not None:
            _logger.error("a turn of an interface ended without its end", exc_info=raised)
        self.is_ended = True
        self.begun.set()
        self._note_change()

    def _note_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _add_chunks(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            text = self.translator.write(chunk)
            self.events.append(text)
            self._room -= len(text)
        while self._room < 0 and len(self.events) > 1:
            self._room += len(self.events.popleft())
            self.first += 1
        self._note_change()

    # the turn

    async def run(self, conversation_id: str, ctx: Any, on_begin: Callable[[], object]) -> None:
        """Run the turn to its end, however it ends."""
        turn: ConversationTurn[Any] = self._streams.conversations.turn(conversation_id, ctx=ctx, when_busy="refuse")
        result = None
        try:
            async with turn:
                question, decisions = await self._plan_turn(turn)
                self._open_stream(turn, question, decisions)
                on_begin()
                self.begun.set()
                result = await self._answer_post(turn, question, decisions, ctx)
            self._add_chunks(self.translator.end(self._streams.store(turn.messages, turn.pending), result))
        except Exception as error:
            if self.begun.is_set():
                _logger.exception("a turn of conversation %r failed", conversation_id)
                self._add_chunks(self.translator.fail(self._streams.error_text(error), type(error).__name__))
            elif isinstance(error, (ConversationError, _RefusedError)):
                self.refusal = _make_refusal(503 if isinstance(error, ConversationStoreError) else 409, str(error))
            else:
                self.refusal = _make_refusal(500, self._streams.error_text(error))
                raise

    async def _plan_turn(self, turn: ConversationTurn[Any]) -> tuple[UserMessage | None, dict[str, Approval | bool]]:
        """Return the question and the decisions of a request, for a conversation as it is stored.

        Raises:
            _RefusedError: The conversation does not await them.
        """
        posted, messages = self.posted, turn.messages
        decisions = self._read_decisions(turn)
        last = max(self._streams.store(messages, ()).questions, default=-1)
        question = posted.question
        if posted.is_again:
            if last < 0 or messages[last] != question:
                raise _RefusedError("only the last answer can be made again")
            await turn.save(messages[: last + 1])
            question = None
        if question is None and not decisions and (not turn.messages or turn.messages[-1].role == "assistant"):
            raise _RefusedError("nothing is asked, and nothing is unanswered")
        return question, decisions

    def _read_decisions(self, turn: ConversationTurn[Any]) -> dict[str, Approval | bool]:
        posted = self.posted
        asked, calls = {each.binding: each for each in turn.pending}, {each.call_id: each for each in turn.pending}
        decisions: dict[str, Approval | bool] = {}
        for binding, answer in posted.decisions.items():
            call = asked.get(binding)
            if call is None or self._streams.runs_in_browser(call):
                raise _RefusedError("no such decision is awaited: it was made, or is of another conversation")
            decisions[call.call_id] = answer
        answered = {each.call_id for each in turn.messages if isinstance(each, ToolResult)} - calls.keys()
        for call_id in posted.results.keys() - answered:
            if call_id not in calls or not self._streams.runs_in_browser(calls[call_id]):
                raise _RefusedError(f"no result of call {call_id!r} is awaited from an interface")
            decisions[call_id] = Approve()
        return decisions

    def _open_stream(
        self, turn: ConversationTurn[Any], question: UserMessage | None, decisions: Mapping[str, Approval | bool]
    ) -> None:
        posted, messages = self.posted, [*turn.messages, *([question] if question else ())]
        self._past = self._streams.store(messages, turn.pending)
        if self._dialect == "ag-ui":
            self.translator = AgUiTranslator(posted.thread_id, posted.run_id, self.mark, answered=posted.results.keys())
        else:
            self.translator = UiMessageTranslator(
                posted.message_id or name_reply(self._past),
                asked=turn.pending,
                denied={
                    call_id for call_id, each in decisions.items() if each is not True and not isinstance(each, Approve)
                },
            )
        self._add_chunks(self.translator.begin())

    async def _answer_post(
        self,
        turn: ConversationTurn[Any],
        question: UserMessage | None,
        decisions: Mapping[str, Approval | bool],
        ctx: Any,
    ) -> Any:
        streams = self._streams
        config = replace(streams.config, middleware=(_BrowserCalls(self.posted.results), *streams.config.middleware))
        partials: PartialAnswers | None = None
        with suppress(ConfigurationError):  # no answer of a type, or one that comes whole
            partials = read_partials(config)
        events = turn.stream(
            streams.provider,
            self._registry,
            question,
            question_id=(self.posted.question_id or None) if question else None,
            decisions=decisions or None,
            config=config,
            system_prompt=streams.system_prompt,
        )
        self._show_state(ctx)
        async with events:
            with self._scope:
                async for event in events:
                    self._add_chunks(self.translator.take(event))
                    if isinstance(event, ToolExecutionEnd):
                        self._show_state(ctx)
                    for value in partials.take(event) if partials is not None else ():
                        self._add_chunks(self.translator.show("answer", read_plain(value).value))
        result = events.result
        if result.output is not None:
            self._add_chunks(self.translator.show("answer", read_plain(result.output).value))
        return result

    def _show_state(self, ctx: Any) -> None:
        if self._streams.state_of is not None:
            state = read_plain(self._streams.state_of(ctx)).value
            if state != self._state:
                self._state = state
                self._add_chunks(self.translator.show("state", state))


class _EventResponse(StreamingResponse):
    """Sends events; the turn that they are of has a reader until it was sent, or its client has left."""

    def __init__(
        self, dialect: Dialect, events: AsyncIterator[str], live: _LiveTurn | None = None, linger: float = 0
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **_TRANSLATORS[dialect].headers}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._live, self._linger = live, linger
        if live is not None:
            live.readers += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            live = self._live
            if live is not None:
                live.readers -= 1
                if not (live.readers or live.is_ended):
                    start_carried(partial(live.wait_for_reader, self._linger), _ignore_end)


class _BrowserCalls(Middleware[Any]):
    """Has the calls of tools of the browser wait for their results, and returns those that have come."""

    def __init__(self, results: Mapping[str, ToolOutput]) -> None:
        self._results = results

    async def guard_call(self, call: CallInfo[Any]) -> Approval | None:
        """Put a call off that only the browser can run."""
        return Defer() if BROWSER in call.tags else None

    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        """Return the result that the browser sent."""
        return self._results[call.call_id] if BROWSER in call.tags else await proceed()


def name_reply(stored: Stored) -> str:
    """Return the id of the message that answers the last question, the same in each process."""
    return f"reply-{len(stored.questions)}"


def _open_translator(dialect: Dialect, thread: str, stored: Stored) -> Translator:
    """Return a translator that shows a conversation as it is stored."""
    if dialect == "ag-ui":
        return AgUiTranslator(thread, "stored", "stored")
    return UiMessageTranslator(name_reply(stored), asked=stored.pending)


def _add_tools(registry: ToolRegistry[Any], posted: Posted) -> ToolRegistry[Any]:
    """Return the registry with the tools that an interface brings along.

    Raises:
        ToolkitError: A tool of the name is there, or its schema can't be used.
    """
    if not posted.tools:
        return registry
    if len(posted.tools) > MOST_TOOLS:
        raise ConfigurationError(f"an interface may bring {MOST_TOOLS} tools along")
    made = [
        tool_from_schema(each.name, each.description, each.parameters, lambda _: "", tags={BROWSER})
        for each in posted.tools
    ]
    return registry | ToolRegistry(made)


async def _await_value(value: Any) -> Any:
    return await value if isawaitable(value) else value


def _make_refusal(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


def _ignore_end(error: BaseException | None) -> None:
    if error is not None:
        _logger.error("a turn of an interface can't be cancelled", exc_info=error)
