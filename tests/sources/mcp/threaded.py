"""An application on uvicorn in a thread of its own, for clients on either event loop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def serving_in_thread(make: Callable[[int], Callable[..., Any]]) -> Generator[int]:
    """Serve an application for the length of the block, and yield its port.

    Args:
        make: Takes the port and returns the application. It runs in the server's thread, as locks are of the kind of
            the event loop in which they are made.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        port: int = listener.getsockname()[1]
        options: dict[str, Any] = {"lifespan": "on", "timeout_keep_alive": 30}  # for clients that pause
        config = uvicorn.Config(lambda: make(port), factory=True, ws="none", log_config=None, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(30)
    assert not thread.is_alive()
