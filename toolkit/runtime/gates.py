"""Gates before calls that must not run together: so many at once, or never two that name the same lock.

A gate applies to the whole process, whatever event loop a call runs on. It may be left from any thread:
an abandoned thread occupies it until the thread ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

import anyio

from toolkit.chat.output import to_output
from toolkit.runtime.backend import LoopWaker, loop_waker

_open_gates: dict[object, _Gate] = {}
_gates_lock = Lock()  # over _open_gates and the users of each


def lock_key(value: object) -> object:
    """Return the key of the lock that a value names: equal values name one lock, also lists, which have no hash."""
    try:
        hash(value)
    except TypeError:
        value = to_output(value).text  # a list of paths, say
    return ("lock", value)


async def enter_gate(
    key: object, places: int = 1, *, waiting: Callable[[], AbstractContextManager[object]] = nullcontext
) -> Callable[[], None]:
    """Wait for a free slot of a gate, take it, and return the function that releases it, from any thread.

    The order is first come, first served. An unused gate is deleted; one key always has the same number
    of places.

    Args:
        key: Names the gate in this process; hashable.
        places: How many may be inside at once.
        waiting: Entered while this waits.
    """
    with _gates_lock:
        gate = _open_gates.get(key)
        if gate is None:
            gate = _open_gates[key] = _Gate(places)
        gate.users += 1
    is_inside = False
    try:
        if not gate.try_enter():
            with waiting():
                await gate.enter()
        is_inside = True
    finally:
        if not is_inside:
            _leave_gate(key, gate)

    def leave() -> None:
        gate.leave()
        _leave_gate(key, gate)

    return leave


def _leave_gate(key: object, gate: _Gate) -> None:
    with _gates_lock:
        gate.users -= 1
        if not gate.users:
            del _open_gates[key]


class _Waiter:
    """A call that waits, and how its event loop is woken."""

    __slots__ = ("changed", "has_come", "wake")

    def __init__(self) -> None:
        self.changed = anyio.Event()
        self.has_come = False
        self.wake: LoopWaker = loop_waker()


class _Gate:
    __slots__ = ("_free", "_lock", "_waiting", "users")

    def __init__(self, places: int) -> None:
        self.users = 0
        self._free = places
        self._lock = Lock()
        self._waiting: deque[_Waiter] = deque()

    def try_enter(self) -> bool:
        with self._lock:
            is_free = self._free > 0
            self._free -= is_free
            return is_free

    async def enter(self) -> None:
        waiter = _Waiter()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            self._waiting.append(waiter)
        is_inside = False
        try:
            await waiter.changed.wait()
            is_inside = True
        finally:
            if not is_inside:
                self._give_up_turn(waiter)

    def _give_up_turn(self, waiter: _Waiter) -> None:
        with self._lock:
            has_come = waiter.has_come
            if not has_come:
                self._waiting.remove(waiter)
        if has_come:  # cancelled in the moment that its turn came
            self.leave()

    def leave(self) -> None:
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                waiter.has_come = True
                if waiter.wake(waiter.changed.set):
                    return
                # Its event loop has ended without a word to it.
            self._free += 1
