"""One task with one model: run as an application would, then judged by what was called and what was answered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from toolkit.calls.approval import Approve
from toolkit.chat import ChatRequest, Message, Provider, SystemMessage, UserMessage
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import LoopError, ProviderError
from toolkit.evaluation.judging import FailureReason, is_expected, judge_answer
from toolkit.evaluation.tasks import EvaluationTask
from toolkit.events import LoopEvent, ToolCallRefused, ToolExecutionStart
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.middleware import CallInfo, CallProceed, Middleware
from toolkit.loop.run import tool_loop
from toolkit.secrets import without_keys
from toolkit.settings import PositiveInt, Seconds, ZeroToOne, check_fields
from toolkit.tools.registry import ToolRegistry

__all__ = ["Trial", "TrialSettings", "run_trial"]

_OTHER_RESULT = "Done."
_LONGEST_KEPT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """How each task is run.

    Args:
        temperature: 0 for answers that repeat; None leaves it to the provider, as some models take no other.
        seed: For providers that can repeat themselves.
        max_tokens: The most that a reply may have; a model that rambles is cut off there.
        max_turns: How often the model may call tools before it must have answered.
        timeout: Seconds for one task.
        runs_tools: True where tools run; else each call is answered by what the task says it returns.
        name_repair: As for a loop.
        argument_repair: As for a loop.
    """

    temperature: ZeroToOne | None = 0
    seed: int | None = 1
    max_tokens: PositiveInt = 256
    max_turns: PositiveInt = 5
    timeout: Seconds = 120.0
    runs_tools: bool = False
    name_repair: bool = True
    argument_repair: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a task.

    Args:
        task: The id of the task.
        kind: The class of the task.
        reason: Why it is not solved; empty where it is.
        calls: The calls that ran: the name of the tool, and its arguments as JSON.
        refused: The texts that the model was given about calls that did not run.
        answer: The last text of the model, its beginning.
        requests: How often the model was asked by the loop.
        input_tokens: All tokens that it read, as far as the provider tells.
        output_tokens: All tokens that it wrote.
        cached_tokens: Of the input, those that came from a cache.
        seconds: How long it took.
        error: The message of a request that failed.
        is_unreachable: True where it failed in a way that may pass: such an outcome says nothing about the model.
    """

    task: str
    kind: str
    reason: FailureReason = ""
    calls: tuple[tuple[str, Any], ...] = ()
    refused: tuple[str, ...] = ()
    answer: str = ""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    is_unreachable: bool = False

    @property
    def is_solved(self) -> bool:
        """True where the right calls ran and the answer says what it must."""
        return not self.reason


async def run_trial(
    task: EvaluationTask,
    provider: Provider,
    registry: ToolRegistry[Any],
    settings: TrialSettings,
    *,
    instructions: str = "",
    returns: Mapping[str, str] | None = None,
) -> Trial:
    """Run a task once and judge it. What the model or its server does wrong is in the outcome, never raised.

    Args:
        task: The task.
        provider: The model.
        registry: The tools that it is offered.
        settings: How the task is run.
        instructions: The system prompt; empty for none.
        returns: By tool, the result of a call that the task does not name, where tools are not run.
    """
    notes = _TrialNotes()
    began = time.monotonic()
    messages: list[Message] = [SystemMessage(instructions)] if instructions else []
    request = ChatRequest(
        messages=[*messages, UserMessage(task.prompt)],
        temperature=settings.temperature,
        seed=settings.seed,
        max_tokens=settings.max_tokens,
    )
    stand_in = None if settings.runs_tools else _StandIn(task, returns or {}, registry)
    config = _make_config(settings, notes, stand_in)
    try:
        result = await tool_loop(provider, registry, request, config=config)
    except (ProviderError, LoopError) as error:
        is_unreachable = isinstance(error, ProviderError) and error.is_retryable
        return notes.make_trial(
            task,
            "the request failed",
            began,
            error=without_keys(str(error))[:_LONGEST_KEPT],
            is_unreachable=is_unreachable,
        )
    notes.answer = "" if result.response is None or result.response.tool_calls else result.text
    usage = result.usage
    is_late = result.reason.kind == "timeout"
    reason = "out of time" if is_late else judge_answer(task, notes.calls, notes.refused, notes.answer, registry)
    return notes.make_trial(
        task,
        reason,
        began,
        requests=result.iterations,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens or 0,
    )


@dataclass(slots=True)
class _TrialNotes:
    """The notes taken while a task runs."""

    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    refused: list[str] = field(default_factory=list[str])
    answer: str = ""

    def take_event(self, event: LoopEvent) -> None:
        if isinstance(event, ToolExecutionStart):
            self.calls.append((event.tool_name, json.loads(event.arguments_json)))
        elif isinstance(event, ToolCallRefused):
            self.refused.append(event.result.text)

    def make_trial(self, task: EvaluationTask, reason: FailureReason, began: float, **more: Any) -> Trial:
        return Trial(
            task=task.id,
            kind=task.kind,
            reason=reason,
            calls=tuple(self.calls),
            refused=tuple(text[:_LONGEST_KEPT] for text in self.refused),
            answer=self.answer[:_LONGEST_KEPT],
            seconds=round(time.monotonic() - began, 3),
            **more,
        )


def _make_config(settings: TrialSettings, notes: _TrialNotes, stand_in: _StandIn | None) -> ToolLoopConfig[None]:
    return ToolLoopConfig(
        max_iterations=settings.max_turns,
        timeout=settings.timeout,
        on_event=notes.take_event,
        stream=False,
        name_repair=settings.name_repair,
        argument_repair=settings.argument_repair,
        on_tool_call=None if stand_in is None else _approve_call,
        middleware=() if stand_in is None else (stand_in,),
    )


async def _approve_call(request: object) -> Approve:  # nothing runs
    del request
    return Approve()


class _StandIn(Middleware[Any]):
    """Answers calls in the place of the tools."""

    def __init__(self, task: EvaluationTask, returns: Mapping[str, str], registry: ToolRegistry[Any]) -> None:
        self._task, self._returns, self._registry = task, returns, registry

    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        del proceed
        made = (call.tool_name, json.loads(call.arguments_json))
        for expected in self._task.calls or ():
            if expected.returns is not None and is_expected(made, expected, self._registry):
                return ToolOutput(expected.returns)
        return ToolOutput(self._returns.get(call.tool_name, _OTHER_RESULT))
