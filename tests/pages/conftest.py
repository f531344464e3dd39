"""The site, built once for all tests that look at it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browsers import browser

__all__ = ["browser", "site"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site() -> Path:
    """Build the site as ``poe docs`` does, and return its folder."""
    command = [sys.executable, "-m", "docs_build"]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    told = build.stdout + build.stderr
    assert build.returncode == 0, told
    assert "griffe:" not in told, f"a docstring that can't be read as a whole: {told}"
    return ROOT / "build" / "site"
