"""Problems of arguments told in words that a small model can act on.

One message says it all: where, what came, what is accepted, and an example that would have been right.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from toolkit.dataclass import dataclass
from toolkit.schema.examples import ATTEMPTS, make_example
from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object, types_of
from toolkit.schema.phrases import describe_node
from toolkit.schema.work import TooMuchWorkError
from toolkit.suggestions import ask_whether_meant, find_similar

__all__ = ["Problem", "WRONG_NAME", "example_line", "explain", "value_at"]

_MOST_PROBLEMS_TOLD = 12
_MAX_EXAMPLE = 800
_LONGEST_NAME_READ = 256
_LONGEST_SHOWN = 80
WRONG_NAME = "The name itself is not accepted here"
_EXAMPLE_LEAD = "Call it again, for example with: "
_SHORTEST_STRUCK_ARGUMENT = 3
_LONGEST_REASON_TOLD = 300
_LONGEST_EXPLANATION = 10_000
_MOST_ACCEPTED = 60
_MOST_NAMES_COMPARED = 300
_MOST_COPIED = 2_000
# Those whose meaning for one value alone is in the words about a node.
_TOLD_KEYWORDS = frozenset(
    {
        "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Args:
        path: Where, in the arguments as they came.
        kind: ``wrong`` is a value, ``missing`` and ``unknown`` are about a name.
        reason: Why; told where what the schema says doesn't tell.
        is_told: True where the reason is told all the same.
        is_crash: True where the reason repeats an exception that was no refusal.
    """

    path: JsonPath
    kind: Literal["wrong", "missing", "unknown"]
    reason: str = ""
    is_told: bool = False
    is_crash: bool = False


def explain(
    problems: Sequence[Problem], value: Any, nodes: Nodes, accepts: Callable[[Any], bool], *, untold: int = 0
) -> str:
    """Return one message about all problems.

    Args:
        problems: The problems.
        value: The arguments as they came, decoded.
        nodes: The schema that was wanted.
        accepts: True where some arguments would do; decides which example is shown.
        untold: How many more problems there are.
    """
    more = len(problems) + untold - _MOST_PROBLEMS_TOLD
    if more > 0:
        # What is missing is told first: there is no end to names that nobody wants.
        problems = sorted(problems, key=lambda problem: problem.kind != "missing")[:_MOST_PROBLEMS_TOLD]
    meant = _find_meant_names(problems, value, nodes)
    renamed = {(*path[:-1], name) for path, name in meant.items()}
    told = [problem for problem in problems if problem.kind != "missing" or problem.path not in renamed]
    lines = [_write_line(problem, meant, value, nodes) for problem in told]
    if more > 0:
        lines.append(f"- and {more} more problems")
    count = len(told) + max(0, more)
    title = "The arguments have 1 problem:" if count == 1 else f"The arguments have {count} problems:"
    message = "\n".join([title, *lines, *_list_accepted(problems, nodes)])
    example = None if more > 0 else _mend_example(problems, meant, value, nodes, accepts)
    if example is not None:
        message += f"\n{_EXAMPLE_LEAD}{example}"
    if nodes.is_secret(nodes.root):
        message = _strike_out_secrets(message, value, nodes)
    return message if len(message) <= _LONGEST_EXPLANATION else f"{message[:_LONGEST_EXPLANATION]}..."


def example_line(nodes: Nodes, accepts: Callable[[Any], bool]) -> str:
    """Return a line with an example of what is wanted; nothing where none is found or none is needed."""
    example = _find_example(lambda attempt: make_example(nodes, nodes.root, attempt=attempt), accepts)
    return f"\n{_EXAMPLE_LEAD}{example}" if example is not None and example != "{}" else ""


def value_at(value: Any, path: JsonPath) -> Any:
    """Return what stands at a path; None where nothing does."""
    for key in path:
        container: Any = value
        if not ((is_object(value) and key in value) or (is_array(value) and isinstance(key, int) and key < len(value))):
            return None
        value = container[key]
    return value


def _write_line(problem: Problem, meant: Mapping[JsonPath, str], value: Any, nodes: Nodes) -> str:
    where = _write_path(problem.path)
    node = nodes.at(problem.path)
    wanted = describe_node(nodes, node)
    match problem.kind:
        case "missing":
            return f"- {where}: required, but missing." + (f" Give {wanted}." if wanted else "")
        case "unknown":
            name = meant.get(problem.path)
            hint = "Leave it out." if name is None else ask_whether_meant([name], quote='"', is_sentence=True)
            return f"- {where}: unknown. {hint}"
        case "wrong":
            got = _describe_value(value_at(value, problem.path), is_secret=nodes.is_secret(node))
            if problem.reason and (
                problem.is_told or not (wanted and _is_told_by_schema(value_at(value, problem.path), node, nodes))
            ):
                return f"- {where}: got {got}. {_make_sentence(problem.reason)}"
            return f"- {where}: got {got}, but it must be {wanted or 'something else'}."


