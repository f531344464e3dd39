"""Evaluation trials and their figures: each task is run and judged with each model and way.

Outcomes are stored as soon as they exist, and those trials are not run again. The figures are solved tasks by class,
with confidence intervals, failure reasons and cost.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from toolkit.calls.approval import Approve
from toolkit.chat import ChatRequest, Message, Provider, SystemMessage, UserMessage
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, LoopError, ProviderError, ToolkitError
from toolkit.evaluation.tasks import EvaluationTask, FailureReason, TaskSet, is_expected, judge_trial
from toolkit.events import LoopEvent, ToolCallRefused, ToolExecutionStart
from toolkit.json_text import digest_json, write_json
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.handle import tool_loop
from toolkit.loop.middleware import CallInfo, CallProceed, Middleware
from toolkit.private_files import make_private
from toolkit.redaction import without_keys
from toolkit.settings import PositiveInt, Seconds, ZeroToOne, check_fields
from toolkit.tools.registry import ToolRegistry

_OTHER_RESULT = "Done."
_LONGEST_TEXT = 500
_MOST_FAILED_IN_A_ROW = 3
_MOST_TRIAL_BYTES = 200_000_000
ALL_KINDS = "all"
"""The name of the row that counts the tasks of all classes."""
_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """The settings with which each task is run.

    Args:
        temperature: 0 for reproducible answers; None leaves it to the provider, since some models accept no value.
        seed: The seed, for providers that support one.
        max_tokens: The maximum tokens of a reply.
        max_turns: The maximum number of turns with calls before the answer.
        timeout: The seconds for one task.
        runs_tools: True to run the tools; otherwise each call is answered with the task's ``returns``.
        name_repair: See `ToolLoopConfig`.
        argument_repair: See `ToolLoopConfig`.
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
        reason: The reason why it is not solved; empty if it is.
        calls: The calls that ran: tool names and arguments as JSON.
        refused: The results of calls that did not run.
        answer: The start of the model's last text.
        requests: The number of requests to the model.
        input_tokens: The input tokens, if the provider reports them.
        output_tokens: The output tokens.
        cached_tokens: The input tokens that came from a cache.
        seconds: The duration.
        error: The message of a failed request.
        is_unreachable: True if the failure may be temporary, so that the outcome says nothing about the model.
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
        """True if the right calls ran and the answer states the facts."""
        return not self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model, asked in one way.

    Args:
        model: The name of the model.
        way: The name of the way; empty for the provider's default.
        open: Returns an async context manager of the provider.
    """

    model: str
    way: str
    open: Callable[[], AbstractAsyncContextManager[Provider]] = field(repr=False, compare=False)

    @property
    def label(self) -> str:
        """The name in tables."""
        return f"{self.model} {self.way}".strip()


@dataclass(slots=True, kw_only=True)
class CandidateTrials:
    """The outcomes of one candidate.

    Attributes:
        candidate: The candidate.
        trials: Its outcomes, by the id of the task.
        problem: The reason why it was stopped before its last task; empty if it was not.
    """

    candidate: Candidate
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    problem: str = ""


EvaluationProgress: TypeAlias = Callable[[Candidate, int, int], None]
"""Called with the candidate, the number of its finished tasks, and the total."""

_TRIAL: TypeAdapter[Trial] = TypeAdapter(Trial)


class TrialFile:
    """Stores outcomes by a digest of everything that determines them: the model, way, task, tools and settings.

    Only its owner can read the file, which contains text of models. A truncated line is ignored.

    Args:
        path: The file, created if missing; None stores outcomes only in memory.

    Raises:
        ConfigurationError: The file can't be read or written, or is not a file of outcomes.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._trials: dict[str, Trial] = {}
        if path is not None:
            try:
                make_private(path)
                self._trials.update(_read_trials(path))
            except OSError as error:
                raise ConfigurationError(f"{path} can't be used for outcomes: {error}") from error

    def find(self, key: str) -> Trial | None:
        """Return the outcome stored under a key, or None."""
        return self._trials.get(key)

    def add(self, key: str, trial: Trial) -> None:
        """Store an outcome, replacing an earlier one.

        Raises:
            OSError: The file can't be written.
        """
        self._trials[key] = trial
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(write_json({"key": key, **asdict(trial)}) + "\n")


