"""The commands against real servers and the local model."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran
from tests.cli.pseudo_terminal import ROOT, sit_down
from tests.cli.test_chat import MODEL
from tests.npm import npm_packages

Run = Callable[..., Ran]

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def modules() -> Path:
    packages = "@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-filesystem@2026.8.31"
    return npm_packages("mcp-servers", *packages) / "@modelcontextprotocol"


def test_the_tools_of_an_unknown_mcp_server_are_listed_called_and_talked_with(
    run: Run, modules: Path, file: Path
) -> None:
    everything = f"mcp:node {modules}/server-everything/dist/index.js"
    listed = json.loads(run("tools", everything, "-o", "json").out)["tools"]
    assert "get-sum" in [tool["name"] for tool in listed]
    assert run("call", everything, "get-sum", "a=1", "b=2").out == "The sum of 1 and 2 is 3.\n"
    assert run("call", everything, "get-sum", "a=one", "b=2").code == 2
    slow = run("call", everything, "trigger-long-running-operation", "duration=1", "steps=2")
    assert slow.code == 0
    assert "2 of 2" in slow.err
    model = MODEL.replace('"get_weather", \'{"city": "Oslo"}\'', '"get-sum", \'{"a": 20, "b": 22}\'')
    (file.parent / "model.py").write_text(model)
    asked = run("chat", everything, "-m", "model.py:calm", "-p", "What is 20 + 22?", "--yes")
    assert asked.code == 0
    assert "= The sum of 20 and 22 is 42." in asked.err


def test_a_server_of_files_and_the_library_own_are_one_registry(run: Run, modules: Path, file: Path) -> None:
    filesystem = f"mcp:node {modules}/server-filesystem/dist/index.js {file.parent}"
    assert "get_weather" in run("call", filesystem, "read_text_file", f"path={file}").out
    refused = run("call", filesystem, "read_text_file", "path=/etc/passwd")
    assert (refused.code, refused.out) == (1, "")
    (file.parent / "model.py").write_text(MODEL)
    ran = run("chat", "coding", filesystem, "-m", "model.py:calm", "-p", "?", "-o", "json")
    assert "server-filesystem__read_file" in ran.out or "index_js__read_file" in ran.out


def test_a_thousand_operations_become_tools_with_progress(run: Run, file: Path) -> None:
    paths: dict[str, Any] = {}
    for number in range(1000):
        paths[f"/things{number}/{{id}}"] = {
            "get": {
                "operationId": f"thing{number}",
                "summary": f"Get thing {number}.",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "responses": {"200": {"description": "It."}},
            }
        }
    document = {"openapi": "3.1.0", "info": {"title": "Things", "version": "1"}, "paths": paths}
    (file.parent / "things.json").write_text(json.dumps({**document, "servers": [{"url": "http://127.0.0.1:9"}]}))
    ran = run("tools", "openapi:things.json")
    assert ran.out.count("\n") == 1000
    assert ran.err == "reading the operations of things\n"
    with sit_down(["tools", "openapi:things.json", "thing7"], file.parent, columns=60) as person:
        assert person.wait(60) == 0
    assert "reading the operations of things" in person.shown
    assert "%" in person.shown
    assert "thing7(id)  [read]" in person.shown


def test_the_local_model_answers_by_a_tool(run: Run, file: Path) -> None:
    ran = run("chat", "some_tools.py:get_weather", "-m", "local:", "-p", "What is the weather in Oslo?")
    assert ran.code == 0
    assert "loading the model\n" in ran.err
    assert "= Sunny in Oslo" in ran.err
    assert "Sunny" in ran.out or "sunny" in ran.out


def test_tools_are_served_on_standard_input_and_output(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = f"mcp:{sys.executable} -m toolkit serve some_tools.py"
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ran = run("call", serve, "get_weather", "city=Rome", "--env", "PYTHONPATH", "--timeout", "60")
    assert ran.out == "Sunny in Rome, 1 days, 21 degrees celsius.\n"
    listed = run("tools", serve, "--env", "PYTHONPATH", "--timeout", "60").out
    assert "who" not in [line.partition("\t")[0] for line in listed.splitlines()]


def test_tools_are_served_over_http_until_the_signal(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "toolkit", "serve", "some_tools.py", "--mcp", "http", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SERVED": "a-token-of-some-length"}
    monkeypatch.setenv("SERVED", "a-token-of-some-length")
    with subprocess.Popen(
        [*command, "--bearer-env", "SERVED"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        url = server.stdout.readline().strip()
        called = run("call", f"mcp:{url}", "get_weather", "city=Rome", "--token-env", "SERVED")
        assert called.out == "Sunny in Rome, 1 days, 21 degrees celsius.\n"
        refused = run("tools", f"mcp:{url}")
        assert refused.code == 1
        assert "401" in refused.err
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
        assert "Traceback" not in server.stderr.read()


def test_a_port_that_is_in_use_is_told(run: Run, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = run("serve", "some_tools.py", "--mcp", "http", "--port", port)
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == (
        f"toolkit: port {port} is in use: choose another by --port, or 0 for one that is free"
    )
