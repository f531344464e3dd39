"""Tools from a YAML file."""

import inspect
import sys
import traceback
from pathlib import Path

import pytest

from toolkit import ConfigurationError, ToolCall
from toolkit.calls.registration import EnvVar, ToolOptionKeywords, ToolRetryConfig
from toolkit.errors import PluginError
from toolkit.sources.plugin import plugin_tools
from toolkit.tool_config import PluginConfig, load_tools

PLUGIN = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["type"] == "describe":
        print(json.dumps({"name": "say", "description": "Say the arguments."}), flush=True)
    else:
        print(json.dumps({"content": [{"type": "text", "text": " ".join(sys.argv[1:])}]}), flush=True)
"""


def written(folder: Path, text: str) -> Path:
    (folder / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    file = folder / "tools.yaml"
    file.write_text(text.replace("PYTHON", sys.executable), encoding="utf-8")
    return file


@pytest.mark.anyio
@pytest.mark.real
async def test_a_preset_and_plugins_make_one_registry(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        provider: somebody else's
        tools:
          preset: readonly
          work_dir: sub
          plugins:
            - path: PYTHON
              args: ["plugin.py", "${FIRST}", "${SECOND:-a: [default]}", "$5"]
              timeout: 20
            - {path: PYTHON, args: [plugin.py, "${EMPTY}", "${EMPTY:-full}", "${NOT_SET:-}"], prefix: other}
        """,
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "note.txt").write_text("hello", encoding="utf-8")
    async with load_tools(file, environment={"FIRST": 'one"\n- two', "EMPTY": ""}) as registry:
        assert registry.names == ("read_file", "list_files", "search", "say", "other__say")
        said = await registry.execute(ToolCall("1", "say", "{}"))
        assert said.text == 'one"\n- two a: [default] $5'
        other = await registry.execute(ToolCall("3", "other__say", "{}"))
        assert other.text == " full "
        read = await registry.execute(ToolCall("2", "read_file", '{"path": "note.txt"}'))
        assert "hello" in read.text


@pytest.mark.anyio
@pytest.mark.real
async def test_what_is_wrong_with_one_plugin_ends_the_others(tmp_path: Path) -> None:
    plugin = "{path: PYTHON, args: [plugin.py]}"
    twice = load_tools(written(tmp_path, f"tools: {{plugins: [{plugin}, {plugin}]}}"))
    with pytest.raises(ConfigurationError, match=r"'say' is registered already.*give it a 'prefix:' of its own"):
        async with twice:
            pytest.fail("it has no tools")
    with pytest.raises(PluginError, match="there is no program 'nothing'"):
        async with load_tools(written(tmp_path, f"tools: {{plugins: [{plugin}, {{path: nothing}}]}}")):
            pytest.fail("it has no tools")


