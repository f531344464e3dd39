"""Better words for tools: tried on one half of the tasks, and kept only where they win on the other half.

Of twenty wordings that are tried on forty tasks, one does better by chance. So the half by which words are chosen says
nothing about them; what counts is the half that no choice has seen, and there the interval of the difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from toolkit.chat import ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.evaluation.runs import Candidate, CandidateTrials, run_candidates
from toolkit.evaluation.statistics import PairedDifference, compare_pairs
from toolkit.evaluation.tasks import EvaluationTask, TaskSet
from toolkit.evaluation.tool_words import ToolWords
from toolkit.evaluation.trial_files import TrialFile
from toolkit.evaluation.trials import TrialSettings
from toolkit.evaluation.vocabulary import find_shared_words, is_paraphrase, list_tool_words
from toolkit.evaluation.wordings import ToolWording, vary_words
from toolkit.tools.registry import ToolRegistry

__all__ = ["TriedWording", "TuningResult", "WordingSource", "split_tasks", "tune_words"]

WordingSource: TypeAlias = Callable[[ToolDefinition, Sequence[str]], Awaitable[Sequence[ToolWording]]]
"""Gives more words for a tool, from its definition and what users say that takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedWording:
    """Other words for one tool, tried on the training half.

    Args:
        wording: The words.
        difference: From the best words until then.
    """

    wording: ToolWording
    difference: PairedDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The outcome of tuning.

    Args:
        words: The words that were chosen on the training half; empty where none did better.
        tried: All that were tried, in their order.
        training: The chosen words beside the tools' own, on the half by which they were chosen: too good by nature.
        held_out: The same on the half that no choice has seen; None where there was nothing to look at.
        problem: Why it ended early; empty where it did not.
    """

    words: ToolWords
    tried: tuple[TriedWording, ...]
    training: PairedDifference
    held_out: PairedDifference | None = None
    problem: str = ""

    @property
    def is_kept(self) -> bool:
        """True where the words win on the held-out half by more than the interval."""
        return self.held_out is not None and self.held_out.interval.low > 0


def split_tasks(tasks: TaskSet, registry: ToolRegistry[Any]) -> tuple[TaskSet, TaskSet]:
    """Return the training half and the held-out half: of each class, and of its paraphrases, every second task.

    A paraphrase is a task that takes a tool and shares no word with the names and descriptions of any.

    Args:
        tasks: The tasks.
        registry: The tools, with their own words.

    Raises:
        ConfigurationError: There are not two paraphrases, one for each half: without them, words that merely repeat
            those of the tasks would win.
    """
    words = list_tool_words(registry)
    groups: dict[tuple[str, bool], list[EvaluationTask]] = defaultdict(list)
    for task in tasks.tasks:
        groups[task.kind, is_paraphrase(task, words)].append(task)
    paraphrases = [task for (_, is_one), group in groups.items() if is_one for task in group]
    if len(paraphrases) < 2:
        raise ConfigurationError(_describe_lack(tasks, words, len(paraphrases)))
    halves: tuple[list[EvaluationTask], list[EvaluationTask]] = ([], [])
    for is_one in (True, False):
        chosen = [task for (_, is_other), group in groups.items() if is_other is is_one for task in group]
        for place, task in enumerate(chosen):
            halves[place % 2].append(task)
    training, held_out = (
        TaskSet(tasks=tuple(half), instructions=tasks.instructions, returns=tasks.returns) for half in halves
    )
    return training, held_out


async def tune_words(
    candidate: Candidate,
    tasks: TaskSet,
    registry: ToolRegistry[Any],
    settings: TrialSettings,
    *,
    most_tries: int = 20,
    source: WordingSource | None = None,
    kept: TrialFile | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> TuningResult:
    """Try other words for tools with a model, and return the best with the figures of the half they never saw.

    Tools are taken in the order of the failures that they have a part in. For each, the wording that solves the most
    training tasks is chosen, where it solves more than the words before it.

    Args:
        candidate: The model, and the way in which it is asked.
        tasks: The tasks; see `split_tasks`.
        registry: The tools.
        settings: How each task is run.
        most_tries: How many wordings are tried at most; each is one run of the training half.
        source: Gives wordings besides those of the rules; None for no others.
        kept: Outcomes of earlier runs.
        on_progress: Told of the wording that is tried, how many were tried, and how many there may be.

    Raises:
        ConfigurationError: The tasks have no paraphrases, or don't fit the tools.
    """
    tasks.check_tools(registry)
    training, held_out = split_tasks(tasks, registry)
    trials = _WordTrials(candidate, registry, settings, kept or TrialFile(None))
    try:
        return await _Tuning(trials, training, held_out, source, most_tries, on_progress).run()
    except _UnreachableError as error:
        return TuningResult(
            words=ToolWords(), tried=tuple(error.tried), training=compare_pairs([]), problem=error.problem
        )


class _UnreachableError(Exception):
    """The model went away."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.tried: list[TriedWording] = []
        super().__init__(problem)


