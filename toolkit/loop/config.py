"""The settings of a loop; each default is what is safe without thinking."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any, ClassVar, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeForm

from toolkit.backoff import backoff_pause
from toolkit.calls.approval import ApprovalHook
from toolkit.calls.caching import Cache
from toolkit.calls.policy import AfterToolExecution, BeforeToolExecution, ExecutionPolicy, NameRepair
from toolkit.calls.results import ResultStore
from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.loop.budget import UsageLimits
from toolkit.loop.detection import LoopDetectionConfig
from toolkit.loop.events import LoopEvent
from toolkit.loop.outcome import Out
from toolkit.loop.steering import Steering
from toolkit.loop.stopping import StopWhen
from toolkit.settings import FUNCTION, Kind, check_backoff, check_setting, check_settings, shown, to_seconds

__all__ = [
    "DEFAULT_CONFIG",
    "ANSWER_TOOL",
    "AfterToolExecutionUpdate",
    "Batched",
    "BeforeToolExecutionUpdate",
    "Compaction",
    "EventHook",
    "Execution",
    "Parallel",
    "ProviderRetryConfig",
    "Sequential",
    "ToolLoopConfig",
]


@dataclass(frozen=True, slots=True)
class Sequential:
    """One call after the other, in call order."""

    unit_size: ClassVar[int] = 1
    limit: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Parallel:
    """All calls of a turn at once, or at most `limit` of them."""

    unit_size: ClassVar[int] = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        check_setting("the limit of Parallel", self.limit, int, None, least=1)


@dataclass(frozen=True, slots=True)
class Batched:
    """Groups of `size` calls; a group starts when the one before has ended."""

    limit: ClassVar[None] = None
    size: int

    @property
    def unit_size(self) -> int:
        """How many calls are begun together; 0 for all."""
        return self.size

    def __post_init__(self) -> None:
        check_setting("the size of Batched", self.size, int, least=1)


Execution: TypeAlias = Sequential | Parallel | Batched


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRetryConfig:
    """How often a failed request to the model is made again, where its error says that this may help.

    The pause before retry ``n`` (from 0) is ``min(initial_backoff * backoff_multiplier**n, max_backoff)`` times a
    random factor between ``1 - jitter`` and ``1 + jitter``, or what the server asked for in Retry-After if that is
    longer. A server that asks for more than `max_backoff` seconds is not waited for: the error is raised, with its
    `retry_after`.

    Args:
        max_retries: Requests after the first; 0 makes none.
        initial_backoff: Seconds before the first retry.
        max_backoff: The longest pause in seconds.
        backoff_multiplier: How much longer each pause is than the one before.
        jitter: How far a pause may differ, from 0 to 1.
    """

    max_retries: int = 3
    initial_backoff: float = 1.0
    max_backoff: float = 30.0
    backoff_multiplier: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_backoff(self)

    def pause(self, retry: int, random: float) -> float:
        """Return the seconds before `retry` (from 0); `random` is a number between 0 and 1."""
        return backoff_pause(
            retry,
            initial=self.initial_backoff,
            longest=self.max_backoff,
            multiplier=self.backoff_multiplier,
            factor=1 - self.jitter + 2 * self.jitter * random,
        )


ANSWER_TOOL = "final_answer"
"""The tool by which a model gives an answer of the type that was asked for."""

EventHook: TypeAlias = Callable[[LoopEvent], Awaitable[None] | None]
"""Takes each event, in order. Raising changes nothing but the log."""


BeforeToolExecutionUpdate: TypeAlias = Callable[[str, str, str], bool | Awaitable[bool]]
AfterToolExecutionUpdate: TypeAlias = Callable[[str, str, str], Awaitable[None] | None]

Compaction: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""Gives a shorter transcript, or the same; must not change the one it is given."""


