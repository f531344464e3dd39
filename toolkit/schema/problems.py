"""What is wrong with arguments, in words that a small model can act on.

One message says it all: where, what came, what is accepted, and an example that would have been right.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, cast

from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object

__all__ = ["Problem", "explain", "value_at"]

_MAX_PROBLEMS = 12
_MAX_EXAMPLE = 800
_HIDDEN = "**********"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Args:
        path: Where, in the arguments as they came.
        kind: ``wrong`` is a value, ``missing`` and ``unknown`` are about a name.
        reason: Why, where what the schema says doesn't tell.
    """

    path: JsonPath
    kind: Literal["wrong", "missing", "unknown"]
    reason: str = ""


def explain(problems: Sequence[Problem], value: Any, nodes: Nodes, accepts: Callable[[Any], bool]) -> str:
    """Return one message about all problems.

    Args:
        problems: What is wrong.
        value: The arguments as they came, decoded.
        nodes: What was wanted.
        accepts: Whether some arguments would do; decides which example is shown.
    """
    shown = [_line(problem, problems, value, nodes) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        shown.append(f"- and {len(problems) - _MAX_PROBLEMS} more problems")
    title = "The arguments have 1 problem:" if len(problems) == 1 else f"The arguments have {len(problems)} problems:"
    message = "\n".join([title, *shown])
    example = _example(problems, value, nodes, accepts)
    if example is not None:
        message += f"\nArguments that would be accepted, for example: {example}"
    if not nodes.is_secret(nodes.root):
        return message
    for secret in sorted(_secrets(value, nodes.root, nodes), key=len, reverse=True):
        message = message.replace(secret, _HIDDEN)
    return message


def value_at(value: Any, path: JsonPath) -> Any:
    """Return what stands at a path; None where nothing does."""
    for key in path:
        container: Any = value
        if not ((is_object(value) and key in value) or (is_array(value) and isinstance(key, int) and key < len(value))):
            return None
        value = container[key]
    return value


def _line(problem: Problem, problems: Sequence[Problem], value: Any, nodes: Nodes) -> str:
    where = _path_text(problem.path)
    node = nodes.at(problem.path)
    wanted = nodes.describe(node)
    match problem.kind:
        case "missing":
            return f"- {where}: required, but missing." + (f" Give {wanted}." if wanted else "")
        case "unknown":
            return f"- {where}: unknown.{_accepted(problem, problems, nodes)}"
        case "wrong":
            got = _shown(value_at(value, problem.path), is_secret=nodes.is_secret(node))
            if problem.reason:
                return f"- {where}: got {got}. {_sentence(problem.reason)}"
            return f"- {where}: got {got}, but it must be {wanted or 'something else'}."


def _accepted(problem: Problem, problems: Sequence[Problem], nodes: Nodes) -> str:
    names = _names_beside(problem, nodes)
    if not names:
        return " Nothing is accepted here: leave it out."
    near = _near(problem, problems, names)
    meant = f' Did you mean "{near}"?' if near is not None else " Leave it out."
    return f"{meant} Accepted here: {', '.join(json.dumps(name, ensure_ascii=False) for name in names)}."


def _names_beside(problem: Problem, nodes: Nodes) -> list[str]:
    container = nodes.at(problem.path[:-1])
    return list(dict.fromkeys(name for choice in nodes.choices(container) for name in choice.get("properties", {})))


def _near(problem: Problem, problems: Sequence[Problem], names: Sequence[str]) -> str | None:
    """Return the missing name that an unknown one was meant for; else the accepted one that is nearest."""
    missing = [
        str(other.path[-1]) for other in problems if other.kind == "missing" and other.path[:-1] == problem.path[:-1]
    ]
    name = str(problem.path[-1])
    for candidates in (missing, names):
        folded = {candidate.casefold().replace("-", "_"): candidate for candidate in candidates}
        if found := get_close_matches(name.casefold().replace("-", "_"), folded, n=1, cutoff=0.6):
            return folded[found[0]]
    return None


def _path_text(path: JsonPath) -> str:
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif key.isidentifier():
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key, ensure_ascii=False)}]"
    return text or "arguments"


def _shown(value: Any, *, is_secret: bool) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _ if is_object(value):
            names = [json.dumps(name, ensure_ascii=False) for name in list(value)[:8]]
            return f"an object with {', '.join(names)}" if names else "an empty object"
        case _ if is_array(value):
            length = len(value)
            return "an empty list" if not length else f"a list of {length} item{'' if length == 1 else 's'}"
        case str():
            if is_secret:
                return "a string"
            text = value if len(value) <= 80 else value[:77] + "..."
            return f"the string {json.dumps(text, ensure_ascii=False)}"
        case int() | float():
            return (
                "a number" if is_secret else f"the number {value if len(str(value)) < 80 else str(value)[:77] + '...'}"
            )
        case _:
            return f"a value of type {type(value).__name__}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _example(problems: Sequence[Problem], value: Any, nodes: Nodes, accepts: Callable[[Any], bool]) -> str | None:
    """Mend what came by the schema, and return it where that makes it right."""
    try:
        mended: Any = copy.deepcopy(cast("Any", value)) if is_object(value) else nodes.example(nodes.root)
        if is_object(value):
            # Names first: what was sent under a wrong one is kept.
            for problem in sorted(problems, key=lambda problem: problem.kind != "unknown"):
                mended = _mended(mended, problem, problems, nodes)
        mended = _masked(mended, nodes.root, nodes)
        text = json.dumps(mended, ensure_ascii=False)
        return text if len(text) <= _MAX_EXAMPLE and accepts(mended) else None
    except (TypeError, ValueError, RecursionError, KeyError, IndexError):
        return None


def _mended(value: Any, problem: Problem, problems: Sequence[Problem], nodes: Nodes) -> Any:
    if not problem.path:
        return nodes.example(nodes.root)
    key = problem.path[-1]
    container: Any = value_at(value, problem.path[:-1])
    if problem.kind == "unknown" and is_object(container):
        came = container.pop(str(key), None)
        near = _near(problem, problems, _names_beside(problem, nodes))
        if near is not None and near not in container:
            container[near] = came
    elif is_object(container):
        if problem.kind == "wrong" or key not in container:
            container[str(key)] = nodes.example(nodes.at(problem.path))
    elif is_array(container) and isinstance(key, int) and key < len(container):
        container[key] = nodes.example(nodes.at(problem.path))
    return value


def _masked(value: Any, node: Node, nodes: Nodes) -> Any:
    if is_object(value):
        members = value
        return {key: _masked(item, nodes.at_key(node, key), nodes) for key, item in members.items()}
    if is_array(value):
        items = value
        return [_masked(item, nodes.at_key(node, index), nodes) for index, item in enumerate(items)]
    return _HIDDEN if isinstance(value, str) and nodes.is_secret(node) else value


def _secrets(value: Any, node: Node, nodes: Nodes) -> set[str]:
    """Return the texts in the arguments that no message may show."""
    if is_object(value):
        members = value
        return {text for key, item in members.items() for text in _secrets(item, nodes.at_key(node, key), nodes)}
    if is_array(value):
        items = value
        return {text for index, item in enumerate(items) for text in _secrets(item, nodes.at_key(node, index), nodes)}
    return {value} if isinstance(value, str) and len(value) > 2 and nodes.is_secret(node) else set()
