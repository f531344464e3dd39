"""Reading and writing files: pages, encodings, images, modes, and what is refused."""

import codecs
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.builtin.calls import call, error_of, text_of
from toolkit import ConfigurationError
from toolkit.builtin import RootFolder, edit_file_tool, read_file_tool, write_file_tool
from toolkit.chat import ImageBlock

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def written(root: Path, name: str, data: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


async def test_a_text_is_shown_with_the_numbers_of_its_lines(tmp_path: Path) -> None:
    written(tmp_path, "a.txt", b"one\r\ntwo\n\nfour")
    assert (
        await text_of(read_file_tool(tmp_path), path="a.txt")
        == "[4 lines]\n   1 | one\n   2 | two\n   3 | \n   4 | four"
    )


async def test_a_long_text_is_read_in_pages(tmp_path: Path) -> None:
    written(tmp_path, "a.txt", "".join(f"line {number}\n" for number in range(1, 1201)).encode())
    read = read_file_tool(tmp_path)
    first = await text_of(read, path="a.txt")
    assert first.startswith("[Lines 1-500 of 1200]\n   1 | line 1\n")
    assert first.endswith(" 500 | line 500\n[Use offset=501 to continue.]")
    last = await text_of(read, path="a.txt", offset=1199, limit=5)
    assert last == "[Lines 1199-1200 of 1200]\n1199 | line 1199\n1200 | line 1200"
    assert "The file has 1200 lines" in await error_of(read, path="a.txt", offset=1201)
    assert "offset" in await error_of(read, path="a.txt", offset=0)


async def test_a_page_and_a_line_have_limits_of_their_own(tmp_path: Path) -> None:
    written(tmp_path, "long.txt", b"x" * 5000 + b"\nend\n")
    text = await text_of(read_file_tool(tmp_path), path="long.txt")
    assert "x [... 3000 more characters in this line]\n   2 | end" in text
    written(tmp_path, "wide.txt", (b"y" * 1900 + b"\n") * 100)
    text = await text_of(read_file_tool(tmp_path), path="wide.txt")
    assert text.startswith("[Lines 1-26 of 100]")
    assert len(text) < 51_000
    written(tmp_path, "empty.txt", b"")
    assert await text_of(read_file_tool(tmp_path), path="empty.txt") == "[0 lines: the file is empty]"


@dataclass
class Encoded:
    name: str
    data: bytes
    encoding: str | None
    shown: str


ENCODED = [
    Encoded("UTF-8 with a mark", codecs.BOM_UTF8 + "né".encode(), None, "[1 lines]\n   1 | né"),
    Encoded("UTF-16 by its mark", codecs.BOM_UTF16_LE + "né".encode("utf-16-le"), None, "né"),
    Encoded("UTF-16 the other way", codecs.BOM_UTF16_BE + "né".encode("utf-16-be"), None, "(utf-16-be)"),
    Encoded("Latin-1 that is named", "né".encode("latin-1"), "latin-1", "né"),
    Encoded("Shift JIS that is named", "日本".encode("shift_jis"), "shift_jis", "日本"),
    Encoded("separators that are no line ends", "a\x0cb\u2028c\x85d".encode(), None, "[1 lines]"),
]


@pytest.mark.parametrize("case", ENCODED, ids=lambda case: case.name)
async def test_an_encoding_is_read_where_it_is_known(case: Encoded, tmp_path: Path) -> None:
    written(tmp_path, "a.txt", case.data)
    assert case.shown in await text_of(read_file_tool(tmp_path), path="a.txt", encoding=case.encoding)


@pytest.mark.parametrize(
    ("name", "data", "media_type"),
    [
        ("a.png", PNG, "image/png"),
        ("named-wrong.txt", b"\xff\xd8\xff\xe0 jpeg", "image/jpeg"),
        ("a.gif", b"GIF89a....", "image/gif"),
        ("a.webp", b"RIFF....WEBPVP8 ", "image/webp"),
        ("a.bmp", b"BM....\0\0\0\0....", "image/bmp"),
    ],
)
async def test_an_image_comes_as_an_image(name: str, data: bytes, media_type: str, tmp_path: Path) -> None:
    written(tmp_path, name, data)
    result = await call(read_file_tool(tmp_path), path=name)
    assert result.content == (ImageBlock(data, media_type=media_type),)


@dataclass
class Refused:
    name: str
    arguments: dict[str, Any]
    says: str


REFUSED = [
    Refused("nothing there", {"path": "nope/at/all"}, "there is nothing at that path"),
    Refused("a near name", {"path": "readme.md"}, "Did you mean 'README.md'?"),
    Refused("a folder", {"path": "folder"}, "'folder' is a folder"),
    Refused("the root", {"path": "."}, "'.' is a folder"),
    Refused("a path through a file", {"path": "README.md/x"}, "a part of the path is a file"),
    Refused("a slash after a file", {"path": "README.md/"}, "a part of the path is a file"),
    Refused("NUL", {"path": "a\0b"}, "can't contain the character NUL"),
    Refused("a name too long", {"path": "x" * 300}, "the name is too long"),
    Refused("300 folders", {"path": "folder/" * 300 + "x"}, "there is nothing at that path"),
    Refused("binary", {"path": "binary"}, "is a binary file of 5 bytes"),
    Refused("not UTF-8", {"path": "latin"}, "is not text in utf-8 (byte 0xe9 at offset 1)"),
    Refused("an encoding that isn't", {"path": "latin", "encoding": "klingon"}, "'klingon' is no encoding of text"),
    Refused("an encoding with NUL", {"path": "latin", "encoding": "a\0b"}, "is no encoding of text"),
    Refused("a codec of no text", {"path": "latin", "encoding": "hex"}, "'hex' is no encoding of text"),
    Refused("the wrong encoding", {"path": "latin", "encoding": "ascii"}, "is not text in ascii"),
    Refused("links in a circle", {"path": "circle"}, "its links go in circles"),
    Refused("a pipe", {"path": "pipe"}, "no regular file but a pipe, socket or device"),
    Refused("1 MB without a page", {"path": "large"}, "Read a part of it with offset and limit."),
    Refused("a sparse file of 5 GB", {"path": "sparse", "offset": 1}, "has 5,000,000,000 bytes; at most"),
    Refused("an image of 21 MB", {"path": "image"}, "at most 20,000,000 can be shown"),
]


@pytest.fixture(scope="module")
def difficult_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("difficult")
    written(root, "README.md", b"text")
    (root / "folder").mkdir()
    written(root, "binary", b"a\0b\0c")
    written(root, "latin", "né".encode("latin-1"))
    (root / "circle").symlink_to("circle")
    os.mkfifo(root / "pipe")
    written(root, "large", b"x\n" * 600_000)
    os.truncate(written(root, "sparse", b"text\n"), 5_000_000_000)
    os.truncate(written(root, "image", PNG), 21_000_000)
    return root


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_what_can_not_be_read_is_said(case: Refused, difficult_folder: Path) -> None:
    assert case.says in await error_of(read_file_tool(difficult_folder), **case.arguments)


@pytest.mark.parametrize("path", ["new/", "new/.", "new/..", "new/deeper/", "", "."])
async def test_a_path_that_names_a_folder_is_not_written_and_nothing_is_made(path: str, tmp_path: Path) -> None:
    assert "is a folder. Give the name of a file" in await error_of(write_file_tool(tmp_path), path=path, content="x")
    assert not any([entry async for entry in anyio.Path(tmp_path).iterdir()])


async def test_paths_have_a_depth_that_holds_with_few_descriptors(tmp_path: Path) -> None:
    read, write = read_file_tool(tmp_path), write_file_tool(tmp_path)
    deepest = "x/" * 255 + "a.txt"
    await text_of(write, path=deepest, content="deep needle")
    assert "deep needle" in await text_of(read, path=deepest)
    assert "more than 256 folders" in await error_of(write, path=f"y/{deepest}", content="too deep")
    assert not (tmp_path / "y").exists()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_000), hard))
    try:
        assert "deep needle" in await text_of(read, path="x/../" * 5_000 + deepest)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_large_file_is_read_in_a_page(difficult_folder: Path) -> None:
    text = await text_of(read_file_tool(difficult_folder), path="large", offset=599_999, limit=9)
    assert text.startswith("[Lines 599999-600000 of 600000]")


