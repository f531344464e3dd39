"""Images and files that are handed to a model."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from toolkit import ToolCall, ToolRegistry, ToolResult
from toolkit.agents import add_image, read_input_file
from toolkit.chat import AudioBlock, FileBlock, ImageBlock, TextBlock

pytestmark = pytest.mark.anyio

PIXEL = b"\x89PNG\r\n\x1a\n"


async def run(tools: ToolRegistry, name: str, **arguments: Any) -> ToolResult:
    return await tools.execute(ToolCall("1", name, json.dumps(arguments)))


async def test_an_image_is_shown_with_what_is_to_be_done() -> None:
    url = "https://example.org/cat.png"
    result = await run(ToolRegistry([add_image()]), "add_image", image_url=url, action="Count.")
    assert result.content == (TextBlock("Count."), ImageBlock(url=url))


async def test_an_image_in_its_url_is_decoded() -> None:
    url = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    result = await run(ToolRegistry([add_image()]), "add_image", image_url=url)
    assert result.content[1] == ImageBlock(PIXEL, media_type="image/png")


@pytest.mark.parametrize(
    "url",
    [
        *("cat.png", "file:///etc/passwd", "http://", "https:///x", "http://[x", "http://a b", ""),
        *("data:text/plain;base64,QQ==", "data:image/png,x", "data:image/png;base64,?", "data:image/png;base64,"),
    ],
)
async def test_what_is_no_image_is_refused_with_what_would_be_one(url: str) -> None:
    result = await run(ToolRegistry([add_image()]), "add_image", image_url=url)
    assert result.is_error
    assert result.text.startswith("image_url: ")


def files(folder: Path) -> dict[str, bytes | str | Path | FileBlock]:
    (folder / "notes.md").write_bytes(b"\xef\xbb\xbfCaf\xc3\xa9")
    return {
        "notes.md": folder / "notes.md",
        "plain": "just text",
        "data.json": b'{"a": 1}',
        "cat.png": PIXEL,
        "meow.wav": b"RIFF",
        "report.pdf": b"%PDF",
        "broken.txt": b"\xff\xfe\x00",
        "gone.txt": folder / "gone.txt",
        "linked": FileBlock(url="https://example.org/a.pdf", name="a.pdf", media_type="application/pdf"),
        "typed": FileBlock(b"x,y", name="table", media_type="text/csv"),
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.md", "Café"),
        ("plain", "just text"),
        ("data.json", '{"a": 1}'),
        ("cat.png", (ImageBlock(PIXEL, media_type="image/png"),)),
        ("meow.wav", (AudioBlock(b"RIFF", media_type="audio/x-wav"),)),
        ("report.pdf", (FileBlock(b"%PDF", name="report.pdf", media_type="application/pdf"),)),
        ("broken.txt", (FileBlock(b"\xff\xfe\x00", name="broken.txt", media_type="text/plain"),)),
        ("linked", (FileBlock(url="https://example.org/a.pdf", name="a.pdf", media_type="application/pdf"),)),
        ("typed", "x,y"),
    ],
)
async def test_a_file_comes_as_what_it_is(name: str, content: object, tmp_path: Path) -> None:
    result = await run(ToolRegistry([read_input_file(files(tmp_path))]), "read_input_file", file_name=name)
    assert not result.is_error
    assert result.content == content


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "NOTES.MD"])
async def test_no_other_file_can_be_read(name: str, tmp_path: Path) -> None:
    result = await run(ToolRegistry([read_input_file(files(tmp_path))]), "read_input_file", file_name=name)
    assert result.is_error
    assert result.text.startswith(f"There is no file '{name}'. These are there: notes.md, plain, ")


async def test_no_files_a_lost_file_and_a_huge_one_are_told_apart(tmp_path: Path) -> None:
    nothing = await run(ToolRegistry([read_input_file({})]), "read_input_file", file_name="a")
    assert (nothing.text, nothing.is_error) == ("No input files are there.", True)
    lost = await run(ToolRegistry([read_input_file(files(tmp_path))]), "read_input_file", file_name="gone.txt")
    assert lost.text == "The file 'gone.txt' can't be read: No such file or directory."
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(21 * 1024 * 1024)
    huge = await run(ToolRegistry([read_input_file({"huge": tmp_path / "huge"})]), "read_input_file", file_name="huge")
    assert huge.text == "The file has 22,020,096 bytes, and at most 20,971,520 can be read."
