"""The middleware of one run, put together: each method around the next one, the outermost first."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from toolkit.calls.approval import Approval
from toolkit.calls.events import ToolExecutionUpdate, ToolProgress
from toolkit.calls.policy import CallGuard
from toolkit.calls.prepare import Ready
from toolkit.chat import ChatRequest, ChatResponse, Message, ResponseDone, ToolDefinition
from toolkit.chat.output import ToolOutput
from toolkit.chat.provider import events_of
from toolkit.errors import ConfigurationError, LoopUsageError, UnknownToolNameError
from toolkit.loop.events import LoopEvent, SubAgentEvent
from toolkit.loop.middleware import CallInfo, Delta, DeltaHook, Middleware, RequestInfo, RunInfo
from toolkit.loop.outcome import ToolLoopResult
from toolkit.runtime.backend import cancellation_mark, is_being_cancelled
from toolkit.settings import check_setting, describe_value

__all__ = ["DeltaTaker", "MiddlewareChain", "RequestSender", "check_states", "has_method", "join_middleware"]

T = TypeVar("T")

DeltaTaker = Callable[[Delta], Awaitable[None]]
"""Takes a delta that passed all middleware."""

RequestSender = Callable[[ChatRequest, DeltaTaker], Awaitable[ChatResponse]]
"""Asks the provider, and gives deltas to who takes them."""


def has_method(middleware: Middleware[Any], name: str) -> bool:
    """Return whether a middleware has a method of its own."""
    return getattr(type(middleware), name) is not getattr(Middleware, name)


def join_middleware(
    inherited: Sequence[Middleware[Any]], own: Sequence[Middleware[Any]]
) -> tuple[Middleware[Any], ...]:
    """Return all that serves a loop, outermost first; what is inherited and its own, too, stands there once."""
    return (*inherited, *[each for each in own if not any(each is outer for outer in inherited)])


def check_states(states: Mapping[str, Any], members: Sequence[Middleware[Any]]) -> None:
    """Refuse to restore a run without a middleware that kept something of it: a guard may have known what to refuse.

    Raises:
        LoopUsageError: The state of one is in the snapshot that is not among the members.
    """
    missing = states.keys() - {each.name for each in members}
    if missing:
        raise LoopUsageError(
            f"the snapshot has the state of middleware named {', '.join(sorted(missing))}, which the configuration "
            "doesn't have: add it to ToolLoopConfig(middleware=...)"
        )


class MiddlewareChain:
    """Serves one run.

    Args:
        run: The run.
        members: The middleware, outermost first.
        states: The state that each named middleware had saved, by name.

    Attributes:
        has_offer: True where something chooses the tools of a request.
        has_around_run: True where something stands around the run.
        has_around_request: True where something stands around requests.
        has_around_call: True where something stands around calls.
        event_hooks: The takers of events.
        update_guards: Asked whether an update is shown.
        guards: Asked whether a call may go on.
    """

    __slots__ = (
        "_around_call",
        "_around_request",
        "_around_run",
        "_offers",
        "_savers",
        "event_hooks",
        "guards",
        "has_around_call",
        "has_around_request",
        "has_around_run",
        "has_offer",
        "run",
        "update_guards",
    )

    def __init__(
        self, run: RunInfo[Any], members: Sequence[Middleware[Any]], states: Mapping[str, Any] | None = None
    ) -> None:
        self.run = run
        serving = [(_find_serving(each, run), each.is_inherited) for each in members]
        self._around_run = [each for each, _ in serving if has_method(each, "around_run")]
        self._around_request = [each for each, _ in serving if has_method(each, "around_request")]
        self._around_call = [each for each, _ in serving if has_method(each, "around_call")]
        self._offers = [each for each, _ in serving if has_method(each, "offer")]
        self._savers: dict[str, Middleware[Any]] = {}
        for owner, (each, _) in zip(members, serving, strict=True):
            self._take_up_state(owner, each, states or {})
        self.has_offer = bool(self._offers)
        self.has_around_run = bool(self._around_run)
        self.has_around_request = bool(self._around_request)
        self.has_around_call = bool(self._around_call)
        self.event_hooks: list[Callable[[LoopEvent], Awaitable[None] | None]] = [
            _leave_out_relayed(each.on_event) if is_inherited else each.on_event
            for each, is_inherited in serving
            if has_method(each, "on_event")
        ]
        self.update_guards = [each.allow_update for each, _ in serving if has_method(each, "allow_update")]
        self.guards = [
            CallGuard(owner, partial(self._guard_call, each))
            for owner, (each, _) in zip(members, serving, strict=True)
            if has_method(each, "guard_call")
        ]

    def _take_up_state(self, owner: Middleware[Any], serving: Middleware[Any], states: Mapping[str, Any]) -> None:
        """Note that a middleware keeps a state, where it does, and give it the one that it had saved."""
        if has_method(serving, "save"):
            _require_name(owner)
            self._savers[owner.name] = serving
        if owner.name and owner.name in states:
            serving.load(states[owner.name])

    def save_states(self) -> dict[str, Any]:
        """Return the state of each middleware that keeps one, by its name."""
        return {name: each.save() for name, each in self._savers.items()}

    def load_states(self, states: Mapping[str, Any]) -> None:
        """Give each middleware that keeps a state the one that it has saved, by its name."""
        for name, each in self._savers.items():
            if name in states:
                each.load(states[name])

    async def choose_tools(
        self, tools: Sequence[ToolDefinition], messages: Sequence[Message]
    ) -> Sequence[ToolDefinition]:
        """Return the tools that a request offers.

        Raises:
            ConfigurationError: A middleware named one that was not there, or one twice.
        """
        for middleware in self._offers:
            known = {tool.name: tool for tool in tools}
            names = await middleware.offer(tools, messages)
            check_setting(f"the names that offer of {describe_value(middleware)} returns", names, Sequence)
            for name in names:
                if name not in known:
                    raise UnknownToolNameError(name, known)
            if len(set(names)) < len(names):
                raise ConfigurationError(f"offer of {describe_value(middleware)} returned a name twice")
            if list(known) != list(names):  # else the same object, so that nothing looks changed
                tools = tuple([known[name] for name in names])
        return tools

    def _guard_call(self, middleware: Middleware[Any], ready: Ready[Any]) -> Awaitable[Approval | None]:
        return middleware.guard_call(CallInfo(self.run, ready))

    async def run_around(self, proceed: Callable[[], Awaitable[ToolLoopResult[Any] | None]]) -> None:
        """Run a stretch of the loop inside of each `around_run`."""
        await self._run_from(0, proceed)

    async def _run_from(
        self, position: int, run_loop: Callable[[], Awaitable[ToolLoopResult[Any] | None]]
    ) -> ToolLoopResult[Any] | None:
        if position == len(self._around_run):
            return await run_loop()
        result: ToolLoopResult[Any] | None = None

        async def go_on() -> ToolLoopResult[Any] | None:
            nonlocal result
            result = await self._run_from(position + 1, run_loop)
            return result

        middleware = self._around_run[position]
        proceed = _Proceed(go_on, middleware, "around_run")
        await _pass_through(middleware.around_run(self.run, proceed), proceed)
        if not proceed.is_used:
            raise LoopUsageError(f"around_run of {describe_value(middleware)} returned without 'await proceed()'")
        return result

    async def ask_around(self, info: RequestInfo[Any], send: RequestSender, take: DeltaTaker) -> ChatResponse:
        """Make a request inside of each `around_request`."""
        return await self._ask_from(0, info, send, take)

    async def _ask_from(
        self, position: int, info: RequestInfo[Any], send: RequestSender, take: DeltaTaker
    ) -> ChatResponse:
        if position == len(self._around_request):
            return await send(info.chat, take)
        has_answer = False

        async def go_on(chat: ChatRequest | None = None, /, *, on_delta: DeltaHook | None = None) -> ChatResponse:
            nonlocal has_answer
            changed = info if chat is None else replace(info, chat=chat)
            taker = take if on_delta is None else _hook_deltas(on_delta, take)
            answer = await self._ask_from(position + 1, changed, send, taker)
            has_answer = True
            return answer

        middleware = self._around_request[position]
        proceed = _Proceed(go_on, middleware, "around_request")
        response = await _pass_through(middleware.around_request(info, proceed), proceed)
        _check_given(response, ChatResponse, middleware, "around_request")
        if info.is_streamed and not has_answer:
            for event in events_of(response):
                if not isinstance(event, ResponseDone):
                    await take(event)
        return response

    async def call_around(self, ready: Ready[Any], run: Callable[[], Awaitable[ToolOutput]]) -> ToolOutput:
        """Run a call inside of each `around_call`."""
        return await self._call_from(0, CallInfo(self.run, ready), run)

    async def _call_from(
        self, position: int, info: CallInfo[Any], run: Callable[[], Awaitable[ToolOutput]]
    ) -> ToolOutput:
        if position == len(self._around_call):
            return await run()
        middleware = self._around_call[position]
        proceed = _Proceed(lambda: self._call_from(position + 1, info, run), middleware, "around_call")
        output = await _pass_through(middleware.around_call(info, proceed), proceed)
        _check_given(output, ToolOutput, middleware, "around_call")
        return output


class _Proceed(Generic[T]):
    """Does once what a middleware stands around.

    Attributes:
        is_used: True once it was called.
        interruption: An ending without an `Exception`, such as a cancellation.
    """

    __slots__ = ("_action", "_method", "_middleware", "interruption", "is_used")

    def __init__(self, action: Callable[..., Awaitable[T]], middleware: Middleware[Any], method: str) -> None:
        self._action = action
        self._middleware = middleware
        self._method = method
        self.is_used = False
        self.interruption: BaseException | None = None

    async def __call__(self, *given: Any, **options: Any) -> T:
        if self.is_used:
            raise LoopUsageError(
                f"{self._method} of {describe_value(self._middleware)} called proceed twice: it may do so once"
            )
        self.is_used = True
        try:
            return await self._action(*given, **options)
        except Exception:
            raise
        except BaseException as error:
            self.interruption = error
            raise


async def _pass_through(value: Awaitable[T], proceed: _Proceed[Any]) -> T:
    """Await a middleware's method; a cancellation that came out of `proceed` goes on even where it was caught."""
    mark = cancellation_mark()
    try:
        given = await value
    except Exception as error:
        _raise_again(proceed, mark, error)
        raise
    _raise_again(proceed, mark, None)
    return given