async def test_a_file_is_written_and_its_folders_are_made(tmp_path: Path) -> None:
    write = write_file_tool(tmp_path)
    assert await text_of(write, path="a/b/c.txt", content="né\n") == "Wrote 4 bytes to a/b/c.txt"
    assert (tmp_path / "a/b/c.txt").read_bytes() == "né\n".encode()
    assert await text_of(write, path=f"{tmp_path}/a/b/c.txt", content="") == "Wrote 0 bytes to a/b/c.txt"
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == ["c.txt"]


async def test_a_file_keeps_its_mode_and_its_line_ends(tmp_path: Path) -> None:
    path = written(tmp_path, "run.sh", b"one\r\ntwo\r\n")
    path.chmod(0o751)
    text = await text_of(write_file_tool(tmp_path), path="run.sh", content="three\nfour\n")
    assert text == "Wrote 13 bytes to run.sh (line ends kept as \\r\\n)"
    assert path.read_bytes() == b"three\r\nfour\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751


async def test_a_link_inside_of_the_root_stays_a_link(tmp_path: Path) -> None:
    written(tmp_path, "real/a.txt", b"old")
    (tmp_path / "link.txt").symlink_to("real/a.txt")
    await text_of(write_file_tool(tmp_path), path="link.txt", content="new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real/a.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("folder", "'folder' is a folder"),
        ("pipe", "no regular file"),
        ("README.md/x", "a part of the path is a file"),
        ("new/../../out", "is outside of the folder"),
    ],
)
async def test_what_can_not_be_written_is_said(path: str, says: str, difficult_folder: Path) -> None:
    assert says in await error_of(write_file_tool(difficult_folder), path=path, content="x")


