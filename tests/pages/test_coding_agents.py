"""What the package brings for coding agents: skills in the form that agents read, and advice that is true."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
import yaml

import toolkit
import toolkit.chat
from toolkit import ToolkitError, ToolLoopConfig, ToolRegistry, UserMessage, tool, tool_loop, tool_loop_stream
from toolkit.testing import ScriptedProvider

ROOT = Path(__file__).parents[2]
SKILLS = ROOT / "toolkit" / "coding_agents" / "skills"
MIGRATIONS: dict[str, str] = {
    source: target
    for source, target in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
        "build"
    ]["targets"]["wheel"]["force-include"].items()
    if target.endswith("SKILL.md")
}
FILES = [
    *((path, path.parent.name) for path in sorted(SKILLS.glob("*/SKILL.md"))),
    *((ROOT / source, Path(target).parent.name) for source, target in sorted(MIGRATIONS.items())),
]


@pytest.mark.parametrize(("path", "folder"), FILES, ids=[folder for _, folder in FILES])
def test_a_skill_has_the_form_that_agents_read(path: Path, folder: str) -> None:
    text = path.read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    matter: dict[str, str] = yaml.safe_load(front)
    assert matter["name"] == folder
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", folder)
    assert len(folder) <= 64
    assert 80 <= len(matter["description"]) <= 1024
    assert len(body.splitlines()) <= 500
    prose = re.sub(r"^```.*?^```$", "", body, flags=re.MULTILINE | re.DOTALL)
    assert re.search(r"\]\((?!https?://)", prose) is None, "it stands alone in the wheel: it links to no page"


def test_each_page_on_migrating_is_a_skill_of_the_wheel() -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "migrating").glob("*.md")}
    assert set(MIGRATIONS) == pages - {"docs/migrating/index.md"}


def test_the_rules_for_agents_name_what_is_there() -> None:
    text = (SKILLS.parent / "AGENTS.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.search(r"another extra: (.*?)\.", text, re.DOTALL)
    assert extras is not None
    assert set(re.findall(r"`([a-z-]+)`", extras[1])) <= set(project["optional-dependencies"])
    names = set(re.findall(r"`(?:raise )?([A-Z]\w+[a-z])[(\"`]", text)) - {"ScriptedProvider"}
    assert names <= {*toolkit.__all__, *toolkit.chat.__all__}
    assert (SKILLS / "toolkit" / "SKILL.md").exists()


@tool
def search(query: str) -> str:
    """Search."""
    return query


PROVIDER = ScriptedProvider(["Hi."], repeats=True)
TOOLS = ToolRegistry([search])
WRONG: dict[str, Callable[[], Any]] = {
    "a list for a registry": lambda: toolkit.tool_loop_sync(PROVIDER, cast("Any", [search]), "Hi"),
    "a name for a provider": lambda: toolkit.tool_loop_sync(cast("Any", "openai:gpt-5"), TOOLS, "Hi"),
    "system for system_prompt": lambda: toolkit.tool_loop_sync(PROVIDER, TOOLS, "Hi", **cast("Any", {"system": "Be."})),
    "a number for a retry": lambda: tool(**cast("Any", {"retry": 3}))(search),
    "an approver of two arguments": lambda: ToolLoopConfig(on_tool_call=cast("Any", decide_of_two)),
    "sync where a loop runs": lambda: anyio.run(run_sync_inside),
    "a stream that is not entered": lambda: anyio.run(read_stream_bare),
    "an unknown setting": lambda: ToolLoopConfig(**cast("Any", {"temperature": 0})),
    "a message that is changed": lambda: setattr(UserMessage("a"), "content", "b"),
}


def decide_of_two(name: str, arguments: object) -> bool:
    return bool(name and arguments)


async def run_sync_inside() -> None:
    toolkit.tool_loop_sync(PROVIDER, TOOLS, "Hi")


async def read_stream_bare() -> None:
    async for _ in cast("Any", tool_loop_stream(PROVIDER, TOOLS, "Hi")):
        pass


@pytest.mark.parametrize("mistake", WRONG.values(), ids=WRONG)
def test_the_mistakes_that_are_said_to_raise_do(mistake: Callable[[], Any]) -> None:
    with pytest.raises((ToolkitError, TypeError, AttributeError)):
        mistake()


@pytest.mark.anyio
async def test_a_run_without_an_approver_ends_as_if_all_were_well() -> None:
    @tool(requires_approval=True)
    def delete(path: str) -> str:
        """Delete it."""
        return path

    provider = ScriptedProvider([toolkit.ToolCall("1", "delete", '{"path": "a"}'), "Done."])
    result = await tool_loop(provider, ToolRegistry([delete]), "Delete it.")
    assert (result.text, result.reason.kind) == ("Done.", "complete")
