"""The ways in which a loop ends, and its result."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, field
from typing import Any, ClassVar, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeVar

from toolkit.chat import ChatResponse, Message, Stamped, ToolCall, UnansweredItem, Usage
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.suggestions import OtherWords

Snapshot: TypeAlias = dict[str, Any]
"""A saved loop as plain JSON: what `json.dumps` takes as it is."""

Out = TypeVar("Out", default=None)


CutStop: TypeAlias = Literal["max_tokens", "content_filter", "refusal"]
"""The reason why a reply was cut off."""

_CUT_WORDS: Mapping[str, str] = {
    "max_tokens": "the answer was cut off at the most tokens that it may have (max_tokens)",
    "content_filter": "the answer was cut off by the provider's filter (content_filter)",
    "refusal": "the answer was cut off: the model refused to go on (refusal)",
}
CUT_STOPS: Collection[str] = _CUT_WORDS.keys()


@dataclass(frozen=True, slots=True)
class Complete:
    """The model gave its answer.

    Args:
        stop: The reason why the answer was cut off; None if it is whole.
    """

    stop: CutStop | None = None
    _: KW_ONLY
    kind: Literal["complete"] = field(default="complete", repr=False)


def name_ending(kind: str, stop: str | None) -> str:
    """Return the kind of an ending, with the reason if the answer was cut off: ``complete (max_tokens)``."""
    return f"{kind} ({stop})" if stop else kind


@dataclass(frozen=True, slots=True)
class MaxIterations:
    """The limit of tool turns was reached."""

    limit: int
    _: KW_ONLY
    kind: Literal["max_iterations"] = field(default="max_iterations", repr=False)


@dataclass(frozen=True, slots=True)
class Timeout:
    """The loop exceeded its time limit in seconds; running work was cancelled."""

    limit: float
    _: KW_ONLY
    kind: Literal["timeout"] = field(default="timeout", repr=False)


@dataclass(frozen=True, slots=True)
class StopCondition:
    """`stop_when` or the caller stopped the run."""

    reason: str | None = None
    _: KW_ONLY
    kind: Literal["stop_condition"] = field(default="stop_condition", repr=False)


@dataclass(frozen=True, slots=True)
class ResultAsAnswer:
    """A tool's output is the answer."""

    call_id: str
    tool_name: str
    _: KW_ONLY
    kind: Literal["result_as_answer"] = field(default="result_as_answer", repr=False)


@dataclass(frozen=True, slots=True)
class TypedAnswer:
    """The model gave an answer of the expected type: `ToolLoopResult.output`."""

    _: KW_ONLY
    kind: Literal["typed_answer"] = field(default="typed_answer", repr=False)


@dataclass(frozen=True, slots=True)
class NoValidAnswer:
    """The model gave no answer of the expected type, after all retries.

    Args:
        problem: The problem of the last one, as the model read it.
    """

    problem: str = ""
    _: KW_ONLY
    kind: Literal["no_valid_answer"] = field(default="no_valid_answer", repr=False)


@dataclass(frozen=True, slots=True)
class MissingSteps:
    """The model answered before it had used the tools that its `ToolOrder` requires, after all retries.

    Args:
        tool_names: The tools that were not used, the next one first.
    """

    tool_names: tuple[str, ...]
    _: KW_ONLY
    kind: Literal["missing_steps"] = field(default="missing_steps", repr=False)


@dataclass(frozen=True, slots=True)
class UsageLimit:
    """A limit of the budget was reached.

    Args:
        limit: The limit that was reached.
        maximum: The amount that it allows.
        used: The amount that was used; of a `Budget`, including the reservations of active requests.
        budget: The name and owner of the budget, such as ``user ada, 2026-11-23``, if it is a `Budget` or a `RateLimit`
            of many runs; empty if it is that of this run alone.
    """

    limit: Literal["requests", "input_tokens", "output_tokens", "total_tokens", "tool_calls", "cost"]
    maximum: float
    used: float
    _: KW_ONLY
    budget: str = ""
    kind: Literal["usage_limit"] = field(default="usage_limit", repr=False)


@dataclass(frozen=True, slots=True)
class AwaitingApproval:
    """These calls await a decision before the loop can continue."""

    calls: tuple[ToolCall, ...]
    _: KW_ONLY
    kind: Literal["awaiting_approval"] = field(default="awaiting_approval", repr=False)


@dataclass(frozen=True, slots=True)
class UnansweredItems:
    """The reply has items that only the application can answer, such as a click or an approval at the vendor's.

    The other calls of the reply have run. Answer each item in a request of your own before any other request: the
    message of `ToolLoopResult.response` has them as the provider sent them.
    """

    items: tuple[UnansweredItem, ...]
    _: KW_ONLY
    kind: Literal["unanswered_items"] = field(default="unanswered_items", repr=False)