async def run_trial(
    task: EvaluationTask,
    provider: Provider,
    registry: ToolRegistry[Any],
    settings: TrialSettings,
    *,
    instructions: str = "",
    returns: Mapping[str, str] | None = None,
    ctx: Any = None,
) -> Trial:
    """Run a task once and judge it. Errors of the model or its server are recorded in the outcome, never raised.

    Args:
        task: The task.
        provider: The provider of the model.
        registry: The tools.
        settings: The settings of the run.
        instructions: The system prompt; empty for none.
        returns: The result, by tool, of a call that the task does not expect, when tools do not run.
        ctx: The context of the tools.
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
    config: ToolLoopConfig[None] = ToolLoopConfig(
        max_iterations=settings.max_turns,
        timeout=settings.timeout,
        on_event=notes.take_event,
        stream=False,
        name_repair=settings.name_repair,
        argument_repair=settings.argument_repair,
        on_tool_call=None if stand_in is None else _approve_call,
        middleware=() if stand_in is None else (stand_in,),
    )
    try:
        result = await tool_loop(provider, registry, request, ctx=ctx, config=config)
    except (ProviderError, LoopError) as error:
        is_unreachable = isinstance(error, ProviderError) and error.is_retryable
        text = without_keys(str(error))[:_LONGEST_TEXT]
        return notes.make_trial(task, "the request failed", began, error=text, is_unreachable=is_unreachable)
    notes.answer = "" if result.response is None or result.response.tool_calls else result.text
    usage = result.usage
    is_late = result.reason.kind == "timeout"
    reason = "out of time" if is_late else judge_trial(task, notes.calls, notes.refused, notes.answer, registry)
    return notes.make_trial(
        task,
        reason,
        began,
        requests=result.iterations,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens or 0,
    )


async def run_candidates(
    candidates: Sequence[Candidate],
    tasks: TaskSet,
    registry: ToolRegistry[Any],
    settings: TrialSettings,
    *,
    stored: TrialFile | None = None,
    outcomes: list[CandidateTrials] | None = None,
    on_progress: EvaluationProgress | None = None,
    ctx: Any = None,
) -> list[CandidateTrials]:
    """Run each task with each candidate in sequence, and return the outcomes.

    A candidate stops after its server could not be reached three times in a row; its outcomes so far are returned. The
    next run with the same file runs the missing tasks.

    Args:
        candidates: The models and ways.
        tasks: The tasks.
        registry: The tools.
        settings: The settings of each run.
        stored: The outcomes of earlier runs, which are not run again; new ones are added.
        outcomes: A list that is filled during the run, for a caller that may be cancelled; None creates one.
        on_progress: Called after each task.
        ctx: The context of the tools.

    Raises:
        ConfigurationError: A task names an unknown tool, or arguments that the tool does not accept.
    """
    tasks.check_tools(registry)
    stored = stored or TrialFile(None)
    outcomes = [] if outcomes is None else outcomes
    for candidate in candidates:
        outcome = CandidateTrials(candidate=candidate)
        outcomes.append(outcome)
        key_of = _make_keys(candidate, tasks, registry, settings)
        todo: list[tuple[str, EvaluationTask]] = []
        for task in tasks.tasks:
            key = key_of(task)
            found = stored.find(key)
            if found is None:
                todo.append((key, task))
            else:
                outcome.trials[task.id] = found
        if on_progress is not None:
            on_progress(candidate, len(outcome.trials), len(tasks.tasks))
        if todo:
            await _run_candidate(outcome, todo, tasks, registry, settings, stored, on_progress, ctx)
    return outcomes


async def _run_candidate(
    outcome: CandidateTrials,
    todo: Sequence[tuple[str, EvaluationTask]],
    tasks: TaskSet,
    registry: ToolRegistry[Any],
    settings: TrialSettings,
    stored: TrialFile,
    on_progress: EvaluationProgress | None,
    ctx: Any,
) -> None:
    failed = 0
    try:
        async with outcome.candidate.open() as provider:
            for key, task in todo:
                trial = await run_trial(
                    task,
                    provider,
                    registry,
                    settings,
                    instructions=tasks.instructions,
                    returns=tasks.returns,
                    ctx=ctx,
                )
                failed = failed + 1 if trial.is_unreachable else 0
                if failed == _MOST_FAILED_IN_A_ROW:
                    outcome.problem = trial.error
                    return
                if trial.is_unreachable:
                    continue
                outcome.trials[task.id] = trial
                stored.add(key, trial)
                if on_progress is not None:
                    on_progress(outcome.candidate, len(outcome.trials), len(tasks.tasks))
    except ToolkitError as error:  # the next candidate may work
        outcome.problem = str(error)


def _make_keys(
    candidate: Candidate, tasks: TaskSet, registry: ToolRegistry[Any], settings: TrialSettings
) -> Callable[[EvaluationTask], str]:
    shared = digest_json(
        {
            "model": candidate.model,
            "way": candidate.way,
            "instructions": tasks.instructions,
            "returns": tasks.returns,
            "settings": asdict(settings),
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in registry.definitions()
            ],
        }
    )
    return lambda task: digest_json([shared, asdict(task)])[:32]


@dataclass(slots=True)
class _TrialNotes:
    """Collects the facts of a task while it runs."""

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
            refused=tuple(text[:_LONGEST_TEXT] for text in self.refused),
            answer=self.answer[:_LONGEST_TEXT],
            seconds=round(time.monotonic() - began, 3),
            **more,
        )


async def _approve_call(request: object) -> Approve:  # nothing runs
    del request
    return Approve()


class _StandIn(Middleware[Any]):
    """Answers calls in place of the tools."""

    def __init__(self, task: EvaluationTask, returns: Mapping[str, str], registry: ToolRegistry[Any]) -> None:
        self._task, self._returns, self._registry = task, returns, registry

    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        del proceed
        made = (call.tool_name, json.loads(call.arguments_json))
        for expected in self._task.calls or ():
            if expected.returns is not None and is_expected(made, expected, self._registry):
                return ToolOutput(expected.returns)
        return ToolOutput(self._returns.get(call.tool_name, _OTHER_RESULT))


def _read_trials(path: Path) -> Iterator[tuple[str, Trial]]:
    if path.stat().st_size > _MOST_TRIAL_BYTES:
        raise ConfigurationError(f"{path} has more than {_MOST_TRIAL_BYTES:,} bytes: name another file")
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            entry: dict[str, Any] = json.loads(line)
            key: str = entry.pop("key")
            yield key, _TRIAL.validate_python(entry)
        except (ValueError, TypeError, KeyError, AttributeError, ValidationError) as error:
            if number == len(lines):  # the process was killed while writing
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")
                return
            if number + 1 < len(lines) and "key" in line:
                continue
            raise ConfigurationError(
                f"{path}:{number} is no outcome of `toolkit eval`: name another file by --results"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.low:.0f} to {100 * self.high:.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The number of solved tasks of a class, with the interval of the share, from 0 to 1."""

    solved: int
    tasks: int
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSummary:
    """The figures of one candidate.

    Args:
        label: Its name in tables.
        model: The model.
        way: The way.
        scores: The scores by class, and for `ALL_KINDS`.
        reasons: The reasons for unsolved tasks, most frequent first.
        tokens: The average input and output tokens of a task; 0 if the provider reports none.
        output_tokens: The average output tokens of a task.
        requests: The average number of requests of a task.
        seconds: The average duration of a task.
        error: The message of the first failed request; empty if none failed.
        problem: The reason why it was stopped before its last task; empty if it was not.
    """

    label: str
    model: str
    way: str
    scores: dict[str, Score]
    reasons: dict[str, int]
    tokens: float
    output_tokens: float
    requests: float
    seconds: float
    error: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSummary:
    """The figures of an evaluation: the classes of tasks, and each candidate."""

    kinds: tuple[str, ...]
    candidates: tuple[CandidateSummary, ...]


