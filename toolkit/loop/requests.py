"""Asks the model: offers tools, makes the requests of a loop, retries them, and has answers judged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic

import anyio
from anyio import to_thread

from toolkit.backoff import run_again
from toolkit.calls.output import READER, ResultStore
from toolkit.calls.prepare import LONG_TEXT, Scope, find_secrets
from toolkit.calls.registration import Ctx, Registration
from toolkit.calls.run import CallCut, CallReturned, CallSuspended
from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Provider,
    ResponseDone,
    StreamEvent,
    SystemMessage,
    TextDelta,
    ToolDefinition,
    Usage,
)
from toolkit.chat.provider import Delta, find_capabilities
from toolkit.chat.request import EarlierTools
from toolkit.dataclass import maker_of
from toolkit.errors import BadResponseError, ContextTooLongError, ProviderError, RunStoppedError
from toolkit.logs import get_logger
from toolkit.loop.events import IterationStart, ProviderRetried
from toolkit.loop.feeds import AnswerJudged, ReplyCutOff, RequestRefused, RunWoundUp, UsageSpent
from toolkit.loop.limits import describe_for_log
from toolkit.loop.listener import EventFeed, Listener
from toolkit.loop.middleware import DeltaTaker, MiddlewareChain, RequestInfo
from toolkit.loop.outcome import Complete
from toolkit.redaction import without_secrets
from toolkit.settings import check_setting
from toolkit.tool_names import is_legal_name
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolkit.loop.answers import ExpectedAnswer
    from toolkit.loop.run import Run
    from toolkit.loop.tool_search import DeferredTools


class Offer(Generic[Ctx]):
    """The tools that are offered: those of the registry or of the caller's request, narrowed by middleware.

    Args:
        run: The run; its registry has the tools.
        provider: Talks to the model.
        fixed_tools: The definitions of the caller's request; None offers those of the registry.
        answers: The tools with which the model gives its answer, by name; empty if it answers in words.

    Attributes:
        chosen_tools: The tools that middleware chose for the next request; None if it chooses none.
        shown_tools: The tools that the last request offered; None before the first.
        allowed_names: The tools that the reply may call, if the request as it was sent had fewer, or allowed fewer;
            None for all that were offered.
    """

    __slots__ = (
        "_answers",
        "_deferred",
        "_extended",
        "_is_native",
        "_memory",
        "_provider",
        "_reader",
        "_registry",
        "_run",
        "_scope",
        "_with_reader",
        "allowed_names",
        "chosen_tools",
        "fixed_tools",
        "shown_tools",
    )

    def __init__(
        self,
        run: Run[Ctx, Any],
        provider: Provider,
        fixed_tools: Sequence[ToolDefinition] | None,
        answers: Mapping[str, Registration[Ctx]],
    ) -> None:
        self._run = run
        self._registry: ToolRegistry[Ctx] = run.registry
        self._provider = provider
        self._is_native: bool | None = None
        self._deferred: DeferredTools | None = None
        self._extended: tuple[object, tuple[ToolDefinition, ...]] | None = None
        self._memory = memory = run.memory
        memory.find_reader = self._find_reader
        self._answers = answers
        self._reader: Registration[object] | None = None
        self._scope: tuple[object, Scope[Ctx]] | None = None
        self._with_reader: tuple[object, tuple[ToolDefinition, ...]] | None = None
        self.fixed_tools: Sequence[ToolDefinition] | None = fixed_tools
        self.chosen_tools: Sequence[ToolDefinition] | None = None
        self.shown_tools: Sequence[ToolDefinition] | None = None
        self.allowed_names: Collection[str] | None = None

    def known_tools(self) -> Sequence[ToolDefinition]:
        """Return all tools that may be offered."""
        return self._registry.definitions() if self.fixed_tools is None else self.fixed_tools

    def own_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools of the next request, without those that the loop adds."""
        tools = self.known_tools() if self.chosen_tools is None else self.chosen_tools
        is_searched = any(each.is_deferred for each in tools) and self._has_search()
        return self._find_deferred().list_shown(tools) if is_searched else tools

    def next_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools of the next request, except those of the answer; the same object until anything changes."""
        tools: Sequence[ToolDefinition]
        if self.chosen_tools is None and self.fixed_tools is None:
            tools, has_deferred = self._registry.definitions(), self._registry.has_deferred
        else:
            tools = self.known_tools() if self.chosen_tools is None else self.chosen_tools
            has_deferred = any(each.is_deferred for each in tools)
        if has_deferred and self._has_search():
            return self._with_found_tools()
        return self._with_reading_tool() if self._memory.names else tools

    def _has_search(self) -> bool:
        """Return whether the run has a search of its own: the vendor has none, or an embedding is given."""
        if self._is_native is None:
            has_own = self._run.config.tool_search.embed is not None  # which no vendor's search would use
            self._is_native = not has_own and find_capabilities(self._provider).deferred_tools == "native"
        return not self._is_native

    def _find_deferred(self) -> DeferredTools:
        if self._deferred is None:
            from toolkit.loop.tool_search import SEARCH_NAME, DeferredTools  # noqa: PLC0415 - few runs need it

            self._deferred = DeferredTools(
                self._registry, self._run.config.tool_search, self._find_free_name(SEARCH_NAME)
            )
        return self._deferred

    def _with_found_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools of a run in which some are deferred; tools that were found keep their places."""
        shown = self.own_tools()
        added = self._find_deferred().list_found(self._run.state.messages)
        if self._memory.names and shown:
            read = self._with_reading_tool()
            added += [] if read is shown else [read[-1]]
        known = self._extended
        before = known[1] if known is not None and known[0] is shown else tuple(shown)
        left = [each for each in before[len(shown) :] if any(each is other for other in added)]
        new = [each for each in added if not any(each is other for other in left)]
        if known is None or known[0] is not shown or new or len(left) < len(before) - len(shown):
            known = self._extended = (shown, (*shown, *left, *new))
        return known[1]

    def _with_reading_tool(self) -> Sequence[ToolDefinition]:
        """Return the tools of a run, last one that reads shortened results, unless the registry has such a tool."""
        from toolkit.tools.stored_results import read_result_tool  # noqa: PLC0415 - it loads what few runs need

        tools = self.own_tools()
        if not tools:
            return tools
        name = self._find_reader()
        if name in self._registry:
            return tools
        if self._with_reader is None or self._with_reader[0] is not tools:
            if self._reader is None or self._reader.name != name:
                reader = read_result_tool(ResultStore())
                self._reader = Registration(reader, replace(reader.definition, name=name))
                self._reader.is_offered_by_loop = True
            self._with_reader = (tools, (*tools, self._reader.definition))
        return self._with_reader[1]

    def _find_reader(self) -> str:
        """Return the name of the tool that reads shortened results: the registry's, else a free one."""
        from toolkit.tools.stored_results import is_reader  # noqa: PLC0415 - as in `_with_reading_tool`

        registry = self._registry
        for name, registration in registry.registrations.items():
            if is_reader(registration.options):
                return name
        return self._find_free_name(READER)

    def _find_free_name(self, wanted: str) -> str:
        """Return a name for a tool that the loop adds."""
        registry = self._registry
        for name in (f"{registry.prefix}{wanted}", wanted, f"{wanted}_of_run"):
            if name not in registry and name not in self._answers and is_legal_name(name):
                return name
        return wanted

    def note_sent(self, request: ChatRequest, usual: ChatRequest) -> None:
        """Note the tools that the reply to a request may call: fewer than usual, or all of them.

        A request with tools of other names is one whose calls middleware translates.
        """
        choice = request.tool_choice
        offered = {tool.name for tool in usual.tools or ()}
        sent = {tool.name for tool in request.tools or ()} if choice != "none" else set[str]()
        if choice in sent:
            sent = {choice}
        self.allowed_names = sent if sent < offered else None

    def find_scope(self) -> Scope[Ctx]:
        """Return the tools that the reply may call, and the names of the others."""
        if self.allowed_names is not None:
            return self._find_allowed(self.allowed_names)
        registry, shown, known = self._registry, self.shown_tools, self._scope
        current = registry.definitions() if self.fixed_tools is None else self.fixed_tools
        if known is not None and known[0] is current is shown and known[1].permissions is registry.permissions:
            return known[1]
        if self._memory.names and self._deferred is None:
            current = self._with_reading_tool()
        is_all = self.chosen_tools is None and self.fixed_tools is None and shown is current
        scope = self._make_scope(None if is_all else current if shown is None else shown)
        # It is reused while exactly the tools of the registry are offered.
        self._scope = (current, scope) if is_all and not self._memory.names else None
        return scope

    def _find_allowed(self, names: Collection[str]) -> Scope[Ctx]:
        self.allowed_names = None
        offered, self.allowed_names = self.find_scope(), names
        registrations = {name: each for name, each in offered.registrations.items() if name in names}
        hidden = {*offered.hidden_names, *offered.registrations} - registrations.keys()
        return Scope(registrations, permissions=offered.permissions, hidden_names=hidden)

    def _make_scope(self, offered: Sequence[ToolDefinition] | None) -> Scope[Ctx]:
        """Return the scope of the offered tools and the loop's own; None stands for all of the registry."""
        registry, shown = self._registry, self.shown_tools
        if offered is None and self._reader is None and not self._answers and self._deferred is None:
            return registry.scope
        registrations, hidden = registry.registrations, registry.hidden_names
        if offered is not None:
            names = {definition.name for definition in offered}
            hidden = frozenset({*hidden, *registrations} - names)
            registrations = {name: registrations[name] for name in registrations if name in names}
        if self._deferred is not None and shown is not None:
            registrations = {**registrations, self._deferred.registration.name: self._deferred.registration}
        if self._reader is not None and any(each is self._reader.definition for each in shown or ()):
            registrations = {**registrations, self._reader.name: self._reader}
        if self._answers:
            registrations = {**registrations, **self._answers}
        return Scope(registrations, permissions=registry.permissions, hidden_names=hidden)


