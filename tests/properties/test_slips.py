"""One misplaced character never makes a call run with other values than those that were meant."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from toolkit import FunctionTool, tool, tool_from_schema
from toolkit.calls.argument_repair import repair_to_fit
from toolkit.errors import InvalidArgumentsError
from toolkit.schema.arguments import decode_json
from toolkit.schema.nodes import is_array, is_object

OPEN = {"type": "object", "properties": {"sql": {"type": "string"}, "database": {"type": "string"}}}
"""An object that takes names of any kind, as most schemas of servers do."""


@dataclass
class Step:
    run: str
    where: str = "."


@tool
def shell(command: str, cwd: str = "/", timeout: int = 60) -> str:
    """Run a command."""
    return command


@tool
def mail(to: str, subject: str = "", cc: list[str] | None = None, urgent: bool = False, note: str | None = None) -> str:
    """Send a mail."""
    return to


@tool
def put(path: str, text: str, mode: Literal["new", "append"] = "new", encoding: str = "utf-8") -> str:
    """Write a file."""
    return path


@tool
def label(item: str, labels: dict[str, str] | None = None, reason: str = "") -> str:
    """Label an item."""
    return item


@tool
def build(steps: list[Step], name: str = "build", ratio: float = 0.5) -> str:
    """Build it."""
    return name


query = tool_from_schema("query", "Query a database.", OPEN, json.dumps)

TEXTS: list[tuple[FunctionTool[object, ..., Any], str]] = [
    (shell, '{"command": "rm -rf build", "cwd": "/srv"}'),
    (shell, '{"command":"make test","cwd":"/srv/app","timeout":30}'),
    (shell, '{"command": "echo \\"done\\" > out.txt", "cwd": "/tmp"}'),
    (shell, '{\n  "command": "ls -la",\n  "cwd": "/home/ada",\n  "timeout": 5\n}'),
    (shell, '{"command": "cd \\"my dir\\" && ls", "timeout": 10, "cwd": "/"}'),
    (shell, '{"command": "grep -r \'cwd:\' .", "cwd": "src"}'),
    (shell, '{"command": "date", "cwd": ""}'),
    (mail, '{"to": "ada@example.org", "subject": "Hello, world", "note": null}'),
    (mail, '{"to": "ada", "cc": ["bob", "eve"], "urgent": true}'),
    (mail, '{"to": "a", "subject": "it\'s late", "cc": []}'),
    (mail, '{"to": "ada", "note": "to: bob, cc: eve", "subject": "re"}'),
    (mail, '{"urgent": false, "subject": "x: y", "to": "ada"}'),
    (mail, '{"to": "\u00e4da", "subject": "\u201cquoted\u201d", "note": "\\u00fc"}'),
    (put, '{"path": "a.py", "text": "print(\\"hi\\")\\nx = {\\"path\\": 1}", "mode": "append"}'),
    (put, '{"path": "C:\\\\dir\\\\new.txt", "text": "x", "encoding": "latin-1"}'),
    (put, '{"path": "a.json", "text": "{\\"a\\": [1, 2], \\"b\\": null}", "mode": "new"}'),
    (put, '{"path":"notes.md","text":"# Title\\n- one // two\\n","encoding":"utf-16"}'),
    (put, '{"path": "a", "text": "see http://x.org/#y, then go", "mode": "append", "encoding": "ascii"}'),
    (put, '{"path": "a.sh", "text": "if [ \\"$x\\" = \\"y\\" ]; then echo; fi"}'),
    (label, '{"item": "i1", "labels": {"color": "red", "size": "xl"}, "reason": "asked"}'),
    (label, '{"labels": {"a b": "c", "d": "e, f"}, "item": "i2"}'),
    (label, '{"item": "i3", "labels": {}, "reason": "none; yet"}'),
    (build, '{"steps": [{"run": "make", "where": "src"}, {"run": "test"}], "name": "nightly"}'),
    (build, '{"steps": [{"run": "a"}, {"run": "b", "where": "c"}], "ratio": 0.25}'),
    (build, '{"name": "x", "steps": [], "ratio": 1}'),
    (build, '{\n  "steps": [\n    {"run": "go",\n     "where": "/x"}\n  ],\n  "name": "y"\n}'),
    (query, '{"sql": "SELECT \\"name\\" FROM t WHERE a = \'b\'", "database": "main"}'),
    (query, '{"sql": "DELETE FROM t", "where": "id = 3", "database": "test", "limit": 1}'),
    (query, '{"sql": "SELECT 1", "options": {"dry_run": true, "tags": ["a", "b"]}, "database": "d"}'),
    (query, '{"database":"d","sql":"SELECT a, b FROM t -- all","params":["x",2,null]}'),
]
LETTERS = "ax_0 \"'`,:;{}[]()\\/#=+-.<>|&$\n\t\u201c"


@dataclass
class Slip:
    """A text with one character misplaced.

    Args:
        text: The text.
        is_inside: Returns whether the slip is inside a part of the right text.
    """

    text: str
    is_inside: Callable[[int, int], bool]


def slip_once(text: str, rng: random.Random) -> Slip:
    place = rng.randrange(len(text))
    match rng.choice(["drop", "double", "swap", "insert"]):
        case "drop":
            return Slip(text[:place] + text[place + 1 :], lambda start, end: start <= place < end)
        case "double":
            return Slip(text[:place] + text[place] + text[place:], lambda start, end: start <= place < end)
        case "swap":
            place = min(place, len(text) - 2)
            swapped = text[:place] + text[place + 1] + text[place] + text[place + 2 :]
            return Slip(swapped, lambda start, end: start <= place and place + 1 < end)
        case _:
            letter = rng.choice(LETTERS)
            return Slip(text[:place] + letter + text[place:], lambda start, end: start <= place <= end)


def spans_of_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the characters of each value are: of a string those between its quotes, and a number.

    Of a number with a digit more or less nobody can say that it was another.
    """
    for token in re.finditer(r'"((?:[^"\\]|\\.)*)"(?!\s*:)|("(?:[^"\\]|\\.)*")|([-0-9][-+.eE0-9]*)', text):
        if token.lastindex != 2:
            yield token.span(token.lastindex or 0)


