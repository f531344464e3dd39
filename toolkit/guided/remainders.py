"""The part of a request that is left, when some calls were made for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.chat import ToolDefinition
from toolkit.guided.folding import FoldedSchema, find_named_values, fold_schema
from toolkit.guided.grounding import Ground
from toolkit.guided.languages import is_spaced
from toolkit.guided.result_text import flatten_json_text
from toolkit.guided.said_values import find_kind_of_text, has_alike, hold_to_said_values
from toolkit.guided.short_forms import list_request_stems
from toolkit.guided.spans import has_value, list_names
from toolkit.guided.spoken_numbers import list_free_numbers
from toolkit.guided.spoken_times import list_times
from toolkit.guided.turn import GuidedTurn
from toolkit.guided.wording import strike_out, write_known
from toolkit.schema.nodes import is_array, is_object
from toolkit.word_stems import list_stems

_DIGIT = re.compile(r"\d")
# The unit of a value that was used: "... kilograms".
_AFTER_VALUE = re.compile(r"\.\.\. ?([^\W\d_]+)")

__all__ = [
    "has_more_of_a_kind",
    "has_new_value",
    "is_named_still",
    "is_new_value",
    "is_one_of_several",
    "list_folded",
    "list_leaves",
    "list_open_stems",
    "list_used_values",
    "may_be_needed",
    "may_follow",
    "write_open_question",
]


def list_used_values(turn: GuidedTurn) -> set[str]:
    """Return the values of the calls that were made with success, as they are compared."""
    return {value for call in turn.past_calls if not call.is_error for value in list_folded(call.arguments)}


def write_open_question(turn: GuidedTurn) -> str:
    """Return the question, without what has been used, and with what is known by now."""
    if not turn.past_calls:
        return turn.question
    return f"{strike_out(turn.question, list_used_values(turn))}\n{write_known(turn.past_calls)}"


def list_folded(value: Any) -> Iterator[str]:
    """Yield the values inside arguments, as they are compared."""
    return (str(leaf).strip().casefold() for leaf in list_leaves(value))


def has_more_of_a_kind(question: str, view: FoldedSchema, values: Mapping[str, Any]) -> bool:
    """Return whether a question says further values that are like those of a call: other names, numbers or choices."""
    left = strike_out(question, list_folded(values))
    taken = {float(each) for each in values.values() if _is_number(each)}
    for name, node in view.properties.items():
        value = values.get(name)
        if "enum" in node:
            has_more = _names_other_choices(left, node["enum"], values)
        elif isinstance(value, str):
            is_time = find_kind_of_text(node, name) == "time"
            has_more = _says_other_times(question, value) if is_time else has_alike(question, left, value)
        else:
            free = set(list_free_numbers(question)) - taken if _is_number(value) else set[float]()
            has_more = bool(free & set(list_free_numbers(left)))
        if has_more:
            return True
    return False


def _names_other_choices(left: str, choices: Sequence[Any], values: Mapping[str, Any]) -> bool:
    used = set(list_folded(values))
    return any(
        other.casefold() not in used for other in find_named_values(choices, frozenset(list_request_stems(left)))
    )


def _says_other_times(question: str, value: str) -> bool:
    return bool(
        {int(time[:2]) % 12 for time in list_times(question)} - {int(time[:2]) % 12 for time in list_times(value)}
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def list_open_stems(turn: GuidedTurn, *, has_descriptions: bool) -> set[str]:
    """Return the words of the question that no call so far is about.

    Args:
        turn: The turn.
        has_descriptions: True where a call is also about what its tool's description says, and not its name alone.
    """
    good = [call for call in turn.past_calls if not call.is_error]
    called = {call.name for call in good}
    about = {
        tool.name: _describe_scope(tool, has_descriptions=has_descriptions)
        for tool in turn.tools
        if tool.name in called
    }
    done = [stem for call in good for stem in list_stems(about.get(call.name, call.name))]
    done += [stem for call in good for value in list_folded(call.arguments) for stem in list_stems(value)]
    numbers = [value for value in list_used_values(turn) if value.replace(".", "", 1).isdecimal()]
    left = strike_out(turn.question, [value.removesuffix(".0") for value in numbers])
    units = [stem for found in _AFTER_VALUE.findall(left) for stem in list_stems(found)]
    return set(list_stems(turn.question)) - set(done) - set(units)


def _describe_scope(tool: ToolDefinition, *, has_descriptions: bool) -> str:
    properties = fold_schema(tool.parameters).properties
    words = [tool.name, *properties]
    if has_descriptions:
        words += [tool.description, *[str(node.get("description", "")) for node in properties.values()]]
    return " ".join(words)


def may_be_needed(turn: GuidedTurn, tool: ToolDefinition) -> bool:
    """Return whether a tool may be called after others: words that are left name it, or it could take a new value."""
    return is_named_still(turn, tool) or (may_follow(turn, tool) and has_new_value(turn, tool))


def is_named_still(turn: GuidedTurn, tool: ToolDefinition) -> bool:
    """Return whether words are left that a tool is about, and no tool that was called."""
    about = set(list_stems(f"{tool.name} {tool.description}"))
    return bool(about & list_open_stems(turn, has_descriptions=True))


def may_follow(turn: GuidedTurn, tool: ToolDefinition) -> bool:
    """Return whether words are left for a tool, if it can take something new.

    They are its own, or others where it is the model's first choice: a refusal has shown that the choice was not good.
    """
    about = set(list_stems(f"{tool.name} {tool.description}"))
    if about & list_open_stems(turn, has_descriptions=False):
        return True
    return not turn.refused and bool(list_open_stems(turn, has_descriptions=True))


def is_one_of_several(turn: GuidedTurn, tool: ToolDefinition) -> bool:
    """Return whether a tool was called less often than another one: it may be due for each of that one's results."""
    counts = Counter(call.name for call in turn.past_calls if not call.is_error)
    return 0 < counts[tool.name] < max(counts.values(), default=0)