def summarize_trials(outcomes: Sequence[CandidateTrials], kinds: Sequence[str]) -> EvaluationSummary:
    """Return the figures of an evaluation.

    Args:
        outcomes: The outcomes of each candidate.
        kinds: The classes, in the order of the table.
    """
    candidates = tuple(_summarize_candidate(outcome, kinds) for outcome in outcomes)
    return EvaluationSummary(kinds=tuple(kinds), candidates=candidates)


def find_share_interval(solved: int, tasks: int) -> Interval:
    """Return the interval of a share: Wilson's score interval.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American
    Statistical Association 22 (1927), 209-212. It is valid for few tasks, and for shares of 0 and 1.

    Args:
        solved: The number of solved tasks.
        tasks: The number of tasks; for 0 the interval is from 0 to 1.
    """
    if not tasks:
        return Interval(low=0.0, high=1.0)
    share, square = solved / tasks, _Z * _Z
    middle = (share + square / (2 * tasks)) / (1 + square / tasks)
    half = _Z / (1 + square / tasks) * math.sqrt(share * (1 - share) / tasks + square / (4 * tasks * tasks))
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half))


def _summarize_candidate(outcome: CandidateTrials, kinds: Sequence[str]) -> CandidateSummary:
    trials = list(outcome.trials.values())
    count = len(trials) or 1
    written = sum(trial.output_tokens for trial in trials)
    read = sum(trial.input_tokens for trial in trials)
    return CandidateSummary(
        label=outcome.candidate.label,
        model=outcome.candidate.model,
        way=outcome.candidate.way,
        scores={kind: _score_trials(trials, kind) for kind in (*kinds, ALL_KINDS)},
        reasons=dict(Counter[str](trial.reason for trial in trials if trial.reason).most_common()),
        tokens=(read + written) / count,
        output_tokens=written / count,
        requests=sum(trial.requests for trial in trials) / count,
        seconds=sum(trial.seconds for trial in trials) / count,
        error=next((trial.error for trial in trials if trial.error), ""),
        problem=outcome.problem,
    )


def _score_trials(trials: Sequence[Trial], kind: str) -> Score:
    chosen = [trial for trial in trials if kind in (ALL_KINDS, trial.kind)]
    solved = sum(trial.is_solved for trial in chosen)
    return Score(solved=solved, tasks=len(chosen), interval=find_share_interval(solved, len(chosen)))