def _no_metadata() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLoopConfig(Generic[Out]):
    """How a loop runs.

    Args:
        max_iterations: After so many turns with tools the loop ends.
        on_max_iterations: ``stop`` ends with the last response; ``answer`` asks once more, without tools.
        max_calls_per_turn: How many calls of one reply are run at most; the others are answered "not run"; None
            runs all.
        execution: How the calls of a turn run; their results are in call order whatever it says.
        timeout: Seconds for the whole loop; what is running then is cancelled, and nothing is raised.
        tool_timeout: Seconds for one run of a tool that has no timeout of its own, from when its body begins.
        wait_timeout: Seconds that a call may wait for a lock, a place, a thread or a process before it is told as not
            started; None lets it wait.
        max_depth: How many loops may be nested, this one included; an inner loop can't raise it.
        on_tool_call: Asked about each call before any call of the turn runs; raising denies. One that is not async is
            called in a thread of its own, and all that it is given is its own copy.
        approval_timeout: Seconds that its answer may take, after which the call is denied; None waits for ever.
        stop_when: Asked after each response; see `stop_after`, `when_called`, `token_budget`.
        loop_detection: What to do about a model that repeats itself; None looks for nothing.
        usage_limits: What this loop and the loops inside its tools may spend together.
        provider_retry: How failed requests are repeated.
        before_tool_execution: Asked before each call with name, call id and a copy of the arguments; False skips it.
        after_tool_execution: Told after each call with name, call id and whether it failed.
        before_tool_execution_update: Asked before each `ToolExecutionUpdate` with name, call id and text; False
            suppresses that event, and only that.
        after_tool_execution_update: Told after each `ToolExecutionUpdate` that was not suppressed.
        on_event: Takes each event; raising changes nothing.
        stream: Whether the model is asked for its answer in pieces; None asks for them when somebody takes events.
        keep_partial: Whether the text of an answer that is cut off while it comes stays in the transcript, as a message
            without calls: the reader of a stream that is left, cancelled, timed out or broken has seen it.
        steering: A queue into which others write messages for the model while the loop runs.
        compaction: Asked before each request for a shorter transcript.
        hook_timeout: Seconds that an async hook may take, `on_tool_call` apart; a guard that takes longer denies.
        on_tool_exception: What happens when a tool raises what is no `ToolError`. ``tell`` has the model read it as
            the call's error; ``raise`` also ends the run with a `ToolCrashedError`. It is logged either way.
        cache: Where outputs of tools are kept and read again; None keeps none.
        max_output_chars: The longest text of a result that the model reads; None cuts nothing.
        keep_output: Which part of a longer text that is: its start, its end, or some of both.
        result_store: Where the whole of a longer text is kept, so that the model can read the rest by the tool
            ``read_result``, which is offered from the first cut on; None keeps it for the run, False keeps nothing.
        name_repair: Which names that are not there are taken for one that is. True takes the one tool whose name has
            the same letters: case and separators may differ, quotes or a namespace may stand round or before it.
            ``similar`` takes also the single most similar name, other letters or not; False takes none. A name that
            a scope has left out is never taken for another.
        argument_repair: Whether malformed arguments are mended where that is no guess.
        metadata: For `ToolContext.metadata`.
        sync_workers: How many worker threads, for tools that are not async, may run at once on this event loop, all
            its loops and abandoned threads counted; a call waits for a place, and fails when abandoned ones hold all.
        signing_key: A secret of the application that seals its snapshots, 32 random bytes say: those that are not
            sealed with it are not restored. Without one a snapshot is only as trustworthy as where it is kept: who can
            write there can have any tool called with any arguments.
        request_options: Laid over the `ChatRequest.options` of each request, by name. A snapshot holds ``***`` in place
            of the secrets among those (telling names, all headers and query values): give them here to restore it.
        output_type: The type of the answer, also a union such as ``A | B`` or a ``Literal``: it is asked for, checked,
            and given as `ToolLoopResult.output`.
        output_mode: ``tool`` has the model call a tool named ``final_answer``; ``native`` sets the request's
            `response_format`.
        max_output_retries: How often the model is asked again after a reply without a valid answer: one in words, or a
            wrong call of ``final_answer``; then the loop ends as `NoValidAnswer`, without an `output`.

    Attributes:
        policy: What of this holds for every call; made here, once for all runs.
    """

    max_iterations: int = 10
    on_max_iterations: Literal["stop", "answer"] = "stop"
    max_calls_per_turn: int | None = 128
    execution: Execution = field(default_factory=Parallel)
    timeout: float | None = None
    tool_timeout: float | None = None
    wait_timeout: float | None = 300.0
    max_depth: int | None = 3
    on_tool_call: ApprovalHook | None = None
    approval_timeout: float | None = None
    stop_when: StopWhen | None = None
    loop_detection: LoopDetectionConfig | None = None
    usage_limits: UsageLimits | None = None
    provider_retry: ProviderRetryConfig = field(default_factory=ProviderRetryConfig)
    before_tool_execution: BeforeToolExecution | None = None
    after_tool_execution: AfterToolExecution | None = None
    before_tool_execution_update: BeforeToolExecutionUpdate | None = None
    after_tool_execution_update: AfterToolExecutionUpdate | None = None
    on_event: EventHook | None = None
    stream: bool | None = None
    keep_partial: bool = False
    steering: Steering | None = None
    compaction: Compaction | None = None
    hook_timeout: float = 60.0
    on_tool_exception: Literal["tell", "raise"] = "tell"
    cache: Cache | None = None
    max_output_chars: int | None = 32_000
    keep_output: Literal["head", "tail", "both"] = "both"
    result_store: ResultStore | Literal[False] | None = None
    name_repair: NameRepair = True
    argument_repair: bool = True
    metadata: Mapping[str, Any] = field(default_factory=_no_metadata)
    sync_workers: int = 40
    signing_key: str | bytes | None = field(default=None, repr=False)
    request_options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    output_type: TypeForm[Out] = cast("TypeForm[Out]", None)
    output_mode: Literal["tool", "native"] = "tool"
    max_output_retries: int = 2
    policy: ExecutionPolicy = field(init=False, repr=False, compare=False)

    @property
    def asks_by_tool(self) -> bool:
        """Whether the model is to give an answer of a type by calling a tool."""
        return self.has_output_type and self.output_mode == "tool"

    @property
    def has_output_type(self) -> bool:
        """Whether an answer of a type is asked for."""
        return cast("object", self.output_type) is not None

    def __post_init__(self) -> None:
        check_settings(self, _KINDS, _LEAST)
        if cast("object", self.result_store) is True:
            raise ConfigurationError("result_store must be a ResultStore, None, or False to keep nothing, not True")
        if self.signing_key is not None and not self.signing_key:
            raise ConfigurationError("signing_key is empty: give a secret, such as 32 random bytes, or None")
        if self.max_iterations == 0 and self.on_max_iterations == "stop":
            raise ConfigurationError(
                "max_iterations=0 would end the loop before the model is asked: give 1 or more, or "
                "on_max_iterations='answer' for one answer without tools; there is no value for 'no limit'"
            )
        if inspect.iscoroutinefunction(self.stop_when):
            raise ConfigurationError("stop_when must not be async: it only looks at what is there, and nothing waits")
        if self.cache is not None and not (hasattr(self.cache, "get") and hasattr(self.cache, "set")):
            raise ConfigurationError(
                f"cache must have 'get' and 'set', such as a MemoryCache(), not {shown(self.cache)}"
            )
        # A timedelta is taken too; seconds are kept.
        for name in ("timeout", "tool_timeout", "wait_timeout", "approval_timeout", "hook_timeout"):
            object.__setattr__(self, name, to_seconds(getattr(self, name), name))
        policy = ExecutionPolicy(
            tool_timeout=self.tool_timeout,
            wait_timeout=self.wait_timeout,
            max_output_chars=self.max_output_chars,
            keep_output=self.keep_output,
            name_repair=self.name_repair,
            argument_repair=self.argument_repair,
            cache=self.cache,
            before=self.before_tool_execution,
            after=self.after_tool_execution,
            approve=self.on_tool_call,
            approval_timeout=self.approval_timeout,
            hook_timeout=self.hook_timeout,
            on_tool_exception=self.on_tool_exception,
            metadata=self.metadata,
            sync_workers=self.sync_workers,
        )
        object.__setattr__(self, "policy", policy)


