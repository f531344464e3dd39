"""`--log` and `toolkit runs`: runs that were written down, as text, JSON, a page to read and a test."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import Ran
from tests.cli.pseudo_terminal import ROOT
from tests.cli.test_chat import MODEL

Run = Callable[..., Ran]


@pytest.fixture
def logged(run: Run, file: Path) -> Path:
    (file.parent / "model.py").write_text(MODEL)
    assert run("call", "some_tools.py", "get_weather", "city=Rome", "--log", "runs").out.startswith("Sunny in Rome")
    assert run("chat", "some_tools.py", "-m", "model.py:calm", "-p", "Weather?", "--log", "runs").code == 0
    return file.parent / "runs"


def test_runs_are_listed_the_newest_first(run: Run, logged: Path) -> None:
    ran = run("runs", "list")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert "ended (complete)" in lines[0]
    assert lines[1] == "    Weather?"
    assert lines[3] == "    toolkit call get_weather"
    runs = json.loads(run("runs", "list", "--limit", "1", "-o", "json").out)["runs"]
    assert [(each["state"], each["ending"], each["tool_calls"]) for each in runs] == [("ended", "complete", 1)]


def test_a_run_is_shown_step_by_step(run: Run, logged: Path) -> None:
    newest = json.loads(run("runs", "list", "-o", "json").out)["runs"][0]["id"]
    shown = run("runs", "show").out
    assert "get_weather done" in shown
    assert run("runs", "show", newest[:6]).out == shown
    plain = json.loads(run("runs", "show", "-o", "json").out)
    assert plain["run"]["id"] == newest
    assert [step["kind"] for step in plain["steps"]] == ["loop", "model", "tool", "model"]


def test_a_run_is_exported_as_lines_as_a_page_and_as_a_test_that_passes(run: Run, logged: Path) -> None:
    lines = [json.loads(line) for line in run("runs", "export").out.splitlines()]
    assert "tool_execution_end" in {line.get("event") for line in lines}
    assert "Weather?" in run("runs", "export", "--as", "markdown").out
    test = logged.parent / "test_exported.py"
    test.write_text(run("runs", "export", "--as", "test").out)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "anyio", str(test)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout


def test_what_went_on_when_its_process_was_killed_is_shown_as_unended(run: Run, logged: Path) -> None:
    file = max(logged.glob("*.jsonl"))
    lines = file.read_bytes().splitlines(keepends=True)
    last = next(at for at, line in enumerate(lines) if b'"tool_execution_start"' in line)
    file.write_bytes(b"".join(lines[: last + 1]))
    assert "get_weather running" in run("runs", "show").out
    os.utime(file, (0, 0))
    told = run("runs", "show").out
    assert "cut off" in told
    assert "get_weather unended" in told
    assert "running" not in told
    assert "tool get_weather (unended)" in run("runs", "export", "--as", "markdown").out


@pytest.mark.parametrize(("form", "field"), [("lines", "entries"), ("markdown", "text"), ("test", "text")])
def test_an_export_is_one_document_in_json(run: Run, logged: Path, form: str, field: str) -> None:
    document = json.loads(run("runs", "export", "--as", form, "-o", "json").out)
    assert document["form"] == form
    assert "Weather?" in json.dumps(document[field])


def test_a_run_that_is_not_there_is_a_json_error(run: Run, logged: Path) -> None:
    for command in ("show", "export"):
        ran = run("runs", command, "zzz", "-o", "json")
        assert "zzz" in json.loads(ran.out)["error"]["message"]
        assert json.loads(ran.out)["error"]["exit_code"] == ran.code


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "--log", "nowhere"], "there are no runs at nowhere: write some by `toolkit chat ... --log nowhere`"),
        (["show", "zzz"], "zzz"),
        (["list", "--log", "some_tools.py"], "some_tools.py"),
    ],
)
def test_what_is_no_run_is_told_in_one_line(run: Run, logged: Path, arguments: list[str], told: str) -> None:
    ran = run("runs", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_a_wrong_call_and_one_that_is_refused_have_their_exit_codes_with_a_log_too(run: Run, logged: Path) -> None:
    assert run("call", "some_tools.py", "get_weather", "town=Rome", "--log", "runs").code == 2
    assert run("call", "some_tools.py", "get_weather", "city=Nowhere", "--log", "runs").code == 1
    assert run("call", "some_tools.py", "delete", "path=a", "--log", "runs").code == 3
    assert run("call", "some_tools.py", "delete", "path=a", "--log", "runs", "--yes").code == 0


@pytest.mark.real
def test_the_page_is_reached_by_its_link_until_ctrl_c(logged: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "toolkit", "runs", "view", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as viewer:
        try:
            assert viewer.stdout is not None
            assert viewer.stderr is not None
            page, _, code = json.loads(viewer.stdout.readline())["url"].partition("#code=")
            assert httpx2.get(page).status_code == 200
            assert httpx2.post(f"{page}page", json={"code": "another"}).status_code == 403
            assert httpx2.post(f"{page}page", json={"code": code}).status_code == 200
            viewer.send_signal(signal.SIGINT)
            assert viewer.wait(30) == 130
            assert "Traceback" not in viewer.stderr.read()
        finally:
            viewer.kill()


@pytest.mark.real
def test_a_page_whose_port_is_in_use_is_told(run: Run, logged: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("runs", "view", "--port", str(port))
    assert (ran.code, ran.out) == (2, "")
    assert str(port) in ran.err.splitlines()[-1]
    assert "in use" in ran.err
