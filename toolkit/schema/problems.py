"""Error messages about arguments, phrased so that a small model can act on them.

A message names each place, the value that came and the values that are accepted, and ends with a valid example. The
problems come from Pydantic's errors (`read_validation_errors`) or from a raw schema (`toolkit.schema.raw`).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError
from toolkit.redaction import MASK
from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object, types_of
from toolkit.suggestions import ask_whether_meant, find_similar

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MOST_PROBLEMS_SHOWN = 12
_MAX_EXAMPLE = 800
_LONGEST_NAME_READ = 256
_LONGEST_SHOWN = 80
WRONG_NAME = "The name itself is not accepted here"
_EXAMPLE_LEAD = "Call it again, for example with: "
_SHORTEST_STRUCK_ARGUMENT = 3
_LONGEST_REASON = 300
_LONGEST_EXPLANATION = 10_000
_MOST_ACCEPTED = 60
_MOST_NAMES_COMPARED = 300
_MOST_COPIED = 2_000
# The keywords that the phrase about a node explains, for a value without its members.
_EXPLAINED_KEYWORDS = frozenset(
    {
        "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
    }
)  # fmt: skip

_MOST_SHOWN = 50
_MOST_SHOWN_INSIDE = 12
_LONGEST_VALUE = 200

_PHRASES_OF_FORMATS = {
    "date-time": "a date and time like 2026-01-31T12:00:00Z",
    "date": "a date like 2026-01-31",
    "time": "a time like 12:00:00",
    "duration": "a duration like PT1H30M",
    "uuid": "a UUID like 123e4567-e89b-42d3-a456-426614174000",
    **{f"uuid{n}": f"a UUID of version {n}" for n in (1, 3, 4, 5, 6, 7, 8)},
    "zoneinfo": "a time zone like Europe/Paris",
    "email": "an email address",
    "uri": "a URL like https://example.com",
    "path": "a path",
    "file-path": "the path of an existing file",
    "directory-path": "the path of an existing folder",
    "regex": "a regular expression",
    "json-string": "a string that holds JSON",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "password": "a string (secret)",
}
_PHRASES_OF_TYPES = {
    "boolean": "true or false",
    "null": "null",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
}
_INCLUSIVE_LIMITS = {"minimum": "of at least {}", "maximum": "of at most {}"}
_OTHER_LIMITS = {
    "exclusiveMinimum": "greater than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "that is a multiple of {}",
}
_SYNTAX_ERRORS = ("_parsing", "_from_datetime_inexact")
_SHOWN_PREFIXES = ("decimal_", "url_", "byte_size")
# Models and functions, then dataclasses.
KINDS_OF_ERRORS = {
    "missing": "missing",
    "missing_argument": "missing",
    "extra_forbidden": "unknown",
    "unexpected_keyword_argument": "unknown",
}
_TAG_ERRORS = frozenset({"union_tag_invalid", "union_tag_not_found"})
_CONSTANT_ERRORS = frozenset({"literal_error", "enum"})
_AUTHORS_ERRORS = frozenset({"value_error", "assertion_error"})
_MOST_EXAMPLES = 16
_MAX_VALUES = 200
_MAX_TEXT = 500
_MAX_LEVELS = 12
# The others satisfy conditions that a schema can't express: a past date, version 7, a power of ten.
_TEXTS = ("...", "example", "a", "1", "A1", "example.txt", "en", "https://example.com", "4242424242424242")
_NUMBERS = (1, 0, 2, 10, 100, 1000, 7, -1)
_SCHEMES = (
    "https", "http", "ftp", "wss", "file", "redis", "amqp", "kafka", "mariadb", "snowflake", "cockroachdb",
    "clickhouse", "nats", "mysql", "mongodb", "postgresql",
)  # fmt: skip
_TEXTS_OF_FORMATS: dict[str, tuple[str, ...]] = {
    "date-time": ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2000-01-01T00:00:00Z", "2999-12-31T00:00:00Z",
                  "2000-01-01T00:00:00", "2999-12-31T00:00:00"),
    "date": ("2026-01-31", "2000-01-01", "2999-12-31", "1970-01-01", "1800-01-01"),
    "time": ("12:00:00", "12:00:00Z", "00:00:00", "23:59:59"),
    "duration": ("PT1H", "PT1S", "P1D", "P30D", "PT0S", "-PT1H"),
    "uuid": ("123e4567-e89b-42d3-a456-426614174000",),
    "uuid1": ("123e4567-e89b-12d3-a456-426614174000",),
    "uuid3": ("123e4567-e89b-32d3-a456-426614174000",),
    "uuid4": ("123e4567-e89b-42d3-a456-426614174000",),
    "uuid5": ("123e4567-e89b-52d3-a456-426614174000",),
    "uuid6": ("123e4567-e89b-62d3-a456-426614174000",),
    "uuid7": ("0198e4b2-7d3a-7c51-8f02-426614174000",),
    "uuid8": ("123e4567-e89b-82d3-a456-426614174000",),
    "email": ("name@example.com",),
    "name-email": ("Name <name@example.com>",),
    "uri": tuple(f"{scheme}://example.com" for scheme in _SCHEMES),
    "multi-host-uri": tuple(f"{scheme}://example.com" for scheme in reversed(_SCHEMES)),
    "json-string": ("{}", "[]", "1", '"text"', "true"),
    "ipv4": ("192.0.2.1",),
    "ipv6": ("2001:db8::1",),
    "ipv4network": ("192.0.2.0/24",),
    "ipv6network": ("2001:db8::/32",),
    "ipv4interface": ("192.0.2.1/24",),
    "ipv6interface": ("2001:db8::1/32",),
    "ipvanyaddress": ("192.0.2.1",),
    "ipvanynetwork": ("192.0.2.0/24",),
    "ipvanyinterface": ("192.0.2.1/24",),
    "zoneinfo": ("UTC",),
    "base64": ("aGVsbG8=",),
    "base64url": ("aGVsbG8=", "aGVsbG8"),
    "hostname": ("example.com",),
    "regex": (".*",),
    "color": ("red", "#ff0000"),
    "path": ("example.txt",),
    "file-path": ("example.txt", "."),
    "directory-path": (".", "/"),
}  # fmt: skip
_LONGEST_PATTERN_READ = 1_000
_PROBES = "aA1b0B2 _-./:@#,;+*%&=?!~|()[]{}<>'\"\\^$`\n\t\u00e9\u4e00"
_PIECE_OF_PATTERN = re.compile(
    r"(?:(\((?:\?(?:<?[=!]|:|P?<\w+>))?)|(\))|(\|)|\\[bBAzZ]|[\^$]|(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^*+?{(\[|)]))"
    r"([*+?]\??|\{\d+(?:,\d*)?\}\??)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of some arguments.

    Args:
        path: The place in the arguments.
        kind: ``wrong`` for a value, ``missing`` and ``unknown`` for a name.
        reason: The reason, shown if the schema does not explain the problem.
        is_always_shown: True if the reason is shown in any case.
        is_crash: True if the reason is an unexpected exception of a validator.
        is_of_author: True if a rule of the tool's author refuses the value.
        is_constant: True if the value is none of those that are listed.
    """

    path: JsonPath
    kind: Literal["wrong", "missing", "unknown"]
    reason: str = ""
    is_always_shown: bool = False
    is_crash: bool = False
    is_of_author: bool = False
    is_constant: bool = False


