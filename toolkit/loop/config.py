"""The settings of a loop, with safe defaults; the checks of its prompt; and its steering queue."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, field, fields, replace
from functools import partial
from string import Formatter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    overload,
)

from typing_extensions import TypedDict, TypeForm, TypeVar

from toolkit.backoff import backoff_pause
from toolkit.calls.approval import Approval
from toolkit.calls.output import READER
from toolkit.calls.policy import CallConfig, ExecutionPolicy
from toolkit.calls.registration import Ctx
from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    Message,
    SystemMessage,
    ToolResult,
    UserMessage,
    repair_transcript,
    validate_transcript,
)
from toolkit.chat.request import SAMPLING_OPTIONS
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, TranscriptError
from toolkit.json_text import write_json
from toolkit.logs import get_logger
from toolkit.loop.journal import Journal
from toolkit.loop.limits import LoopDetectionConfig, StopWhen, UsageLimits
from toolkit.loop.listener import EventHook, hook_may_wait
from toolkit.loop.middleware import Middleware, check_middleware
from toolkit.loop.outcome import Out, Snapshot
from toolkit.settings import (
    FUNCTION,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seconds,
    Settings,
    ZeroToOne,
    check_fields,
    check_setting,
    describe_value,
)
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import ToolRegistry

Wanted = TypeVar("Wanted")


class Steering:
    """Messages for the model of a running loop, written from anywhere: another task, a thread, a tool.

    ::

        steering = Steering()
        config = ToolLoopConfig(steering=steering)
        steering.steer("Stop, that is the wrong list!")  # while the loop runs, from another task or thread

    A steered message is read between the units of execution: calls that have not started are skipped and answered, and
    the message follows the results. A follow-up waits until the loop would end, and opens another turn. Messages that
    did not reach the transcript before the loop ended stay in the queue for the next one: no message is lost.
    """

    __slots__ = ("_follow_ups", "_steered")

    def __init__(self) -> None:
        self._steered: deque[Message] = deque()
        self._follow_ups: deque[Message] = deque()

    def steer(self, message: str | Message) -> None:
        """Interrupt the loop: the model reads the message before any further call runs.

        Raises:
            TranscriptError: It is no message of its own, such as a result without its call.
        """
        self._steered.append(_as_message(message))

    def follow_up(self, message: str | Message) -> None:
        """Add a message for the moment when the loop would end.

        Raises:
            TranscriptError: As for `steer`.
        """
        self._follow_ups.append(_as_message(message))

    @property
    def is_empty(self) -> bool:
        """True if no message is queued."""
        return not self._steered and not self._follow_ups

    def put_back(self, messages: Sequence[Message]) -> None:
        """Return steered messages that no model has read to the head of the queue."""
        self._steered.extendleft(reversed(messages))

    def take_steered(self) -> list[Message]:
        """Remove and return all steered messages."""
        return _drain_queue(self._steered)

    def take_follow_up(self) -> list[Message]:
        """Remove and return the next follow-up, as a list of at most one."""
        return [self._follow_ups.popleft()] if self._follow_ups else []

    def take_unlogged(self) -> list[str]:
        """Return, once, the keys that the log of a run needs of the messages taken since the last call; none here."""
        return []


def _as_message(message: str | Message) -> Message:
    if isinstance(message, str):
        return UserMessage(message)
    validate_transcript([message])
    return message


def _drain_queue(queue: deque[Message]) -> list[Message]:
    taken: list[Message] = []
    # Other threads may append meanwhile: popleft is atomic, unlike a copy that is cleared.
    while queue:
        taken.append(queue.popleft())
    return taken


@dataclass(frozen=True, slots=True)
class Sequential:
    """Run calls one after another, in call order."""

    unit_size: ClassVar[int] = 1
    limit: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Parallel(Settings):
    """Run all calls of a turn at once, or at most `limit` of them."""

    unit_size: ClassVar[int] = 0
    limit: PositiveInt | None = None

    def __post_init__(self) -> None:
        check_fields(self, "the {} of Parallel")


@dataclass(frozen=True, slots=True)
class Batched(Settings):
    """Run calls in groups of `size`; a group starts when the previous one has ended."""

    limit: ClassVar[None] = None
    size: PositiveInt

    @property
    def unit_size(self) -> int:
        """The number of calls that start together; 0 for all."""
        return self.size

    def __post_init__(self) -> None:
        check_fields(self, "the {} of Batched")


Execution: TypeAlias = Sequential | Parallel | Batched
"""The order in which the calls of a turn run: one after another, at once, or in batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRetryConfig(Settings):
    """How often a failed request to the model is repeated, if its error is retryable.

    The pause before retry ``n`` (from 0) is ``min(initial_backoff * backoff_multiplier**n, max_backoff)`` times a
    random factor between ``1 - jitter`` and ``1 + jitter``, or the server's Retry-After if that is longer. A server
    that asks for more than `max_backoff` seconds is not waited for: the error is raised, with its `retry_after`.

    Args:
        max_retries: The number of retries; 0 disables them.
        initial_backoff: Seconds before the first retry.
        max_backoff: The maximum pause in seconds.
        backoff_multiplier: The ratio of each pause to the previous one.
        jitter: The relative deviation of a pause, from 0 to 1.
    """

    max_retries: NonNegativeInt = 3
    initial_backoff: NonNegativeFloat = 1.0
    max_backoff: NonNegativeFloat = 30.0
    backoff_multiplier: NonNegativeFloat = 2.0
    jitter: ZeroToOne = 0.2

    def __post_init__(self) -> None:
        check_fields(self)

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
"""The name of the tool that a model calls to answer."""