BAD = {
    "no tools": ("model: gpt", r"tools\.yaml: the key 'tools' is missing"),
    "no YAML": ("tools: [", r"tools\.yaml can't be read: while parsing"),
    "too many values": (
        "tools: [" + "x, " * 11_000 + "x]",
        r"tools\.yaml can't be read: it holds more than 5,000 values",
    ),
    "nested without end": ("tools: " + "[" * 5_000, r"tools\.yaml can't be read: it is nested more than 200 deep"),
    "an unknown preset": (
        "tools: {preset: some}",
        r'tools\.preset: got the string "some", but it must be one of "coding", "readonly", "all", "none"',
    ),
    "an unknown key": ("tools: {plugin: []}", r'tools\.plugin: unknown\. Did you mean "plugins"\?'),
    "a plugin without a path": (
        "tools: {plugins: [{args: [a]}]}",
        r"tools\.plugins\[0\]\.path: required, but missing\. Give a string",
    ),
    "a key twice": (
        "tools:\n  preset: none\n  preset: all",
        r"tools\.yaml can't be read: the key 'preset' is there twice, in line 2 and in line 3",
    ),
    "a key twice in a plugin": (
        "tools: {plugins: [{path: a, timeout: 1, 'timeout': 2}]}",
        r"the key 'timeout' is there twice, in line 1 and in line 1",
    ),
    "a key that is a boolean": (
        "tools: {plugins: [{path: a, env: {on: b}}]}",
        r"the key 'on' in line 1 is true or false to YAML: write it in quotes",
    ),
    "a word that is a boolean": (
        "tools: {preset: off}",
        r"tools\.preset: got false, but it must be one of (.|\n)*YAML reads yes, no, on and off as true and false: ",
    ),
    "a word in a list that is a boolean": (
        "tools: {plugins: [{path: a, args: [no]}]}",
        r"plugins\[0\]\.args\[0\]: got false, but it must be a string\.\nYAML reads yes, no, on and off as true",
    ),
    "an option that a tool has not": (
        "tools: {plugins: [{path: a, max_usage_counts: 1}]}",
        r'max_usage_counts: unknown\. Did you mean "max_usage_count"',
    ),
    "an option that can't be": (
        "tools: {plugins: [{path: a, max_usage_count: 0}]}",
        r"max_usage_count: got the number 0, but it must be an integer greater than 0",
    ),
    "a variable that is not set": (
        "tools: {plugins: [{path: a, args: [b, '${NOT_SET}']}]}",
        r"tools\.plugins\.0\.args\.1 needs the environment variable NOT_SET, which is not set: set it, or write ",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_file_that_says_what_can_not_be_is_an_error_with_its_place(bad: str, tmp_path: Path) -> None:
    text, message = BAD[bad]
    with pytest.raises(ConfigurationError, match=message):
        load_tools(written(tmp_path, text), environment={})


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_tools(tmp_path / "missing.yaml")


@pytest.mark.parametrize("value", ["!!timestamp x", "!!int ''", "!!bool maybe", "!!float x", "!!binary é"])
def test_a_value_that_is_not_what_its_tag_says_is_an_error_of_ours(value: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(f"tools: {value}\n")
    with pytest.raises(ConfigurationError, match=r"tools\.yaml can't be read"):
        load_tools(file)


def test_a_merge_of_two_mappings_is_no_key_that_is_there_twice(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text("a: &a {preset: none}\nb: &b {work_dir: x}\ntools:\n  <<: *a\n  <<: *b\n")
    load_tools(file)


def test_a_plugin_takes_every_option_of_the_call_but_functions_objects_and_those_of_one_tool() -> None:
    call = {*inspect.signature(plugin_tools).parameters} - {"options"}
    options = ToolOptionKeywords.__optional_keys__
    assert options > {"requires_approval", "strict"}
    assert set(PluginConfig.model_fields) == (call | options | {"prefix"}) - {
        "available",
        "preview",
        "cache_key",
        "pins",
        "examples",
        "freeform",
        "limits",
    }


@pytest.mark.anyio
@pytest.mark.real
async def test_options_of_a_plugin_are_those_of_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOWN", "shown")
    monkeypatch.setenv("HIDDEN", "hidden")
    (tmp_path / "sub").mkdir()
    seen = "str([os.environ.get('SHOWN'), os.environ.get('HIDDEN'), os.getcwd()])"
    code = PLUGIN.replace('" ".join(sys.argv[1:])', seen)
    (tmp_path / "sub" / "here.py").write_text(code.replace("import json", "import os, json"), encoding="utf-8")
    file = written(
        tmp_path,
        """
        tools:
          plugins:
            - path: PYTHON
              args: [here.py]
              cwd: sub
              env_allowlist: [SHOWN]
              describe_timeout: 20
              requires_approval: unsaid
              max_usage_count: 1
              usage_scope: process
              retry: {max_retries: 2}
              tags: [read]
              metadata: {owner: ops}
              timeout: null
              env_vars: [{name: SHOWN}]
        """,
    )
    async with load_tools(file) as registry:
        options = registry.registrations["say"].options
        said = await registry.execute(ToolCall("1", "say", "{}"))
        again = await registry.execute(ToolCall("2", "say", "{}"))
    assert said.text == str(["shown", None, str(tmp_path / "sub")])
    assert again.is_error
    assert (options.requires_approval, options.max_usage_count, options.timeout) == ("unsaid", 1, None)
    assert (set(options.tags), options.metadata["owner"]) == ({"read"}, "ops")
    assert options.env_vars == (EnvVar("SHOWN"),)
    assert options.retry == ToolRetryConfig(max_retries=2)


TOKEN = "hunter2-and-more"


@pytest.mark.parametrize(
    "text",
    [
        "${TOKEN}", "{preset: '${TOKEN}'}", "{plugins: ['${TOKEN}']}", "{plugins: [{path: a, timeout: '${TOKEN}'}]}",
        "{plugins: [{path: a, callers: ['${TOKEN:-x}']}]}", "{work_dir: {a: '${env:TOKEN}'}}",
        "{plugins: [{path: a, args: 'x${TOKEN}y'}]}",
    ],
)  # fmt: skip
def test_an_error_shows_no_value_of_a_variable(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"can't be used:\n- tools") as caught:
        load_tools(written(tmp_path, f"tools: {text}"), environment={"TOKEN": TOKEN})
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "settings", ['path: "a\\0b"', 'path: PYTHON, args: ["a\\0b"]', 'path: PYTHON, env: {A: "a\\0b"}']
)
async def test_a_null_byte_is_an_error_of_ours(settings: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="has a null byte"):
        async with load_tools(written(tmp_path, f"tools: {{plugins: [{{{settings}}}]}}")):
            pass