def explain(
    problems: Sequence[Problem], value: Any, nodes: Nodes, accepts: Callable[[Any], bool], *, omitted: int = 0
) -> InvalidArgumentsError:
    """Return an error with one message about all problems.

    Args:
        problems: The problems.
        value: The decoded arguments.
        nodes: Their schema.
        accepts: Returns whether arguments are valid, to choose an example.
        omitted: How many more problems there are.
    """
    more = len(problems) + omitted - _MOST_PROBLEMS_SHOWN
    if more > 0:
        # Missing names first: there may be any number of unknown ones.
        problems = sorted(problems, key=lambda problem: problem.kind != "missing")[:_MOST_PROBLEMS_SHOWN]
    meant = _find_meant_names(problems, value, nodes)
    renamed = {(*path[:-1], name) for path, name in meant.items()}
    shown = [problem for problem in problems if problem.kind != "missing" or problem.path not in renamed]
    lines = [_write_line(problem, meant, value, nodes) for problem in shown]
    if more > 0:
        lines.append(f"- and {more} more problems")
    count = len(shown) + max(0, more)
    title = "The arguments have 1 problem:" if count == 1 else f"The arguments have {count} problems:"
    message = "\n".join([title, *lines, *_list_accepted(problems, nodes)])
    example = None if more > 0 else _repair_example(problems, meant, value, nodes, accepts)
    if example is not None:
        message += f"\n{_EXAMPLE_LEAD}{example}"
    if nodes.may_take_secrets:
        message = _strike_out_secrets(message, value, nodes)
    message = message if len(message) <= _LONGEST_EXPLANATION else f"{message[:_LONGEST_EXPLANATION]}..."
    refusal = InvalidArgumentsError(message)
    refusal.paths = tuple([problem.path for problem in problems])
    refusal.lines = tuple([line for line in message.split("\n")[1:] if not line.startswith(_EXAMPLE_LEAD)])
    return refusal


