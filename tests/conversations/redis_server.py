"""A Redis server of the test's own, on a loopback port; ended by its process."""

import shutil
import socket
import subprocess
import sys
import time
from os import environ, geteuid
from pathlib import Path
from tempfile import mkdtemp

import pytest


def find_redis() -> str | None:
    """Return the server's program; None where there is none."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


def install_redis() -> str | None:
    """Install the server where that can be done, as in a container; return its program."""
    if sys.platform != "linux" or geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    quiet = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", "redis-server"]):
        subprocess.run(command, env=quiet, capture_output=True, check=False, timeout=600)
    return find_redis()


class RedisServer:
    """A server that stores nothing on disk."""

    def __init__(self, program: str) -> None:
        self._folder = Path(mkdtemp(prefix="toolkit-redis-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen([program, *options], stdout=log, stderr=log, cwd=self._folder)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    @property
    def url(self) -> str:
        """The URL of a database of it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        """End it, and leave nothing of it."""
        self._process.kill()
        self._process.wait(60)
        shutil.rmtree(self._folder)


def start_redis() -> RedisServer:
    """Return a server, or skip the test by its reason."""
    pytest.importorskip(
        "redis", reason="the client of Redis is not installed: pip install 'toolkit-sdk[conversations]'"
    )
    program = find_redis() or install_redis()
    if program is None:
        pytest.skip("no Redis is installed: `apt install redis-server`, or have one on the PATH")
    return RedisServer(program)
