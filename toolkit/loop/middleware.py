"""Middleware of a loop: wraps its runs, requests and calls, and observes them.

A middleware adds what is not a decision of the loop itself: tracing, logs, redaction, a cache of replies, a choice of
tools. Decisions are made in the machine (`toolkit.loop.state`), which may ask a `ReplyPolicy`. `MiddlewareChain`
composes the middleware of one run: each method wraps the next one, the outermost first.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import anyio

from toolkit.calls.approval import Approval, Deny
from toolkit.calls.events import ToolExecutionEnd, ToolExecutionUpdate, ToolProgress
from toolkit.calls.policy import CallGuard
from toolkit.calls.prepare import Ready
from toolkit.calls.registration import Ctx
from toolkit.chat import (
    ChatRequest,
    ChatResponse,
    Message,
    ResponseDone,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Trust,
    Usage,
    UserMessage,
)
from toolkit.chat.output import ToolOutput
from toolkit.chat.provider import Delta, events_of
from toolkit.chat.request import copy_definition
from toolkit.dataclass import dataclass
from toolkit.errors import (
    ConfigurationError,
    LoopUsageError,
    RunStoppedError,
    UnknownToolNameError,
)
from toolkit.logs import get_logger
from toolkit.loop.events import LoopEvent, SubAgentEvent
from toolkit.loop.outcome import Aborted, MissingSteps, ToolLoopResult
from toolkit.runtime.backend import cancellation_mark, is_being_cancelled
from toolkit.settings import FUNCTION, Settings, check_fields, check_setting, describe_value

_logger = get_logger("toolkit.loop")

T = TypeVar("T")
Given = TypeVar("Given")

DeltaHook: TypeAlias = Callable[[Delta], Delta | None]
"""Receives each delta of an answer; returns the delta to pass on, or None to drop it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo(Generic[Ctx]):
    """One run of a loop.

    Args:
        run_id: The id of the outermost loop's run, which the loops inside its tools share.
        loop_id: The id of this loop; a saved loop keeps it.
        parent_loop_id: The loop whose tool runs this one; None for an outermost loop.
        parent_call_id: The call of that loop in which this one runs.
        depth: How many loops are running around this one.
        agent: The name of the sub-agent that this loop is; empty where it is none.
        provider: The name of the provider: its own ``name``, else that of its class.
        model: The model that it asks, if it names one.
        tool_names: The names of the registry's tools when the run began.
        metadata: The metadata of the configuration, merged over that of the outer loops.
        ctx: The application's context, as the tools get it.
        is_restored: True if the loop was restored from a snapshot.
    """

    run_id: str
    loop_id: str
    parent_loop_id: str | None = None
    parent_call_id: str | None = None
    depth: int = 0
    agent: str = ""
    provider: str = ""
    model: str = ""
    tool_names: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ctx: Ctx
    is_restored: bool = False

    def find_fact(self, name: str) -> str | None:
        """Return a fact on the run, such as its ``user``: an entry of `metadata`, else an attribute of the context.

        None if there is none, or it is neither text nor a whole number.
        """
        value: object = self.metadata.get(name)
        if value is None:
            value = getattr(self.ctx, name, None)
        return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo(Generic[Ctx]):
    """One attempt to ask the model.

    Args:
        run: The run that asks.
        chat: The request.
        iteration: The number of the turn, from 1.
        attempt: The number of the attempt in this turn, from 1.
        is_streamed: True if the answer is streamed.
    """

    run: RunInfo[Ctx]
    chat: ChatRequest
    iteration: int
    attempt: int = 1
    is_streamed: bool = False

    @property
    def question(self) -> str:
        """The text of the user's message; empty if the last message is not the user's.

        Instructions of the turn, which come after it, are not considered.
        """
        return message.text if (message := find_question(self.chat.messages)) is not None else ""