def describe_errors(details: Sequence[ErrorDetails], value: Any, nodes: Nodes) -> list[str]:
    """Return one line about each error of a validator, with its place and without secrets.

    Args:
        details: The errors.
        value: The decoded arguments.
        nodes: Their schema.
    """
    problems = read_validation_errors(details, value, nodes)
    meant = _find_meant_names(problems, value, nodes)
    lines = [_write_line(problem, meant, value, nodes).removeprefix("- ") for problem in problems]
    return [_strike_out_secrets(line, value, nodes) for line in lines] if nodes.may_take_secrets else lines


def example_line(nodes: Nodes, accepts: Callable[[Any], bool]) -> str:
    """Return a line with an example of valid arguments; empty if there is none, or none is needed."""
    example = _find_example(lambda attempt: make_example(nodes, nodes.root, attempt=attempt), accepts)
    return f"\n{_EXAMPLE_LEAD}{example}" if example is not None and example != "{}" else ""


def value_at(value: Any, path: JsonPath) -> Any:
    """Return the value at a path, or None."""
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
            is_secret = nodes.hides(problem.path) or (nodes.takes_secrets and not is_object(value))
            got = _describe_value(value_at(value, problem.path), is_secret=is_secret)
            if problem.reason and (
                problem.is_always_shown
                or not (wanted and _is_explained_by_schema(value_at(value, problem.path), node, nodes))
            ):
                return f"- {where}: got {got}. {_make_sentence(problem.reason)}"
            return f"- {where}: got {got}, but it must be {wanted or 'something else'}."


