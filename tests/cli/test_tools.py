"""`toolkit tools` and `toolkit lint`: every kind of source, and sources that can't be."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran

Run = Callable[..., Ran]


def test_the_tools_of_a_file_are_listed_one_a_line(run: Run, file: Path) -> None:
    ran = run("tools", str(file))
    assert ran.code == 0
    assert ran.out.splitlines()[:2] == ["get_weather\tGet the current weather.", "tag\tPut tags on something."]
    assert ran.err == "printed by the module\n"


@pytest.mark.parametrize("source", ["some_tools", "some_tools.py", "some_tools:delete", "some_tools.py:delete"])
def test_a_module_and_a_name_in_it_are_sources(run: Run, file: Path, source: str) -> None:
    ran = run("tools", source)
    assert ran.code == 0
    assert "delete\tDelete a file." in ran.out.splitlines()
    assert ("tag\t" in ran.out) == (":" not in source)


def test_a_plain_function_and_a_list_and_an_object_are_sources(run: Run, file: Path) -> None:
    file.write_text(
        file.read_text()
        + "\nboth = [tag, plain]\nclass Shop:\n    @tool\n    def buy(self, item: str) -> str:\n"
        + "        'Buy it.'\n        return item\nshop = Shop()\n"
    )
    assert run("tools", "some_tools.py:plain").out == "plain\tDouble a number.\n"
    assert [line.split("\t")[0] for line in run("tools", "some_tools.py:both").out.splitlines()] == ["tag", "plain"]
    assert run("tools", "some_tools.py:shop").out == "buy\tBuy it.\n"


def test_one_tool_is_shown_with_its_schema(run: Run, file: Path) -> None:
    ran = run("tools", "some_tools.py", "get_weather")
    assert ran.out.startswith("get_weather(city, unit?, days?)  [read]\n    Get the current weather.\n{")
    assert json.loads(ran.out[ran.out.index("\n{") :])["required"] == ["city"]


def test_tools_as_json_have_stable_keys(run: Run, file: Path) -> None:
    tools = json.loads(run("tools", "some_tools.py", "--output", "json").out)["tools"]
    assert [tool["name"] for tool in tools] == ["get_weather", "tag", "delete", "shout", "who", "work"]
    assert set(tools[0]) == {
        "name",
        "description",
        "parameters",
        "output_schema",
        "tags",
        "needs_approval",
        "needs_context",
    }
    one = json.loads(run("tools", "some_tools.py", "delete", "-o", "json").out)
    assert (one["name"], one["needs_approval"]) == ("delete", True)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("some_tool.py", "there is no file some_tool.py; did you mean 'some_tools.py'?"),
        ("no_such_module", "there is no module no_such_module here; a source is FILE.py[:NAME]"),
        ("some_tools.py:delte", "some_tools.py has nothing named delte; did you mean 'delete'"),
        ("some_tools.py:__name__", "is no tool: name a registry, a tool, a function"),
        ("opnapi:pets.json", "names no source; did you mean 'openapi:'?"),
        ("openapi:", "openapi: names nothing: write openapi:pets.json"),
        ("openapi:pets.json", "there is no file pets.json"),
        ("mcp:npx 'unclosed", "the command of mcp: can't be read: No closing quotation"),
        ("coding:no/such/folder", "no/such/folder"),
        ("tools.yaml", "tools.yaml can't be read"),
        ("a b", "a b names no source"),
        ("https://user:secret@example.com/?key=verysecret", "names no source"),
    ],
)
def test_a_source_that_is_not_there_is_told_in_one_line_with_the_remedy(
    run: Run, file: Path, source: str, told: str
) -> None:
    ran = run("tools", source)
    assert (ran.code, ran.out) == (2, "")
    line = ran.err.removeprefix("printed by the module\n")
    assert line.startswith("toolkit: ")
    assert told in line
    assert line.count("\n") == 1
    assert "secret" not in line


def test_an_unknown_tool_asks_which_was_meant(run: Run, file: Path) -> None:
    ran = run("tools", "some_tools.py", "get_wether")
    assert (ran.code, ran.out) == (2, "")
    assert "no tool named 'get_wether' in this registry; did you mean 'get_weather'?" in ran.err


def test_errors_are_json_where_output_is(run: Run, file: Path) -> None:
    ran = run("tools", "some_tools.py", "nothing", "--output=json")
    assert ran.code == 2
    assert json.loads(ran.out)["error"]["exit_code"] == 2
    assert "Traceback" not in ran.err


def test_a_module_that_fails_shows_its_own_traceback_once(run: Run, file: Path) -> None:
    file.write_text("def broken():\n    return 1 / 0\n\nbroken()\n")
    ran = run("tools", "some_tools.py")
    assert ran.code == 1
    assert ran.err.count("Traceback") == 1
    assert "importlib" not in ran.err
    assert "toolkit/cli" not in ran.err
    assert ran.err.splitlines()[-1] == ("toolkit: some_tools.py does not import: ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("import no_such_package\n", 1, "does not import: ModuleNotFoundError: No module named 'no_such_package'"),
        ("import sys\nsys.exit(3)\n", 1, "ends the program when it is imported (exit code 3)"),
        ("x = 1\n", 2, "has no tools: decorate a function with @toolkit.tool"),
        ("def (\n", 1, "does not import: SyntaxError"),
        ("from toolkit import ToolRegistry\na, b = ToolRegistry(), ToolRegistry()\n", 2, "has 2 registries, a, b: say"),
        ("while True: pass\n", 1, "is still being imported after 0.2 s"),
        ("import time\ntime.sleep(100)\n", 1, "is still being imported after 0.2 s"),
    ],
)
def test_a_module_that_gives_no_tools_says_why(run: Run, file: Path, text: str, code: int, told: str) -> None:
    file.write_text(text)
    ran = run("tools", "some_tools.py", "--timeout", "0.2")
    assert ran.code == code
    assert told in ran.err


def test_an_alias_of_a_kind_of_tools_is_no_tool(run: Run, file: Path) -> None:
    aliases = "from toolkit import FunctionTool, Tool\nApp = Tool[int]\nMade = FunctionTool[object, ..., str]\n"
    file.write_text(aliases + file.read_text())
    assert (run("tools", "some_tools.py").code, run("lint", "some_tools.py").code) == (0, 1)


def test_pins_are_for_servers_and_plugins(run: Run, file: Path) -> None:
    ran = run("pin", "some_tools.py")
    assert ran.code == 2
    assert "some_tools.py can't be pinned: pins are for MCP servers and plugins" in ran.err
    assert not Path("toolkit.lock").exists()


def test_a_server_for_a_network_needs_a_token_and_a_name(run: Run, file: Path) -> None:
    for options in ((), ("--allow-host", "tools.example"), ("--bearer-env", "HOME")):
        ran = run("serve", "some_tools.py", "--mcp", "http", "--host", "0.0.0.0", "--port", "0", *options)
        assert ran.code == 2
        assert "--host 0.0.0.0 lets the network call the tools: it needs --bearer-env and --allow-host" in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bearer-env", "HOME"), "--bearer-env is for --mcp http"),
        (("--allow-host", "tools.example"), "--allow-host is for --mcp http"),
        (("--mcp", "http", "--sessions", "sessions.db"), "--sessions is for --acp"),
    ],
)
def test_an_option_of_another_way_to_serve_is_refused(run: Run, file: Path, options: Any, words: str) -> None:
    ran = run("serve", "some_tools.py", *options)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_an_option_without_the_one_that_it_belongs_to_is_refused(run: Run, file: Path) -> None:
    ran = run("chat", "some_tools.py", "-m", "local:", "-p", "Hello.", "--port", "8000")
    assert (ran.code, "--port is for --web" in ran.err) == (2, True)
    ran = run("doctor", "--probe")
    assert (ran.code, "--probe tries models: name one by --model" in ran.err) == (2, True)


def test_a_file_may_have_the_name_of_a_module_of_the_library(run: Run, file: Path) -> None:
    file.rename(file.parent / "json.py")
    assert run("tools", "json.py").code == 0
    assert json.loads("1") == 1


def test_what_stands_beside_a_file_can_be_imported(run: Run, file: Path) -> None:
    (file.parent / "beside.py").write_text("from some_tools import *\n")
    elsewhere = file.parent / "elsewhere"
    elsewhere.mkdir()
    assert run("tools", str(file.parent / "beside.py")).code == 0


def test_the_tools_of_an_openapi_document_and_of_a_preset_are_listed(run: Run, file: Path) -> None:
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {"/pets": {"get": {"operationId": "listPets", "summary": "List pets.", "responses": {}}}},
    }
    Path("pets.json").write_text(json.dumps(document))
    ran = run("tools", "openapi:pets.json")
    assert ran.out.startswith("listPets\tList pets.")
    assert ran.err == "reading the operations of pets\n"
    names = [line.partition("\t")[0] for line in run("tools", "coding").out.splitlines()]
    assert names == ["bash", "read_file", "write_file", "edit_file", "list_files", "search"]


@pytest.mark.real
def test_the_tools_of_a_plugin_and_of_a_file_of_tools_are_listed(run: Run, file: Path) -> None:
    Path("plugin.py").write_text(
        "import json, sys\nfor line in sys.stdin:\n"
        "    print(json.dumps({'name': 'say', 'description': 'Say it.'}), flush=True)\n"
    )
    assert run("tools", f"plugin:{sys.executable} plugin.py").out == "say\tSay it.\n"
    Path("tools.yaml").write_text(f"tools: {{plugins: [{{path: {sys.executable}, args: [plugin.py]}}]}}\n")
    assert run("tools", "tools.yaml").out == "say\tSay it.\n"


@pytest.mark.real
def test_tools_are_pinned_and_changes_shown_until_they_are_accepted(run: Run, file: Path) -> None:
    source = f"plugin:{sys.executable} plugin.py"

    def offer(words: str) -> None:
        Path("plugin.py").write_text(
            "import json, sys\nfor line in sys.stdin:\n    print(json.dumps({'name': 'say', 'description': "
            f"'{words}', 'parameters': {{'type': 'object', 'properties': {{}}}}}}), flush=True)\n"
        )

    offer("Say it.")
    assert run("pin", source).code == 0
    offer("Say it to a stranger.")
    changed = run("pin", source, "-o", "json")
    assert changed.code == 1
    (change,) = json.loads(changed.out)["changes"]
    assert "-  Say it.\n+  Say it to a stranger." in change["diff"]
    assert run("tools", source, "--lock", "toolkit.lock").out == ""
    assert run("pin", source, "--accept").code == 0
    assert run("tools", source, "--lock", "toolkit.lock").out == "say\tSay it to a stranger.\n"


@pytest.mark.parametrize("kind", ["mcp", "plugin"])
def test_a_program_that_says_nothing_is_not_waited_for_long(run: Run, file: Path, kind: str) -> None:
    ran = run("tools", f"{kind}:{sys.executable} -c 'import time; time.sleep(100)'", "--timeout", "0.5")
    assert ran.code == 1
    assert "0.5 s" in ran.err.splitlines()[-1]


def test_lint_tells_what_is_to_be_looked_at(run: Run, file: Path) -> None:
    ran = run("lint", "some_tools.py")
    assert ran.code == 1
    assert "delete(path): it has no description" in ran.out
    assert ran.err.endswith("6 tools, 5 to look at\n")
    assert run("lint", "some_tools.py:get_weather").code == 0
    found = json.loads(run("lint", "some_tools:delete", "-o", "json").out)
    assert found["tools"] == 1
    assert found["failures"] == []
    assert found["findings"][0] | {"problem": ""} == {
        "source": "some_tools",
        "tool": "delete",
        "parameter": "path",
        "problem": "",
    }


def test_lint_looks_at_all_modules_of_a_package_and_tells_of_those_that_fail(run: Run, file: Path) -> None:
    inner = file.parent / "pack" / "inner"
    inner.mkdir(parents=True)
    (file.parent / "pack" / "__init__.py").write_text("from pack.one import delete\n")
    (inner / "__init__.py").touch()
    (inner / "broken.py").write_text("1 / 0\n")
    (inner / "__main__.py").write_text("raise AssertionError\n")
    for path in (file.parent / "pack" / "one.py", inner / "two.py"):
        path.write_text(file.read_text())
    ran = run("lint", "pack")
    assert ran.code == 1
    assert ran.out.count("delete(path)") == 2
    assert "pack: delete(path)" in ran.out
    assert "pack.inner.two: delete(path)" in ran.out
    assert "pack.inner.broken does not import: ZeroDivisionError" in ran.err
    assert ran.err.count("Traceback") == 1
    assert ran.err.endswith("12 tools, 10 to look at\n")


@pytest.mark.real
def test_a_variable_that_a_program_is_given_is_not_shown(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN", "supersecretvalue123")
    program = "import os, sys; sys.exit(os.environ['PLAIN'])"
    for option in (["--env", "PLAIN"], ["--env=PLAIN"]):
        ran = run("tools", f'plugin:{sys.executable} -c "{program}"', *option)
        assert ran.code == 1
        assert "Its last words: ***" in ran.err
        assert "supersecret" not in ran.err
    unknown = run("tools", "plugin:x", "--env", "NOT_SET")
    assert unknown.code == 2
    assert "--env names NOT_SET, and there is no such variable in the environment: set it" in unknown.err
