"""The settings of calls: the configuration of the caller, and the policy of one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolkit.calls.approval import Approval, ApprovalHook, AsyncApprover, prepare_asking
from toolkit.calls.caching import Cache
from toolkit.calls.events import TOOL_EVENTS, Observer
from toolkit.calls.output import ResultStore
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.settings import NonNegativeInt, PositiveInt, Seconds, Settings, check_fields

if TYPE_CHECKING:
    from toolkit.calls.prepare import Ready, Scope
    from toolkit.calls.provenance import RunTrust

NameRepair: TypeAlias = bool | Literal["similar"]
"""The unknown tool names that are repaired; see `ToolLoopConfig`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts(Settings):
    """How long the parts of a run may take, each in seconds or as a `timedelta`; the whole of it has `timeout`.

    Args:
        tool: For one run of a tool that has no timeout of its own, from when its body begins; None sets no limit.
        wait: For a call that waits for a lock, a place, a thread or a process; it is then answered as not started.
            None lets it wait. The default ends a run that waits for a forgotten lock.
        approval: For an answer of `on_tool_call`, after which the call is denied; None waits for as long as it takes.
        hook: For an async hook, `on_tool_call` apart; a guard that takes longer denies.
    """

    tool: Seconds | None = None
    wait: Seconds | None = 300.0
    approval: Seconds | None = None
    hook: Seconds = 60.0

    def __post_init__(self) -> None:
        check_fields(self, "timeouts.{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits(Settings):
    """How much of a tool's output the model reads.

    Args:
        max_chars: The longest text of a result; None cuts nothing. The default is some 8,000 tokens.
        keep: The part of a longer text that is kept: its start, its end, or some of both.
        store: Where the whole of a longer text is stored, so that the model can read the rest by the tool
            ``read_result``, which is offered from the first cut on; None stores it for the run, False stores nothing.
            Where a conversation goes on in another run and its texts are in no store, its transcript says so.
        saved_chars: How many characters of these texts a snapshot contains, the newest first, or a journal, the oldest
            first; none where the store outlives the process.
    """

    max_chars: PositiveInt | None = 32_000
    keep: Literal["head", "tail", "both"] = "both"
    store: ResultStore | Literal[False] | None = None
    saved_chars: NonNegativeInt = 1_000_000

    def __post_init__(self) -> None:
        check_fields(self, "output.{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConfig(Settings):
    """The settings that hold for every call; `ToolLoopConfig` adds those of the loop.

    Args:
        on_tool_call: Asked before any call of the turn runs, about each call that no rule of the registry allows, or
            that needs approval by its tool; raising denies. One that is not async is called in a thread, of which 200
            at once wait in one event loop, and all that it is given is its own copy.
        on_tool_exception: The effect of an exception of a tool that is no `ToolError`. ``tell`` has the model read it
            as the call's error; ``raise`` also ends the run with a `ToolCrashedError`. It is logged either way.
        timeouts: How long a run of a tool, a wait, an approval and a hook may take.
        output: How much of a tool's output the model reads.
        cache: Where outputs of tools are stored and read again; None caches nothing.
        name_repair: The unknown names that are taken for a known one. True takes the one tool whose name has
            the same letters: case and separators may differ, quotes or a namespace may stand round or before it.
            ``similar`` takes also the single most similar name, other letters or not; False takes none. A name that
            a scope has left out is never taken for another.
        argument_repair: True where malformed arguments are repaired, as far as that is no guess.
        metadata: For `ToolContext.metadata`.
        sync_workers: How many worker threads, for tools that are not async, may run at once on this event loop, all
            its loops and abandoned threads counted; a call waits for a place, and fails when abandoned ones hold all,
            or when those of its own tool hold half.

    Attributes:
        ask_approver: Asks `on_tool_call`, within ``timeouts.approval``; None if nobody is asked.
    """

    on_tool_call: ApprovalHook | None = None
    on_tool_exception: Literal["tell", "raise"] = "tell"
    timeouts: Timeouts = field(default_factory=Timeouts)
    output: OutputLimits = field(default_factory=OutputLimits)
    cache: Cache | None = None
    name_repair: NameRepair = True
    argument_repair: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sync_workers: PositiveInt = 40
    ask_approver: AsyncApprover | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        approve = self.on_tool_call
        if approve is not None:
            _check_approver(approve)
            object.__setattr__(self, "ask_approver", prepare_asking(approve, self.timeouts.approval))


def _check_approver(approve: ApprovalHook) -> None:
    """Refuse a function that can't take the request: it would raise at each call, and so deny each one."""
    try:
        parameters = signature(approve)
    except (TypeError, ValueError):
        return  # some callables of C have no signature to read
    try:
        parameters.bind(None)
    except TypeError:
        raise ConfigurationError(
            f"on_tool_call is given one argument, the ApprovalRequest, but it takes {parameters}: "
            "read request.tool_name and request.arguments"
        ) from None


DEFAULT_CALL_CONFIG = CallConfig()


AroundCall: TypeAlias = "Callable[[Ready[Any], Callable[[], Awaitable[ToolOutput]]], Awaitable[ToolOutput]]"
"""Called with a call and the function that runs it; returns the output, by running it or without."""


@dataclass(slots=True)
class CallGuard:
    """Decides, before an approver is asked, whether a call may go on.

    Args:
        owner: The object that it belongs to. If that also guards the calls of a caller, it is asked once.
        ask: Called with the call; None lets it go on.
    """

    owner: object
    ask: Callable[[Ready[Any]], Awaitable[Approval | None]]


@dataclass(slots=True, kw_only=True)
class Caller:
    """The caller of a sub-agent, whose rules and guards apply to the sub-agent's calls, too.

    Args:
        policy: The policy with its guards.
        scope: Its rules, and the tools that they apply to.
        abort: Ends its run, given a reason; None if it is not a loop.
        can_wait: True if the sub-agent may await a later decision.
    """

    policy: ExecutionPolicy
    scope: Scope[Any]
    abort: Callable[[str], None] | None = None
    can_wait: bool = False


@dataclass(slots=True)
class ExecutionPolicy:
    """The settings for the calls of one run.

    Args:
        config: The configuration.
        caches_by_default: True if tools without a setting of their own are cached.
        around: Wraps the execution of each call; None for nothing.
        guards: Asked about each call, in order, before `on_tool_call`.
        observer: Receives the events.
        observed: The kinds of events that the observer receives; others need not be created.
        agent: The sub-agent that makes the calls; empty if it is none.
        loop_id: The id of its loop.
        caller: The caller, whose guards are asked, too; None if there is none.
        trust: The texts that the model of the run has seen; None if no rule asks who wrote them.
    """

    config: CallConfig = DEFAULT_CALL_CONFIG
    caches_by_default: bool = False
    around: AroundCall | None = None
    guards: Sequence[CallGuard] = ()
    observer: Observer | None = None
    observed: frozenset[type] = TOOL_EVENTS
    agent: str = ""
    loop_id: str = ""
    caller: Caller | None = None
    trust: RunTrust | None = None

    def observed_by(self, observer: Observer | None, observed: frozenset[type] = TOOL_EVENTS) -> ExecutionPolicy:
        """Return the same policy with another observer of these kinds of events."""
        # By position, which takes half of the time of `replace`.
        config, cached, around, guards = self.config, self.caches_by_default, self.around, self.guards
        own = (self.agent, self.loop_id, self.caller, self.trust)
        return ExecutionPolicy(config, cached, around, guards, observer, observed, *own)