Compaction: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""Returns a shorter transcript, or the same; must not change the one that it is passed."""


Instructions: TypeAlias = Callable[[Any], str | Awaitable[str | None] | None]
"""A function of the context that returns the instructions for the next turn, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits(Settings):
    """The limits of a run, except for that of its turns (`max_iterations`).

    Args:
        usage: The limits on the total usage of this loop and the loops inside its tools; None sets no limit.
        calls_per_turn: The maximum number of calls of one reply that run; the others are answered "not run"; None runs
            all. A reply of more than 2,000 calls is an error, unless this number is larger.
    """

    usage: UsageLimits | None = None
    calls_per_turn: PositiveInt | None = 128

    def __post_init__(self) -> None:
        check_fields(self, "limits.{}")


AnswerCheck: TypeAlias = Callable[[Any], Any] | Callable[[Any, Any], Any]
"""Validates an answer: ``check(answer)`` or ``check(ctx, answer)``, sync or async; returns the final answer."""


@dataclass(frozen=True, slots=True)
class AnswerFormat(Settings, Generic[Out]):
    """The form of the answer: a value of a type, the call of a function, or a text that is passed to a tool.

    With ``AnswerFormat(Model)`` the answer is validated, and is `ToolLoopResult.output`. With functions, such as
    ``AnswerFormat([book, refuse])``, the model ends the run by calling one of them, and the output is its return value.
    With ``AnswerFormat()`` the answer is a text, the argument of a call of ``final_answer``: a model that replies in
    words instead is asked to continue, and these words are not the answer. The reason is `ResultAsAnswer`.

    Args:
        type: The type, also a union such as ``A | B`` or a ``Literal``; or the functions of which the model calls one,
            plain ones or tools; omitted for text.
        check: Validates an answer of the type: ``check(answer)`` or ``check(ctx, answer)``, sync (in a worker thread)
            or async. It returns the answer, or a replacement; the model reads the message of a `ToolError` that it
            raises. Any other exception, and exceeding ``timeouts.tool``, also counts as a wrong answer.
        mode: ``tool`` has the model call a tool named ``final_answer``; ``native`` sets the request's
            `response_format`, and needs a type.
        max_retries: How often the model is asked again after a reply without a valid answer: one in words, a wrong
            call of ``final_answer``, or one that the check refused; then the loop ends as `NoValidAnswer`, without an
            `output`.
        forces_calls: True sets ``tool_choice="required"`` in each request, so that the model can't reply in words if
            its server complies. It is off by default, since some models can't reason when they are forced.
        keep_valid: For a list: True accepts the valid items, if there are any, and reports the problems of the others
            as `ToolLoopResult.answer_problems`; by default one wrong item makes the answer invalid.

    Attributes:
        functions: The functions as tools.
        tool_names: The tools that the model calls to answer; none in mode ``native``.
    """

    type: TypeForm[Out] = cast("TypeForm[Out]", None)
    _: KW_ONLY
    check: AnswerCheck | None = None
    mode: Literal["tool", "native"] = "tool"
    max_retries: NonNegativeInt = 2
    forces_calls: bool = False
    keep_valid: bool = False
    functions: tuple[FunctionTool[Any, ..., Any], ...] = field(default=(), init=False, repr=False, compare=False)
    tool_names: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: AnswerFormat[None],
            *,
            mode: Literal["tool"] = "tool",
            max_retries: int = 2,
            forces_calls: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self,
            type: TypeForm[Wanted],
            *,
            check: Callable[[Wanted], Awaitable[Out]] | Callable[[Any, Wanted], Awaitable[Out]],
            mode: Literal["tool", "native"] = "tool",
            max_retries: int = 2,
            forces_calls: bool = False,
            keep_valid: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self,
            type: TypeForm[Wanted],
            *,
            check: Callable[[Wanted], Out] | Callable[[Any, Wanted], Out],
            mode: Literal["tool", "native"] = "tool",
            max_retries: int = 2,
            forces_calls: bool = False,
            keep_valid: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self,
            type: Sequence[Callable[..., Awaitable[Out]]],
            *,
            mode: Literal["tool"] = "tool",
            max_retries: int = 2,
            forces_calls: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self,
            type: Sequence[Callable[..., Out | Awaitable[Out]]],
            *,
            mode: Literal["tool"] = "tool",
            max_retries: int = 2,
            forces_calls: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self,
            type: TypeForm[Out],
            *,
            mode: Literal["tool", "native"] = "tool",
            max_retries: int = 2,
            forces_calls: bool = False,
            keep_valid: bool = False,
        ) -> None: ...
        def __init__(  # pyright: ignore[reportInconsistentConstructor]
            self,
            type: Any = None,  # noqa: A002 - the name of the field
            *,
            check: Callable[..., Any] | None = None,
            mode: Literal["tool", "native"] = "tool",
            max_retries: int = 2,
            forces_calls: bool = False,
            keep_valid: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_fields(self, "answer.{}")
        given: object = self.type
        kind: object = get_args(given)[0] if get_origin(given) is Annotated else given
        if isinstance(given, (list, tuple)):
            functions = _read_functions(cast("Sequence[object]", given), self)
            object.__setattr__(self, "functions", functions)
        if self.mode == "native" and (not self.has_type or self.forces_calls):
            wrong = "needs a type" if not self.has_type else "is no call, and forces_calls would never let it come"
            raise ConfigurationError(f"an answer in mode='native' {wrong}: use AnswerFormat(mode='tool')")
        if self.check is not None and not self.has_type:
            raise ConfigurationError("check judges an answer of a type: give the type, such as AnswerFormat(str, ...)")
        if self.keep_valid and get_origin(kind) is not list:
            raise ConfigurationError("keep_valid is for a list: give its type, such as AnswerFormat(list[Item], ...)")
        if self.mode == "tool":
            names = tuple([tool.definition.name for tool in self.functions])
            object.__setattr__(self, "tool_names", names or (ANSWER_TOOL,))

    @property
    def has_type(self) -> bool:
        """True if the answer is of a type, and no plain text."""
        return cast("object", self.type) is not None


def _read_functions(given: Sequence[object], answer: AnswerFormat[Any]) -> tuple[FunctionTool[Any, ..., Any], ...]:
    """Return the functions that the model calls to answer, as tools."""
    if not given or not all(map(callable, given)):
        raise ConfigurationError(
            "a list as the answer's type names the functions of which the model calls one, such as [book, refuse]; "
            "for one of several types write a union, such as A | B"
        )
    if answer.mode == "native" or answer.check is not None:
        what = "mode='native'" if answer.mode == "native" else "check"
        raise ConfigurationError(
            f"functions as answers are called, and judge by themselves: leave {what} out, and raise a ToolError"
        )
    functions = tuple([_read_function(each) for each in cast("Sequence[Callable[..., Any]]", given)])
    names = [tool.definition.name for tool in functions]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two functions of the answer are named '{name}': give one another name")
    return functions


def _read_function(function: Callable[..., Any]) -> FunctionTool[Any, ..., Any]:
    if isinstance(function, FunctionTool):
        return cast("FunctionTool[Any, ..., Any]", function)
    if isinstance(function, type):
        raise ConfigurationError(
            f"{function.__name__} in the list of AnswerFormat is a class: write a union of types, such as A | B, or "
            "a function that returns one"
        )
    return tool_from_function(function)


# Arguments that are often passed under another name, or at another level.
_BESIDE_THE_CONFIG: Mapping[str, str] = {
    "system": "system_prompt=...",
    "system_message": "system_prompt=...",
    "instructions": "system_prompt=..., or config=ToolLoopConfig(instructions=(...,)) for what each turn changes",
    "context": "ctx=...",
    "deps": "ctx=...",
    "messages": "them in place of the prompt",
    "snapshot": "it in place of the prompt",
    "tools": "ChatRequest(messages=..., tools=...) in place of the prompt, or a scope of the registry",
    "model": "it into the provider, such as OpenAIProvider('gpt-5')",
}
_OTHER_SPELLINGS: Mapping[str, str] = {
    "approve": "on_tool_call=...",
    "approver": "on_tool_call=...",
    "after_tool_execution": "middleware=(ToolExecutionHooks(after=...),)",
    "approval_timeout": "timeouts=Timeouts(approval=...)",
    "before_tool_execution": "middleware=(ToolExecutionHooks(before=...),)",
    "event_handler": "on_event=...",
    "hook_timeout": "timeouts=Timeouts(hook=...)",
    "max_steps": "max_iterations=...",
    "max_turns": "max_iterations=...",
    "max_output_chars": "output=OutputLimits(max_chars=...)",
    "on_approval": "on_tool_call=...",
    "order": "middleware=(ToolOrder(...),)",
    "output_type": "answer=AnswerFormat(...)",
    "parallel_tool_execution": "execution=Parallel() or execution=Sequential()",
    "retry": "provider_retry=ProviderRetryConfig(...), or retry=ToolRetryConfig(...) of a tool",
    "steered_retries": "middleware=(SteeredRetries(...),)",
    "tool_timeout": "timeouts=Timeouts(tool=...)",
    "usage_limits": "limits=LoopLimits(usage=UsageLimits(...))",
}


def explain_loop_keyword(name: str) -> str:
    """Return the replacement for a keyword that a loop does not take; empty if none is known."""
    if name in _BESIDE_THE_CONFIG:
        return _BESIDE_THE_CONFIG[name]
    if name in {field.name for field in fields(ChatRequest)}:
        return f"ChatRequest(messages=..., {name}=...) in place of the prompt"
    if name in SAMPLING_OPTIONS:
        return f"config=ToolLoopConfig(request_options={{'{name}': ...}})"
    return f"config=ToolLoopConfig({_OTHER_SPELLINGS[name]})" if name in _OTHER_SPELLINGS else ""


def explain_setting(name: str) -> str:
    """Return the replacement for a keyword that `ToolLoopConfig` does not take; empty if none is known."""
    if name in _OTHER_SPELLINGS:
        return _OTHER_SPELLINGS[name]
    if name in SAMPLING_OPTIONS:
        return f"request_options={{'{name}': ...}}"
    advice = f"{name}=..." if name in ("ctx", "system_prompt", "decisions") else explain_loop_keyword(name)
    return f"{advice} beside config=..." if advice.endswith("=...") else advice


Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Returns a vector for each text; runs in a worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearch(Settings):
    """How a model finds deferred tools if its vendor has no search for them, or if there is an embedding.

    Args:
        most: The number of tools that one search finds.
        embed: A function that returns vectors of texts, whose similarity counts in addition to the words; None counts
            words alone. With an embedding the search is ours for every vendor.
    """

    most: PositiveInt = 5
    embed: Embed | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLoopConfig(CallConfig, Generic[Out]):
    """How a loop runs.

    ::

        config = ToolLoopConfig(max_iterations=20, timeout=60, on_tool_call=approve)
        result = await tool_loop(provider, registry, "Tidy up.", config=config)

    Args:
        max_iterations: The maximum number of turns that run tools; then the loop ends as `MaxIterations`.
        on_max_iterations: ``stop`` ends with the last response; ``answer`` asks once more, without tools.
        execution: How the calls of a turn run; their results are always in call order.
        timeout: Seconds for the whole loop; running calls and requests are cancelled then, and nothing is raised.
        max_depth: The maximum number of nested loops, including this one; an inner loop can't raise it.
        stop_when: Asked after each response; see `stop_after`, `when_called`, `token_budget`.
        loop_detection: How a model that repeats itself is detected and handled; None detects no repetition.
        limits: The limits of the usage and of the calls of a reply.
        answer: The form of the answer; None accepts a reply in words.
        provider_retry: How failed requests are retried.
        middleware: The middleware around runs, requests and calls; the first is the outermost.
        on_event: Receives each event; an exception is logged and changes nothing.
        stream: True streams the replies of the model; None streams them if somebody receives events.
        keep_partial: True keeps the text of an interrupted reply in the transcript, as a message without calls: of a
            stream that was left, cancelled, timed out or broken, the text that its reader has seen.
        steering: A queue of messages that others send to the model while the loop runs.
        compaction: Called before each request for a shorter transcript, and once more if the model refuses that as too
            long; if it does not shorten such a transcript, the older half is left out.
        tool_search: How the model finds tools with ``defer=True`` if its vendor has no search for them.
        signing_key: A secret of the application that seals its snapshots and the entries of its journal, such as 32
            random bytes: those without its seal are not restored. Without a key a snapshot or a journal is only as
            trustworthy as its store: anyone who can write there can have any tool called with any arguments.
        binds_descriptions: True voids a decision on a call when the description of its tool or parameters changes. By
            default it is bound to the call's turn, tool, schema and arguments, so that a corrected docstring does not
            void pending decisions.
        request_options: Merged into the `ChatRequest.options` of each request, by name. A snapshot has ``***`` in place
            of secrets among the options (by their names, and all headers and query values): give them here to restore.
        instructions: Functions of the context, which may be async: called before each turn, for a text that the model
            reads last, after the transcript, and that is not part of it. So instructions that change leave the
            beginning of the request unchanged, and the server's cache of it valid. None and an empty text add nothing.
        journal: The log of a durable run: a run that is started again with it resumes where it ended, and runs no call
            twice; see `toolkit.durable`. None makes a run that is not durable.

    The settings of calls are those of `CallConfig`: `on_tool_call`, `timeouts`, `output`, `cache` and others.

    Attributes:
        policy: The settings for every call; made once for all runs.
        on_event_may_wait: True if `on_event` may return an awaitable.
    """

    max_iterations: NonNegativeInt = 10
    on_max_iterations: Literal["stop", "answer"] = "stop"
    execution: Execution = field(default_factory=Parallel)
    timeout: Seconds | None = None
    max_depth: NonNegativeInt | None = 3
    stop_when: StopWhen | None = None
    loop_detection: LoopDetectionConfig | None = None
    limits: LoopLimits = field(default_factory=LoopLimits)
    answer: AnswerFormat[Out] | None = None
    provider_retry: ProviderRetryConfig = field(default_factory=ProviderRetryConfig)
    on_event: EventHook | None = None
    stream: bool | None = None
    keep_partial: bool = False
    steering: Steering | None = None
    compaction: Compaction | None = None
    tool_search: ToolSearch = field(default_factory=ToolSearch)
    signing_key: str | bytes | None = field(default=None, repr=False)
    binds_descriptions: bool = False
    request_options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    instructions: Sequence[Instructions] = ()
    middleware: Sequence[Middleware[Any]] = ()
    journal: Journal | None = None
    policy: ExecutionPolicy = field(init=False, repr=False, compare=False)
    on_event_may_wait: bool = field(default=False, init=False, repr=False, compare=False)

    __explain_keyword__ = staticmethod(explain_setting)

    @property
    def asks_by_tool(self) -> bool:
        """True if the model calls a tool to answer."""
        return bool(self.answer_tools)

    @property
    def answer_tools(self) -> tuple[str, ...]:
        """The names of the tools that the model calls to answer."""
        return () if self.answer is None else self.answer.tool_names

    def __post_init__(self) -> None:
        CallConfig.__post_init__(self)  # checks the fields of both
        if self.signing_key is not None and not self.signing_key:
            raise ConfigurationError("signing_key is empty: give a secret, such as 32 random bytes, or None")
        if self.max_iterations == 0 and self.on_max_iterations == "stop":
            raise ConfigurationError(
                "max_iterations=0 would end the loop before the model is asked: give 1 or more, or "
                "on_max_iterations='answer' for one answer without tools; there is no value for 'no limit'"
            )
        object.__setattr__(self, "middleware", check_middleware(self.middleware))
        if inspect.iscoroutinefunction(self.stop_when):
            raise ConfigurationError("stop_when must not be async: it only looks at what is there, and nothing waits")
        object.__setattr__(self, "policy", ExecutionPolicy(config=self))
        object.__setattr__(self, "on_event_may_wait", self.on_event is not None and hook_may_wait(self.on_event))


DEFAULT_CONFIG: ToolLoopConfig[Any] = ToolLoopConfig()
"""The default settings."""


_logger = get_logger("toolkit.loop")

Prompt: TypeAlias = str | Sequence[Message] | ChatRequest | Snapshot
"""The start of a loop: a question, a transcript, a request with its settings, or a saved loop."""

Decisions: TypeAlias = Mapping[str, Approval | bool | str]
"""The decisions on the calls of a snapshot, by call id; each is valid for the call as it is pending there."""


SystemPrompt: TypeAlias = str | Callable[[Ctx], str | Awaitable[str]]
"""A text, or a function of the context that returns one; see `LoopOptions`."""


class LoopOptions(TypedDict, Generic[Out, Ctx], total=False):
    """The keywords of every view of a loop, beside its context."""

    config: ToolLoopConfig[Out] | None
    """The settings; by default `ToolLoopConfig()`."""

    system_prompt: SystemPrompt[Ctx]
    """The first message; it replaces a system prompt that the transcript begins with. By default there is none.

    A function of the context, which may be async, is called once, when the run begins; a snapshot has its text.
    """

    decisions: Decisions | None
    """With a snapshot: the decisions on the pending calls, by their ids; by default there are none."""


def check_parts(provider: object, registry: object, prompt: object, config: object) -> None:
    """Check the types of the arguments of a loop.

    Raises:
        ConfigurationError: One is of another type; the message says what would fit.
    """
    if isinstance(provider, type) or not (hasattr(provider, "generate") and hasattr(provider, "stream")):
        raise ConfigurationError(
            "the provider of a loop must be an object with 'generate' and 'stream', such as OpenAIProvider('gpt-5') or "
            f"provider_for('openai:gpt-5'), not {describe_value(provider)}"
        )
    if not isinstance(registry, ToolRegistry):
        check_setting("the registry of a loop", registry, ToolRegistry)
    if not isinstance(prompt, (str, dict)):  # a dict is a snapshot
        check_setting("what a loop starts from", prompt, str, Sequence, ChatRequest)
    if config is None:
        return
    if not isinstance(config, ToolLoopConfig):
        check_setting("the config of a loop", config, ToolLoopConfig, None)
        return
    limits = config.limits.usage
    if limits is not None and limits.cost is not None and not getattr(provider, "reports_cost", True):
        raise ConfigurationError(
            f"UsageLimits(cost={limits.cost:g}) would limit nothing: {provider!r} never reports the cost of a reply; "
            "wrap it in toolkit.providers.PricedProvider, or limit total_tokens instead"
        )


def check_keywords(misspelled: Iterable[str]) -> None:
    """Refuse keywords that a loop does not take.

    Raises:
        ConfigurationError: There is one; the message says what to write instead.
    """
    for name in misspelled:
        advice = explain_loop_keyword(name)
        if name in {field.name for field in fields(ToolLoopConfig) if field.init}:
            right = f"it is a setting, config=ToolLoopConfig({name}=...)"
        elif advice:
            right = f"write {advice}"
        else:
            right = ask_whether_meant(find_similar(name, KEYWORDS, most=1)) or f"it takes {', '.join(KEYWORDS)}"
        raise ConfigurationError(f"a loop takes no '{name}': {right}")


KEYWORDS = ("ctx", "config", "system_prompt", "decisions")
"""The keywords of every view of a loop."""


def check_places(misplaced: Sequence[object]) -> None:
    """Refuse positional arguments after the prompt.

    Raises:
        ConfigurationError: Always; the message says how to pass them.
    """
    first, given = misplaced[0], describe_value(misplaced[0])
    name = "config" if isinstance(first, ToolLoopConfig) else "ctx"
    raise ConfigurationError(
        f"what comes after the prompt is given by name, such as {name}=..., not {given} by its place"
    )


def check_messages(name: str, messages: object) -> None:
    """Refuse a message or a text in place of a list of messages.

    Raises:
        ConfigurationError: It is one.
    """
    if isinstance(messages, (str, SystemMessage, UserMessage, AssistantMessage, ToolResult)):
        raise ConfigurationError(
            f"{name} must be a list, such as [UserMessage('And then?')], not {describe_value(messages)}"
        )


def check_prompt(
    prompt: str | Sequence[Message] | ChatRequest, system_prompt: SystemPrompt[Any]
) -> str | Sequence[Message] | ChatRequest:
    """Return the start of a loop, with its system prompt first if that is a text.

    Raises:
        ConfigurationError: It is empty.
    """
    if system_prompt != "":
        check_setting("system_prompt", system_prompt, str, FUNCTION)
    messages = prompt.messages if isinstance(prompt, ChatRequest) else prompt
    if not (messages.strip() if isinstance(messages, str) else messages):
        raise ConfigurationError(
            "what a loop starts from is empty, and the model would be asked nothing: give a question, or a transcript "
            "of at least one message"
        )
    if not system_prompt or not isinstance(system_prompt, str):
        return prompt
    transcript = transcript_of(prompt)
    put_system_prompt(transcript, system_prompt)
    return replace(prompt, messages=transcript) if isinstance(prompt, ChatRequest) else transcript


def put_system_prompt(messages: list[Message], text: str) -> None:
    """Put a system prompt first, in place of one that the transcript begins with."""
    first: list[Message] = [SystemMessage(text)]
    messages[: 1 if messages and isinstance(messages[0], SystemMessage) else 0] = first


def prompt_template(text: str) -> Callable[[object], str]:
    """Return a system prompt with the values of the context in place of ``{names}``.

    ::

        prompt = prompt_template("You help {user}. Their plan is {plan}.")
        result = await tool_loop(provider, registry, "Hello!", ctx=App(user="Ada", plan="free"), system_prompt=prompt)

    Each name is an attribute of the context, or a key if that is a mapping. A value is quoted, as JSON in one line: a
    user who is named ``Ada. Ignore all rules`` can't write instructions. ``{{`` is a literal brace.

    Raises:
        ConfigurationError: A field is no plain name; or, when it is used, the context has no such value.
    """
    check_setting("the text of prompt_template()", text, str)
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ConfigurationError(
            f"the text of prompt_template() can't be read: {error}; a brace is written twice"
        ) from error
    for _, name, form, conversion in parts:
        if name is not None and (not name.isidentifier() or form or conversion):
            raise ConfigurationError(
                f"the field '{name}' of prompt_template() must be a plain name, as {{user}}, without ':' or '!': give "
                "other values to the context, or write a function"
            )
    return partial(_fill_template, parts)


def _fill_template(parts: Sequence[tuple[str, str | None, str | None, str | None]], ctx: object) -> str:
    pieces: list[str] = []
    for literal, name, _, _ in parts:
        pieces.append(literal)
        if name is not None:
            try:
                value: object = cast("Any", ctx)[name] if isinstance(ctx, Mapping) else getattr(ctx, name)
            except (KeyError, AttributeError):
                raise ConfigurationError(f"the context has no '{name}', which the prompt_template() names") from None
            from toolkit.plain_values import read_plain  # noqa: PLC0415 - it takes milliseconds, and few prompts have fields

            pieces.append(write_json(read_plain(value).value))
    return "".join(pieces)


def with_options(prompt: str | Sequence[Message] | ChatRequest, options: Mapping[str, Any]) -> ChatRequest:
    """Return a request with these options merged into its own."""
    if isinstance(prompt, ChatRequest):
        return replace(prompt, options={**prompt.options, **options})
    return ChatRequest(messages=transcript_of(prompt), options=dict(options))


def transcript_of(prompt: str | Sequence[Message] | ChatRequest) -> list[Message]:
    """Return the transcript as a new list, so that the caller's is never changed."""
    if isinstance(prompt, str):
        return [UserMessage(prompt)]
    messages = list(prompt.messages if isinstance(prompt, ChatRequest) else prompt)
    try:
        validate_transcript(messages)
    except TranscriptError as error:
        repaired = repair_transcript(messages)
        _logger.warning("the transcript handed in is not valid and was repaired: %s", error)
        return repaired
    return messages


def warn_of_unmatched_names(registry: ToolRegistry[Any], config: ToolLoopConfig[Any], run_id: str) -> None:
    """Warn of rules, tags and tool names that match no tool: most are misspelled, and have no effect."""
    for finding in registry.findings.unmatched:
        _logger.warning("run %s: %s", run_id, finding)
    if config.loop_detection is not None and config.loop_detection.exempt:
        known = (*registry.names, *registry.hidden_names, *(config.answer_tools or (ANSWER_TOOL,)), READER)
        for name in config.loop_detection.exempt:
            if name not in known:
                meant = ask_whether_meant(find_similar(name, known, most=1))
                _logger.warning("run %s: loop_detection exempts '%s', which is no tool; %s", run_id, name, meant)
