"""The settings of a loop; each default is what is safe without thinking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeAlias

from toolkit.chat import Message
from toolkit.errors import ConfigurationError
from toolkit.loop.budget import UsageLimits
from toolkit.loop.detection import LoopDetectionConfig
from toolkit.loop.events import LoopEvent
from toolkit.loop.outcome import Out
from toolkit.loop.steering import Steering
from toolkit.loop.stopping import StopWhen
from toolkit.tools.approval import ApprovalHook
from toolkit.tools.caching import Cache
from toolkit.tools.execution import AfterToolExecution, BeforeToolExecution, ExecutionPolicy
from toolkit.tools.options import to_seconds
from toolkit.tools.results import ResultStore

__all__ = [
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
        if self.limit is not None and self.limit < 1:
            raise ConfigurationError(f"Parallel needs a limit of 1 or more, not {self.limit}; None sets no limit")


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
        if self.size < 1:
            raise ConfigurationError(f"Batched needs a size of 1 or more, not {self.size}")


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
        if self.max_retries < 0 or self.initial_backoff < 0 or self.max_backoff < 0 or self.backoff_multiplier <= 0:
            raise ConfigurationError("provider_retry takes no negative numbers, and a multiplier above 0")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter must be between 0 and 1, not {self.jitter:g}")

    def pause(self, retry: int, random: float) -> float:
        """Return the seconds before `retry` (from 0); `random` is a number between 0 and 1."""
        longest = min(self.initial_backoff * self.backoff_multiplier**retry, self.max_backoff)
        return longest * (1 - self.jitter + 2 * self.jitter * random)


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
        execution: How the calls of a turn run; their results are in call order whatever it says.
        timeout: Seconds for the whole loop; what is running then is cancelled, and nothing is raised.
        tool_timeout: Seconds for one run of a tool that has no timeout of its own.
        max_depth: How many loops may be nested, this one included; an inner loop can't raise it.
        on_tool_call: Asked about each call before any call of the turn runs; raising denies.
        stop_when: Asked after each response; see `stop_after`, `when_called`, `token_budget`.
        loop_detection: What to do about a model that repeats itself; None looks for nothing.
        usage_limits: What this loop and the loops inside its tools may spend together.
        provider_retry: How failed requests are repeated.
        before_tool_execution: Asked before each call with name, call id and arguments; anything but True skips it.
        after_tool_execution: Told after each call with name, call id and whether it failed.
        before_tool_execution_update: Asked before each `ToolExecutionUpdate` with name, call id and text; False
            suppresses that event, and only that.
        after_tool_execution_update: Told after each `ToolExecutionUpdate` that was not suppressed.
        on_event: Takes each event; raising changes nothing.
        stream: Whether the model is asked for its answer in pieces; None asks for them when somebody takes events.
        steering: A queue into which others write messages for the model while the loop runs.
        compaction: Asked before each request for a shorter transcript.
        hook_timeout: Seconds that an async hook may take; a guard that takes longer denies.
        cache: Where outputs of tools are kept and read again; None keeps none.
        max_output_chars: The longest text of a result that the model reads; None cuts nothing.
        keep_output: Which part of a longer text that is: its start, its end, or some of both.
        result_store: Where the whole of a longer text is kept, so that `read_result` can give it.
        name_repair: Whether a near miss of a tool's name is taken as that name.
        argument_repair: Whether malformed arguments are mended where that is no guess.
        metadata: For `ToolContext.metadata`.
        output_type: The type of the answer: it is asked for, checked, and given as `ToolLoopResult.output`.
        output_mode: ``tool`` has the model call a tool named ``final_answer``; ``native`` sets the request's
            `response_format`.
        max_output_retries: How often the model is asked again after an answer that is not of the type; then the loop
            ends without an `output`.

    Attributes:
        policy: What of this holds for every call; made here, once for all runs.
        is_plain: Whether nobody watches, guards, limits or steers such a loop; worked out here, once for all runs.
    """

    max_iterations: int = 10
    on_max_iterations: Literal["stop", "answer"] = "stop"
    execution: Execution = field(default_factory=Parallel)
    timeout: float | None = None
    tool_timeout: float | None = None
    max_depth: int | None = 3
    on_tool_call: ApprovalHook | None = None
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
    steering: Steering | None = None
    compaction: Compaction | None = None
    hook_timeout: float = 60.0
    cache: Cache | None = None
    max_output_chars: int | None = 32_000
    keep_output: Literal["head", "tail", "both"] = "both"
    result_store: ResultStore | None = None
    name_repair: bool = True
    argument_repair: bool = True
    metadata: Mapping[str, Any] = field(default_factory=_no_metadata)
    output_type: type[Out] | None = None
    output_mode: Literal["tool", "native"] = "tool"
    max_output_retries: int = 2
    policy: ExecutionPolicy = field(init=False, repr=False, compare=False)
    is_plain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, least in (
            ("max_iterations", 0),
            ("max_depth", 0),
            ("max_output_chars", 1),
            ("max_output_retries", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigurationError(f"{name} must be {least} or more, not {value}")
        if self.on_max_iterations not in ("stop", "answer"):
            raise ConfigurationError(f"on_max_iterations must be 'stop' or 'answer', not {self.on_max_iterations!r}")
        if self.output_mode not in ("tool", "native"):
            raise ConfigurationError(f"output_mode must be 'tool' or 'native', not {self.output_mode!r}")
        # A timedelta is taken too; seconds are kept.
        for name in ("timeout", "tool_timeout", "hook_timeout"):
            object.__setattr__(self, name, to_seconds(getattr(self, name), name))
        policy = ExecutionPolicy(
            tool_timeout=self.tool_timeout,
            max_output_chars=self.max_output_chars,
            keep_output=self.keep_output,
            results=self.result_store,
            name_repair=self.name_repair,
            argument_repair=self.argument_repair,
            cache=self.cache,
            before=self.before_tool_execution,
            after=self.after_tool_execution,
            approve=self.on_tool_call,
            hook_timeout=self.hook_timeout,
            metadata=self.metadata,
        )
        object.__setattr__(self, "policy", policy)
        watches = (self.on_event, self.before_tool_execution_update, self.after_tool_execution_update)
        guards = (self.before_tool_execution, self.on_tool_call, self.usage_limits)
        others = (*watches, *guards, self.steering, self.compaction, self.output_type)
        object.__setattr__(self, "is_plain", not self.stream and all(other is None for other in others))