def is_new_value(turn: GuidedTurn, value: str) -> bool:
    """Return whether a value is left in the request, or comes from a result alone."""
    used = list_used_values(turn)
    left = strike_out(turn.question, used)
    return value not in used and (Ground(left).holds(value) or not Ground(turn.question).holds(value))


def has_new_value(turn: GuidedTurn, tool: ToolDefinition) -> bool:
    """Return whether something is left in the request, or known by the results, that a tool could take."""
    if not is_spaced(turn.question):
        return True
    used = list_used_values(turn)
    left = strike_out(turn.question, used)
    results = flatten_json_text("\n".join([call.result for call in turn.past_calls if not call.is_error]))
    for name, node in fold_schema(tool.parameters, turn.question).properties.items():
        held = hold_to_said_values(node, left, results, name=name, needs_shape=True)
        if held is None:
            continue
        values: Sequence[Any] = held.get("enum", held.get("items", {}).get("enum", ("",)))
        if node.get("type") == "string" and find_kind_of_text(node, name) == "text":
            values = [*list_names(results), *(["a name"] if has_value(left) else [])]
        # Any number of a result is not the number of a customer, nor any word in capitals the code of a stock.
        elif not (_has_digits(node, values) or _is_told_of(name, node, f"{turn.question} {results}")):
            continue
        if any(str(value).strip().casefold() not in used for value in values):
            return True
    return not tool.parameters.get("properties")


def _has_digits(node: Mapping[str, Any], values: Sequence[Any]) -> bool:
    return node.get("type") == "string" and _DIGIT.search("".join(map(str, values))) is not None


def _is_told_of(name: str, node: Mapping[str, Any], text: str) -> bool:
    """Return whether a text has a word of a parameter."""
    about = set(list_stems(f"{name.rpartition('.')[2]} {node.get('description', '')}"))
    return bool(about & set(list_stems(text)))


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield the texts and numbers inside arguments."""
    if is_object(value):
        for member in value.values():
            yield from list_leaves(member)
    elif is_array(value):
        for item in value:
            yield from list_leaves(item)
    elif not isinstance(value, bool) and value is not None:
        yield value
