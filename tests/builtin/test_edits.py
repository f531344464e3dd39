"""Editing a file: one place, the same bytes round it, all edits or none."""

import codecs
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.builtin.calls import call, error_of, text_of
from toolkit import ApprovalRequest, ToolCall, ToolRegistry
from toolkit.builtin import edit_file_tool, read_file_tool, write_file_tool

pytestmark = pytest.mark.anyio


@dataclass
class Case:
    name: str
    before: bytes
    edits: list[tuple[str, str]]
    after: bytes


PREVIEWS: list[tuple[dict[str, Any], str]] = [
    ({"old_text": "a\nb\n", "new_text": "a\nc\n"}, "@@\n a\n-b\n+c\n "),
    ({"old_text": "a", "new_text": ""}, "@@\n-a"),
    ({"edits": [{"old_text": "a", "new_text": "b\u202e"}, {"old_text": "@@\n+++", "new_text": "c"}]},
     "@@\n-a\n+b\\u202e\n@@\n-@@\n-+++\n+c"),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "diff"), PREVIEWS)
async def test_an_approver_is_shown_an_edit_as_a_diff(edits: dict[str, Any], diff: str, tmp_path: Path) -> None:
    seen: list[str] = []
    registry = ToolRegistry([edit_file_tool(tmp_path)])
    arguments = json.dumps({"path": "a.txt", **edits})

    def refuse(request: ApprovalRequest) -> bool:
        seen.append(request.preview)
        return False

    await registry.execute(ToolCall("1", "edit_file", arguments), approve=refuse)
    assert seen == [f"--- a.txt\n+++ a.txt\n{diff}"]