@dataclass(frozen=True, slots=True)
class CallInfo(Generic[Ctx]):
    """One call of a tool, prepared: its name repaired, its arguments validated.

    Args:
        run: The run that makes it.
    """

    run: RunInfo[Ctx]
    _ready: Ready[Any] = field(repr=False)

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self._ready.call.id

    @property
    def tool_name(self) -> str:
        """The tool that runs, as the registry names it."""
        return self._ready.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        """A copy of the arguments that the tool gets, as Python objects."""
        return self._ready.copy_arguments()

    @property
    def arguments_json(self) -> str:
        """The same as canonical JSON; secrets are shown as digests."""
        return self._ready.arguments_json

    @property
    def secrets(self) -> frozenset[str]:
        """The texts of the secret arguments, which are not to be shown wherever a tool repeats them."""
        return self._ready.find_secrets()

    @property
    def original(self) -> ToolCall:
        """The call as the model wrote it."""
        return self._ready.original

    @property
    def definition(self) -> ToolDefinition:
        """A copy of the tool's definition, as the model reads it."""
        return copy_definition(self._ready.registration.definition)

    @property
    def label(self) -> str:
        """The tool's name for people, where it has one."""
        return self._ready.registration.options.label

    @property
    def trust(self) -> Trust:
        """The label of the tool's outputs."""
        return self._ready.registration.options.trust

    @property
    def tags(self) -> frozenset[str]:
        """The tool's tags."""
        return self._ready.registration.options.tags


def find_question(messages: Sequence[Message]) -> UserMessage | None:
    """Return the last message, apart from instructions of the turn, if it is the user's; else None."""
    last = next((message for message in reversed(messages) if not isinstance(message, SystemMessage)), None)
    return last if isinstance(last, UserMessage) else None


RunProceed: TypeAlias = Callable[[], Awaitable[ToolLoopResult[Any] | None]]
"""Runs the loop: to its end, which it returns or raises, or for one stepped turn, for which it returns None."""

CallProceed: TypeAlias = Callable[[], Awaitable[ToolOutput]]
"""Runs the tool and returns its whole output; exceptions of the tool propagate."""


DeltaTaker: TypeAlias = Callable[[Delta], Awaitable[None]]
"""Receives a delta that passed all middleware."""

RequestSender: TypeAlias = Callable[[ChatRequest, DeltaTaker], Awaitable[ChatResponse]]
"""Asks the provider, and passes deltas to the `DeltaTaker`."""

BeforeToolExecution: TypeAlias = Callable[[str, str, Mapping[str, Any]], bool | Awaitable[bool | None] | None]
"""Called with tool name, call id and a copy of the arguments; False skips the call, an exception denies it."""

AfterToolExecution: TypeAlias = Callable[[str, str, bool], Awaitable[None] | None]
"""Called with tool name, call id and whether it failed. An exception is logged."""

BeforeToolExecutionUpdate: TypeAlias = Callable[[str, str, str], bool | Awaitable[bool]]
"""Called with tool name, call id and the text of an update; False suppresses the update."""

AfterToolExecutionUpdate: TypeAlias = Callable[[str, str, str], Awaitable[None] | None]
"""Called with tool name, call id and the text of an update."""


class RequestProceed(Protocol):
    """Asks the model."""

    def __call__(
        self, chat: ChatRequest | None = None, /, *, on_delta: DeltaHook | None = None
    ) -> Awaitable[ChatResponse]:
        """Return the answer; exceptions of the provider propagate.

        Args:
            chat: The request to send instead of `RequestInfo.chat`; None sends that one.
            on_delta: Called with each delta of a streamed answer before anybody else gets it.
        """
        ...


ANY_TOOL = "*"
"""Requires the reply to be a call of some tool, whichever; no tool can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call does not run, or an answer is not accepted.

    Args:
        text: The text for the model.
        next_tool: The tool that the next reply has to call; empty if it does not matter.
        ending: How the run ends with this; None if the model may try again.
    """

    text: str
    next_tool: str = ""
    ending: MissingSteps | None = None