@dataclass(frozen=True, slots=True)
class Aborted:
    """An approver ended the run."""

    reason: str
    _: KW_ONLY
    kind: Literal["aborted"] = field(default="aborted", repr=False)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller cancelled the loop, or left it; `reason` is the argument of `ToolLoopHandle.cancel`."""

    reason: str | None = None

    _: KW_ONLY
    kind: Literal["cancelled"] = field(default="cancelled", repr=False)


LoopDetectionAction: TypeAlias = Literal["warn", "stop", "inject_warning", "skip"]
"""The action when a model repeats itself: emit an event; end the loop; warn the model after the results;
or answer the repeated calls without running them."""


@dataclass(frozen=True, kw_only=True)
class LoopDetected(Stamped):
    """The model repeated its calls.

    Args:
        tool_name: The tool; several that are repeated together are joined with ``+``.
        count: The number of times, including this one; of several tools, that of the most frequent one.
        action: The action taken.
        is_in_row: True if nothing else was called in between.
    """

    tool_name: str
    count: int
    action: LoopDetectionAction
    is_in_row: bool = True
    kind: Literal["loop_detected"] = field(default="loop_detected", repr=False)


TerminationReason: TypeAlias = (
    Complete
    | MaxIterations
    | Timeout
    | StopCondition
    | LoopDetected
    | ResultAsAnswer
    | TypedAnswer
    | NoValidAnswer
    | MissingSteps
    | UsageLimit
    | AwaitingApproval
    | UnansweredItems
    | Aborted
    | Cancelled
)
"""The reason why a loop ended; `Complete` if the model answered. `kind` is the tag in JSON."""


@dataclass(frozen=True, kw_only=True)
class ToolLoopResult(OtherWords, Generic[Out]):
    """The result of a loop; as a string, its answer.

    Args:
        text: The answer: the text of the last response, or the output of the tool that gave the answer.
        output: The validated answer if one of a type was expected and given; without an expected type, the object that
            a tool with ``result_as_answer=True`` returned, whose type no checker knows.
        answer_problems: With ``AnswerFormat(list[T], keep_valid=True)``: the problems of the items that are not in
            `output`, a sentence each, with the place in the list of the model.
        response: The last response; None when the model never answered.
        messages: The whole transcript, which is valid: each call has its result.
        usage: The sum over all requests.
        iterations: The number of times that the model was asked.
        tool_rounds: The number of turns that ran tools.
        reason: The reason why the loop ended.
        snapshot: If the loop awaits approval: plain JSON for `ToolLoopHandle.restore`.
    """

    text: str
    output: Out | None = None
    answer_problems: tuple[str, ...] = ()
    response: ChatResponse | None = field(repr=False)
    messages: list[Message] = field(repr=False)  # so that a repr does not grow with it
    usage: Usage
    iterations: int
    tool_rounds: int
    reason: TerminationReason
    snapshot: Snapshot | None = field(default=None, repr=False)

    __other_words__: ClassVar[Mapping[str, str]] = {
        "all_messages": ".messages",
        "content": ".text",
        "data": ".output",
        "final_output": ".text, or .output where an answer of a type was asked for",
        "new_messages": ".messages",
        "stop_reason": ".response.stop_reason for the last reply, or .reason for the run",
        "termination_reason": ".reason",
        "total_usage": ".usage",
    }

    def __str__(self) -> str:
        """Return the answer, with a note if it was cut off."""
        return "\n\n".join([part for part in (self.text, self.cut_notice and f"[{self.cut_notice}]") if part])

    @property
    def ending(self) -> str:
        """The kind of its reason in a line, with how the answer was cut off: ``complete (max_tokens)``."""
        return name_ending(self.reason.kind, self.reason.stop if isinstance(self.reason, Complete) else None)

    @property
    def cut_notice(self) -> str:
        """How the answer was cut off, for people and models; empty if it is whole, or is no reply in words."""
        if self.response is None or isinstance(self.reason, (ResultAsAnswer, TypedAnswer)):
            return ""
        return _CUT_WORDS.get(self.response.stop_reason, "")

    def require_output(self) -> Out:
        """Return the answer of the expected type.

        Raises:
            LoopUsageError: The loop ended without one; it carries the transcript.
        """
        if not isinstance(self.reason, TypedAnswer):
            error = LoopUsageError(f"the loop ended without an answer of its type: {self.reason!r}")
            error.messages = tuple(self.messages)
            raise error
        return cast("Out", self.output)


@dataclass(frozen=True, slots=True)
class Completed(Generic[Out]):
    """The loop has ended."""

    result: ToolLoopResult[Out]

    @property
    def response(self) -> ChatResponse | None:
        """The last response."""
        return self.result.response

    @property
    def reason(self) -> TerminationReason:
        """Why it ended."""
        return self.result.reason
