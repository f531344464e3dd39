"""Whole outputs of which a model reads a part: kept under ids, so that it can ask for the rest."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from toolkit.settings import check_setting

__all__ = ["ResultStore"]


class ResultStore:
    """Keeps the texts that were too long for a model, in this process; safe between threads.

    Each run of a loop makes one of its own when it needs it. Give one to `OutputLimits.store` to set its size,
    or to have several runs share that; a run reads only what it has cut itself. What was stored first gives way when
    there is too much.

    Args:
        max_chars: How many characters it holds in all; a longer text than that is not kept.
    """

    __slots__ = ("_chars", "_count", "_lock", "_texts", "max_chars")

    def __init__(self, max_chars: int = 50_000_000) -> None:
        check_setting("the max_chars of a result store", max_chars, int, least=1)
        self.max_chars: int = max_chars
        self._texts: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._chars = 0
        self._count = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, text: str, *, owner: str = "", after: int = 0) -> str | None:
        """Keep a text and return its id, ``result_1`` for the first; None where it is too long to be kept.

        Only who names the same `owner`, such as the id of a run, is given it. Its number is above `after`: what a run
        that was saved has in its transcript means nothing else.
        """
        if len(text) > self.max_chars:
            return None
        with self._lock:
            self._count = max(self._count, after) + 1
            name = f"result_{self._count}"
            self._texts[name] = owner, text
            self._chars += len(text)
            while self._chars > self.max_chars:
                _, (_, oldest) = self._texts.popitem(last=False)
                self._chars -= len(oldest)
            return name

    def get(self, name: str, *, owner: str = "") -> str | None:
        """Return the text under an id, or None where there is none of this owner."""
        with self._lock:
            kept_for, text = self._texts.get(name, ("", None))
            return text if kept_for == owner else None

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of all owners' texts, the oldest first."""
        with self._lock:
            return tuple(self._texts)

    def names_of(self, owner: str = "") -> tuple[str, ...]:
        """Return the ids of an owner's texts, the oldest first."""
        with self._lock:
            return tuple([name for name, (kept_for, _) in self._texts.items() if kept_for == owner])