def _raise_again(proceed: _Proceed[Any], mark: int | None, cause: Exception | None) -> None:
    interruption, proceed.interruption = proceed.interruption, None
    # Not where a scope of the middleware's own was cancelled, which has caught it by now.
    if interruption is not None and is_being_cancelled(mark):
        raise interruption from cause


def _check_given(given: object, kind: type, middleware: Middleware[Any], method: str) -> None:
    if not isinstance(given, kind):
        raise ConfigurationError(
            f"{method} of {describe_value(middleware)} must return a {kind.__name__}, not {describe_value(given)}"
            f"{'' if kind is Middleware else ': return what proceed() gave, or one of your own'}"
        )


def _find_serving(middleware: Middleware[Any], run: RunInfo[Any]) -> Middleware[Any]:
    serving = middleware.for_run(run)
    _check_given(serving, Middleware, middleware, "for_run")
    return serving


def _hook_deltas(hook: DeltaHook, take: DeltaTaker) -> DeltaTaker:
    async def take_changed(delta: Delta) -> None:
        changed = hook(delta)
        if changed is not None:
            await take(changed)

    return take_changed


def _leave_out_relayed(
    hook: Callable[[LoopEvent], Awaitable[None] | None],
) -> Callable[[LoopEvent], Awaitable[None] | None]:
    """Return a taker that is not given the events of inner loops a second time, by which a call passes them on."""
    if not inspect.iscoroutinefunction(hook):
        return lambda event: None if _is_relayed(event) else hook(event)

    async def take_own(event: LoopEvent) -> None:  # told from a plain function by who calls it
        if not _is_relayed(event):
            await hook(event)

    return take_own


def _is_relayed(event: LoopEvent) -> bool:
    match event:
        case ToolExecutionUpdate():
            return isinstance(event.output.details, SubAgentEvent)
        case ToolProgress():
            return isinstance(event.details, SubAgentEvent)
        case _:
            return False


def _require_name(middleware: Middleware[Any]) -> None:
    if not middleware.name:
        raise ConfigurationError(
            f"{describe_value(middleware)} saves its state: give it a name, by which that is restored"
        )
