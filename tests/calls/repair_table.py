"""What is repaired of a call's arguments and what is not; ``python -m tests.calls.repair_table`` writes it to the docs.

Every row is a call of one of three tools. `taken` is what the tool runs with, without defaults; None is a refusal.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolkit import tool

PAGE = Path(__file__).parents[2] / "docs" / "repair.md"


@tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{path}: {content}"


@tool
def plan_trip(
    city: str,
    days: int = 1,
    budget: float = 0,
    timeout_seconds: int = 60,
    unit: Literal["km", "miles"] = "km",
    stops: list[str] | None = None,
    note: str = "",
    quick: bool = False,
) -> str:
    """Plan a trip."""
    return city


@tool
def find(word: str) -> str:
    """Find a word."""
    return word


@dataclass(frozen=True, slots=True)
class Row:
    written: str
    taken: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    words: str
    rows: tuple[Row, ...]


def taken(written: str, **arguments: Any) -> Row:
    return Row(written, arguments)


def refused(written: str) -> Row:
    return Row(written, None)


FILE = {"path": "a.py", "content": "x"}

SECTIONS = (
    Section(
        "Spelling",
        "Quotes, unquoted names, commas before a closing bracket, Python literals, numbers such as `.5` where no "
        "text may stand. A space behind a quote, and none before it, may be on the wrong side: the schema must decide.",
        (
            taken("{'city': 'Lima', 'days': 3,}", city="Lima", days=3),
            taken('{city: "Lima"}', city="Lima"),
            taken('{"city": "Lima", "quick": True, "stops": None}', city="Lima", quick=True),
            taken('{"city": "Lima", "budget": .5}', city="Lima", budget=0.5),
            refused('{"city": "Lima", "note": .5}'),
            taken("{'city': ' Lima'}", city=" Lima"),
            refused("{'city':' Lima'}"),
            taken('{"city": "New\nYork"}', city="New\nYork"),
            taken('{"city": "Lima"; "days": 3}', city="Lima", days=3),
            taken('{"city": "Lima", "city": "Lima"}', city="Lima"),
            taken('{{"city": "Lima"}}', city="Lima"),
            refused('{{"city": "Lima"}'),
            refused('{"city": "Lima", "city": "Oslo"}'),
            refused('{"cit\ny": "Lima"}'),
            refused('{"city": "Lima",, "days": 3}'),
        ),
    ),
    Section(
        "Comments",
        "Removed, unless a comment may be the rest of a value, or data that was cut out.",
        (
            taken('{"city": "Lima", // the capital\n"days": 3}', city="Lima", days=3),
            taken('{"city": "Lima" /* Peru */}', city="Lima"),
            taken('{"path": "a.py", "content": "print("# hi")"}', path="a.py", content='print("# hi")'),
            taken('{"path": "a.py", "content": "print("# hi")"\n}', path="a.py", content='print("# hi")'),
            taken('{"path": "a.js", "content": "get("//x")"\n}', path="a.js", content='get("//x")'),
            refused('{"path": "a.py", "content": "print(" # hi")"\n}'),
            refused('{"city": "Lima", // "note": "x",\n"days": 3}'),
            refused('{"city": "Lima", "days": 10//3\n}'),
            refused('{"city": "Lima", "stops": [\n# 2,\n"Puno"]}'),
        ),
    ),
    Section(
        "Around the object",
        "A fence and the sentence on the lines before it, tokens that end a call or a turn, the same object once more, "
        "a bracket too many, whole sentences behind it. Any other prose may contain data.",
        (
            taken('```json\n{"city": "Lima"}\n```', city="Lima"),
            taken('Here are the arguments:\n```json\n{"city": "Lima"}\n```', city="Lima"),
            taken('{"city": "Lima"}<|im_end|>', city="Lima"),
            taken('{"city": "Lima"}</tool_call>', city="Lima"),
            taken('{"city": "Lima"}\n{"city": "Lima"}', city="Lima"),
            taken('{"city": "Lima"}}', city="Lima"),
            taken('{"city": "Lima"}]', city="Lima"),
            refused('{"city": "Lima"}\n{"city": "Oslo"}'),
            taken('{"city": "Lima"} I hope this helps!', city="Lima"),
            taken('{"city": "Lima"}\n\nLet me know. Then we go on.', city="Lima"),
            refused('{"city": "Lima"} Then 3 more days.'),
            refused('{"city": "Lima"} or Oslo'),
            refused('{"city": "Lima"} and 3 days'),
            refused('Do not use {"city": "Lima"}'),
            refused('Here are the arguments: {"city": "Lima"}'),
            refused('{"city": "Lima"}, "days": 3}'),
            refused(', {"city": "Lima"}'),
        ),
    ),
    Section(
        "Cut off",
        "Never completed.",
        (
            refused('{"city": "Lima"'),
            refused('{"city": "Lima", "days": 3'),
            refused('{"city": "Li'),
            refused('{"path": "a.py", "content": "x"'),
            refused('{"city": "Lima", "stops": ["Cusco"'),
            refused('{"path": "a.py" "content": "x'),
        ),
    ),
    Section(
        "A missing comma between two members",
        "Added if no other meaning is possible.",
        (
            taken('{"path": "a.py" "content": "x"}', **FILE),
            taken('{"city": "Lima"\n"days": 3}', city="Lima", days=3),
            taken('{"days": 3 "city": "Lima"}', city="Lima", days=3),
            refused('{"city": "Lima" "note": "x"}'),
            refused('{"path": "a.py," "content": "x"}'),
            refused('{"city": "Lima", "stops": ["Cusco" "Puno"]}'),
        ),
    ),
    Section(
        "Quotes",
        "Other quotes as delimiters, strings with `+` between them; unescaped quotes, if only one reading fits the "
        "schema, nothing in the string may be a name and its colon, and no other quote is escaped.",
        (
            taken("{\u201ccity\u201d: \u201cLima\u201d}", city="Lima"),
            taken("{\u2018city\u2019: \u2018Lima\u2019}", city="Lima"),
            taken("{'city\": \"Lima'}", city="Lima"),
            taken('{"city": "the "white" city"}', city='the "white" city'),
            taken("{'city': 'it's Lima'}", city="it's Lima"),
            taken('{"path": "a.py", "content": "f("a", "b")"}', path="a.py", content='f("a", "b")'),
            refused('{"city": "a", "note": "b", "x" }'),
            taken('{"path": "a.py", "content": "x" + "y"}', path="a.py", content="xy"),
            refused('{"path": "a.py", "content": "x", "y"}'),
            refused('{"city": "Lima", note": "x"}'),
            refused('{"city": "Lima", n"ote": "x"}'),
            refused('{"city": "Lima",- "note": "x"}'),
            refused('{"city": "Lima""}'),
            refused('{"city": "a \\"b\\" "c" d"}'),
            refused('{"city": "Lima", "stops": ["a", b"]}'),
            refused('{"city": "Lima", "stops": ["Cusco",, "Puno"]}'),
            refused('{"city": "the "white", "note": "city"}'),
        ),
    ),
    Section(
        "Escapes that JSON lacks",
        "Backslashes are literal, unless the text has escapes of JSON as well or codes of characters.",
        (
            taken('{"path": "C:\\Users\\data", "content": "x"}', path="C:\\Users\\data", content="x"),
            taken('{"path": "a", "content": "\\d+\\.\\w*"}', path="a", content="\\d+\\.\\w*"),
            taken('{"city": "it\\\'s Lima"}', city="it's Lima"),
            refused('{"path": "C:\\Users\\new", "content": "x"}'),
            refused('{"city": "\\x4cima"}'),
            refused('{"city": "\\0"}'),
        ),
    ),
    Section(
        "Words without quotes",
        "A string, if the schema allows only strings, and the word is no identifier, placeholder or misspelled "
        "literal: it is one of those that the schema lists, or begins with a capital or a digit.",
        (
            taken('{"city": Lima}', city="Lima"),
            taken('{"city": New York, "days": 3}', city="New York", days=3),
            taken('{"city": "Lima", "unit": miles}', city="Lima", unit="miles"),
            taken('{"city": "Lima", "stops": [Cusco, Puno]}', city="Lima", stops=["Cusco", "Puno"]),
            taken('{"city": 1.2.3}', city="1.2.3"),
            refused('{"city": undefined}'),
            refused('{"city": city_name}'),
            refused('{"city": user.city}'),
            refused('{"city": recipient}'),
            refused('{"city": TODO}'),
            refused('{"city": 0null}'),
            refused('{"city": Nnone}'),
            refused('{"city": City}'),
            refused('{"city": Lima, Peru}'),
            refused('{"city": "Lima", "unit": yards}'),
            refused('{"city": "Lima", "quick": yes}'),
        ),
    ),
    Section(
        "Other punctuation",
        "Fullwidth punctuation, HTML entities in place of all quotes, `=` in place of a colon.",
        (
            taken(
                "\uff5b\uff02city\uff02\uff1a\uff02Lima\uff02\uff0c\uff02days\uff02\uff1a3\uff5d", city="Lima", days=3
            ),
            taken('{"city"\uff1a"Lima"\uff0c"days"\uff1a3}', city="Lima", days=3),
            taken("{&quot;city&quot;: &quot;Lima&quot;}", city="Lima"),
            taken('{"city" = "Lima"}', city="Lima"),
            taken('{"city" => "Lima"}', city="Lima"),
            taken('{"city": "a &quot;b&quot;"}', city="a &quot;b&quot;"),
        ),
    ),
    Section(
        "Names and values without brackets",
        "If every name is in the schema and every value fits.",
        (
            taken("city=Lima, days=3", city="Lima", days=3),
            taken('city="New York" days=3', city="New York", days=3),
            taken("city: Lima\ndays: 3", city="Lima", days=3),
            refused("city=Lima, Peru, days=3"),
            refused("city=Lima, country=Peru"),
            refused("city=Lima, days=some"),
            refused("city=user.city, days=3"),
            refused("Lima"),
            refused("city: Lima, days: 3"),
        ),
    ),
    Section(
        "Wrapped",
        "Once, under a name that the schema lacks, also beside the name of the tool, or in a list of one; JSON in a "
        "string is decoded. For the only parameter of a tool (`find(word: str)`), its value in quotes.",
        (
            taken('{"arguments": {"city": "Lima"}}', city="Lima"),
            taken('{"parameters": {"city": "Lima"}}', city="Lima"),
            taken('[{"city": "Lima"}]', city="Lima"),
            taken('"{\\"city\\": \\"Lima\\"}"', city="Lima"),
            taken('{"arguments": "{\\"city\\": \\"Lima\\"}"}', city="Lima"),
            taken('{"name": "plan_trip", "arguments": {"city": "Lima"}}', city="Lima"),
            taken(json.dumps(json.dumps(json.dumps({"city": "Lima"}))), city="Lima"),
            taken('"Lima"', word="Lima"),
            taken("'Lima'", word="Lima"),
            refused('{"name": "other", "arguments": {"city": "Lima"}}'),
            refused('{"arguments": {"arguments": {"city": "Lima"}}}'),
            refused('{"arguments": {"city": "Lima"}, "days": 3}'),
            refused('[{"city": "Lima"}, {"city": "Oslo"}]'),
        ),
    ),
    Section(
        "Values",
        "Only if the schema allows no string: JSON in a string, and separators between thousands. A single comma is "
        "accepted for an integer only: elsewhere it may be a decimal comma. A number with a unit is refused. Null "
        "for a parameter with a default means the default.",
        (
            taken('{"city": "Lima", "stops": "[\\"Cusco\\"]"}', city="Lima", stops=["Cusco"]),
            taken('{"city": "Lima", "days": null}', city="Lima"),
            taken('{"city": "Lima", "days": "1,000"}', city="Lima", days=1000),
            taken('{"city": "Lima", "days": 1,000}', city="Lima", days=1000),
            taken('{"city": "Lima", "budget": "1,234.50"}', city="Lima", budget=1234.5),
            taken('{"city": "Lima", "budget": "1 000 000"}', city="Lima", budget=1000000),
            refused('{"city": "Lima", "timeout_seconds": "30 seconds"}'),
            refused('{"city": "Lima", "timeout_seconds": 30s}'),
            taken('{"city": "[1, 2]"}', city="[1, 2]"),
            refused('{"city": "Lima", "budget": "1,000"}'),
            refused('{"city": "Lima", "timeout_seconds": "5 minutes"}'),
            refused('{"city": "Lima", "budget": "100 USD"}'),
            refused('{"city": "Lima", "days": "three"}'),
        ),
    ),
    Section(
        "Numbers that are none",
        "Never guessed.",
        (
            refused('{"city": "Lima", "days": 03}'),
            refused('{"city": "Lima", "days": 0x10}'),
            refused('{"city": "Lima", "budget": NaN}'),
            refused('{"city": "Lima", "budget": 1e999}'),
            refused('{"city": "Lima", "days": 3%}'),
        ),
    ),
)


def tool_of(row: Row) -> Any:
    if row.taken is not None and "word" in row.taken:
        return find
    return write_file if "content" in row.written else plan_trip


def page() -> str:
    """Return the page of the docs."""
    lines = [_HEAD]
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", section.words, "", "| a model wrote | the tool gets |", "|---|---|"]
        for row in section.rows:
            got = "refused" if row.taken is None else _code(json.dumps(row.taken, ensure_ascii=False))
            lines.append(f"| {_code(row.written)} | {got} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    shown = text.replace("\n", "\u21b5").replace("|", "\\|")
    fence = "``" if "`" in shown else "`"
    pad = " " if "`" in shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


_HEAD = """# How arguments are repaired

Models sometimes write arguments that are invalid JSON or do not match the schema. The rule is **one reading only**:
arguments are repaired if exactly one reading validates against the tool's schema. If two do, or none, the call is
refused with a description of the problem. Strict JSON that validates is never changed. A repair drops no token and
invents none: the exceptions are listed below, and truncated arguments are never completed.

Each repair emits `ToolCallRepaired`, whose `assumed` describes the assumption. `argument_repair=False`,
for one tool or in `ToolLoopConfig`, switches it off. A field that its author made `Strict` is never coerced.

The rows are calls of `write_file(path: str, content: str)` and of `plan_trip(city: str, days: int = 1,
budget: float = 0, timeout_seconds: int = 60, unit: Literal["km", "miles"] = "km", stops: list[str] | None = None,
note: str = "", quick: bool = False)`; a test checks each row. \u21b5 is a line break."""


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
