"""The example plugins, each in its language: complete, and run as they are."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolkit import ToolCall, ToolRegistry
from toolkit.sources.plugin import plugin_tools

pytestmark = [pytest.mark.anyio, pytest.mark.real]

FOLDER = Path(__file__).parents[3] / "examples" / "plugins"


@dataclass(frozen=True)
class Case:
    runtime: str
    file: str
    good: dict[str, Any]
    expected: str
    bad: dict[str, Any]
    problem: str
    build: tuple[str, ...] = ()


CASES = {
    "stats": Case(
        "python3", "stats.py",
        {"numbers": [1, 2, 3, 4, 5], "precision": 1}, "n=5  min=1.0  max=5.0  mean=3.0  stddev=1.4",
        {"numbers": [1, 2], "precision": -1}, "Error: ",
    ),
    "json_query": Case(
        "node", "json_query.js",
        {"json": '{"users": [{"name": "Ada"}, {"name": "Bob"}]}', "path": "users.*.name"}, '["Ada","Bob"]',
        {"json": '{"a": 1}', "path": "b"}, "Error: 'b' is not there; there are: a",
    ),
    "sys_info": Case("bash", "sys_info.sh", {"topic": "os"}, "Linux ", {"topic": "weather"}, "topic"),
    "template": Case(
        "perl", "template.pl",
        {"template": "Hello {{name}}, {{ name }}!", "values": {"name": "Zo\u00eb"}}, "Hello Zo\u00eb, Zo\u00eb!",
        {"template": "{{a}} {{b}}", "values": {"a": "1"}}, "Error: no value for b",
    ),
    "file_info": Case(
        "rustc", "file_info.rs",
        {"path": str(FOLDER / "file_info.rs")}, "file_info.rs: ",
        {"path": '/no/such/f\u00efle "x"'}, 'Error: /no/such/f\u00efle "x": No such file',
        build=("rustc", "-O", "-o", "{program}", "{source}"),
    ),
    "bash_plugin": Case(
        "go", "bash_plugin.go",
        {"command": "echo hello"}, "hello\n",
        {"command": "echo no; exit 3"}, "no\n\nError: exit status 3",
        build=("go", "build", "-o", "{program}", "{source}"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plugins")


def built(case: Case, folder: Path) -> list[str]:
    """Return the command that starts an example, after building it where its language is built."""
    if shutil.which(case.runtime) is None:
        pytest.skip(f"{case.runtime} is not installed: it runs {case.file}")
    if not case.build:
        return [case.runtime, str(FOLDER / case.file)]
    program = folder / case.file.partition(".")[0]
    if not program.exists():
        command = [part.format(program=program, source=FOLDER / case.file) for part in case.build]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return [str(program)]


@pytest.mark.parametrize("name", CASES)
async def test_an_example_describes_itself_works_and_tells_what_is_wrong(name: str, programs: Path) -> None:
    case = CASES[name]
    program, *arguments = built(case, programs)
    async with plugin_tools(program, arguments, describe_timeout=20) as tools:
        registry = ToolRegistry(tools)
        (definition,) = registry.definitions()
        assert definition.name == name
        assert definition.description
        good = await registry.execute(ToolCall("1", name, json.dumps(case.good)))
        assert case.expected in good.text
        assert not good.is_error
        bad = await registry.execute(ToolCall("2", name, json.dumps(case.bad)))
        assert case.problem in bad.text
        assert bad.is_error


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.build])
def test_an_example_can_be_tried_by_hand(name: str, programs: Path) -> None:
    case = CASES[name]
    asked = '{"type":"describe"}\n' + json.dumps(
        {"type": "call", "call_id": "c1", "params": case.good}, separators=(",", ":")
    )
    done = subprocess.run(
        built(case, programs), input=asked + "\n", capture_output=True, text=True, check=True, timeout=120
    )
    description, answer = map(json.loads, done.stdout.splitlines())
    assert description["name"] == name
    assert case.expected in answer["content"][0]["text"]