def _list_accepted(problems: Sequence[Problem], nodes: Nodes) -> Iterator[str]:
    """Yield, for each object with an unknown name, what is accepted in it."""
    for path in dict.fromkeys(problem.path[:-1] for problem in problems if problem.kind == "unknown"):
        where = f" in {_write_path(path)}" if path else ""
        names = _list_names(path, nodes)
        kinds = {name: describe_node(nodes, nodes.at((*path, name)), depth=1) for name in names[:_MOST_ACCEPTED]}
        listed = ", ".join(
            f"{json.dumps(name[:_LONGEST_NAME_READ], ensure_ascii=False)} ({kind or 'any value'})"
            for name, kind in kinds.items()
        )
        if len(names) > _MOST_ACCEPTED:
            listed += f" and {len(names) - _MOST_ACCEPTED} more"
        yield f"Accepted{where}: {listed or 'nothing'}."


def _list_names(path: JsonPath, nodes: Nodes) -> list[str]:
    return list(
        dict.fromkeys(
            name
            for choice in nodes.choices(nodes.at(path))
            for name, member in choice.get("properties", {}).items()
            if member is not False
        )
    )


def _find_meant_names(problems: Sequence[Problem], value: Any, nodes: Nodes) -> dict[JsonPath, str]:
    """Return, by the path of an unknown name, the accepted one that it was meant for, where that can be told.

    A missing name that is similar; else one that is accepted and similar; else, where as many are left as are missing,
    the missing one in its place, if the value has its type.
    """
    meant: dict[JsonPath, str] = {}
    for path in dict.fromkeys(problem.path[:-1] for problem in problems if problem.kind == "unknown"):
        beside = [problem for problem in problems if problem.path[:-1] == path and problem.path]
        unknown = [problem.path for problem in beside if problem.kind == "unknown"]
        missing = [str(problem.path[-1]) for problem in beside if problem.kind == "missing"]
        accepted = _list_names(path, nodes)
        for each in unknown:
            near = _find_nearest(str(each[-1]), missing) or _find_nearest(str(each[-1]), accepted)
            if near is not None:
                meant[each] = near
                missing = [name for name in missing if name != near]
        rest = [each for each in unknown if each not in meant]
        if len(rest) == len(missing):
            meant |= {
                each: name
                for each, name in zip(rest, missing, strict=True)
                if nodes.types(nodes.at((*path, name))) & types_of(value_at(value, each))
            }
    return meant


def _find_nearest(name: str, candidates: Sequence[str]) -> str | None:
    near = find_similar(name, candidates[:_MOST_NAMES_COMPARED], most=1, cutoff=0.6)
    return near[0] if near else None


def _is_told_by_schema(value: Any, node: Node, nodes: Nodes) -> bool:
    """Return whether the words about a node say why a value is refused, as far as they are about the value alone."""
    from jsonschema_rs import is_valid  # noqa: PLC0415 - takes 20 ms to import, and no need of it without a problem

    if not _is_small(value):
        return False
    told = [{key: choice[key] for key in _TOLD_KEYWORDS & choice.keys()} for choice in nodes.choices(node)]
    try:
        return not any(is_valid(keywords, value, offline=True) for keywords in told)
    except ValueError:  # of a regular expression that only Python reads, say
        return False


def _write_path(path: JsonPath) -> str:
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif len(key) > _LONGEST_SHOWN:
            text += f"[{json.dumps(key[:_LONGEST_SHOWN] + '...', ensure_ascii=False)}]"
        elif key.isidentifier():
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key, ensure_ascii=False)}]"
    return text or "arguments"


def _describe_value(value: Any, *, is_secret: bool) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _ if is_object(value):
            names = [json.dumps(name[:_LONGEST_SHOWN], ensure_ascii=False) for name in list(value)[:8]]
            return f"an object with {', '.join(names)}" if names else "an empty object"
        case _ if is_array(value):
            length = len(value)
            return "an empty list" if not length else f"a list of {length} item{'' if length == 1 else 's'}"
        case str():
            return "a string" if is_secret else f"the string {_quote_beginning(value)}"
        case int() | float():
            return "a number" if is_secret else f"the number {_cut_number(value)}"
        case _:
            return f"a value of type {type(value).__name__}"


def _cut_number(number: float) -> str:
    digits = str(number)
    return digits if len(digits) < _LONGEST_SHOWN else digits[: _LONGEST_SHOWN - 3] + "..."


def _quote_beginning(text: str) -> str:
    shown = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
    return json.dumps(shown, ensure_ascii=False)


