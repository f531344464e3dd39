"""Patterns that come from models and repositories: matched in time that grows with the text, and bounded."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.builtin.calls import call, error_of, text_of
from toolkit.builtin import edit_file_tool, list_files_tool, search_tool

pytestmark = pytest.mark.anyio

LONG = "a" * 250
GLOBS = {
    "stars": "*a*a*a*a*a*a*a*a*a*a*b",
    "stars and marks": "*?*?*?*?*?*?*?*?*?*?b",
    "folders at any depth": "**/a/**/a/**/a/**/a/**/a/**/b",
    "classes": "*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[!a]",
    "stars after stars": "*" * 900 + "b",
    "alternatives": "{a*,*a}{a*,*a}{a*,*a}{a*,*a}{a*,*a}b",
    "negated": "!*a*a*a*a*a*a*a*a*b",
    "an end of a folder": "*a*a*a*a*a*a*b/",
}
TOO_LARGE = {
    "commas": "{" + "," * 100_000,
    "braces": "{" * 100_000,
    "too many alternatives": "{a,b}" * 12,
    "too long": "a" * 1_001,
}


@pytest.mark.parametrize("name", GLOBS)
async def test_no_glob_of_a_model_holds_anything(name: str, tmp_path: Path) -> None:
    (tmp_path / LONG).write_text("needle")
    (tmp_path / "a/a/a/a/a/a/a/a").mkdir(parents=True)
    (tmp_path / "a/a/a/a/a/a/a/a" / LONG).write_text("needle")
    with anyio.fail_after(120):
        await text_of(list_files_tool(tmp_path), pattern=GLOBS[name], max_depth=20)
        await text_of(search_tool(tmp_path, with_ripgrep=False), pattern="needle", include=GLOBS[name])


@pytest.mark.parametrize("name", TOO_LARGE)
async def test_a_glob_that_is_too_large_is_refused(name: str, tmp_path: Path) -> None:
    with anyio.fail_after(120):
        said = await error_of(list_files_tool(tmp_path), pattern=TOO_LARGE[name])
    assert "at most 1,000 can be read" in said or "too many alternatives" in said


RULES: dict[str, str] = {
    **GLOBS,
    "a line without end": "a" * 500_000,
    "many lines": "*a*b\n" * 100_000,
    "brackets": "[" * 10_000,
    "backslashes": "\\" * 10_000,
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("with_ripgrep", [True, False])
async def test_no_gitignore_of_a_repository_holds_anything(name: str, with_ripgrep: bool, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text(RULES[name])
    (tmp_path / LONG).write_text("needle")
    with anyio.fail_after(120):
        await text_of(list_files_tool(tmp_path))
        await text_of(search_tool(tmp_path, with_ripgrep=with_ripgrep), pattern="needle")


async def test_two_thousand_lines_of_a_gitignore_hold_the_last_one_too(tmp_path: Path) -> None:
    lines = [f"file{number}" for number in range(1_998)]
    (tmp_path / ".gitignore").write_text("\n".join(["*.log", *lines, "!kept.log"]))
    for name in ("a.log", "kept.log", "file7", "file1997", "file1998"):
        (tmp_path / name).write_text("")
    assert (await call(list_files_tool(tmp_path))).details["files"] == [".gitignore", "file1998", "kept.log"]


SIZE = 1_000_000
EDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "a long passage of one letter": ("a" * SIZE, {"old_text": "a" * 100_000 + "b", "new_text": "x"}),
    "it begins with another": ("a" * SIZE, {"old_text": "b" + "a" * 100_000, "new_text": "x"}),
    "it is there everywhere": ("a" * SIZE, {"old_text": "a" * 100_000, "new_text": "x"}),
    "lines": ("a\n" * SIZE, {"old_text": "a\n" * 50_000 + "b", "new_text": "x"}),
    "blanks": (" " * SIZE, {"old_text": " " * 10_000 + "\nb", "new_text": "x"}),
    "blanks at line ends": ((" " * 1_000 + "\n") * 1_000, {"old_text": "\n" * 500 + "b", "new_text": "x"}),
    "carriage returns": ("\r" * SIZE, {"old_text": "\r\n" * 1_000, "new_text": "x"}),
    "many edits": ("a" * SIZE, {"edits": [{"old_text": "a" * 1_000 + "b", "new_text": ""}] * 1_000}),
    "all lines": ("a\n" * 300_000, {"old_text": "a\n" * 299_999 + "a", "new_text": "b\n" * 300_000}),
    "all lines but the ends": ("a\n" * 50_000, {"old_text": "a\n" * 49_999, "new_text": "a\nb\n" * 30_000}),
    "nothing like it": ("ab cd ef\n" * 20_000, {"old_text": "ab ce ef\n" * 1_000, "new_text": ""}),
}


@pytest.mark.parametrize("name", EDITS)
async def test_no_passage_holds_an_edit(name: str, tmp_path: Path) -> None:
    text, arguments = EDITS[name]
    (tmp_path / "a.txt").write_text(text, newline="")
    with anyio.fail_after(120):
        await call(edit_file_tool(tmp_path), path="a.txt", **arguments)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*b", "(?:a?){30}a{30}", "(a*)*c", "((a+)+)+b"])
async def test_an_expression_that_would_never_end_is_stopped(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 5_000 + "!\n")
    with anyio.fail_after(120):
        await call(search_tool(tmp_path, time_limit=0.5, with_ripgrep=False), pattern=pattern)


TOO_MUCH = {
    "letters that have other cases": ("(?i)" + "k" * 5_000, "at most 1,000"),
    "letters": ("x" * 1_000_000, "at most 1,000"),
    "alternatives": ("|" * 100_000, "at most 1,000"),
    "a number": ("a{1000000}", "too often"),
    "numbers in numbers": ("(((a{100}){100}){100})", "too often"),
    "numbers after numbers": ("(?:(?:a{1,999}b){0,999}c){1,999}", "too often"),
    "numbers in many parts": ("a{1000}" * 100, "too often"),
    "a huge number": ("a{999999999}", "too often"),
    "itself": ("(?R)", "any amount of memory"),
    "a group again": ("(?P<x>a(?:b|(?P>x)|(?&x)|(?1)))", "any amount of memory"),
    "flags that exclude each other": ("(?V1)a", "no valid regular expression"),
    "groups": ("(" * 480 + ")" * 480, "nested too deeply"),
    "repeated groups": ("(" * 300 + "a" + ")*" * 300, "nested too deeply"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_an_expression_that_takes_much_to_read_is_refused(name: str, tmp_path: Path) -> None:
    pattern, reason = TOO_MUCH[name]
    with anyio.fail_after(120):
        assert reason in await error_of(search_tool(tmp_path, with_ripgrep=False), pattern=pattern)


@pytest.mark.parametrize("pattern", ["x{1000}", "(ab{2}){50}", r"\{5\}", "[{9}]", "a{2,}", "a{,3}"])
async def test_an_expression_with_some_numbers_is_looked_for(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("nothing\n")
    await text_of(search_tool(tmp_path, with_ripgrep=False), pattern=pattern)
