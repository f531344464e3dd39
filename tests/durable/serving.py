"""A worker in a thread of its own, so that its clients run on any backend."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal

from toolkit.durable import DurableLoop, DurableWorker


@contextmanager
def worker_beside(url: str, *loops: DurableLoop[Any, Any], **settings: Any) -> Generator[DurableWorker]:
    """Run a worker on asyncio until the block is left."""
    worker = DurableWorker(loops, url, **settings)
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(worker):
        yield worker