_KINDS: dict[str, tuple[Kind, ...]] = {
    "max_iterations": (int,),
    "on_max_iterations": ("stop", "answer"),
    "max_calls_per_turn": (int, None),
    "execution": (Sequential, Parallel, Batched),
    "max_depth": (int, None),
    "on_tool_call": (FUNCTION, None),
    "stop_when": (FUNCTION, None),
    "loop_detection": (LoopDetectionConfig, None),
    "usage_limits": (UsageLimits, None),
    "provider_retry": (ProviderRetryConfig,),
    "before_tool_execution": (FUNCTION, None),
    "after_tool_execution": (FUNCTION, None),
    "before_tool_execution_update": (FUNCTION, None),
    "after_tool_execution_update": (FUNCTION, None),
    "on_event": (FUNCTION, None),
    "stream": (bool, None),
    "keep_partial": (bool,),
    "steering": (Steering, None),
    "compaction": (FUNCTION, None),
    "hook_timeout": (float, timedelta),
    "on_tool_exception": ("tell", "raise"),
    "max_output_chars": (int, None),
    "keep_output": ("head", "tail", "both"),
    "result_store": (ResultStore, bool, None),
    "name_repair": (bool, "similar"),
    "argument_repair": (bool,),
    "metadata": (Mapping,),
    "sync_workers": (int,),
    "signing_key": (str, bytes, None),
    "request_options": (Mapping,),
    "output_mode": ("tool", "native"),
    "max_output_retries": (int,),
}
_LEAST = {
    "max_iterations": 0,
    "max_calls_per_turn": 1,
    "max_depth": 0,
    "max_output_chars": 1,
    "sync_workers": 1,
    "max_output_retries": 0,
}


DEFAULT_CONFIG: ToolLoopConfig[Any] = ToolLoopConfig()
