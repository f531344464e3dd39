"""Packages of npm's, installed outside this tree, once for each version; skips the test where that can't be."""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

__all__ = ["npm_packages"]


def npm_packages(name: str, *packages: str, timeout: float = 240) -> Path:
    """Return the ``node_modules`` folder with these packages in it.

    Args:
        name: Of the folder; packages of one name are installed once.
        packages: Each with its version, such as ``left-pad@1.3.0``.
        timeout: Seconds for an installation.
    """
    how = f"`npm install {' '.join(packages)}` needs Node.js with npm and its registry"
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"no {name}: {' and '.join(missing)} not found; {how}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolkit-tests"
    versions = "-".join(package.rpartition("@")[2] for package in packages)
    folder = cache / f"{name}-{versions}"
    if not (folder / "node_modules").exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Made beside and moved, so that what is there is whole, whoever else installs it at the same time.
        with tempfile.TemporaryDirectory(dir=cache) as fresh:
            made = Path(fresh) / name
            command = [
                "npm",
                "install",
                "--prefix",
                str(made),
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                *packages,
            ]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"no {name}: npm took more than {timeout:g} s; {how}")
            if done.returncode != 0:
                pytest.skip(f"no {name}: npm could not install it ({done.stderr.strip()[-300:]}); {how}")
            with suppress(OSError):  # another was faster
                made.rename(folder)
    return folder / "node_modules"