def _make_sentence(text: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST_REASON_TOLD:
        text = f"{text[: _LONGEST_REASON_TOLD - 100]} ... {text[-90:]}"
    return text + ("" if text.endswith((".", "!", "?")) else ".")


def _mend_example(
    problems: Sequence[Problem],
    meant: Mapping[JsonPath, str],
    value: Any,
    nodes: Nodes,
    accepts: Callable[[Any], bool],
) -> str | None:
    """Mend what came by the schema, and return it where that makes it right."""
    if not is_object(value):
        return _find_example(lambda attempt: make_example(nodes, nodes.root, attempt=attempt), accepts)
    if not _is_small(value):
        return None
    ordered = sorted(problems, key=lambda problem: problem.kind != "unknown")

    def mend(attempt: int, *, keeps: bool) -> Any:
        mended: Any = copy.deepcopy(value)
        for problem in ordered:
            mended = _mend_problem(mended, problem, meant if keeps else {}, nodes, attempt)
        return _replace_secrets(mended, nodes.root, nodes, attempt)

    # What was sent under a wrong name is kept, unless it would not do there either.
    for keeps in (True, False) if meant else (True,):
        found = _find_example(partial(mend, keeps=keeps), accepts)
        if found is not None:
            return found
    return None


def _find_example(make: Callable[[int], Any], accepts: Callable[[Any], bool]) -> str | None:
    """Return the first of some examples that is accepted, as text."""
    tried: set[str] = set()
    for attempt in range(ATTEMPTS):
        try:
            example = make(attempt)
            text = json.dumps(example, ensure_ascii=False)
            if text not in tried and len(text) <= _MAX_EXAMPLE and accepts(example):
                return text
        except (TooMuchWorkError, TypeError, ValueError, RecursionError, KeyError, IndexError, OverflowError):
            return None
        tried.add(text)
    return None


def _is_small(value: Any) -> bool:
    """Return whether a value is so small that what is made of it could be shown as an example."""
    count = 0
    waiting = [value]
    while waiting:
        part: Any = waiting.pop()
        count += 1
        if count + len(waiting) > _MOST_COPIED or (isinstance(part, str) and len(part) > _MOST_COPIED):
            return False
        if is_object(part):
            waiting.extend(part.values())
        elif is_array(part):
            waiting.extend(part)
    return True


def _mend_problem(value: Any, problem: Problem, meant: Mapping[JsonPath, str], nodes: Nodes, attempt: int) -> Any:
    if not problem.path:
        return make_example(nodes, nodes.root, attempt=attempt)
    key = problem.path[-1]
    container: Any = value_at(value, problem.path[:-1])
    if problem.kind == "unknown" and is_object(container):
        came = container.pop(str(key), None)
        name = meant.get(problem.path)
        if name is not None and name not in container:
            container[name] = came
    elif is_object(container):
        if problem.kind == "wrong" or key not in container:
            container[str(key)] = _make_right_value(problem.path, nodes, attempt)
    elif is_array(container) and problem.kind == "missing" and key == len(container):
        container.append(_make_right_value(problem.path, nodes, attempt))
    elif is_array(container) and isinstance(key, int) and key < len(container):
        container[key] = _make_right_value(problem.path, nodes, attempt)
    return value


def _make_right_value(path: JsonPath, nodes: Nodes, attempt: int) -> Any:
    """Return an example for what was sent wrongly: a real value, because null would say nothing."""
    node = nodes.resolve(nodes.at(path))
    # The default comes first, and where that is refused too, what else there may be.
    kept = {key: item for key, item in node.items() if key != "default" or (item is not None and attempt == 0)}
    return make_example(nodes, kept, attempt=max(0, attempt - ("default" in node)))


def _replace_secrets(value: Any, node: Node, nodes: Nodes, attempt: int) -> Any:
    if not nodes.is_secret(node):
        return value
    if is_object(value):
        members = value
        return {key: _replace_secrets(item, nodes.at_key(node, key), nodes, attempt) for key, item in members.items()}
    if is_array(value):
        return [_replace_secrets(item, nodes.at_key(node, index), nodes, attempt) for index, item in enumerate(value)]
    return value if value is None else make_example(nodes, node, attempt=attempt)


def _strike_out_secrets(message: str, value: Any, nodes: Nodes) -> str:
    """Strike out what of the arguments no message may show; an example with a gap in it is left out."""
    from toolkit.secrets import MASK  # noqa: PLC0415 - its patterns take milliseconds

    body, mark, example = message.rpartition(f"\n{_EXAMPLE_LEAD}")
    if not mark:
        body, example = message, ""
    # The words are our own, and hold values as they came, in no other form; what they are searched for has no end.
    for secret in sorted(_secrets_in(value, nodes), key=len, reverse=True):
        if secret in example:
            mark, example = "", ""
        body = body.replace(secret, MASK)
    return body + mark + example


def _secrets_in(value: Any, nodes: Nodes) -> set[str]:
    found: set[str] = set()
    waiting: list[tuple[Any, Node]] = [(value, nodes.root)]
    while waiting:
        part, node = waiting.pop()
        if not nodes.is_secret(node):
            continue
        if is_object(part):
            waiting.extend((item, nodes.at_key(node, key)) for key, item in part.items())
        elif is_array(part):
            waiting.extend((item, nodes.at_key(node, index)) for index, item in enumerate(part))
        elif isinstance(part, str) and len(part) >= _SHORTEST_STRUCK_ARGUMENT:
            found.add(part)
    return found
