"""The threads that a call gave up and that still work. What the call holds is held until they end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from threading import Lock

__all__ = ["AbandonedThreads", "list_enclosing_calls"]


class AbandonedThreads:
    """The abandoned threads of one call and of all that runs inside it; safe between threads."""

    __slots__ = ("_callbacks", "_lock", "_outer", "_running")

    def __init__(self) -> None:
        self._outer = _current.get()
        self._lock = Lock()
        self._running: set[object] = set()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def outer(self) -> AbandonedThreads | None:
        """The threads of the call round this one, which count these too; None for the outermost."""
        return self._outer

    @property
    def is_left_running(self) -> bool:
        """True where a thread was given up and has not ended."""
        return bool(self._running)

    @contextmanager
    def watched(self) -> Generator[None]:
        """Have the threads that are given up in here counted, also those of loops and threads that start in here."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def add(self, thread: object) -> None:
        """Note a thread that was given up."""
        with self._lock:
            self._running.add(thread)

    def remove(self, thread: object) -> None:
        """Note that it has ended; called in that thread."""
        with self._lock:
            self._running.discard(thread)
            callbacks, self._callbacks = ([], self._callbacks) if self._running else (self._callbacks, [])
        for callback in callbacks:
            callback()

    def when_over(self, callback: Callable[[], object]) -> None:
        """Call `callback`, which must not raise, when nothing of this runs: now, or in the thread that ends last."""
        with self._lock:
            is_over = not self._running
            if not is_over:
                self._callbacks.append(callback)
        if is_over:
            callback()


_current: ContextVar[AbandonedThreads | None] = ContextVar("toolkit_work", default=None)


def list_enclosing_calls(context: Context) -> Generator[AbandonedThreads]:
    """Yield what counts the threads that code of this context gives up: that of each call round it, innermost first."""
    counted = context.get(_current)
    while counted is not None:
        yield counted
        counted = counted.outer
