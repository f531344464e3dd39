"""Programs of the protocol's makers, against our server and our client: the inspector and the conformance runner."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node import node
from tests.npm import npm_packages

ROOT = Path(__file__).parents[2]
SERVED = str(Path(__file__).parent / "served_mcp.py")
SERVER = str(Path(__file__).parent / "conformance_server.py")
CLIENT = str(ROOT / "tests" / "sources" / "mcp" / "conformance_client.py")

# A registry has tools; the runner's other scenarios are about resources, prompts, completion and sampling, which a
# FastMCP server has beside a registry, and about streams that a server ends and takes up again.
OF_A_SERVER = [
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-with-logging",
    "tools-call-elicitation",
    "logging-set-level",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "json-schema-2020-12",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
]
OF_A_CLIENT = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/scope-retry-limit",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
]


def run(*command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=env, cwd="/")


@contextmanager
def serving() -> Generator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, SERVER, str(port)], env=env) as process:
        try:
            for _ in range(200):
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@pytest.mark.real
def test_the_inspector_lists_and_calls_our_tools() -> None:
    modules = npm_packages("mcp-inspector", "@modelcontextprotocol/inspector@0.15.0")
    inspector = [node(18), str(modules / "@modelcontextprotocol/inspector/cli/build/cli.js"), "--cli"]

    def inspect(*arguments: str) -> Any:
        done = run(*inspector, sys.executable, SERVED, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    listed = inspect("--method", "tools/list")
    assert {tool["name"] for tool in listed["tools"]} >= {"add", "forecast", "wipe"}
    called = inspect("--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=17", "--tool-arg", "b=25")
    content = [{"type": "text", "text": "42"}]
    assert called == {"content": content, "structuredContent": {"result": 42}, "isError": False}


@pytest.mark.real
def test_the_official_client_for_javascript_calls_our_tools_as_tasks() -> None:
    modules = npm_packages("mcp-sdk", "@modelcontextprotocol/sdk@1.32.2")
    script = str(Path(__file__).parent / "task_client.mjs")
    done = run(node(20), script, str(modules / "@modelcontextprotocol/sdk"), sys.executable, SERVED)
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    last = {name: (kind, text) for name, kind, text in messages}
    assert last["add"] == ("result", "42")
    assert last["wipe"] == ("result", "/tmp/a is gone")
    assert last["fail"][0] == "error"  # in this revision a failure is one of the task, whose result it does not read
    assert last["hang"] == ("cancelled", "cancelled")


@pytest.fixture(scope="module")
def runner() -> list[str]:
    modules = npm_packages("mcp-conformance", "@modelcontextprotocol/conformance@0.1.16")
    return [node(22), str(modules / "@modelcontextprotocol/conformance/dist/index.js")]


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with serving() as url:
        yield url


@pytest.mark.full
@pytest.mark.parametrize("scenario", OF_A_SERVER)
def test_our_server_conforms(scenario: str, runner: list[str], url: str) -> None:
    done = run(*runner, "server", "--url", url, "--scenario", scenario)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert " 0 failed" in said


@pytest.mark.full
@pytest.mark.parametrize("scenario", OF_A_CLIENT)
def test_our_client_conforms(scenario: str, runner: list[str], tmp_path: Path) -> None:
    command = f"{sys.executable} {CLIENT}"
    done = run(*runner, "client", "--scenario", scenario, "--command", command, "-o", str(tmp_path))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert " 0 failed" in said
