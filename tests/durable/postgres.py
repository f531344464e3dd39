"""A Postgres server of the test's own, on a loopback port; ended by its process."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

SQLITE_FIRST = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)], indirect=True
)
"""A test of both kinds of database, which runs on Postgres in the full runs alone."""

_FOLDERS = ("/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/15/bin", "/usr/local/bin")
_USERS = ("postgres", "nobody")


def find_postgres() -> Path | None:
    """Return the folder of the server's programs; None where there is none."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    return next((each for each in [*folders, *map(Path, _FOLDERS)] if (each / "initdb").exists()), None)


def install_postgres() -> Path | None:
    """Install the server where that can be done, as in a container; return the folder of its programs."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]):
        subprocess.run(command, env=quiet, capture_output=True, check=False, timeout=600)
    return find_postgres()


class PostgresServer:
    """A server over a folder, which can be killed and started again."""

    def __init__(self, programs: Path) -> None:
        self.programs: Path = programs
        # Not in pytest's folder, which is root's alone, and a server does not run as root.
        self._folder = Path(tempfile.mkdtemp(prefix="toolkit-postgres-"))
        self._user = _find_user(self._folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        settings = ["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        self._run([programs / "initdb", "-D", self._folder / "data", *settings])
        self.start()

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._folder),
            "max_connections": "300",
            "fsync": "off",  # processes are killed here, and the machine is not
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self._folder / "data", *options],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
            )
        deadline = time.monotonic() + 120
        ready: list[str | Path] = [self.programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash of the machine would end its processes."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(120)

    def stop(self) -> None:
        """End it, and leave nothing of it."""
        self.kill()
        shutil.rmtree(self._folder)

    def make_database(self) -> str:
        """Return the URL of a new database."""
        name = f"t{uuid4().hex[:12]}"
        self._run([*self._psql, "-c", f"create database {name}"])
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def load(self, url: str, dump: str) -> None:
        """Load a dump into a new database."""
        file = self._folder / f"{uuid4().hex}.sql"
        file.write_text(dump)
        self._run([*self._psql, "-v", "ON_ERROR_STOP=1", "-d", url.rpartition("/")[2], "-f", file])

    def dump(self, url: str) -> str:
        """Return a database as SQL, without commands of psql that are newer than some servers' psql."""
        command = [str(self.programs / "pg_dump"), "--no-owner", url]
        dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        lines = [line for line in dumped.splitlines(keepends=True) if not line.startswith(("\\restrict", "\\unrestr"))]
        return "".join(lines)

    @property
    def _psql(self) -> list[str | Path]:
        return [self.programs / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-q"]

    def _run(self, command: Sequence[str | Path]) -> None:
        done = subprocess.run(command, user=self._user, cwd=self._folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def _find_user(folder: Path) -> str | None:
    """Return a user who may run the server, which root may not, as the owner of its folder."""
    if os.geteuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    user = next(name for name in _USERS if name in known)
    shutil.chown(folder, user)
    return user


def start_postgres() -> PostgresServer:
    """Return a server, or skip the test by its reason."""
    programs = find_postgres() or install_postgres()
    if programs is None:
        pytest.skip("Postgres is not installed: `apt install postgresql`, or have initdb on the PATH")
    return PostgresServer(programs)
