"""`text_editor`, `apply_patch` and `memory`: what their commands do to files, and what they can't reach."""

import random
from pathlib import Path
from typing import Any

import pytest
from agents.apply_diff import apply_diff as reference_diff

from tests.builtin.calls import error_of, text_of
from toolkit.builtin import apply_patch_tool, memory_tool, text_editor_tool
from toolkit.builtin.vendor_tools import apply_diff
from toolkit.errors import ToolFailedError

TEXT = "def a():\n    return 1\n\ndef b():\n    return 1\n"


def make_diff(script: random.Random, lines: list[str]) -> str:
    """Return a diff of two places of a text, with lines round them."""
    first = script.randrange(1, len(lines) // 2)
    second = script.randrange(len(lines) // 2 + 2, len(lines) - 1)
    pieces: list[str] = []
    for place in (first, second):
        added = [f"+{script.randrange(1000)}" for _ in range(script.randrange(3))]
        pieces += ["@@", f" {lines[place - 1]}", f"-{lines[place]}", *added, *([f" {lines[place + 1]}"] * (place < 9))]
    return "\n".join(pieces)


def test_diffs_change_texts_as_openais_own_reader_does() -> None:
    for seed in range(200):
        script = random.Random(seed)
        lines = [f"line {script.randrange(30)}" for _ in range(12)]
        text = "\n".join([*lines, ""])
        diff = make_diff(script, lines)
        assert apply_diff(text, diff) == reference_diff(text, diff), (seed, text, diff)


@pytest.mark.parametrize(
    ("diff", "changed"),
    [
        ("@@ def b():\n-    return 1\n+    return 2\n", TEXT[:-2] + "2\n"),
        ("@@ -4,2 +4,2 @@\n def b():\n-    return 1\n+    return 2", TEXT[:-2] + "2\n"),
        ("+# end\n*** End of File\n", f"{TEXT}# end\n"),
        ("+# top\n def a():", f"# top\n{TEXT}"),
    ],
    ids=["anchor", "numbers", "end", "top"],
)
def test_a_diff_says_where_it_looks(diff: str, changed: str) -> None:
    assert apply_diff(TEXT, diff) == changed
    if "End of File" not in diff:
        assert reference_diff(TEXT, diff) == changed


def test_lines_that_a_diff_does_not_name_keep_their_ends() -> None:
    assert apply_diff("a  \r\nb\r\nc\r\n", " a\n-b\n+2\n") == "a  \r\n2\r\nc\r\n"


@pytest.mark.parametrize(
    ("diff", "problem"),
    [
        ("-nowhere", "These lines of the diff are not in the file:\nnowhere"),
        ("*** Begin", "begins with a space"),
        ("", "changes nothing"),
        ("@@ class A\n@@ def b():\n-x", "This line of the diff is not in the file: class A"),
    ],
)
def test_a_diff_that_does_not_fit_changes_nothing(diff: str, problem: str) -> None:
    with pytest.raises(ToolFailedError, match=problem):
        apply_diff(TEXT, diff)


pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "a.py").write_text(TEXT)
    return folder


async def test_the_editor_views_creates_replaces_and_inserts(root: Path) -> None:
    editor = text_editor_tool(root)
    assert await text_of(editor, command="view", path=".") == "a.py"
    assert await text_of(editor, command="view", path="a.py", view_range=[4, -1]) == (
        "[Lines 4-5 of 5]\n   4 | def b():\n   5 |     return 1"
    )
    await text_of(editor, command="create", path="new/b.py", file_text="one\ntwo")
    await text_of(editor, command="insert", path="new/b.py", insert_line=0, insert_text="zero")
    await text_of(editor, command="insert", path="new/b.py", insert_line=3, new_str="three")
    await text_of(editor, command="str_replace", path="new/b.py", old_str="one\n", new_str="1\n")
    assert (root / "new/b.py").read_text() == "zero\n1\ntwo\nthree"
    assert "matches 2 locations" in await error_of(editor, command="str_replace", path="a.py", old_str="    return 1")
    assert "insert_line can't be 9" in await error_of(
        editor, command="insert", path="a.py", insert_line=9, insert_text="x"
    )
    assert "file_text is missing" in await error_of(editor, command="create", path="c.py")
    assert "view_range is" in await error_of(editor, command="view", path="a.py", view_range=[0, 1])
    assert (root / "a.py").read_text() == TEXT


async def test_a_patch_creates_updates_and_deletes(root: Path) -> None:
    patch = apply_patch_tool(root)
    await text_of(patch, type="create_file", path="new/b.py", diff="+one\n+two")
    assert (root / "new/b.py").read_text() == "one\ntwo\n"
    await text_of(patch, type="update_file", path="new/b.py", diff="-one\n+1")
    assert (root / "new/b.py").read_text() == "1\ntwo\n"
    assert "exists already" in await error_of(patch, type="create_file", path="new/b.py", diff="+x")
    assert "begins with +" in await error_of(patch, type="create_file", path="c.py", diff="x")
    assert "is a folder" in await error_of(patch, type="delete_file", path="new")
    await text_of(patch, type="delete_file", path="new/b.py")
    assert "there is no such file" in await error_of(patch, type="delete_file", path="new/b.py")
    assert not (root / "new/b.py").exists()


async def test_the_memory_outlasts_its_tool(root: Path) -> None:
    memory = memory_tool(root)
    await text_of(memory, command="create", path="/memories/people/ann.md", file_text="Ann likes tea.")
    await text_of(memory, command="rename", old_path="/memories/people/ann.md", new_path="/memories/ann.md")
    assert "is there already" in await error_of(
        memory, command="rename", old_path="/memories/people", new_path="/memories/ann.md"
    )
    again = memory_tool(root)
    assert await text_of(again, command="view", path="/memories") == "ann.md\npeople/"
    assert "Ann likes tea." in await text_of(again, command="view", path="/memories/ann.md")
    await text_of(again, command="delete", path="/memories/people")
    assert "can't be deleted" in await error_of(again, command="delete", path="/memories")
    assert sorted(path.name for path in (root / "memories").iterdir()) == ["ann.md"]


@pytest.mark.parametrize("path", ["/etc/passwd", "/memories/../a.py", "/memories/link/a.py", "notes.md", "/memoriesx"])
async def test_the_memory_reaches_nothing_else(root: Path, path: str) -> None:
    memory = memory_tool(root)
    (root / "memories/link").symlink_to(root)
    for command in ("view", "create", "delete"):
        await error_of(memory, command=command, path=path, file_text="x")
    await error_of(memory, command="rename", old_path=path, new_path="/memories/mine")
    assert (root / "a.py").read_text() == TEXT


@pytest.mark.parametrize("make", [text_editor_tool, apply_patch_tool])
async def test_neither_leaves_its_folder(root: Path, make: Any) -> None:
    (root.parent / "secret").write_text("s")
    (root / "link").symlink_to(root.parent / "secret")
    for path in ("../secret", str(root.parent / "secret"), "link"):
        for arguments in (
            ({"command": "view"}, {"command": "create", "file_text": "x"})
            if make is text_editor_tool
            else ({"type": "update_file", "diff": "-s\n+t"}, {"type": "delete_file"})
        ):
            assert "outside of the folder" in await error_of(make(root), path=path, **arguments)
    assert (root.parent / "secret").read_text() == "s"


async def test_files_that_are_run_later_want_approval(root: Path) -> None:
    refused = "needs approval"
    assert refused in await error_of(
        text_editor_tool(root), command="create", path=".git/hooks/post-commit", file_text="x"
    )
    assert refused in await error_of(apply_patch_tool(root), type="create_file", path=".envrc", diff="+x")
    memory = memory_tool(root)
    await text_of(memory, command="create", path="/memories/a", file_text="x")
    assert refused in await error_of(memory, command="rename", old_path="/memories/a", new_path="/memories/.envrc")
