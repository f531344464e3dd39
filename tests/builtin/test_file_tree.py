"""Listing and searching: what is left out, the order, limits, and the same with ripgrep and without."""

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import regex
from hypothesis import HealthCheck, given, settings, strategies

from tests.builtin.calls import call, error_of, text_of
from toolkit.builtin import list_files_tool, search_tool
from toolkit.builtin.file_tree import has_ripgrep, line_pattern

pytestmark = pytest.mark.anyio

NEEDS_RIPGREP = pytest.mark.skipif(not has_ripgrep(), reason="ripgrep is not installed: apt install ripgrep")


def make_tree(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


PROJECT: dict[str, str | bytes] = {
    ".gitignore": "*.log\n/build/\n!keep.log\ndoc/*.tmp\n\\\n!\n",
    ".github/ci.yml": "run: needle\n",
    "README.md": "A needle in a haystack.\nNEEDLE\n",
    "a b/c.txt": "needle\r\nno\r\nneedle",
    "build/out.txt": "needle",
    "doc/x.tmp": "needle",
    "doc/deep/x.tmp": "needle",
    "keep.log": "needle",
    "loud.log": "needle",
    "src/.gitignore": "*.gen\n!/loud.log\n",
    "src/loud.log": "needle",
    "src/build/kept.py": "needle = 1\n",
    "src/x.gen": "needle",
    "src/main.py": "import os\n\n\ndef needle():\n    return 'needle'\n",
    "src/ünï.py": "# Nädel NÄDEL needle\n",
    "src/binary.bin": b"needle\0\1\2",
    "src/latin.txt": "n\xe9edle needle".encode("latin-1"),
    "src/wide.txt": "needle in UTF-16\n".encode("utf-16"),
    "node_modules/x.js": "needle",
    "target/x.rs": "needle",
    ".git/config": "needle",
    "d1/d2/d3/d4/deep.txt": "needle",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    make_tree(root, PROJECT)
    outside = tmp_path_factory.mktemp("outside")
    make_tree(outside, {"secret.txt": "needle"})
    (root / "link").symlink_to(outside)
    (root / "link.txt").symlink_to(outside / "secret.txt")
    os.mkfifo(root / "pipe")
    return root


async def test_files_are_listed_sorted_and_without_what_is_ignored(project: Path) -> None:
    result = await call(list_files_tool(project))
    assert result.text.split("\n") == [
        ".github/ci.yml",
        ".gitignore",
        "README.md",
        "a b/c.txt",
        "doc/deep/x.tmp",
        "keep.log",
        "src/.gitignore",
        "src/binary.bin",
        "src/build/kept.py",
        "src/latin.txt",
        "src/loud.log",
        "src/main.py",
        "src/wide.txt",
        "src/ünï.py",
    ]


@pytest.mark.parametrize("with_ripgrep", [pytest.param(True, marks=NEEDS_RIPGREP), False])
async def test_a_rule_is_read_as_git_reads_it(with_ripgrep: bool, tmp_path: Path) -> None:
    rules = "*.{log,tmp}\n[[:digit:]]*.txt\n/.venv/\n"
    names = ["a.log", "b.{log,tmp}", "1.txt", "x.txt", ".venv/x.txt", "deep/.venv/x.txt"]
    make_tree(tmp_path, {".gitignore": rules, **dict.fromkeys(names, "needle")})
    found = (await call(search_tool(tmp_path, with_ripgrep=with_ripgrep), pattern="needle")).details["matches"]
    listed = (await call(list_files_tool(tmp_path))).details["files"]
    assert [match["path"] for match in found] == ["a.log", "deep/.venv/x.txt", "x.txt"]
    assert listed == [".gitignore", "a.log", "deep/.venv/x.txt", "x.txt"]


@dataclass
class Listing:
    arguments: dict[str, Any]
    lines: list[str]


LISTINGS = [
    Listing({"path": "src", "max_depth": 1, "pattern": "*.py"}, ["src/main.py", "src/ünï.py"]),
    Listing({"path": "./src/", "pattern": "**/*.py"}, ["src/build/kept.py", "src/main.py", "src/ünï.py"]),
    Listing({"pattern": "src/*.py"}, ["src/main.py", "src/ünï.py"]),
    Listing({"pattern": "*.{yml,md}"}, [".github/ci.yml", "README.md"]),
    Listing({"pattern": "!*.*"}, ["No files found in ., 3 folders deep."]),
    Listing({"max_depth": 9, "pattern": "deep.txt"}, ["d1/d2/d3/d4/deep.txt"]),
    Listing({"path": "build"}, ["build/out.txt"]),
    Listing({"path": "node_modules"}, ["node_modules/x.js"]),
    Listing({"path": "doc/deep"}, ["doc/deep/x.tmp"]),
    Listing(
        {"limit": 1},
        [".github/ci.yml", "[The first 1 files; there are more. Narrow it with path or pattern, or raise limit.]"],
    ),
]


@pytest.mark.parametrize("case", LISTINGS, ids=lambda case: str(case.arguments))
async def test_a_listing_can_be_narrowed(case: Listing, project: Path) -> None:
    assert (await text_of(list_files_tool(project), **case.arguments)).split("\n") == case.lines


@dataclass
class Refused:
    arguments: dict[str, Any]
    says: str
    tool: Any = list_files_tool
    more: dict[str, Any] = field(default_factory=dict[str, Any])


REFUSED = [
    Refused({"path": "nope"}, "there is nothing at that path"),
    Refused({"path": "keep.log"}, "is a file, not a folder"),
    Refused({"path": "link"}, "is outside of the folder"),
    Refused({"path": "../"}, "is outside of the folder"),
    Refused({"path": "a\0"}, "can't contain the character NUL"),
    Refused({"pattern": "[z-a]"}, "no valid glob in the argument pattern"),
    Refused({"pattern": "[abc"}, "no valid glob in the argument pattern"),
    Refused({"pattern": ""}, "no valid glob"),
    Refused({"pattern": "{a,b}" * 12}, "too many alternatives"),
    Refused({"limit": 0}, "limit"),
    Refused({"pattern": "("}, "'(' is no valid regular expression", search_tool),
    Refused({"pattern": "a\nb"}, "contains a line break", search_tool),
    Refused({"pattern": ""}, "pattern", search_tool),
    Refused({"pattern": "a", "include": "[a"}, "no valid glob in the argument include", search_tool),
    Refused({"pattern": "a", "path": "link.txt"}, "is outside of the folder", search_tool),
    Refused({"pattern": "a", "path": "pipe"}, "no regular file", search_tool),
    Refused({"pattern": "a", "path": "nope"}, "there is nothing at that path", search_tool),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.tool.__name__} {case.arguments}")
async def test_what_can_not_be_listed_or_searched_is_said(case: Refused, project: Path) -> None:
    assert case.says in await error_of(case.tool(project), **case.arguments)


SEARCHES = [
    Listing({"pattern": "needle", "include": "*.py", "case_sensitive": True}, [
        "src/build/kept.py:1: needle = 1",
        "src/main.py:4: def needle():",
        "src/main.py:5:     return 'needle'",
        "src/ünï.py:1: # Nädel NÄDEL needle",
    ]),
    Listing({"pattern": "^NEEDLE$"}, [
        "README.md:2: NEEDLE",
        "a b/c.txt:1: needle",
        "a b/c.txt:3: needle",
        "d1/d2/d3/d4/deep.txt:1: needle",
        "doc/deep/x.tmp:1: needle",
        "keep.log:1: needle",
        "src/loud.log:1: needle",
    ]),
    Listing({"pattern": "nädel"}, ["src/ünï.py:1: # Nädel NÄDEL needle"]),
    Listing({"pattern": "n.edle n"}, ["src/latin.txt:1: n\ufffdedle needle"]),
    Listing({"pattern": r"n\wdel"}, ["src/ünï.py:1: # Nädel NÄDEL needle"]),
    Listing({"pattern": "UTF-16"}, ["src/wide.txt:1: needle in UTF-16"]),
    Listing({"pattern": "needle()", "literal": True}, ["src/main.py:4: def needle():"]),
    Listing({"pattern": "def needle", "context": 1}, [
        "src/main.py-3- ",
        "src/main.py:4: def needle():",
        "src/main.py-5-     return 'needle'",
    ]),
    Listing({"pattern": "(?<=return ')needle"}, ["src/main.py:5:     return 'needle'"]),
    Listing({"pattern": "needle", "path": "build"}, ["build/out.txt:1: needle"]),
    Listing({"pattern": "needle", "path": "loud.log"}, ["loud.log:1: needle"]),
    Listing({"pattern": "needle", "limit": 1}, [
        ".github/ci.yml:1: run: needle",
        "[The first 1 matches; there are more. Narrow the pattern or the path, or raise limit.]",
    ]),
    Listing({"pattern": "nowhere to be found"}, ["No matches found for 'nowhere to be found'."]),
]  # fmt: skip


@pytest.mark.parametrize("with_ripgrep", [pytest.param(True, marks=NEEDS_RIPGREP), False])
@pytest.mark.parametrize("case", SEARCHES, ids=lambda case: str(case.arguments))
async def test_lines_are_found(case: Listing, with_ripgrep: bool, project: Path) -> None:
    assert (await text_of(search_tool(project, with_ripgrep=with_ripgrep), **case.arguments)).split("\n") == case.lines


@pytest.mark.parametrize("with_ripgrep", [pytest.param(True, marks=NEEDS_RIPGREP), False])
async def test_a_tree_is_walked_to_a_depth_and_no_further(with_ripgrep: bool, tmp_path: Path) -> None:
    folders = [os.open(tmp_path, os.O_RDONLY)]
    for depth in range(1, 301):
        os.mkdir("d", dir_fd=folders[-1])
        folders.append(os.open("d", os.O_RDONLY, dir_fd=folders[-1]))
        if depth in (255, 257, 300):
            file = os.open(f"{depth}.txt", os.O_CREAT | os.O_WRONLY, dir_fd=folders[-1])
            os.write(file, b"needle")
            os.close(file)
    result = await call(search_tool(tmp_path, with_ripgrep=with_ripgrep), pattern="needle")
    assert [Path(match["path"]).name for match in result.details["matches"]] == ["255.txt"]
    for folder in folders:
        os.close(folder)


@pytest.mark.parametrize("with_ripgrep", [pytest.param(True, marks=NEEDS_RIPGREP), False])
async def test_a_name_with_a_line_break_is_shown_in_one_line(with_ripgrep: bool, tmp_path: Path) -> None:
    make_tree(tmp_path, {"a\nb\x1b.txt": "needle"})
    assert await text_of(list_files_tool(tmp_path)) == r'"a\nb\x1b.txt"'
    assert (
        await text_of(search_tool(tmp_path, with_ripgrep=with_ripgrep), pattern="needle") == r'"a\nb\x1b.txt":1: needle'
    )


async def test_a_search_that_would_never_end_is_stopped_and_others_go_on(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.txt": "a" * 60 + "\n"})
    ticks: list[None] = []

    async def tick() -> None:
        while True:
            await anyio.sleep(0.001)
            ticks.append(None)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            text = await error_of(search_tool(tmp_path, time_limit=0.5, with_ripgrep=False), pattern="(a|aa)+$(?<!a)")
            assert "took more than 0.5 s and found nothing so far" in text
            assert ticks
            tasks.cancel_scope.cancel()


async def test_a_line_that_is_long_is_cut(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.txt": "needle" + "x" * 1000})
    assert await text_of(search_tool(tmp_path), pattern="needle") == f"a.txt:1: needle{'x' * 494} [...]"


async def test_a_file_that_is_too_large_is_left_out_or_refused(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.txt": "needle"})
    os.truncate(tmp_path / "a.txt", 10_000_001)
    search = search_tool(tmp_path)
    assert await text_of(search, pattern="needle") == "No matches found for 'needle'."
    assert "at most 10,000,000 can be searched" in await error_of(search, pattern="needle", path="a.txt")


SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Whatever the file holds, ripgrep may only leave it out when Python finds nothing either.
PIECES = strategies.sampled_from(
    [*"abikKsSxX_ -.09", ".", r"\w", r"\W", r"\s", r"\S", r"\d", r"\b", "^", "$", "[a-k]", "[^a]", r"[\w.]", "(?:a|b)"]
)
REPEATS = strategies.sampled_from(["", "", "", "*", "+?", "?", "{2}", "{1,2}"])
PATTERNS = strategies.lists(
    strategies.tuples(PIECES, REPEATS).filter(lambda pair: pair[0] not in (r"\b", "^", "$") or not pair[1]),
    min_size=1,
    max_size=5,
).map(lambda pairs: "".join(map("".join, pairs)))
LETTERS = "abikKsSxX_ -.09\t\r\n\x1c\x1e\u017f\u212a\u0130\u0131\u00e9\u0301\u200d\U0001f600"
TEXTS = strategies.lists(
    strategies.one_of(
        strategies.text(LETTERS, max_size=6).map(str.encode), strategies.sampled_from([b"\xff", b"\xe9", b"\xf0\x9f"])
    ),
    max_size=5,
).map(b"".join)


@NEEDS_RIPGREP
@pytest.mark.real
@settings(
    deadline=None, max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pattern=PATTERNS, texts=strategies.lists(TEXTS, min_size=3, max_size=8), sensitive=strategies.booleans())
def test_ripgrep_and_python_agree(pattern: str, texts: list[bytes], sensitive: bool, tmp_path: Path) -> None:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_bytes(text)
    for path in tmp_path.iterdir():
        if int(path.stem) >= len(texts):
            path.unlink()
    arguments = {"pattern": pattern, "case_sensitive": sensitive, "limit": 1000}
    with_ripgrep, without = (
        search_tool(tmp_path, with_ripgrep=which).invoke(arguments).text for which in (True, False)
    )
    assert with_ripgrep == without


@given(pattern=PATTERNS)
@settings(max_examples=50, derandomize=True)
def test_a_pattern_that_ripgrep_gets_is_read_by_both(pattern: str) -> None:
    made = line_pattern(pattern, is_literal=False, is_case_sensitive=False)
    assert made.for_ripgrep is not None
    assert regex.compile(pattern)


@pytest.mark.parametrize(
    "pattern", ["(?<=a)b", r"\Aa", "a*+", "(?i)a", r"(a)\1", "[[:alpha:]]", "[a&&b]", "é", r"\x41", "a{,3}", "{"]
)
def test_a_pattern_that_differs_is_not_given_to_ripgrep(pattern: str) -> None:
    assert line_pattern(pattern, is_literal=False, is_case_sensitive=False).for_ripgrep is None


IGNORES = strategies.lists(
    strategies.sampled_from(
        [
            "*.a",
            "!*.a",
            "/x",
            "x/",
            "!x/",
            "y",
            "!y",
            "x/y",
            "**/z",
            "z/**",
            "x*",
            "[xy].a",
            "?.b",
            "\\!q",
            "#c",
            "",
            "*",
            "!*/",
        ]
    ),
    max_size=4,
).map(lambda lines: "".join(f"{line}\n" for line in lines))


@NEEDS_RIPGREP
@pytest.mark.real
@settings(SETTINGS, max_examples=60)
@given(top=IGNORES, inner=IGNORES)
def test_ripgrep_leaves_out_what_the_walk_leaves_out(top: str, inner: str, tmp_path: Path) -> None:
    names = ["x", "y", "z", "x.a", "x.b"]
    if not (tmp_path / "d").exists():
        files = [f"{folder}{name}" for folder in ("", "d/", "d/y.a/", "q/z.b/", "q/xx/") for name in names]
        make_tree(tmp_path, dict.fromkeys(files, "needle"))
    make_tree(tmp_path, {".gitignore": top, "d/.gitignore": inner})
    arguments = {"pattern": "needle", "limit": 1000}
    with_ripgrep, without = (
        search_tool(tmp_path, with_ripgrep=which).invoke(arguments).text for which in (True, False)
    )
    assert with_ripgrep == without


@NEEDS_RIPGREP
@pytest.mark.real
def test_twenty_thousand_files_are_searched_alike_and_about_as_fast_without_ripgrep(tmp_path: Path) -> None:
    chance = random.Random(1)
    texts = ["\n".join(["import os", f"needle{number}", "def f(x):", "    return x"] * 4) for number in range(5000)]
    for outer in range(20):
        for inner in range(20):
            folder = tmp_path / f"package{outer}" / f"module{inner}"
            folder.mkdir(parents=True)
            if inner % 5 == 0:
                (folder / ".gitignore").write_text("*.log\n")
            for number in range(50):
                (folder / f"f{number}{('.py', '.log')[number % 2]}").write_text(chance.choice(texts))
    with_ripgrep, without = search_tool(tmp_path), search_tool(tmp_path, with_ripgrep=False)
    # Processor time of this process and of ripgrep's: the machine may have other things to do.
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for pattern in (r"needle77\b", "needle[0-4]2$", "not in any of them"):
        found: list[str] = []
        for which, tool in ((True, with_ripgrep), (False, without)):
            begun = sum(os.times()[:4])
            found.append(tool.invoke({"pattern": pattern, "limit": 1000}).text)
            seconds[which].append(sum(os.times()[:4]) - begun)
        assert found[0] == found[1]
    assert sum(seconds[False]) < 3 * sum(seconds[True])
    listed = list_files_tool(tmp_path).invoke({"pattern": "f8.py", "max_depth": 9, "limit": 1000}).text
    assert listed.split("\n") == sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("f8.py"))
