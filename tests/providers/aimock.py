"""A server of the vendors' wire formats that is not ours: npm's ``@copilotkit/aimock``, on loopback.

One port speaks OpenAI's chat completions and responses (under ``/v1``), Anthropic's messages and Gemini's
``generateContent``, and answers by fixtures: what matches a request, and what is said to it. It is installed by npm
into a folder of its own, outside this tree, once for each version.
"""

import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.npm import npm_packages

__all__ = ["Aimock", "aimock"]

VERSION = "1.43.0"


@dataclass(frozen=True)
class Aimock:
    """The running server.

    Args:
        url: Its root, without a slash at the end.
    """

    url: str

    def journal(self) -> list[dict[str, Any]]:
        """The requests so far, each with its path, headers, body and status."""
        with urlopen(f"{self.url}/__aimock/journal", timeout=10) as answer:
            entries: list[dict[str, Any]] = json.load(answer)
        return entries


@contextmanager
def aimock(fixtures: Sequence[dict[str, Any]], *flags: str) -> Generator[Aimock]:
    """Serve fixtures, refusing every request that none matches; skip the test where it can't be installed.

    Args:
        fixtures: As its documentation has them: ``{"match": ..., "response": ..., "chaos": ...}``, the first that
            matches is the answer.
        flags: More of its command line, such as ``--chunk-size``.
    """
    program = npm_packages("aimock", f"@copilotkit/aimock@{VERSION}") / "@copilotkit/aimock/dist/cli.js"
    with tempfile.TemporaryDirectory(prefix="toolkit-aimock-") as folder:
        file = Path(folder) / "fixtures.json"
        file.write_text(json.dumps({"fixtures": fixtures}))
        process = subprocess.Popen(
            ["node", str(program), "--port", "0", "--fixtures", str(file), "--strict", "--validate-on-load", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process:
            try:
                url = address_of(process)
                # What it goes on to say must be read, or it would wait for that.
                assert process.stdout is not None
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield Aimock(url)
            finally:
                process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    """Where it listens, once it does."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
    raise AssertionError(f"aimock ended with exit code {process.wait()}: {said}")
