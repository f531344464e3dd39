"""The one seam of a loop: what stands around its runs, requests and calls, and what watches them.

A middleware adds to a loop what is not a decision of the loop itself: tracing, logs, redaction, a cache of replies,
tools by need. What decides stays in the machine (`toolkit.loop.state`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, cast

from toolkit.calls.approval import Approval
from toolkit.calls.events import ToolExecutionUpdate
from toolkit.calls.handler import Ctx
from toolkit.calls.prepare import Ready
from toolkit.chat import (
    ArgumentsDelta,
    ChatRequest,
    ChatResponse,
    Message,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolDefinition,
)
from toolkit.chat.definition import copy_definition
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.loop.events import LoopEvent
from toolkit.settings import check_setting

if TYPE_CHECKING:
    from toolkit.loop.outcome import ToolLoopResult

__all__ = [
    "CallInfo",
    "CallProceed",
    "Delta",
    "DeltaHook",
    "Middleware",
    "RequestInfo",
    "RequestProceed",
    "RunInfo",
    "RunProceed",
    "check_middleware",
]

Delta: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta
"""A piece of an answer that is streamed."""

DeltaHook: TypeAlias = Callable[[Delta], Delta | None]
"""Given each delta of an answer as it comes; returns what is passed on, or None for nothing."""


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
        provider: The name of what talks to the model: its own ``name``, else that of its class.
        model: The model that it asks, where it names one.
        tool_names: The names of the registry's tools when the run began.
        metadata: That of the configuration.
        ctx: The application's context, as the tools get it.
        is_restored: True where the loop was taken up from a snapshot.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo(Generic[Ctx]):
    """One attempt to ask the model.

    Args:
        run: The run that asks.
        chat: The request.
        iteration: The number of the turn, from 1.
        attempt: From 1; higher where an earlier attempt of this turn failed.
        is_streamed: True where the answer is asked for in pieces.
    """

    run: RunInfo[Ctx]
    chat: ChatRequest
    iteration: int
    attempt: int = 1
    is_streamed: bool = False


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
        """The arguments that the tool is given, as Python objects; each time a copy, which changes nothing."""
        return self._ready.copy_arguments()

    @property
    def arguments_json(self) -> str:
        """The same as canonical JSON; secrets are shown as digests."""
        return self._ready.arguments_json

    @property
    def original(self) -> ToolCall:
        """The call as the model wrote it."""
        return self._ready.original

    @property
    def definition(self) -> ToolDefinition:
        """A copy of what the model was told about the tool."""
        return copy_definition(self._ready.registration.definition)

    @property
    def label(self) -> str:
        """The tool's name for people, where it has one."""
        return self._ready.registration.options.label

    @property
    def tags(self) -> frozenset[str]:
        """The tool's tags."""
        return self._ready.registration.options.tags


RunProceed: TypeAlias = "Callable[[], Awaitable[ToolLoopResult[Any] | None]]"
"""Runs the loop: to its end, which it returns or raises, or for one turn that is stepped by hand, which gives None."""

CallProceed: TypeAlias = Callable[[], Awaitable[ToolOutput]]
"""Runs the tool and returns its whole output; raises what the tool raises."""


class RequestProceed(Protocol):
    """Asks the model."""

    def __call__(
        self, chat: ChatRequest | None = None, /, *, on_delta: DeltaHook | None = None
    ) -> Awaitable[ChatResponse]:
        """Return the answer; raise what the provider raises.

        Args:
            chat: The request to send instead of `RequestInfo.chat`; None leaves it as it is.
            on_delta: Given each delta of a streamed answer before anybody else sees it.
        """
        ...


