"""Node.js for programs that need a newer one than the machine may have."""

import platform
import shutil
import subprocess
import sys

from tests.npm import npm_packages

__all__ = ["node"]


def node(at_least: int) -> str:
    """Return a Node.js of this major version or newer: the machine's, else one from npm; skips where there is none."""
    own = shutil.which("node")
    if own is not None:
        version = subprocess.run([own, "--version"], capture_output=True, text=True, timeout=120, check=True).stdout
        if int(version.strip().removeprefix("v").partition(".")[0]) >= at_least:
            return own
    machine = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    package = f"node-{sys.platform}-{machine}"
    return str(npm_packages("node", f"{package}@26.10.0") / package / "bin" / "node")
