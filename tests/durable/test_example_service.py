"""The example of a service: its worker and its web process are killed and started again in the middle of a run."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.durable.fleet import WorkerProcess

_SERVICE = Path(__file__).parents[2] / "examples" / "durable_service"
_ROOT = Path(__file__).parents[2]


@contextmanager
def program(*command: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a program in the folder of the example, and kill it."""
    process = subprocess.Popen([sys.executable, *command], cwd=_SERVICE, env={**os.environ, "PYTHONPATH": str(_ROOT)})
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


@contextmanager
def worker(folder: Path, url: str) -> Generator[WorkerProcess]:
    """Run a worker of the example, and kill it."""
    process = WorkerProcess(_SERVICE / "service.py", url, loop="support", folder=folder)
    try:
        yield process
    finally:
        process.kill()


def ask(client: httpx2.Client, path: str, wanted: str) -> str:
    """Return a page when it says what is wanted."""
    deadline, page = time.monotonic() + 120, ""
    while wanted not in page:
        assert time.monotonic() < deadline, page
        time.sleep(0.05)
        try:
            page = client.get(path).text
        except httpx2.TransportError:
            continue
    return page


@pytest.mark.real
def test_the_service_goes_on_after_all_of_it_was_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'service.db'}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True) as client:
        with worker(tmp_path, url), program("service.py", url, port):
            ask(client, "/", "<h1>Runs</h1>")
            client.post("/runs", data={"ticket": "ticket-17", "text": "My lamp is broken."})
            ask(client, "/runs/ticket-17", "waiting")
        with program("service.py", url, port):
            page = ask(client, "/runs/ticket-17", "Approve")
            binding, call = re.findall(r'name="(?:binding|call)" value="([^"]+)"', page)[::-1]
            decision = {"call": call, "binding": binding, "answer": "approve"}
            assert client.post("/runs/ticket-17/decisions", data=decision).status_code == 200
            second = client.post("/runs/ticket-17/decisions", data=decision)
            assert (second.status_code, "decided on it already" in second.text) == (409, True)
            with worker(tmp_path, url):
                page = ask(client, "/runs/ticket-17", "done")
            assert "I looked at it. Refunded order 17 to Ada." in page
            with client.stream("GET", "/runs/ticket-17/events") as events:
                ids = [int(line.removeprefix("id: ")) for line in events.iter_lines() if line.startswith("id: ")]
            assert ids == sorted(set(ids))
            assert client.get("/runs/none").status_code == 404