class Middleware(Generic[Ctx]):
    """Something that is added to a loop from outside. Override what is needed; what is not overridden costs nothing.

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

    The first of `ToolLoopConfig.middleware` is the outermost: it sees a request first and its response last. The
    methods that are named ``around_`` are given `proceed`, which does what they stand around: it may be called once.
    They run in the task that does the work, so context variables that they set hold inside, and scopes and task groups
    may stand around `proceed`. A cancellation comes out of `proceed` and goes on, also where a method catches it.

    One object may serve many runs at the same time: state of a run belongs into the object that `for_run` returns.

    Attributes:
        is_inherited: True where it also serves the loops that run inside the tools of a loop: sub-agents, and each
            ``tool_loop`` in a tool. It stands around their own middleware, and serves each loop once, also where their
            configuration names the same object.
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
        """Return what serves this run; called once for each, before anything else. By default this object serves all.

        What it raises ends the run before it began.
        """
        del run
        return self

    async def around_run(self, run: RunInfo[Ctx], proceed: RunProceed) -> None:
        """Stand around the run.

        A run that goes on without a break (``tool_loop``, ``run``, ``stream``, ``channel``) is one call of this. Where
        the caller steps by hand, each `next_turn` is one, perhaps in another task, and `proceed` returns None until the
        turn that ends the loop. Where a decision was awaited, or the loop is closed by hand, going on is one more.

        `proceed` returns the result, or raises the failure or the backend's cancellation; by then the transcript is
        closed and `Done` or `Failed` was told. What is raised here before the loop has ended makes it fail; after that
        it goes to the caller, and the result stays as it is. Returning without `proceed` makes the run fail. The loop's
        `timeout` doesn't count what happens out here.
        """
        del run
        await proceed()

    async def around_request(self, request: RequestInfo[Ctx], proceed: RequestProceed) -> ChatResponse:
        """Stand around one attempt to ask the model, whole or streamed, and return the answer.

        It may have something else asked (``proceed(replace(request.chat, ...))``), which leaves the transcript as it
        is, change the answer, or return one without calling `proceed`, which still counts as a request. What it raises
        is taken as the provider's: a `ProviderError` that is retryable is retried, and this is called again.
        """
        del request
        return await proceed()

    async def around_call(self, call: CallInfo[Ctx], proceed: CallProceed) -> ToolOutput:
        """Stand around the run of one call that may run, and return its output.

        Called between `ToolExecutionStart` and `ToolExecutionEnd`, once, around cache, limits, retries and timeout. It
        may change the output, or return one without calling `proceed`: then the tool does not run. What it raises is
        taken as the tool's error. Calls that are refused don't come here: `on_event` is told of them.
        """
        del call
        return await proceed()

    async def offer(self, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> Sequence[str]:
        """Return the names of the tools that the next request offers, in their order.

        A tool that is not offered can't be called in that turn, as if a scope had left it out. Permissions stay as they
        are. The tools that the loop adds itself (``final_answer``, ``read_result``) are not among these, and stay.

        Args:
            tools: Those of the registry, or of the caller's request; after an outer middleware, those that it left.
            messages: The transcript that the model is going to be asked about.
        """
        del messages
        return [tool.name for tool in tools]

    async def guard_call(self, call: CallInfo[Ctx]) -> Approval | None:
        """Decide whether a call may go on: None or `Approve` lets it, by the other guards and then `on_tool_call`.

        Asked after the rules of `Permissions` and before an approver, about the calls of sub-agents too (but those
        with ``approvals="own"``). `Deny` refuses the call, `Modify` changes its arguments, `Abort` ends the run, and
        `Defer` leaves the decision to somebody later, who decides alone. Raising denies, and so does taking longer than
        `Timeouts.hook`. Only an approver can approve what a rule wants to be asked about.
        """
        del call
        return None

    def allow_update(self, update: ToolExecutionUpdate) -> bool | Awaitable[bool]:
        """Return False to keep an update of a running tool from everybody who takes events; may be async.

        What it raises is logged, and the update is shown.
        """
        del update
        return True

    def on_event(self, event: LoopEvent) -> Awaitable[None] | None:
        """Take an event, each in order; may be async. What it raises is logged and changes nothing.

        An inherited middleware is given the events of inner loops by these loops themselves, by their own ``loop_id``;
        the updates by which a sub-agent passes them on to its caller are left out for it.

        Deltas are among them where the model is asked for its answer in pieces; a middleware does not bring that about
        (see `ToolLoopConfig.stream`).
        """
        del event
        return None

    def save(self) -> Any:
        """Return the state of this run, for a snapshot: JSON, of which `load` is given a copy. It needs a `name`."""
        return None

    def load(self, state: Any) -> None:
        """Take the state that `save` returned when the run was saved; called after `for_run`, before anything else.

        Not called where the snapshot has none. What it raises ends the run before it began.
        """
        del state


def check_middleware(given: object) -> tuple[Middleware[Any], ...]:
    """Return the middleware of a configuration.

    Raises:
        ConfigurationError: Something in it is none.
    """
    check_setting("middleware", given, Sequence)
    members = tuple(cast("Sequence[Middleware[Any]]", given))
    for member in members:
        check_setting("each of middleware", member, Middleware)
    names = [member.name for member in members if member.name and type(member).save is not Middleware.save]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two middleware are named '{name}', and each saves its state by its name: rename one"
            )
    return members
