"""Programs of the protocol's makers, against our server and our client: the inspector and the conformance runner."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.node import node
from tests.npm import npm_packages
from tests.serving.test_users import ORDERS, TOKENS, shop
from tests.sources.mcp.threaded import serving_in_thread

ROOT = Path(__file__).parents[2]
SERVED = str(Path(__file__).parent / "served_mcp.py")
SERVER = str(Path(__file__).parent / "conformance_server.py")
CLIENT = str(ROOT / "tests" / "sources" / "mcp" / "conformance_client.py")

RUNNER = "@modelcontextprotocol/conformance@0.2.0-alpha.12"  # the first versions for the revision of 2026

# docs/mcp.md has the reasons.
NOT_OF_A_SERVER = {
    *("completion-complete", "resources-list", "resources-read-text", "resources-read-binary"),
    *("resources-templates-read", "resources-subscribe", "resources-unsubscribe", "sep-2164-resource-not-found"),
    *("prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource"),
    *("prompts-get-with-image", "caching", "sep-2640-skills-directory", "sep-2640-skills-enumeration"),
    *("sep-2640-skills-manifest", "tools-call-sampling", "input-required-result-basic-sampling"),
    *("input-required-result-basic-list-roots", "input-required-result-multiple-input-requests"),
    *("input-required-result-non-tool-request", "input-required-result-capability-check"),
    "tasks-status-notifications",
}
NOT_OF_A_CLIENT = {
    *("auth/enterprise-managed-authorization", "auth/dpop", "auth/dpop-nonce", "auth/wif-jwt-bearer"),
    *("sep-2640-client-no-prefetch", "sep-2640-client-verify-digest", "sep-2640-client-verify-size"),
    "sep-2640-client-verify-frontmatter",
}


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


def inspect(*arguments: str) -> Any:
    """Return the answer that the inspector prints."""
    modules = npm_packages("mcp-inspector", "@modelcontextprotocol/inspector@2.12.0")
    launcher = modules / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    done = run(node(22), str(launcher), "--cli", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.real
def test_the_inspector_lists_and_calls_our_tools() -> None:
    listed = inspect(sys.executable, SERVED, "--method", "tools/list")
    assert {tool["name"] for tool in listed["tools"]} >= {"add", "forecast", "wipe"}
    called = inspect(
        sys.executable, SERVED, "--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=17", "b=25"
    )
    assert called["structuredContent"] == {"result": 42}


@pytest.mark.real
def test_in_the_inspector_ada_sees_her_orders_and_bob_his() -> None:
    seen: dict[str, Any] = {}
    with serving_in_thread(lambda _: shop(TOKENS)) as port:
        for token, name in TOKENS.items():
            url, header = f"http://127.0.0.1:{port}/mcp", f"Authorization: Bearer {token}"
            called = inspect(url, "--header", header, "--method", "tools/call", "--tool-name", "orders")
            seen[name] = called["structuredContent"]["result"]
    assert seen == ORDERS


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
    modules = npm_packages("mcp-conformance", RUNNER)
    return [node(22), str(modules / "@modelcontextprotocol/conformance/dist/index.js")]


def list_scenarios(runner: list[str], side: str) -> list[str]:
    """Return the runner's scenarios of a side, of all revisions."""
    parts = run(*runner, "list").stdout.split("scenarios (")
    (part,) = [below for above, below in pairwise(parts) if above.endswith(f"{side} ")]
    return re.findall(r"^  - (\S+)", part, re.MULTILINE)


@pytest.mark.full
def test_our_server_conforms(runner: list[str]) -> None:
    scenarios = list_scenarios(runner, "Server")
    assert set(scenarios) > NOT_OF_A_SERVER
    failed: dict[str, str] = {}
    with serving() as url:
        for scenario in scenarios:
            if scenario in NOT_OF_A_SERVER:
                continue
            done = run(*runner, "server", "--url", url, "--scenario", scenario, "--force")
            warned = scenario == "server-sse-polling" and "0 warnings" not in done.stdout  # its checks are SHOULDs
            if done.returncode != 0 or " 0 failed" not in done.stdout or warned:
                failed[scenario] = done.stdout + done.stderr
    assert failed == {}


@pytest.mark.full
def test_our_client_conforms(runner: list[str], tmp_path: Path) -> None:
    scenarios = list_scenarios(runner, "Client")
    assert set(scenarios) > NOT_OF_A_CLIENT
    command, failed = f"{sys.executable} {CLIENT}", dict[str, str]()
    for scenario in scenarios:
        if scenario in NOT_OF_A_CLIENT:
            continue
        done = run(*runner, "client", "--scenario", scenario, "--command", command, "-o", str(tmp_path))
        if done.returncode != 0:
            failed[scenario] = done.stdout + done.stderr
    assert failed == {}
