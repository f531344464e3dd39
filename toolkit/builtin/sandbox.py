"""Bubblewrap: a command that sees nothing of the machine but what it is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import ConfigurationError

__all__ = ["Bubblewrap"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SYSTEM_SETTINGS = [
    "alternatives",
    "ld.so.cache",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
    "ssl",
    "hosts",
    "resolv.conf",
]
_SANDBOX_PROBE_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """A sandbox for commands by `bubblewrap <https://github.com/containers/bubblewrap>`_, on Linux.

    A command in it has namespaces of its own: it sees the system's programs read-only, the root folder, an empty
    ``/tmp`` and no other process; it has no network, and ends with whoever started it. Unlike a deny list this holds
    whatever the command is.

    Args:
        network: True where the network may be used.
        read: More folders that may be read, such as the virtual environment of the tests.
        write: More folders that may be written.
    """

    network: bool = False
    read: Sequence[str | os.PathLike[str]] = ()
    write: Sequence[str | os.PathLike[str]] = ()

    def check(self, root: Path) -> None:
        """Make sure that it works here, by running a command in it.

        Raises:
            ConfigurationError: It is not installed, or the system doesn't let it work; says what to do.
        """
        if not sys.platform.startswith("linux"):
            raise ConfigurationError("the sandbox is bubblewrap, which is for Linux only")
        if shutil.which("bwrap") is None:
            raise ConfigurationError(
                "the sandbox was asked for, but bubblewrap is not installed: apt install bubblewrap, "
                "dnf install bubblewrap"
            )
        try:
            run = subprocess.run(  # noqa: S603 - our own arguments, and no shell
                self.wrapped(["/bin/sh", "-c", "true"], root, root),
                capture_output=True,
                timeout=_SANDBOX_PROBE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConfigurationError(f"bubblewrap did not answer within {_SANDBOX_PROBE_SECONDS} s") from error
        if run.returncode != 0:
            said = run.stderr.decode("utf-8", "replace").strip()
            raise ConfigurationError(
                f"bubblewrap is installed but does not work here: {said}. It needs unprivileged user namespaces, "
                "which containers and some distributions forbid."
            )

    def wrapped(self, command: Sequence[str], root: Path, working_folder: Path) -> list[str]:
        """Return what runs a command in the sandbox, with the root folder in its own place and writable."""
        arguments = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
        if self.network:
            arguments.append("--share-net")
        for path in _SYSTEM:
            if Path(path).is_symlink():
                arguments += ["--symlink", str(Path(path).readlink()), path]
            else:
                arguments += ["--ro-bind-try", path, path]
        for name in _SYSTEM_SETTINGS:
            arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
        for option, folders in (("--ro-bind", self.read), ("--bind", (*self.write, root))):
            for folder in folders:
                path = os.path.abspath(folder)  # noqa: PTH100 - links stay what they are
                arguments += [option, path, path]
        return [*arguments, "--chdir", str(working_folder), "--", *command]
