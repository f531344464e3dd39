"""The part of a request that is left, when some calls were made for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.chat import ToolDefinition
from toolkit.guided.turn import GuidedTurn
from toolkit.guided.wording import strike_out, write_known
from toolkit.schema.nodes import is_array, is_object
from toolkit.word_stems import list_stems

__all__ = ["list_folded", "list_open_stems", "list_used_values", "may_be_needed", "write_open_question"]


def list_used_values(turn: GuidedTurn) -> set[str]:
    """Return the values of the calls that were made, as they are compared."""
    return {value for call in turn.past_calls for value in list_folded(call.arguments)}


def write_open_question(turn: GuidedTurn) -> str:
    """Return the question, without what has been used, and with what is known by now."""
    if not turn.past_calls:
        return turn.question
    return f"{strike_out(turn.question, list_used_values(turn))}\n{write_known(turn.past_calls)}"


def list_folded(value: Any) -> Iterator[str]:
    """Yield the values inside arguments, as they are compared."""
    return (
        str(leaf).strip().casefold()
        for leaf in _iterate_leaves(value)
        if not isinstance(leaf, bool) and leaf is not None
    )


def list_open_stems(turn: GuidedTurn, *, has_descriptions: bool) -> set[str]:
    """Return the words of the question that no call so far is about.

    Args:
        turn: The turn.
        has_descriptions: True where a call is also about what its tool's description says, and not its name alone.
    """
    about = {tool.name: _describe_scope(tool, has_descriptions=has_descriptions) for tool in turn.tools}
    done = [stem for call in turn.past_calls for stem in list_stems(about.get(call.name, call.name))]
    done += [stem for call in turn.past_calls for value in list_folded(call.arguments) for stem in list_stems(value)]
    return set(list_stems(turn.question)) - set(done)


def _describe_scope(tool: ToolDefinition, *, has_descriptions: bool) -> str:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    words = [tool.name, *properties]
    if has_descriptions:
        words += [
            tool.description,
            *[str(node.get("description", "")) for node in properties.values() if is_object(node)],
        ]
    return " ".join(words)


def may_be_needed(turn: GuidedTurn, tool: ToolDefinition) -> bool:
    """Return whether words are left that a tool is about, or that no call was about in any way."""
    about = set(list_stems(f"{tool.name} {tool.description}"))
    is_named = bool(about & list_open_stems(turn, has_descriptions=False))
    return is_named or bool(list_open_stems(turn, has_descriptions=True))


def _iterate_leaves(value: Any) -> Iterator[Any]:
    if is_object(value):
        for member in value.values():
            yield from _iterate_leaves(member)
    elif is_array(value):
        for item in value:
            yield from _iterate_leaves(item)
    else:
        yield value
