"""A real HTTP server on loopback that sends a test's responses and records the requests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolkit.dataclass import dataclass

__all__ = ["Answer", "Hang", "Server", "closed_port", "serving"]


@dataclass(frozen=True)
class Answer:
    """One response: a status, headers and a body, whole or streamed.

    Args:
        body: The body; bytes are sent unchanged, anything else as JSON.
        status: The HTTP status of a whole response.
        headers: Headers besides the content type and length.
        content_type: The content type of a whole response; a streamed one is an event stream.
        pieces: The pieces of a streamed body, each sent immediately; None for a whole response.
        is_cut: True to cut the connection after the last piece.
    """

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"
    pieces: Sequence[bytes] | None = None
    is_cut: bool = False


@dataclass
class Hang:
    """A response that hangs, after some pieces if there are any.

    Attributes:
        has_come: Set when the request has arrived and the pieces are sent.
        has_left: Set when the client has disconnected.
    """

    pieces: Sequence[bytes] = ()
    has_come: threading.Event = field(default_factory=threading.Event)
    has_left: threading.Event = field(default_factory=threading.Event)


@dataclass
class Server:
    """A server on loopback.

    Attributes:
        url: Its URL, ending in ``/v1``.
        answers: Its responses in order; the last one repeats.
        requests: The JSON of each request so far.
        headers: The headers of each request, with lower-case names.
        paths: The path of each request.
        connections: The client addresses of the requests.
    """

    url: str
    answers: list[Answer | Hang] = field(default_factory=list[Answer | Hang])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    paths: list[str] = field(default_factory=list[str])
    connections: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    @property
    def root(self) -> str:
        """Its URL without a path."""
        return self.url.removesuffix("/v1")


@contextmanager
def serving(*answers: Answer | Hang) -> Generator[Server]:
    """Serve the responses in order, repeating the last one, for the duration of the block."""
    server = Server("", list(answers))
    http = _HttpServer(("127.0.0.1", 0), _Handler)
    http.script = server
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the default of five, the sixth simultaneous connection waits a second
    script: Server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it delays the second small piece of each response by 40 ms

    def do_POST(self) -> None:
        assert isinstance(self.server, _HttpServer)
        script = self.server.script
        length = int(self.headers.get("content-length", "0"))
        script.requests.append(json.loads(self.rfile.read(length) or b"{}"))
        script.headers.append({name.lower(): value for name, value in self.headers.items()})
        script.paths.append(self.path)
        script.connections.add(self.client_address)
        answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
        if isinstance(answer, Hang):
            self.hang(answer)
        elif answer.pieces is not None:
            self.stream(answer)
        else:
            self.whole(answer)

    def do_GET(self) -> None:
        self.do_POST()

    def whole(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.begin(answer.status, {**answer.headers, "content-type": answer.content_type}, length=len(body))
        self.wfile.write(body)

    def stream(self, answer: Answer) -> None:
        self.begin(200, {**answer.headers, "content-type": "text/event-stream"})
        for piece in answer.pieces or ():
            self.write(piece)
        if answer.is_cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def hang(self, answer: Hang) -> None:
        try:
            if answer.pieces:
                self.begin(200, {"content-type": "text/event-stream"})
                for piece in answer.pieces:
                    self.write(piece)
            answer.has_come.set()
            while self.connection.recv(1024):
                pass
        finally:
            answer.has_left.set()
            self.close_connection = True

    def begin(self, status: int, headers: dict[str, str], *, length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(length))
        self.end_headers()

    def write(self, piece: bytes) -> None:
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def handle(self) -> None:
        with suppress(OSError):  # the client has disconnected, as some tests intend
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
        """Keep the output of tests clean."""


def closed_port() -> int:
    """Return an unused port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
