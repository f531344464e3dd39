"""Every block of Python on every page runs, from top to bottom, in one namespace for each page."""

import re
import sqlite3
import sys
import textwrap
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from docs.site.tutorial import join_program, list_steps
from toolkit.conversations import Conversations
from toolkit.testing.loopback import Answer, serving

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)

# The steps of the tutorial are one program: they run in their order, as one.
TUTORIAL = list_steps(ROOT / "docs" / "tutorial")
README = ROOT / "README.md"
FOR_AGENTS = sorted((ROOT / "toolkit" / "coding_agents").rglob("*.md"))
PAGES = [README, *sorted(set((ROOT / "docs").rglob("*.md")) - set(TUTORIAL)), *FOR_AGENTS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    answers = {"role": "assistant", "content": "It is sunny in Paris."}
    with serving(*(Answer({"choices": [{"message": message}]}) for message in (asks, answers))) as server:
        if page == README:  # the one page that begins with a vendor's model
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "key")
        run_blocks([page], tmp_path, monkeypatch)


def test_the_steps_of_the_tutorial_run_and_so_does_its_whole_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shop = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", shop)  # what the reader has as shop.py in the end
    exec(compile(join_program(TUTORIAL[0].parent), "shop.py", "exec"), shop.__dict__)
    page = run_blocks(TUTORIAL, tmp_path, monkeypatch)
    page["test_a_parcel_is_found"]()
    page["test_the_tools_have_no_lint_findings"]()
    close_databases(shop.__dict__)


def run_blocks(pages: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the blocks of the pages in an empty folder, as one module that can be looked up by its name."""
    monkeypatch.chdir(folder)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for page in pages:
            text = page.read_text(encoding="utf-8")
            for block in BLOCK.finditer(text):
                # Blank lines in front keep the line numbers of a failure those of the page.
                lines_before = text[: block.start("code")].count("\n")
                code = "\n" * lines_before + textwrap.dedent(block["code"])
                exec(compile(code, str(page), "exec"), module.__dict__)
    close_databases(module.__dict__)
    return module.__dict__


def close_databases(namespace: dict[str, Any]) -> None:
    """Close what a page leaves open, as a program does that ends."""
    for value in namespace.values():
        if isinstance(value, sqlite3.Connection):
            value.close()
        if isinstance(value, Conversations):
            anyio.run(value.aclose)


def test_the_readme_starts_with_a_picture_a_program_and_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.index("![") < text.index("```python") < text.index("```sh") < text.index("\n## ")
    commands = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(commands) == 2
    assert commands[0].strip().endswith("python -m toolkit demo")
    assert commands[1].strip().endswith("poe check")


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