class _WordTrials:
    """Runs tasks with words, and gives for each task whether it was solved."""

    def __init__(
        self, candidate: Candidate, registry: ToolRegistry[Any], settings: TrialSettings, kept: TrialFile
    ) -> None:
        self.registry = registry
        self._candidate, self._settings, self._kept = candidate, settings, kept

    async def run(self, words: ToolWords, tasks: TaskSet) -> CandidateTrials:
        [outcome] = await run_candidates(
            [self._candidate],
            words.rename_tasks(tasks),
            words.apply(self.registry),
            self._settings,
            kept=self._kept,
        )
        if outcome.problem:
            raise _UnreachableError(outcome.problem)
        return outcome


class _Tuning:
    """One search for words."""

    def __init__(
        self,
        trials: _WordTrials,
        training: TaskSet,
        held_out: TaskSet,
        source: WordingSource | None,
        most_tries: int,
        on_progress: Callable[[str, int, int], None] | None,
    ) -> None:
        self._trials, self._training, self._held_out = trials, training, held_out
        self._source, self._most_tries, self._on_progress = source, most_tries, on_progress
        self._tried: list[TriedWording] = []

    async def run(self) -> TuningResult:
        try:
            return await self._search_words()
        except _UnreachableError as error:
            error.tried = self._tried
            raise

    async def _search_words(self) -> TuningResult:
        self._show_progress("the tools' own words")
        own = await self._trials.run(ToolWords(), self._training)
        words, best = ToolWords(), own
        for definition in _order_tools(own, self._training, self._trials.registry):
            words, best = await self._improve_tool(definition, words, best)
        training = _compare_outcomes(own, best)
        if not words:
            return TuningResult(words=words, tried=tuple(self._tried), training=training)
        self._show_progress("the held-out half")
        before = await self._trials.run(ToolWords(), self._held_out)
        after = await self._trials.run(words, self._held_out)
        return TuningResult(
            words=words, tried=tuple(self._tried), training=training, held_out=_compare_outcomes(before, after)
        )

    async def _improve_tool(
        self, definition: ToolDefinition, words: ToolWords, best: CandidateTrials
    ) -> tuple[ToolWords, CandidateTrials]:
        before, (chosen, leading) = best, (words, best)
        for wording in await self._list_wordings(definition):
            if len(self._tried) >= self._most_tries:
                break
            if set(wording.words.names.values()) & {*self._trials.registry.names, *words.names.values()}:
                continue
            self._show_progress(f"{definition.name}: {wording.rule}")
            outcome = await self._trials.run(words | wording.words, self._training)
            self._tried.append(TriedWording(wording=wording, difference=_compare_outcomes(before, outcome)))
            if _count_solved(outcome) > _count_solved(leading):
                chosen, leading = words | wording.words, outcome
        return chosen, leading

    async def _list_wordings(self, definition: ToolDefinition) -> list[ToolWording]:
        if len(self._tried) >= self._most_tries:
            return []
        prompts = [
            task.prompt
            for task in self._training.tasks
            if len(task.calls or ()) == 1 and any(call.tool == definition.name for call in task.calls or ())
        ]
        wordings = list(vary_words(definition, prompts))
        if self._source is not None:
            wordings += await self._source(definition, prompts)
        return wordings

    def _show_progress(self, text: str) -> None:
        if self._on_progress is not None:
            self._on_progress(text, len(self._tried), self._most_tries)


def _order_tools(outcome: CandidateTrials, tasks: TaskSet, registry: ToolRegistry[Any]) -> list[ToolDefinition]:
    """Return the tools that have a part in failures, the most frequent first."""
    failures: Counter[str] = Counter()
    for task in tasks.tasks:
        trial = outcome.trials[task.id]
        if not trial.is_solved:
            failures.update({call.tool for call in task.calls or ()} | {name for name, _ in trial.calls})
    definitions = {definition.name: definition for definition in registry.definitions()}
    return [definitions[name] for name, _ in failures.most_common() if name in definitions]


def _compare_outcomes(one: CandidateTrials, other: CandidateTrials) -> PairedDifference:
    return compare_pairs([(trial.is_solved, other.trials[name].is_solved) for name, trial in one.trials.items()])


def _count_solved(outcome: CandidateTrials) -> int:
    return sum(trial.is_solved for trial in outcome.trials.values())


def _describe_lack(tasks: TaskSet, words: frozenset[str], count: int) -> str:
    shared = [(find_shared_words(task, words), task) for task in tasks.tasks if task.calls]
    near = sorted(((len(found), task.prompt, found) for found, task in shared if found), key=lambda each: each[:2])[:3]
    nearest = "; ".join(f"{prompt[:60]!r} shares {', '.join(sorted(found))}" for _, prompt, found in near)
    return (
        f"tuning takes two tasks or more that need a tool and share no word with any, one for each half, and there "
        f"{'is 1' if count == 1 else 'are none'}: add paraphrases, as a user who doesn't know the tools would say it."
        + (f" The nearest: {nearest}" if nearest else "")
    )