_logger = get_logger("toolkit.loop")

_make_start = maker_of(IterationStart)
_CLOSE_TIMEOUT = 5.0
_MOST_TOOL_CHANGES = 16
_ALL_TOOLS = ("auto", "required")
"""The choices of a request that leave open which of its tools the reply calls."""
_MOST_CALLS = 2_000  # each is answered, whether it runs or not


class ModelRequests:
    """Makes the requests of one run.

    Args:
        run: The run.
        provider: Talks to the model.
        prompt: The start of the run; a `ChatRequest` has the settings of each request.

    Attributes:
        provider: As given.
        request: The settings of the next request.
    """

    __slots__ = ("_has_asked", "_partial", "_run", "_streams", "provider", "request")

    def __init__(self, run: Run[Any, Any], provider: Provider, prompt: object) -> None:
        messages, offer = run.state.messages, run.offer
        self._run = run
        self.provider: Provider = provider
        self._streams = run.config.stream
        self._has_asked = False
        self._partial: list[str] = []  # of the answer that is coming, where it is stored
        if isinstance(prompt, ChatRequest):
            self.request = replace(prompt, messages=messages)
        elif run.answer is not None:
            self.request = ChatRequest(messages=messages)
        else:
            offer.shown_tools = offer.next_tools()
            self.request = ChatRequest(messages=messages, tools=offer.shown_tools)

    def offer_again(self) -> None:
        """Restore the offer of the newest request of another process, whose reply may call only those tools."""
        offer = self._run.offer
        tools = offer.next_tools()
        if self._run.state.iterations and tools is not offer.shown_tools:
            self._show_tools(tools)

    async def ask(self, *, is_shortened: bool = False) -> ChatResponse | None:
        """Ask the model, once more if the transcript was too long; return None if a limit has ended the loop."""
        run = self._run
        listener, state = run.listener, run.state
        if listener is not None and IterationStart in listener.kinds and not is_shortened:
            left = listener.emit(_make_start(iteration=state.iterations, message_count=len(state.messages)))
            if left is not None:
                await left
        if run.middleware is not None and run.middleware.has_offer and not state.is_last:
            await self._choose_tools(run.middleware)
        if state.is_last:
            request = replace(self.request, tools=(), tool_choice="auto", earlier_tools=())
        else:
            tools = run.offer.next_tools()
            request = self.request if tools is run.offer.shown_tools else self._show_tools(tools)
            if state.hold:
                request = self._hold_reply(state.hold)
        if run.config.instructions:
            request = await self._add_instructions(request)
        response: ChatResponse | None = None
        failure: ProviderError | None = None
        too_long: ContextTooLongError | None = None
        self._has_asked = True
        try:
            try:
                response = await self._try_request(request, listener)
            except ProviderError as error:
                failure = error
            if failure is not None:
                try:
                    response = await self._try_again(request, listener, failure)
                except ContextTooLongError as error:
                    too_long = error
        finally:
            if self._partial:
                self._keep_partial()
        return response if too_long is None else await self._ask_shorter(too_long, is_shortened=is_shortened)

    async def _ask_shorter(self, refused: ContextTooLongError, *, is_shortened: bool) -> ChatResponse | None:
        """Ask once more with a shorter transcript, unless it can't be shortened or was already."""
        if is_shortened or not await self._run.shorten_refused(refused):
            raise refused
        return await self.ask(is_shortened=True)

    async def _try_request(
        self, request: ChatRequest, listener: Listener | None, attempt: int = 1
    ) -> ChatResponse | None:
        """Make a request once; return None if a limit forbids it, and has ended the loop."""
        budget = self._run.budget
        limit = None if budget is None else budget.reserve_request(request.max_tokens)
        if limit is not None:
            self._run.feed(RequestRefused(limit))
            return None
        spent: Usage | None = None
        try:
            response = await self._start_request(request, listener, attempt)
            spent = response.usage
            if len(response.message.content) > _MOST_CALLS:
                self._check_calls(response)
        except ProviderError as error:
            spent = error.usage
            await self._strike_secrets(error)
            raise
        except RunStoppedError as stop:
            spent = stop.usage
            if spent is not None:
                self._run.feed(UsageSpent(spent))
            self._run.feed(RequestRefused(stop.reason, is_made=spent is not None))
            return None
        finally:
            if budget is not None:
                budget.settle_request(request.max_tokens, spent)
        self._partial.clear()
        return response

    async def _strike_secrets(self, error: ProviderError) -> None:
        """Strike the secret arguments of calls out of a failure, since a provider may quote what it was sent."""
        replies = [message for message in self._run.state.messages if isinstance(message, AssistantMessage)]
        calls = [call for reply in replies for call in reply.tool_calls]
        registrations, shown = self._run.registry.registrations, str(error)

        def find() -> list[str]:
            lists = [find_secrets(registrations.get(call.name), call.arguments) for call in calls]
            return [secret for secrets in lists for secret in secrets if secret in shown]

        is_long = sum(len(call.arguments) for call in calls) > LONG_TEXT
        found = await to_thread.run_sync(find, abandon_on_cancel=True) if is_long else find()
        if found:
            error.struck_secrets = frozenset(found)
            error.message = without_secrets(error.message, found)
            error.args = (without_secrets(shown, found),)

    def _start_request(self, request: ChatRequest, listener: Listener | None, attempt: int) -> Awaitable[ChatResponse]:
        """Return a request to be awaited: whole or streamed, inside of the middleware, until its deltas are read."""
        streams, chain = self._streams, self._run.middleware
        if streams is None:
            streams = listener is not None and listener.takes_deltas
        self._run.offer.allowed_names = None
        if request.tools is not self.request.tools or request.tool_choice not in _ALL_TOOLS:
            self._run.offer.note_sent(request, self.request)
        if chain is not None and chain.has_around_request:
            asked = self._ask_around(chain, request, streams=streams, attempt=attempt)
        elif streams:
            asked = self._stream_answer(request)
        else:
            return self.provider.generate(request)
        feed = None if listener is None or not streams else listener.feed
        return asked if feed is None else self._until_read(asked, feed)

    def _check_calls(self, response: ChatResponse) -> None:
        """Refuse a reply of too many calls.

        Raises:
            BadResponseError: It has more than `_MOST_CALLS`, and than the configuration runs of one reply.
        """
        most = max(_MOST_CALLS, self._run.config.limits.calls_per_turn or 0)
        count = len(response.tool_calls)
        if count > most:
            name, text = (
                type(self.provider).__name__,
                f"the model made {count} calls in one reply; at most {most} are read",
            )
            error = BadResponseError(name, text)
            error.usage = response.usage
            raise error

    async def _try_again(
        self, request: ChatRequest, listener: Listener | None, failure: ProviderError
    ) -> ChatResponse | None:
        """Retry a request that has failed once; return None if a limit has ended the loop."""
        import random  # noqa: PLC0415 - with its hash functions it takes a thirtieth of the import

        retry = self._run.config.provider_retry

        def is_worth_it(error: BaseException) -> bool:
            return isinstance(error, ProviderError) and error.is_retryable and _asked_pause(error) <= retry.max_backoff

        async def tell_retry(attempt: int, error: BaseException, delay: float) -> None:
            assert isinstance(error, ProviderError)
            if error.usage is not None:
                self._run.feed(UsageSpent(error.usage))
            self._partial.clear()  # the next one says it again
            run_id, facts = self._run.frame.run_id, describe_for_log(self._run.frame)
            text = "request %d of run %s is made again in %.1f s: %s"
            _logger.warning(text, attempt, run_id, delay, error, extra=facts)
            if listener is not None:
                await listener.emit_all([ProviderRetried(attempt=attempt, delay=delay, error=error)])

        return await run_again(
            lambda attempt: self._try_request(request, listener, attempt),
            failure,
            retries=retry.max_retries,
            is_worth_it=is_worth_it,
            pause=lambda number, error: max(retry.pause(number, random.random()), _asked_pause(error)),  # noqa: S311
            before_pause=tell_retry,
        )

    async def _add_instructions(self, request: ChatRequest) -> ChatRequest:
        """Return a request with the instructions of this turn last, after the transcript."""
        texts: list[str] = []
        for function in self._run.config.instructions:
            given = function(self._run.ctx)
            text = await given if isawaitable(given) else given
            check_setting("what a function of instructions returns", text, str, None)
            texts += [text] if text else []
        if not texts:
            return request
        return replace(request, messages=(*request.messages, SystemMessage("\n\n".join(texts))))

    def _keep_partial(self) -> None:
        text = "".join(self._partial)
        self._partial.clear()
        if text and not self._run.state.is_finished:
            self._run.feed(ReplyCutOff(text))

    def _ask_around(
        self, chain: MiddlewareChain, request: ChatRequest, *, streams: bool, attempt: int
    ) -> Awaitable[ChatResponse]:
        """Make a request inside of the middleware."""
        info = RequestInfo(
            run=chain.run,
            # A middleware may store it, and it must not grow with the transcript.
            chat=replace(request, messages=tuple(request.messages)),
            iteration=self._run.state.iterations,
            attempt=attempt,
            is_streamed=streams,
        )
        return chain.ask_around(info, self._ask_streaming if streams else self._ask_whole, self._take_delta)

    async def _ask_whole(self, request: ChatRequest, take: DeltaTaker) -> ChatResponse:
        del take  # there are none
        self._run.offer.note_sent(request, self.request)
        return await self.provider.generate(request)

    async def _take_delta(self, delta: Delta) -> None:
        listener = self._run.listener
        if listener is not None:
            if isinstance(delta, TextDelta) and self._run.config.keep_partial:
                self._partial.append(delta.text)
            left = listener.emit_delta(delta)
            if left is not None:
                await left

    async def _until_read(self, answer: Awaitable[ChatResponse], feed: EventFeed) -> ChatResponse:
        """Return an answer, or raise its error, once the reader has read its last delta and asks for more.

        If cancelled before that, the answer ends with the last delta that was read.
        """
        try:
            try:
                response = await answer
            except Exception:
                await feed.wait_for_reader()
                raise
            await feed.wait_for_reader()
        except Exception:
            raise
        except BaseException:
            del self._partial[len(self._partial) - feed.take_back_deltas() :]
            raise
        return response

    async def _ask_streaming(self, request: ChatRequest, take: DeltaTaker) -> ChatResponse:
        self._run.offer.note_sent(request, self.request)
        feed = None if self._run.listener is None else self._run.listener.feed
        answer = self._stream_answer(request, take)
        return await (answer if feed is None else self._until_read(answer, feed))

    async def _stream_answer(self, request: ChatRequest, take: DeltaTaker | None = None) -> ChatResponse:
        events, listener = self.provider.stream(request), self._run.listener
        keeps_partial = self._run.config.keep_partial
        response: ChatResponse | None = None
        try:
            async for event in events:
                if isinstance(event, ResponseDone):
                    response = event.response
                elif take is not None:
                    await take(event)
                elif listener is not None:
                    if keeps_partial and isinstance(event, TextDelta):
                        self._partial.append(event.text)
                    left = listener.emit_delta(event)
                    if left is not None:
                        await left
        finally:
            if response is None:  # else it has come to its end, and to look again takes 8 us
                await _close_stream(events)
        if response is None:
            raise BadResponseError(
                type(self.provider).__name__, "the stream ended without its last event", is_retryable=True
            )
        return response

    async def _choose_tools(self, chain: MiddlewareChain) -> None:
        """Have middleware choose the offered tools; the same object as before if nothing changes."""
        offer = self._run.offer
        chosen = await chain.choose_tools(offer.known_tools(), tuple(self._run.state.messages))
        if offer.chosen_tools is None or list(chosen) != list(offer.chosen_tools):
            offer.chosen_tools = chosen

    def _show_tools(self, tools: Sequence[ToolDefinition]) -> ChatRequest:
        """Return the next request, which offers other tools than the one before."""
        self._run.offer.shown_tools = tools
        before = self.request
        self.request = replace(before, tools=tools)
        if self._run.answer is not None:
            self._ask_for_type(self._run.answer, tools)
        if self._has_asked and before.tools and len(before.earlier_tools) < _MOST_TOOL_CHANGES:
            earlier = EarlierTools(before.tools, len(self._run.state.messages))
            self.request = replace(self.request, earlier_tools=(*before.earlier_tools, earlier))
        else:
            self.forget_earlier_tools()
        return self.request

    def forget_earlier_tools(self) -> None:
        """Forget earlier offers, because the vendor's cache of the transcript is lost anyway."""
        if self.request.earlier_tools:
            self.request = replace(self.request, earlier_tools=())

    def _hold_reply(self, tool_name: str) -> ChatRequest:
        """Return the next request, whose reply must be a call of one tool, or of any if that is not offered."""
        request = self.request
        if not request.tools or request.tool_choice not in ("auto", "required"):
            return request
        named = [tool for tool in request.tools if tool.name == tool_name]
        # Not by the tool's name: servers that don't know this way ignore it, and all know this one.
        return replace(request, tools=tuple(named) or request.tools, tool_choice="required", earlier_tools=())

    def _ask_for_type(self, answer: ExpectedAnswer[Any], tools: Sequence[ToolDefinition]) -> None:
        config = self._run.config.answer
        assert config is not None
        if config.mode == "native":
            self.request = replace(self.request, response_format=answer.format)
        else:
            answer.check_tools(self._run.registry)
            own = self._run.offer.own_tools()
            added = tools[len(own) :]  # stays last, so that the tools before it are the same as in earlier requests
            answers = [each.definition for each in answer.registrations.values()]
            self.request = replace(self.request, tools=(*own, *answers, *added))
            if config.forces_calls and self.request.tool_choice == "auto":
                self.request = replace(self.request, tool_choice="required")

    async def judge_reply(self, response: ChatResponse, *, has_calls: bool) -> None:
        """Judge a reply as a typed answer, and continue with messages that were sent meanwhile."""
        run = self._run
        state, answer, steering = run.state, run.answer, run.config.steering
        names = run.config.answer_tools
        if answer is not None and names and has_calls and not state.is_finished:
            self._count_wrong_calls(answer, names)
        if steering is not None and isinstance(state.reason, Complete):
            run.steer(steering.take_steered() or steering.take_follow_up())
        if answer is not None and isinstance(state.reason, Complete):
            try:
                judged = await answer.judge(response.text, run)
            except BaseException:  # the loop was completed by a reply that nobody has judged
                run.feed(AnswerJudged(None))
                raise
            run.feed(judged)

    def _count_wrong_calls(self, answer: ExpectedAnswer[Any], names: Sequence[str]) -> None:
        """Count a reply with wrong calls of the answer's tools as a wrong answer."""
        run = self._run
        problem = run.approvals.refusal_of(names) or run.state.refusal_of(names)
        if problem is None or run.state.is_too_early(names[0]):
            return  # one that comes too early is counted as that
        end = answer.count_wrong(problem)
        if end is not None:
            run.feed(RunWoundUp(end))

    def report_call(self, report: CallReturned | CallCut | CallSuspended) -> None:
        """Feed a report on a call, and count a failed call of an answer's tool as a wrong answer."""
        run = self._run
        if run.answer is not None and isinstance(report, CallReturned) and not run.state.is_finished:
            result = report.result
            if result.is_error and result.tool_name in run.config.answer_tools:
                end = run.answer.count_wrong(result.text)
                if end is not None:
                    run.feed(RunWoundUp(end))
        run.feed(report)


def _asked_pause(error: BaseException) -> float:
    """Return the pause that a server asked for, in seconds."""
    return (error.retry_after or 0.0) if isinstance(error, ProviderError) else 0.0


async def _close_stream(events: AsyncIterator[StreamEvent]) -> None:
    """Close a provider's stream, shielded from cancellation, within a time limit."""
    close = getattr(events, "aclose", None)
    if close is not None:
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await close()
