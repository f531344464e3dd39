"""A Restate server of the test's own, from npm, on loopback ports; and the processes that work for it."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.npm import npm_packages

_ROOT = Path(__file__).parents[2]
_VERSION = "1.7.12"
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def find_restate() -> Path:
    """Return the server's program, installed with npm; skips the test where that can't be."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine())
    package = f"@restatedev/restate-server-{sys.platform}-{machine}"
    if sys.platform not in ("linux", "darwin"):
        pytest.skip("no restate-server: it is built for Linux and macOS")
    return npm_packages("restate-server", f"{package}@{_VERSION}") / package / "bin" / "restate-server"


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class RestateError(Exception):
    """The server answered with an error.

    Args:
        status: The status code.
        message: What it said.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"{status}: {message}")


class RestateServer:
    """A server over a folder, which can be killed and started again."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._ports = {name: find_port() for name in ("ingress", "admin", "fabric")}
        self.start()

    def start(self) -> None:
        """Start it, and return when it takes requests."""
        addresses = {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}
        settings = {
            "DO_NOT_TRACK": "1",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_INGRESS__BIND_ADDRESS": addresses["ingress"],
            "RESTATE_ADMIN__BIND_ADDRESS": addresses["admin"],
            "RESTATE_BIND_ADDRESS": addresses["fabric"],
            "RESTATE_ADVERTISED_ADDRESS": f"http://{addresses['fabric']}/",
            "RESTATE_DEFAULT_NUM_PARTITIONS": "2",
            "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "128MB",
            "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL": "2s",
            "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT": "8s",
            # Workers die all the time here, and are back at once.
            "RESTATE_DEFAULT_RETRY_POLICY__INITIAL_INTERVAL": "20ms",
            "RESTATE_DEFAULT_RETRY_POLICY__MAX_INTERVAL": "200ms",
            "RESTATE_DEFAULT_RETRY_POLICY__MAX_ATTEMPTS": "unlimited",
        }
        command = [
            str(self._program),
            "--no-logo",
            "--node-name",
            "test",
            "--base-dir",
            str(self._folder),
            "--log-filter",
            "warn",
        ]
        with (self._folder.with_suffix(".log")).open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **settings})
        deadline = time.monotonic() + 120
        while not self._is_ready():
            assert self._process.poll() is None, self._folder.with_suffix(".log").read_text()
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.05)

    def register(self, port: int, *, use_http_11: bool = False) -> None:
        """Let it know the services on a port."""
        body = {"uri": f"http://127.0.0.1:{port}", "force": True, "use_http_11": use_http_11}
        deadline = time.monotonic() + 120
        while True:
            try:
                self._post("admin", "/deployments", body)
                return
            except RestateError as error:  # a process that only comes up may break the connection off
                if "META0003" not in error.message or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def call(self, path: str, body: object = None, *, timeout: float = 180) -> Any:
        """Call a handler and return what it returns.

        Raises:
            RestateError: It raised.
        """
        return self._post("ingress", path, body, timeout=timeout)

    def query(self, text: str) -> list[Mapping[str, Any]]:
        """Return the rows of a query about what the server knows."""
        rows: list[Mapping[str, Any]] = self._post("admin", "/query", {"query": text})["rows"]
        return rows

    def cancel(self, invocation: str) -> None:
        """Cancel an invocation."""
        self._post("admin", f"/invocations/{invocation}/cancel", None, method="PATCH")

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait(60)

    def _is_ready(self) -> bool:
        try:
            for name, path in (("admin", "/health"), ("ingress", "/restate/health")):
                with _DIRECT.open(f"http://127.0.0.1:{self._ports[name]}{path}", timeout=10):
                    pass
        except OSError:
            return False
        return True

    def _post(self, port: str, path: str, body: object, *, timeout: float = 180, method: str = "POST") -> Any:
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"})
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self._ports[port]}{path}"
        try:
            with _DIRECT.open(urllib.request.Request(url, data, headers, method=method), timeout=timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise RestateError(error.code, json.loads(error.read())["message"]) from error
        return json.loads(text) if text else None


class RestateWorkers:
    """Processes that serve ``tests.durable.restate_worker``, one after the other, on one port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        self.port: int = listener.getsockname()[1]
        command = [sys.executable, "-m", "tests.durable.restate_worker", str(folder), str(listener.fileno())]
        with listener, (folder / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=_ROOT, stdin=subprocess.PIPE, stderr=log, stdout=log, pass_fds=[listener.fileno()]
            )

    def kill(self) -> None:
        """End the worker that works without a word; the next one is there at once."""
        self.send(self.find_pid(), signal.SIGKILL)

    def find_pid(self) -> int:
        """Return the id of the worker that works."""
        pid = self.folder / "pid"
        deadline = time.monotonic() + 120
        while not pid.exists():
            assert time.monotonic() < deadline, "no worker has come up"
            time.sleep(0.01)
        return int(pid.read_text())

    def send(self, pid: int, number: signal.Signals) -> None:
        """Send a worker a signal; one that has killed itself gets none."""
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def end(self) -> None:
        """End them all."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class RestateFleet:
    """A server, and workers that it calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = RestateServer(find_restate(), folder / "server")
        self.workers = RestateWorkers(folder)
        self.server.register(self.workers.port)
        self._runs = 0

    def play(self, scenario: str, *crashes: int) -> dict[str, Any]:
        """Play a scenario in processes that crash at these points; return how it ended, and how its replay did."""
        self._runs += 1
        run = f"run{self._runs}"
        asked = {"scenario": scenario, "run": run, "crashes": crashes}
        told: dict[str, Any] = self.server.call("/crashes/play", asked)
        return {**told, "run": run}

    def end(self) -> None:
        """End them all."""
        self.workers.end()
        self.server.kill()