class ReplyPolicy:
    """Consulted by the machine about each reply of one run; methods that are not overridden change nothing.

    It must be pure, and depend on its arguments alone: a durable run that is replayed asks it again.
    """

    __slots__ = ()

    def take_calls(self, calls: Sequence[ToolCall], mistakes: Mapping[str, Literal["name", "arguments"]]) -> None:
        """Receive the calls of a reply as they would run, and the mistakes of those that can't, by id."""

    def refuse_call(self, call: ToolCall, called: Collection[str], *, is_answer: bool) -> Refusal | None:
        """Return why a call does not run; None if it may.

        Args:
            call: The call, as it would run.
            called: The tools that the same reply calls.
            is_answer: True if the call gives the answer.
        """
        del call, called, is_answer
        return None

    def refuse_answer(self) -> Refusal | None:
        """Return why an answer, in words or as the output of a tool, is not accepted; None if it is."""
        return None

    def is_too_early(self, tool_name: str, *, is_answer: bool) -> bool:
        """Return whether other steps are required before a call of this tool."""
        del tool_name, is_answer
        return False

    def take_results(self, results: Iterable[ToolResult]) -> None:
        """Receive the results of a turn, in call order, except those that the loop wrote itself."""

    def expect_call(self, tool_name: str) -> None:
        """Note that the next reply should be a call of this tool, or of `ANY_TOOL`."""

    def take_hold(self) -> str:
        """Return, once, the tool that the reply to the next request must call; empty leaves the choice to the model."""
        return ""

    def save(self) -> Any:
        """Return its state as plain JSON, for a snapshot."""
        return None

    def load(self, state: Any) -> None:
        """Restore what `save` returned."""


