"""The steps that ask no model: what was chosen is compared with what was said and what was done.

Their worth is told as in `toolkit.guided.steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.dataclass import dataclass
from toolkit.guided.folding import is_choice
from toolkit.guided.grounding import Ground
from toolkit.guided.remainders import (
    has_new_value,
    is_named_still,
    is_new_value,
    is_one_of_several,
    list_folded,
    list_leaves,
    list_open_stems,
    may_follow,
)
from toolkit.guided.said_values import find_kind_of_text, fits_example
from toolkit.guided.turn import GuidedTurn, StepVerdict

__all__ = ["RequireGround", "RequireNews", "StopWhenDone"]


@dataclass(frozen=True, slots=True)
class StopWhenDone:
    """Answers without a further question where each word of the request is about a call that was made.

    It saves requests; its worth in tasks is not measured by itself. The words that say nothing are known for English
    alone: requests in other languages keep some, so that nothing is taken for done there.
    """

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Compare the words of the request with those of the calls."""
        if not turn.past_calls or turn.must_call or any(is_one_of_several(turn, tool) for tool in turn.tools):
            return "next"
        return "next" if list_open_stems(turn, has_descriptions=False) else "answer"


@dataclass(frozen=True, slots=True)
class RequireGround:
    """Refuses calls whose required values were not said, and tries the next best tool where none is left.

    The worth in the trials: 20 tasks of 30 instead of 16.
    """

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Look each required value up in what was said."""
        if turn.must_call or turn.view is None:
            return "next"
        kept: list[Mapping[str, Any]] = []
        for call in turn.calls:
            values = turn.view.fold(call)
            # After the first call and the first tool, values that are only chosen have to be said, too.
            checks_choices = bool(kept or turn.refused or turn.past_calls)
            if all(
                _has_ground(turn, name, node, values.get(name)) or (is_choice(node) and not checks_choices)
                for name, node in turn.view.properties.items()
                if name not in turn.view.asked
            ):
                kept.append(call)
        turn.calls = kept
        return "next" if kept else "again"


def _has_ground(turn: GuidedTurn, name: str, node: Mapping[str, Any], value: Any) -> bool:
    if not isinstance(value, str):
        return turn.ground.holds(value)
    if find_kind_of_text(node, name) == "formula":
        return turn.ground.holds_values_of(value)
    return turn.ground.holds(value) and fits_example(node, value)


@dataclass(frozen=True, slots=True)
class RequireNews:
    """Refuses calls that have nothing new: neither in their values, nor in the words that are left over.

    It lets calls follow each other. The worth of that in the trials: 16 tasks of 30 instead of 14.

    The same tool again needs a value of the question that no call had, or one of a result where another tool was called
    more often. Another tool needs a word of the request
    that no call was about; as the model's first choice, a new value is enough, too. In languages other than English
    small words are always left over, and new values alone decide; in scripts without spaces nothing is refused but what
    was called before.
    """

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Compare each call with those before it."""
        tool = turn.require_tool(self)
        if turn.must_call:
            return "next"
        before = [call.arguments for call in turn.past_calls if call.name == tool.name]
        used = {value for arguments in before for value in list_folded(arguments)}
        # Of results there may be values for as many calls as gave them; else a value of the question has to be left.
        said = turn.ground if is_one_of_several(turn, tool) else Ground(turn.question)
        kept: list[Mapping[str, Any]] = []
        for call in turn.calls:
            values = dict(zip(list_folded(call), list_leaves(call), strict=True))
            new = [leaf for value, leaf in values.items() if value not in used]
            if (not before and not kept) or any(map(said.holds, new)):
                kept.append(call)
            used |= values.keys()
        turn.calls = kept
        if not kept or not (before or not turn.past_calls or self._is_further(turn)):
            return "again"
        return "next"

    def _is_further(self, turn: GuidedTurn) -> bool:
        assert turn.tool is not None
        if is_named_still(turn, turn.tool):
            return True
        values = [value for call in turn.calls for value in list_folded(call)]
        if not (may_follow(turn, turn.tool) and has_new_value(turn, turn.tool)):
            return False
        return any(is_new_value(turn, value) for value in values)