def leaves_of(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    items: Any = value.items() if is_object(value) else enumerate(value) if is_array(value) else ()
    inside = [leaves_of(item, (*path, key)) for key, item in items]
    return {place: leaf for each in inside for place, leaf in each.items()} or {path: value}


def read_broken(the_tool: FunctionTool[object, ..., Any], text: str) -> str | None:
    """Return what a broken text runs with, as JSON; None where it is refused, or is no broken text."""
    try:
        decode_json(text)
    except ValueError:
        pass
    else:
        return None
    parser = the_tool.arguments
    try:
        arguments = parser.parse_json(text)
    except InvalidArgumentsError as refusal:
        try:
            arguments, _ = repair_to_fit(text, parser, refusal)
        except InvalidArgumentsError:
            return None
    return parser.dump_json(arguments)


def is_other(the_tool: FunctionTool[object, ..., Any], text: str, slip: Slip) -> bool:
    """Return whether a slip runs with other values than those that were meant, but for a slip inside of one text."""
    found = read_broken(the_tool, slip.text)
    meant = the_tool.arguments.dump_json(the_tool.arguments.parse_json(text))
    if found is None or json.loads(found) == json.loads(meant):
        return False
    before, after = leaves_of(json.loads(meant)), leaves_of(json.loads(found))
    changed = [path for path in before.keys() | after.keys() if before.get(path, {}) != after.get(path, {})]
    is_inside = any(slip.is_inside(start, end) for start, end in spans_of_values(text))
    return not (is_inside and len(changed) == 1 and type(after.get(changed[0])) is type(before.get(changed[0])))


def find_others(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    found: list[str] = []
    for _ in range(count):
        the_tool, text = rng.choice(TEXTS)
        slip = slip_once(text, rng)
        if is_other(the_tool, text, slip):
            found.append(slip.text)
    return found


@pytest.mark.parametrize("count", [1_500, pytest.param(20_000, marks=pytest.mark.full)])
def test_one_slip_never_makes_a_call_run_with_other_values(count: int) -> None:
    assert find_others(count, seed=28) == []