def _list_accepted(problems: Sequence[Problem], nodes: Nodes) -> Iterator[str]:
    """Yield the accepted names of each object with an unknown one."""
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
    """Return the name that each unknown name was meant for, by the path of the unknown one.

    That is a similar missing name, or else a similar accepted one. If as many unknown names are left as missing ones,
    they are paired in order if the values have the types.
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


def _is_explained_by_schema(value: Any, node: Node, nodes: Nodes) -> bool:
    """Return whether the phrase about a node explains why a value is refused."""
    from jsonschema_rs import is_valid  # noqa: PLC0415 - takes 20 ms to import

    if not _is_small(value):
        return False
    shown = [{key: choice[key] for key in _EXPLAINED_KEYWORDS & choice.keys()} for choice in nodes.choices(node)]
    try:
        return not any(is_valid(keywords, value, offline=True) for keywords in shown)
    except ValueError:  # such as a regular expression that only Python can read
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
    if len(text) > _LONGEST_REASON:
        text = f"{text[: _LONGEST_REASON - 100]} ... {text[-90:]}"
    return text + ("" if text.endswith((".", "!", "?")) else ".")


def _repair_example(
    problems: Sequence[Problem],
    meant: Mapping[JsonPath, str],
    value: Any,
    nodes: Nodes,
    accepts: Callable[[Any], bool],
) -> str | None:
    """Return the arguments with each problem corrected, as an example, if they are valid then."""
    if not is_object(value):
        return _find_example(lambda attempt: make_example(nodes, nodes.root, attempt=attempt), accepts)
    if not _is_small(value) or any(len(str(key)) > _MAX_EXAMPLE for problem in problems for key in problem.path):
        return None
    ordered = sorted(problems, key=lambda problem: problem.kind != "unknown")

    def repair(attempt: int, *, keeps: bool) -> Any:
        repaired: Any = copy.deepcopy(value)
        for problem in ordered:
            repaired = _repair_problem(repaired, problem, meant if keeps else {}, nodes, attempt)
        return _replace_secrets(repaired, nodes, attempt)

    # A value under a wrong name is moved to the right one, if it is valid there.
    for keeps in (True, False) if meant else (True,):
        found = _find_example(partial(repair, keeps=keeps), accepts)
        if found is not None:
            return found
    return None


def _find_example(make: Callable[[int], Any], accepts: Callable[[Any], bool]) -> str | None:
    """Return the first of some examples that is accepted, as text."""
    tried: set[str] = set()
    for attempt in range(_MOST_EXAMPLES):
        try:
            example = make(attempt)
            text = json.dumps(example, ensure_ascii=False)
            if text not in tried and len(text) <= _MAX_EXAMPLE and accepts(example):
                return text
        except (ExampleTooLargeError, TypeError, ValueError, RecursionError, KeyError, IndexError, OverflowError):
            return None
        tried.add(text)
    return None


def _is_small(value: Any) -> bool:
    """Return whether a value is small enough for an example."""
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


def _repair_problem(value: Any, problem: Problem, meant: Mapping[JsonPath, str], nodes: Nodes, attempt: int) -> Any:
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
    """Return an example for a place; never null, which would explain nothing."""
    node = nodes.resolve(nodes.at(path))
    # The default first; if that is refused, other values.
    kept = {key: item for key, item in node.items() if key != "default" or (item is not None and attempt == 0)}
    return make_example(nodes, kept, attempt=max(0, attempt - ("default" in node)))


def _replace_secrets(value: Any, nodes: Nodes, attempt: int) -> Any:
    """Return arguments with examples in place of secrets."""

    def make_other(secret: Any, path: JsonPath, is_marked: bool) -> Any:
        del secret, is_marked
        return make_example(nodes, nodes.resolve(nodes.at(path)), attempt=attempt)

    return nodes.replace_secrets(value, make_other)


def _strike_out_secrets(message: str, value: Any, nodes: Nodes) -> str:
    """Mask the secrets of the arguments in a message; an example with a secret is left out."""
    body, mark, example = message.rpartition(f"\n{_EXAMPLE_LEAD}")
    if not mark:
        body, example = message, ""
    # Messages hold values only as they came.
    for secret in sorted(_secrets_in(value, nodes), key=len, reverse=True):
        if secret in example:
            mark, example = "", ""
        body = body.replace(secret, MASK)
    return body + mark + example


def _secrets_in(value: Any, nodes: Nodes) -> set[str]:
    """Return the texts and numbers in the secret arguments."""
    found: set[str] = set()

    def add(secret: Any, path: JsonPath, is_marked: bool) -> Any:
        del path, is_marked
        waiting: list[Any] = [secret]
        while waiting:
            part = waiting.pop()
            if is_object(part):
                waiting += [*part, *part.values()]
            elif is_array(part):
                waiting += part
            elif part is not None and not isinstance(part, bool) and len(str(part)) >= _SHORTEST_STRUCK_ARGUMENT:
                found.add(str(part))
        return None

    nodes.replace_secrets(value, add)
    return found


def describe_node(nodes: Nodes, node: Node, *, depth: int = 0) -> str:
    """Return a phrase for the values that a node accepts; empty for any value."""
    phrases = list(dict.fromkeys(_describe_one(nodes, choice, depth) for choice in nodes.choices(node)))
    if "" in phrases:
        return ""
    constants = [phrase for phrase in phrases if phrase[:1] in '"0123456789-']
    if len(phrases) > _MOST_SHOWN:
        phrases[_MOST_SHOWN:] = [f"{len(phrases) - _MOST_SHOWN} more"]
    if len(constants) > 1 and len(constants) == len(phrases):
        return "one of " + ", ".join(constants)
    return " or ".join(phrases)


def _names_form(nodes: Nodes, node: Node) -> bool:
    """Return whether the phrase about a node describes the form of a text, such as "a date like ..."."""
    return any(choice.get("format") in _PHRASES_OF_FORMATS for choice in nodes.choices(node))


def _describe_one(nodes: Nodes, node: Node, depth: int) -> str:
    if "const" in node:
        return _write_constant(node["const"])
    if "enum" in node:
        return _list_values(node["enum"])
    kind = node.get("type", "object" if "properties" in node else None)
    if is_array(kind):
        return " or ".join(_describe_one(nodes, {**node, "type": one}, depth) for one in kind)
    match kind:
        case "array":
            return _describe_array(nodes, node, depth)
        case "object":
            return _describe_object(nodes, node, depth)
        case "string":
            return (_PHRASES_OF_FORMATS.get(str(node.get("format"))) or "a string") + _describe_string_limits(node)
        case "integer" | "number":
            return _PHRASES_OF_TYPES[kind] + _describe_number_limits(node)
        case str():
            return _PHRASES_OF_TYPES.get(kind, kind)
        case _:
            return ""


def _describe_array(nodes: Nodes, node: Node, depth: int) -> str:
    first: list[Any] = node.get("prefixItems", [])
    if first and depth < 2:
        inside = ", ".join(
            describe_node(nodes, member, depth=depth + 1) or "any value" for member in first[:_MOST_SHOWN_INSIDE]
        ) + (", ..." if len(first) > _MOST_SHOWN_INSIDE else "")
        goes_on = node.get("maxItems") != len(first) and node.get("items", True) is not False
        return f"a list of {inside} and more" if goes_on else f"a list of exactly {len(first)} items: {inside}"
    items = node.get("items")
    inside = describe_node(nodes, items, depth=depth + 1) if is_object(items) and depth < 2 else ""
    words = "a list"
    if counted := _describe_range(node.get("minItems"), node.get("maxItems"), "item"):
        words += f" of {counted}"
    if node.get("uniqueItems"):
        words += ", all different"
    return f"{words}, each {inside}" if inside else words


def _describe_object(nodes: Nodes, node: Node, depth: int) -> str:
    properties: Node = node.get("properties", {})
    counted = _describe_range(node.get("minProperties"), node.get("maxProperties"), "member")
    words = f"an object of {counted}" if counted else "an object"
    if not properties or depth >= 2:
        return words
    required: frozenset[str] = frozenset(node.get("required", ()))
    named = ", ".join(
        f'"{name[:_LONGEST_VALUE]}" ({describe_node(nodes, member, depth=depth + 1) or "any value"}'
        f"{'' if name in required else ', optional'})"
        for name, member in list(properties.items())[:_MOST_SHOWN_INSIDE]
    )
    more = len(properties) - _MOST_SHOWN_INSIDE
    return f"{words} with {named}" + (f" and {more} more" if more > 0 else "")


def _write_constant(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _list_values(values: list[Any]) -> str:
    shown = ", ".join(_write_constant(value) for value in values[:_MOST_SHOWN])
    more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
    return shown if len(values) == 1 else f"one of {shown}{more}"


def _describe_range(least: Any, most: Any, unit: str) -> str:
    if least is None and most is None:
        return ""
    if least not in (None, most) and most is not None:
        return f"{least} to {most} {unit}s"
    words = "exactly" if least == most else "at most" if least is None else "at least"
    count = most if least is None else least
    return f"{words} {count} {unit}{'' if count == 1 else 's'}"


def _describe_string_limits(node: Node) -> str:
    words = ""
    if length := _describe_range(node.get("minLength"), node.get("maxLength"), "character"):
        words += f" of {length}"
    if pattern := node.get("pattern"):
        shown = pattern if len(pattern) <= _LONGEST_VALUE else f"{pattern[:_LONGEST_VALUE]}..."
        words += f" that matches the regular expression {shown}"
    return words


def _describe_number_limits(node: Node) -> str:
    least, most = node.get("minimum"), node.get("maximum")
    if least is not None and most is not None:
        parts = [f"from {least} to {most}"]
    else:
        parts = [words.format(node[keyword]) for keyword, words in _INCLUSIVE_LIMITS.items() if keyword in node]
    parts += [words.format(node[keyword]) for keyword, words in _OTHER_LIMITS.items() if keyword in node]
    return (" " + " and ".join(parts)) if parts else ""


def find_path(location: tuple[str | int, ...], value: Any, *, is_missing: bool = False) -> JsonPath:
    """Return the location of an error without the names that Pydantic gives to the choices of unions."""
    path: list[str | int] = []
    last = len(location) - 1
    for index, key in enumerate(location):
        inner = value_at(value, tuple(path))
        if (
            (is_object(inner) and key in inner)
            or (is_array(inner) and isinstance(key, int) and key < len(inner))
            or (is_missing and index == last)
        ):
            path.append(key)
    return tuple(path)


def read_validation_errors(details: Sequence[ErrorDetails], value: Any, nodes: Nodes) -> list[Problem]:
    """Return the problems of a value, one for each place, in the order of the errors.

    Of a union with several choices, they are those of the choice that was meant.
    """
    choices: dict[JsonPath, dict[str, list[Problem]]] = {}
    read: list[tuple[JsonPath, str, Problem]] = []
    for detail in details:
        problem = _read_detail(detail, value, nodes)
        path, tag = _find_choice(detail, value)
        choices.setdefault(path, {}).setdefault(tag, []).append(problem)
        read.append((path, tag, problem))
    meant = {path: find_nearest([*by_tag.values()], path, value, nodes) for path, by_tag in choices.items()}
    found: dict[JsonPath, Problem] = {}
    for path, tag, problem in read:
        known = found.get(problem.path)
        is_better = known is None or not known.reason or (problem.is_always_shown and not known.is_always_shown)
        if is_better and (not tag or meant[path] is choices[path][tag]):
            found[problem.path] = problem
    return list(found.values())


def _find_choice(detail: ErrorDetails, value: Any) -> tuple[JsonPath, str]:
    """Return the path of the outermost union of an error, and the name of its choice; that is empty without a union."""
    location = detail["loc"]
    for position, key in enumerate(location):
        is_name = position == len(location) - 1 and detail["type"] == "missing"
        path = find_path(location[: position + 1], value)
        if not is_name and len(path) == len(find_path(location[:position], value)):
            return path, str(key)
    return (), ""


def find_nearest(choices: Sequence[Sequence[Problem]], path: JsonPath, value: Any, nodes: Nodes) -> Sequence[Problem]:
    """Return the problems of the choice of a union that was meant by the value at a path.

    It accepts a value of this type, shares the most constants with the value, less those that differ, has the fewest
    problems, and shares the most names.
    """
    likeness = _count_likeness(nodes, path, value_at(value, path), len(choices))

    def measure_distance(place: int) -> tuple[bool, int, int, int]:
        found, (constants, names) = choices[place], likeness[place]
        others = sum(problem.is_constant and len(problem.path) == len(path) + 1 for problem in found)
        return not is_wrong_inside(found, path), others - constants, len(found), -names

    return choices[min(range(len(choices)), key=measure_distance)]


def is_wrong_inside(problems: Iterable[Problem], path: JsonPath) -> bool:
    """Return whether the value at a path has the right type, and is wrong only inside or by a rule of the author."""
    return any(len(problem.path) > len(path) or problem.is_of_author for problem in problems)


def _read_detail(detail: ErrorDetails, value: Any, nodes: Nodes) -> Problem:
    code, message, context = detail["type"], detail["msg"], detail.get("ctx", {})
    kind: Any = KINDS_OF_ERRORS.get(code, "wrong")
    path = find_path(detail["loc"], value, is_missing=kind == "missing")
    tag = str(context.get("discriminator", ""))[1:-1] if code in _TAG_ERRORS else ""
    if tag.isidentifier():
        kind = "wrong" if tag in value_at(value, path) else "missing"
        return Problem(path=(*path, tag), kind=kind, reason=message)
    is_of_author, is_constant = code in _AUTHORS_ERRORS, code in _CONSTANT_ERRORS
    inside = _locate_in_json(detail, path, value, nodes)
    if is_of_author:
        message = str(context.get("error", message))
    elif inside is not None:
        message = f"{inside}{message}"
    elif kind != "wrong":
        return Problem(path=path, kind=kind)
    elif detail["loc"] and detail["loc"][-1] == "[key]":
        message = f"{WRONG_NAME}: {message}"
    elif not code.startswith(_SHOWN_PREFIXES):
        if code.endswith(_SYNTAX_ERRORS) and _names_form(nodes, nodes.at(path)):
            # For a text that is no attempt at the form, its phrase explains more: "a date like ...".
            came = value_at(value, path)
            is_attempt = isinstance(came, str) and any(letter.isdigit() for letter in came)
            message = message if is_attempt else ""
        return Problem(path=path, kind=kind, reason=message, is_constant=is_constant)
    return Problem(path=path, kind="wrong", reason=message, is_always_shown=True, is_of_author=is_of_author)


def _is_json_text(node: Node) -> bool:
    return node.get("format") == "json-string" or node.get("contentMediaType") == "application/json"


def _locate_in_json(detail: ErrorDetails, path: JsonPath, value: Any, nodes: Nodes) -> str | None:
    """Return, in words, the place of an error inside a string that holds JSON; None for another value."""
    if not isinstance(value_at(value, path), str) or not any(map(_is_json_text, nodes.choices(nodes.at(path)))):
        return None
    rest = [str(key) for key in detail["loc"][len(path) :]]
    return f"In the JSON that it holds, at {'.'.join(rest)}: " if rest else ""


def _count_likeness(nodes: Nodes, path: JsonPath, value: Any, count: int) -> list[tuple[int, int]]:
    """Return, for each of the choices at a path, how many of its constants and of its names the value has."""
    choices = nodes.choices(nodes.at(path))
    if len(choices) != count:
        choices = [choice for choice in choices if choice.get("type") != "null"]
    if not is_object(value) or len(choices) != count:
        return [(0, 0)] * count
    counts: list[tuple[int, int]] = []
    for choice in choices:
        members = {name: nodes.resolve(member) for name, member in choice.get("properties", {}).items()}
        constants = sum("const" in member and member["const"] == value.get(name) for name, member in members.items())
        counts.append((constants, len(members.keys() & value.keys())))
    return counts


class ExampleTooLargeError(Exception):
    """The schema accepts no small value."""


def make_example(nodes: Nodes, node: Node, *, attempt: int = 0) -> Any:
    """Return a small value that a node probably accepts; patterns and formats are guessed.

    Raises:
        ExampleTooLargeError: There is no small value.
    """
    return _ExampleMaker(nodes, attempt).make(node, 0)


class _ExampleMaker:
    def __init__(self, nodes: Nodes, attempt: int) -> None:
        self._nodes = nodes
        self._attempt = attempt
        self._left = _MAX_VALUES

    def make(self, node: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_LEVELS:
            raise ExampleTooLargeError
        node = self._nodes.resolve(node)
        for key in ("default", "const"):
            if key in node:
                return node[key]
        if is_array(listed := node.get("examples")) and listed:
            return self._pick_one(listed)
        if is_array(listed := node.get("enum")) and listed:
            return self._pick_one(listed)
        choices = self._nodes.choices(node)
        choice = next((one for one in choices if one.get("type") != "null"), choices[0])
        if choice is not node:
            return self.make(choice, depth + 1)
        kind = node.get("type", "object" if "properties" in node else None)
        return self._make_of_type(kind[0] if is_array(kind) else kind, node, depth)

    def _make_of_type(self, kind: Any, node: Node, depth: int) -> Any:
        match kind:
            case "object":
                properties: Node = node.get("properties", {})
                required: list[str] = node.get("required", [])
                if len(required) > self._left:
                    raise ExampleTooLargeError
                return {name: self.make(properties.get(name, {}), depth + 1) for name in required}
            case "array":
                return self._make_list(node, depth)
            case "string":
                return self._make_text(node, depth)
            case "integer" | "number":
                return _make_number(node, self._pick_one(_NUMBERS))
            case "boolean":
                return self._attempt % 2 == 0
            case _:
                return None

    def _make_list(self, node: Node, depth: int) -> list[Any]:
        first: list[Any] = node.get("prefixItems", [])
        wanted = node.get("minItems", 0)
        if max(wanted, len(first)) > self._left:
            raise ExampleTooLargeError
        some = [self.make(member, depth + 1) for member in first]
        if len(some) < wanted:
            items = node.get("items")
            kinds: Any = items if is_object(items) else {}
            some += [self.make(kinds, depth + 1) for _ in range(int(wanted) - len(some))]
        if node.get("uniqueItems") and len(some) > 1 and all(isinstance(item, str) for item in some):
            some = [f"{item}{index}" if index else item for index, item in enumerate(some)]
        return some

    def _make_text(self, node: Node, depth: int) -> str:
        if is_object(inner := node.get("contentSchema")):
            return json.dumps(self.make(inner, depth + 1), ensure_ascii=False)
        least, most = node.get("minLength", 0), node.get("maxLength", _MAX_TEXT)
        if least > _MAX_TEXT:
            raise ExampleTooLargeError
        known = _TEXTS_OF_FORMATS.get(str(node.get("format")))
        if known is None and isinstance(pattern := node.get("pattern"), str):
            fitting = _write_fitting_text(pattern, least=int(least))
            if fitting is not None:
                return fitting
        text: str = self._pick_one(known or _TEXTS)
        return text.ljust(int(least), ".")[: int(most)] if known is None else text

    def _pick_one(self, values: Any) -> Any:
        return values[self._attempt % len(values)]


def _make_number(node: Node, wanted: int) -> Any:
    """Return the number within the limits that is nearest to a wanted one; the least one for 1."""
    step: Any = node.get("multipleOf")
    lowest, highest = _find_limits(node)
    number: Any = min([*highest, max([*lowest, *([] if lowest and wanted == 1 else [wanted])])])
    if step is None:
        return number
    try:
        whole: Any = number // step * step
    except (OverflowError, ValueError):
        raise ExampleTooLargeError from None
    whole += step if lowest and whole < max(lowest) else 0
    return whole or (0 if highest and step > min(highest) else step)


def _find_limits(node: Node) -> tuple[list[Any], list[Any]]:
    """Return the least and the greatest numbers that a schema accepts, one step inside exclusive limits."""
    above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
    gap: Any = node.get("multipleOf") or 1
    if "multipleOf" not in node and node.get("type") != "integer" and above is not None and below is not None:
        gap = (node["exclusiveMaximum"] - node["exclusiveMinimum"]) / 2
    lowest: list[Any] = [node.get("minimum"), None if above is None else above + gap]
    highest: list[Any] = [node.get("maximum"), None if below is None else below - gap]
    return [each for each in lowest if each is not None], [each for each in highest if each is not None]


@lru_cache(maxsize=256)
def _write_fitting_text(pattern: str, *, least: int) -> str | None:
    r"""Return a short text that probably matches a regular expression of a usual form, else None.

    It has the first of alternatives, ignores lookarounds, and repeats and optional parts as few times as the length
    allows: ``^[A-Z]{3}-\d+$`` gives ``AAA-0``.
    """
    if len(pattern) > _LONGEST_PATTERN_READ:
        return None
    try:
        return _write_alternative(_PIECE_OF_PATTERN.finditer(pattern), least)
    except (re.error, LookupError, ValueError):
        return None


def _write_alternative(pieces: Iterator[re.Match[str]], least: int) -> str:
    """Return the text of the first alternative, up to the end of its group."""
    text, is_first = "", True
    for piece in pieces:
        opening, closing, other, atom, quantifier = piece.groups()
        if closing:
            return text + "\0" + (quantifier or "")
        if other:
            is_first = False
        if opening:
            inside, _, quantifier = _write_alternative(pieces, 0).partition("\0")
            one = "" if opening.startswith(("(?=", "(?!", "(?<=", "(?<!")) else inside
        elif atom:
            one = _find_probe(atom)
        else:
            continue
        if is_first:
            text += one * _count_repeats(quantifier or "", least - len(text), one)
    return text


@lru_cache(maxsize=1024)
def _find_probe(atom: str) -> str:
    for probe in _PROBES:
        if re.fullmatch(atom, probe):
            return probe
    raise LookupError(atom)


def _count_repeats(quantifier: str, lacking: int, one: str) -> int:
    if counted := re.match(r"\{(\d+)(?:,(\d*))?", quantifier):
        fewest, most = int(counted[1]), int(counted[2] or counted[1]) if counted[2] != "" else _MAX_TEXT
    else:
        fewest, most = {"": (1, 1), "+": (1, _MAX_TEXT), "*": (0, _MAX_TEXT), "?": (0, 1)}[quantifier[:1]]
    if fewest * len(one) > _MAX_TEXT:
        raise ExampleTooLargeError
    return max(fewest, min(most, lacking if one else 0))
