"""A viewer on a thread of its own, and what asks it without a browser."""

import http.client
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from urllib.parse import urlsplit

import anyio

from toolkit.run_log import RunLog
from toolkit.ui import serve_viewer


@contextmanager
def viewer_of(log: RunLog, port: int = 0, on_ready: Callable[[str], object] = lambda link: None) -> Generator[str]:
    """Serve the page of a log; give its first link."""
    links: Queue[str] = Queue()

    def report(link: str) -> None:
        links.put(link)
        on_ready(link)

    ended = threading.Event()

    async def serve() -> None:
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                await anyio.to_thread.run_sync(ended.wait)
                tasks.cancel_scope.cancel()

            tasks.start_soon(wait)
            await serve_viewer(log, port, on_ready=report)

    thread = threading.Thread(target=anyio.run, args=(serve,))
    thread.start()
    try:
        yield links.get(timeout=30)
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    text: str


def ask(link: str, path: str = "/", *, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
    """Ask the server of a link for a path, with exactly these headers besides its own host."""
    place = urlsplit(link)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)
    sent = {"Host": place.netloc, **{name.replace("_", "-"): value for name, value in headers.items()}}
    try:
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        return Answer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        )
    finally:
        connection.close()


def enter(link: str) -> str:
    """Open a link and return the header that its page sends from then on."""
    code = urlsplit(link).fragment.removeprefix("code=")
    answer = ask(link, "/page", method="POST", body=json.dumps({"code": code}))
    assert answer.status == 200, answer.text
    return f"Bearer {json.loads(answer.text)['token']}"