class Middleware(Generic[Ctx]):
    """The base class of extensions of a loop. Methods that are not overridden cost nothing.

    ::

        class Timing(Middleware[object]):
            async def around_run(self, run, proceed):
                began = time.perf_counter()
                try:
                    await proceed()
                finally:
                    print(f"run {run.run_id}: {time.perf_counter() - began:.3f} s")

            async def around_request(self, request, proceed):
                response = await proceed()
                print(f"{request.run.model}: {response.usage.total_tokens} tokens")
                return response

            async def around_call(self, call, proceed):
                token = current_call.set(call.call_id)  # the tool sees it, in a worker thread too
                try:
                    return await proceed()
                finally:
                    current_call.reset(token)

        config = ToolLoopConfig(middleware=(Timing(),))

    The first of `ToolLoopConfig.middleware` is the outermost: it sees a request first and its response last. A method
    named ``around_`` gets `proceed`, which does the wrapped work and may be called once. It runs in the task that does
    the work, so that context variables which it sets are visible inside, and scopes and task groups may enclose
    `proceed`. A cancellation leaves `proceed` and propagates even if a method catches it.

    One object may serve many runs at the same time: state of a run belongs in the object that `for_run` returns.

    Attributes:
        is_inherited: True if it also serves the loops inside the tools of a loop: sub-agents, and each ``tool_loop`` in
            a tool. It wraps their own middleware, and serves each loop once, even if their configuration names the same
            object.
        name: The key of its state in a snapshot, unique in a configuration; a class that overrides `save` needs one.
    """

    is_inherited: bool = False
    name: str = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in vars(cls):
            if name.startswith(("around_", "guard_")) and not hasattr(Middleware, name):
                known = "around_run, around_request, around_call and guard_call"
                raise ConfigurationError(f"{cls.__qualname__}.{name} would never be called: a middleware has {known}")

    def for_run(self, run: RunInfo[Ctx]) -> Middleware[Ctx]:
        """Return the object that serves this run; called once for each, before anything else. By default, this one.

        An exception ends the run before it began.
        """
        del run
        return self

    async def around_run(self, run: RunInfo[Ctx], proceed: RunProceed) -> None:
        """Wrap the run.

        A run without a break (``tool_loop``, ``run``, ``stream``, ``channel``) is one call of this. If the caller steps
        by hand, each `next_turn` is one, perhaps in another task, and `proceed` returns None until the turn that ends
        the loop. Continuing after a decision, or closing the loop by hand, is one more call.

        `proceed` returns the result, or raises the failure or the backend's cancellation; by then the transcript is
        closed and `Done` or `Failed` was emitted. An exception that is raised here before the loop has ended makes it
        fail; later, it propagates to the caller, and the result stays the same. Returning without `proceed` makes the
        run fail. The loop's `timeout` does not include the time of this method itself.
        """
        del run
        await proceed()

    async def around_request(self, request: RequestInfo[Ctx], proceed: RequestProceed) -> ChatResponse:
        """Wrap one attempt to ask the model, whole or streamed, and return the answer.

        It may send another request (``proceed(replace(request.chat, ...))``), which leaves the transcript unchanged, and
        after which only the tools of that request may be called; change the answer, or return one without calling `proceed`, which still counts as a request. Its exceptions are
        treated as the provider's: a retryable `ProviderError` is retried, and this is called again.
        """
        del request
        return await proceed()

    async def around_call(self, call: CallInfo[Ctx], proceed: CallProceed) -> ToolOutput:
        """Wrap the execution of one call, and return its output.

        Called once between `ToolExecutionStart` and `ToolExecutionEnd`, around cache, limits, retries and timeout. It
        may change the output, or return one without calling `proceed`: then the tool does not run. Its exceptions are
        treated as the tool's. It is not called for refused calls, of which `on_event` gets an event.
        """
        del call
        return await proceed()

    async def offer(self, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> Sequence[str]:
        """Return the names of the tools that the next request offers, in their order.

        A tool that is not offered can't be called in that turn, as if a scope had left it out. Permissions still apply.
        The tools that the loop adds itself (``final_answer``, ``read_result``) are not among these, and are kept.

        Args:
            tools: The tools of the registry, or of the caller's request, that outer middleware have left.
            messages: The transcript of the next request.
        """
        del messages
        return [tool.name for tool in tools]

    async def guard_call(self, call: CallInfo[Ctx]) -> Approval | None:
        """Decide whether a call may go on to the other guards and then to `on_tool_call`: None or `Approve` lets it.

        Asked after the rules of `Permissions` and before an approver, also about the calls of sub-agents (except those
        with ``approvals="own"``). `Deny` refuses the call, `Modify` changes its arguments, `Abort` ends the run, and
        `Defer` leaves the decision to somebody later, who decides alone. An exception denies the call, and so does
        exceeding `Timeouts.hook`. Where a rule requires approval, only an approver can give it.
        """
        del call
        return None

    def allow_update(self, update: ToolExecutionUpdate) -> bool | Awaitable[bool]:
        """Return False to suppress an update of a running tool for everybody who receives events; may be async.

        An exception is logged, and the update is shown.
        """
        del update
        return True

    def on_event(self, event: LoopEvent) -> Awaitable[None] | None:
        """Receive each event, in order; may be async. An exception is logged and changes nothing else.

        An inherited middleware gets the events of inner loops from these loops themselves, with their own ``loop_id``,
        and not the updates with which a sub-agent passes them on to its caller.

        Deltas are among the events if the answer is streamed; a middleware does not cause that (see
        `ToolLoopConfig.stream`).
        """
        del event
        return None

    def save(self) -> Any:
        """Return the state of this run for a snapshot, as JSON, which `load` gets back. It needs a `name`."""
        return None

    def reply_policy(self, tool_names: Collection[str]) -> ReplyPolicy | None:
        """Return the policy on the model's replies in one run, which refuses calls or answers.

        Called when a run is created, for the middleware of its own configuration. The machine saves and restores the
        state of the policy, under the `name` of this middleware.

        Args:
            tool_names: The tools that the run may offer; if a required one is missing, raise `ConfigurationError`.
        """
        del tool_names
        return None

    def load(self, state: Any) -> None:
        """Restore the state that `save` returned; called after `for_run`, before anything else.

        Not called if the snapshot has no state. An exception ends the run before it began.
        """
        del state


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionHooks(Settings, Middleware[Any]):
    """Calls functions before and after each run of a tool, and each update that it reports; any may be async.

    ::

        hooks = ToolExecutionHooks(before=lambda name, call_id, arguments: name != "bash")
        config = ToolLoopConfig(middleware=(hooks,))

    Args:
        before: Asked before each call with name, call id and a copy of the arguments, after the rules of `Permissions`
            and before an approver; False skips it, with an error for the model. The calls of sub-agents are asked
            about, too.
        after: Called at the end of each call with name, call id and whether it failed; for those of sub-agents, too.
        before_update: Asked about each `ToolExecutionUpdate` with name, call id and text; False suppresses that event,
            and only that.
        after_update: Called with each update that was not suppressed, after `ToolLoopConfig.on_event`.
    """

    before: BeforeToolExecution | None = None
    after: AfterToolExecution | None = None
    before_update: BeforeToolExecutionUpdate | None = None
    after_update: AfterToolExecutionUpdate | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    async def guard_call(self, call: CallInfo[Any]) -> Approval | None:
        """Ask `before`: a call runs if it returns True, or None because it only observes."""
        if self.before is None:
            return None
        answer: object = await _settle_value(self.before(call.tool_name, call.call_id, call.arguments))
        if answer is None or answer is True:
            return None
        _logger.warning("before_tool_execution skipped %s in call %s", call.tool_name, call.call_id)
        return Deny("Tool execution skipped by before_tool_execution hook.")

    async def allow_update(self, update: ToolExecutionUpdate) -> bool:
        """Ask `before_update`."""
        if self.before_update is None:
            return True
        return (
            await _settle_value(self.before_update(update.tool_name, update.call_id, update.output.text)) is not False
        )

    async def on_event(self, event: LoopEvent) -> None:
        """Call `after` and `after_update`."""
        if self.after_update is not None and isinstance(event, ToolExecutionUpdate):
            await _settle_value(self.after_update(event.tool_name, event.call_id, event.output.text))
        while isinstance(event, ToolExecutionUpdate) and isinstance(event.output.details, SubAgentEvent):
            event = event.output.details.event
        if self.after is not None and isinstance(event, ToolExecutionEnd):
            await _settle_value(self.after(event.tool_name, event.call_id, event.result.is_error))


def guard_input(
    check: Callable[[RequestInfo[Ctx]], str | Awaitable[str | None] | None], *, beside: bool = False
) -> Middleware[Ctx]:
    """Return a middleware that has the user's messages checked before they reach the model.

    ::

        async def no_secrets(request: RequestInfo[App]) -> str | None:
            is_bad = await moderate(request.question)
            return "this question can't be answered here" if is_bad else None

        config = ToolLoopConfig(middleware=(guard_input(no_secrets),))

    Args:
        check: Called before each request whose last message is the user's. A text ends the run as `Aborted` with that
            as its reason, None lets the request be made, and raising fails the run. It may be async.
        beside: True where it runs beside the request, which is cancelled if the check ends the run. Nothing waits for
            the check then but the answer, of which pieces may have been streamed already.
    """
    check_setting("what guard_input() is given", check, FUNCTION)
    check_setting("beside", beside, bool)

    async def judge(request: RequestInfo[Any]) -> None:
        _stop_if_refused(await _settle_value(check(request)), "guard_input")

    async def ask(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        if find_question(request.chat.messages) is None:
            return await proceed()
        if beside:
            return await _ask_beside(partial(judge, request), proceed)
        await judge(request)
        return await proceed()

    return RequestMiddleware(ask)


def guard_output(
    check: Callable[[RequestInfo[Ctx], ChatResponse], str | Awaitable[str | None] | None], *, shows_deltas: bool = False
) -> Middleware[Ctx]:
    """Return a middleware that has the model's replies checked before anything is made of them.

    ::

        def no_prices(request: RequestInfo[App], response: ChatResponse) -> str | None:
            return "prices are not told" if "$" in response.text else None

        config = ToolLoopConfig(middleware=(guard_output(no_prices),))

    Args:
        check: Called with each reply, also one with calls, none of which has run yet. A text ends the run as `Aborted`
            with that as its reason, without the reply in the transcript; None accepts the reply, and raising fails the
            run. It may be async.
        shows_deltas: True where the pieces of a streamed reply are emitted before it is checked; else they are
            withheld, and `ResponseReceived` has the text.
    """
    check_setting("what guard_output() is given", check, FUNCTION)
    check_setting("shows_deltas", shows_deltas, bool)

    async def ask(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        withholds = request.is_streamed and not shows_deltas
        response = await (proceed(on_delta=lambda _: None) if withholds else proceed())
        _stop_if_refused(await _settle_value(check(request, response)), "guard_output", response.usage)
        return response

    return RequestMiddleware(ask)


class RequestMiddleware(Middleware[Any]):
    """Wraps each request by a function."""

    def __init__(
        self,
        ask: Callable[[RequestInfo[Any], RequestProceed], Awaitable[ChatResponse]],
        *,
        is_inherited: bool = False,
    ) -> None:
        self._ask = ask
        self.is_inherited = is_inherited

    async def around_request(self, request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        """Call the function."""
        return await self._ask(request, proceed)


async def _ask_beside(judge: Callable[[], Awaitable[None]], proceed: RequestProceed) -> ChatResponse:
    """Ask the model while a judge decides; raise the first error, and cancel the other one."""
    responses: list[ChatResponse] = []
    failures: list[Exception] = []

    async def run(work: Callable[[], Awaitable[ChatResponse | None]]) -> None:
        try:
            given = await work()
            responses.extend([] if given is None else [given])
        except Exception as error:  # noqa: BLE001 - it is raised below, not in a group
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, judge)
        await run(proceed)
    if failures:
        raise failures[0]
    return responses[0]


def _stop_if_refused(verdict: object, guard: str, usage: Usage | None = None) -> None:
    """End the run if a check returned a reason.

    Raises:
        RunStoppedError: It did.
        ConfigurationError: It returned neither a text nor None, or an empty text.
    """
    if verdict is None:
        return
    if not verdict or not isinstance(verdict, str):
        raise ConfigurationError(
            f"the function of {guard}() must return the reason to end the run, or None, not {describe_value(verdict)}"
        )
    raise RunStoppedError(Aborted(verdict), usage)


async def _settle_value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def check_middleware(given: object) -> tuple[Middleware[Any], ...]:
    """Return the middleware of a configuration.

    Raises:
        ConfigurationError: Something in it is none.
    """
    check_setting("middleware", given, Sequence)
    members = tuple(cast("Sequence[Middleware[Any]]", given))
    for member in members:
        check_setting("each of middleware", member, Middleware)
    saved = [each for each in members if _has_method(each, "save") or _has_method(each, "reply_policy")]
    names = [member.name for member in saved if member.name]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two middleware are named '{name}', and each saves its state by its name: rename one"
            )
    return members


def find_policies(members: Sequence[Middleware[Any]], tool_names: Collection[str]) -> dict[str, ReplyPolicy]:
    """Return the policies on replies that middleware gives a new run, by their names.

    Raises:
        ConfigurationError: One has no name, or means a tool that is not there.
    """
    policies: dict[str, ReplyPolicy] = {}
    for member in members:
        policy = member.reply_policy(tool_names)
        if policy is not None:
            _require_name(member)
            policies[member.name] = policy
    return policies


def join_middleware(
    inherited: Sequence[Middleware[Any]], own: Sequence[Middleware[Any]]
) -> tuple[Middleware[Any], ...]:
    """Return the middleware that a loop inherits and its own, each once, outermost first."""
    return (*inherited, *[each for each in own if not any(each is outer for outer in inherited)])


def check_states(states: Mapping[str, Any], members: Sequence[Middleware[Any]]) -> None:
    """Refuse to restore a run without a middleware whose state was saved.

    Raises:
        LoopUsageError: The snapshot has the state of a middleware that is not among the members.
    """
    missing = states.keys() - {each.name for each in members}
    if missing:
        raise LoopUsageError(
            f"the snapshot has the state of middleware named {', '.join(sorted(missing))}, which the configuration "
            "doesn't have: add it to ToolLoopConfig(middleware=...)"
        )


class MiddlewareChain:
    """The middleware of one run, outermost first, with the saved state of each by its name.

    An object that also serves an outer loop keeps its state.

    Attributes:
        savers: The middleware with a state to save, by name.
        event_hooks: Receive the events.
        update_guards: Decide whether an update is shown.
        guards: Decide whether a call may go on.
    """

    __slots__ = (
        "_around_call",
        "_around_request",
        "_around_run",
        "_offers",
        "event_hooks",
        "guards",
        "has_around_call",
        "has_around_request",
        "has_around_run",
        "has_offer",
        "run",
        "savers",
        "update_guards",
    )

    def __init__(
        self,
        run: RunInfo[Any],
        members: Sequence[Middleware[Any]],
        states: Mapping[str, Any] | None = None,
        outer: Sequence[Middleware[Any]] = (),
    ) -> None:
        self.run = run
        serving = [(_choose_server(each, run), each.is_inherited) for each in members]
        self._around_run = [each for each, _ in serving if _has_method(each, "around_run")]
        self._around_request = [each for each, _ in serving if _has_method(each, "around_request")]
        self._around_call = [each for each, _ in serving if _has_method(each, "around_call")]
        self._offers = [each for each, _ in serving if _has_method(each, "offer")]
        self.savers: dict[str, Middleware[Any]] = {}
        for owner, (each, _) in zip(members, serving, strict=True):
            is_served = each is owner and any(each is one for one in outer)
            self._restore_state(owner, each, {} if is_served else states or {})
        self.has_offer = bool(self._offers)
        self.has_around_run = bool(self._around_run)
        self.has_around_request = bool(self._around_request)
        self.has_around_call = bool(self._around_call)
        self.event_hooks: list[Callable[[LoopEvent], Awaitable[None] | None]] = [
            _skip_relayed(each.on_event) if is_inherited else each.on_event
            for each, is_inherited in serving
            if _has_method(each, "on_event")
        ]
        self.update_guards = [each.allow_update for each, _ in serving if _has_method(each, "allow_update")]
        self.guards = [
            CallGuard(owner, partial(self._guard_call, each))
            for owner, (each, _) in zip(members, serving, strict=True)
            if _has_method(each, "guard_call")
        ]

    def _restore_state(self, owner: Middleware[Any], serving: Middleware[Any], states: Mapping[str, Any]) -> None:
        """Register a middleware that saves state, and restore its state."""
        if _has_method(serving, "save"):
            _require_name(owner)
            self.savers[owner.name] = serving
        if owner.name and owner.name in states:
            serving.load(states[owner.name])

    def save_states(self) -> dict[str, Any]:
        """Return the state of each middleware that saves one, by its name."""
        return {name: each.save() for name, each in self.savers.items()}

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
        """Run a part of the loop inside of each `around_run`."""
        for middleware in reversed(self._around_run):
            proceed = partial(self._run_inside, middleware, proceed)
        await proceed()

    async def _run_inside(
        self, middleware: Middleware[Any], run_loop: Callable[[], Awaitable[ToolLoopResult[Any] | None]]
    ) -> ToolLoopResult[Any] | None:
        proceed = _Proceed(run_loop, middleware, "around_run")
        await proceed.pass_through(middleware.around_run(self.run, proceed))
        if not proceed.is_used:
            raise LoopUsageError(f"around_run of {describe_value(middleware)} returned without 'await proceed()'")
        return proceed.answer

    async def ask_around(self, info: RequestInfo[Any], send: RequestSender, take: DeltaTaker) -> ChatResponse:
        """Make a request inside of each `around_request`."""

        def ask_provider(info: RequestInfo[Any], take: DeltaTaker) -> Awaitable[ChatResponse]:
            return send(info.chat, take)

        ask: _Ask = ask_provider
        for middleware in reversed(self._around_request):
            ask = partial(_ask_inside, middleware, ask)
        return await ask(info, take)

    async def call_around(self, ready: Ready[Any], run: Callable[[], Awaitable[ToolOutput]]) -> ToolOutput:
        """Run a call inside of each `around_call`."""
        info = CallInfo(self.run, ready)
        for middleware in reversed(self._around_call):
            run = partial(_call_inside, middleware, info, run)
        return await run()


_Ask: TypeAlias = Callable[[RequestInfo[Any], DeltaTaker], Awaitable[ChatResponse]]


async def _ask_inside(middleware: Middleware[Any], ask: _Ask, info: RequestInfo[Any], take: DeltaTaker) -> ChatResponse:
    def go_on(chat: ChatRequest | None = None, /, *, on_delta: DeltaHook | None = None) -> Awaitable[ChatResponse]:
        changed = info if chat is None else replace(info, chat=chat)
        return ask(changed, take if on_delta is None else _hook_deltas(on_delta, take))

    proceed = _Proceed(go_on, middleware, "around_request")
    response = await proceed.pass_through(middleware.around_request(info, proceed))
    _check_given(response, ChatResponse, middleware, "around_request")
    if info.is_streamed and proceed.answer is None:
        for event in events_of(response):
            if not isinstance(event, ResponseDone):
                await take(event)
    return response


async def _call_inside(
    middleware: Middleware[Any], info: CallInfo[Any], run: Callable[[], Awaitable[ToolOutput]]
) -> ToolOutput:
    proceed = _Proceed(run, middleware, "around_call")
    output = await proceed.pass_through(middleware.around_call(info, proceed))
    _check_given(output, ToolOutput, middleware, "around_call")
    return output


class _Proceed(Generic[T]):
    """The `proceed` of a middleware, which may be called once, with its answer."""

    __slots__ = ("_action", "_interruption", "_method", "_middleware", "answer", "is_used")

    def __init__(self, action: Callable[..., Awaitable[T]], middleware: Middleware[Any], method: str) -> None:
        self._action = action
        self._middleware = middleware
        self._method = method
        self._interruption: BaseException | None = None  # without an `Exception`, such as a cancellation
        self.is_used = False
        self.answer: T | None = None

    async def __call__(self, *given: Any, **options: Any) -> T:
        if self.is_used:
            raise LoopUsageError(
                f"{self._method} of {describe_value(self._middleware)} called proceed twice: it may do so once"
            )
        self.is_used = True
        try:
            self.answer = answer = await self._action(*given, **options)
        except Exception:
            raise
        except BaseException as error:
            self._interruption = error
            raise
        return answer

    async def pass_through(self, value: Awaitable[Given]) -> Given:
        """Await the middleware's method; a cancellation during `proceed` propagates even if it was caught."""
        mark = cancellation_mark()
        try:
            given = await value
        except Exception as error:
            self._raise_again(mark, error)
            raise
        self._raise_again(mark, None)
        return given

    def _raise_again(self, mark: int | None, cause: Exception | None) -> None:
        interruption, self._interruption = self._interruption, None
        # Not if a scope of the middleware itself was cancelled, which has caught the cancellation by now.
        if interruption is not None and is_being_cancelled(mark):
            raise interruption from cause


def _has_method(middleware: Middleware[Any], name: str) -> bool:
    """Return True if a middleware overrides a method."""
    return getattr(type(middleware), name) is not getattr(Middleware, name)


def _check_given(given: object, kind: type, middleware: Middleware[Any], method: str) -> None:
    if not isinstance(given, kind):
        raise ConfigurationError(
            f"{method} of {describe_value(middleware)} must return a {kind.__name__}, not {describe_value(given)}"
            f"{'' if kind is Middleware else ': return what proceed() gave, or one of your own'}"
        )


def _choose_server(middleware: Middleware[Any], run: RunInfo[Any]) -> Middleware[Any]:
    serving = middleware.for_run(run)
    _check_given(serving, Middleware, middleware, "for_run")
    return serving


def _hook_deltas(hook: DeltaHook, take: DeltaTaker) -> DeltaTaker:
    async def take_changed(delta: Delta) -> None:
        changed = hook(delta)
        if changed is not None:
            await take(changed)

    return take_changed


def _skip_relayed(
    hook: Callable[[LoopEvent], Awaitable[None] | None],
) -> Callable[[LoopEvent], Awaitable[None] | None]:
    """Return a hook that skips the reports with events of inner loops, which it gets from these loops themselves."""
    if not inspect.iscoroutinefunction(hook):
        return lambda event: None if _is_relayed(event) else hook(event)

    async def take_own(event: LoopEvent) -> None:  # the listener tells it from a plain function
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
