"""The memory of one run: the whole of the texts that were cut, and the run's own place in what counts by run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from anyio import CancelScope

from toolkit.calls.results import ResultStore

__all__ = ["READER", "RunMemory"]

READER = "read_result"
"""The tool that gives what was cut."""


class RunMemory:
    """Keeps what is cut of one run's results, and stands for that run where tools count their uses.

    Args:
        owner: The id of the loop: in a store that several share, nobody else is given what it keeps.
        store: Where texts are kept; None makes a store for this run with the first of them, False keeps none.
        find_reader: Gives the name under which a model can call the tool that reads them.

    Attributes:
        count: How many texts were kept so far.
        run_scope: The cancel scope that ends the run; None before it runs.
        loop_id: The id of the loop; empty before it runs.
    """

    __slots__ = ("__weakref__", "_find_reader", "_owner", "_store", "count", "loop_id", "run_scope")

    def __init__(
        self,
        owner: str,
        store: ResultStore | Literal[False] | None,
        find_reader: Callable[[], str] = lambda: READER,
    ) -> None:
        self._owner = owner
        self._store: ResultStore | Literal[False] | None = store
        self._find_reader = find_reader
        self.count: int = 0
        self.run_scope: CancelScope | None = None
        self.loop_id: str = ""

    @property
    def reader(self) -> str:
        """The name of the tool that reads the texts that were cut."""
        return self._find_reader()

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of the texts that are kept, the oldest first."""
        return self._store.names_of(self._owner) if isinstance(self._store, ResultStore) else ()

    def resume(self, count: int) -> None:
        """Go on after a run that was saved: the ids of what it had cut are not used anew."""
        self.count = count

    def put(self, text: str) -> str | None:
        """Keep a text and return its id; None where it is not kept."""
        if self._store is False:
            return None
        if self._store is None:
            self._store = ResultStore()
        name = self._store.put(text, owner=self._owner, after=self.count)
        if name is not None:
            self.count = int(name.rpartition("_")[2])
        return name

    def get(self, name: str) -> str | None:
        """Return a text of this run, or None: what another run has stored is not read."""
        return self._store.get(name, owner=self._owner) if isinstance(self._store, ResultStore) else None