async def test_a_character_that_the_encoding_has_not_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path, "latin.txt", b"\xe9\n")
    edit = edit_file_tool(tmp_path)
    text = await error_of(edit, path="latin.txt", old_text="é", new_text="日", encoding="latin-1")
    assert "which has no character U+65E5" in text
    assert (tmp_path / "latin.txt").read_bytes() == b"\xe9\n"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small tmpfs can't be mounted here: run as root, in a container with --cap-add SYS_ADMIN")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


async def test_a_full_disk_changes_nothing(full_disk: Path) -> None:
    written(full_disk, "a.txt", b"old")
    text = await error_of(write_file_tool(full_disk), path="a.txt", content="x" * 100_000)
    assert text == "'a.txt' can't be used: the disk is full. Nothing was changed; free some space first."
    assert (full_disk / "a.txt").read_bytes() == b"old"
    with os.scandir(full_disk) as entries:
        assert [entry.name for entry in entries] == ["a.txt"]


UNPRIVILEGED = """
import os, sys, anyio
from tests.builtin.calls import call
from toolkit.builtin import read_file_tool, write_file_tool
read, write = read_file_tool(sys.argv[1]), write_file_tool(sys.argv[1])
async def go(name):
    return (await call(read, path=name)).text + (await call(write, path=name, content="x")).text
anyio.run(go, "warm.txt")  # all that is imported when it is first used
if os.geteuid() == 0:
    os.setegid(65534), os.seteuid(65534)
print(anyio.run(go, "a.txt"))
"""


def test_a_missing_right_is_said() -> None:
    # Root may do anything, so that another user has to try, in a process of its own.
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o777)
        written(root, "warm.txt", b"")
        written(root, "a.txt", b"old").chmod(0o000)
        python = [sys.executable, "-c", UNPRIVILEGED, name]
        run = subprocess.run(python, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
        assert run.stdout.count("permission denied") == 2
        (root / "a.txt").chmod(0o600)
        assert (root / "a.txt").read_bytes() == b"old"


def test_a_root_that_is_none_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        RootFolder(tmp_path / "nope")
    with pytest.raises(ConfigurationError, match="not a folder"):
        RootFolder(written(tmp_path, "a.txt", b""))
    assert repr(RootFolder(tmp_path)) == f"RootFolder('{tmp_path.resolve()}')"


# It starts a writer for each line that it is sent, and says who that is.
WRITERS = """
import os, sys
from toolkit.builtin import RootFolder
root = RootFolder(sys.argv[1])
for _ in sys.stdin:
    writer = os.fork()
    while writer == 0:
        for letter in (b"b", b"a"):
            root.write("a.txt", letter * 3_000_000)
    print(writer, flush=True)
    os.waitpid(writer, 0)
    print("dead", flush=True)
"""


@pytest.mark.real
@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.full)])
def test_a_process_that_is_killed_while_it_writes_leaves_a_whole_file(rounds: int, tmp_path: Path) -> None:
    chance = random.Random(7)
    path = written(tmp_path, "a.txt", b"a" * 3_000_000)
    left_over = 0
    python = [sys.executable, "-u", "-c", WRITERS, str(tmp_path)]
    with subprocess.Popen(
        python, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for _ in range(rounds):
            writers.stdin.write("\n")
            writers.stdin.flush()
            writer = int(writers.stdout.readline())
            time.sleep(chance.uniform(0, 0.03))  # the point at which it is killed
            os.kill(writer, signal.SIGKILL)
            assert writers.stdout.readline() == "dead\n"
            assert path.read_bytes() in (b"a" * 3_000_000, b"b" * 3_000_000)
            others = [other for other in tmp_path.iterdir() if other != path]
            left_over += len(others)
            for other in others:
                other.unlink()
        writers.stdin.close()
    assert left_over > 0  # some were killed in the middle
