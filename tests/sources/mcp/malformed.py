"""A server that answers each call with the text given, in which ID is the id of the request.

With ``json`` or ``events`` it serves over HTTP and prints its port, else on standard input and output.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWERS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "malformed", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
}


def answer(line: bytes | str, template: str) -> str:
    """Return the answer to a message; nothing for a notification."""
    asked = json.loads(line)
    if "id" not in asked:
        return ""
    if asked["method"] == "tools/call":
        return template.replace("ID", json.dumps(asked["id"]))
    found = ANSWERS.get(asked["method"])
    part = {"error": {"code": -32601, "message": "What?"}} if found is None else {"result": found}
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **part})


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON, or in server-sent events."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its class has it
        """Log nothing."""

    def do_GET(self) -> None:
        """Offer no stream."""
        self.send_error(405)

    def do_POST(self) -> None:
        """Answer."""
        reply = answer(self.rfile.read(int(self.headers["content-length"])), sys.argv[2])
        are_events = sys.argv[1] == "events" and reply
        body = (f"data: {reply}\n\n" if are_events else reply).encode()
        self.send_response(200 if reply else 202)
        self.send_header("content-type", "text/event-stream" if are_events else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        for given in sys.stdin:
            if reply := answer(given, sys.argv[2]):
                print(reply, flush=True)
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(server.server_port, flush=True)
        server.serve_forever()
