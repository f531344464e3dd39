"""The command line as a whole: help, misuse, completion, logs, `replay` and `doctor`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.cli.test_chat import MODEL
from toolkit.cli.sources import read_model
from toolkit.cli.tool_commands import describe_advice

Run = Callable[..., Ran]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "toolkit" / "__main__.py"
COMMANDS = ["call", "chat", "demo", "doctor", "eval", "lint", "runs", "serve", "tools", "worker"]


def python(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


LOADED = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("toolkit_script", {str(SCRIPT)!r})
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
code = script.main()
print(sorted({{"pydantic_core", "anyio", "toolkit.chat", "toolkit.tools", "rich", "email"}} & set(sys.modules)))
sys.exit(code)
"""


def test_help_imports_neither_the_library_nor_what_it_needs() -> None:
    done = python(LOADED, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"  {command} " in done.stdout for command in COMMANDS)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_script_runs_a_command_whose_tools_import_the_library(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import toolkit\nfrom toolkit import tool\n@toolkit.tool\ndef say(text: str) -> str:\n"
        "    'Say it.'\n    return text + tool.__name__\n"
    )
    done = python(LOADED, "call", str(tmp_path / "mine.py"), "say", "text=hello ")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("hello tool\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_that_fits_forty_columns(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ran = run(command, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: toolkit {command} ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tols"], "toolkit: No such command 'tols'. Did you mean 'tools'? See `toolkit --help`."),
        (["tools"], "toolkit tools: Missing argument 'SOURCE'. See `toolkit tools --help`."),
        (["chat", "x.py"], "toolkit chat: Missing option '--model' / '-m'"),
        (["tools", "x.py", "--otput", "json"], "No such option"),
        (["serve", "x.py", "--port", "99999"], "99999 is not in the range 0<=x<=65535"),
        (["runs", "replay", "none.jsonl"], "there is no cassette at none.jsonl"),
    ],
)
def test_misuse_is_one_line_with_the_remedy(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_a_server_on_stdio_writes_no_json_of_its_own(run: Run, file: Path) -> None:
    ran = run("serve", "some_tools.py", "--output", "json")
    assert ran.code == 2
    assert json.loads(ran.out)["error"]["message"].startswith("--output json is for --mcp http")


def test_a_command_runs_where_standard_input_is_closed(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run("tools", "some_tools.py:tag").out == "tag\tPut tags on something.\n"


def test_a_traceback_is_shown_where_it_is_asked_for(run: Run, file: Path) -> None:
    assert "Traceback" not in run("tools", "some_tools.py", "nothing").err
    ran = run("tools", "some_tools.py", "nothing", "--traceback")
    assert ran.err.count("Traceback") == 1
    assert "UnknownToolNameError" in ran.err


def test_warnings_of_the_library_are_notes_of_a_line_and_crashes_are_no_tracebacks(run: Run, file: Path) -> None:
    file.write_text(
        "import logging\nfrom toolkit import tool\n@tool\ndef fall() -> str:\n    'Fall.'\n"
        "    logging.getLogger('x').warning('one\\ntwo \\x1b[31m')\n    raise ValueError('down')\n"
    )
    ran = run("call", "some_tools.py", "fall")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "one two\nValueError: down\n"
    assert "Traceback" in run("call", "some_tools.py", "fall", "--traceback").err


def test_the_traceback_of_a_module_shows_no_secret(run: Run, file: Path) -> None:
    file.write_text("raise ValueError('down at https://ada:plant-7149@host.example/x')\n")
    ran = run("tools", "some_tools.py")
    assert "ValueError: down at https://***@host.example" in ran.err
    assert "7149" not in ran.err


def test_the_shell_is_offered_commands_sources_and_the_tools_of_a_file_that_is_not_run(file: Path) -> None:
    file.write_text(file.read_text() + "\nraise AssertionError\n@tool(name='other')\ndef odd(): ...\n")

    def complete(*words: str) -> list[str]:
        program = "import sys; from toolkit.cli.application import run_command_line as run; sys.exit(run('toolkit'))"
        line = {"COMP_WORDS": " ".join(["toolkit", *words]), "COMP_CWORD": str(len(words))}
        done = python(program, _TOOLKIT_COMPLETE="bash_complete", **line)
        return [item.partition(",")[2] for item in done.stdout.splitlines() if item]

    assert complete("to") == ["tools"]
    assert "openapi:" in complete("tools", "o")
    assert complete("call", "some_tools.py", "") == ["get_weather", "tag", "delete", "shout", "who", "work", "other"]
    assert complete("call", "coding", "re") == ["read_file"]
    assert complete("call", "mcp:nothing", "") == []


def test_a_recorded_conversation_is_shown_and_asked_again_with_real_tools(run: Run, file: Path) -> None:
    (file.parent / "model.py").write_text(MODEL)
    ran = run("chat", "some_tools.py", "-m", "model.py:calm", "-p", "Weather?", "--record", "said.jsonl")
    assert ran.code == 0
    shown = run("runs", "replay", "said.jsonl")
    assert shown.out == (
        '> Weather?\n  get_weather {"city": "Oslo"}\n  = Sunny in Oslo, 1 days, 21 degrees celsius.\nIt is sunny.\n'
    )
    exchanges = json.loads(run("runs", "replay", "said.jsonl", "-o", "json").out)["exchanges"]
    assert [set(exchange) for exchange in exchanges] == [{"line", "method", "request", "response", "error"}] * 2
    again = run("runs", "replay", "said.jsonl", "--tools", "some_tools.py")
    assert (again.code, again.out) == (0, "> Weather?\nprinted by the tool\nIt is sunny.\n")
    file.write_text(file.read_text().replace("Sunny in", "Heavy rain in"))
    other = run("runs", "replay", "said.jsonl", "--tools", "some_tools.py")
    assert other.code == 1
    assert "this request was not recorded" in other.err


@pytest.mark.real
def test_the_doctor_tells_what_is_there_and_never_a_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789abcdef")
    ran = run("doctor", "--output", "json")
    checks = {(check["kind"], check["name"]): check for check in json.loads(ran.out)["checks"]}
    assert checks["extra", "cli"]["state"] == "works"
    assert checks["key", "OPENAI_API_KEY"] == {
        "kind": "key",
        "name": "OPENAI_API_KEY",
        "state": "works",
        "detail": "set, for openai:",
    }
    assert checks["model", "local:"]["state"] == "works"
    assert "secret" not in ran.out + ran.err
    assert "asking local:" in ran.err


@pytest.mark.real
def test_the_doctor_says_how_a_model_is_best_asked_and_tries_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(
        "from toolkit import ToolCall\n"
        "from toolkit.testing import FunctionProvider\n"
        "call = ToolCall('1', 'get_weather', '{\"city\": \"Oslo\"}')\n"
        "calling = FunctionProvider(lambda request: call if request.tools else 'yes')\n"
        "mute = FunctionProvider(lambda request: 'yes')\n"
    )
    ran = run("doctor", "--probe", "-m", "models.py:calling", "-m", "models.py:mute", "--output", "json")
    checks = {(check["kind"], check["name"]): check for check in json.loads(ran.out)["checks"]}
    assert (
        checks["calls", "models.py:calling"]["detail"] == "best asked native: nothing is known of it: ask for a probe"
    )
    assert checks["probe", "models.py:calling"]["state"] == "works"
    assert checks["probe", "models.py:calling"]["detail"].startswith("native: works; text: it answered in words: 'yes'")
    assert checks["probe", "models.py:mute"]["state"] == "broken"
    assert ran.code == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("openai:qwen3:8b", "best asked native: the way of the family Qwen3; as text it writes calls like hermes; its"),
        ("openai:qwen2.5:0.5b", "best asked guided: with 500 million parameters it rarely calls by itself; as text"),
        ("claude.py:NAME", "best asked native: nothing is known of it: ask for a probe"),
        ("", "best asked native: nothing is known of it: ask for a probe"),
    ],
)
def test_the_doctor_knows_families_by_name(name: str, says: str) -> None:
    assert describe_advice(name).startswith(says)


@pytest.mark.real
def test_the_doctor_says_what_is_missing_and_how_to_get_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("xllamacpp", "orjson"):
        monkeypatch.setitem(sys.modules, name, None)
    alone, with_model = run("doctor").out, run("doctor", "-m", "no:x")
    assert with_model.code == 1
    assert "broken  extra fast  ModuleNotFoundError" in alone
    assert "missing model local:" in alone
    assert "broken  model no:x  no provider is named 'no'" in with_model.out
    assert "model local:" not in with_model.out, "nobody asked for it"


def test_a_model_at_an_address_of_ones_own_needs_no_public_prices() -> None:
    pytest.importorskip("genai_prices", reason="genai-prices is not installed: uv pip install genai-prices")
    provider = read_model("openai:qwen3", "http://127.0.0.1:9/v1", 5.0)
    assert repr(provider).startswith("OpenAIProvider('qwen3'")
    priced = read_model("openai:gpt-5-mini", "https://api.openai.com/v1", 5.0, api_key="x")
    assert repr(priced).startswith("PricedProvider(")