CASES = [
    Case("one word", b"a b c\n", [("b", "x")], b"a x c\n"),
    Case("taken out", b"a\nb\nc\n", [("b\n", "")], b"a\nc\n"),
    Case("Windows line ends", b"a\r\nb\r\nc\r\n", [("a\nb", "x\ny")], b"x\r\ny\r\nc\r\n"),
    Case("mixed line ends stay mixed", b"a\r\nb\nc\r\nd\n", [("c\nd", "e\nf")], b"a\r\nb\ne\nf\n"),
    Case("line ends written by the model", b"a\nb\n", [("a\r\nb", "x\r\ny")], b"x\ny\n"),
    Case("a byte order mark", codecs.BOM_UTF8 + b"a\nb", [("a", "x")], codecs.BOM_UTF8 + b"x\nb"),
    Case(
        "UTF-16",
        codecs.BOM_UTF16_LE + "a\nb".encode("utf-16-le"),
        [("a", "é")],
        codecs.BOM_UTF16_LE + "é\nb".encode("utf-16-le"),
    ),
    Case(
        "UTF-32",
        codecs.BOM_UTF32_LE + "a\nb".encode("utf-32-le"),
        [("a", "cd")],
        codecs.BOM_UTF32_LE + "cd\nb".encode("utf-32-le"),
    ),
    Case(
        "typographic quotes in the file", "say \u201chi\u201d \u2013 ok\n".encode(), [('"hi" - ok', "no")], b"say no\n"
    ),
    Case("typographic quotes from the model", b'say "hi" it\'s\n', [("\u201chi\u201d it\u2019s", "no")], b"say no\n"),
    Case("blanks at line ends", b"a  \nb\t\nc", [("a\nb\nc", "x")], b"x"),
    Case("a space that doesn't break", "a\u00a0b\n".encode(), [("a b", "x")], b"x\n"),
    Case(
        "an exact match before a loose one",
        "\u2018a\u2019 'a'\n".encode(),
        [("'a'", "x")],
        "\u2018a\u2019 x\n".encode(),
    ),
    Case("no line end at the end", b"a\nb", [("b", "c")], b"a\nc"),
    Case("characters that patterns know", b"a.*(b)\n", [(".*(b)", r"\1$")], b"a\\1$\n"),
    Case("several, from the end on", b"a b c d\n", [("d", "4"), ("a", "1"), ("c", "3")], b"1 b 3 4\n"),
    Case("one makes what another looks for", b"a b\n", [("a", "b"), ("b", "c")], b"b c\n"),
    Case("no newline is made of a form feed", b"a\x0cb\nc\n", [("c", "d")], b"a\x0cb\nd\n"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_an_edit_changes_its_place_and_no_other_byte(case: Case, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(case.before)
    edits = [{"old_text": old, "new_text": new} for old, new in case.edits]
    arguments: dict[str, Any] = edits[0] if len(edits) == 1 else {"edits": edits}
    await text_of(edit_file_tool(tmp_path), path="a.txt", **arguments)
    assert (tmp_path / "a.txt").read_bytes() == case.after


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf-8-sig"])
async def test_a_byte_order_mark_is_no_part_of_the_text_whatever_the_encoding_is_called(
    encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(codecs.BOM_UTF8 + b"a\nb")
    assert "\ufeff" not in await text_of(read_file_tool(tmp_path), path="a.txt", encoding=encoding)
    await text_of(edit_file_tool(tmp_path), path="a.txt", **one("a", "x"), encoding=encoding)
    assert path.read_bytes() == codecs.BOM_UTF8 + b"x\nb"


async def test_empty_texts_beside_edits_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    await text_of(edit_file_tool(tmp_path), path="a.txt", edits=[one("a", "b")], old_text="", new_text="")
    assert (tmp_path / "a.txt").read_text() == "b"


@dataclass
class Refused:
    name: str
    before: bytes
    arguments: dict[str, Any]
    says: str


def one(old: str, new: str = "x") -> dict[str, Any]:
    return {"old_text": old, "new_text": new}


REFUSED = [
    Refused("two places", b"a\nb\na\n", one("a"), "old_text matches 2 locations in a.txt, at the lines 1, 3."),
    Refused("places that overlap", b"aaa", one("aa"), "matches 2 locations"),
    Refused("six places", b"a\n" * 6, one("a"), "at the lines 1, 2, 3, 4, 5, ..."),
    Refused(
        "other indentation",
        b"if a:\n\treturn b\n",
        one("if a:\n    return b"),
        "other blanks or indentation, at line 1",
    ),
    Refused(
        "a near line", b"x\ndef spam(eggs):\n", one("def spam(egg):"), "near is at line 2:\n   2 | def spam(eggs):"
    ),
    Refused("nothing near", b"x\ny\n", one("something else"), "Read the file and copy the passage from it."),
    Refused("an empty passage", b"a", one(""), "old_text is empty"),
    Refused("no change", b"a", one("a", "a"), "changes nothing"),
    Refused("no text at all", b"a", {}, "Give old_text and new_text, or edits"),
    Refused("half of it", b"a", {"old_text": "a"}, "Give old_text and new_text"),
    Refused("both ways", b"a", {**one("a"), "edits": [one("a")]}, "not both"),
    Refused("the second is not there", b"a b", {"edits": [one("a"), one("q")]}, "Edit 2 of 2: old_text not found"),
    Refused("two that overlap", b"a b c", {"edits": [one("a b"), one("b c")]}, "Two edits overlap at line 1"),
    Refused("the same twice", b"a b c", {"edits": [one("b"), one("b", "y")]}, "Two edits overlap"),
    Refused("binary", b"a\0b", one("a"), "is a binary file"),
    Refused("not UTF-8", b"\xe9", one("a"), "is not text in utf-8"),
    Refused("not as it was written", b"+ADw- a", {**one("a"), "encoding": "utf-7"}, "can't be edited as utf-7"),
    Refused("an edit with a key too many", b"a", {"edits": [{**one("a"), "line": 3}]}, "line"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_an_edit_that_is_not_clear_changes_nothing(case: Refused, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(case.before)
    status = path.stat()
    assert case.says in await error_of(edit_file_tool(tmp_path), path="a.txt", **case.arguments)
    assert path.read_bytes() == case.before
    assert path.stat().st_ino == status.st_ino


async def test_the_result_counts_lines_and_the_details_have_a_diff(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")
    arguments = {"old_text": "    return 1\n", "new_text": "    # two\n    return 2\n"}
    result = await call(edit_file_tool(tmp_path), path="a.py", **arguments)
    assert result.text == "Replaced 1 line with 2 lines in a.py"
    assert result.details == {
        "path": "a.py",
        "old_lines": 1,
        "new_lines": 2,
        "diff": "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n def f():\n-    return 1\n+    # two\n+    return 2\n",
    }


HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n")
NO_END = "\n\\ No newline at end of file\n"


def patched(text: str, diff: str) -> str:
    """Apply a unified diff as strictly as can be."""
    old, new = text.splitlines(keepends=True), list[str]()
    first, *rest = HUNK.split(diff)
    assert first == "--- a/a.txt\n+++ b/a.txt\n"
    done = 0
    for index in range(0, len(rest), 5):
        start, count, new_start, new_count = map(int, rest[index : index + 4])
        start, new_start = start - (count > 0), new_start - (new_count > 0)
        new += old[done:start]
        assert len(new) == new_start
        body = re.findall(r"([ +-])(.*\n)", rest[index + 4].replace(NO_END, "\0\n"))
        lines = [(sign, line.replace("\0\n", "")) for sign, line in body]
        assert [line for sign, line in lines if sign != "+"] == old[start : start + count]
        added = [line for sign, line in lines if sign != "-"]
        assert len(added) == new_count
        new += added
        done = start + count
    return "".join([*new, *old[done:]])


async def test_the_diff_makes_the_new_text_of_the_old_one(tmp_path: Path) -> None:
    edit, chance = edit_file_tool(tmp_path), random.Random(4)
    path = tmp_path / "a.txt"
    for round_ in range(60):
        text = "".join(f"line {number}\n" for number in range(1, chance.choice([2, 4, 9, 40, 90])))
        text = text if round_ % 3 else text.removesuffix("\n")
        places = sorted(chance.sample(range(len(text) + 1), 2 * min(chance.randint(1, 4), len(text) // 2)))
        wanted = [text[start:end] for start, end in zip(places[::2], places[1::2], strict=True)]
        edits = [one(old, chance.choice(["", "x", "\n", "p\nq\n"])) for old in wanted if text.count(old) == 1]
        path.write_text(text)
        result = await call(edit, path="a.txt", edits=edits or [one(text, "new")])
        if not result.is_error:
            assert patched(text, result.details["diff"]) == path.read_text()


async def test_an_edit_of_a_long_file_of_like_lines_takes_no_longer(tmp_path: Path) -> None:
    lines = [f"{number % 150}\n" for number in range(300_000)]
    (tmp_path / "a.txt").write_text("".join([*lines, "here\n", *lines]))
    with anyio.fail_after(120):  # to compare all would take an hour
        result = await call(edit_file_tool(tmp_path), path="a.txt", old_text="here", new_text="there")
    assert result.details["diff"].splitlines()[2:] == [
        *("@@ -299998,7 +299998,7 @@", " 147", " 148", " 149", "-here", "+there", " 0", " 1", " 2"),
    ]


async def test_edits_of_one_file_at_once_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"<{number}>\n" for number in range(30)))
    edit, write = edit_file_tool(tmp_path), write_file_tool(tmp_path)

    async def edit_one(number: int) -> None:
        path = "./" * (number % 3) + "a.txt"
        await text_of(edit, path=path, old_text=f"<{number}>", new_text=f"[{number}]")

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(edit_one, number)
        await text_of(write, path="b.txt", content="beside")
    assert (tmp_path / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(30))
